"""Distances: closed forms, finite differences, brute force, and a new one that lives outside the
package."""

import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize
from torch import Tensor

import holdfast as hf
from holdfast._core.cheapest_steps import least_squares_step, water_level
from holdfast.distances import (
    DISTANCES,
    Distance,
    distance_of,
    l0,
    l1,
    l2,
    linf,
    mad,
    mse,
    penalty_of,
    squared_l2,
    weighted,
)
from holdfast.errors import SettingError
from support.tables import mixed_schema, mixed_table

D = 5
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0]).double()


def changes(n: int = 40, seed: int = 0) -> Tensor:
    u = torch.randn(n, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    u[:, 1] *= torch.arange(n) % 3 > 0  # some columns stay
    return u


class Huber(Distance):
    """Quadratic near 0 and linear beyond: all there is to write for a new distance."""

    name = "huber"

    def __init__(self, knee: float = 0.5) -> None:
        self.knee = knee

    def value(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        size = delta.abs()
        near = size.clamp_max(self.knee)
        terms = near.square() / 2 + self.knee * (size - near)
        return (terms if weight is None else terms * weight).sum(-1)

    def gradient(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        slope = delta.clamp(-self.knee, self.knee)
        return slope if weight is None else slope * weight


EVERY: dict[str, Distance] = {d.name: d for d in DISTANCES} | {
    "weighted l1": weighted(l1, WEIGHT),
    "weighted linf": weighted(linf, WEIGHT),
    "huber": Huber(),
}
CONVEX = [name for name in EVERY if name != "l0"]


def by_hand(name: str, u: Tensor, w: Tensor) -> float:
    own = WEIGHT if name.startswith("weighted") else torch.ones(D).double()
    v = (w * own, u.abs())
    return {
        "l0": lambda: float((w * (u != 0)).sum()),
        "l1": lambda: float((v[0] * v[1]).sum()),
        "l2": lambda: math.sqrt(float((v[0] * v[1] ** 2).sum())),
        "linf": lambda: float((v[0] * v[1]).max()),
        "squared l2": lambda: float((v[0] * v[1] ** 2).sum()),
        "mse": lambda: float((v[0] * v[1] ** 2).mean()),
        "huber": lambda: float(
            (v[0] * torch.where(v[1] < 0.5, v[1] ** 2 / 2, 0.5 * v[1] - 0.125)).sum()
        ),
    }[name.removeprefix("weighted ")]()


@pytest.mark.parametrize("name", EVERY)
def test_values_by_hand(name: str) -> None:
    u = changes()
    w = torch.rand(D, generator=torch.Generator().manual_seed(1)).double() + 0.5
    for weight, used in ((None, torch.ones(D).double()), (w, w), (w.expand_as(u), w)):
        wanted = [by_hand(name, row, used) for row in u]
        assert EVERY[name].value(u, weight).tolist() == pytest.approx(wanted, abs=1e-12)
    assert EVERY[name].value(u.view(4, 10, D)).shape == (4, 10)


def test_norms_of_a_row_by_hand() -> None:
    u = torch.tensor([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0]])
    assert [d.value(u).tolist() for d in (l0, l1, l2, linf)] == [[2, 0], [7, 0], [5, 0], [4, 0]]
    u = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.3, 0.4]])
    assert torch.allclose(l2.ascent(u), torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, 0.8]]))
    assert torch.allclose(
        l2.project(u, torch.ones(3, 1)), torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.3, 0.4]])
    )
    assert torch.allclose(l2.project(u, 2.5)[0], torch.tensor([1.5, 2.0]))


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("name", CONVEX)
def test_gradients_by_finite_differences(name: str, weight: Tensor | None) -> None:
    distance = EVERY[name]
    u = changes()
    eps = 1e-6
    u = torch.where(u.abs() < 1e-3, 0.1, u)  # away from kinks
    slopes = [
        (distance.value(u + eps * e, weight) - distance.value(u - eps * e, weight)) / (2 * eps)
        for e in torch.eye(D).double()
    ]
    assert torch.allclose(distance.gradient(u, weight), torch.stack(slopes, 1), atol=1e-7)


