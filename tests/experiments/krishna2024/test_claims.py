"""Claims hold where their figures say so, fail where one of them does not, and are open where
nothing decides."""

from typing import Any

import numpy as np
import pytest

from experiments.krishna2024.bounds import LINEAR, VAE, WIDE
from experiments.krishna2024.claims import (
    CHECKS,
    CLAIMS,
    falls,
    rank_correlation,
    rises,
    tally,
    trend,
)
from experiments.krishna2024.curves import SWEPT
from experiments.krishna2024.setup import KINDS, methods
from holdfast.training.adversarial import EPSILONS


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 31]) == pytest.approx(1)
    # 1 - 6 * 2 / (4 * 15)
    assert rank_correlation([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(0.8)
    assert rank_correlation([1, 2, 3, 4], [4, np.nan, 3, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 3], [5, 5, 5]) == 0.0
    assert rank_correlation([1, 2, 3], [5, np.nan, 6]) == 0.0  # two points say nothing


def test_a_trend_is_a_rank_correlation_and_ties_are_told() -> None:
    collapsed = [1.0, 0.9, *[0.0] * 6]
    assert -0.8 < rank_correlation(EPSILONS, collapsed) < -0.7
    assert not falls(collapsed)
    assert (
        trend(collapsed) == "rank correlation -0.76 (never rises; short of a trend because of ties)"
    )
    assert "never falls" in trend([0.0, 0.1, *[1.0] * 6])
    assert falls([1.0, 0.8, 0.9, 0.6, 0.5, 0.4, 0.3, 0.2])
    assert not falls([1.0] * 8)
    zigzag = [1.0, 0.2, 0.9, 0.3, 1.0, 0.4, 0.8, 0.5]
    assert not falls(zigzag)
    assert "never" not in trend(zigzag)
    assert not rises([0.0, 1.0, *[np.nan] * 6])  # two points say nothing


FALLING = np.linspace(1, 0.1, len(EPSILONS))


def curve() -> dict[str, Any]:
    """Where every claim of the curves holds."""
    k = len(methods())
    return {
        "validity": np.tile(FALLING, (k, 1)),
        "extra cost": np.tile(1 - FALLING, (k, 1)),
        "extra cost sd": np.array([[0.1 if i == 0 else 0.2] * len(EPSILONS) for i in range(k)]),
        "bounds": np.array([100, 0, 3]),
        "attacked": 1 - FALLING,
        "nearby": FALLING,
        "nearby, all rows": 1 - FALLING,
        "noise": np.tile(1 - FALLING, (k, 1)),
    }


def result() -> dict[str, Any]:
    shapes = np.zeros((4, len(SWEPT), 2, 3))
    shapes[:, :, 0, 0] = 1.0
    shapes[:, :, 1, 0] = 0.5
    shapes[:, :, 1, 1] = 0.3
    linear = dict.fromkeys(LINEAR, 0.0) | {"Theorem 4 condition": 1.0, "Theorem 4 conclusion": 1.0}
    wide = dict.fromkeys(WIDE, 0.0) | {"Theorem 5 condition": 1.0, "Theorem 5 conclusion": 1.0}
    vae = [dict.fromkeys(VAE, 0.0) | {"kind": kind} for kind in (0.0, 1.0)]
    found = {
        "linear bounds": [linear],
        "ntk bounds": [wide],
        "vae bounds": vae,
        "methods": list(methods()),
    }
    return found | {"sweep": {"depth": shapes, "width": shapes}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("claim", CHECKS)
def test_a_claim_that_holds_is_said_to_hold(claim: int, kind: str) -> None:
    holds, words = CHECKS[claim](kind, curve(), result())
    assert holds is True, words


def broken(claim: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One thing that each claim forbids."""
    curves = curve()
    found = result()
    if claim == 1:
        curves["validity"][3] = 1.0  # of ROAR
    elif claim == 2:
        curves["extra cost sd"][1] = 0.01  # C-CHVAE is steadier than SCFE
    elif claim == 3:
        found["sweep"]["depth"][2, 0, 1, 0] = 1.0  # no validity is lost at depth 3
    elif claim == 4:
        curves["bounds"] = np.array([100, 1, 3])
    elif claim == 5:
        for key, name in (("linear bounds", "Theorem 4"), ("ntk bounds", "Theorem 5")):
            found[key][0][f"{name} conclusion"] = 0.99
    elif claim == 6:
        curves["attacked"][-1] = 0.0
    elif claim == 7:
        curves["nearby"] = curves["nearby"][::-1]
    else:
        curves["noise"][0] = curves["noise"][0][::-1]
    return curves, found


@pytest.mark.parametrize("claim", CHECKS)
def test_a_claim_that_fails_is_said_to_fail(claim: int) -> None:
    curves, found = broken(claim)
    assert CHECKS[claim]("network", curves, found)[0] is False


def test_a_claim_about_costs_that_nobody_knows_is_open() -> None:
    found = result()
    found["sweep"]["width"][1, 0, 1, 1] = np.nan
    assert CHECKS[3]("network", curve(), found)[0] is None
    found["sweep"]["depth"][2, 0, 1, 0] = 1.0  # no validity is lost: this decides
    assert CHECKS[3]("network", curve(), found)[0] is False
    lines = [
        {"claims": [{"claim": c, "holds": holds} for c in CLAIMS]} for holds in (True, False, None)
    ]
    assert set(tally(lines).values()) == {"1 of 3 cases, 1 open"}


def test_violations_of_corrected_bounds_are_not_forgiven() -> None:
    for key, field, kind in (
        ("linear bounds", "B1' violated", "logistic regression"),
        ("ntk bounds", "B2 violated", "network"),
        ("vae bounds", "violated", "logistic regression"),
    ):
        found = result()
        found[key][0][field] = 0.01
        assert CHECKS[4](kind, curve(), found)[0] is False
