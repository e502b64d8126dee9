"""The laws of image methods: what each of them promises, on every kind of model. A new method is
one more line."""

import pickle
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor

from holdfast.errors import SettingError, TargetError
from holdfast.images.autoencoders import ConvAutoencoder, ConvVAE
from holdfast.images.deduce import DeDUCE
from holdfast.images.ensemble import ImageEnsemble
from holdfast.images.explainer import ImageExplainer
from holdfast.images.greedy_ensemble import GreedyEnsemble
from holdfast.images.jsma import JSMA
from holdfast.images.model import ImageModel
from holdfast.images.prototype import Prototype
from holdfast.images.result import ImageCounterfactuals
from holdfast.images.revise import REVISE
from holdfast.target import Status, Target
from support.callers_world import left_as_found
from support.images import cnn, colour, digits, patches, spectral


@cache
def ensemble() -> ImageModel:
    x, y = digits()
    return (
        ImageEnsemble(members=3, hidden=(16,), epochs=8, batch_size=50, lr=0.01)
        .fit(x[:600], y[:600], threads=1)
        .model_
    )


MODELS: dict[str, Callable[[], ImageModel]] = {
    "own": spectral,
    "colour": colour,
    "foreign": cnn,
    "ensemble": ensemble,
}
NO_FEATURES = {"ensemble"}


def data(model: str) -> tuple[Tensor, Tensor]:
    """Images and labels that a model was trained on."""
    x, y = patches() if model == "colour" else digits()
    return x[:600], y[:600]


def asked(model: str) -> tuple[Tensor, list[int]]:
    """Images to ask about, and a class for each."""
    x, y = patches() if model == "colour" else digits()
    rows = slice(0, 3) if model == "colour" else slice(700, 705)
    k = 3 if model == "colour" else 10
    return x[rows], [int(c + 1) % k for c in y[rows]]


@cache
def coder(model: str) -> ConvAutoencoder:
    return ConvAutoencoder(
        width=4, epochs=1 if model == "colour" else 4, batch_size=30, lr=5e-3
    ).fit(data(model)[0])


@cache
def vae(model: str) -> ConvVAE:
    # With the whole weight of its divergence a VAE of such small images makes little use of its
    # code.
    epochs = 1 if model == "colour" else 15
    return ConvVAE(latent=8, weight=0.05, epochs=epochs, batch_size=30, lr=2e-3).fit(data(model)[0])


def few(model: str) -> dict[str, Any]:
    """Settings of greedy methods: many pixels at once where images are large."""
    return {"max_iter": 5, "pixels": 200, "delta": 0.5} if model == "colour" else {"max_iter": 40}


# Name of a method -> how it is made for a model, small and quick.
METHODS: dict[str, Callable[[str], ImageExplainer]] = {
    "deduce": lambda m: DeDUCE(**few(m)),
    "deduce plain": lambda m: DeDUCE(**few(m), lam=10.0, momentum=0.0),
    "deduce as printed": lambda m: DeDUCE(**few(m) | {"momentum_applies_to": "choice"}),
    "jsma": lambda m: JSMA(**few(m)),
    "jsma original": lambda m: JSMA(
        saliency="original", delta=1.0, max_iter=4 if m == "colour" else 30
    ),
    "jsma pairs": lambda m: JSMA(saliency="original", delta=1.0, pixels=2, max_iter=20),
    "greedy-ensemble": lambda m: GreedyEnsemble(**few(m), min_probability=0.6),
    "prototype": lambda m: Prototype(
        steps=3 if m == "colour" else 25, bisections=2, lr=0.05, c=10.0, autoencoder=coder(m)
    ),
    "revise": lambda m: REVISE(
        optimizer="adam",
        max_iter=4 if m == "colour" else 120,
        step=0.2,
        lam=0.001,
        vae=vae(m),
        min_probability=None,
    ),
}
NEED_FEATURES = {"deduce", "deduce plain", "deduce as printed"}
TOO_LARGE = {("jsma pairs", "colour")}
CASES = [
    (method, model)
    for method in METHODS
    for model in MODELS
    if (method, model) not in TOO_LARGE and not (method in NEED_FEATURES and model in NO_FEATURES)
]
# Few steps on large images, or a method that need not arrive: nothing may be found.
MAY_FAIL = {("jsma original", "colour"), ("prototype", "colour"), ("revise", "colour")}

every = pytest.mark.parametrize(("method", "model"), CASES)
Solved = tuple[ImageExplainer, ImageModel, Tensor, list[int], ImageCounterfactuals]


@cache
def solved(method: str, model: str) -> Solved:
    """Each method on each model once; the laws look at the same answers."""
    m = MODELS[model]()
    x, target = asked(model)
    e = METHODS[method](model)
    with warnings.catch_warnings():
        # networks without spectral normalisation are warned about, see test_deduce
        warnings.simplefilter("ignore")
        e.fit(m, *data(model))
    return e, m, x, target, e.explain(m, x, target, seed=3, locked=locked_of(x))