@pytest.mark.parametrize("name", EVERY)
def test_nothing_pulls_where_nothing_has_changed(name: str) -> None:
    assert (EVERY[name].gradient(torch.zeros(2, D).double()) == 0).all()
    assert (EVERY[name].value(torch.zeros(2, D).double()) == 0).all()


@pytest.mark.parametrize("name", [name for name in CONVEX if name != "huber"])
def test_adding_a_slope_is_adding_lam_times_the_gradient(name: str) -> None:
    distance = EVERY[name].penalty
    u = changes()
    g = changes(seed=1)
    w = WEIGHT.expand(40, D)
    added = distance.add_slope(g, u, distance.slope_weight(w, 0.3))
    assert torch.allclose(added, g + 0.3 * distance.gradient(u, w), atol=1e-12)


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize(
    "name", ["l0", "l1", "squared l2", "mse", "linf", "weighted l1", "weighted linf"]
)
def test_prox_by_brute_force(name: str, weight: Tensor | None) -> None:
    """No point nearby, and none on the way to the start or to zero, has less of what it
    minimises."""
    distance = EVERY[name]
    u = changes(60)
    step = torch.rand(60, D, generator=torch.Generator().manual_seed(2)).double() + 0.1

    def objective(v: Tensor) -> Tensor:
        return ((v - u).square() / (2 * step)).sum(-1) + distance.value(v, weight)

    v = distance.prox(u, step, weight)
    least = objective(v)
    for seed, size in itertools.product(range(200), (1e-3, 0.03, 0.3)):
        assert (least <= objective(v + size * changes(60, seed)) + 1e-9).all()
    for t in torch.linspace(0, 1, 11).double():
        assert (least <= objective(v + t * (u - v)) + 1e-9).all()
        assert (least <= objective(t * v) + 1e-9).all()


def test_the_prox_of_a_new_distance_is_a_gradient_step_until_it_has_its_own() -> None:
    u = changes()
    assert torch.equal(Huber().prox(u, 0.1), u - 0.1 * Huber().gradient(u))


@pytest.mark.parametrize("distance", [l1, l2, linf])
def test_projections_are_the_nearest_points_of_the_ball(distance: Distance) -> None:
    u = 2 * changes(60)
    radius = torch.rand(60, 1, generator=torch.Generator().manual_seed(0)).double() * 3
    v = distance.project(u, radius)
    inside = distance.value(u) <= radius.squeeze(1)
    assert (distance.value(v) <= radius.squeeze(1) + 1e-12).all()
    assert torch.allclose(v[inside], u[inside], atol=1e-12)
    # Optimal if no point q of the ball lies ahead: (u - v).(q - v) <= 0.
    for seed in range(300):
        q = changes(60, seed)
        q = q / distance.value(q)[:, None] * radius
        assert (((u - v) * (q - v)).sum(1) <= 1e-9).all()
    assert torch.allclose(distance.project(u, 0.0), torch.zeros_like(u))
    assert torch.allclose(
        distance.project(u, 0.5), distance.project(u, torch.full((60, 1), 0.5).double())
    )


@pytest.mark.parametrize("distance", [l1, l2, linf])
def test_the_steepest_step_of_the_unit_ball(distance: Distance) -> None:
    g = changes()
    step = distance.ascent(g)
    assert torch.allclose(distance.value(step), torch.ones(len(g)).double())
    # Hölder: the most that can be gained is the dual norm
    dual = {"l1": linf, "l2": l2, "linf": l1}[distance.name]
    assert torch.allclose((step * g).sum(1), dual.value(g))
    assert (distance.ascent(torch.zeros(2, D)) == 0).all()


def test_distances_without_a_ball_say_so() -> None:
    for distance in (l0, mse, squared_l2, Huber(), weighted(l2, WEIGHT)):
        with pytest.raises(SettingError, match=f"{distance.name}.*no ball"):
            distance.project(changes(), 1.0)
        with pytest.raises(SettingError, match=f"{distance.name}.*no steepest"):
            distance.ascent(changes())


