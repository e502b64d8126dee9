"""Densities of features: against torch's own Gaussians, by differences, and on models of tables and
of images."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import holdfast as hf
from holdfast.errors import ModelError, SettingError
from holdfast.images.jsma import JSMA
from holdfast.images.model import ImageModel
from holdfast.models.density import JITTER, FeatureDensity, Gaussians
from holdfast.nn.architecture import mlp
from holdfast.target import Status
from support.tables import mixed_schema, mixed_table, seeded


def cloud(n: int = 90, f: int = 5, k: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features of k classes, each with its own centre and covariance."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % k
    turn = torch.randn(k, f, f, generator=g)
    centre = 3 * torch.randn(k, f, generator=g)
    z = torch.randn(n, f, generator=g)
    return torch.einsum("nij,nj->ni", turn[y], z) + centre[y], y


def by_torch(z: Tensor, y: Tensor, k: int, jitter: float) -> list[MultivariateNormal]:
    parts = [z[y == c].double() for c in range(k)]
    eye = jitter * torch.eye(z.shape[1], dtype=torch.float64)
    return [
        MultivariateNormal(p.mean(0), torch.from_numpy(np.cov(p.numpy().T, ddof=1)) + eye)
        for p in parts
    ]


def test_equals_the_gaussians_of_torch() -> None:
    """Paper: hoeltgen2021 Section 2.2 DDU."""
    z, y = cloud()
    g = Gaussians.of(z, y, 3)
    exact = torch.stack([p.log_prob(z.double()) for p in by_torch(z, y, 3, g.jitter)], 1)
    assert g.mean.dtype == g.whiten.dtype == g.constant.dtype == torch.float64
    assert torch.allclose(g.each(z), exact, atol=1e-8, rtol=1e-8)
    for label in range(3):
        ld, _ = g.of_class(z, torch.full((len(z),), label))
        assert torch.allclose(ld, exact[:, label], atol=1e-8, rtol=1e-8)
    assert torch.allclose(g.mixture(z), exact.exp().mean(1).log(), atol=1e-8, rtol=1e-8)
    assert torch.allclose(g.constant, g.each(g.mean).diagonal(), atol=1e-8)


def test_one_feature_by_hand() -> None:
    z = torch.tensor([[0.0], [2.0], [4.0], [10.0], [10.5], [11.0]])
    y = torch.tensor([0, 0, 0, 1, 1, 1])
    g = Gaussians.of(z, y, 2)
    assert g.mean.flatten().tolist() == [2.0, 10.5]
    assert g.jitter == pytest.approx(JITTER * (4.0 + 0.25) / 2)  # variances 4 and 1/4
    expected = -0.5 * 9 / (4 + g.jitter) - 0.5 * math.log(2 * math.pi * (4 + g.jitter))
    assert float(g.of_class(torch.tensor([[5.0]]), torch.tensor([0]))[0]) == pytest.approx(
        expected, abs=1e-12
    )


def test_gradient_by_differences() -> None:
    z, y = cloud()
    g = Gaussians.of(z, y, 3)
    at = z[:7].double()
    label = torch.tensor([0, 1, 2, 2, 1, 0, 0])
    h = 1e-5
    _, by = g.of_class(at, label)
    for j in range(z.shape[1]):
        step = torch.zeros_like(at)
        step[:, j] = h
        slope = (g.of_class(at + step, label)[0] - g.of_class(at - step, label)[0]) / (2 * h)
        assert torch.allclose(by[:, j], slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["repeated", "constant", "few rows", "a zero class"])
def test_singular_covariances(kind: str) -> None:
    z, y = cloud(60, 4, 2)
    if kind == "repeated":
        z = torch.cat([z, z[:, :2]], 1)
    elif kind == "constant":
        z = torch.cat([z, torch.ones(60, 2)], 1)
    elif kind == "few rows":
        z = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
        y = torch.tensor([0, 0, 1, 1])
    else:
        z = torch.where((y == 1)[:, None], torch.zeros(()), z)
    g = Gaussians.of(z, y, 2)
    scale = float(
        torch.stack([torch.cov(z[y == c].T.double()).diagonal().mean() for c in (0, 1)]).mean()
    )
    doublings = math.log2(g.jitter / (JITTER * scale))
    assert doublings == pytest.approx(round(doublings))
    assert 0 <= round(doublings) <= 3
    ld, by = g.of_class(z, y)
    assert bool(ld.isfinite().all())
    assert bool(by.isfinite().all())
    exact = torch.stack([p.log_prob(z.double()) for p in by_torch(z, y, 2, g.jitter)], 1)
    assert torch.allclose(g.each(z), exact, rtol=1e-6, atol=1e-6)


def test_all_features_equal() -> None:
    g = Gaussians.of(torch.full((4, 3), 7.0), torch.tensor([0, 0, 1, 1]), 2)
    assert g.jitter == JITTER
    assert bool(g.each(torch.zeros(2, 3)).isfinite().all())


def test_the_order_of_classes_and_rows_is_only_an_order() -> None:
    z, y = cloud()
    g = Gaussians.of(z, y, 3)
    new = torch.tensor([2, 0, 1])  # class c is now called new[c]
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(1))
    other = Gaussians.of(z[order], new[y][order], 3)
    assert torch.allclose(other.each(z)[:, new], g.each(z), atol=1e-9)
    assert torch.allclose(other.mixture(z), g.mixture(z), atol=1e-9)
    assert other.jitter == pytest.approx(g.jitter)


def test_fits_exactly_the_rows_given() -> None:
    """A buffer that is longer than what was computed must not leak into class 0: rows and labels
    must match."""
    z, y = cloud()
    with pytest.raises(SettingError, match=r"\(90, 5\) and labels \(80,\)"):
        Gaussians.of(z, y[:80], 3)
    one = Gaussians.of(z[:80], y[:80], 3)
    more = Gaussians.of(z, y, 3)
    assert not torch.equal(one.mean, more.mean)
    assert torch.allclose(one.mean[0], z[:80][y[:80] == 0].double().mean(0), atol=1e-12)


@given(n=st.integers(1, 19), f=st.sampled_from([1, 3, 8, 32]))
@settings(max_examples=25, deadline=None)
def test_a_row_does_not_depend_on_the_others(n: int, f: int) -> None:
    z, y = cloud(120, f)
    g = Gaussians.of(z, y, 3)
    ld, by = g.of_class(z, y)
    few, few_by = g.of_class(z[:n], y[:n])
    assert torch.equal(few, ld[:n])
    assert torch.equal(few_by, by[:n])
    assert torch.equal(g.each(z[:n]), g.each(z)[:n])


def test_many_rows_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = cloud()
    g = Gaussians.of(z, y, 3)
    whole = g.of_class(z, y)
    # two rows at once, whatever the features
    monkeypatch.setattr("holdfast.models.density.CELLS", 1)
    parts = g.of_class(z[:89], y[:89])
    assert torch.equal(parts[0], whole[0][:89])
    assert torch.equal(parts[1], whole[1][:89])


def test_no_rows() -> None:
    z, y = cloud()
    g = Gaussians.of(z, y, 3)
    ld, by = g.of_class(z[:0], y[:0])
    assert (ld.shape, by.shape, g.each(z[:0]).shape, g.mixture(z[:0]).shape) == (
        (0,),
        (0, 5),
        (0, 3),
        (0,),
    )


def test_what_has_no_gaussian() -> None:
    z, y = cloud()
    with pytest.raises(SettingError, match="class number 3 has 0 rows"):
        Gaussians.of(z, y, 4)
    with pytest.raises(SettingError, match="class number 1 has 1 rows"):
        Gaussians.of(z[:3], torch.tensor([0, 0, 1]), 2)
    with pytest.raises(SettingError, match="NaN"):
        Gaussians.of(z.masked_fill(z > 5, torch.nan), y, 3)
    with pytest.raises(SettingError, match="do not belong together"):
        Gaussians.of(z[:, 0], y, 3)


def test_fitted_in_inference_mode_it_is_of_use_outside() -> None:
    z, y = cloud()
    with torch.inference_mode():
        g = Gaussians.of(z.clone(), y.clone(), 3)
    at = z[:3].double().requires_grad_()
    g.each(at).sum().backward()
    assert at.grad is not None
    _, by = g.of_class(z[:3], torch.tensor([0, 0, 0]))
    assert torch.allclose(
        torch.autograd.functional.jacobian(lambda v: g.each(v)[:, 0].sum(), z[:3].double()), by
    )


# ---- models of tables

TABLE = mixed_table(200)
SCHEMA = mixed_schema(TABLE)
NET = seeded(mlp(SCHEMA.width, (8,), 2))
MODEL = hf.Model.of(NET, SCHEMA, classes=["no", "yes"])


def test_a_network_of_tables() -> None:
    y = MODEL.predict(TABLE)
    density = hf.FeatureDensity(MODEL).fit(TABLE, y)
    x = SCHEMA.encode(TABLE, torch.float32)
    z = nn.Sequential(*list(NET)[:-1])(x).detach()
    assert torch.allclose(density.features(TABLE), z.double(), atol=1e-6)
    assert density.features(TABLE).shape == (200, 8)
    mixture = Gaussians.of(z, torch.tensor((y == "yes").to_numpy().astype(int)), 2).mixture(z)
    told = density.log_density(TABLE)
    assert told.index.equals(TABLE.index)
    assert told.to_numpy() == pytest.approx(mixture.numpy(), rel=1e-3, abs=1e-3)
    assert torch.equal(density.features(TABLE.iloc[:3]), density.features(TABLE)[:3])


def test_layers_within_layers() -> None:
    inner = nn.Sequential(
        nn.Sequential(nn.Linear(SCHEMA.width, 6), nn.ReLU()), nn.Sequential(nn.Linear(6, 2))
    )
    model = hf.Model.of(seeded(inner), SCHEMA)
    assert hf.FeatureDensity(model).features(TABLE).shape == (200, 6)


def test_a_black_box_has_its_rows_as_features() -> None:
    x = SCHEMA.encode(TABLE, torch.float64).numpy()
    label = np.where(x.sum(1) > np.median(x.sum(1)), "yes", "no")
    box = hf.Model.of(LogisticRegression(max_iter=500).fit(x, label), SCHEMA, inputs="encoded")
    density = FeatureDensity(box).fit(TABLE, label)
    assert torch.equal(density.features(TABLE), SCHEMA.encode(TABLE, torch.float64))
    assert bool(np.isfinite(density.log_density(TABLE)).all())


def test_the_metric_of_answers() -> None:
    no = TABLE[(MODEL.predict(TABLE) == "no").to_numpy()]
    cfs = hf.Descent(steps=40, restarts=2).explain(MODEL, no, "yes")
    density = FeatureDensity(MODEL).fit(TABLE, MODEL.predict(TABLE))
    told = density(cfs)
    assert cfs.found.any()
    assert told.index.equals(cfs.after.index)
    assert (told.notna() == cfs.found).all()
    z = density.features(cfs.x_cf)
    own, _ = density.gaussians_.of_class(z, torch.ones(len(z), dtype=torch.int64))
    assert told[cfs.found].to_numpy() == pytest.approx(own.numpy()[cfs.found])
    # Nothing is found: nothing is told.
    none = hf.Descent().explain(MODEL, no, "yes", time_budget=1e-9)
    assert not none.found.any()
    assert density(none).isna().all()


def test_any_other_class_is_the_one_that_was_reached() -> None:
    # None: leave the present class
    cfs = hf.Descent(steps=40, restarts=2).explain(MODEL, TABLE.iloc[:20])
    density = FeatureDensity(MODEL).fit(TABLE, MODEL.predict(TABLE))
    z = density.features(cfs.x_cf)
    reached = 1 - cfs.goal.label
    assert density(cfs)[cfs.found].to_numpy() == pytest.approx(
        density.gaussians_.of_class(z, reached)[0].numpy()[cfs.found]
    )


def test_strange_rows_are_flagged() -> None:
    y = MODEL.predict(TABLE)
    density = FeatureDensity(MODEL, strange_below=0.05).fit(TABLE, y)
    flags = density.strange(TABLE)
    assert flags.dtype == bool
    assert flags.sum() == 10  # 5 % of 200 rows
    far = TABLE.iloc[:5].assign(income=1e7)
    assert density.strange(far).all()
    assert list(density.strange(far).index) == list(far.index)


def test_error_texts() -> None:
    y = MODEL.predict(TABLE)
    density = FeatureDensity(MODEL)
    for call in (density.log_density, density.strange):
        with pytest.raises(SettingError, match=r"call .fit\(X, y\) first"):
            call(TABLE)
    for share in (0, 1, -0.1, math.nan):
        with pytest.raises(SettingError, match="strange_below must be a share"):
            FeatureDensity(MODEL, strange_below=share)
    with pytest.raises(SettingError, match=r"no class 'maybe'; it has \['no', 'yes'\]"):
        density.fit(TABLE, y.replace("yes", "maybe"))
    with pytest.raises(SettingError, match="class 'yes' has 0 rows"):
        density.fit(TABLE, ["no"] * 200)
    with pytest.raises(SettingError, match="do not belong together"):
        density.fit(TABLE, y.iloc[:150])
    with pytest.raises(SettingError, match="one class per row or image, got shape"):
        density.fit(TABLE, y.to_numpy()[:, None])
    with pytest.raises(SettingError, match="class 'no' has 0 rows"):
        density.fit(TABLE.iloc[:0], [])
    with pytest.raises(ModelError, match="got a int"):
        FeatureDensity(3)
    assert not hasattr(density, "gaussians_")


# ---- images


def images(n: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Bright on the left or on the right."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.rand(n, 1, 4, 4, generator=g) * 0.5
    side = torch.tensor([1.0, 1, 0, 0]).expand(4, 4)
    return x + 0.4 * torch.where((y == 0)[:, None, None, None], side, 1 - side), y


def image_model(**more: Any) -> ImageModel:
    net = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Flatten(), nn.Linear(48, 2))
    with torch.no_grad():
        seeded(net)
        side = torch.tensor([1.0, 1, -1, -1]).expand(3, 4, 4).flatten()
        net[2].weight.copy_(torch.stack([side, -side]))
        net[0].weight.fill_(0.1)
    return ImageModel.of(net, (1, 4, 4), **more)


def test_images() -> None:
    x, y = images()
    model = image_model(features="0", classes=["left", "right"])
    names = np.array(["left", "right"])[y.numpy()]
    density = FeatureDensity(model).fit(x, names)
    assert density.features(x).shape == (60, 3)
    assert density.gaussians_.mean.shape == (2, 3)
    assert density.log_density(x).notna().all()
    assert density.strange(torch.ones(2, 1, 4, 4)).all()
    assert density.strange(x).sum() == 1  # 1 % of 60
    cfs = JSMA(max_iter=40).explain(model, x[:6], "right")
    told = density(cfs)
    assert cfs.found.any()
    assert (told.notna() == cfs.found).all()
    assert (cfs.status_codes == Status.ALREADY_MET).any()
    with pytest.raises(ModelError, match="features=NAME"):
        FeatureDensity(image_model())


def test_tensors_there_and_back() -> None:
    x, y = images()
    model = image_model(features="0")
    one = FeatureDensity(model, strange_below=0.1).fit(x, y)
    two = FeatureDensity.from_tensors(model, one.tensors())
    pd.testing.assert_series_equal(one.log_density(x), two.log_density(x))
    assert (two.strange_below, two.limit_) == (one.strange_below, one.limit_)
    assert two.gaussians_.jitter == one.gaussians_.jitter
    with pytest.raises(SettingError, match="not the tensors of a density: 'mean'"):
        FeatureDensity.from_tensors(model, {"mean": one.gaussians_.mean})
    with pytest.raises(SettingError, match="do not fit each other"):
        FeatureDensity.from_tensors(model, one.tensors() | {"constant": torch.zeros(3)})
    with pytest.raises(SettingError, match="2 classes and 3 features, the model 2 and 48"):
        FeatureDensity.from_tensors(image_model(features="1"), one.tensors())
