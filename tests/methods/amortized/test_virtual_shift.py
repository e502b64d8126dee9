"""Virtual Data Shift: derivatives against closed forms, automatic differentiation and finite
differences."""

import itertools
from dataclasses import dataclass, fields, replace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import holdfast as hf
from holdfast._core.row_random import RowRandom
from holdfast.methods.amortized.virtual_shift import B1, B2, EPS, ROOT, Attack, Batch, Shift, Tape
from holdfast.nn.stack_derivatives import SLOPE, AnyModule, Leaky, Net, Parts, Weights
from holdfast.schema.encoding import Encoding

M = 3
N = 7
ANSWERS = 4
D = 5
F64 = torch.float64
ALL = torch.arange(D)


def layers(
    sizes: tuple[int, ...], count: int = M, seed: int = 0, dtype: torch.dtype = F64
) -> Parts:
    g = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(count, a, b, generator=g, dtype=dtype) * 0.7,
            torch.randn(count, 1, b, generator=g, dtype=dtype),
        )
        for a, b in itertools.pairwise(sizes)
    ]


def network(
    *hidden: int,
    outputs: int = 1,
    slope: float = SLOPE,
    count: int = M,
    seed: int = 0,
    dtype: torch.dtype = F64,
) -> tuple[Leaky, Weights]:
    net = Leaky((D, *hidden, outputs), slope)
    return net, net.load(net.weights(count, dtype), layers(net.sizes, count, seed, dtype))


def problem(classes: int = 2, count: int = M, seed: int = 1, dtype: torch.dtype = F64) -> Batch:
    """Rows whose last three columns are a category, with weights that differ."""
    g = torch.Generator().manual_seed(seed)
    out = list[Tensor]()
    for n in (N, ANSWERS):
        x = torch.rand(count, n, D, generator=g, dtype=dtype)
        x[..., 2:] = nn.functional.one_hot(torch.randint(3, (count, n), generator=g), 3)
        w = torch.rand(count, n, 1, generator=g, dtype=dtype) + 0.5
        out += [
            x,
            torch.randint(classes, (count, n, 1), generator=g).to(dtype),
            w / w.sum(1, keepdim=True),
        ]
    return Batch(*out)


def numbers(dtype: torch.dtype = F64) -> Encoding:
    return hf.Schema.box(D).encoding(dtype)


def mixed(dtype: torch.dtype = F64) -> Encoding:
    table = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [0.5, 1.5, 1.0], "c": ["x", "y", "z"]})
    return hf.Schema.infer(table).encoding(dtype)


def loss(parts: Parts, x: Tensor, y: Tensor, w: Tensor, slope: float = SLOPE) -> Tensor:
    """(M,) as the paper writes it."""
    z = x
    for i, (weight, bias) in enumerate(parts):
        z = z @ weight + bias
        if i < len(parts) - 1:
            z = torch.where(z > 0, z, slope * z)
    if z.shape[2] > 2:
        each = torch.logsumexp(z, 2, keepdim=True) - z.gather(2, y.long())
    else:
        f = torch.sigmoid(z) if z.shape[2] == 1 else torch.softmax(z, 2)[..., 1:]
        each = (f - y) ** 2
    return (each * w).sum((1, 2))


def flat(parts: Parts) -> list[Tensor]:
    return [v for part in parts for v in part]


def paired(values: Any) -> Parts:
    values = list(values)
    return list(zip(values[::2], values[1::2], strict=True))


def free(parts: Parts) -> Parts:
    return paired(v.clone().requires_grad_() for v in flat(parts))


def assert_same(mine: Parts, theirs: Any, **how: float) -> None:
    for a, b in zip(flat(mine), theirs, strict=True):
        torch.testing.assert_close(a, b.detach(), **how)


def keys(count: int = M) -> RowRandom:
    return RowRandom.of(0, torch.arange(float(count))[:, None])


# ---- derivatives of one network


