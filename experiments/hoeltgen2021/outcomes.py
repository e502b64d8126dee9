"""Höltgen et al. 2021, figures from the arrays of the searches: what counts as a failure, and over
which pairs means are taken.

A method's outcome is a table of values (sets, pairs). As in the paper a mean is taken within each
set, then over the sets, with the unbiased standard deviation over the sets beside it; failures
never enter a mean of costs. "Conditioned" means: only pairs on which all methods that are compared
succeed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import holdfast as hf
from experiments.hoeltgen2021.reported import QUANTILES, TABLE_1
from experiments.tables import known, mean_sd

Array = NDArray[Any]
# changes up to this are float noise: a step up and a step down need not end where they began
TOLERANCE = 1e-4
LOOSE = "L0, beyond 1e-4"


@dataclass(frozen=True)
class Outcome:
    """What a method came to: `ok` and every figure are (sets, pairs).

    Paper: hoeltgen2021 Metric L0 and L1.
    """

    ok: Array
    figures: dict[str, Array]

    @classmethod
    def of(cls, x: Array, x_cf: Array, ok: Array, **more: Array) -> "Outcome":
        """From images and answers (sets, pairs, pixels)."""
        change = np.abs(x_cf.astype(np.float64) - x)
        found = {"L0": (change > 0).sum(2), LOOSE: (change > TOLERANCE).sum(2), "L1": change.sum(2)}
        return cls(ok, {**found, **more})

    def at(self, pairs: Array) -> "Outcome":
        """Some of the pairs of every set."""
        return Outcome(
            self.ok[:, pairs], {name: values[:, pairs] for name, values in self.figures.items()}
        )

    def of_found(self, name: str) -> Array:
        """(n,) a figure of all pairs that succeeded."""
        return self.figures[name][self.ok]


def succeeded(codes: Array, iterations: Array, most: int | None) -> Array:
    """As the paper counts: what is met only after the last of `most` iterations is a failure, since
    its loop does not look again; what is met from the start is a success without a change.

    Paper: hoeltgen2021 Metric failures.
    """
    found = codes != hf.Status.NOT_FOUND
    return (
        found if most is None else found & ((iterations < most) | (codes == hf.Status.ALREADY_MET))
    )


def over_sets(values: Array, counted: Array) -> list[float | None]:
    """Mean and unbiased standard deviation over the sets of the means over the pairs that count."""
    means = [v[c].mean() for v, c in zip(values, counted, strict=True) if c.any()]
    return mean_sd(means, sample=True) or [None, None]


def table(outcomes: Mapping[str, Outcome], *, conditioned: bool) -> dict[str, dict[str, Any]]:
    """Rows as in Table 1: label -> figure -> [mean, standard deviation], and how many pairs went
    into it.

    Paper: hoeltgen2021 Table 1.
    """
    common = np.logical_and.reduce([outcome.ok for outcome in outcomes.values()])
    out = dict[str, dict[str, Any]]()
    for label, outcome in outcomes.items():
        counted = common if conditioned else outcome.ok
        row: dict[str, Any] = {
            name: over_sets(values, counted) for name, values in outcome.figures.items()
        }
        row["failure %"] = over_sets(100.0 * ~outcome.ok, np.ones_like(outcome.ok))
        out[label] = row | {"pairs": int(counted.sum())}
    return out


def both_ways(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The table over pairs that all methods solve, and over those that each solves."""
    return {
        "conditioned": table(outcomes, conditioned=True),
        "unconditioned": table(outcomes, conditioned=False),
    }


def spread(values: Array) -> list[float | None]:
    """Mean, standard deviation, and the quantiles that are reported."""
    if not len(values):
        return [None] * (2 + len(QUANTILES))
    return [known(v) for v in (values.mean(), values.std(), *np.quantile(values, QUANTILES))]


def by_target(
    outcome: Outcome, target: Array, classes: int, name: str = "L0"
) -> list[float | None]:
    """Mean of a figure for each wanted class."""
    found = [outcome.figures[name][outcome.ok & (target == c)] for c in range(classes)]
    return [known(values.mean()) if len(values) else None for values in found]


# ---- findings

ACCURACY = 0.985
FAILURE = 1.0
L0 = 25.0
L1 = 13.0
VLK_TIMES = {"L0": 5.0, "L1": 3.0}


def findings(r: dict[str, Any]) -> list[dict[str, Any]]:
    """What a run must reach, whether it does, and the figures that decide."""
    alone = r["table 1"]["same"]["all pairs"]["unconditioned"]["DeDUCE"]
    accuracy = r["accuracy"]["spectral"]["test"]
    out = [
        _finding(
            f"Accuracy of the spectral network at least {ACCURACY}",
            _least(accuracy, ACCURACY),
            f"{accuracy}",
        ),
        _bound(
            f"Failures of DeDUCE below {FAILURE:g} %", alone["failure %"][0], FAILURE, strict=True
        ),
        _bound(f"Mean L0 of DeDUCE at most {L0:g}", alone["L0"][0], L0),
        _bound(f"Mean L1 of DeDUCE at most {L1:g}", alone["L1"][0], L1),
    ]
    pair = r["table 1"]["same"]["all pairs"]["conditioned"]
    for name in ("L0", "L1"):
        deduce = pair["DeDUCE"][name][0]
        jsma = pair["JSMA"][name][0]
        holds = deduce is not None and jsma is not None and deduce < jsma
        out.append(
            _finding(
                f"{name} of DeDUCE below JSMA, on the same network", holds, f"{deduce} and {jsma}"
            )
        )
    for kind, words in (("same", "same network"), ("mixed", "networks as in the paper")):
        rows = r["table 1"][kind]["common pairs"]["conditioned"]
        for method, least in (("VLK", VLK_TIMES), ("REVISE", _reported_times("REVISE"))):
            for name, limit in least.items():
                times = _ratio(rows[method][name][0], rows["DeDUCE"][name][0])
                what = f"{name} of {method} at least {limit:.2f} times that of DeDUCE, {words}"
                out.append(
                    _finding(
                        what, _least(times, limit), "no pair" if times is None else f"{times:.2f}"
                    )
                )
    rows = r["table 4"]["conditioned"]
    for name in ("L0", "L1"):
        ours = rows["mu = 1"][name][0]
        lambdas = {k: row[name][0] for k, row in rows.items() if k.startswith("lambda")}
        # all are means of the same pairs
        best = None if ours is None else min(lambdas, key=lambda k: lambdas[k])
        words = "no pair" if best is None else f"{ours} and {lambdas[best]} ({best})"
        holds = best is not None and ours <= lambdas[best]
        out.append(_finding(f"{name} with mu = 1 at most that of every lambda", holds, words))
    return out


def _finding(what: str, holds: bool, statistic: str) -> dict[str, Any]:
    return {"finding": what, "holds": bool(holds), "statistic": statistic}


def _least(value: float | None, limit: float) -> bool:
    return value is not None and value >= limit


def _bound(what: str, value: float | None, limit: float, *, strict: bool = False) -> dict[str, Any]:
    holds = value is not None and (value < limit or (value == limit and not strict))
    return _finding(what, holds, f"{value}")


def _reported_times(method: str) -> dict[str, float]:
    return {name: TABLE_1[method][name][0] / TABLE_1["DeDUCE"][name][0] for name in ("L0", "L1")}


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
