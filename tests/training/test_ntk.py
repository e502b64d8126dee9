"""The kernel has the values that pencil and dice give, its gradient is that of differences, the
model keeps to both."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import holdfast as hf
from holdfast.errors import FileError, ModelError, SettingError
from holdfast.evaluation.bounds import scfe_step
from holdfast.nn import ntk as kernels
from holdfast.nn.architecture import build, describe
from holdfast.nn.module_stack import stack_of
from holdfast.nn.ntk import NTK, kernel, scores, scores_and_gradient
from holdfast.training.ntk import attacked, fit_ntk
from support.law_table import SCHEMA, TABLE, people

WANTED = np.where(TABLE["income"] / 900 + TABLE["owner"] - TABLE["open"] / 2 > 3.2, "yes", "no")


def gaussian(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels(seed: int, n: int) -> Tensor:
    return gaussian(seed, n).sign()


def with_one(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)


def slopes(f: object, x: Tensor, h: float) -> Tensor:
    """(n, d) central differences of f: (n, d) -> (n,)."""
    steps = h * torch.eye(x.shape[1], dtype=x.dtype)
    return torch.stack([(f(x + e) - f(x - e)) / (2 * h) for e in steps], 1)


# ---- the kernel


def test_values_by_hand() -> None:
    """Paper: krishna2024 Definition 2, Eq. 8."""
    x = torch.tensor(
        [[3.0, 4.0], [-4.0, 3.0], [-6.0, -8.0], [0.0, 0.0], [1.0, 0.0]], dtype=torch.float64
    )
    K = kernel(x[:1], x)[0]
    assert K[0] == 12.5  # |x|^2 / 2
    assert K[1:4].tolist() == [0, 0, 0]  # orthogonal, opposite, zero
    assert float(K[4]) == pytest.approx(3 * (math.pi - math.acos(0.6)) / (2 * math.pi), rel=1e-14)


def test_rows_of_any_length_with_themselves() -> None:
    x = gaussian(0, 300, 11) * torch.logspace(-6, 6, 300, dtype=torch.float64)[:, None]
    assert torch.allclose(kernel(x, x).diagonal(), x.square().sum(1) / 2, rtol=1e-14, atol=0)
    assert torch.allclose(kernel(x, -x).diagonal(), torch.zeros(300).double(), atol=1e-14)


@pytest.mark.parametrize("append_one", [False, True])
def test_symmetric_and_positive(append_one: bool) -> None:
    x = gaussian(1, 130, 5)
    x[7], x[8], x[9] = x[3], -2 * x[3], 0
    K = kernel(x, x, append_one=append_one)
    assert torch.allclose(K, K.T, rtol=1e-12)
    eigenvalues = torch.linalg.eigvalsh(K)
    assert eigenvalues.min() > -1e-12 * eigenvalues.max()
    assert torch.allclose(K, kernel(with_one(x), with_one(x)) if append_one else K, rtol=1e-12)


def test_kernel_is_a_share_of_random_directions() -> None:
    """x.x' Pr(g.x > 0 and g.x' > 0), within four standard errors.

    Paper: krishna2024 Definition 2.
    """
    a = gaussian(2, 6, 4)
    b = 3 * gaussian(3, 5, 4)
    draws = 400_000
    g = gaussian(4, draws, 4)
    both = ((g @ a.T > 0).double().T @ (g @ b.T > 0).double()) / draws
    dot = a @ b.T
    assert (
        (kernel(a, b) - dot * both).abs() <= 4 * dot.abs() * (both * (1 - both) / draws).sqrt()
    ).all()


@pytest.mark.parametrize("append_one", [False, True])
@pytest.mark.parametrize("d", [1, 2, 9])
def test_gradient_equals_differences(append_one: bool, d: int) -> None:
    x = gaussian(5, 20, d)
    X = gaussian(6, 33, d)
    w = gaussian(7, 33)
    expected = slopes(lambda z: scores(z, X, w, append_one=append_one), x, 1e-5)
    found = scores_and_gradient(x, X, w, append_one=append_one)[1]
    assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()
    module = NTK.of(X, w, append_one)
    z = x.clone().requires_grad_()
    v = gaussian(8, 20, 1)
    (grad,) = torch.autograd.grad(module(z), z, v)
    assert torch.equal(grad, v * found)
    assert torch.equal(module.gradient(x), found)
    assert torch.equal(module(z).detach(), module(x))


def test_on_a_kink_the_gradient_is_the_mean_of_both_sides() -> None:
    X = gaussian(9, 12, 3)
    w = gaussian(10, 12)
    X[4] = 0
    # equal, parallel, opposite, zero
    x = torch.cat([X, 2.5 * X[:3], -X[:3], torch.zeros(1, 3).double()])
    found = scores_and_gradient(x, X, w)[1]
    assert found.isfinite().all()
    assert torch.allclose(found, slopes(lambda z: scores(z, X, w), x, 1e-5), rtol=1e-5, atol=1e-5)
    near = x + 1e-9 * gaussian(11, *x.shape)  # where the angle to a row is all but rounding
    assert scores_and_gradient(near, X, w)[1].isfinite().all()
    assert (
        scores_and_gradient(near, X, w)[1].abs().max()
        < 2 * (w.abs() * X.square().sum(1).sqrt()).sum()
    )


def test_second_derivatives_are_refused() -> None:
    module = NTK.of(gaussian(0, 5, 3), gaussian(1, 5))
    z = gaussian(2, 4, 3).requires_grad_()
    (grad,) = torch.autograd.grad(module(z).square().sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


# ---- the model


def test_rows_are_interpolated_as_beta_vanishes() -> None:
    x = gaussian(12, 60, 5)
    y = labels(13, 60)
    for beta, error in ((1e-2, 0.5), (1e-6, 1e-3), (1e-10, 1e-7)):
        assert (fit_ntk(x, y, beta=beta, append_one=False)(x)[:, 0] - y).abs().max() < error
    K = kernel(x, x)
    w = fit_ntk(x, y, beta=0.3, append_one=False).w
    assert torch.allclose(K @ w + 0.3 * w, y, rtol=1e-10)


def test_without_one_the_score_grows_with_the_row() -> None:
    x = gaussian(14, 40, 4)
    z = gaussian(15, 9, 4)
    bare = fit_ntk(x, labels(16, 40), append_one=False)
    shifted = fit_ntk(x, labels(16, 40), append_one=True)
    for c in (1e-3, 0.5, 7.0):
        assert torch.allclose(bare(c * z), c * bare(z), rtol=1e-10)
        assert torch.allclose(bare.gradient(c * z), bare.gradient(z), rtol=1e-9, atol=1e-12)
    assert float(bare(0 * z).abs().max()) == 0
    assert not torch.allclose(shifted(2 * z), 2 * shifted(z), rtol=1e-2)


def test_one_direction_is_a_linear_model() -> None:
    """Positive rows of one column: K = x x' / 2, so f = W x, and the step of SCFE is the linear
    one."""
    x = gaussian(17, 15, 1).abs() + 0.1
    y = labels(18, 15)
    model = fit_ntk(x, y, beta=0.5, append_one=False)
    W = float((model.w * model.X[:, 0]).sum() / 2)
    z = torch.linspace(0.5, 3, 7, dtype=torch.float64)[:, None]
    assert torch.allclose(model(z), W * z, rtol=1e-12)
    assert torch.allclose(model.gradient(z), torch.full_like(z, W), rtol=1e-12)
    # reached from positive rows at positive rows
    s = W * 4
    lam = 0.05
    m = s - model(z)[:, 0]
    zeta = scfe_step(model.gradient(z), m, lam)
    assert torch.allclose(zeta[:, 0], m * W / (lam + W**2), rtol=1e-12)
    assert torch.allclose(model(z + zeta)[:, 0], s - m * lam / (lam + W**2), rtol=1e-12)


@pytest.mark.parametrize(("rows", "d"), [(5, 3), (61, 7), (400, 17)])
def test_a_score_depends_on_its_row_alone(
    rows: int, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit: whatever the batch, the place in it, and the parts it is worked off in."""
    model = hf.Model.of(NTK.of(gaussian(19, rows, d), gaussian(20, rows)), hf.Schema.box(d, -3, 3))
    x = gaussian(21, 61, d)
    with model.eval_mode():
        whole, pull = model.vjp(x)
        slope = pull(torch.ones_like(whole))
        assert torch.equal(model(x), whole)
        for n in (1, 3, 8, 9, 33):
            for start in (0, 1, 5):
                part = slice(start, start + n)
                assert torch.equal(model(x[part]), whole[part])
                some, pull = model.vjp(x[part])
                assert torch.equal(some, whole[part])
                assert torch.equal(pull(torch.ones_like(some)), slope[part])
        order = torch.randperm(61, generator=torch.Generator().manual_seed(0))
        assert torch.equal(model(x[order]), whole[order])
        assert torch.equal(model.score_frame(pd.DataFrame(), x), whole)
        monkeypatch.setattr(kernels, "KERNEL_CELLS", 100)
        assert torch.equal(model(x), whole)
        assert torch.equal(kernel(x, x), (monkeypatch.undo(), kernel(x, x))[1])
        assert model(x[:0]).shape == (0, 2)