@pytest.mark.parametrize("hidden", [(), (4,), (6, 3), (20, 17)])
@pytest.mark.parametrize("outputs", [1, 2, 4])
@pytest.mark.parametrize("slope", [SLOPE, 0.0])
def test_first_and_second_derivatives_are_those_of_autograd(
    hidden: tuple[int, ...], outputs: int, slope: float
) -> None:
    net, theta = network(*hidden, outputs=outputs, slope=slope)
    _, p = network(*hidden, outputs=outputs, seed=5)
    b = problem(max(outputs, 2))
    g = theta.empty()
    curved = theta.empty()
    at = net.gradient(theta, b.x, b.y, b.w, g, "here")
    theirs = free(net.unpadded(theta))
    x = b.x.clone().requires_grad_()
    slopes = torch.autograd.grad(
        loss(theirs, x, b.y, b.w, slope).sum(), flat(theirs), create_graph=True
    )
    assert_same(net.unpadded(g), slopes)
    along = sum(
        ((s * v).sum() for s, v in zip(slopes, flat(net.unpadded(p)), strict=True)),
        torch.zeros((), dtype=F64),
    )
    *by_theta, by_x = torch.autograd.grad(along, [*flat(theirs), x])
    torch.testing.assert_close(net.mixed(theta, p, at, ALL, curved), by_x)
    assert_same(net.unpadded(curved), by_theta)
    some = torch.tensor([0, 3])
    torch.testing.assert_close(net.mixed(theta, p, at, some, None), by_x[..., some])


@pytest.mark.parametrize("outputs", [1, 2, 4])
@pytest.mark.parametrize("slope", [SLOPE, 0.0])
def test_scores_and_what_goes_back_through_them_are_those_of_autograd(
    outputs: int, slope: float
) -> None:
    net, theta = network(6, 3, outputs=outputs, slope=slope)
    b = problem()
    up = torch.randn(M, N, outputs, generator=torch.Generator().manual_seed(2), dtype=F64)
    any_net, any_theta = as_module(net, theta)
    x = b.x.clone().requires_grad_()
    z = any_net.scores(any_theta, x)
    (expected,) = torch.autograd.grad((z * up).sum(), x)
    for one, weights in ((net, theta), (any_net, any_theta)):
        torch.testing.assert_close(one.scores(weights, b.x), z.detach())
        found, pull = one.vjp(weights, b.x)
        torch.testing.assert_close(found, z.detach())
        torch.testing.assert_close(pull(up), expected)


def test_hidden_layers_have_room_for_a_multiple_of_sixteen() -> None:
    assert Leaky((5, 4, 16, 17, 1)).padded_sizes == (5, 16, 16, 32, 1)
    assert Leaky((5, 130, 1)).padded_sizes == (5, 136, 1)


# ---- any module


def module_weights(parts: Parts) -> Weights:
    """(M, P) as the parameters of nn.Linear layers lie in a row."""
    return Weights(torch.cat([v.flatten(1) for w, b in parts for v in (w.transpose(1, 2), b)], 1))


def as_module(net: Leaky, theta: Weights) -> tuple[AnyModule, Weights]:
    made = list[nn.Module]()
    for a, b in itertools.pairwise(net.sizes):
        made += [nn.Linear(a, b, dtype=F64), nn.LeakyReLU(net.slope)]
    return AnyModule(nn.Sequential(*made[:-1])), module_weights(net.unpadded(theta))


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_any_module_has_the_derivatives_of_the_network_by_hand(outputs: int) -> None:
    net, theta = network(6, 3, outputs=outputs)
    _, p = network(6, 3, outputs=outputs, seed=5)
    b = problem(max(outputs, 2))
    any_net, any_theta = as_module(net, theta)
    g = theta.empty()
    curved = theta.empty()
    any_g = any_theta.empty()
    any_curved = any_theta.empty()
    at = net.gradient(theta, b.x, b.y, b.w, g, "here")
    any_at = any_net.gradient(any_theta, b.x, b.y, b.w, any_g, "here")
    torch.testing.assert_close(any_g.flat, module_weights(net.unpadded(g)).flat)
    mine = net.mixed(theta, p, at, ALL, curved)
    torch.testing.assert_close(
        any_net.mixed(any_theta, module_weights(net.unpadded(p)), any_at, ALL, any_curved), mine
    )
    torch.testing.assert_close(any_curved.flat, module_weights(net.unpadded(curved)).flat)


