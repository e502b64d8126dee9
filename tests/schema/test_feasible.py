"""The nearest row that a person can reach."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.schema.rule import Rule
from holdfast.schema.verify import blocked
from support.worlds import worlds


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(), st.integers(0, 10**6))
def test_projection_is_idempotent_and_row_by_row(world: Any, seed: int) -> None:
    schema, people = world
    x = schema.encode(people, torch.float64)
    z = x + 3 * torch.randn(
        x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    p = schema.project(z, x)
    one_by_one = torch.cat([schema.project(z[i : i + 1], x[i : i + 1]) for i in range(len(x))])
    assert torch.allclose(one_by_one, p, atol=1e-9)
    contained = schema.feasible(x).contains(p)
    assert torch.allclose(schema.project(p, x)[contained], p[contained], atol=1e-9)


def test_projection_is_the_nearest_by_brute_force() -> None:
    """Integers, a category and max_changes: all reachable rows are listed and compared."""
    features = (
        hf.Feature("a", "integer", bounds=(0, 3), scale=2.0),
        hf.Feature("b", "integer", "up", bounds=(0, 3)),
        hf.Feature("c", "category", levels=("p", "q", "r"), allowed=("p", "q")),
    )
    g = torch.Generator().manual_seed(0)
    for most in (0, 1, 2):
        schema = hf.Schema(features, (), most)
        rows = pd.DataFrame(
            [(a, b, c) for a in range(4) for b in range(4) for c in "pq"], columns=["a", "b", "c"]
        )
        every = schema.encode(rows, torch.float64)
        for me in range(0, len(rows), 5):
            x = every[me : me + 1]
            ok = [
                i
                for i in range(len(rows))
                if rows["b"][i] >= rows["b"][me]
                and (not most or (rows.iloc[i] != rows.iloc[me]).sum() <= most)
            ]
            z = x + torch.randn(20, x.shape[1], generator=g, dtype=torch.float64)
            best = torch.cdist(z, every[ok]).amin(1)
            got = (schema.project(z, x.expand(20, -1)) - z).norm(dim=1)
            assert torch.allclose(got, best, atol=1e-9), most


def test_projection_onto_rules_is_the_nearest_by_a_solver() -> None:
    from scipy.optimize import minimize

    rules = ("a + b <= 1", "b - 2 * c >= -1", "a <= c + 0.5")
    schema = hf.Schema(
        tuple(hf.Feature(n, bounds=(-2, 2)) for n in "abc"), tuple(Rule.parse(r) for r in rules)
    )
    z = torch.randn(25, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2
    x = torch.zeros(25, 3, dtype=torch.float64)
    ours = schema.project(z, x)
    A = np.array([[1, 1, 0], [0, -1, 2], [1, 0, -1]])
    b = np.array([1, 1, 0.5])
    for i in range(25):
        keep = {"type": "ineq", "fun": lambda v: b - A @ v}
        true = minimize(
            lambda v, i=i: ((v - z[i].numpy()) ** 2).sum(),
            np.zeros(3),
            bounds=[(-2, 2)] * 3,
            constraints=keep,
            options={"ftol": 1e-14},
        )
        assert np.abs(ours[i].numpy() - true.x).max() < 1e-4


def test_a_missing_category_stays_or_moves_but_is_never_asked_for() -> None:
    frame = pd.DataFrame({"job": ["a", "b", None, "a"], "pay": [1.0, 2.0, 3.0, 4.0]})
    schema = hf.Schema.infer(frame)
    x = schema.encode(frame)
    towards_missing = x.clone()
    towards_missing[:, :3] = torch.tensor([0.0, 0.0, 9.0])
    assert schema.decode(schema.project(towards_missing, x), frame)["job"].isna().tolist() == [
        False,
        False,
        True,
        False,
    ]
    towards_a = x.clone()
    towards_a[:, :3] = torch.tensor([9.0, 0.0, 0.0])
    assert schema.decode(schema.project(towards_a, x), frame)["job"].tolist() == ["a"] * 4


@pytest.mark.parametrize("rule", ["a <= b", "b <= c", "c + a <= 1"])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_one_change_is_enough_for_a_rule_whichever_columns_it_is_about(
    rule: str, most: int
) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).random((60, 4)), columns=list("abcd"))
    schema = hf.Schema.infer(frame, scaling="none", rules=[rule], max_changes=most)
    numbers = schema.read(frame)
    assert (blocked(schema, numbers) == "").all()
    feasible = schema.feasible(schema.encode(frame, torch.float64))
    assert feasible.contains(feasible.fallback).all()
    assert not (feasible.fallback == feasible.x).all()
