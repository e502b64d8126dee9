"""DeDUCE: its gradients by hand, its first steps, what it is fitted to, and what it is told."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import spectral_norm as old_spectral_norm
from torch.nn.utils.parametrizations import spectral_norm

from holdfast.errors import ModelError, SettingError
from holdfast.images.deduce import DeDUCE, cross_entropy, relative_gradient
from holdfast.images.jsma import JSMA
from holdfast.images.model import ImageModel
from holdfast.models.density import FeatureDensity, Gaussians
from holdfast.nn.stack import lent_generator
from holdfast.target import BoundTarget
from support.images import cnn, digits, linear, spectral


def goal_of(label: list[int], k: int) -> BoundTarget:
    return BoundTarget(torch.tensor(label), 1.0, 0.0, True, k)


def given(gaussians: Gaussians, model: ImageModel, **settings: Any) -> DeDUCE:
    """With densities that are written down."""
    e = DeDUCE(**settings)
    e.density_ = FeatureDensity(model)
    e.density_.gaussians_ = gaussians
    return e


def drawn(k: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor, Gaussians]:
    """Means (k, d), covariances (k, d, d), and the Gaussians."""
    g = torch.Generator().manual_seed(seed)
    mean = torch.rand(k, d, generator=g, dtype=torch.float64)
    root = torch.randn(k, d, d, generator=g, dtype=torch.float64)
    spread = root @ root.mT + 0.1 * torch.eye(d, dtype=torch.float64)
    factor = torch.linalg.cholesky(spread)
    constant = -factor.diagonal(0, 1, 2).log().sum(1) - d / 2 * math.log(2 * math.pi)
    return mean, spread, Gaussians(mean, torch.linalg.inv(factor), constant, 0.0)


def nothing(k: int, d: int, constant: float = -1.0) -> Gaussians:
    """Densities that are the same everywhere: ld is switched off."""
    zero = torch.zeros(k, d, d, dtype=torch.float64)
    return Gaussians(
        torch.zeros(k, d, dtype=torch.float64),
        zero,
        torch.full((k,), constant, dtype=torch.float64),
        0.0,
    )


def slopes_of(e: DeDUCE, model: ImageModel, x: Tensor, label: list[int]) -> Tensor:
    with model.eval_mode():
        _, slopes = e.look(model, x, goal_of(label, len(model.classes)))
        g, priority = slopes()
    assert torch.equal(priority, g.abs())
    return g


# ---- gradients

K = 3
D = 6
WEIGHT = torch.randn(K, D, generator=torch.Generator().manual_seed(4))
BIAS = torch.tensor([0.3, -0.2, 0.1])


def terms(x: Tensor, t: int, mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ce, grad ce, ld, grad ld of linear scores and pixels as features, by their formulas."""
    w = WEIGHT.double()
    x = x.double()
    p = torch.softmax(w @ x + BIAS.double(), 0)
    own = torch.eye(K, dtype=torch.float64)[t]
    inverse = torch.linalg.inv(spread[t])
    away = x - mean[t]
    ld = -0.5 * (away @ inverse @ away + torch.logdet(spread[t]) + D * math.log(2 * math.pi))
    return -p[t].log(), w.T @ (p - own), ld, -inverse @ away


