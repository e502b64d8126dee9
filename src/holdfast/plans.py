"""Plans for people: what to change, what it costs, and how sure it is that the model's next version keeps the word."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from holdfast.counterfactuals import Counterfactuals, RowSelection, positions
from holdfast.datasets.tables import records
from holdfast.errors import FileError, require, untyped
from holdfast.evaluation.audit import Audit
from holdfast.evaluation.calibration import Calibration
from holdfast.render import certificates

MARK = b"holdfast-plans"
OTHER_FORMATS = (".json", ".csv")


@dataclass(frozen=True, eq=False, repr=False)
class Plans:
    """One plan for each person, put before retrained models that had no part in finding it.

    Args:
        audit: the answers, and which of the audit models accept which.
        hold: the share of retrained models that is to accept a plan.
        confidence: of the certificate that they do.
        calibration: how the search was set; None: by hand.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recourse = hf.Recourse(hf.Recipe(hidden=(), epochs=20, lr=0.1), data.X, data.y)
    >>> refused = data.X[recourse.model.predict(data.X) == "no"].head(5)
    >>> plans = recourse.plans(refused, "yes")
    >>> plans.table().columns.tolist()
    ['plan', 'cost', 'survival', 'low', 'high', 'certified', 'status']
    """

    audit: Audit
    hold: float = 0.95
    confidence: float = 0.95
    calibration: Calibration | None = None

    def __len__(self) -> int:
        return len(self.cfs)

    def __getitem__(self, rows: RowSelection) -> "Plans":
        """Some of the plans, by position: a number, a slice, numbers, or a mask (n,)."""
        held = Audit(self.cfs[rows], self.audit.held[:, positions(rows, len(self))], *self._judges())
        return Plans(held, self.hold, self.confidence, self.calibration)

    def _judges(self) -> tuple[Any, ...]:
        return self.audit.family, self.audit.bank, self.audit.rule

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
        """Which plans at least `hold` of all retrained models would accept, with the asked confidence."""
        return self.audit.certified(at_least=self.hold, confidence=self.confidence)

    @property
    def survival(self) -> "pd.Series[float]":
        """The share of the audit's models that accept each plan."""
        return self.audit.survival()

    def to_frame(self) -> pd.DataFrame:
        """The rows to hand in, with the columns and dtypes of the table."""
        return self.cfs.to_frame()

    def table(self) -> pd.DataFrame:
        """One line per person: what changes, what it costs, the share of retrained models that accept it with its exact
        interval, whether that is certified, and the status; fragile and impossible ones say so."""
        level = {"at_least": self.hold, "confidence": self.confidence}
        seen = self.audit.table(**level)
        out = seen[["survival", "low", "high", "certified", "status"]].copy()
        out.insert(0, "cost", self.cfs.cost("weighted"))
        out.insert(0, "plan", self.cfs.sentences())
        return out

    def words(self) -> str:
        """What became of the people, what is certified, and what that covers: two or three sentences."""
        counts = self.cfs.status["status"].value_counts()
        status = ", ".join(f"{count} {name}" for name, count in counts.items())
        certified = self.audit.words(at_least=self.hold, confidence=self.confidence)
        return f"{len(self)} people: {status or 'none'}. {certified}"

    def describe(self, *, most: int = 20, width: int = 100) -> str:
        """What changes for the first people, and what became of all of them, for a terminal.

        Args:
            most: how many people to list.
            width: of the terminal, in letters.
        """
        from holdfast.render.plans import plans_text

        lines = [plans_text(self, most, width)] if len(self) else []
        lines.append(self.words())
        if self.calibration is not None:
            lines.append(f"Calibrated: {self.calibration.describe()}.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Plans {self.words()}>"

    def _repr_html_(self) -> str:
        from holdfast.render.plans import plans_table

        return plans_table(self)

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page: plans, costs, survival and certificates; needs the `plot` extra."""
        from holdfast.render.plans import write_plans

        return write_plans(self, Path(path))

    # ---- files

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pictures, as plain values."""
        lines = self.table()
        lines.insert(0, "person", [str(name) for name in lines.index])
        tables = {name: getattr(self.cfs, name).reset_index(drop=True) for name in ("before", "after")}
        changes = replace(self.cfs, **tables).changes()  # by position: people may share a name
        by_person = {row: records(part.drop(columns="row")) for row, part in changes.groupby("row", sort=False)}
        people = [{**line, "changes": by_person.get(i, [])} for i, line in enumerate(records(lines))]
        calibration = None if self.calibration is None else self.calibration.to_dict()
        return {
            "hold": self.hold, "confidence": self.confidence, "asked": self.audit.asked,
            "models": len(self.audit.held), "words": self.words(), "covers": certificates.COVERS,
            "calibration": calibration, "people": people,
        }  # fmt: skip

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, written to a file where there is one to write to."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def save(self, path: str | Path) -> None:
        """Write the format of the extension: .parquet has everything, for `load`; .json what `to_json` gives, and .csv
        what `table` gives."""
        path = Path(path)
        kind = path.suffix.lower()
        known = kind in (".parquet", *OTHER_FORMATS)
        require(known, f"cannot write {str(path)!r}: the extension must be one of .parquet, .json, .csv", FileError)
        if kind == ".json":
            self.to_json(path)
            return
        if kind == ".csv":
            self.table().to_csv(path)
            return
        self.audit.save(path)
        parquet = untyped("pyarrow.parquet")
        table: Any = parquet.read_table(path)
        calibration = None if self.calibration is None else self.calibration.to_dict()
        content = {"hold": self.hold, "confidence": self.confidence, "calibration": calibration}
        marked = {**table.schema.metadata, MARK: json.dumps(content).encode()}
        parquet.write_table(table.replace_schema_metadata(marked), path)

    @classmethod
    def load(cls, path: str | Path) -> "Plans":
        """Read a .parquet file written by `save`."""
        held = Audit.load(path)
        metadata: Any = untyped("pyarrow.parquet").read_schema(path).metadata
        require(
            MARK in metadata, f"{str(path)!r} holds an audit and no plans; it was not written by Plans.save", FileError
        )
        try:
            content = json.loads(metadata[MARK])
            made = content["calibration"]
            calibration = None if made is None else Calibration.from_dict(made)
            return cls(held, float(content["hold"]), float(content["confidence"]), calibration)
        except Exception as error:  # the file may say anything
            raise FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})") from None
