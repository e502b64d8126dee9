"""Growing Spheres against planes and brute force, and the candidatess of candidates that it
weighs."""

import time
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.distances import penalty_of
from holdfast.methods import growing_spheres as spheres
from holdfast.methods._candidate_projection import CandidateProjection
from holdfast.methods._candidates import Candidates, Scratch, column_sum
from holdfast.nn.architecture import mlp
from support.tables import mixed_schema, mixed_table, problem_of, seeded

D = 5
TABLE = mixed_table(60, seed=3)


def points(n: int, d: int = D, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plane(w: torch.Tensor, b: float) -> hf.Model:
    """Class 1 where w . x + b > 0."""
    net = nn.Sequential(nn.Linear(len(w), 1, dtype=w.dtype))
    with torch.no_grad():
        net[0].weight.copy_(w[None])
        net[0].bias.fill_(b)
    return hf.Model.of(net, hf.Schema.box(len(w)))


# ---- what can be reached


SCHEMAS: dict[str, dict[str, object]] = {
    "grids and categories": {"rules": [], "max_changes": 0},
    "rules": {"max_changes": 0},
    "rules and max_changes": {},
    "all fixed but one": {
        "fixed": ["sex", "owner", "school", "job", "total"],
        "rules": [],
        "max_changes": 0,
    },
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SCHEMAS)
def test_space_is_reach_columns_first(name: str, dtype: torch.dtype) -> None:
    schema = mixed_schema(TABLE, **SCHEMAS[name])
    x = schema.encode(TABLE, dtype)
    reach = schema.feasible(x)
    m = 7
    z = x.T[..., None] + 2 * points(x.shape[1], len(x) * m, dtype=dtype).view(-1, len(x), m)
    z = z.contiguous()
    rows = reach.repeat(m).project(z.flatten(1).T)
    got = CandidateProjection(reach).project(z.clone(), slice(0, len(x)))
    assert torch.allclose(got.flatten(1).T, rows, atol=1e-6, rtol=0)
    fixed = schema.encoding(dtype).fixed
    assert torch.equal(got[fixed], x.T[fixed][..., None].expand(-1, -1, m))
    part = CandidateProjection(reach).project(z[:, 11:20].clone(), slice(11, 20))
    assert torch.equal(part, got[:, 11:20])
    alone = CandidateProjection(reach[torch.tensor([17])]).project(z[:, 17:18].clone(), slice(0, 1))
    assert torch.equal(alone[:, 0], got[:, 17])


def test_own_values_between_the_steps_may_stay() -> None:
    """A grid of 0.25: 0.1 is on none of its values, may stay, and so is nearer to 0.12 than 0.25
    and 0."""
    schema = hf.Schema(
        (hf.Feature("a", step=0.25, bounds=(0, 1), seen=(0, 1)), hf.Feature("b", seen=(0, 1)))
    )
    x = torch.tensor([[0.1, 0.5], [0.5, 0.5]])
    z = torch.tensor([[0.12, 0.02, 0.2, 9.0, -9.0], [0.12, 0.02, 0.2, 9.0, -9.0]])
    z = torch.stack([z, torch.full_like(z, 0.3)])
    got = CandidateProjection(schema.feasible(x)).project(z.clone(), slice(0, 2))
    assert torch.allclose(got[0, 0], torch.tensor([0.1, 0.0, 0.25, 1.0, 0.0]))
    assert torch.allclose(got[0, 1], torch.tensor([0.0, 0.0, 0.25, 1.0, 0.0]))
    assert torch.equal(
        CandidateProjection(schema.feasible(x[1:])).project(z[:, 1:].clone(), slice(0, 1))[:, 0],
        got[:, 1],
    )


def test_the_first_of_equally_strong_levels_is_taken() -> None:
    schema = hf.Schema(
        (hf.Feature("c", "category", levels=("a", "b", "c")), hf.Feature("n", seen=(0, 1)))
    )
    x = torch.tensor([[1.0, 0.0, 0.0, 0.5]])
    z = (
        torch.tensor([[0.0, 1.0, 1.0, 0.5], [2.0, 2.0, 2.0, 0.5], [0.0, 0.0, 3.0, 0.5]])
        .T[:, None]
        .clone()
    )
    got = CandidateProjection(schema.feasible(x)).project(z, slice(0, 1))[:, 0].T
    assert got[:, :3].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_sums_over_columns() -> None:
    for d in (1, 2, 3, 7, 13, 64):
        v = points(40, d, dtype=torch.float64).T.contiguous()
        assert torch.allclose(column_sum(v.clone()), v.sum(0), atol=1e-12)


def test_memory_grows_and_is_used_again() -> None:
    memory = Scratch(torch.zeros(1, dtype=torch.float64))
    a = memory.tensor(3, 4)
    assert (a.shape, a.dtype) == ((3, 4), torch.float64)
    assert memory.tensor(2, 5).data_ptr() == a.data_ptr()
    assert memory.tensor(5, 5).shape == (5, 5)


# ---- candidates


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("samples", [5, 1000, 20_000])
def test_the_nearest_candidate_by_brute_force(norm: int, samples: int) -> None:
    model = hf.Model.of(seeded(mlp(D, (8,), 2), 3), hf.Schema.box(D, -2, 2))
    x = points(9).clamp(-2, 2)
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0])
    drawn = 2 * points(samples, seed=1).T
    with model.eval_mode():
        problem = problem_of(model, x, 1 - model(x).argmax(1))
        candidates = Candidates(problem, penalty_of(norm), weight)
        best = candidates.nearest(
            samples, lambda people, some, z: z.copy_(x.T[:, people, None] + drawn[:, None, some])
        )
        rows = (x[:, None] + drawn.T).clamp(-2, 2)  # (n, samples, d)
        met = torch.stack([problem[torch.full((samples,), i)].met(rows[i]) for i in range(len(x))])
    cost = ((rows - x[:, None]).abs() ** norm * weight).sum(2).masked_fill(~met, torch.inf)
    assert 0 < int(met.sum()) < met.numel()
    assert torch.allclose(best.cost, cost.amin(1), atol=1e-5)
    found = best.cost.isfinite()
    assert torch.equal(best.rows[found], rows[torch.arange(len(x)), best.at][found])
    assert torch.equal(best.rows[~found], x[~found])


