"""What the paper proves holds numerically, and what it proposes has the values that a pencil
gives."""

import math

import pytest
import torch
from torch import Tensor, nn

import holdfast as hf
from experiments.black2022 import theory
from holdfast.errors import ModelError
from holdfast.methods._path_integral import Path, path_value
from holdfast.nn.architecture import mlp
from support.tables import seeded


def gaussian(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(outputs: int, seed: int, d: int = 4) -> hf.Model:
    module = seeded(mlp(d, (12, 6), outputs).double(), seed)
    return hf.Model.of(module, hf.Schema.box(d))


def logistic(a: float, b: float, hidden: bool = False) -> hf.Model:
    """sigmoid(a x + b) of one column."""
    module: nn.Module = mlp(1, (2,), 1).double() if hidden else nn.Linear(1, 1, dtype=torch.float64)
    values = [[[1.0], [-1.0]], [0.0, 0.0], [[a, -a]], [b]] if hidden else [[[a]], [b]]
    with torch.no_grad():
        for p, v in zip(module.parameters(), values, strict=True):
            p.copy_(torch.tensor(v, dtype=torch.float64))
    return hf.Model.of(module, hf.Schema.box(1), classes=["no", "yes"])


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v))


@pytest.mark.parametrize("y", [0, 1])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(("a", "b", "x"), [(2.0, -1.0, 1.5), (-1.2, 0.4, 2.0), (3.0, 0.5, -0.8)])
def test_chain_of_objectives_by_hand(a: float, b: float, x: float, hidden: bool, y: int) -> None:
    """Paper: black2022 Definition 4, Eq. 3, Eq. 4, Eq. 5."""
    model = logistic(a, b, hidden)
    points = 4
    rows = torch.tensor([[x]], dtype=torch.float64)
    label = torch.tensor([y])
    sign = 1 if y else -1
    s = [sigmoid(sign * (a * j / points * x + b)) for j in range(1, points + 1)]
    slope = [sign * a * v * (1 - v) for v in s]  # d s / d x at each point
    known = {
        theory.flatness: s[-1] - max(abs(g) for g in slope),
        theory.climb: s[-1] - max(g * x for g in slope),
        theory.end_and_integral: s[-1] + sum(s) / points,
        theory.integral: sum(s) / points,
    }
    for function, value in known.items():
        assert float(function(model, rows, label, points=points)) == pytest.approx(value, rel=1e-12)
    chi = theory.influence(model, rows, label, points=points)
    assert float(chi) == pytest.approx(sum(slope) / points, rel=1e-12)
    lengths, bounds = theory.slope_bound(model, rows, label, points=points)
    assert lengths[:, 0].tolist() == pytest.approx([abs(g) for g in slope], rel=1e-12)
    shares = [j / points for j in range(1, points + 1)]
    assert bounds[:, 0].tolist() == pytest.approx(
        [t * abs(g) for t, g in zip(shares, slope, strict=True)], rel=1e-12
    )


def test_integral_is_what_the_search_maximises() -> None:
    """Paper: black2022 Definition 5."""
    model = network(3, 0)
    x = gaussian(1, 7, 4)
    y = torch.arange(7) % 3
    with model.eval_mode():
        searched = path_value(model, y, Path.of(torch.zeros(4).double(), 9))(x)
        both = path_value(model, y, Path.of(torch.zeros(4).double(), 9, end=1.0))(x)
    assert torch.allclose(theory.integral(model, x, y, points=9), searched.total, rtol=1e-12)
    assert torch.allclose(theory.end_and_integral(model, x, y, points=9), both.total, rtol=1e-12)