# ---- the cheapest step to a plane


def problems(n: int = 25) -> tuple[Tensor, Tensor, Tensor]:
    gen = torch.Generator().manual_seed(3)
    gain = torch.rand(n, D, generator=gen).double() + 0.05
    room = torch.rand(n, D, generator=gen).double() + 0.05
    return torch.rand(n, generator=gen).double() * 0.8 * (gain * room).sum(1), gain, room


def test_the_least_step_in_l1_is_the_optimum_of_the_linear_program() -> None:
    need, gain, room = problems()
    step = l1.least_step(need, gain, WEIGHT, room)
    assert torch.allclose((step * gain).sum(1), need)
    for i in range(len(need)):
        lp = linprog(
            WEIGHT.numpy(),
            A_ub=-gain[i : i + 1].numpy(),
            b_ub=[-float(need[i])],
            bounds=[(0, float(r)) for r in room[i]],
        )
        assert float(step[i] @ WEIGHT) == pytest.approx(lp.fun, abs=1e-9)


@pytest.mark.parametrize("far", [0.0, 0.5])
def test_the_least_step_in_squares_is_the_optimum_of_the_quadratic_program(far: float) -> None:
    need, gain, room = problems(6)
    begun = far * torch.rand(6, D, generator=torch.Generator().manual_seed(4)).double()
    step = l2.least_step(need, gain, WEIGHT, room, begun if far else None)
    assert torch.allclose((step * gain).sum(1), need, atol=1e-9)
    for i in range(len(need)):
        g = gain[i].numpy()
        b = float(need[i])
        start = begun[i].numpy()
        best = minimize(
            lambda u, start=start: (WEIGHT.numpy() * (start + u) ** 2).sum(),
            np.zeros(D),
            method="SLSQP",
            options={"ftol": 1e-14},
            bounds=[(0, float(r)) for r in room[i]],
            constraints={"type": "ineq", "fun": lambda u, g=g, b=b: g @ u - b},
        )
        assert float(((begun[i] + step[i]) ** 2) @ WEIGHT) == pytest.approx(best.fun, rel=1e-4)


def test_the_least_step_uses_all_room_if_that_is_not_enough_and_knows_open_ranges() -> None:
    _, gain, room = problems()
    for dtype in (torch.float32, torch.float64):
        g = gain.to(dtype)
        r = room.to(dtype)
        huge = torch.full((25,), 1e6, dtype=dtype)
        assert torch.allclose(l2.least_step(huge, g, WEIGHT.to(dtype), r), r)
        endless = torch.full_like(r, torch.inf)
        step = l2.least_step(huge, g, WEIGHT.to(dtype), endless)
        assert torch.allclose(
            step,
            (huge / (g * g / WEIGHT).sum(1))[:, None].to(dtype) * g / WEIGHT.to(dtype),
            rtol=1e-5,
        )
        assert (l2.least_step(huge, torch.zeros_like(g), WEIGHT.to(dtype), r) == 0).all()


def test_nothing_to_gain_needs_no_step() -> None:
    _, gain, room = problems()
    for distance in EVERY.values():
        assert (distance.least_step(-torch.ones(len(gain)).double(), gain, WEIGHT, room) == 0).all()
    assert (least_squares_step(torch.zeros(25).double(), gain, WEIGHT, room) == 0).all()


def test_a_level_of_water() -> None:
    height = torch.tensor([[3.0, 1.0, 2.0]])
    share = torch.ones(1, 3)
    assert water_level(height, share, 1.0).tolist() == [[2.0]]
    assert water_level(height, share, 3.0).tolist() == [[1.0]]
    assert water_level(height, share, 100.0).tolist() == [[0.0]]


# ---- weights