def locked_of(x: Tensor) -> Tensor:
    """Pixels that may not change: a corner of every image, and a square of the first."""
    locked = torch.zeros(x.shape, dtype=torch.bool)
    locked[:, :, :2, :3] = True
    locked[0, 0, 3:6, 3:6] = True
    return locked


def same(a: ImageCounterfactuals, b: ImageCounterfactuals, rows: Any = slice(None)) -> bool:
    """Are the answers `a` those that `b` has for some pairs, to the bit?"""
    return (
        torch.equal(a.x_cf, b.x_cf[rows])
        and torch.equal(a.scores, b.scores[rows])
        and bool((a.status_codes == b.status_codes[rows]).all())
        and bool((a.iterations == b.iterations[rows]).all())
    )


@every
def test_same_pairs_in_and_out(method: str, model: str) -> None:
    _, _, x, target, cfs = solved(method, model)
    assert len(cfs) == len(x) == len(cfs.reasons) == len(cfs.status_codes)
    assert torch.equal(cfs.x, x)
    assert cfs.x_cf.shape == x.shape
    assert cfs.x_cf.dtype == torch.float32
    assert not cfs.x_cf.requires_grad
    assert cfs.target.tolist() == target
    assert cfs.source.tolist() == list(range(len(x)))
    assert cfs.run.method == type(METHODS[method](model)).__name__
    assert len(cfs.table()) == len(x)


@every
def test_bounds_and_locked_pixels(method: str, model: str) -> None:
    _, _, x, _, cfs = solved(method, model)
    assert bool(((cfs.x_cf >= 0) & (cfs.x_cf <= 1)).all())
    locked = locked_of(x)
    assert torch.equal(cfs.x_cf[locked].view(torch.int32), x[locked].view(torch.int32))


@every
def test_found_means_that_the_bare_model_agrees(method: str, model: str) -> None:
    e, m, _, target, cfs = solved(method, model)
    with torch.no_grad():
        scores = m.module(cfs.x_cf.clone())
    p = scores.softmax(1)[torch.arange(len(target)), torch.tensor(target)]
    likeliest = scores.argmax(1) == torch.tensor(target)
    agrees = (likeliest if e.min_probability is None else p >= e.min_probability).numpy()
    near = (p - (e.min_probability or 2)).abs().numpy() < 1e-5  # another batch, another last bit
    assert (agrees | near)[cfs.found].all()
    assert not (agrees & ~near)[cfs.status_codes == Status.NOT_FOUND].any()
    assert torch.allclose(cfs.scores.softmax(1), scores.softmax(1), atol=1e-5)
    for code, reason in zip(cfs.status_codes, cfs.reasons, strict=True):
        assert (reason == "") == (code == Status.FOUND)
    if (method, model) not in MAY_FAIL:
        assert cfs.found.any()


@every
def test_same_seed_same_answer_in_any_company(method: str, model: str) -> None:
    e, m, x, target, cfs = solved(method, model)
    locked = locked_of(x)
    n = len(x)

    def ask(rows: list[int], **call: Any) -> ImageCounterfactuals:
        return e.explain(m, x[rows], [target[i] for i in rows], seed=3, locked=locked[rows], **call)

    for rows, call in [
        (list(range(n)), {}),
        (list(range(n))[::-1], {"batch_size": 2}),
        ([1], {}),
        ([2, 0, 2], {"batch_size": 1}),
    ]:
        assert same(ask(rows, **call), cfs, rows), (rows, call)


@every
def test_the_callers_world_is_left_as_found(method: str, model: str) -> None:
    e, m, x, target, cfs = solved(method, model)
    net = m.module
    net.train()
    next(iter(net.children()), net).eval()
    flags = [p.requires_grad for p in net.parameters()]
    for i, p in enumerate(net.parameters()):
        p.requires_grad_(i % 2 == 0)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    modes = [part.training for part in net.modules()]
    hooks = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in net.modules())
    copy = x.clone()
    locked = locked_of(x)
    wanted = list(target)
    try:
        with left_as_found():
            again = e.explain(m, x, target, seed=3, locked=locked)
        assert torch.equal(x, copy)
        assert target == wanted
        assert torch.equal(locked, locked_of(x))
        assert [part.training for part in net.modules()] == modes
        assert hooks == sum(
            len(part._forward_hooks) + len(part._forward_pre_hooks) for part in net.modules()
        )
        for i, p in enumerate(net.parameters()):
            assert p.requires_grad == (i % 2 == 0)
            assert p.grad is None
        assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
        assert same(again, cfs)
    finally:
        net.eval()
        for p, flag in zip(net.parameters(), flags, strict=True):
            p.requires_grad_(flag)


