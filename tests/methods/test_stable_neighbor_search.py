"""Stable Neighbor Search: the integral, its gradient, closed forms on linear models, and what it
promises."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import softplus

import holdfast as hf
from holdfast.auditing.audit import audit
from holdfast.errors import ModelError, SchemaError, SettingError
from holdfast.methods._path_integral import Path, Value, path_value, stack_value
from holdfast.methods.stable_neighbor_search import (
    DEPTH,
    DEPTH_WITH_BANK,
    OF_RANGE,
    StableNeighborSearch,
    direction,
)
from holdfast.nn.architecture import mlp
from holdfast.nn.module_stack import ModuleStack, stack_of
from holdfast.nn.stack import ModelStack
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.recipe import Recipe
from holdfast.schema.verify import blocked, violations
from support.tables import mixed_table, seeded
from support.torch_models import Opaque

NAMES = {
    1: ["no", "yes"],
    2: ["no", "yes"],
    3: ["no", "yes", "maybe"],
    4: ["no", "yes", "maybe", "later"],
}
PGD = hf.MinEpsilonPGD(radius=6.0, radii=6, steps=12)


@dataclass(eq=False)
class Given(hf.Explainer):
    """A start that knows the answer of each row."""

    def holding(self, x: Tensor, z: Tensor) -> "Given":
        self.x = x
        self.z = z
        return self

    def search(self, problem: hf.SearchProblem) -> Tensor:
        return self.z[(problem.x[:, None] == self.x).all(2).int().argmax(1)]


def gaussian(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def straight(w: Tensor, b: float, outputs: int, by_hand: bool) -> nn.Module:
    """w.x + b as one Linear layer, or as Linear-ReLU-Linear: v = max(v, 0) - max(-v, 0)."""
    first = nn.Linear(len(w), 2 if by_hand else 1, dtype=w.dtype)
    last = nn.Linear(2 if by_hand else 1, outputs, dtype=w.dtype)
    with torch.no_grad():
        if not by_hand:
            only = nn.Linear(len(w), outputs, dtype=w.dtype)
            only.weight.copy_(w[None] if outputs == 1 else torch.stack([-0.5 * w, 0.5 * w]))
            only.bias.copy_(
                torch.tensor([b] if outputs == 1 else [-0.5 * b, 0.5 * b], dtype=w.dtype)
            )
            return only
        first.weight.copy_(torch.stack([w, -w]))
        first.bias.copy_(torch.tensor([b, -b], dtype=w.dtype))
        sign = torch.tensor([1.0, -1.0], dtype=w.dtype)
        last.weight.copy_(sign[None] if outputs == 1 else torch.stack([-0.5 * sign, 0.5 * sign]))
        last.bias.zero_()
    return nn.Sequential(first, nn.ReLU(), last)


def network(
    outputs: int, seed: int = 0, d: int = 5, dtype: torch.dtype = torch.float64
) -> nn.Module:
    return seeded(mlp(d, (16, 8), outputs).to(dtype), seed)


def wrapped(module: nn.Module, low: float = -math.inf, high: float = math.inf) -> hf.Model:
    layers = [m for m in module.modules() if isinstance(m, nn.Linear)]
    return hf.Model.of(
        module,
        hf.Schema.box(layers[0].in_features, low, high),
        classes=NAMES[layers[-1].out_features],
    )


def stacked(
    modules: Sequence[nn.Module], kind: Callable[[nn.Module, int], ModelStack] = stack_of
) -> ModelStack:
    out = kind(modules[0], len(modules))
    states = [out.named(dict(m.state_dict())) for m in modules]
    out.load({name: torch.stack([s[name] for s in states]) for name in states[0]})
    return out


def bank_of(
    modules: Sequence[nn.Module], like: hf.Model, families: Sequence[str] = ("seed",)
) -> ModelBank:
    """A bank of modules at hand, dealt to the families in turn."""
    groups = tuple(
        ModelGroup(name, stacked(modules[i :: len(families)])) for i, name in enumerate(families)
    )
    return ModelBank(groups, like.schema, like.classes, Recipe(), 0)


def valued(model: hf.Model, y: Tensor, path: Path, z: Tensor) -> Value:
    with model.eval_mode():
        return path_value(model, y, path)(z)


def asked(model: hf.Model, target: str, n: int, seed: int = 9) -> Tensor:
    """Rows that have another class."""
    x = gaussian(seed, 60 * n, model.schema.width, dtype=model.dtype).clamp(-2.5, 2.5)
    rows = x[torch.tensor([c != target for c in model.predict(model.schema.decode(x))])][:n]
    assert len(rows) == n
    return rows


def classes_at(model: hf.Model, z: Tensor) -> Tensor:
    with model.eval_mode():
        return model(z).argmax(1)


# ---- the integral


@pytest.mark.parametrize("y", [0, 1])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize(("a", "b"), [(4.0, -1.0), (-6.0, 2.0)])
def test_sum_against_the_closed_form_of_the_integral(
    a: float, b: float, by_hand: bool, outputs: int, y: int
) -> None:
    """Right end points: the sum is above the integral by (s(1) - s(0)) / 2n. t = 0, or spacing 1 /
    (n - 1), fails.

    Paper: black2022 Definition 5.
    """
    one = torch.tensor([1.0], dtype=torch.float64)
    module = straight(a * one, b, outputs, by_hand)
    model = wrapped(module)
    start = b * one
    end = (a + b) * one
    integral = (softplus(end) - softplus(start)) / a
    shift = torch.sigmoid(end) - torch.sigmoid(start)
    if y == 0:
        integral = 1 - integral
        shift = -shift
    for n in (5, 10, 40):
        for value in (
            valued(model, torch.tensor([y]), Path.of(0 * one, n), one[None]),
            stack_value(stacked([module]), torch.tensor([y]), Path.of(0 * one, n))(one[None]),
        ):
            assert abs(value.total - integral - shift / (2 * n)) <= abs(a) / (40 * n**2)
            assert value.total == pytest.approx(
                float(integral + shift / (2 * n)), abs=0.2 * float(abs(shift)) / n
            )
            own = torch.sigmoid(end if y else -end)
            assert float(value.least) == pytest.approx(float(own), rel=1e-12)


def test_points_start_at_one_step_and_end_at_the_row() -> None:
    baseline, t, w = Path.of(torch.zeros(3), 4)
    assert t.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert w.tolist() == [0.25] * 4
    assert len(baseline) == 3
    assert Path.of(torch.zeros(3), 4, end=1.0).w.tolist() == [0.25, 0.25, 0.25, 1.25]


@pytest.mark.parametrize("by_hand", [False, True])
def test_baseline_and_end_weight_against_the_definition(by_hand: bool) -> None:
    """Paper: black2022 Eq. 5."""
    module = network(3)
    model = wrapped(module if by_hand else Opaque(module))
    z = gaussian(1, 6, 5)
    b = gaussian(2, 5)
    y = torch.arange(6) % 3
    with torch.no_grad():
        points = [
            torch.softmax(module(b + j / 7 * (z - b)), 1)[torch.arange(6), y] for j in range(1, 8)
        ]
    expected = torch.stack(points).mean(0) + 0.6 * points[-1]
    value = valued(model, y, Path.of(b, 7, end=0.6), z)
    assert torch.allclose(value.total, expected, rtol=1e-12)
    assert torch.allclose(value.least, points[-1], rtol=1e-12)
    assert torch.allclose(
        torch.softmax(value.scores, 1)[torch.arange(6), y], points[-1], rtol=1e-12
    )


# ---- its gradient


def differences(f: Callable[[Tensor], Tensor], z: Tensor, h: float = 1e-6) -> Tensor:
    """Central differences of f: (n, d) -> (n,)."""
    sides = [
        [f(z + s * h * torch.eye(z.shape[1], dtype=z.dtype)[j]) for s in (1, -1)]
        for j in range(z.shape[1])
    ]
    return torch.stack([(up - down) / (2 * h) for up, down in sides], 1)


@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_gradient_against_finite_differences(outputs: int, seed: int) -> None:
    module = network(outputs, seed)
    z = 2 * gaussian(seed, 8, 5)
    b = 0.3 * gaussian(seed + 50, 5)
    y = torch.arange(8) % max(2, outputs)
    path = Path.of(b, 10, end=0.5)
    hand = valued(wrapped(module), y, path, z)
    other = valued(wrapped(Opaque(module)), y, path, z)
    true = differences(lambda v: valued(wrapped(module), y, path, v).total, z)
    assert hand.slope.abs().max() > 1e-2
    assert torch.allclose(hand.slope, true, atol=1e-7)
    for mine, theirs in zip(hand, other, strict=True):
        if mine is not hand.scores or outputs > 2:  # of two scores, only the difference is the same
            assert torch.allclose(mine, theirs, atol=1e-12)


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_stack_is_the_sum_over_models_and_the_least_of_them(outputs: int) -> None:
    modules = [network(outputs, seed) for seed in range(4)]
    z = gaussian(7, 9, 5)
    y = torch.arange(9) % max(2, outputs)
    path = Path.of(0.2 * gaussian(8, 5), 6, end=0.3)
    alone = [valued(wrapped(m), y, path, z) for m in modules]
    for kind in (stack_of, ModuleStack):
        value = stack_value(stacked(modules, kind), y, path)(z)
        assert torch.allclose(value.total, sum(v.total for v in alone), atol=1e-12)
        assert torch.allclose(value.slope, sum(v.slope for v in alone), atol=1e-12)
        assert torch.allclose(
            value.least, torch.stack([v.least for v in alone]).amin(0), atol=1e-12
        )
        assert torch.equal(value.scores.argmax(1), alone[0].scores.argmax(1))
    assert not torch.equal(value.least, alone[0].least)


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("y", [0, 1])
def test_slopes_of_saturated_probabilities_do_not_underflow(outputs: int, y: int) -> None:
    """1 - p is 0 in float32 from a lead of 17 on; the slope at 40 is 4e-18 and has a direction."""
    module = network(outputs, 3, dtype=torch.float32)
    layers = [m for m in module.modules() if isinstance(m, nn.Linear)]
    with torch.no_grad():
        layers[-1].bias[min(y, outputs - 1)] += 40.0 if y or outputs > 1 else -40.0
    z = gaussian(4, 8, 5, dtype=torch.float32)
    label = torch.full((8,), y)
    path = Path.of(torch.zeros(5), 5)
    with_bias = network(outputs, 3)
    with_bias.load_state_dict({k: v.double() for k, v in module.state_dict().items()})
    exact = valued(wrapped(with_bias), label, Path.of(torch.zeros(5).double(), 5), z.double())
    kinds = [valued(wrapped(m), label, path, z) for m in (module, Opaque(module))]
    kinds += [
        stack_value(stacked([module], kind), label, path)(z) for kind in (stack_of, ModuleStack)
    ]
    for value in kinds:
        assert (value.slope != 0).any(1).all()
        assert torch.allclose(direction(value.slope).double(), direction(exact.slope), atol=1e-2)


def test_direction_of_tiny_and_of_zero_gradients() -> None:
    g = gaussian(0, 6, 4, dtype=torch.float32)
    for scale in (1.0, 1e-18, 1e-30, 1e-37, 1e30):
        out = direction(g * scale)
        assert torch.allclose(out.norm(dim=1), torch.ones(6), atol=1e-5)
        assert torch.allclose(out, g / g.norm(dim=1, keepdim=True), atol=1e-4)
    mixed = torch.stack([g[0], torch.zeros(4)])
    assert direction(mixed)[1].tolist() == [0.0] * 4
    assert direction(mixed)[0].norm() == pytest.approx(1.0, abs=1e-6)


# ---- linear models: x0 + radius w / |w|


@pytest.mark.parametrize("target", ["yes", "no"])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("by_hand", [False, True])
def test_linear_logit_goes_straight(by_hand: bool, outputs: int, target: str) -> None:
    w = gaussian(5, 6, dtype=torch.float32)
    model = wrapped(straight(w, -0.3, outputs, by_hand))
    x = asked(model, target, 20)
    sign = 1.0 if target == "yes" else -1.0
    given = hf.MinCost(norm=2, bisections=3).explain(model, x, target)
    assert given.found.all()
    x0 = given.x_cf
    start = Given().holding(x, given.x_cf)
    few = {"steps": 30}
    for settings in (
        {},
        {"keep": "last"},
        {"baseline": 0.4, **few},
        {"endpoint_weight": 1.0, **few},
        {"steps": 7, "step_size": 0.5},
    ):
        cfs = StableNeighborSearch(start, radius=0.8, **settings).explain(model, x, target)
        assert cfs.found.all()
        assert (cfs.x_cf - x0 - sign * 0.8 * w / w.norm()).abs().max() <= 1e-4


def test_short_steps_do_not_reach_the_ball() -> None:
    w = gaussian(5, 6)
    model = wrapped(straight(w, -0.3, 1, True))
    x = asked(model, "yes", 8)
    x0 = PGD.explain(model, x, "yes").x_cf
    out = (
        StableNeighborSearch(PGD, radius=0.8, steps=5, step_size=0.1).explain(model, x, "yes").x_cf
    )
    assert torch.allclose(out - x0, (0.5 * w / w.norm()).expand_as(x), atol=1e-6)


@pytest.mark.parametrize("target", ["yes", "no"])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("by_hand", [False, True])
def test_saturated_rows_still_move(by_hand: bool, outputs: int, target: str) -> None:
    """The whole line, baseline included, is at a logit near 40 (or -40), in float32."""
    w = torch.tensor([3.0, -4.0])
    sign = 1.0 if target == "yes" else -1.0
    model = wrapped(straight(w, 0.0, outputs, by_hand))
    x0 = sign * torch.tensor([[4.8, -6.4], [4.9, -6.3], [4.7, -6.5]])
    start = Given().holding(-x0, x0)
    sns = StableNeighborSearch(start, radius=0.5, baseline=tuple(x0[0].tolist()))
    out = sns.explain(model, -x0, target).x_cf
    assert (out - x0 - sign * 0.5 * w / 5).abs().max() <= 1e-4


def test_one_logit_and_two_logits_give_the_same_answers() -> None:
    one = network(1, 2)
    two = network(2, 5)
    with torch.no_grad():
        for a, b in zip(one, two, strict=True):
            if isinstance(a, nn.Linear) and isinstance(b, nn.Linear):
                other = 0.7 * torch.ones_like(a.weight[:1])
                last = a.out_features == 1
                b.weight.copy_(torch.cat([other, other + a.weight]) if last else a.weight)
                b.bias.copy_(torch.tensor([0.4, 0.4 + float(a.bias)]) if last else a.bias)
    single = wrapped(one)
    double = wrapped(two)
    for target in ("yes", "no"):
        x = asked(single, target, 16)
        start = Given().holding(x, PGD.explain(single, x, target).x_cf)
        outs = [
            StableNeighborSearch(start, radius=0.7).explain(m, x, target) for m in (single, double)
        ]
        assert (outs[0].x_cf - start.z).abs().max() > 0.1
        assert (outs[0].x_cf - outs[1].x_cf).abs().max() <= 1e-8


# ---- what it promises


@pytest.mark.parametrize(
    ("keep", "noise", "dtype"),
    [
        ("best", 0.0, torch.float32),
        ("best", 0.3, torch.float64),
        ("last", 0.0, torch.float64),
        ("last", 0.3, torch.float32),
    ],
)
@pytest.mark.parametrize("outputs", [1, 2, 4])
@pytest.mark.parametrize("target", ["no", "yes", None])
def test_ball_class_box_and_objective(
    target: str | None, outputs: int, keep, noise: float, dtype
) -> None:
    """Paper: black2022 Definition 5."""
    model = wrapped(network(outputs, 1, dtype=dtype), -2.5, 2.5)
    x = asked(model, target or "yes", 24)
    given = PGD.explain(model, x, target)
    x0 = given.x_cf
    radius = 0.7
    sns = StableNeighborSearch(PGD, radius=radius, noise=noise, keep=keep, steps=30)
    cfs = sns.explain(model, x, target)
    out = cfs.x_cf
    assert given.found.sum() > 5
    assert (cfs.status_codes == given.status_codes).all()
    slack = 1e-6 if dtype == torch.float64 else 1e-5  # x0 + delta is itself rounded
    assert ((out - x0).double().norm(dim=1) <= radius * (1 + slack)).all()
    assert torch.equal(classes_at(model, out), classes_at(model, x0))
    assert out.abs().max() <= 2.5
    found = torch.tensor(given.found)
    assert (out - x0)[found].norm(dim=1).median() > 0.3
    if keep == "best":
        y = classes_at(model, x0)
        path = Path.of(torch.zeros(5, dtype=dtype), sns.path_points)
        gain = valued(model, y, path, out).total - valued(model, y, path, x0).total
        assert gain[found].min() >= -1e-6
        assert gain[found].median() > 0.01


def test_another_class_than_the_present_one_is_kept_too() -> None:
    """Target None: any other class will do, but the answer stays in the one where the search
    began."""
    model = wrapped(network(4, 1))
    x = gaussian(3, 40, 5)
    given = hf.GrowingSpheres(samples=60).explain(model, x)
    start = Given().holding(x, given.x_cf)
    out = StableNeighborSearch(start, radius=2.0, steps=40).explain(model, x)
    assert out.found.sum() > 20
    assert len(set(classes_at(model, given.x_cf).tolist())) > 2
    assert torch.equal(classes_at(model, out.x_cf), classes_at(model, given.x_cf))


@pytest.mark.parametrize("keep", ["best", "last"])
@pytest.mark.parametrize("opaque", [False, True])
def test_objective_does_not_pull_a_row_into_a_third_class(opaque: bool, keep) -> None:
    """On the way up to 2.5 the objective grows, thanks to the point half-way; the class changes at
    2.05."""
    module = mlp(1, (1,), 3).double()
    with torch.no_grad():
        values = [[[1.0]], [0.0], [[-10.0], [0.0], [0.5]], [10.5, 0.0, -1.025]]
        for parameter, v in zip(module.parameters(), values, strict=True):
            parameter.copy_(torch.tensor(v, dtype=torch.float64))
    model = wrapped(Opaque(module) if opaque else module)
    x = torch.tensor([[0.0]]).double()
    x0 = torch.tensor([[2.0]]).double()
    path = Path.of(torch.zeros(1).double(), 2)
    y = torch.tensor([1])
    assert valued(model, y, path, x0 + 0.5).total > valued(model, y, path, x0 + 0.05).total
    assert classes_at(model, torch.tensor([[0.0], [2.0], [2.5]]).double()).tolist() == [0, 1, 2]
    sns = StableNeighborSearch(Given().holding(x, x0), radius=0.5, path_points=2, keep=keep)
    assert 2.04 < float(sns.explain(model, x).x_cf) < 2.05


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("settings", [{"steps": 0}, {"radius": 0.0}])
def test_no_steps_or_no_radius_changes_nothing(settings: dict[str, float], noise: float) -> None:
    model = wrapped(network(2, 1, dtype=torch.float32))
    x = asked(model, "yes", 11)
    sns = StableNeighborSearch(PGD, **{"radius": 0.5, "noise": noise, **settings})
    assert torch.equal(sns.explain(model, x, "yes").x_cf, PGD.explain(model, x, "yes").x_cf)


@pytest.mark.parametrize("models", [0, 5])
@pytest.mark.parametrize(
    ("outputs", "opaque", "dtype", "tolerance"),
    [
        (1, False, torch.float32, 0.0),
        (2, False, torch.float32, 0.0),
        (3, False, torch.float32, 0.0),
        (1, False, torch.float64, 0.0),
        (2, False, torch.float64, 0.0),
        # torch's own kernels: other bits in other places of a batch
        (3, True, torch.float64, 1e-9),
    ],
)
def test_rows_do_not_know_each_other(
    outputs: int, opaque: bool, dtype, tolerance: float, models: int
) -> None:
    def made(seed: int) -> nn.Module:
        module = network(outputs, seed, dtype=dtype)
        return Opaque(module) if opaque else module

    model = wrapped(made(1), -3, 3)
    near = [made(1) for _ in range(models)]
    with torch.no_grad():
        for i, module in enumerate(near):
            for j, p in enumerate(module.parameters()):
                p.add_(0.05 * gaussian(10 * i + j, *p.shape, dtype=dtype))
    bank = bank_of(near, model) if models else None
    x = asked(model, "yes", 43)
    enough = 0.75
    if bank:  # a level that about half of the rows reach
        plain = StableNeighborSearch(PGD, radius=1.6, steps=10).explain(model, x, "yes").x_cf
        enough = 0.95 * float(torch.softmax(bank.scores(plain), 2)[:, :, 1].amin(0).median())
    sns = StableNeighborSearch(
        PGD, radius=1.6, steps=35, noise=0.01, bank=bank, min_probability=enough
    )
    whole = sns.explain(model, x, "yes").x_cf
    moved = (whole - PGD.explain(model, x, "yes").x_cf).norm(dim=1)
    assert moved.max() > 0.5
    if models:  # rows finish at different times
        assert len({round(v, 2) for v in moved.tolist()}) > 5

    def same(a: Tensor, b: Tensor) -> bool:
        return bool(((a - b).abs() <= tolerance).all())

    shuffled = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    assert same(sns.explain(model, x[shuffled], "yes").x_cf, whole[shuffled])
    for part in (slice(0, 1), slice(1, 4), slice(4, 21), slice(21, 43)):
        assert same(sns.explain(model, x[part], "yes").x_cf, whole[part])
    assert same(sns.explain(model, x, "yes", batch_size=9).x_cf, whole)


def test_noise_comes_from_the_seed() -> None:
    model = wrapped(network(2, 1))
    x = asked(model, "yes", 9)
    sns = StableNeighborSearch(PGD, radius=0.5, noise=0.2, steps=3)
    first = sns.explain(model, x, "yes", seed=1).x_cf
    again = sns.explain(model, x, "yes", seed=1).x_cf
    other = sns.explain(model, x, "yes", seed=2).x_cf
    quiet = replace(sns, noise=0.0).explain(model, x, "yes", seed=1).x_cf
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, quiet)


@pytest.mark.parametrize("outputs", [1, 2, 4])
@pytest.mark.parametrize("keep", ["best", "last"])
def test_mixed_tables_stay_reachable_and_in_the_ball(outputs: int, keep, schema: hf.Schema) -> None:
    """Categories, whole numbers, one-way columns, a rule and at most five changes."""
    module = seeded(mlp(schema.width, (16, 8), outputs), 1)
    model = hf.Model.of(module if outputs < 4 else Opaque(module), schema, classes=NAMES[outputs])
    pool = mixed_table(600, seed=1)
    pool = pool[blocked(schema, schema.read(pool)) == ""]
    X = pool[(model.predict(pool) != "yes").to_numpy()][:30]
    assert len(X) == 30
    start = hf.MinEpsilonPGD(radius=6.0, radii=4, steps=10)
    given = start.explain(model, X, "yes")
    cfs = StableNeighborSearch(start, radius=1.6, steps=25, keep=keep).explain(model, X, "yes")
    assert given.found.sum() > 10
    assert (cfs.status_codes == given.status_codes).all()
    broken = violations(schema, schema.read(cfs.before), schema.read(cfs.after))
    assert (broken[cfs.found] == "").all()
    step = (cfs.x_cf - given.x_cf).double().norm(dim=1)
    assert (step <= 1.6 * (1 + 1e-5)).all()
    assert step.max() > 0.3
    assert torch.equal(classes_at(model, cfs.x_cf), classes_at(model, given.x_cf))


def test_several_answers_of_a_start() -> None:
    model = wrapped(network(2, 1), -3, 3)
    data = gaussian(11, 200, 5).clamp(-3, 3)
    x = asked(model, "yes", 13)
    start = hf.NearestNeighbor(n_counterfactuals=3)
    sns = StableNeighborSearch(start, radius=0.4, steps=30).fit(model, data)
    given = start.explain(model, x, "yes")
    cfs = sns.explain(model, x, "yes")
    assert len(cfs) == 39
    assert cfs.source.tolist() == np.repeat(np.arange(13), 3).tolist()
    assert cfs.found.all()
    step = (cfs.x_cf - given.x_cf).norm(dim=1)
    assert step.max() <= 0.4 * (1 + 1e-6)
    assert step.median() > 0.1
    for row in range(3):  # each answer is moved as it would be alone
        alone = StableNeighborSearch(Given().holding(x, given.x_cf[row::3]), radius=0.4, steps=30)
        assert torch.equal(alone.explain(model, x, "yes").x_cf, cfs.x_cf[row::3])


def test_start_that_needs_data_is_fitted_with_it() -> None:
    model = wrapped(network(2, 1), -3, 3)
    x = asked(model, "yes", 3)
    sns = StableNeighborSearch(hf.NearestNeighbor())
    assert sns.needs_data
    assert not StableNeighborSearch(PGD).needs_data
    with pytest.raises(SettingError, match=r"call \.fit"):
        sns.explain(model, x, "yes")
    assert sns.fit(model, gaussian(11, 100, 5).clamp(-3, 3)).explain(model, x, "yes").found.all()


def test_rows_the_start_cannot_answer_stay_as_they_were() -> None:
    model = wrapped(straight(gaussian(5, 6), -0.3, 1, True))
    x = asked(model, "yes", 30)
    start = hf.MinEpsilonPGD(radius=0.5, radii=5, steps=10)
    given = start.explain(model, x, "yes")
    cfs = StableNeighborSearch(start, radius=5.0).explain(model, x, "yes")
    assert 0 < given.found.sum() < 30
    assert (given.status_codes == cfs.status_codes).all()
    assert torch.equal(given.x_cf[~given.found], cfs.x_cf[~given.found])


# ---- the radius


def test_automatic_radius_without_data_is_a_share_of_the_range() -> None:
    w = gaussian(5, 6)
    model = wrapped(straight(w, -0.3, 1, True), -30, 30)
    x = asked(model, "yes", 8)
    step = (
        StableNeighborSearch(PGD).explain(model, x, "yes").x_cf - PGD.explain(model, x, "yes").x_cf
    )
    assert torch.allclose(
        step.norm(dim=1), torch.tensor(OF_RANGE * 60 * 6**0.5).double(), rtol=1e-6
    )


@pytest.mark.parametrize("guided", [False, True])
def test_automatic_radius_with_data_is_a_multiple_of_their_distance_from_the_boundary(
    guided: bool,
) -> None:
    w = gaussian(5, 6)
    module = straight(w, -0.3, 2, True)
    model = wrapped(module)
    x = asked(model, "yes", 8)
    data = gaussian(12, 301, 6)
    distance = float((((data @ w) - 0.3).abs() / w.norm()).median())
    # never satisfied: the ball is the end
    bank = bank_of([straight(w, -1e3, 2, True)], model) if guided else None
    sns = StableNeighborSearch(PGD, bank=bank).fit(model, data)
    step = sns.explain(model, x, "yes").x_cf - PGD.explain(model, x, "yes").x_cf
    expected = (DEPTH_WITH_BANK if guided else DEPTH) * distance
    assert torch.allclose(step.norm(dim=1), torch.tensor(expected).double(), rtol=1e-5)


# ---- with a bank


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("keep", ["best", "last"])
def test_row_stops_at_the_first_step_where_every_model_agrees(
    keep, outputs: int, by_hand: bool
) -> None:
    """Parallel linear models: the distance to the point where the most reluctant gives `enough` is
    known."""
    w = gaussian(5, 6)
    enough = 0.8
    steps = 300
    radius = 6.0
    shifts = [0.2, -2.0, -1.1]
    model = wrapped(straight(w, -0.3, outputs, by_hand))
    bank = bank_of([straight(w, b, outputs, by_hand) for b in shifts], model, ("seed", "other"))
    x = asked(model, "yes", 21)
    x0 = PGD.explain(model, x, "yes").x_cf
    sns = StableNeighborSearch(
        PGD, radius=radius, bank=bank, min_probability=enough, steps=steps, keep=keep
    )
    out = sns.explain(model, x, "yes").x_cf
    needed = ((math.log(enough / (1 - enough)) - (x0 @ w + min(shifts))) / w.norm()).clamp_min(0)
    walked = (out - x0).norm(dim=1)
    assert needed.max() > 1
    assert (walked >= needed - 1e-9).all()
    assert (walked <= needed + 2 * radius / steps + 1e-6).all()
    least = torch.softmax(bank.scores(out), 2)[:, :, 1].amin(0)
    assert (least >= enough - 1e-9).all()


def test_rows_on_which_all_agree_stay_exactly() -> None:
    model = wrapped(network(2, 1))
    x = asked(model, "yes", 30)
    given = hf.MinCost(norm=2).explain(model, x, hf.Target("yes", probability=0.8))
    start = Given().holding(x, given.x_cf)
    bank = bank_of([network(2, 1)], model)
    cfs = StableNeighborSearch(start, radius=1.0, bank=bank, min_probability=0.75).explain(
        model, x, "yes"
    )
    assert given.found.sum() > 10
    assert torch.equal(cfs.x_cf[given.found], given.x_cf[given.found])


def test_rows_stop_at_enough_or_use_the_whole_search() -> None:
    modules = [network(3, seed) for seed in (1, 1, 1, 1)]
    with torch.no_grad():
        for i, module in enumerate(modules[1:]):
            for j, p in enumerate(module.parameters()):
                p.add_(0.1 * gaussian(10 * i + j, *p.shape))
    model = wrapped(modules[0])
    bank = bank_of(modules[1:], wrapped(modules[0]))
    x = asked(model, "maybe", 60)
    x0 = PGD.explain(model, x, "maybe").x_cf
    cfs = StableNeighborSearch(PGD, radius=0.9, bank=bank, steps=60).explain(model, x, "maybe")
    every = torch.cat([torch.softmax(bank.scores(cfs.x_cf), 2), torch.softmax(cfs.scores, 1)[None]])
    least = every[:, :, 2].amin(0)
    agreed = least >= 0.75 - 1e-9
    assert agreed.sum() > 10
    assert (~agreed[torch.tensor(cfs.found)]).any()
    walked = (cfs.x_cf - x0).norm(dim=1)
    assert walked[agreed].mean() < walked[~agreed & torch.tensor(cfs.found)].mean()
    assert least[agreed].median() < 0.85  # and no further than needed


def test_bank_in_another_precision() -> None:
    modules = [network(2, 1, dtype=torch.float32), network(2, 2, dtype=torch.float32)]
    for dtype in (torch.float32, torch.float64):
        model = wrapped(network(2, 1, dtype=dtype))
        x = asked(model, "yes", 9)
        outs = list[Tensor]()
        for kind in (torch.float32, torch.float64):
            bank = bank_of([m.to(kind) for m in modules], model)
            cfs = StableNeighborSearch(
                PGD, radius=0.5, steps=20, bank=bank, min_probability=0.99
            ).explain(model, x, "yes")
            assert cfs.x_cf.dtype == dtype
            outs.append(cfs.x_cf)
        assert torch.allclose(*outs, atol=1e-3)


def test_models_that_guided_are_recorded(tmp_path: File) -> None:
    model = wrapped(network(2, 1))
    x = asked(model, "yes", 5)
    bank = bank_of([network(2, 2), network(2, 3)], model)
    other = bank_of([network(2, 4)], model)
    inner = StableNeighborSearch(PGD, radius=0.2, steps=5, bank=other)
    cfs = StableNeighborSearch(PGD, radius=0.2, steps=5, bank=bank).explain(model, x, "yes")
    assert len(bank.members()) == 2
    assert set(cfs.run.guided_by) == bank.members()
    assert PGD.explain(model, x, "yes").run.guided_by == ()
    twice = StableNeighborSearch(inner, radius=0.2, steps=5, bank=bank).explain(model, x, "yes")
    assert set(twice.run.guided_by) == bank.members() | other.members()
    cfs.save(tmp_path / "answers.parquet")
    assert hf.Counterfactuals.load(tmp_path / "answers.parquet").run == cfs.run


def test_banks_that_do_not_fit_are_refused() -> None:
    model = wrapped(network(2, 1))
    x = asked(model, "yes", 3)
    good = bank_of([network(2, 2)], model)
    y = np.where(np.arange(40) % 2 == 0, "no", "yes")
    frame = model.schema.decode(gaussian(0, 40, 5))
    estimator = hf.Model.of(LogisticRegression().fit(frame, y), model.schema, convert=False)
    cases = [
        (
            replace(good, groups=(ModelGroup("seed", estimators=(estimator,)),)),
            ModelError,
            "estimators",
        ),
        (replace(good, classes=("bad", "good")), ModelError, "classes"),
        (replace(good, schema=hf.Schema.box(list("abcde"), -9, 9)), SchemaError, "schema"),
    ]
    for bank, error, words in cases:
        with pytest.raises(error, match=words):
            StableNeighborSearch(PGD, bank=bank).explain(model, x, "yes")
    with pytest.raises(ModelError, match="gradients"):
        StableNeighborSearch(PGD).explain(estimator, frame, "yes")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"radius": -1.0}, "radius"),
        ({"radius": "far"}, "radius"),
        ({"radius": math.inf}, "radius"),
        ({"radius": math.nan}, "radius"),
        ({"steps": -1}, "steps"),
        ({"path_points": 0}, "path_points"),
        ({"step_size": 0.0}, "step_size"),
        ({"noise": -0.1}, "noise"),
        ({"keep": "first"}, "keep"),
        ({"min_probability": 1.0}, "min_probability"),
        ({"min_probability": 0.0}, "min_probability"),
        ({"baseline": (0.0, 1.0)}, "baseline"),
        ({"start": "min-cost"}, "start"),
        ({"start": hf.MinCost(norm=2, steps=-1)}, "steps"),
    ],
)
def test_bad_settings_are_named(settings: dict, words: str) -> None:
    model = wrapped(network(2, 1))
    with pytest.raises(SettingError, match=words):
        StableNeighborSearch(**settings).explain(model, torch.zeros(2, 5).double(), "yes")


def test_time_budget_returns_what_there_is() -> None:
    model = wrapped(network(2, 1))
    x = asked(model, "yes", 9)
    start = Given().holding(x, PGD.explain(model, x, "yes").x_cf)
    cfs = StableNeighborSearch(start, radius=0.5, steps=10_000_000).explain(
        model, x, "yes", time_budget=0.3
    )
    assert cfs.found.all()
    assert cfs.run.seconds < 5


# ---- end to end


def test_two_moons_hold_better_after_it() -> None:
    data = hf.datasets.load("moons", n=1200)
    X = data.X
    y = data.y
    schema = data.schema
    recipe = Recipe(hidden=(24, 12), epochs=15, lr=5e-3)
    train = slice(0, 600)
    ask = slice(600, 1000)
    made = {"classes": sorted(y.unique())}
    model = recipe.fit(X[train], y[train], schema, seed=0, **made)
    banks = [
        ModelBank.retrain(recipe, X[train], y[train], schema, families={"seed": 20}, seed=s, **made)
        for s in (100, 500)
    ]
    start = hf.MinEpsilonPGD(radius=3.0, radii=30, steps=20)
    methods = {
        "plain": start,
        "stable": StableNeighborSearch(start, radius=0.5, steps=60),
        "guided": StableNeighborSearch(start, radius=0.5, steps=60, bank=banks[0]),
    }
    lost = {}
    for name, method in methods.items():
        cfs = method.explain(model, X[ask])
        assert cfs.found.mean() > 0.9
        assert isinstance(cfs.after, pd.DataFrame)
        lost[name] = audit(cfs, banks[1]).invalidation()["seed"][0]
    assert lost["plain"] > 0.05
    assert lost["stable"] < lost["plain"]
    assert lost["guided"] <= lost["stable"]
