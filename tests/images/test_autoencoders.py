"""Methods that look at images through an autoencoder: the two autoencoders, VLK and REVISE."""

import copy
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import holdfast as hf
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast.images._stored import MARK
from holdfast.images.autoencoders import (
    Codec,
    ConvAutoencoder,
    ConvVAE,
    ImageCoder,
    MapAutoencoder,
    Sigmoid,
    VariationalAutoencoder,
    divergence,
)
from holdfast.images.classifier import SpectralResNet
from holdfast.images.explainer import ImageSearchProblem
from holdfast.images.model import ImageModel
from holdfast.images.prototype import Hinge, Prototype, prototypes, pull_of, shrunk
from holdfast.images.revise import REVISE, LatentSlots, Look, correction
from holdfast.problem import TimeBudget
from holdfast.target import BoundTarget
from support.tables import seeded

SIZE = 1, 8, 8


@cache
def digits() -> Tensor:
    return torch.as_tensor(load_digits().images / 16).float()[:, None]


@cache
def labels() -> np.ndarray:
    return load_digits().target


@cache
def model() -> ImageModel:
    net = SpectralResNet(width=4, depth=1, stages=2, epochs=6, batch_size=32).fit(
        digits()[:1000], labels()[:1000]
    )
    return net.model_


@cache
def coder() -> ConvAutoencoder:
    return ConvAutoencoder(width=8, epochs=10, batch_size=32, lr=5e-3).fit(digits()[:1000])


@cache
def vae() -> ConvVAE:
    return ConvVAE(latent=5, epochs=8, batch_size=32, lr=2e-3, weight=0.2).fit(digits()[:1000])


def linear(weight: Tensor, bias: Tensor, size: tuple[int, int, int] = SIZE) -> ImageModel:
    with torch.random.fork_rng():
        layer = nn.Linear(weight.shape[1], len(weight))
    layer.load_state_dict({"weight": weight, "bias": bias})
    return ImageModel.of(nn.Sequential(nn.Flatten(), layer), size)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def problem_of(
    net: ImageModel, x: Tensor, wanted: Tensor, *, free: Tensor | None = None, chunk: int = 8
) -> ImageSearchProblem:
    goal = BoundTarget(wanted, 1.0, 0.0, False, len(net.classes))
    free = torch.ones_like(x, dtype=torch.bool) if free is None else free
    return ImageSearchProblem(
        net, x, goal, free, RowRandom.of(0, x), TimeBudget(None, Progress(False, "")), chunk
    )