def test_candidates_that_come_in_order() -> None:
    """Nearest first and in a box that is never left: the first success is the nearest."""
    model = hf.Model.of(seeded(mlp(D, (8,), 2), 3), hf.Schema.box(D))
    x = points(20)
    drawn = points(300, seed=1)
    drawn = drawn[drawn.norm(dim=1).argsort()].T
    with model.eval_mode():
        candidates = Candidates(problem_of(model, x, 1 - model(x).argmax(1)), penalty_of(2))

        def place(people: slice, some: slice, z: torch.Tensor) -> None:
            z.copy_(x.T[:, people, None] + drawn[:, None, some])

        first = candidates.nearest(300, place, ordered=True)
        nearest = candidates.nearest(300, place)
    assert first.cost.isfinite().any()
    assert torch.allclose(first.cost, nearest.cost, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variant", ["original", "carla"])
@pytest.mark.parametrize("samples", [37, 200])
def test_an_answer_does_not_depend_on_the_batch(
    variant: Any, samples: int, dtype: torch.dtype
) -> None:
    """To the bit, also where people want different classes."""
    schema = mixed_schema(TABLE, rules=[], max_changes=0)
    model = hf.Model.of(seeded(mlp(schema.width, (26,), 2).to(dtype)), schema)
    e = hf.GrowingSpheres(samples=samples, rings=10, variant=variant, width=0.5)
    whole = e.explain(model, TABLE, seed=2)
    assert whole.found.any()
    assert len(set(whole.goal.label.tolist())) == 2
    parts = [
        e.explain(model, TABLE.iloc[i : i + 7], seed=2, batch_size=3)
        for i in range(0, len(TABLE), 7)
    ]
    assert torch.equal(torch.cat([p.x_cf for p in parts]), whole.x_cf)
    assert torch.equal(e.explain(model, TABLE.iloc[41:42], seed=2).x_cf[0], whole.x_cf[41])


def test_all_rows_are_tried_in_the_same_directions() -> None:
    """Rows that differ along the plane only get the same change."""
    w = torch.tensor([1.0, -2.0, 0.5, 0.0, 0.0])
    x = torch.zeros(4, D)
    x[:, 3:] = points(4, 2)
    cfs = hf.GrowingSpheres(samples=100).explain(plane(w, -1.0), x, 1)
    assert cfs.found.all()
    change = cfs.x_cf - cfs.x
    assert torch.allclose(change, change[:1].expand_as(change), atol=1e-5)
    other = hf.GrowingSpheres(samples=100).explain(plane(w, -1.0), x, 1, seed=1)
    assert not torch.allclose(other.x_cf - other.x, change, atol=1e-3)


# ---- the algorithm


@pytest.mark.parametrize("variant", ["original", "carla"])
def test_the_plane_is_approached_and_never_passed(variant: Any) -> None:
    """|x' - x| >= |f(x)| / |w|, nearer to it with more samples, in whatever rings.

    Paper: krishna2024 Eq. 4.
    """
    w = points(1, 3, seed=1)[0]
    model = plane(w, -2.0)
    x = points(30, 3)
    f = x @ w - 2.0
    x = x[f < 0]
    f = f[f < 0]
    means: list[float] = []
    for samples, width in ((20, 0.5), (500, 0.1), (10_000, 0.02)):
        cfs = hf.GrowingSpheres(samples=samples, rings=400, variant=variant, width=width).explain(
            model, x, 1
        )
        ratio = torch.tensor(cfs.cost("l2").to_numpy()) * float(w.norm()) / -f
        assert cfs.found.all()
        assert ratio.min() >= 1 - 1e-6
        means.append(float(ratio.mean()))
    assert means[0] > means[1] > means[2]
    assert means[2] < 1.03


def test_sparsifying_keeps_the_outcome_and_frees_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paper: krishna2024 Eq. 4."""
    model = hf.Model.of(seeded(mlp(D, (8,), 2), 3), hf.Schema.box(D))
    x = points(60)
    e = hf.GrowingSpheres(samples=100)
    sparse = e.explain(model, x)
    monkeypatch.setattr(spheres, "revert", lambda problem, z: z)
    full = e.explain(model, x)
    assert (sparse.found == full.found).all()
    assert sparse.found.mean() > 0.8
    changed = [(c.x_cf != c.x).sum(1)[c.found] for c in (sparse, full)]
    assert (changed[0] <= changed[1]).all()
    assert changed[0].float().mean() < changed[1].float().mean() - 1
    kept = (sparse.x_cf == full.x_cf) | (sparse.x_cf == sparse.x)
    assert kept[sparse.found].all()


def test_fixed_columns_take_no_part_in_the_sphere() -> None:
    """With one free column the sphere is two points, and every sample is as far as it was meant to
    be."""
    schema = hf.Schema.box(D).change(**{f"x{i}": {"change": "fixed"} for i in range(1, D)})
    w = torch.zeros(D)
    w[0] = 1.0
    net = plane(w, -1.0).module
    x = points(20)
    x[:, 0] = 0.0
    cfs = hf.GrowingSpheres(samples=200, variant="carla", width=0.5, rings=3).explain(
        hf.Model.of(net, schema), x, 1
    )
    assert cfs.found.all()
    assert (cfs.cost("l2") < 1.02).all()
    assert torch.equal(cfs.x_cf[:, 1:], cfs.x[:, 1:])


def test_carla_draws_categories_and_yes_or_no_anew() -> None:
    """Only a level and a flag help: found in a ring far too narrow to move them."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "n": rng.random(50),
            "c": rng.choice(["a", "b", "c"], 50),
            "flag": rng.random(50) > 0.5,
            "s": rng.choice(["u", "v"], 50),
        }
    )
    schema = hf.Schema.infer(table, fixed=["s"])

    def score(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
        return ((frame["c"].astype(object) == "b") & frame["flag"]).to_numpy(
            dtype=float
        ) * 0.8 + 0.1

    model = hf.Model.of(score, schema, classes=["no", "yes"])
    asked = table[~((table["c"] == "b") & table["flag"])]
    found = hf.GrowingSpheres(samples=300, rings=1, variant="carla", width=1e-3).explain(
        model, asked, "yes"
    )
    assert found.found.all()
    assert ((found.after["n"] - found.before["n"]).abs() <= 1e-3 * schema["n"].scale).all()
    assert (found.after["s"] == found.before["s"]).all()
    moved = hf.GrowingSpheres(samples=300, rings=1, radius=1e-3).explain(model, asked, "yes")
    assert not moved.found.any()


def test_carla_settings() -> None:
    e = hf.GrowingSpheres.carla(rings=7)
    assert (e.variant, e.samples, e.rings, e.width) == ("carla", 1000, 7, 0.2)
    assert hf.GrowingSpheres.carla().rings == 1000


def test_one_large_ring_does_not_overrun_the_budget() -> None:
    """A slow model and a ring that would take ten seconds."""
    seen = 0

    def slow(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        nonlocal seen
        seen += len(x)
        time.sleep(2e-5 * len(x))
        return np.full(len(x), 0.1)

    model = hf.Model.of(slow, hf.Schema.box(3), inputs="encoded")
    for samples, rows in ((500_000, 1), (1000, 500)):
        seen = 0
        start = time.perf_counter()
        cfs = hf.GrowingSpheres(samples=samples).explain(model, points(rows, 3), 1, time_budget=0.2)
        assert time.perf_counter() - start < 4
        assert seen < 200_000
        assert not cfs.found.any()
        assert cfs.status["reason"].str.contains("time budget").all()


def test_no_answer_is_the_row_itself() -> None:
    w = torch.zeros(D)
    w[0] = 1.0
    x = points(6)
    cfs = hf.GrowingSpheres(samples=20, rings=2, radius=0.1).explain(plane(w, -100.0), x, 1)
    assert not cfs.found.any()
    assert torch.equal(cfs.x_cf, cfs.x)
    assert cfs.x_cf.isfinite().all()