def test_weights_multiply_those_of_the_schema() -> None:
    u = changes()
    schema = torch.tensor([2.0, 1.0, 1.0, 0.0, 1.0]).double()
    for distance in (l1, l2, linf, squared_l2):
        assert torch.allclose(
            weighted(distance, WEIGHT).value(u, schema), distance.value(u, WEIGHT * schema)
        )
        assert torch.allclose(
            weighted(distance, WEIGHT).gradient(u, schema), distance.gradient(u, WEIGHT * schema)
        )
    assert torch.allclose(weighted(l2, WEIGHT).penalty.value(u), squared_l2.value(u, WEIGHT))


def test_median_absolute_deviations_by_hand() -> None:
    data = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0], [8.0, 0.0], [9.0, 1.0]])
    # Column 1: median 4, deviations 4 2 0 4 5, so MAD 4. Column 2 hardly varies: weight 1.
    assert mad(data).value(torch.tensor([[2.0, 0.0], [0.0, 3.0]])).tolist() == [0.5, 3.0]
    assert mad(data).name == "mad"


@pytest.mark.parametrize(
    "wrong", [torch.tensor([-1.0]), torch.tensor([math.nan]), torch.ones(2, 2)]
)
def test_weights_must_be_weights(wrong: Tensor) -> None:
    with pytest.raises(SettingError, match="weights must be finite"):
        weighted(l1, wrong)


def test_weights_for_other_columns_are_named() -> None:
    with pytest.raises(
        SettingError, match="'weighted l1' has 5 weights, one per column, for changes of 3"
    ):
        weighted(l1, WEIGHT).value(torch.zeros(2, 3))


# ---- names and numbers


@pytest.mark.parametrize(
    ("norm", "distance"),
    [
        (0, l0),
        (1, l1),
        (2, l2),
        (2.0, l2),
        (math.inf, linf),
        ("l1", l1),
        ("linf", linf),
        ("mse", mse),
        (l2, l2),
    ],
)
def test_settings_name_distances(norm: object, distance: Distance) -> None:
    assert distance_of(norm) is distance


@pytest.mark.parametrize("norm", [3, "l3", None, -1, True, "2"])
def test_other_names_give_one_clear_error(norm: object) -> None:
    with pytest.raises(
        SettingError, match=r"norm must be 'l0', 'l1', 'l2', 'linf', 'squared l2' or 'mse', got "
    ):
        distance_of(norm)


def test_some_settings_take_a_few_of_them() -> None:
    assert distance_of("l2", (linf, l2)) is l2
    with pytest.raises(SettingError, match="ball must be 'linf' or 'l2', got 'l1'"):
        distance_of("l1", (linf, l2), "ball")
    own = Huber()
    assert distance_of(own, (linf, l2)) is own


def test_a_search_squares_l2_and_refuses_to_count() -> None:
    assert penalty_of(2) is penalty_of("l2") is squared_l2
    assert penalty_of(1) is l1
    with pytest.raises(SettingError, match="got 0"):
        penalty_of(0)
    with pytest.raises(SettingError, match="no slope to follow"):
        penalty_of(l0)


def test_distances_between_all_pairs() -> None:
    a = changes(7)
    b = changes(4, 1)
    for distance in EVERY.values():
        one_by_one = torch.stack([distance.value(a - row) for row in b], 1)
        assert torch.allclose(distance.between(a, b), one_by_one, atol=1e-6)


def test_distances_survive_pickling_and_print_their_name() -> None:
    for distance in DISTANCES:
        assert pickle.loads(pickle.dumps(distance)) == distance
    assert repr(hf.MinCost(norm=linf)) == "MinCost(norm=linf)"
    assert repr(hf.MinCost(norm="linf")) == "MinCost(norm='linf')"


# ---- a new distance takes one file: it goes wherever there is a norm


TABLE = mixed_table(300)
SCHEMA = mixed_schema(TABLE)


@pytest.fixture(scope="module")
def model() -> hf.Model:
    y = np.where(TABLE["income"] / 900 + TABLE["owner"] > 3.0, "yes", "no")
    return hf.train_network(TABLE, y, SCHEMA, hidden=(8,), epochs=15)