def params(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def drawn(kind: type[Codec], size: tuple[int, int, int], width: int) -> Codec:
    """A network with weights of our own."""
    with torch.random.fork_rng():
        net: Any = kind(size, width)
    return seeded(net).requires_grad_(False)


# ---- architecture


def test_the_vae_of_28_x_28_digits_is_that_of_the_paper() -> None:
    net = drawn(VariationalAutoencoder, (1, 28, 28), 32)
    x = torch.zeros(2, 1, 28, 28)
    assert params(net) == 433_505
    sizes = [tuple(x.shape[1:])]
    for layer in [*net.encoder, lambda code: code[:, :32], *net.decoder]:
        x = layer(x)
        if sizes[-1] != tuple(x.shape[1:]):
            sizes.append(tuple(x.shape[1:]))
    assert sizes == [
        (1, 28, 28),
        (32, 14, 14),
        (64, 7, 7),
        (3136,),
        (64,),
        (32,),
        (3136,),
        (64, 7, 7),
        (32, 13, 13),
        (32, 27, 27),
        (32, 28, 28),
        (1, 28, 28),
    ]


def test_the_autoencoder_of_28_x_28_digits_is_that_of_the_library() -> None:
    """3 x 3 kernels with biases: 160 + 2320 + 145 in, the same out."""
    net = drawn(MapAutoencoder, (1, 28, 28), 16)
    assert params(net) == 2 * (160 + 2320 + 145)
    assert net.encode(torch.zeros(2, 1, 28, 28)).shape == (2, 1, 14, 14)
    assert net.code == (1, 14, 14)


@pytest.mark.parametrize(
    "size", [(1, 8, 8), (3, 64, 64), (2, 9, 14), (1, 29, 30), (1, 31, 5), (1, 1, 2)]
)
@pytest.mark.parametrize("kind", [MapAutoencoder, VariationalAutoencoder])
def test_images_of_any_size_come_back_in_it(kind: Any, size: tuple[int, int, int]) -> None:
    net = drawn(kind, size, 6)
    z = net.encode(torch.zeros(3, *size))
    assert z.shape == (3, *net.code)
    assert net.decode(z).shape == (3, *size)


def test_the_autoencoder_is_at_home_around_grey() -> None:
    """What is around an image is 0 for a convolution, which is grey here: -0.5 would be black."""
    net: Any = drawn(MapAutoencoder, SIZE, 3)
    x = digits()[:4]
    e = net.encoder
    h = F.conv2d(x - 0.5, e[0].weight, e[0].bias, padding=1).relu()
    h = F.max_pool2d(F.conv2d(h, e[2].weight, e[2].bias, padding=1).relu(), 2)
    z = F.conv2d(h, e[5].weight, e[5].bias, padding=1)
    torch.testing.assert_close(net.encode(x), z)
    d = net.decoder
    h = (
        F.conv2d(z, d[0].weight, d[0].bias, padding=1)
        .relu()
        .repeat_interleave(2, 2)
        .repeat_interleave(2, 3)
    )
    h = F.conv2d(h, d[3].weight, d[3].bias, padding=1).relu()
    torch.testing.assert_close(net.decode(z), F.conv2d(h, d[5].weight, d[5].bias, padding=1) + 0.5)


def test_the_sigmoid_is_the_sigmoid() -> None:
    x = torch.linspace(-200, 200, 999)
    torch.testing.assert_close(Sigmoid()(x), x.sigmoid(), atol=1e-7, rtol=0)


# ---- training


def test_training_makes_images_come_back() -> None:
    x = digits()[1000:1200]
    mean = digits()[:1000].mean(0)
    for trained, share in ((coder(), 0.5), (vae(), 0.7)):
        history = trained.history_
        assert len(history) == trained.epochs
        assert history[-1] < 0.7 * history[0]
        again = trained.reconstruct(x)
        assert again.shape == x.shape
        assert (again - x).square().mean() < share * (mean - x).square().mean()


def test_the_vae_begins_with_images_as_bright_as_those_it_sees() -> None:
    net: Any = drawn(VariationalAutoencoder, (3, 8, 8), 4)
    net.begin_at(torch.tensor([0.2, 0.0, 0.5]))
    assert torch.allclose(
        net.decoder[-2].bias, torch.tensor([math.log(0.25), math.log(0.001 / 0.999), 0.0])
    )
    # Nothing but black: no infinite bias.
    black = ConvVAE(latent=2, epochs=1).fit(torch.zeros(4, 4, 4))
    assert float(black.reconstruct(torch.zeros(1, 4, 4)).max()) < 0.1


def test_the_loss_of_the_vae_by_hand() -> None:
    assert float(divergence(torch.tensor([[1.0]]), torch.tensor([[0.0]]))) == 0.5
    m = draw(3, 4)
    v = draw(3, 4, seed=1)
    wanted = torch.distributions.kl_divergence(
        torch.distributions.Normal(m, (v / 2).exp()), torch.distributions.Normal(0.0, 1.0)
    )
    torch.testing.assert_close(divergence(m, v), wanted.sum())
    x = digits()[:6]
    net = drawn(VariationalAutoencoder, SIZE, 4)
    mine = torch.Generator().manual_seed(3)
    theirs = torch.Generator().manual_seed(3)
    loss = ConvVAE(latent=4, weight=2.0).loss(net, x, 0, mine)
    m, v = net.distribution(x)
    z = m + (v / 2).exp() * torch.randn(6, 4, generator=theirs)
    missed = (net.decode(z) - x).square().sum((1, 2, 3))
    torch.testing.assert_close(loss, (missed + (m**2 + v.exp() - 1 - v).sum(1)).mean())


def test_the_divergence_warms_up() -> None:
    slow = ConvVAE(weight=2.0, warm_up=True)
    assert [slow.share(e) for e in (0, 1, 25, 50, 99)] == pytest.approx(
        [0.02, 0.06, 1.02, 2.0, 2.0]
    )
    assert ConvVAE(weight=2.0).share(0) == 2.0


@pytest.mark.parametrize("kind", [ConvAutoencoder, ConvVAE])
def test_a_seed_fixes_the_weights_and_nothing_else_changes(kind: Any) -> None:
    x = digits()[:40].clone()
    before = (
        x.clone(),
        torch.get_rng_state(),
        np.random.get_state()[1].copy(),
        torch.get_num_threads(),
    )
    with torch.inference_mode():
        first = kind(epochs=1).fit(x)
    other = kind(epochs=1, seed=1).fit(x)
    same = kind(epochs=1).fit(x)
    a = list(first.net_.state_dict().values())
    b = list(same.net_.state_dict().values())
    c = list(other.net_.state_dict().values())
    assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(a, c, strict=True))
    assert torch.equal(x, before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert (np.random.get_state()[1] == before[2]).all()
    assert torch.get_num_threads() == before[3]
    assert not any(p.requires_grad for p in first.net_.parameters())


@pytest.mark.parametrize("size", [(1, 8, 8), (3, 11, 14)])
@pytest.mark.parametrize("net", [ConvAutoencoder(width=5), ConvVAE(latent=5), ConvVAE(latent=32)])
def test_an_image_does_not_depend_on_the_others(
    net: ImageCoder, size: tuple[int, int, int]
) -> None:
    net = copy.copy(net)
    with torch.random.fork_rng():
        net.net_ = net.network(size).requires_grad_(False)
    x = torch.rand(21, *size, generator=torch.Generator().manual_seed(0))
    z = net.encode(x)
    y = net.decode(z)
    for part in (slice(0, 1), slice(20, 21), slice(3, 5), slice(7, 20), slice(0, 0)):
        assert torch.equal(net.encode(x[part]), z[part])
        assert torch.equal(net.decode(z[part]), y[part])
        assert torch.equal(net.reconstruct(x[part]), y[part])


# ---- settings and files


def test_wrong_settings_are_named() -> None:
    x = digits()[:4]
    for wrong in ({"epochs": 0}, {"batch_size": 2.5}, {"lr": 0.0}, {"seed": "a"}, {"width": 0}):
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            ConvAutoencoder(**wrong).fit(x)
    for wrong in ({"latent": 0}, {"weight": -1.0}, {"epochs": True}):
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            ConvVAE(**wrong).fit(x)
    with pytest.raises(hf.HoldfastError, match="got none"):
        ConvVAE().fit(x[:0])
    with pytest.raises(hf.HoldfastError, match=r"diverged.*lower lr"):
        ConvVAE(lr=1e18, epochs=2, latent=2).fit(x)
    with pytest.raises(hf.HoldfastError, match=r"call \.fit\(images\) first"):
        ConvVAE().encode(x)
    with pytest.raises(hf.HoldfastError, match=r"codes of shape \(n, 5\), got \(2, 4\)"):
        vae().decode(draw(2, 4))
    with pytest.raises(hf.HoldfastError, match="1 x 8 x 8"):
        vae().encode(torch.zeros(2, 7, 8))


@pytest.mark.parametrize("name", ["coder", "vae"])
def test_files_hold_everything(name: str, tmp_path: Path) -> None:
    net: ImageCoder = {"coder": coder, "vae": vae}[name]()
    net.save(tmp_path / "net.safetensors")
    same = type(net).load(tmp_path / "net.safetensors")
    assert same.get_params() == net.get_params()
    assert same.history_ == net.history_
    assert same.size == SIZE
    assert torch.equal(same.reconstruct(digits()[:9]), net.reconstruct(digits()[:9]))
    with pytest.raises(hf.HoldfastError, match="cannot write"):
        net.save(tmp_path)
    other: Any = ConvVAE if name == "coder" else ConvAutoencoder
    with pytest.raises(hf.HoldfastError, match=f"holds {type(net).__name__}, not {other.__name__}"):
        other.load(tmp_path / "net.safetensors")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    good = tmp_path / "good.safetensors"
    bad = tmp_path / "bad.safetensors"
    vae().save(good)
    tensors = load_file(good)
    content = {
        "kind": "ConvVAE",
        "settings": vae().get_params(),
        "size": list(SIZE),
        "history": [1.0],
    }

    def refused(
        match: str, change: dict[str, Any] | None = None, replaced: dict[str, Tensor] | None = None
    ) -> None:
        save_file(
            tensors | (replaced or {}), bad, metadata={MARK: json.dumps(content | (change or {}))}
        )
        with pytest.raises(hf.HoldfastError, match=match):
            ConvVAE.load(bad)

    refused("damaged", {"size": [1, 8]})
    refused("no image has the size", {"size": [1, 8, 10**9]})
    refused("damaged", {"size": [1, 16, 8]})
    refused("latent", {"settings": {"latent": 10**9}})
    refused("damaged", {"settings": {"power": 2}})
    refused("damaged", {"history": ["x"]})
    refused("single precision", replaced={"decoder.0.bias": tensors["decoder.0.bias"].double()})
    refused(
        "finite", replaced={"decoder.0.bias": torch.full_like(tensors["decoder.0.bias"], torch.nan)}
    )
    refused("damaged", replaced={"more": torch.zeros(1)})
    bad.write_bytes(good.read_bytes()[:-100])
    with pytest.raises(hf.HoldfastError, match="not a readable safetensors file"):
        ConvVAE.load(bad)
    with pytest.raises(hf.HoldfastError, match="no model file"):
        ConvVAE.load(tmp_path / "nothing.safetensors")
    save_file(tensors, bad)
    with pytest.raises(hf.HoldfastError, match="holds no image model"):
        ConvVAE.load(bad)


# ---- VLK: its parts


def test_changes_shrink_around_the_image_and_stay_in_bounds() -> None:
    """Changes of 0.3, -0.3, 0.1, 0.05, 0.9 and -0.5 with a threshold of 0.1."""
    x = torch.tensor([0.5, 0.5, 0.5, 0.7, 0.3, 0.2])
    v = x + torch.tensor([0.3, -0.3, 0.1, 0.05, 0.9, -0.5])
    new = shrunk(v, x, 0.1)
    torch.testing.assert_close(new, torch.tensor([0.7, 0.3, 0.5, 0.7, 1.0, 0.0]))
    assert new[3] == x[3]  # below the threshold: every bit


@given(st.floats(0, 1, width=32), st.floats(-2, 3, width=32), st.floats(0, 1, width=32))
@settings(max_examples=60, deadline=None)
def test_shrinkage_minimises_its_objective(x: float, v: float, beta: float) -> None:
    """S is the least of beta |y - x| + (y - v)^2 / 2 over y in [0, 1]."""
    new = float(shrunk(torch.tensor(v), torch.tensor(x), beta))

    def value(y: Any) -> Any:
        return beta * abs(y - x) + (y - v) ** 2 / 2

    assert value(new) <= value(np.linspace(0, 1, 301)).min() + 1e-5


def test_a_prototype_is_the_mean_of_the_nearest_codes_of_the_class() -> None:
    codes = torch.tensor([[0.0, 0.0], [1.0, 0.0], [4.0, 0.0], [0.0, 3.0], [0.1, 0.0], [9.0, 9.0]])
    predicted = torch.tensor([0, 0, 0, 0, 1, 1])
    code = torch.zeros(4, 2)
    proto, known = prototypes(code, torch.tensor([0, 1, 2, 0]), codes, predicted, 3)
    # 4 away is too far, and 0.1 another class
    torch.testing.assert_close(proto[0], torch.tensor([1 / 3, 1.0]))
    torch.testing.assert_close(proto[1], torch.tensor([4.55, 4.5]))  # there are only two
    assert known.tolist() == [True, True, False, True]
    assert torch.equal(proto[3], proto[0])
    alone, _ = prototypes(code[:1], torch.tensor([0]), codes, predicted, 1)
    assert alone.tolist() == [[0.0, 0.0]]


def test_prototypes_belong_to_what_the_model_predicts() -> None:
    """Labels play no part: with a model that calls everything 0 no other class has a prototype."""
    blind = linear(torch.zeros(3, 64), torch.tensor([5.0, 0.0, 0.0]))
    e = Prototype(autoencoder=coder()).fit(blind, digits()[:30], labels()[:30])
    assert (e.predicted_ == 0).all()
    torch.testing.assert_close(e.codes_, coder().encode(digits()[:30]).flatten(1))
    cfs = (
        Prototype(autoencoder=coder(), steps=3)
        .fit(blind, digits()[:30])
        .explain(blind, digits()[:3], 2)
    )
    assert not cfs.found.any()
    assert cfs.x_cf.isfinite().all()


def test_the_pull_is_the_gradient_of_both_terms() -> None:
    """Paper: hoeltgen2021 Eq. 2."""
    net = drawn(MapAutoencoder, SIZE, 4)
    x = digits()[:5]
    proto = draw(8, 16)
    theta = torch.tensor([1.0, 2.0, 0.0, 3.0, 1.0, 0.0, 0.0, 0.0])[:, None]
    for gamma in (0.0, 0.7):
        leaf = x.clone().requires_grad_()
        code = net.encode(leaf)
        near = (theta[:5] * (code.flatten(1) - proto[:5]).square()).sum()
        (wanted,) = torch.autograd.grad(
            near + gamma * (leaf - net.decode(code)).square().sum(), leaf
        )
        torch.testing.assert_close(
            pull_of(net, proto, theta, gamma)(x), wanted, atol=1e-4, rtol=1e-4
        )


def test_the_hinge_is_off_where_another_class_leads() -> None:
    net = linear(0.3 * draw(4, 64), torch.zeros(4))
    x = digits()[:20]
    with net.eval_mode():
        own = net(x).argmax(1)
        hinge = Hinge(problem_of(net, x, (own + 1) % 4), 0.0)
        c = torch.arange(1.0, 21.0)
        for v in (x, digits()[20:40], x, 1 - x, digits()[40:60]):  # on, some off, all on again, ...
            leaf = v.clone().requires_grad_()
            with torch.enable_grad():
                p = net(leaf).softmax(1)
                rivals = p.scatter(1, own[:, None], -1.0).amax(1)
                loss = c * (p.gather(1, own[:, None]).squeeze(1) - rivals).clamp_min(0)
                (wanted,) = torch.autograd.grad(loss.sum(), leaf)
            torch.testing.assert_close(hinge.gradient(v, c), wanted, atol=1e-6, rtol=1e-4)
            assert torch.equal(hinge.on, loss > 0)
        # Who has the wanted class already, only not surely enough, is not driven out of it.
        assert not Hinge(problem_of(net, x, own), 0.0).gradient(x, c).any()


# ---- VLK: the search


def test_the_nearest_point_of_a_linear_boundary() -> None:
    """Without autoencoder and l1 term what is left is the distance to the plane."""
    w = 0.5 * draw(64)
    grey = torch.full((6, 64), 0.5)
    far = torch.linspace(0.1, 0.6, 6)  # from the plane
    x = (grey + 0.2 * draw(6, 64, seed=1)).clamp(0.2, 0.8)
    x = x - ((x - grey) @ w / w.norm() + far)[:, None] * w / w.norm()
    net = linear(torch.stack([torch.zeros(64), w]), torch.stack([w.new_zeros(()), -w @ grey[0]]))
    x = x.view(6, *SIZE)
    e = Prototype(
        beta=0, gamma=0, theta=0, c=10.0, lr=0.001, steps=300, bisections=3, autoencoder=coder()
    )
    cfs = e.fit(net, x).explain(net, x, 1)
    assert cfs.found.all()
    away = (cfs.x_cf - cfs.x).flatten(1)
    ratio = away.norm(dim=1) / far
    assert (ratio > 0.9999).all()
    assert (ratio < 1.03).all()
    assert (F.cosine_similarity(away, w[None]) > 0.99).all()


def plainly(e: Prototype, net: ImageModel, x: Tensor, t: int) -> tuple[Tensor, int, bool]:
    """The search for one image, step by step, with nothing left out: answer, step, success."""
    ae = e.autoencoder_.net_
    with torch.no_grad():
        own = int(net.module(x).argmax(1))
        code = ae.encode(x).flatten(1)
        pool = e.codes_[e.predicted_ == t]
        proto = pool[(pool - code).norm(dim=1).argsort()[: e.k]].mean(0)
    best = x
    price = math.inf
    at = e.bisections * e.steps
    c = e.c
    low = 0.0
    high = math.inf
    step = 0
    old = x
    for _ in range(e.bisections):
        old = x
        v = x
        hit = False
        for k in range(e.steps):
            leaf = v.clone().requires_grad_()
            p = net.module(leaf).softmax(1)[0]
            z = ae.encode(leaf)
            rival = torch.cat([p[:own], p[own + 1 :]]).max()
            loss = c * (p[own] - rival + e.kappa).clamp_min(0) + (leaf - x).square().sum()
            loss = (
                loss
                + e.gamma * (leaf - ae.decode(z)).square().sum()
                + e.theta * (z.flatten() - proto).square().sum()
            )
            (g,) = torch.autograd.grad(loss, leaf)
            moved = v - e.lr * math.sqrt(1 - k / e.steps) * g.clamp(-1000, 1000) - x
            new = (x + moved.sign() * (moved.abs() - e.beta).clamp_min(0)).clamp(0, 1)
            step += 1
            with torch.no_grad():
                met = int(net.module(new).argmax(1)) == t
            cost = float(e.beta * (new - x).abs().sum() + (new - x).square().sum())
            hit |= met
            if met and cost < price:
                best = new
                price = cost
                at = step
            v = (new + (k + 1) / (k + 4) * (new - old)).clamp(0, 1)
            old = new
        if hit:
            high = min(high, c)
        else:
            low = max(low, c)
        c = (low + high) / 2 if high < math.inf else c * 10
    return (best, at, True) if price < math.inf else (old, step, False)


@cache
def guided() -> Prototype:
    """Weights at which both the hinge and the prototype matter, and some pairs fail in the first
    round."""
    weights: dict[str, Any] = {"beta": 0.005, "gamma": 2.0, "theta": 2.0, "c": 3.0}
    e = Prototype(**weights, bisections=2, steps=20, lr=0.03, k=3, autoencoder=coder())
    return e.fit(model(), digits()[:1000])


def test_the_search_is_that_of_the_paper() -> None:
    """Paper: hoeltgen2021 Eq. 2, Baseline VLK."""
    x = digits()[1000:1002]
    net = model()
    e = guided()
    cfs = e.explain(net, x, "all")
    assert 0 < cfs.found.sum() < len(cfs)
    same = 0
    for i, (j, t) in enumerate(zip(cfs.source, cfs.target, strict=True)):
        with net.eval_mode(), torch.enable_grad():
            wanted, at, hit = plainly(e, net, x[j : j + 1], int(t))
        assert hit == cfs.found[i]
        same += int(at == cfs.iterations[i])
        torch.testing.assert_close(cfs.x_cf[i : i + 1], wanted, atol=2e-3, rtol=0)
    assert same >= len(cfs) - 1  # two iterates may be equally good but for rounding
    assert len(set(cfs.iterations.tolist())) > 3
    most = e.bisections * e.steps
    assert (cfs.iterations <= most).all()
    assert len(cfs) * most <= cfs.passes < 2.5 * len(cfs) * most


def test_vlk_answers_do_not_depend_on_the_company() -> None:
    x = digits()[1000:1008]
    net = model()
    e = copy.copy(guided()).set_params(bisections=2, steps=15)
    whole = e.explain(net, x, 3)
    for chunk in (1, 3):
        assert torch.equal(e.explain(net, x, 3, batch_size=chunk).x_cf, whole.x_cf)
    alone = e.explain(net, x[5:6], 3)
    assert torch.equal(alone.x_cf, whole.x_cf[5:6])
    assert alone.iterations[0] == whole.iterations[5]


def methods() -> list[hf.images.ImageExplainer]:
    return [
        copy.copy(guided()).set_params(steps=10, bisections=2, lr=0.2),
        REVISE(vae=vae(), lam=0.01, optimizer="adam", step=0.2, max_iter=20).fit(
            model(), digits()[:10]
        ),
    ]


@pytest.mark.parametrize("e", [0, 1])
def test_locked_pixels_keep_every_bit(e: int) -> None:
    locked = torch.zeros(8, 8, dtype=torch.bool)
    locked[:3] = True
    locked[:, 6:] = True
    x = digits()[1000:1006]
    cfs = methods()[e].explain(model(), x, "all", locked=locked)
    assert torch.equal(cfs.x_cf[:, :, locked], cfs.x[:, :, locked])
    assert ((cfs.x_cf != cfs.x).flatten(1).any(1)).all()
    assert ((cfs.x_cf >= 0) & (cfs.x_cf <= 1)).all()


@pytest.mark.parametrize("e", [0, 1])
def test_the_world_stays_as_it_was(e: int) -> None:
    with torch.random.fork_rng():
        module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    net = ImageModel.of(seeded(module).train(), SIZE)
    x = digits()[:6].clone()
    before = torch.get_rng_state()
    kept = {k: v.clone() for k, v in module.state_dict().items()}
    method = copy.copy(methods()[e]).fit(net, digits()[:50])
    coded = method.autoencoder_ if isinstance(method, Prototype) else method.vae_
    weights = [p.clone() for p in coded.net_.parameters()]
    with torch.inference_mode():
        cfs = method.explain(net, x)
    assert torch.equal(x, digits()[:6])
    assert torch.equal(torch.get_rng_state(), before)
    assert module.training
    assert module[1].training
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert all(torch.equal(v, kept[k]) for k, v in module.state_dict().items())
    assert all(torch.equal(p, q) for p, q in zip(coded.net_.parameters(), weights, strict=True))
    assert not cfs.x_cf.is_inference()
    assert torch.equal(method.explain(net, x).x_cf, cfs.x_cf)


@pytest.mark.parametrize("e", [0, 1])
def test_a_search_that_runs_out_of_time_says_so(e: int) -> None:
    cfs = methods()[e].explain(model(), digits()[1000:1003], "all", batch_size=4, time_budget=1e-9)
    assert not cfs.found[4:].any()
    assert torch.equal(cfs.x_cf[4:], cfs.x[4:])  # never begun
    assert (cfs.iterations == 0).all()
    assert cfs.passes == 0
    assert all("time budget" in r for r in np.array(cfs.reasons)[~cfs.found])


def test_methods_train_what_they_are_not_given() -> None:
    x = digits()[:30]
    given = ConvVAE(latent=3, epochs=1)
    e = REVISE(vae=given).fit(model(), x)
    assert e.vae_.net_.code == (3,)
    assert not hasattr(given, "net_")  # the caller's own stays as it is
    assert REVISE(vae=vae()).fit(model(), x).vae_ is vae()
    assert e.get_params()["vae__latent"] == 3
    assert Prototype(autoencoder=ConvAutoencoder(width=2, epochs=1)).fit(
        model(), x
    ).autoencoder_.net_.code == (1, 4, 4)
    assert "ConvVAE(latent=3, epochs=1)" in repr(e)


def test_settings_of_both_methods_are_named() -> None:
    net = model()
    x = digits()[:3]
    for wrong in (
        {"beta": -1.0},
        {"theta": -1.0},
        {"gamma": -1.0},
        {"kappa": 2.0},
        {"c": 0.0},
        {"lr": 0.0},
        {"steps": 0},
        {"bisections": 0},
        {"k": 0},
    ):
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            Prototype(autoencoder=coder(), **wrong).fit(net, x).explain(net, x)
    for wrong in (
        {"lam": -1.0},
        {"step": 0.0},
        {"max_iter": -1},
        {"optimizer": "lbfgs"},
        {"patience": 0},
    ):
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            REVISE(vae=vae(), **wrong).fit(net, x).explain(net, x)
    for method in (Prototype(autoencoder=coder()), REVISE(vae=vae())):
        with pytest.raises(hf.HoldfastError, match=r"call \.fit"):
            method.explain(net, x)
        wide = linear(torch.ones(2, 72) * torch.tensor([[1.0], [2.0]]), torch.zeros(2), (1, 8, 9))
        with pytest.raises(
            hf.HoldfastError, match="images of 1 x 8 x 8, the model takes 1 x 8 x 9"
        ):
            method.fit(net, x).explain(wide, torch.zeros(1, 8, 9))
    with pytest.raises(hf.HoldfastError, match="got none"):
        Prototype(autoencoder=coder()).fit(net, x[:0])


# ---- REVISE


def test_the_gradient_of_revise_is_that_of_finite_differences() -> None:
    """Paper: hoeltgen2021 Eq. 3."""
    net = linear(draw(3, 64), draw(3, seed=1))
    x = digits()[:4]
    wanted = torch.tensor([0, 1, 2, 0])
    lam = 0.3
    free = draw(4, *SIZE, seed=2) > -0.5
    coded = vae().net_
    exact = copy.deepcopy(coded).double()
    scores = copy.deepcopy(net.module).double()

    def loss(z: Tensor) -> Tensor:
        y = torch.where(free, exact.decode(z), x.double())
        ce = F.cross_entropy(scores(y), wanted, reduction="none")
        return ce + lam * (y - x.double()).abs().flatten(1).sum(1)

    with net.eval_mode():
        slots = LatentSlots.of(problem_of(net, x, wanted, free=free), torch.arange(4), coded)
        look = Look(slots, coded, net, lam, True)
        g = look.gradient()
        z = slots.z.double()
        step = 1e-6
        torch.testing.assert_close(look.loss.double(), loss(z), atol=1e-4, rtol=1e-5)
        for j in range(5):
            e = step * F.one_hot(torch.tensor(j), 5)
            slope = (loss(z + e) - loss(z - e)) / (2 * step)
            torch.testing.assert_close(g[:, j].double(), slope, atol=2e-3, rtol=2e-3)
        # The first step goes against it.
        REVISE(step=0.25).move(slots, g)
        torch.testing.assert_close(slots.z, coded.encode(x) - 0.25 * g)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_revise_is_descent_until_the_class_is_met(optimizer: Any) -> None:
    """The same steps by torch's own optimizers, one pair at a time.

    Paper: hoeltgen2021 Baseline REVISE.
    """
    x = digits()[1000:1003]
    net = model()
    step = {"sgd": 2e-3, "adam": 0.05}[optimizer]
    most = 25
    e = REVISE(vae=vae(), lam=0.05, step=step, max_iter=most, optimizer=optimizer).fit(net, x)
    cfs = e.explain(net, x, "all")
    assert 0 < cfs.found.sum() < len(cfs)
    made: Any = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    for i, (j, t) in enumerate(zip(cfs.source, cfs.target, strict=True)):
        with net.eval_mode(), torch.enable_grad():
            z = vae().encode(x[j : j + 1]).requires_grad_()
            how = made([z], lr=step)
            for k in range(most + 1):
                y = vae().net_.decode(z)
                raw = net.module(y)
                if float(raw.detach().softmax(1)[0, t]) >= 0.5 or k == most:
                    break
                loss: Any = (
                    F.cross_entropy(raw, torch.tensor([int(t)]))
                    + 0.05 * (y - x[j : j + 1]).abs().sum()
                )
                how.zero_grad()
                loss.backward()
                how.step()
        assert cfs.iterations[i] == k
        torch.testing.assert_close(cfs.x_cf[i : i + 1], y.detach(), atol=1e-3, rtol=0)
        assert cfs.found[i] == (cfs.probability[i] > 0.5)


def test_corrections_of_adam() -> None:
    torch.testing.assert_close(correction(0.9, 4), torch.tensor([0.1, 0.19, 0.271, 0.3439]))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_revise_answers_do_not_depend_on_the_company(optimizer: Any) -> None:
    """Pairs that finish leave their slots to others, at different times in different chunks."""
    x = digits()[1000:1010]
    net = model()
    e = REVISE(
        vae=vae(),
        lam=0.02,
        max_iter=30,
        optimizer=optimizer,
        step={"sgd": 0.02, "adam": None}[optimizer],
    )
    whole = e.fit(net, x).explain(net, x, 3)
    assert len(set(whole.iterations.tolist())) > 3
    for chunk in (1, 3):
        part = e.explain(net, x, 3, batch_size=chunk)
        assert torch.equal(part.x_cf, whole.x_cf)
        assert (part.iterations == whole.iterations).all()
        if chunk == 1:  # nobody waits for others
            assert part.passes == whole.iterations.sum()
    assert torch.equal(e.explain(net, x[6:7], 3).x_cf, whole.x_cf[6:7])


def test_revise_judges_the_image_that_it_returns() -> None:
    """The model looks at one pixel, which is locked: what the VAE makes of it does not count."""
    weight = torch.zeros(2, 64)
    weight[1, 9] = 40.0
    net = linear(weight, torch.tensor([0.0, -20.0]))
    locked = torch.zeros(8, 8, dtype=torch.bool)
    locked[1, 1] = True
    x = digits()[:10].clone()
    x[:, 0, 1, 1] = 0.2
    e = REVISE(vae=vae(), lam=0.0, optimizer="adam", max_iter=40, step=0.5).fit(net, x)
    assert e.explain(net, x, 1).found.any()
    cfs = e.explain(net, x, 1, locked=locked)
    assert not cfs.found.any()
    assert (cfs.iterations == 40).all()


def test_revise_gives_up_without_progress() -> None:
    """A weight that pins the answer to the image: with patience the search ends early, at the same
    kind of answer."""
    x = digits()[1000:1002]
    net = model()
    e = REVISE(vae=vae(), lam=100.0, optimizer="adam", max_iter=300).fit(net, x)
    hasty = copy.copy(e).set_params(patience=5)
    cfs = hasty.explain(net, x, "all")
    patient = e.explain(net, x, "all")
    assert cfs.found.mean() < 0.1
    assert (cfs.iterations <= patient.iterations).all()
    assert cfs.iterations.sum() < patient.iterations.sum()
    assert (cfs.iterations[~cfs.found] >= 5).all()
    still = copy.copy(hasty).set_params(optimizer="sgd", step=1e-12).explain(net, x, "all")
    # nothing moves: it ends as soon as patience does
    assert (still.iterations[~still.found] == 5).all()
    none = copy.copy(e).set_params(max_iter=0).explain(net, x, "all")
    assert (none.iterations == 0).all()
    assert none.passes == 0
    torch.testing.assert_close(none.x_cf, vae().reconstruct(none.x))


def test_a_step_that_overflows_ends_the_pair() -> None:
    x = digits()[1000:1002]
    net = model()
    e = REVISE(vae=vae(), step=1e38, lam=1e3, max_iter=50).fit(net, x)
    cfs = e.explain(net, x, "all")
    assert cfs.x_cf.isfinite().all()
    assert (cfs.iterations <= 50).all()
    assert not cfs.found.any() or cfs.probability[cfs.found].gt(0.5).all()
