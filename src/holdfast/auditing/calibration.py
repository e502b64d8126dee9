"""How many standard deviations ahead: the smallest safety margin c of `SurvivalSearch` whose
answers are certified on models not seen before.

For each c of a grid, the models of a calibration bank judge the answers of some people. Of the
people who have a robust answer at any c, a given share, plus one standard error, must get a
certified one; the smallest such c is taken. The standard error is there because few people are
asked, and the smallest c that passes is the one that luck favours most. There is one c for a model
and a target: choosing it person by person would follow the accidents of the calibration bank.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from holdfast._core.types import Rows
from holdfast.auditing.audit import audit, models_needed
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import SettingError
from holdfast.methods.survival_search.search import SurvivalSearch
from holdfast.models.base import Model
from holdfast.retraining.bank import ModelBank
from holdfast.target import TargetLike

STEP = 0.25
MOST = 6.0
USUAL = 3.0  # if nothing can be measured

# by safety margin: answers, and which of them are certified
Seen = dict[float, tuple[Counterfactuals, np.ndarray[Any, Any]]]


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibrated safety margin, and what was seen on the way.

    Args:
        safety: the margin to search with.
        hold, confidence: the level of the certificates that were counted.
        share: how many of the people with a robust answer were to be certified.
        rows: how many people were asked about.
        models: of the calibration bank.
        table: for each margin that was tried, the share of people whose answer the guide lets
            through, the share of those with a robust answer who are certified, and what the
            certified answers cost.

    >>> import holdfast as hf
    >>> import pandas as pd
    >>> table = pd.DataFrame({"certified": [0.7, 0.93]}, index=[1.5, 2.0])
    >>> found = hf.Calibration(2.0, 0.95, 0.95, share=0.9, rows=60, models=100, table=table)
    >>> found.reached
    True
    """

    safety: float
    hold: float
    confidence: float
    share: float
    rows: int
    models: int
    table: pd.DataFrame

    @property
    def reached(self) -> bool:
        """Is the share reached at this margin?"""
        if self.safety not in self.table.index:
            return False
        return float(self.table["certified"][self.safety]) >= self.share

    def describe(self) -> str:
        """The margin, and what it certifies, in one line."""
        if self.safety not in self.table.index:
            return (
                f"safety margin {self.safety:g}, the default: nobody had a robust answer to "
                "calibrate it on"
            )
        here = self.table.loc[self.safety]
        what = (
            f"safety margin {self.safety:g}: {here['certified']:.0%} of the people with a robust "
            "answer are certified"
        )
        short = "" if self.reached else f", short of {self.share:.0%}"
        return f"{what}{short} ({self.rows} people, {self.models} calibration models)"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        lines = self.table.to_dict(orient="index")
        return {
            "safety": self.safety,
            "hold": self.hold,
            "confidence": self.confidence,
            "share": self.share,
            "rows": self.rows,
            "models": self.models,
            "table": {f"{safety:g}": dict(line) for safety, line in lines.items()},
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Calibration":
        lines = {float(safety): line for safety, line in content["table"].items()}
        kept: dict[str, Any] = {**content, "table": _table(lines)}
        return cls(**kept)


def calibrate(
    method: SurvivalSearch,
    model: Model,
    X: Rows,
    target: TargetLike,
    bank: ModelBank,
    *,
    hold: float = 0.95,
    confidence: float = 0.95,
    share: float = 0.9,
    seed: int = 0,
    progress: bool = False,
) -> Calibration:
    """The smallest safety margin, on a grid of 0.25, at which answers are certified for nearly all
    who can have one.

    Args:
        method: the search, with its guide.
        model, X, target, seed: as for `explain`; 50 or more people who do not have the wanted
            outcome.
        bank: models of the same families as the guide, none of which are in it; 100 or more for a
            level of 0.95.
        hold, confidence: what is to be certified, see `Audit.certified`.
        share: of the people with a robust answer; one standard error is added, where it fits below
            1.
        progress: show a bar on stderr.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recipe = hf.Recipe(hidden=(), epochs=20, lr=0.1)
    >>> model = recipe.fit(data.X, data.y, data.schema)
    >>> bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families={"retrain": 60})
    >>> parts = bank.split(guide=30, calibration=30)
    >>> refused = data.X[model.predict(data.X) == "no"].head(16)
    >>> search = hf.SurvivalSearch(parts.guide)
    >>> found = hf.calibrate(search, model, refused, "yes", parts.calibration, hold=0.9)
    >>> found.safety < 6
    True
    """
    if not 0 < share <= 1:
        raise SettingError(f"share must lie between 0 and 1, got {share}")
    needed = models_needed(hold, confidence)
    if len(bank) < needed:
        raise SettingError(
            f"the calibration bank has {len(bank)} models; a certificate at this level needs at "
            f"least {needed}; make more"
        )
    seen: Seen = {}

    def look(margins: Sequence[float]) -> None:
        """Answers for each of these margins, and which of them are certified."""
        new = [margin for margin in margins if margin not in seen]
        if not new:
            return
        several = method.with_safety(tuple(new))
        cfs = several.explain(model, X, target, seed=seed, progress=progress)
        certified = audit(cfs, bank).certified(hold=hold, confidence=confidence).to_numpy()
        for i, margin in enumerate(new):
            rows = np.arange(len(cfs) // len(new)) * len(new) + i
            seen[margin] = cfs[rows], certified[rows]

    def enough() -> list[float]:
        """The margins at which the share is reached, with one standard error to spare."""
        robust = int(_robust(seen).sum())
        asked = min(1.0, share + math.sqrt(share * (1 - share) / max(robust, 1)))
        lines = _lines(seen)
        return [margin for margin in lines if robust and lines[margin]["certified"] >= asked]

    # coarse steps first, then fine ones below the smallest that is enough
    look((1.0, 2.0, 3.0, 4.0))
    if not enough():
        look((5.0, MOST))
    top = min(enough(), default=MOST)
    look([margin for margin in np.arange(top - 1 + STEP, top, STEP).tolist() if margin >= 0])
    safety = _chosen(seen, enough())
    table = _table(_lines(seen) if bool(_robust(seen).any()) else {})
    people = len(next(iter(seen.values()))[0])
    return Calibration(safety, hold, confidence, share, people, len(bank), table)


def _chosen(seen: Seen, enough: Sequence[float]) -> float:
    """The smallest margin that is enough, else the one that certifies most, else the default."""
    if enough:
        return min(enough)
    if not bool(_robust(seen).any()):
        return USUAL
    lines = _lines(seen)
    return max(lines, key=lambda margin: (lines[margin]["certified"], -margin))


def _robust(seen: Seen) -> np.ndarray[Any, Any]:
    """(n,) who has a robust answer at any margin."""
    return np.logical_or.reduce([certified for _, certified in seen.values()])


def _lines(seen: Seen) -> dict[float, dict[str, float]]:
    """What the table says of each margin."""
    robust = _robust(seen)
    out = dict[float, dict[str, float]]()
    for margin, (cfs, certified) in sorted(seen.items()):
        cost = cfs.cost("l1").to_numpy()[certified]
        out[margin] = {
            "found": float(cfs.found.mean()),
            "certified": float(certified[robust].mean()) if robust.any() else 0.0,
            "cost": float(cost.mean()) if certified.any() else float("nan"),
        }
    return out


def _table(lines: dict[float, dict[str, float]]) -> pd.DataFrame:
    columns = ["found", "certified", "cost"]
    table = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
    return table.astype(float).rename_axis("safety")