@pytest.mark.parametrize("mu", [1.0, 0.2, 5.0])
def test_the_relative_gradient_by_its_formula(mu: float) -> None:
    """Paper: hoeltgen2021 Eq. 5."""
    mean, spread, gaussians = drawn(K, D)
    model = linear(WEIGHT, BIAS)
    e = given(gaussians, model, mu=mu)
    x = torch.rand(5, 1, 1, D, generator=torch.Generator().manual_seed(1))
    label = [0, 1, 2, 1, 0]
    got = slopes_of(e, model, x, label)
    for i, t in enumerate(label):
        ce, by_ce, ld, by_ld = terms(x[i].flatten(), t, mean, spread)
        assert torch.allclose(
            got[i].double(), mu * by_ce / ce - by_ld / ld.abs(), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("lam", [0.0, 1.0, 1e4])
def test_the_plain_gradient_by_its_formula(lam: float) -> None:
    """Paper: hoeltgen2021 Eq. 4."""
    mean, spread, gaussians = drawn(K, D)
    model = linear(WEIGHT, BIAS)
    x = torch.rand(5, 1, 1, D, generator=torch.Generator().manual_seed(1))
    got = slopes_of(given(gaussians, model, lam=lam), model, x, [2] * 5)
    for i in range(5):
        _, by_ce, _, by_ld = terms(x[i].flatten(), 2, mean, spread)
        assert torch.allclose(got[i].double(), lam * by_ce - by_ld, rtol=1e-4, atol=1e-3)


def test_the_relative_gradient_of_a_network_by_differences() -> None:
    """On a network of ours: mu ce / c1 - ld / c2 with both divisors held."""
    model = spectral()
    x, y = digits()
    e = DeDUCE(mu=2.0).fit(model, x[:600], y[:600])
    at = x[700:701]
    t = 7
    got = slopes_of(e, model, at, [t])[0].double()

    def parts(image: Tensor) -> tuple[float, float]:
        ce = -model.scores(image).double().log_softmax(1)[0, t]
        return float(ce), float(e.gaussians.of_class(model.features(image), torch.tensor([t]))[0])

    ce, ld = parts(at)
    h = 2e-3
    for i in got.abs().topk(4).indices.tolist():
        step = torch.zeros(64)
        step[i] = h if float(at.flatten()[i]) < 0.5 else -h
        ahead = parts(at + step.view(at.shape))
        slope = 2.0 * (ahead[0] - ce) / ce - (ahead[1] - ld) / abs(ld)
        assert float(got[i]) == pytest.approx(slope / float(step[i]), rel=0.1)


def test_cross_entropy_and_its_slope() -> None:
    scores = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    label = torch.tensor([0, 3, 1, 2, 2, 0])
    ce, by = cross_entropy(scores.detach(), label)
    loss = nn.functional.cross_entropy(scores, label, reduction="none")
    assert torch.allclose(ce, loss.detach())
    assert torch.allclose(by, torch.autograd.grad(loss.sum(), scores)[0], atol=1e-6)


def test_the_first_pixel_is_the_one_with_the_largest_slope() -> None:
    mean, spread, gaussians = drawn(K, D)
    model = linear(WEIGHT, BIAS)
    # no step is cut off
    x = 0.3 + 0.4 * torch.rand(8, 1, 1, D, generator=torch.Generator().manual_seed(2))
    for lam in (None, 3.0):
        cfs = given(gaussians, model, lam=lam, max_iter=1, min_probability=0.9999).explain(
            model, x, 1
        )
        assert cfs.iterations.tolist() == [1] * 8
        for i in range(8):
            ce, by_ce, ld, by_ld = terms(x[i].flatten(), 1, mean, spread)
            g = by_ce / ce - by_ld / ld.abs() if lam is None else lam * by_ce - by_ld
            at = int(g.abs().argmax())
            expected = x[i].flatten().clone()
            expected[at] -= 0.2 * float(g[at].sign())
            assert torch.allclose(cfs.x_cf[i].flatten(), expected, atol=1e-6)


def test_no_step_goes_away_from_the_wanted_class() -> None:
    """Two classes, linear, ld switched off: f_t never falls, and rises with every step that moves a
    pixel."""
    g = torch.Generator().manual_seed(3)
    model = linear(torch.randn(2, 9, generator=g))
    x = torch.rand(12, 1, 1, 9, generator=g)
    before = model.scores(x)
    old = x
    for k in range(1, 25):
        cfs = given(nothing(2, 9), model, min_probability=0.9999, max_iter=k, momentum=0.0).explain(
            model, x, 0
        )
        now = model.scores(cfs.x_cf)
        change = (now[:, 0] - now[:, 1]) - (before[:, 0] - before[:, 1])
        moved = (cfs.x_cf != old).flatten(1).any(1)
        assert bool((change[moved] > 0).all())
        assert bool((change[~moved] == 0).all())
        before = now
        old = cfs.x_cf
    assert float(((old - x) != 0).sum()) > 30


def test_without_a_density_it_is_the_greedy_search_by_class_loss() -> None:
    model = cnn()
    x, y = digits()
    target = [int(c + 1) % 10 for c in y[700:704]]
    e = given(nothing(10, 12), model, momentum=0.0, max_iter=50)
    other = JSMA(limit=5, lock_at_bounds=False, max_iter=50)
    one = e.explain(model, x[700:704], target)
    two = other.explain(model, x[700:704], target)
    assert torch.equal(one.x_cf, two.x_cf)
    assert (one.iterations == two.iterations).all()


def test_the_density_alone_leads_to_the_mean() -> None:
    """lam = 0: steps go to where the wanted class is at home, whatever the classifier says."""
    d = 4
    mean = torch.tensor([[0.1] * d, [0.9, 0.1, 0.9, 0.1]], dtype=torch.float64)
    eye = torch.eye(d, dtype=torch.float64).expand(2, d, d).contiguous()
    gaussians = Gaussians(
        mean, eye, torch.full((2,), -d / 2 * math.log(2 * math.pi), dtype=torch.float64), 0.0
    )
    model = linear(torch.zeros(2, d))
    x = torch.full((1, 1, 1, d), 0.5)
    cfs = given(gaussians, model, lam=0.0, max_iter=8, min_probability=0.9, momentum=0.0).explain(
        model, x, 1
    )
    assert cfs.x_cf.flatten().tolist() == pytest.approx([0.9, 0.1, 0.9, 0.1])


# ---- where ld passes through zero


def test_weights_are_numbers_where_the_density_is_one() -> None:
    ce = torch.tensor([0.7, 2.0, 0.0])
    ld = torch.tensor([0.0, -4.0, 1e-30], dtype=torch.float64)
    a, b = relative_gradient((ce, ld), 3.0)
    assert a[:2].tolist() == pytest.approx([3 / 0.7, 1.5])
    assert b.tolist() == pytest.approx([-1e12, -0.25, -1e12])
    assert bool(a.isfinite().all())


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_a_search_across_the_zero(momentum: float) -> None:
    """ld = 0 exactly at the start: log-density 1/2 - |z|^2 / 2 at z with |z| = 1."""
    d = 4
    eye = torch.eye(d, dtype=torch.float64).expand(2, d, d).contiguous()
    gaussians = Gaussians(
        torch.zeros(2, d, dtype=torch.float64), eye, torch.full((2,), 0.5, dtype=torch.float64), 0.0
    )
    model = linear(torch.tensor([[1.0, 1, 1, 1], [-1, -1, -1, -1]]))
    x = torch.full((1, 1, 1, d), 0.5)
    assert float(gaussians.of_class(x.flatten(1), torch.tensor([1]))[0]) == 0
    e = given(gaussians, model, momentum=momentum, min_probability=0.4999)
    g = slopes_of(e, model, x, [1])
    assert bool(g.isfinite().all())
    assert float(g.min()) > 1e11  # the density term dominates; that is how (5) is
    cfs = e.explain(model, x, 1)
    assert bool(cfs.x_cf.isfinite().all())
    assert cfs.found.all()
    # At the mean the gradient of ld is zero, and its weight as large as it gets.
    at_home = Gaussians(
        torch.full((2, d), 0.5, dtype=torch.float64), eye, torch.zeros(2, dtype=torch.float64), 0.0
    )
    assert bool(slopes_of(given(at_home, model), model, x, [1]).isfinite().all())


# ---- momentum


def test_hardly_any_momentum_is_none() -> None:
    model = cnn()
    x, y = digits()
    e = fitted(model)
    target = [int(c + 4) % 10 for c in y[700:705]]
    runs = [
        e.set_params(momentum=m, max_iter=50).explain(model, x[700:705], target)
        for m in (0.0, 1e-6)
    ]
    assert torch.equal(runs[0].x_cf, runs[1].x_cf)
    assert (runs[0].iterations == runs[1].iterations).all()
    # Float noise: a pixel that goes up and comes down again may count as changed; with a tolerance
    # it does not.
    exact = runs[0].cost("l0")
    tolerant = runs[0].cost("l0", tolerance=1e-4)
    assert (tolerant.dropna() <= exact.dropna()).all()


def fitted(model: ImageModel, **settings: Any) -> DeDUCE:
    x, y = digits()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DeDUCE(**settings).fit(model, x[:600], y[:600])


# ---- fit


def test_it_is_fitted_to_features_and_labels() -> None:
    model = spectral()
    x, y = digits()
    e = DeDUCE()
    assert not e.is_fitted
    with pytest.raises(
        SettingError, match=r"DeDUCE needs data; call .fit\(model, images, labels\) first"
    ):
        e.explain(model, x[:1], 3)
    assert e.fit(model, x[:600], y[:600].numpy()) is e
    assert e.is_fitted
    z = model.features(x[:600])
    direct = Gaussians.of(z, y[:600], 10)
    assert torch.allclose(e.gaussians.mean, direct.mean)
    assert torch.allclose(e.gaussians.whiten, direct.whiten)
    cfs = e.explain(model, x[700:703], "all", labels=y[700:703])
    assert len(cfs) == 27
    assert cfs.found.mean() > 0.8
    told = e.density_(cfs)
    assert (told.notna() == cfs.found).all()


def test_answers_are_more_at_home_than_without_the_density() -> None:
    model = spectral()
    x, y = digits()
    e = DeDUCE(lam=0.1).fit(model, x[:600], y[:600])
    target = [int(c + 5) % 10 for c in y[700:712]]
    with_it = e.explain(model, x[700:712], target)
    without = JSMA(limit=5, lock_at_bounds=False).explain(model, x[700:712], target)
    both = with_it.found & without.found
    assert both.sum() > 5
    assert e.density_(with_it)[both].median() > e.density_(without)[both].median()


def test_a_network_without_bounds_is_warned_about() -> None:
    model = cnn()
    x, y = digits()
    with pytest.warns(UserWarning, match="no spectral normalisation") as caught:
        DeDUCE().fit(model, x[:600], y[:600])
    text = str(caught[0].message)
    assert f"accuracy on these images {model.accuracy(x[:600], y[:600]):.4f}" in text
    assert "around 64 of the images features change up to" in text
    assert caught[0].filename == __file__


def bounded(norm: Any, every: bool = True) -> ImageModel:
    with lent_generator(0):
        first = nn.Conv2d(1, 4, 3, padding=1)
        last = nn.Conv2d(4, 6, 3, padding=1)
        parts = [
            norm(first),
            nn.ReLU(),
            norm(last) if every else last,
            nn.Flatten(),
            nn.Linear(384, 10),
        ]
    net = nn.Sequential(*parts)
    return ImageModel.of(net.eval(), (1, 8, 8), features="2")


def test_torchs_own_spectral_normalisation_counts() -> None:
    x, y = digits()
    DeDUCE().fit(bounded(spectral_norm), x[:300], y[:300])  # a warning would be an error
    with pytest.warns(UserWarning, match="no spectral normalisation"):
        DeDUCE().fit(bounded(spectral_norm, every=False), x[:300], y[:300])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch calls its older form deprecated
        model = bounded(old_spectral_norm)
    DeDUCE().fit(model, x[:300], y[:300])


def test_networks_without_convolutions() -> None:
    x, y = digits()
    with lent_generator(0):
        layers = [nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10)]
        normed = spectral_norm(nn.Linear(64, 12))
    with pytest.warns(UserWarning, match="no spectral normalisation"):
        DeDUCE().fit(
            ImageModel.of(nn.Sequential(*layers), (1, 8, 8), features="2"), x[:300], y[:300]
        )
    layers[1] = normed
    DeDUCE().fit(ImageModel.of(nn.Sequential(*layers), (1, 8, 8), features="2"), x[:300], y[:300])


