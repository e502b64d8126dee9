"""Plans for people: what to change, what it costs, and whether the model's next version will still
accept it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from holdfast._core.parquet import content_of, damage_named, read_sealed
from holdfast._core.result import as_json, write_csv
from holdfast.auditing import certificates, files
from holdfast.auditing.audit import Audit
from holdfast.auditing.likeness import Likeness
from holdfast.counterfactuals import Counterfactuals, RowSelection, positions
from holdfast.plans.plan import Plan, PlanColumns, each_plan
from holdfast.target import Status

MARK = b"holdfast-plans"
ENDINGS = (".parquet", ".json", ".csv")


@dataclass(frozen=True, eq=False, repr=False)
class Plans:
    """One plan for each person, put before retrained models that had no part in finding it.

    Iterating gives a `Plan` for each; `plans[rows]` are some of them, always as `Plans`.

    Args:
        audit: the answers, and which of the audit models accept which.
        hold: the share of retrained models that is to accept a plan.
        confidence: of the certificate that they do.
        likeness: whether the retrained models are those of the model in use; where they are not,
            nothing is certified. None: nobody has compared them.
        warnings: what the judges may not know of the rows, in sentences.
        looks: how often judges were added, see `Recourse.more_judges`.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recourse = hf.Recourse(hf.Recipe(hidden=(), epochs=20, lr=0.1), data.X, data.y)
    >>> refused = data.X[recourse.model.predict(data.X) == "no"].head(5)
    >>> plans = recourse.plans(refused, "yes")
    >>> plans.table().columns.tolist()
    ['plan', 'cost', 'holds_on', 'survival', 'bound', 'certified', 'status']
    """

    audit: Audit
    hold: float = 0.95
    confidence: float = 0.95
    likeness: Likeness | None = None
    warnings: tuple[str, ...] = ()
    looks: int = 0

    @classmethod
    def of(cls, audit: Audit, hold: float, confidence: float, **more: Any) -> "Plans":
        """Plans as the judges see them: what they certify has been found, and what the model
        accepts though they do not certify it is fragile. Where nothing can be certified, it is as
        the search left it."""
        plans = cls(audit, hold, confidence, **more)
        if plans.refused or plans.too_few():
            return plans
        cfs = audit.cfs
        certified = audit.certified(hold=hold, confidence=confidence).to_numpy()
        codes = cfs.status_codes.copy()
        codes[cfs.answered] = np.where(certified, Status.FOUND, Status.FRAGILE)[cfs.answered]
        accepted = audit.held.sum(0)
        judges = len(audit.held)
        reasons = list(cfs.reasons)
        for i in np.flatnonzero(cfs.answered):
            holds = certificates.holds_on(int(accepted[i]), judges)
            reasons[i] = (
                "" if certified[i] else f"it holds on {holds} judges, too few for a certificate"
            )
        judged = replace(cfs, status_codes=codes, reasons=reasons)
        return replace(plans, audit=replace(audit, cfs=judged))

    def __len__(self) -> int:
        return len(self.cfs)

    def __getitem__(self, rows: RowSelection) -> "Plans":
        """Some of the plans, by position: a number, a slice, numbers, or a mask (n,)."""
        verdicts = self.audit.held[:, positions(rows, len(self))]
        return replace(self, audit=replace(self.audit, cfs=self.cfs[rows], held=verdicts))

    def __iter__(self) -> Iterator[Plan]:
        """The plans one by one, as records."""
        return each_plan(self)

    @property
    def cfs(self) -> Counterfactuals:
        """The plans as counterfactuals: rows before and after, costs, reasons."""
        return self.audit.cfs

    @property
    def found(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """(n,) people with a plan that holds by the models that guided the search."""
        return self.cfs.found

    @property
    def certified(self) -> "pd.Series[bool]":
        """Which plans hold for at least `hold` of the models that are meant, with the asked
        confidence each; see `summary` for which models these are. None where the retrained models
        are not those of the model in use."""
        if self.refused:
            return pd.Series(False, self.cfs.after.index, name="certified")
        certified = self.audit.certified(hold=self.hold, confidence=self.confidence)
        return certified & self.found

    @property
    def refused(self) -> str:
        """Why nothing can be certified, whatever the judges say; '' where it can."""
        return "" if self.likeness is None else self.likeness.words()

    @property
    def bound(self) -> "pd.Series[float]":
        """The share of models that accept each plan, at least, with the asked confidence: what a
        certificate rests on."""
        return self.audit.bound(confidence=self.confidence)

    def together(self) -> float:
        """The share of models that every certified plan holds for, at least, with the asked
        confidence for all of them at once (Bonferroni over the plans); nan where none is certified
        or judges are too few. It is about the judges' chance alone: an unlucky training table is
        unlucky for all plans at once."""
        certified = np.zeros(len(self), bool) if self.too_few() else self.certified.to_numpy()
        if not certified.any():
            return float("nan")
        each = 1 - (1 - self.confidence) / int(certified.sum())
        return float(self.audit.bound(confidence=each).to_numpy()[certified].min())

    @property
    def survival(self) -> "pd.Series[float]":
        """The share of the audit's models that accept each plan."""
        return self.audit.survival()

    def to_frame(self) -> pd.DataFrame:
        """The rows to hand in, with the columns and dtypes of the table."""
        return self.cfs.to_frame()

    def table(self) -> pd.DataFrame:
        """One line per person: what changes, what it costs, on how many of the judges the plan
        holds, their share, the bound of that share that a certificate rests on, whether it is
        certified, and the status; fragile and impossible ones say so."""
        return PlanColumns.of(self).table(len(self.audit.held), self.cfs.after.index)

    def summary(self) -> str:
        """What became of the people, what is certified, and what that covers, in a few
        sentences."""
        if self.refused:
            return f"No certificates: {self.refused} {self._counted()}."
        if self.too_few():
            return " ".join(
                [f"{self._counted()}. No certificates: {self.too_few()}.", *self.warnings]
            )
        certified = int(self.certified.sum())
        families = self.audit.families
        what = f"{certified} of {int(self.cfs.answered.sum())} plans are certified"
        each = f"{what}: each {certificates.level(self.hold, self.confidence, families)}."
        every = ""
        if certified > 1:
            every = (
                f"All of them at once: for at least {certificates.rounded_down(self.together())}."
            )
        parts = [f"{self._counted()}.", each, every, certificates.covers(families), *self.warnings]
        return " ".join(part for part in parts if part)

    def too_few(self) -> str:
        """Why there are too few judges for any certificate; '' if there are enough."""
        return self.audit.too_few(hold=self.hold, confidence=self.confidence)

    def _counted(self) -> str:
        """'5 people: 4 found, 1 fragile'"""
        counts = self.cfs.status["status"].value_counts()
        status = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"{len(self)} people: {status or 'none'}"

    def describe(self, *, most: int = 20, width: int = 100) -> str:
        """What changes for the first people, and what became of all of them, for a terminal.

        Args:
            most: how many people to list.
            width: of the terminal, in letters.
        """
        from holdfast.plans.page import plans_text

        lines = [plans_text(self, most, width)] if len(self) else []
        lines.append(self.summary())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Plans {self.summary()}>"

    def _repr_html_(self) -> str:
        from holdfast.plans.page import plans_table

        return plans_table(self)

    def plot(self) -> Any:
        """Survival against cost, one dot per plan; needs the `plot` extra."""
        from holdfast.render.charts.audit import survival_cost

        return survival_cost(
            self.audit, hold=self.hold, confidence=self.confidence, norm="weighted"
        )

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page: plans, costs, survival and certificates; needs the `plot`
        extra."""
        from holdfast.plans.page import write_plans

        return write_plans(self, Path(path))

    # ---- files

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pictures, as plain values."""
        together = self.together()
        return {
            "hold": self.hold,
            "confidence": self.confidence,
            "asked": self.audit.asked,
            "judges": len(self.audit.held),
            "families": self.audit.families,
            "spread": self.audit.spread,
            "summary": self.summary(),
            "covers": certificates.covers(self.audit.families),
            "certified together": None if together != together else together,
            "likeness": None if self.likeness is None else self.likeness.to_dict(),
            "warnings": list(self.warnings),
            "people": [plan.to_dict() for plan in self],
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, written to a file where there is one to write to."""
        return as_json(self.to_dict(), path)

    def save(self, path: str | Path) -> None:
        """Write the format of the extension: .parquet has everything, for `load`; .json what
        `to_json` gives, and .csv what `table` gives."""
        path = Path(path)
        ending = files.known_ending(path, ENDINGS)
        if ending == ".json":
            self.to_json(path)
            return
        if ending == ".csv":
            write_csv(self.table(), path)
            return
        content = {
            "hold": self.hold,
            "confidence": self.confidence,
            "likeness": None if self.likeness is None else self.likeness.to_dict(),
            "warnings": list(self.warnings),
            "looks": self.looks,
        }
        files.write(path, self.audit, contents={MARK: content})

    @classmethod
    def load(cls, path: str | Path) -> "Plans":
        """Read a .parquet file written by `save`."""
        otherwise = "holds an audit and no plans; it was not written by Plans.save"
        table = read_sealed(path, MARK, otherwise)
        with damage_named(path):
            content: dict[str, Any] = content_of(table, MARK)
            likeness = content["likeness"]
            return cls(
                Audit(*files.arguments_in(table)),
                float(content["hold"]),
                float(content["confidence"]),
                None if likeness is None else Likeness.from_dict(likeness),
                tuple(str(text) for text in content["warnings"]),
                int(content["looks"]),
            )