METHODS: dict[str, Any] = {
    "min-cost": lambda norm: hf.MinCost(norm=norm, steps=15, bisections=3, linearise=8, polish=8),
    "descent": lambda norm: hf.Descent(norm=norm, steps=60, restarts=2),
    "nearest-neighbor": lambda norm: hf.NearestNeighbor(norm=norm),
    "cchvae": lambda norm: hf.CCHVAE(
        norm=norm, step=0.5, rings=25, samples=40, hidden=(16,), latent=4, epochs=20
    ),
    "revise": lambda norm: hf.REVISE(
        norm=norm, steps=60, lr=0.2, lam=0.01, hidden=(16,), latent=4, epochs=20
    ),
}


@pytest.mark.parametrize("name", ["huber", "linf", "weighted linf", "mse"])
@pytest.mark.parametrize("method", METHODS)
def test_a_new_distance_is_a_setting_of_every_search(
    method: str, name: str, model: hf.Model
) -> None:
    weights = torch.linspace(0.5, 2, SCHEMA.width)
    distance = {"weighted linf": weighted(linf, weights), "huber": Huber()}.get(name, name)
    cfs = METHODS[method](distance).fit(model, TABLE).explain(model, TABLE.head(40), "yes")
    assert cfs.found.any()
    assert (model.predict(cfs.after[cfs.found]) == "yes").all()


@pytest.mark.parametrize("name", ["l1", "l2", "linf", "huber"])
def test_a_search_is_best_at_the_distance_it_minimises(name: str) -> None:
    """On average over rows; the optima themselves are known to the tests of closed forms."""
    data = hf.datasets.moons(n=300)
    moons = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=15)
    norms: dict[str, Any] = {"l1": "l1", "l2": "l2", "linf": "linf", "huber": Huber(0.2)}
    runs = {n: hf.MinCost(norm=d).explain(moons, data.X.head(60), "yes") for n, d in norms.items()}
    assert all(cfs.found.sum() > 20 for cfs in runs.values())
    cost = {n: float(cfs.cost(norms[name]).mean()) for n, cfs in runs.items()}
    assert min(cost.values()) >= 0.999 * cost[name]


def test_a_new_distance_is_a_cost_and_a_metric(model: hf.Model) -> None:
    cfs = hf.MinCost().explain(model, TABLE.head(40), "yes")
    z = SCHEMA.encode(cfs.after, torch.float64)
    x = SCHEMA.encode(cfs.before, torch.float64)
    delta = torch.where(cfs.x == cfs.x_cf, 0.0, z - x)
    found = cfs.found
    huber = Huber()
    assert np.allclose(cfs.cost(huber)[found], huber.value(delta)[torch.tensor(found)])
    assert hf.metrics.cost(cfs, huber)[found].notna().all()
    for name in ("l0", "l1", "l2", "linf"):
        assert cfs.cost(name).equals(cfs.cost(distance_of(name)))
    data = mad(SCHEMA.encode(TABLE, torch.float64))
    assert (cfs.cost(data)[found] > 0).any()
    # raw units have one number a feature, and it has weights
    with pytest.raises(SettingError, match="'mad' has"):
        cfs.cost(data, units="raw")
    y = model.predict(TABLE)
    near = hf.metrics.distance_to_data(cfs, TABLE, y, norm=huber)
    assert np.isfinite(near[found]).all()
    one = hf.metrics.distance_to_data(cfs, TABLE, y, norm=1)
    assert one.equals(hf.metrics.distance_to_data(cfs, TABLE, y, norm="l1"))


def test_distances_in_words_where_methods_are_chosen_in_words() -> None:
    from holdfast.registry import build_method

    assert build_method("min-cost", ["norm=linf"]).get_params()["norm"] == "linf"
    assert build_method("min-cost", ["norm=2"]).get_params()["norm"] == 2
    with pytest.raises(SettingError, match="expected one of 1, 2, l1, l2, linf, mse"):
        build_method("min-cost", ["norm=l7"])