@every
def test_inside_no_grad_and_inference_mode(method: str, model: str) -> None:
    e, m, x, target, cfs = solved(method, model)
    with torch.no_grad():
        assert same(e.explain(m, x[:2], target[:2], seed=3, locked=locked_of(x)[:2]), cfs, slice(2))
    with torch.inference_mode():
        inside = e.explain(m, x[:2].clone(), target[:2], seed=3, locked=locked_of(x)[:2])
    assert same(inside, cfs, slice(2))
    assert not inside.x_cf.is_inference()
    assert not inside.x.is_inference()


@every
def test_clone_params_repr_and_pickle(method: str, model: str) -> None:
    e, m, x, target, cfs = solved(method, model)
    twin = clone(e)
    assert type(twin) is type(e)
    assert repr(twin.get_params()) == repr(e.get_params())
    assert repr(twin) == repr(e)
    assert repr(e).startswith(type(e).__name__ + "(")
    assert not twin.is_fitted
    back = pickle.loads(pickle.dumps(e))
    assert same(back.explain(m, x[:2], target[:2], seed=3, locked=locked_of(x)[:2]), cfs, slice(2))


@every
def test_no_images(method: str, model: str) -> None:
    e, m, x, _, _ = solved(method, model)
    for target in (None, "all", 1, []):
        none = e.explain(m, x[:0], target)
        assert len(none) == 0
        assert none.x_cf.shape == (0, *m.size)
        assert none.cost().empty
        assert none.table().empty


@every
def test_ways_to_say_what_is_wanted(method: str, model: str) -> None:
    e, m, x, target, _ = solved(method, model)
    x = x[:2]
    k = len(m.classes)
    now = m.scores(x)
    one = e.explain(m, x, target[0], seed=3)
    assert one.target.tolist() == [target[0]] * 2
    assert same(e.explain(m, x, [target[0]] * 2, seed=3), one)
    assert same(e.explain(m, x, np.array([target[0]] * 2), seed=3), one)
    assert same(e.explain(m, x, Target(target[0]), seed=3), one)
    other = e.explain(m, x[:1], seed=3)
    assert int(other.target[0]) == int(now[:1].topk(2, 1).indices[0, 1])
    sure = e.explain(m, x, Target(target[0], probability=0.9), seed=3)
    assert (sure.probability[sure.found] >= 0.9 - 1e-6).all()
    assert (sure.probability[sure.status_codes == Status.NOT_FOUND] <= 0.9 + 1e-6).all()
    everything = e.explain(m, x[:1], "all", labels=[0], seed=3)
    assert everything.target.tolist() == list(range(1, k))
    assert everything.source.tolist() == [0] * (k - 1)
    assert everything.label.tolist() == [0] * (k - 1)
    at = everything.target.tolist().index(target[0]) if target[0] else None
    assert at is None or same(e.explain(m, x[:1], target[0], seed=3), everything, [at])


@every
def test_what_is_met_already_stays(method: str, model: str) -> None:
    e, m, x, _, _ = solved(method, model)
    sure = Target(m.predict(x), probability=1e-6)
    cfs = e.explain(m, x, sure)
    assert (cfs.status_codes == Status.ALREADY_MET).all()
    assert torch.equal(cfs.x_cf, x)
    assert not cfs.iterations.any()
    assert cfs.passes == 0


@every
def test_a_used_up_budget_still_returns_every_pair(method: str, model: str) -> None:
    e, m, x, target, _ = solved(method, model)
    cfs = e.explain(m, x, target, time_budget=1e-9, batch_size=2)
    assert len(cfs) == len(x)
    late = cfs.status_codes == Status.NOT_FOUND
    assert late.any()
    assert all(
        "time budget" in reason
        for reason, is_late in zip(cfs.reasons, late, strict=True)
        if is_late
    )


@every
def test_what_cannot_be_asked(method: str, model: str) -> None:
    e, m, x, _, _ = solved(method, model)
    with pytest.raises(SettingError, match="no class 'three'"):
        e.explain(m, x, "three")
    with pytest.raises(TargetError, match=rf"2 classes for {len(x)} images"):
        e.explain(m, x, [1, 1])
    with pytest.raises(TargetError, match="one class per image"):
        e.explain(m, x, [[1], [2]])
    with pytest.raises(SettingError, match=r"locked has shape \(3, 2\)"):
        e.explain(m, x, 1, locked=torch.zeros(3, 2, dtype=torch.bool))
    with pytest.raises(SettingError, match="locked must be booleans"):
        e.explain(m, x, 1, locked=torch.zeros(x.shape))
    with pytest.raises(SettingError, match="expected images of"):
        e.explain(m, x[:, :, 1:], 1)
    if e.needs_data:
        with pytest.raises(SettingError, match=r"needs data; call \.fit"):
            clone(e).explain(m, x, 1)