def test_models_side_by_side() -> None:
    """A stack of them scores as each does alone."""
    nets = [NTK.of(gaussian(i, 9, 3), gaussian(i + 1, 9)) for i in (0, 2)]
    stack = stack_of(nets[0], 2)
    x = gaussian(5, 6, 3)
    stack.load({name: torch.stack([net.state_dict()[name] for net in nets]) for name in ("X", "w")})
    assert torch.allclose(stack.scores(x), torch.stack([net(x) for net in nets]), rtol=1e-12)
    with pytest.raises(ModelError, match=r"solved for.*hf\.train_ntk"):
        hf.Recipe.of(nets[0]).fit(
            pd.DataFrame(x.numpy(), columns=["x0", "x1", "x2"]), [0, 1] * 3, hf.Schema.box(3)
        )


# ---- files


def test_save_and_load(tmp_path: Path) -> None:
    model = hf.train_ntk(TABLE, WANTED, SCHEMA)
    model.save(tmp_path / "m.safetensors")
    again = hf.Model.load(tmp_path / "m.safetensors")
    assert again.classes == model.classes == ("no", "yes")
    assert again.schema == SCHEMA
    assert again.dtype == torch.float64
    assert describe(again.module) == describe(model.module)
    assert not any(p.requires_grad for p in again.module.parameters())
    with model.eval_mode(), again.eval_mode():
        assert torch.equal(again.score_frame(TABLE), model.score_frame(TABLE))
    again.save(tmp_path / "n.safetensors")
    assert (tmp_path / "n.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


@pytest.mark.parametrize(
    "claim",
    [
        {"rows": 10**12},
        {"rows": 10**12, "columns": 10**12},
        {"rows": 0},
        {"rows": -4},
        {"rows": "4"},
        {"columns": 2},
        {"append_one": "yes"},
        {"bias": False},
        {"more": 1},
    ],
)
def test_files_that_claim_otherwise_are_refused(tmp_path: Path, claim: dict[str, object]) -> None:
    net = NTK.of(gaussian(0, 4, 3), gaussian(1, 4))
    layers = [{**describe(net)[0], **claim}]
    content = {
        "architecture": layers,
        "classes": [0, 1],
        "outputs": "logits",
        "schema": hf.Schema.box(3).to_dict(),
    }
    tensors = {f"0.{name}": value for name, value in net.state_dict().items()}
    save_file(tensors, tmp_path / "m.safetensors", metadata={"holdfast": json.dumps(content)})
    with pytest.raises((FileError, ModelError)):
        hf.Model.load(tmp_path / "m.safetensors")


def test_no_memory_before_the_tensors_are_there() -> None:
    with torch.device("meta"):
        net = build([{"layer": "NTK", "rows": 10**9, "columns": 10**6, "append_one": True}])
    assert all(p.is_meta for p in net.parameters())


# ---- training


def test_trained_on_a_mixed_table() -> None:
    before = torch.get_rng_state()
    model = hf.train_ntk(TABLE, WANTED, SCHEMA)
    assert torch.equal(before, torch.get_rng_state())
    assert (model.predict(TABLE) == WANTED).mean() > 0.95
    assert (hf.train_ntk(TABLE, WANTED, SCHEMA, beta=1000.0).predict(TABLE) == WANTED).mean() > 0.7
    turned = hf.train_ntk(TABLE, WANTED, SCHEMA, classes=["yes", "no"])
    assert (turned.predict(TABLE) == model.predict(TABLE)).all()
    assert torch.allclose(turned.module.w, -model.module.w, rtol=1e-9)
    assert hf.train_ntk(TABLE, WANTED, SCHEMA).fingerprint() == model.fingerprint()


def test_rows_are_drawn_from_the_seed() -> None:
    x = {tuple(row) for row in SCHEMA.encode(TABLE, torch.float64).tolist()}
    drawn = [hf.train_ntk(TABLE, WANTED, SCHEMA, rows=50, seed=seed).module.X for seed in (0, 0, 1)]
    assert all(len(rows) == 50 and {tuple(row) for row in rows.tolist()} <= x for rows in drawn)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert len(hf.train_ntk(TABLE, WANTED, SCHEMA, rows=None).module.X) == len(TABLE)


def test_attacked_rows_stay_near_and_fare_worse() -> None:
    x = gaussian(22, 80, 5)
    y = labels(23, 80)
    epsilon = 0.1
    net = fit_ntk(x, y, beta=1.0)
    moved = attacked(net, x, y, epsilon)
    assert (moved - x).abs().max() <= epsilon + 1e-12
    assert ((net(moved) - net(x))[:, 0] * y < 0).all()
    random = x + epsilon * gaussian(24, 80, 5).sign()
    assert (y * net(moved)[:, 0]).mean() < (y * net(random)[:, 0]).mean() - 0.05
    assert torch.equal(attacked(net, x[3:5], y[3:5], epsilon), moved[3:5])
    assert not torch.equal(attacked(net, x, y, epsilon, seed=1), moved)


def test_the_second_model_is_fitted_to_attacked_rows() -> None:
    clean = hf.train_ntk(TABLE, WANTED, SCHEMA, epsilon=0, repeats=1, beta=1.0).module
    once = hf.train_ntk(TABLE, WANTED, SCHEMA, epsilon=0.1, repeats=1, beta=1.0).module
    twice = hf.train_ntk(TABLE, WANTED, SCHEMA, epsilon=0.1, repeats=2, beta=1.0).module
    y = torch.tensor(np.where(WANTED == "yes", 1.0, -1.0))
    x = SCHEMA.encode(TABLE, torch.float64)
    assert torch.equal(clean.X, x)
    assert torch.equal(once.X, attacked(clean, x, y, 0.1))
    assert torch.equal(twice.X, attacked(once, x, y, 0.1, draw=1))
    assert torch.allclose(kernel(once.X, once.X, append_one=True) @ once.w + once.w, y, rtol=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize(
    "explainer",
    [
        hf.Descent(),
        hf.Descent.scfe(score=2.0),
        hf.MinCost(),
        hf.GrowingSpheres(samples=100),
        hf.NearestNeighbor(),
        hf.ROAR(samples=200, noise=0.4, lr=0.1, delta=0.01),
    ],
    ids=lambda e: type(e).__name__,
)
def test_every_explainer_finds_answers(explainer: hf.Explainer, epsilon: float) -> None:
    model = hf.train_ntk(TABLE, WANTED, SCHEMA, beta=1.0, epsilon=epsilon)
    asked = people(model, 7)
    cfs = (explainer.fit(model, TABLE) if explainer.needs_data else explainer).explain(
        model, asked, "yes"
    )
    assert cfs.found.mean() > 0.5
    assert (model.predict(cfs.after)[cfs.found] == "yes").all()
    alone = explainer.explain(model, asked.iloc[4:5], "yes")
    assert torch.allclose(alone.x_cf[0], cfs.x_cf[4], atol=1e-6)


def test_errors_say_what_to_do() -> None:
    x = gaussian(0, 6, 3)
    y = labels(1, 6)
    x[3] = x[2]
    with pytest.raises(SettingError, match=r"beta = 0 is not positive definite.*raise beta"):
        fit_ntk(x, y, beta=0.0)
    x[2] = 0
    with pytest.raises(SettingError, match="raise beta"):
        fit_ntk(x, y, beta=0.0, append_one=False)
    assert fit_ntk(x, y, beta=0.1, append_one=False)(x).isfinite().all()
    with pytest.raises(SettingError, match="beta must be a number and at least 0, got -1"):
        fit_ntk(x, y, beta=-1.0)
    with pytest.raises(SettingError, match="labels must be -1 or 1"):
        fit_ntk(x, (y + 1) / 2)
    with pytest.raises(SettingError, match=r"got shapes \(6, 3\) and \(5,\)"):
        fit_ntk(x, y[:5])
    with pytest.raises(
        SettingError, match=r"two classes apart, got 3: \['a', 'b', 'c'\]; try hf.train_network"
    ):
        hf.train_ntk(TABLE, ["a", "b", "c", "a"] * 100, SCHEMA)
    for wrong, words in (
        ({"epsilon": -0.1}, "epsilon must be a number and at least 0"),
        ({"epsilon": math.nan}, "epsilon must be a number and at least 0"),
        ({"repeats": 0}, "repeats must be an integer of at least 1, got 0"),
        ({"rows": 1}, "rows must be an integer of at least 2, got 1"),
        ({"append_one": 1}, "append_one must be true or false, got 1"),
    ):
        with pytest.raises(hf.HoldfastError, match=words):
            hf.train_ntk(TABLE, WANTED, SCHEMA, **wrong)
    with pytest.raises(ModelError, match="rows of 4 columns do not fit training rows of 3"):
        NTK.of(x, y)(gaussian(2, 5, 4))
    with pytest.raises(ModelError, match="columns do not fit"):
        hf.Model.of(NTK.of(x, y), hf.Schema.box(4))