def test_integral_of_the_slope_along_the_line_is_the_rise() -> None:
    """chi . x = s(x) - s(0): the influence is the mean gradient over the whole line, and of nothing
    else."""
    model = network(3, 4)
    x = gaussian(2, 7, 4)
    y = torch.arange(7) % 3
    chi = theory.influence(model, x, y, points=4000)
    rise = (
        theory.probability_and_slope(model, x, y)[0]
        - theory.probability_and_slope(model, 0 * x, y)[0]
    )
    assert rise.abs().max() > 0.1
    assert torch.allclose((chi * x).sum(1), rise, atol=1e-3)


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_proposition_1(outputs: int, seed: int) -> None:
    """Paper: black2022 Proposition 1."""
    model = network(outputs, seed)
    x = 2 * gaussian(seed + 10, 40, 4)
    y = torch.arange(40) % max(2, outputs)
    length, bound = theory.slope_bound(model, x, y)
    assert length.shape == bound.shape == (theory.POINTS, 40)
    assert (length >= bound * (1 - 1e-12)).all()
    assert bound.max() > 0
    # At the end of the line the bound is |grad . x| / |x|: the part of the gradient that points
    # along the row.
    _, g = theory.probability_and_slope(model, x, y)
    assert torch.allclose(bound[-1], (g * x).sum(1).abs() / x.norm(dim=1), rtol=1e-9)
    assert torch.allclose(length[-1], g.norm(dim=1), rtol=1e-9)


def changed(model: hf.Model, seed: int, change: float) -> hf.Model:
    """The model with weights of the last layer moved by `change`, seen as one vector."""
    other = network(1, 0)
    old = list(model.module.parameters())
    new = list(other.module.parameters())
    shift = gaussian(seed, *old[-2].shape)
    with torch.no_grad():
        for p, q in zip(old, new, strict=True):
            q.copy_(p)
        new[-2].add_(change * shift / shift.norm())
    return other


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("change", [0.05, 1.0, 10.0])
def test_theorem_2(seed: int, change: float) -> None:
    """Paper: black2022 Definition 3, Theorem 2."""
    model = network(1, seed)
    x = 2 * gaussian(seed + 20, 25, 4)
    y = torch.ones(25, dtype=torch.int64)
    bound = theory.influence_bound(model, x, change)
    before = theory.influence(model, x, y)
    moved = 0.0
    for draw in range(16):
        size = change * (1.0 if draw % 2 else draw / 16)
        after = theory.influence(changed(model, 100 * seed + draw, size), x, y)
        distance = (after - before).norm(dim=1)
        assert (distance <= bound).all()
        moved = max(moved, float(distance.max()))
    assert moved > 0.01 * min(change, 1.0)


@pytest.mark.parametrize("outputs", [1, 2])
def test_bound_of_theorem_2_by_hand(outputs: int) -> None:
    """C2 is inside the root; K, from automatic differentiation, is that of the layers below the
    last.

    Paper: black2022 Theorem 2.
    """
    model = network(outputs, 3)
    change = 0.7
    points = 5
    module = model.module
    x = gaussian(5, 6, 4)
    below = module[:-1]
    for i, row in enumerate(x):
        norms = []
        for j in range(1, points + 1):
            jacobian = torch.autograd.functional.jacobian(below, j / points * row)
            norms.append(float(torch.linalg.svdvals(jacobian).max()))
        weights = module[-1].weight.detach()
        size = float((weights[1] - weights[0] if outputs == 2 else weights[0]).norm())
        raw = module(row).detach()
        s = float(torch.sigmoid(raw[1] - raw[0] if outputs == 2 else raw[0]))
        c1 = 3 / 4 * size + change / 2
        c2 = 1 / 4 * (5 / 2 * size + 5 / 4 * change) ** 2
        expected = max(norms) * math.sqrt((s * (1 - s) * size + c1) ** 2 + c2)
        assert float(theory.influence_bound(model, x, change, points=points)[i]) == pytest.approx(
            expected, rel=1e-9
        )


def test_theorem_2_is_about_two_classes_and_relu_networks() -> None:
    tanh = seeded(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double())
    for model in (network(3, 0), hf.Model.of(tanh, hf.Schema.box(4))):
        with pytest.raises(ModelError, match="Theorem 2"):
            theory.influence_bound(model, gaussian(0, 2, 4), 0.1)
