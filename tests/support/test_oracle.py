"""The oracle judges other code, so it is itself checked against a closed form and against brute
force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support.oracle import Layers, gaps, nearest_l1


def random_net(rng: np.random.Generator, *sizes: int) -> Layers:
    net = [(rng.normal(size=(m, n)), rng.normal(size=m)) for n, m in itertools.pairwise(sizes)]
    h = rng.uniform(-1, 1, (1000, sizes[0]))
    for W, b in net[:-1]:
        h = np.maximum(h @ W.T + b, 0)
    # else one class often owns the whole box
    net[-1] = net[-1][0], -np.median(h @ net[-1][0].T, axis=0)
    return net


def knapsack(w: np.ndarray, need: float, room: np.ndarray, cost: np.ndarray) -> float:
    """Least cost of raising w @ z by need: spend on the best |w| / cost first, each up to its
    room."""
    total = 0.0
    for j in np.argsort(-abs(w) / cost):
        move = min(room[j], max(need, 0.0) / abs(w[j]))
        total = total + cost[j] * move
        need = need - abs(w[j]) * move
    return total if need <= 1e-12 else np.inf


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("half", [100.0, 0.3])  # bounds that never bind, and bounds that do
def test_linear_matches_knapsack(seed: int, half: float) -> None:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(2, 6))
    x = rng.random(6)
    cost = rng.uniform(0.5, 2.0, 6)
    w = W[1] - W[0]
    lo = x - half * rng.random(6)
    hi = x + half * rng.random(6)
    room = np.where(w > 0, hi - x, x - lo)
    best = int(np.argmax(abs(w) / cost))
    # Half of what the best feature alone can give, or nearly all that the features together can
    # give.
    need = 0.5 * abs(w[best]) * room[best] if half > 1 else 0.9 * abs(w) @ room
    b = np.array([0.0, -need - w @ x])  # the gap at x is exactly -need
    distance, z = nearest_l1([(W, b)], x, 1, lo, hi, cost=cost)
    assert distance == pytest.approx(knapsack(w, need, room, cost), abs=1e-7)
    at_bound = np.isclose(z, lo) | np.isclose(z, hi)
    assert at_bound.any() == (half < 1)


@pytest.mark.parametrize("classes", [2, 3])
def test_small_network_matches_grid(classes: int) -> None:
    axis = np.linspace(-1, 1, 1001)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    lo = -np.ones(2)
    hi = np.ones(2)
    moved = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        net = random_net(rng, 2, 4, classes)
        x = rng.uniform(-1, 1, 2)
        cost = rng.uniform(0.5, 2.0, 2)
        out = np.maximum(grid @ net[0][0].T + net[0][1], 0) @ net[1][0].T + net[1][1]
        for wanted in range(classes):
            met = (np.delete(out[:, [wanted]] - out, wanted, axis=1) >= 0.1).all(axis=1)
            if not met.any():
                continue
            distance, _ = nearest_l1(net, x, wanted, lo, hi, margin=0.1, cost=cost)
            brute = (abs(grid[met] - x) @ cost).min()
            # The grid holds only some of the points, so it may be a few steps worse but never
            # better.
            assert distance - 1e-6 <= brute <= distance + 0.02
            moved += distance > 0.02
    assert moved >= 6  # the comparison must not be of free answers only


def test_hidden_layers_beat_no_sample() -> None:
    rng = np.random.default_rng(0)
    net = random_net(rng, 5, 8, 6, 2)
    x = rng.uniform(-1, 1, 5)
    lo = -np.ones(5)
    hi = np.ones(5)
    wanted = int(gaps(net, x, 0)[0] > 0)
    distance, _ = nearest_l1(net, x, wanted, lo, hi)
    sample = np.clip(x + rng.uniform(-1, 1, (20000, 5)) * rng.random((20000, 1)), lo, hi)
    met = np.array([gaps(net, z, wanted)[0] >= 0 for z in sample])
    assert met.any()
    assert 0 < distance <= abs(sample[met] - x).sum(axis=1).min()


def test_wanted_class_already_met_is_free() -> None:
    rng = np.random.default_rng(1)
    net = random_net(rng, 4, 6, 5, 3)
    x = rng.random(4)
    wanted = next(c for c in range(3) if gaps(net, x, c).min() > 0)
    distance, z = nearest_l1(net, x, wanted, np.zeros(4), np.ones(4))
    assert distance == pytest.approx(0.0, abs=1e-9)
    assert z == pytest.approx(x, abs=1e-9)


def test_unreachable_class_raises() -> None:
    W = np.array([[1.0], [-1.0]])
    b = np.array([5.0, 0.0])
    with pytest.raises(ValueError, match="no point of the box"):
        nearest_l1([(W, b)], np.array([0.5]), 1, np.zeros(1), np.ones(1))


def test_x_outside_the_box_pays_its_way_in() -> None:
    # class 0 everywhere in the box
    W = np.array([[1.0, 0.0], [0.0, 0.0]])
    b = np.array([1.0, 0.0])
    distance, z = nearest_l1([(W, b)], np.array([3.0, 0.5]), 0, np.zeros(2), np.ones(2))
    assert distance == pytest.approx(2.0)
    assert z == pytest.approx([1.0, 0.5])
