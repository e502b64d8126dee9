"""Claims hold where their figures say so, fail where one of them does not, and are open where
nothing decides."""

from typing import Any, cast

import numpy as np
import pytest

from experiments.krishna2024 import claims
from experiments.krishna2024.bounds import HARDER, LINEAR, VAE, WIDE
from experiments.krishna2024.claims import (
    CHECKS,
    CLAIMS,
    ONLY,
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
SEEDS = 3


def of_seeds(values: Any) -> Any:
    """The same figures for all seeds, but for a little."""
    return np.asarray(values)[..., None] + 0.001 * np.arange(SEEDS)


def curve() -> dict[str, Any]:
    """Where every claim of the curves holds."""
    k = len(methods())
    spread = [[0.1 if i == 0 else 0.2] * len(EPSILONS) for i in range(k)]
    # another amount for each seed, or else the interval of the difference is a point
    spreads = np.array(spread)[..., None] * (1 + 0.1 * np.arange(SEEDS))
    judged = np.zeros((len(EPSILONS), SEEDS, 3))
    judged[1:, :, 0] = 10
    return {
        "validity": np.tile(FALLING, (k, 1)),
        "extra cost by seed": of_seeds(np.tile(1 - FALLING, (k, 1))),
        "extra cost sd by seed": spreads,
        "judged": judged,
        "attacked by seed": of_seeds(1 - FALLING),
        "nearby": FALLING,
        "nearby, all rows": 1 - FALLING,
        "noise by seed": of_seeds(1 - FALLING),
    }


def result() -> dict[str, Any]:
    shapes = np.zeros((4, len(SWEPT), 2, 3))
    shapes[:, :, 0, 0] = 1.0
    shapes[:, :, 1, 0] = 0.5
    shapes[:, :, 1, 1] = 0.3
    linear = dict.fromkeys(LINEAR, 0.0) | {"Theorem 4 condition": 1.0, "Theorem 4 conclusion": 1.0}
    wide = dict.fromkeys(WIDE, 0.0) | {"Theorem 5 condition": 1.0, "Theorem 5 conclusion": 1.0}
    vae = [
        dict.fromkeys(VAE, 0.0) | {"kind": kind, "epsilon": e, "rows": 5.0}
        for kind in (0.0, 1.0)
        for e in HARDER
    ]
    found = {
        "linear bounds": [linear],
        "ntk bounds": [wide],
        "vae bounds": vae,
        "methods": list(methods()),
    }
    return found | {"sweep": {"depth": shapes, "width": shapes}}


def cases(kind: str) -> list[str]:
    return [claim for claim in CHECKS if ONLY.get(claim, kind) == kind]


@pytest.mark.parametrize("kind", KINDS)
def test_claims_that_hold_are_said_to_hold(kind: str) -> None:
    for claim in cases(kind):
        holds, words = CHECKS[claim](kind, curve(), result())
        assert holds == "yes", (claim, words)


def broken(claim: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """One thing that each claim forbids."""
    curves = curve()
    found = result()
    if claim == "1":
        curves["validity"][3] = 1.0  # of ROAR
    elif claim == "2a":
        curves["extra cost by seed"][2] -= 2.0
    elif claim == "2b":
        curves["extra cost by seed"][1] = curves["extra cost by seed"][1, ::-1]
        curves["extra cost by seed"][1] += 0.01 * np.random.default_rng(0).random((8, SEEDS))
        curves["extra cost by seed"][1, 3, 0] = 0.0
    elif claim == "2c":
        curves["extra cost sd by seed"][1] /= 10  # C-CHVAE is steadier than SCFE
    elif claim == "3":
        found["sweep"]["depth"][2, 0, 1, 0] = 1.0  # no validity is lost at depth 3
    elif claim in ("4a", "4b"):
        curves["judged"][2, 1, 2 if claim == "4a" else 1] = 1
    elif claim == "4c":
        found["vae bounds"][-1]["violated by answers"] = 0.2
    elif claim == "5":
        found["linear bounds"][0]["Theorem 4 conclusion"] = 0.99
    elif claim == "6a":
        curves["attacked by seed"][-1] = -1.0 - 0.1 * np.arange(SEEDS)
    elif claim == "7":
        curves["nearby"] = curves["nearby"][::-1]
    else:
        key = "attacked by seed" if claim == "6b" else "noise by seed"
        curves[key] = curves[key][::-1] + 0.001 * np.arange(SEEDS)
    return curves, found


@pytest.mark.parametrize("claim", CHECKS)
def test_a_claim_that_fails_is_said_to_fail(claim: str) -> None:
    curves, found = broken(claim)
    assert CHECKS[claim](ONLY.get(claim, "network"), curves, found)[0] == "no"


@pytest.mark.parametrize("claim", ["2a", "2b", "2c", "4a", "4b", "6a", "6b", "8a", "8b"])
def test_what_older_figures_do_not_have_is_not_decided(claim: str) -> None:
    older = {key: values for key, values in curve().items() if "seed" not in key}
    del older["judged"]
    assert CHECKS[claim]("network", older, result())[0] == "not measured yet"


def test_seeds_that_disagree_decide_nothing() -> None:
    assert claims.of_seeds([0.5, -0.5, 0.1])[0] == "not sure"
    assert claims.of_seeds([0.5])[0] == "not sure"
    assert claims.of_seeds([])[0] == "not sure"
    assert claims.of_seeds([0.5, 0.51, np.nan])[0] == "yes"
    # of three methods two are sure; one that fails decides, one that is not sure does not
    sure, unsure, failed = [0.5, 0.6, 0.5], [0.5, -0.5, 0.1], [-0.5, -0.6, -0.5]
    names = ["a", "b", "c"]
    assert claims.of_methods(names, [sure, sure, sure])[0] == "yes"
    assert claims.of_methods(names, [sure, unsure, sure])[0] == "not sure"
    assert claims.of_methods(names, [sure, unsure, failed])[0] == "no"


def test_a_theorem_without_pairs_is_not_testable() -> None:
    found = result()
    for line in found["vae bounds"]:
        line["rows"] = 0.0
    assert CHECKS["4c"]("network", curve(), found)[0] == "not testable here"
    found["vae bounds"][-3]["rows"] = 4.0  # at epsilon 0.1 there are some
    holds, words = CHECKS["4c"]("network", curve(), found)
    assert holds == "yes"
    assert words == (
        "epsilon 0.1: 0% of 4 rows break it; epsilon 0.2: not testable here, no pair; "
        "epsilon 0.3: not testable here, no pair"
    )
    nobody = curve()
    nobody["judged"][:] = 0
    assert CHECKS["4b"]("network", nobody, found)[0] == "not testable here"


def test_costs_that_nobody_knows_decide_nothing() -> None:
    found = result()
    found["sweep"]["width"][1, 0, 1, 1] = np.nan
    assert CHECKS["3"]("network", curve(), found)[0] == "not testable here"
    found["sweep"]["depth"][2, 0, 1, 0] = 1.0  # no validity is lost: this decides
    assert CHECKS["3"]("network", curve(), found)[0] == "no"


def test_the_tally_tells_apart_what_is_neither_yes_nor_no(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ["yes", "no", "not sure", "not sure"]
    monkeypatch.setattr(
        claims, "verdicts", lambda holds: [{"claim": c, "holds": holds} for c in CLAIMS]
    )
    assert set(tally(cast(Any, said)).values()) == {"1 of 4 cases, 2 not sure"}
    nothing = ["not measured yet"] * 2
    assert set(tally(cast(Any, nothing)).values()) == {"not measured yet"}
