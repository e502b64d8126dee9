"""Virtual Data Shift: hyper-gradients against closed forms, automatic differentiation and finite differences."""

import itertools

import pytest
import torch
from torch import Tensor

import holdfast as hf
from holdfast.train.second import Parameters, gradient, logits, mixed
from holdfast.train.shift import ADAM_EPS, B1, B2, ROOT, Columns, Shift, State, Tape, virtual_shift

M, N, D = 3, 7, 5


def networks(*hidden: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Parameters:
    g = torch.Generator().manual_seed(seed)
    sizes = (D, *hidden, 1)
    out = list[Tensor]()
    for a, b in itertools.pairwise(sizes):
        out += [torch.randn(M, a, b, generator=g, dtype=dtype) * 0.7, torch.randn(M, 1, b, generator=g, dtype=dtype)]
    return Parameters.of(out)


def rows(seed: int = 1, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x, x_cf = (torch.rand(M, N, D, generator=g, dtype=dtype) for _ in range(2))
    y, t = ((torch.rand(M, N, generator=g) > 0.5).to(dtype) for _ in range(2))
    return x, y, x_cf, t


NUMBERS = Columns(torch.zeros(D, dtype=torch.bool), torch.zeros(0, 0, dtype=torch.int64))
MIXED = Columns(torch.tensor([False, False, True, True, True]), torch.tensor([[2, 3, 4]]))


def loss(theta: Parameters | list[Tensor], x: Tensor, y: Tensor) -> Tensor:
    return (
        (torch.sigmoid(logits(theta.parts if isinstance(theta, Parameters) else theta, x)) - y).square().mean(1)
    )  # (M,)


@pytest.mark.parametrize("hidden", [(), (4,), (6, 3)])
def test_first_and_second_derivatives_are_those_of_autograd(hidden: tuple[int, ...]) -> None:
    theta, (x, y, _, _) = networks(*hidden), rows()
    p = networks(*hidden, seed=5)
    g, at = gradient(theta, x, y)
    free = [w.clone().requires_grad_() for w in theta.parts]
    z = x.clone().requires_grad_()
    slopes = torch.autograd.grad(loss(free, z, y).sum(), free, create_graph=True)
    for mine, theirs in zip(g.parts, slopes, strict=True):
        torch.testing.assert_close(mine, theirs.detach())
    along = sum((s * v).sum() for s, v in zip(slopes, p.parts, strict=True))
    *theirs, by_x = torch.autograd.grad(along, [*free, z])
    mine_x, curved = mixed(theta, p, at, hessian=True)
    torch.testing.assert_close(mine_x, by_x)
    assert curved is not None
    for mine, other in zip(curved.parts, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_hyper_gradient_of_a_linear_model_has_a_closed_form() -> None:
    """f = sigmoid(w x): one step of gradient descent; the rule of the chain by hand, model by model."""
    theta, (x, y, x_cf, t) = networks(), rows()
    shift = Shift(optimizer="sgd", inner=1, eta=0.3)
    tape = Tape(theta, State.of(theta))
    tape.step(x, y, shift)
    found = tape.by_rows(x_cf, t, shift)
    for m in range(M):
        w, b = theta.parts[0][m, :, 0], theta.parts[1][m, 0, 0]
        f = torch.sigmoid(x[m] @ w + b)
        d = 2 * (f - y[m]) * f * (1 - f) / N
        w1, b1 = w - 0.3 * d @ x[m], b - 0.3 * d.sum()
        f1 = torch.sigmoid(x_cf[m] @ w1 + b1)
        e = 2 * (f1 - t[m]) * f1 * (1 - f1) / N
        v, c = e @ x_cf[m], e.sum()
        f0 = f * (1 - f)
        curve = 2 * (f0**2 + (f - y[m]) * f0 * (1 - 2 * f)) / N
        expected = -0.3 * ((curve * (x[m] @ v + c))[:, None] * w + d[:, None] * v)
        torch.testing.assert_close(found[m], expected)


def unrolled(weights: Parameters, x: Tensor, y: Tensor, x_cf: Tensor, t: Tensor, shift: Shift) -> Tensor:
    """The same by automatic differentiation through the training steps."""
    m, v = ([torch.zeros_like(w) for w in weights.parts] for _ in range(2))
    theta = [w.clone().requires_grad_() for w in weights.parts]
    for k in range(1, shift.inner + 1):
        g = torch.autograd.grad(loss(theta, x, y).sum(), theta, create_graph=True)
        if shift.optimizer == "sgd":
            theta = [w - shift.eta * s for w, s in zip(theta, g, strict=True)]
            continue
        m = [B1 * a + (1 - B1) * s for a, s in zip(m, g, strict=True)]
        v = [B2 * a + (1 - B2) * s * s for a, s in zip(v, g, strict=True)]
        theta = [
            w - shift.eta * (a / (1 - B1**k)) / ((b / (1 - B2**k) + ROOT).sqrt() + ADAM_EPS)
            for w, a, b in zip(theta, m, v, strict=True)
        ]
    return loss(theta, x_cf, t).sum()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("inner", [1, 2, 3])
@pytest.mark.parametrize("hidden", [(4,), (6, 3)])
def test_hyper_gradient_is_that_of_autograd_and_of_finite_differences(
    optimizer: str, inner: int, hidden: tuple[int, ...]
) -> None:
    theta, (x, y, x_cf, t) = networks(*hidden), rows()
    shift = Shift(optimizer=optimizer, inner=inner, eta=0.05)  # pyright: ignore[reportArgumentType]
    tape = Tape(theta, State.of(theta))
    for _ in range(inner):
        tape.step(x, y, shift)
    found = tape.by_rows(x_cf, t, shift)
    z = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(unrolled(theta, z, y, x_cf, t, shift), z)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-12)
    step = 1e-5
    for at in [(0, 0, 0), (1, 3, 2), (2, 6, 4)]:
        ends = list[float]()
        for way in (1, -1):
            moved = x.clone()
            moved[at] += way * step
            ends.append(unrolled(theta, moved, y, x_cf, t, shift).item())
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(found[at]) == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_softmax_of_categories_and_its_derivative() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(M, N, D, generator=g, dtype=torch.float64).requires_grad_()
    soft = MIXED.softmax(x)
    torch.testing.assert_close(soft[..., 2:].sum(-1), torch.ones(M, N, dtype=torch.float64))
    torch.testing.assert_close(soft[..., :2], x[..., :2])
    up = torch.randn(M, N, D, generator=g, dtype=torch.float64)
    (expected,) = torch.autograd.grad((soft * up).sum(), x)
    torch.testing.assert_close(MIXED.softmax_pull(soft.detach(), up), expected)
    one_hot = torch.tensor([[[0.3, 0.7, 1.0, 0.0, 0.0]]])
    assert MIXED.softmax(one_hot)[0, 0, 2:].tolist() == pytest.approx([0.576, 0.212, 0.212], abs=1e-3)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("categories", ["none", "clamp", "softmax"])
def test_shifts_stay_in_their_ball(norm: str, categories: str) -> None:
    theta, (x, y, x_cf, t) = networks(4), rows()
    shift = Shift(epsilon=0.1, norm=norm, categories=categories)  # pyright: ignore[reportArgumentType]
    _, delta = virtual_shift(theta, x, y, x_cf, t, shift, MIXED, torch.Generator().manual_seed(0))
    numbers = delta[..., :2]
    assert float(numbers.abs().max()) <= 0.1 * (1 + 1e-6)
    if categories == "none":
        assert not delta[..., 2:].any()
    if norm == "l2" and categories != "softmax":
        assert float(delta.norm(dim=-1).max()) <= 0.1 * (1 + 1e-6)


def test_no_steps_leave_the_model_as_it_is_and_no_shift_is_plain_training() -> None:
    theta, (x, y, x_cf, t) = networks(4), rows()
    before = theta.flat.clone()
    for still in (Shift(outer=0), Shift(inner=0)):
        same, _ = virtual_shift(theta, x, y, x_cf, t, still, NUMBERS, torch.Generator().manual_seed(0))
        assert torch.equal(same.flat, before)
    shift = Shift(epsilon=0.0, outer=3, inner=2)
    trained, delta = virtual_shift(theta, x, y, x_cf, t, shift, NUMBERS, torch.Generator().manual_seed(0))
    assert not delta.any()
    tape = Tape(theta, State.of(theta))
    for _ in range(6):
        tape.step(x, y, shift)
    torch.testing.assert_close(trained.flat, tape.theta.flat)
    assert torch.equal(theta.flat, before)  # the caller's models


def test_models_of_a_stack_do_not_know_each_other() -> None:
    theta, (x, y, x_cf, t) = networks(4), rows()
    shift = Shift(epsilon=0.0)
    together, _ = virtual_shift(theta, x, y, x_cf, t, shift, NUMBERS, torch.Generator().manual_seed(0))
    for m in range(M):
        one = Parameters.of([w[m : m + 1] for w in theta.parts])
        mine = (v[m : m + 1] for v in (x, y, x_cf, t))
        alone, _ = virtual_shift(one, *mine, shift, NUMBERS, torch.Generator().manual_seed(0))
        for a, b in zip(together.parts, alone.parts, strict=True):
            torch.testing.assert_close(a[m : m + 1], b)


def test_the_shift_hurts_more_than_a_random_one() -> None:
    """Over 50 small problems; theta' starts the same, only where the data go differs."""
    gains = list[float]()
    for seed in range(50):
        theta, (x, y, x_cf, t) = networks(6, seed=seed), rows(seed + 100)
        worst, drawn = (
            virtual_shift(
                theta, x, y, x_cf, t, Shift(epsilon=0.3, eta=0.05, ascend=ascend), NUMBERS,
                torch.Generator().manual_seed(seed),
            )[0]
            for ascend in (True, False)
        )  # fmt: skip
        gains.append(float((loss(worst, x_cf, t) - loss(drawn, x_cf, t)).sum()))
    assert sum(gains) / len(gains) > 0
    assert sum(g > 0 for g in gains) > 35


def test_dead_parameters_give_no_nan() -> None:
    theta, (x, y, x_cf, t) = networks(4, dtype=torch.float32), rows(dtype=torch.float32)
    theta.parts[0][:, :, 0] = 0.0
    theta.parts[2][:, 0] = 0.0  # nothing depends on the first hidden unit, and it gets no gradient
    found, delta = virtual_shift(theta, x, y, x_cf, t, Shift(), NUMBERS, torch.Generator().manual_seed(0))
    assert all(bool(w.isfinite().all()) for w in (found.flat, delta))


@pytest.mark.parametrize(
    "settings",
    [{"epsilon": -1.0}, {"outer": -1}, {"eta": 0.0}, {"optimizer": "x"}, {"norm": "l1"}, {"categories": "x"}],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(hf.HoldfastError, match=next(iter(settings))):
        Shift(**settings)  # pyright: ignore[reportArgumentType]