def test_what_it_cannot_be_fitted_to() -> None:
    model = spectral()
    x, y = digits()
    with pytest.raises(SettingError, match="needs the labels of the images as well"):
        DeDUCE().fit(model, x[:600])
    with pytest.raises(SettingError, match="needs images and their labels"):
        DeDUCE().fit(model)
    with pytest.raises(SettingError, match="the model has no class 10"):
        DeDUCE().fit(model, x[:600], y[:600] + 2)
    with pytest.raises(SettingError, match="class 3 has 0 rows"):
        DeDUCE().fit(model, x[:600][y[:600] != 3], y[:600][y[:600] != 3])
    net = ImageModel.of(cnn().module, (1, 8, 8))
    with pytest.raises(ModelError, match="which layer has the features"):
        DeDUCE().fit(net, x[:600], y[:600])


def test_settings_and_models_that_cannot_work() -> None:
    model = spectral()
    x, y = digits()
    e = DeDUCE().fit(model, x[:600], y[:600])
    with pytest.raises(
        SettingError, match="10 classes and 8 features, the model has 10 and 12; fit again"
    ):
        e.explain(cnn(), x[:1], 3)
    with pytest.raises(ModelError, match="DeDUCE needs features"):
        e.explain(ImageModel.of(cnn().module, (1, 8, 8)), x[:1], 3)
    for wrong in (
        {"mu": -1.0},
        {"lam": -0.1},
        {"mu": math.inf},
        {"lam": math.nan},
        {"momentum": 1.0},
    ):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            given(e.gaussians, model, **wrong).explain(model, x[:1], 3)


def test_fitted_inside_inference_mode() -> None:
    x, y = digits()
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inside = DeDUCE(max_iter=30).fit(cnn(), x[:600].clone(), y[:600])
    outside = fitted(cnn(), max_iter=30)
    one = inside.explain(cnn(), x[700:703], 3)
    two = outside.explain(cnn(), x[700:703], 3)
    assert torch.equal(one.x_cf, two.x_cf)
    assert (one.status_codes == two.status_codes).all()
