"""How many standard deviations ahead: the c of `SurvivalSearch` by which answers are certified on
models not yet seen.

For a grid of c the answers of some people are put before the models of a calibration bank. The
smallest c is taken for which a given share of the people who have a robust answer, at any c, get
one that is certified, and one standard error of that share more: it is measured on few people, and
the smallest c that passes is the one that luck favours most. It is one number for a model and a
target: choosing it for each person would follow the accidents of the calibration bank.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from holdfast.auditing.audit import audit, models_needed
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import SettingError
from holdfast.methods.survival_search.search import SurvivalSearch
from holdfast.models.base import Model
from holdfast.problem import Rows
from holdfast.retraining.bank import ModelBank
from holdfast.target import TargetLike

STEP = 0.25
MOST = 6.0
USUAL = 3.0  # where nothing can be measured

# by c: answers, and which are certified
Seen = dict[float, tuple[Counterfactuals, np.ndarray[Any, Any]]]


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibrated c, and what was seen on the way.

    Args:
        c: the value to search with.
        at_least, confidence: the level of the certificates that were counted.
        share: how many of the people with a robust answer were to be certified.
        rows: how many people were asked about.
        models: of the calibration bank.
        table: for each c that was tried, the share of people whose answer the guide lets through,
            the share of those with a robust answer who are certified, and what the certified
            answers cost.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recipe = hf.Recipe(hidden=(), epochs=20, lr=0.1)
    >>> model = recipe.fit(data.X, data.y, data.schema)
    >>> bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families={"retrain": 100})
    >>> parts, refused = bank.split(guide=40, calibration=60), data.X[model.predict(data.X) == "no"]
    >>> found = hf.calibrate(hf.SurvivalSearch(parts.guide), model, refused.head(20), "yes", parts.calibration)
    >>> found.c in found.table.index, found.reached
    (True, True)
    """

    c: float
    at_least: float
    confidence: float
    share: float
    rows: int
    models: int
    table: pd.DataFrame

    @property
    def reached(self) -> bool:
        """Is the share reached at this c?"""
        return self.c in self.table.index and float(self.table["certified"][self.c]) >= self.share

    def describe(self) -> str:
        """One line."""
        if self.c not in self.table.index:
            return f"c = {self.c:g}, as usual: nobody had a robust answer to calibrate by"
        here = self.table.loc[self.c]
        what = (
            f"c = {self.c:g}: {here['certified']:.0%} of the people with a robust answer are "
            "certified"
        )
        short = "" if self.reached else f", short of {self.share:.0%}"
        return f"{what}{short} ({self.rows} people, {self.models} calibration models)"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        kept = {
            name: getattr(self, name)
            for name in ("c", "at_least", "confidence", "share", "rows", "models")
        }
        return {
            **kept,
            "table": {
                f"{c:g}": dict(line) for c, line in self.table.to_dict(orient="index").items()
            },
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Calibration":
        lines = {float(c): line for c, line in content["table"].items()}
        kept: dict[str, Any] = {**content, "table": _table(lines)}
        return cls(**kept)


def calibrate(
    method: SurvivalSearch,
    model: Model,
    X: Rows,
    target: TargetLike,
    bank: ModelBank,
    *,
    at_least: float = 0.95,
    confidence: float = 0.95,
    share: float = 0.9,
    seed: int = 0,
    progress: bool = False,
) -> Calibration:
    """The smallest c, on a grid of 0.25, at which answers are certified for nearly all who can have
    one.

    Args:
        method: the search, with its guide.
        model, X, target, seed: as for `explain`: people by whom to calibrate, 50 or more, who do
            not have the wanted outcome.
        bank: models of the same families as the guide, none of them in it; 100 or more for a level
            of 0.95.
        at_least, confidence: what is to be certified, see `Audit.certified`.
        share: of the people with a robust answer; one standard error is added, as far as there is
            room.
        progress: show a bar on stderr.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recipe = hf.Recipe(hidden=(), epochs=20, lr=0.1)
    >>> model = recipe.fit(data.X, data.y, data.schema)
    >>> bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families={"retrain": 60})
    >>> parts, refused = bank.split(guide=30, calibration=30), data.X[model.predict(data.X) == "no"]
    >>> method = hf.SurvivalSearch(parts.guide)
    >>> found = hf.calibrate(method, model, refused.head(16), "yes", parts.calibration, at_least=0.9)
    >>> found.c < 6
    True
    """
    if not 0 < share <= 1:
        raise SettingError(f"share must lie between 0 and 1, got {share}")
    needed = models_needed(at_least, confidence)
    few = (
        f"the calibration bank has {len(bank)} models; a certificate at this level needs at least "
        f"{needed}"
    )
    if len(bank) < needed:
        raise SettingError(f"{few}; make more")
    seen: Seen = {}

    def look(levels: Sequence[float]) -> None:
        """Answers for each of these c, and which of them are certified."""
        levels = [c for c in levels if c not in seen]
        if not levels:
            return
        cfs = replace_c(method, tuple(levels)).explain(
            model, X, target, seed=seed, progress=progress
        )
        certified = audit(cfs, bank).certified(at_least=at_least, confidence=confidence).to_numpy()
        for i, c in enumerate(levels):
            own = np.arange(len(cfs) // len(levels)) * len(levels) + i
            seen[c] = cfs[own], certified[own]

    def enough() -> list[float]:
        robust = int(_robust(seen).sum())
        asked = min(1.0, share + math.sqrt(share * (1 - share) / max(robust, 1)))
        return [c for c, line in _lines(seen).items() if robust and line["certified"] >= asked]

    look((1.0, 2.0, 3.0, 4.0))
    if not enough():
        look((5.0, MOST))
    top = min(enough(), default=MOST)
    look([c for c in np.arange(top - 1 + STEP, top, STEP).tolist() if c >= 0])
    lines = _lines(seen)
    good = enough()
    robust = bool(_robust(seen).any())
    best = max(lines, key=lambda c: (lines[c]["certified"], -c))
    c = min(good) if good else best if robust else USUAL
    table = _table(lines if robust else {})
    return Calibration(
        c, at_least, confidence, share, len(next(iter(seen.values()))[0]), len(bank), table
    )


def replace_c(method: SurvivalSearch, c: float | tuple[float, ...]) -> SurvivalSearch:
    """The same method, with what it has learnt, and another c."""
    out = replace(method, c=c)
    vars(out).update(
        {
            name: value
            for name, value in vars(method).items()
            if name not in out.get_params(deep=False)
        }
    )
    return out


def _robust(seen: Seen) -> np.ndarray[Any, Any]:
    """(n,) who has a robust answer at any c."""
    return np.logical_or.reduce([certified for _, certified in seen.values()])


def _lines(seen: Seen) -> dict[float, dict[str, float]]:
    robust = _robust(seen)
    out = dict[float, dict[str, float]]()
    for c, (cfs, certified) in sorted(seen.items()):
        out[c] = {
            "found": float(cfs.found.mean()),
            "certified": float(certified[robust].mean()) if robust.any() else 0.0,
            "cost": float(cfs.cost("l1").to_numpy()[certified].mean())
            if certified.any()
            else float("nan"),
        }
    return out


def _table(lines: dict[float, dict[str, float]]) -> pd.DataFrame:
    columns = ["found", "certified", "cost"]
    return (
        pd.DataFrame.from_dict(lines, orient="index", columns=columns)
        .astype(float)
        .rename_axis("c")
    )
