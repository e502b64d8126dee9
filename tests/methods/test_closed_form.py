"""Linear models, where the nearest answer has a formula, and small networks, where a solver knows
it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.nn.architecture import mlp
from support.oracle import nearest_l1
from support.tables import seeded


def linear(w: torch.Tensor, b: float) -> nn.Module:
    """A one-logit module w.x + b."""
    module = nn.Linear(len(w), 1).to(w.dtype)
    with torch.no_grad():
        module.weight.copy_(w[None])
        module.bias.fill_(b)
    return module


def problem(seed: int, low: float = -math.inf, high: float = math.inf, d: int = 12, n: int = 60):
    """Random refused rows of a random linear model."""
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(d, generator=g)
    x = (
        torch.randn(4 * n, d, generator=g)
        if low == -math.inf
        else torch.rand(4 * n, d, generator=g)
    )
    b = -0.3 if low == -math.inf else float(-(x @ w).median()) - 0.2
    x = x[(x @ w + b) < -0.05][:n]
    return w, b, x, hf.Model.of(linear(w, b), hf.Schema.box(d, low, high), classes=["no", "yes"])


@pytest.mark.parametrize("seed", range(3))
def test_min_cost_l2_is_the_perpendicular(seed: int) -> None:
    """Paper: black2022 Baseline Min-Cost l1 / l2."""
    w, b, x, model = problem(seed)
    cfs = hf.MinCost(norm=2).explain(model, x, "yes")
    true = (x @ w + b).abs() / w.norm()  # distance to the plane w.x + b = 0
    ratio = torch.tensor(cfs.cost("l2").to_numpy()) / true.double()
    assert cfs.found.all()
    assert ratio.min() >= 1
    assert ratio.max() <= 1.02


def knapsack(
    x: torch.Tensor, w: torch.Tensor, need: torch.Tensor, low: float, high: float
) -> torch.Tensor:
    """The true l1 optimum: use the columns with the most gain per unit first, as far as the box
    allows."""
    room = torch.where(w > 0, high - x, x - low)
    order = w.abs().argsort(descending=True)
    cost = torch.zeros(len(x))
    need = need.clone()
    for j in order.tolist():
        step = torch.minimum(room[:, j], (need / w[j].abs()).clamp_min(0))
        cost = cost + step
        need = need - step * w[j].abs()
    return torch.where(need <= 1e-6, cost, torch.inf)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_min_cost_l1_is_the_knapsack(seed: int, bounded: bool) -> None:
    """Paper: black2022 Baseline Min-Cost l1 / l2."""
    low, high = (0.0, 1.0) if bounded else (-math.inf, math.inf)
    w, b, x, model = problem(seed, low, high)
    cfs = hf.MinCost(norm=1).explain(model, x, "yes")
    true = knapsack(x, w, -(x @ w + b), low, high).double()
    possible = true.isfinite()
    assert possible.sum() > 10
    assert (torch.tensor(cfs.found) == possible).all()
    ratio = (torch.tensor(cfs.cost("l1").to_numpy()) / true)[possible]
    assert ratio.min() >= 1 - 1e-6
    assert ratio.max() <= 1.05


@pytest.mark.parametrize("seed", range(3))
def test_min_cost_l2_with_a_box(seed: int) -> None:
    """The optimum is clamp(x + tau w) with tau from bisection: check against it."""
    w, b, x, model = problem(seed, 0.0, 1.0)
    cfs = hf.MinCost(norm=2).explain(model, x, "yes")
    x64 = x.double()
    w64 = w.double()
    short = torch.zeros(len(x)).double()
    long = torch.full((len(x),), 1e3).double()
    for _ in range(200):
        tau = (short + long) / 2
        enough = (x64 + tau[:, None] * w64).clamp(0, 1) @ w64 + b >= 0
        short = torch.where(enough, short, tau)
        long = torch.where(enough, tau, long)
    best = (x64 + long[:, None] * w64).clamp(0, 1)
    possible = best @ w64 + b >= 0
    true = (best - x64).norm(dim=1)
    assert (torch.tensor(cfs.found) == possible).all()
    ratio = (torch.tensor(cfs.cost("l2").to_numpy()) / true)[possible]
    assert ratio.min() >= 1 - 1e-6
    assert ratio.max() <= 1.02


def test_min_cost_negative_coordinates_do_not_snap_unless_legacy() -> None:
    """The library behind the paper's tables clips to [0, 1] inside its shrinkage; ours must not,
    legacy must."""
    _w, _b, x, model = problem(0)
    fine = hf.MinCost(norm=2).explain(model, x, "yes").cost("l2").mean()
    legacy = (
        hf.MinCost(norm=2, legacy=True, bisections=9, steps=100, lr=0.01)
        .explain(model, x, "yes")
        .cost("l2")
        .mean()
    )
    assert legacy > 1.5 * fine


@pytest.mark.parametrize("lam", [0.05, 0.5, 2.0])
def test_scfe_matches_its_closed_form(lam: float) -> None:
    """zeta = m w / (lam + |w|^2) with m = s - f(x); the printed form has a factor lam too many.

    Paper: krishna2024 Eq. 2.
    """
    w, b, x, model = problem(1)
    s = 3.0
    cfs = hf.Descent.scfe(lam=lam, score=s).explain(model, x, "yes")
    m = s - (x @ w + b)
    zeta = m[:, None] * w / (lam + w.square().sum())
    assert (cfs.x_cf - x - zeta).abs().max() <= 1e-4
    assert ((lam * zeta) - zeta).abs().max() > 1e-2
    after = (x + zeta) @ w + b
    assert torch.allclose(after, s - m * lam / (lam + w.square().sum()), atol=1e-5)


def test_scfe_with_score_zero_never_crosses() -> None:
    _, _, x, model = problem(1)
    cfs = hf.Descent.scfe(lam=0.1, score=0.0).explain(model, x, "yes")
    assert not cfs.found.any()


def test_min_epsilon_pgd_returns_the_first_rung_that_reaches() -> None:
    """Paper: black2022 Baseline Min-Cost eps-PGD."""
    w, b, x, model = problem(2)
    cfs = hf.MinEpsilonPGD(radius=1.0, radii=10, steps=60).explain(model, x, "yes")
    distance = (x @ w + b).abs() / w.norm()
    rung = torch.ceil(distance * 10 + 1e-4) / 10
    reachable = rung <= 1.0
    assert reachable.any()
    assert (~reachable).any()
    assert (torch.tensor(cfs.found) == reachable).all()
    cost = torch.tensor(cfs.cost("l2").to_numpy()).float()
    assert torch.allclose(cost[reachable], rung[reachable], atol=1e-4)


def test_growing_spheres_approaches_the_plane() -> None:
    """Distance at least |f| / |w|, and nearer to it with more samples."""
    w, b, x, model = problem(3, d=3, n=40)
    true = ((x @ w + b).abs() / w.norm()).double()
    means = []
    for samples in (20, 200, 5000):
        cfs = hf.GrowingSpheres(samples=samples).explain(model, x, "yes")
        ratio = torch.tensor(cfs.cost("l2").to_numpy()) / true
        assert cfs.found.all()
        assert ratio.min() >= 1 - 1e-6
        means.append(float(ratio.mean()))
    assert means[0] > means[1] > means[2]
    assert means[2] < 1.1


def test_min_cost_against_the_exact_optimum_of_a_relu_network() -> None:
    """20 rows of a 23-16-8-2 network in the unit box: within 15 % of the true optimum on average,
    never below.

    Paper: black2022 Definition 1.
    """
    g = torch.Generator().manual_seed(0)
    x = torch.rand(800, 23, generator=g)
    teacher = torch.tanh(4 * (x - 0.5) @ torch.randn(23, 6, generator=g)) @ torch.randn(
        6, generator=g
    )
    y = (teacher > teacher.median()).long()
    net = seeded(mlp(23, (16, 8), 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    model = hf.Model.of(net.eval(), hf.Schema.box(23, 0, 1), classes=["no", "yes"])
    with torch.no_grad():
        rows = x[net(x).argmax(1) == 0][:20]
    cfs = hf.MinCost(norm=1).explain(model, rows, "yes")
    assert cfs.found.all()
    layers = [
        (m.weight.detach().double().numpy(), m.bias.detach().double().numpy())
        for m in net
        if isinstance(m, nn.Linear)
    ]
    lo = np.zeros(23)
    hi = np.ones(23)
    true = np.array([nearest_l1(layers, r, 1, lo, hi)[0] for r in rows.double().numpy()])
    ours = cfs.cost("l1").to_numpy()
    assert (ours >= true - 1e-6).all()
    assert (ours / true).mean() <= 1.15
    assert ours.mean() <= 1.15 * true.mean()