def test_an_attack_on_any_module_is_the_attack_on_the_network_by_hand() -> None:
    net, theta = network(6, 3)
    any_net, any_theta = as_module(net, theta)
    mine = Attack(net, theta, Shift(), mixed()).with_delta(theta, problem(), keys(), 0, 0.1)
    theirs = Attack(any_net, any_theta, Shift(), mixed()).with_delta(
        any_theta, problem(), keys(), 0, 0.1
    )
    torch.testing.assert_close(mine[1], theirs[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(
        module_weights(net.unpadded(mine[0])).flat, theirs[0].flat, rtol=0, atol=1e-10
    )


def test_modules_of_another_shape_work_too() -> None:
    """A network with Tanh: two steps of Adam, against finite differences."""
    made = nn.Sequential(nn.Linear(D, 4, dtype=F64), nn.Tanh(), nn.Linear(4, 1, dtype=F64))
    net = AnyModule(made)
    b = problem()
    shift = Shift(inner=2, eta=0.05)
    theta = net.weights(M)
    theta.flat.copy_(
        torch.randn(theta.flat.shape, generator=torch.Generator().manual_seed(0), dtype=F64)
    )
    after = Tape(net, theta, shift, ALL)

    def end(x: Tensor) -> float:
        after.start(theta, M)
        after.train(x, b)
        f = torch.sigmoid(net.scores(after.theta, b.x_cf))
        return float(((f - b.t).square() * b.w_cf).sum())

    found = slopes_by_rows(net, theta, b, shift)
    for at in SOME:
        assert float(found[at]) == pytest.approx(difference(end, b.x, at), rel=1e-5, abs=1e-9)


# ---- the gradient through training

SOME = [(0, 0, 0), (1, 3, 2), (2, 6, 4), (0, 5, 1)]


def slopes_by_rows(net: Net, theta: Weights, b: Batch, shift: Shift) -> Tensor:
    tape = Tape(net, theta, shift, ALL)
    tape.start(theta, M)
    tape.train(b.x, b)
    return tape.by_rows(b).clone()


def difference(end: Any, x: Tensor, at: tuple[int, ...], step: float = 1e-5) -> float:
    ends = list[float]()
    for way in (1, -1):
        moved = x.clone()
        moved[at] += way * step
        ends.append(end(moved))
    return (ends[0] - ends[1]) / (2 * step)


class Straight(AnyModule):
    """f = w x and half the squared error, the case that the paper's authors' rule is known for in
    closed form."""

    def _loss(self, flat: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return 0.5 * ((self._scores(flat, x) - y).square() * w).sum()


def test_hyper_gradient_of_a_straight_line_has_the_known_form() -> None:
    """-(eta / n) [(v z_i) w + r_i v], where v is the gradient of the answers' loss at w' = w - eta
    mean(r z)."""
    net = Straight(nn.Linear(D, 1, bias=False, dtype=F64))
    eta = 0.3
    theta = net.weights(M)
    theta.flat.copy_(torch.randn(M, D, generator=torch.Generator().manual_seed(0), dtype=F64))
    b = problem()
    b = replace(b, w=torch.full_like(b.w, 1 / N), w_cf=torch.full_like(b.w_cf, 1 / ANSWERS))
    found = slopes_by_rows(net, theta, b, Shift(optimizer="sgd", inner=1, eta=eta))
    for m in range(M):
        w = theta.flat[m]
        z = b.x[m]
        c = b.x_cf[m]
        r = z @ w - b.y[m, :, 0]
        after = w - eta * (r[:, None] * z).mean(0)
        v = ((c @ after - b.t[m, :, 0])[:, None] * c).mean(0)
        torch.testing.assert_close(found[m], -(eta / N) * ((z @ v)[:, None] * w + r[:, None] * v))


def test_hyper_gradient_of_a_logistic_model_has_a_closed_form() -> None:
    """One step of gradient descent; the rule of the chain by hand, model by model."""
    net, theta = network()
    b = problem()
    eta = 0.3
    found = slopes_by_rows(net, theta, b, Shift(optimizer="sgd", inner=1, eta=eta))
    for m in range(M):
        w = theta.parts[0][0][m, :, 0]
        c = theta.parts[0][1][m, 0, 0]
        x, y, share, x_cf, t, share_cf = (getattr(b, f.name)[m] for f in fields(b))
        y = y[:, 0]
        share = share[:, 0]
        t = t[:, 0]
        share_cf = share_cf[:, 0]
        f = torch.sigmoid(x @ w + c)
        d = 2 * share * (f - y) * f * (1 - f)
        f_cf = torch.sigmoid(x_cf @ (w - eta * d @ x) + c - eta * d.sum())
        e = 2 * share_cf * (f_cf - t) * f_cf * (1 - f_cf)
        v = e @ x_cf
        v_c = e.sum()
        f1 = f * (1 - f)
        curve = 2 * share * (f1**2 + (f - y) * f1 * (1 - 2 * f))
        torch.testing.assert_close(
            found[m], -eta * ((curve * (x @ v + v_c))[:, None] * w + d[:, None] * v)
        )


@dataclass
class Point:
    """Where training stands: weights, Adam's two memories and its count."""

    parts: Parts
    m: list[Tensor]
    v: list[Tensor]
    count: int = 0

    @classmethod
    def start(cls, parts: Parts) -> "Point":
        return cls(free(parts), *([torch.zeros_like(p) for p in flat(parts)] for _ in "mv"))

    def stopped(self) -> "Point":
        """The same, and gradients go no further back."""
        held = ([v.detach() for v in values] for values in (self.m, self.v))
        return Point(free(paired(p.detach() for p in flat(self.parts))), *held, self.count)


def unrolled(at: Point, x: Tensor, b: Batch, shift: Shift) -> Point:
    """K steps of training that automatic differentiation can go back through."""
    for _ in range(shift.inner):
        g = torch.autograd.grad(
            loss(at.parts, x, b.y, b.w).sum(), flat(at.parts), create_graph=True
        )
        if shift.optimizer == "sgd":
            at = replace(
                at, parts=paired(p - shift.eta * s for p, s in zip(flat(at.parts), g, strict=True))
            )
            continue
        k = at.count + 1
        m = [B1 * a + (1 - B1) * s for a, s in zip(at.m, g, strict=True)]
        v = [B2 * a + (1 - B2) * s * s for a, s in zip(at.v, g, strict=True)]
        moved = (
            p - shift.eta * (a / (1 - B1**k)) / ((c / (1 - B2**k) + ROOT).sqrt() + EPS)
            for p, a, c in zip(flat(at.parts), m, v, strict=True)
        )
        at = Point(paired(moved), m, v, k)
    return at


def hurt(at: Point, b: Batch) -> Tensor:
    return loss(at.parts, b.x_cf, b.t, b.w_cf).sum()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("inner", [1, 2, 3])
@pytest.mark.parametrize(
    ("hidden", "outputs"), [((), 1), ((4,), 1), ((6, 3), 1), ((6, 3), 2), ((17,), 4)]
)
def test_hyper_gradient_is_that_of_autograd_and_of_finite_differences(
    optimizer: Any, inner: int, hidden: tuple[int, ...], outputs: int
) -> None:
    """Paper: guo2023 Eq. 3."""
    net, theta = network(*hidden, outputs=outputs)
    b = problem(max(outputs, 2))
    shift = Shift(optimizer=optimizer, inner=inner, eta=0.05)
    found = slopes_by_rows(net, theta, b, shift)
    start = Point.start(net.unpadded(theta))
    x = b.x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(hurt(unrolled(start, x, b, shift), b), x)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-12)
    for at in SOME:
        slope = difference(lambda moved: hurt(unrolled(start, moved, b, shift), b).item(), b.x, at)
        assert float(found[at]) == pytest.approx(slope, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_carries_on_and_its_gradient_goes_back_through_the_last_steps_only(
    optimizer: Any,
) -> None:
    """Paper: guo2023 Eq. 2, Algorithm 1."""
    net, theta = network(6, 3)
    b = problem()
    shift = Shift(optimizer=optimizer, eta=0.05)
    tape = Tape(net, theta, shift, ALL)
    at = Point.start(net.unpadded(theta))
    tape.start(theta, M)
    for turn in range(3):
        at = at.stopped()
        x = (b.x + 0.1 * turn).requires_grad_()
        tape.train(x.detach(), b)
        at = unrolled(at, x, b, shift)
        (expected,) = torch.autograd.grad(hurt(at, b), x)
        assert_same(net.unpadded(tape.theta), flat(at.parts), rtol=0, atol=1e-10)
        torch.testing.assert_close(tape.by_rows(b), expected, rtol=1e-8, atol=1e-12)


def torch_adam(parts: Parts, b: Batch, eta: float, steps: int) -> Parts:
    theirs = free(parts)
    adam = torch.optim.Adam(flat(theirs), lr=eta)
    for _ in range(steps):
        adam.zero_grad()
        loss(theirs, b.x, b.y, b.w).sum().backward()
        adam.step()
    return paired(p.detach() for p in flat(theirs))


def test_training_takes_the_steps_of_adam(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the 1e-12 under the root, which counts where gradients are small."""
    monkeypatch.setattr("holdfast.methods.amortized.virtual_shift.ROOT", 0.0)
    net, theta = network(6, 3)
    b = problem()
    tape = Tape(net, theta, Shift(inner=5, eta=0.03), ALL)
    tape.start(theta, M)
    tape.train(b.x, b)
    assert_same(
        net.unpadded(tape.theta),
        flat(torch_adam(net.unpadded(theta), b, 0.03, 5)),
        rtol=0,
        atol=1e-10,
    )


def test_parameters_without_gradient_give_no_nan() -> None:
    """Nothing depends on the first hidden unit, and it gets no gradient; nor do the units that are
    not there."""
    net, theta = network(4, dtype=torch.float32)
    theta.parts[0][0][:, :, 0] = 0.0
    theta.parts[0][1][:, :, 0] = 0.0
    theta.parts[1][0][:, 0] = 0.0
    b = problem(dtype=torch.float32)
    found, delta = Attack(net, theta, Shift(), numbers(torch.float32)).with_delta(
        theta, b, keys(), 0, 0.1
    )
    assert all(bool(v.isfinite().all()) for v in (found.flat, delta))
    assert torch.equal(found.parts[0][0][:, :, 0], theta.parts[0][0][:, :, 0])


# ---- the attack


class Watched(Attack):
    """Keeps every shift it trains on, and the rows that it makes of them."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen = list[tuple[Tensor, Tensor]]()

    def _shifted(self, x: Tensor, base: Tensor, delta: Tensor) -> Tensor:
        rows = super()._shifted(x, base, delta)
        self.seen.append((delta.clone(), rows.clone()))
        return rows


@pytest.mark.parametrize("ascend", [True, False])
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("categories", ["none", "clamp", "softmax"])
def test_shifts_stay_in_their_ball_at_every_step(norm: Any, categories: Any, ascend: bool) -> None:
    """Paper: guo2023 Algorithm 1."""
    net, theta = network(4)
    b = problem()
    attack = Watched(net, theta, Shift(norm=norm, categories=categories, ascend=ascend), mixed())
    _, last = attack.with_delta(theta, b, keys(), 0, 0.1)
    shifts = [delta for delta, _ in attack.seen]
    assert len(shifts) == 7
    for delta in (*shifts, last):
        assert delta.shape[2] == (2 if categories == "none" else D)
        assert float(delta[..., :2].abs().max()) <= 0.1 * (1 + 1e-12)
        if categories == "clamp":
            assert float(delta.abs().max()) <= 0.1 * (1 + 1e-12)
        if norm == "l2":
            assert float(delta.norm(dim=-1).max()) <= 0.1 * (1 + 1e-12)
    assert not torch.equal(shifts[0], shifts[1])


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_categories_do_not_shift_unless_asked_to(norm: Any) -> None:
    net, theta = network(4)
    b = problem()
    attack = Watched(net, theta, Shift(norm=norm), mixed())
    attack(theta, b, keys(), 0, 0.1)
    for delta, rows in attack.seen:
        assert torch.equal(rows[..., 2:], b.x[..., 2:])
        torch.testing.assert_close(rows[..., :2], b.x[..., :2] + delta)


def test_softmax_of_categories_and_its_derivative() -> None:
    g = torch.Generator().manual_seed(0)
    at = mixed()
    x = torch.randn(M, N, D, generator=g, dtype=F64).requires_grad_()
    soft = at.softmax(x)
    torch.testing.assert_close(soft[..., 2:], torch.softmax(x[..., 2:], -1))
    assert torch.equal(soft[..., :2], x[..., :2])
    up = torch.randn(M, N, D, generator=g, dtype=F64)
    (expected,) = torch.autograd.grad((soft * up).sum(), x)
    torch.testing.assert_close(at.softmax_pull(soft.detach(), up), expected)


def test_the_authors_softmax_changes_categories_even_where_nothing_shifts() -> None:
    net, theta = network(4)
    b = problem()
    attack = Watched(net, theta, Shift(categories="softmax"), mixed())
    attack(theta, b, keys(), 0, 0.0)
    for _, rows in attack.seen:
        assert torch.equal(rows[..., :2], b.x[..., :2])
        expected = torch.where(b.x[..., 2:] > 0, 0.576117, 0.211942).to(F64)
        torch.testing.assert_close(rows[..., 2:], expected, rtol=0, atol=1e-6)


def test_shifts_reach_any_corner_and_the_authors_leave_categories_unclamped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, theta = network(4)
    b = problem()
    for categories, top in (("none", 0.1), ("clamp", 0.1), ("softmax", None)):
        shift = Shift(categories=categories)  # pyright: ignore[reportArgumentType]
        attack = Watched(net, theta, shift, mixed())
        up = torch.ones(M, N, len(attack.columns), dtype=F64)
        monkeypatch.setattr(attack.tape, "by_rows", lambda batch, up=up: up)
        monkeypatch.setattr(attack.encoding.__class__, "softmax_pull", lambda self, soft, g: g)
        _, delta = attack.with_delta(theta, b, keys(), 0, 0.1)
        torch.testing.assert_close(delta[..., :2], torch.full((M, N, 2), 0.1, dtype=F64))
        if top is None:
            torch.testing.assert_close(delta[..., 2:], attack.seen[0][0][..., 2:] + 0.25)
        else:
            torch.testing.assert_close(delta, torch.full_like(delta, top))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("categories", ["none", "clamp", "softmax"])
def test_the_shift_moves_along_the_gradient(norm: Any, categories: Any) -> None:
    """One step of it, from the start that it drew, with the gradient of autograd.

    Paper: guo2023 Algorithm 1.
    """
    net, theta = network(6, 3)
    b = problem()
    shift = Shift(outer=1, norm=norm, categories=categories)
    attack = Watched(net, theta, shift, mixed())
    trained, found = attack.with_delta(theta, b, keys(), 0, 0.1)
    start = torch.zeros_like(b.x)
    start[..., attack.columns] = attack.seen[0][0]
    start.requires_grad_()
    rows = b.x + start
    if categories == "softmax":
        rows = torch.cat([rows[..., :2], torch.softmax(rows[..., 2:], -1)], -1)
    at = unrolled(Point.start(net.unpadded(theta)), rows, b, shift)
    assert_same(net.unpadded(trained), flat(at.parts), rtol=0, atol=1e-10)
    g = torch.autograd.grad(hurt(at, b), start)[0][..., attack.columns]
    way = g.sign() if norm == "linf" else g / g.norm(dim=-1, keepdim=True)
    expected = attack.seen[0][0] + 0.25 * way
    if norm == "l2":
        expected = expected * (0.1 / expected.norm(dim=-1, keepdim=True)).clamp_max(1.0)
    else:
        bounded = slice(0, 2 if categories == "softmax" else None)
        expected[..., bounded] = expected[..., bounded].clamp(-0.1, 0.1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("still", [Shift(outer=0), Shift(inner=0)])
def test_no_steps_give_the_model_itself(still: Shift) -> None:
    net, theta = network(4)
    assert Attack(net, theta, still, numbers())(theta, problem(), keys(), 0, 0.1) is theta


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_no_shift_is_plain_training(norm: Any) -> None:
    net, theta = network(4)
    b = problem()
    shift = Shift(outer=3, inner=2, norm=norm)
    trained, delta = Attack(net, theta, shift, numbers()).with_delta(theta, b, keys(), 0, 0.0)
    assert not delta.any()
    whole = Tape(net, theta, Shift(inner=6), ALL)
    whole.start(theta, M)
    whole.train(b.x, b)
    torch.testing.assert_close(trained.flat, whole.theta.flat, rtol=0, atol=1e-12)


@pytest.mark.parametrize("categories", ["none", "softmax"])
def test_models_of_a_stack_do_not_know_each_other(categories: Any) -> None:
    net, theta = network(4)
    b = problem()
    shift = Shift(categories=categories)
    together, delta = Attack(net, theta, shift, mixed()).with_delta(theta, b, keys(), 3, 0.1)
    for m in range(M):
        one = slice(m, m + 1)
        mine = Weights(theta.flat[one].clone(), theta.sizes)
        rows = Batch(*(getattr(b, f.name)[one] for f in fields(b)))
        alone, moved = Attack(net, mine, shift, mixed()).with_delta(
            mine, rows, RowRandom(keys().keys[one]), 3, 0.1
        )
        torch.testing.assert_close(alone.flat, together.flat[one], rtol=0, atol=1e-10)
        torch.testing.assert_close(moved, delta[one], rtol=0, atol=1e-12)


def test_an_attack_on_the_first_models_only_is_the_same() -> None:
    net, theta = network(4)
    b = problem()
    attack = Attack(net, theta, Shift(), mixed())
    whole = attack(theta, b, keys(), 0, 0.1).flat.clone()
    some = Batch(*(getattr(b, f.name)[:2] for f in fields(b)))
    torch.testing.assert_close(
        attack(theta.first(2), some, keys(), 0, 0.1).flat, whole[:2], rtol=0, atol=1e-12
    )


def test_an_attack_changes_nothing_that_it_is_given_and_draws_nothing_from_the_caller() -> None:
    net, theta = network(4)
    b = problem()
    given = [theta.flat, *(getattr(b, f.name) for f in fields(b))]
    before = [v.clone() for v in given]
    state = torch.get_rng_state()
    for categories in ("none", "clamp", "softmax"):
        shift = Shift(categories=categories)  # pyright: ignore[reportArgumentType]
        Attack(net, theta, shift, mixed())(theta, b, keys(), 0, 0.1)
    assert all(torch.equal(a, v) for a, v in zip(given, before, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("ascend", [True, False])
def test_the_same_draw_gives_the_same_model_and_another_draw_another(ascend: bool) -> None:
    net, theta = network(4)
    b = problem()
    attack = Attack(net, theta, Shift(ascend=ascend), mixed())
    first = attack(theta, b, keys(), 0, 0.1).flat.clone()
    again = attack(theta, b, keys(), 0, 0.1).flat.clone()
    other = attack(theta, b, keys(), 1, 0.1).flat.clone()
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_units_that_are_not_there_stay_zero_in_an_attack() -> None:
    net, theta = network(6, 3)
    trained = Attack(net, theta, Shift(), mixed())(theta, problem(), keys(), 0, 0.1)
    assert not torch.equal(trained.flat, theta.flat)
    assert torch.equal(net.load(net.weights(M, F64), net.unpadded(trained)).flat, trained.flat)


def test_the_shift_hurts_more_than_a_random_one() -> None:
    """Over 60 small problems; all starts are the same, only where the data go differs.

    Paper: guo2023 Baseline RoCourseNet-Random.
    """
    count = 60
    net, theta = network(6, count=count)
    b = problem(count=count)
    worst = loss(
        net.unpadded(Attack(net, theta, Shift(eta=0.05), numbers())(theta, b, keys(count), 0, 0.3)),
        b.x_cf,
        b.t,
        b.w_cf,
    )
    drawn = loss(
        net.unpadded(
            Attack(net, theta, Shift(eta=0.05, ascend=False), numbers())(
                theta, b, keys(count), 0, 0.3
            )
        ),
        b.x_cf,
        b.t,
        b.w_cf,
    )
    assert float((worst - drawn).mean()) > 0
    assert int((worst > drawn).sum()) > 45


def test_the_last_shift_hurts_more_than_the_first() -> None:
    """K steps of training from the same model, on the shift that the attack drew and on the one it
    ended with."""
    count = 60
    net, theta = network(6, count=count)
    b = problem(count=count)
    shift = Shift(eta=0.05)
    attack = Watched(net, theta, shift, numbers())
    _, last = attack.with_delta(theta, b, keys(count), 0, 0.3)
    ends = list[Tensor]()
    for delta in (attack.seen[0][0], last):
        tape = Tape(net, theta, shift, ALL)
        tape.start(theta, count)
        tape.train(b.x + delta, b)
        ends.append(loss(net.unpadded(tape.theta), b.x_cf, b.t, b.w_cf))
    assert float((ends[1] - ends[0]).mean()) > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": -1.0},
        {"outer": -1},
        {"inner": -2},
        {"inner": 1.5},
        {"eta": 0.0},
        {"eta": 1e36},
        {"ascend": "yes"},
        {"optimizer": "x"},
        {"norm": "l1"},
        {"categories": "x"},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(hf.HoldfastError, match=f"{name}.*{value}"):
        Shift(**settings)
