"""Statements hold where their figures say so."""

from typing import Any

import pytest

from experiments.altmeyer2025.findings import checked
from experiments.altmeyer2025.grid import ITERATIONS


def result(**changes: Any) -> dict[str, Any]:
    """Moons, where every statement holds."""
    line = {"of means": 20.0, "reduction": 19.0, "significant": True}
    generators = [
        {"generator": kind, "steps": steps, "energy": 5.0, "reduction": best + steps / 10}
        for kind, best in (("ECCCo", 20.0), ("Generic", 15.0), ("REVISE", 5.0))
        for steps in ITERATIONS
    ]
    settings = [
        {"setting": "l_reg", "value": v, "size": 1e4 if v == 0 else 3.0} for v in (0.0, 0.25)
    ]
    found = {
        "dataset": "moons",
        "measured": {"implausibility": line, "cost, protected": line},
        "accuracy": {"plain": 1.0, "full": 0.995},
        "l_reg": 0.25,
        "grid": {"generators": generators, "settings": settings, "burn-in": {"reduction": 4.0}},
        "theory": {"plain": [1.0, 1.1], "protected": [0.5, 0.6]},
    }
    return found | changes


def figure(percent: float, sure: bool) -> dict[str, Any]:
    return {"of means": percent, "reduction": 1.0, "significant": sure}


def failed(found: dict[str, Any]) -> list[str]:
    return [line["statement"] for line in checked(found) if not line["holds"]]


def test_what_holds_is_said_to_hold() -> None:
    lines = checked(result())
    assert len(lines) == 8
    assert failed(result()) == []


@pytest.mark.parametrize(
    ("change", "statement"),
    [
        ({"measured": {"implausibility": figure(31.0, True)}}, "Implausibility"),
        ({"measured": {"implausibility": figure(20.0, False)}}, "Implausibility"),
        ({"measured": {"cost, protected": figure(-1.0, True)}}, "Cost"),
        ({"accuracy": {"plain": 1.0, "full": 0.98}}, "Accuracy"),
        ({"theory": {"plain": [1.0, 0.4], "protected": [0.5, 0.6]}}, "Linear"),
    ],
)
def test_what_fails_is_said_to_fail(change: dict[str, Any], statement: str) -> None:
    found = result()
    for key, value in change.items():
        found[key] = found[key] | value
    (only,) = failed(found)
    assert only.startswith(statement)


def test_grids_that_say_otherwise() -> None:
    found = result()
    for line in found["grid"]["generators"]:
        line["reduction"] *= -1
    assert set(failed(found)) == {
        "ECCCo beats Generic beats REVISE as a generator",
        "More iterations help",
    }
    found = result()
    found["grid"]["settings"][0]["size"] = 8.0  # not three times as large
    found["grid"]["burn-in"]["reduction"] = -0.1
    statements = failed(found)
    assert statements[0] == "Without a ridge energies diverge"
    assert statements[1].startswith("Half of the epochs")
