"""How failures and means are counted, and findings decided, by hand."""

import json
from typing import Any

import numpy as np
import pytest

from experiments.hoeltgen2021.outcomes import (
    LOOSE,
    Outcome,
    both_ways,
    by_target,
    findings,
    over_sets,
    spread,
    succeeded,
)
from experiments.hoeltgen2021.setup import ABLATION
from holdfast.target import Status


def outcome(ok: list[list[int]], l0: list[list[float]]) -> Outcome:
    return Outcome(np.array(ok, bool), {"L0": np.array(l0, float)})


def test_costs_of_an_answer() -> None:
    """Paper: hoeltgen2021 Metric L0 and L1."""
    x = np.array([[[0.0, 0.5, 1.0, 0.2], [0.0, 0.0, 0.0, 0.0]]])
    x_cf = np.array([[[0.2, 0.5, 0.0, 0.20001], [0.0, 0.0, 0.0, 0.0]]])
    found = Outcome.of(x, x_cf, np.ones((1, 2), bool), iterations=np.array([[9, 0]])).figures
    assert found["L0"].tolist() == [[3, 0]]
    assert found[LOOSE].tolist() == [[2, 0]]
    assert found["L1"].tolist() == [[pytest.approx(1.20001), 0]]
    assert found["iterations"].tolist() == [[9, 0]]


def test_what_is_met_after_the_last_iteration_is_a_failure_of_greedy_methods() -> None:
    """Paper: hoeltgen2021 Metric failures."""
    codes = np.array(
        [Status.FOUND, Status.FOUND, Status.NOT_FOUND, Status.NOT_FOUND, Status.ALREADY_MET]
    )
    iterations = np.array([699, 700, 700, 12, 0])  # the fourth had nothing left to change
    assert succeeded(codes, iterations, 700).tolist() == [True, False, False, False, True]
    assert succeeded(codes, iterations, None).tolist() == [True, True, False, False, True]
    assert succeeded(codes[4:], iterations[4:], 0).tolist() == [True]


def test_means_within_sets_then_over_sets() -> None:
    """Paper: hoeltgen2021 Table 1."""
    values = np.array([[1.0, 3.0, 99.0], [4.0, 99.0, 99.0]])
    counted = np.array([[1, 1, 0], [1, 0, 0]], bool)
    # means 2 and 4; n - 1 below
    assert over_sets(values, counted) == [3.0, pytest.approx(2**0.5, abs=1e-4)]
    assert over_sets(values[:1], counted[:1]) == [2.0, None]
    assert over_sets(values, np.zeros_like(counted)) == [None, None]
    assert over_sets(values, counted & np.array([[True], [False]])) == [2.0, None]


def test_a_condition_keeps_the_pairs_that_all_solve() -> None:
    a = outcome([[1, 1, 1, 0], [1, 1, 1, 1]], [[1, 2, 3, 50], [1, 1, 1, 1]])
    b = outcome([[1, 0, 1, 1], [1, 1, 1, 1]], [[10, 90, 30, 10], [20, 20, 20, 20]])
    found = both_ways({"a": a, "b": b})
    assert found["conditioned"]["a"] == {
        "L0": [1.5, 0.7071],
        "failure %": [12.5, 17.6777],
        "pairs": 6,
    }
    assert found["conditioned"]["b"]["L0"] == [20.0, 0.0]
    assert found["unconditioned"]["a"]["L0"] == [1.5, 0.7071]  # (1 + 2 + 3) / 3 and 1
    assert found["unconditioned"]["b"]["L0"] == [
        pytest.approx((50 / 3 + 20) / 2, abs=1e-4),
        pytest.approx(2.357),
    ]
    assert found["unconditioned"]["b"]["pairs"] == 7
    assert a.at(np.array([0, 3])).of_found("L0").tolist() == [1, 1, 1]


def test_quantiles_and_classes() -> None:
    assert spread(np.arange(101.0)) == [50.0, pytest.approx(29.1548), 5.0, 25.0, 50.0, 75.0, 95.0]
    assert spread(np.zeros(0)) == [None] * 7
    o = outcome([[1, 1, 0, 1]], [[1, 3, 100, 8]])
    assert by_target(o, np.array([[0, 0, 0, 2]]), 3) == [2.0, None, 8.0]


def result() -> dict[str, Any]:
    """Where every finding holds."""
    figures = {
        "DeDUCE": (20.0, 10.0),
        "JSMA": (25.0, 12.0),
        "VLK": (150.0, 40.0),
        "REVISE": (750.0, 60.0),
    }
    rows = {
        m: {"L0": [a, 1.0], "L1": [b, 0.5], "failure %": [0.5, 0.1], "pairs": 9}
        for m, (a, b) in figures.items()
    }
    table = {"conditioned": rows, "unconditioned": rows}
    table = json.loads(
        json.dumps({w: {"all pairs": table, "common pairs": table} for w in ("same", "mixed")})
    )
    ablation = {label: {"L0": [24.0 + ("lambda" in label)], "L1": [12.0]} for label in ABLATION}
    accuracy = {"spectral": {"test": 0.99}, "plain": {"test": 0.99}}
    return {"table 1": table, "table 4": {"conditioned": ablation}, "accuracy": accuracy}


def failed(r: dict[str, Any]) -> list[str]:
    return [line["finding"] for line in findings(r) if not line["holds"]]


def test_what_holds_is_said_to_hold() -> None:
    assert failed(result()) == []
    assert len(findings(result())) == 4 + 2 + 2 * 4 + 2


@pytest.mark.parametrize(
    ("where", "value", "finding"),
    [
        (("accuracy", "spectral", "test"), 0.984, "Accuracy"),
        (
            ("table 1", "same", "all pairs", "unconditioned", "DeDUCE", "failure %", 0),
            1.0,
            "Failures",
        ),
        (("table 1", "same", "all pairs", "unconditioned", "DeDUCE", "L0", 0), 25.1, "Mean L0"),
        (("table 1", "same", "all pairs", "unconditioned", "DeDUCE", "L1", 0), None, "Mean L1"),
        (
            ("table 1", "same", "all pairs", "conditioned", "JSMA", "L0", 0),
            20.0,
            "L0 of DeDUCE below JSMA",
        ),
        (
            ("table 1", "mixed", "common pairs", "conditioned", "VLK", "L1", 0),
            29.0,
            "L1 of VLK at least 3.00 times",
        ),
        (
            ("table 1", "same", "common pairs", "conditioned", "REVISE", "L0", 0),
            711.0,
            "L0 of REVISE at least 35.56",
        ),
        (("table 4", "conditioned", "lambda = 1e3", "L1", 0), 11.9, "L1 with mu = 1"),
    ],
)
def test_what_fails_is_said_to_fail(
    where: tuple[Any, ...], value: float | None, finding: str
) -> None:
    r = result()
    place: Any = r
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    (only,) = failed(r)
    assert only.startswith(finding)
