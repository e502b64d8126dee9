"""The answers: one row per question and answer, with its status, and enough to make them again."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.checks import untyped
from holdfast._core.parquet import content_of, damage_named, read_sealed, write_sealed
from holdfast._core.result import as_json
from holdfast._core.selection import RowSelection, positions
from holdfast._core.version import version
from holdfast.distances import Distance, distance_of, l1, weighted
from holdfast.errors import FileError, SettingError
from holdfast.schema.columns import differ
from holdfast.schema.schema import Schema
from holdfast.target import BoundTarget, IntervalTarget, Status, Target

if TYPE_CHECKING:
    from holdfast.explainer import Explainer
    from holdfast.models.base import Model

MARK = b"holdfast"  # in the metadata of a Parquet file
NOT_OURS = "was not written by Counterfactuals.save"
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Run:
    """Where answers came from: enough to make them again."""

    method: str
    settings: str
    target: str
    seed: int
    seconds: float
    model: str  # fingerprints
    schema: str
    version: str
    created: str
    guided_by: tuple[str, ...] = ()  # origins of further models that helped to find the answers
    # what these models make of the schema's probe rows
    signatures: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of(
        cls, explainer: "Explainer", model: "Model", target: Target, seed: int, seconds: float
    ) -> "Run":
        now = datetime.now(UTC).isoformat(timespec="seconds")
        prints = model.fingerprint(), model.schema.fingerprint
        guides = tuple(sorted(explainer.guided_by))
        facts = str(target), seed, seconds, *prints, version(), now, guides, explainer.signatures
        return cls(type(explainer).__name__, repr(explainer), *facts)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Answers:
    """What answers about tables and about images have in common: a status and a reason for each,
    and a run."""

    # (n, d) encoded rows, or (n, c, h, w) images, repeated where there are several answers to one
    x: Tensor
    x_cf: Tensor
    scores: Tensor  # (n, k) of the answers, by the bare model
    goal: BoundTarget
    status_codes: npt.NDArray[np.int64]  # (n,) Status
    reasons: list[str]
    source: npt.NDArray[np.int64]  # (n,) number of the row, or the image, that is answered
    classes: tuple[Any, ...]
    run: Run

    def __len__(self) -> int:
        return len(self.status_codes)

    def __getitem__(self, rows: RowSelection) -> Self:
        """Some of the answers, by position: a number, a slice, numbers, or a mask (n,)."""
        chosen = positions(rows, len(self))
        facts = fields(cast(Any, self))
        return replace(
            cast(Any, self),
            **{fact.name: _some(getattr(self, fact.name), chosen) for fact in facts},
        )

    @property
    def index(self) -> pd.Index:
        """The names of the answers: those of the rows in the table."""
        return pd.RangeIndex(len(self))

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """(n,) which were found; the others are the best attempt, or need no change."""
        return self.status_codes == Status.FOUND

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """(n,) which the model accepts: those that were found, and fragile ones."""
        return np.isin(self.status_codes, (Status.FOUND, Status.FRAGILE))

    @property
    def failed(self) -> npt.NDArray[np.bool_]:
        """(n,) which have no answer."""
        return np.isin(self.status_codes, (Status.NOT_FOUND, Status.IMPOSSIBLE))

    @property
    def status(self) -> pd.DataFrame:
        """Each as found / already met / not found / fragile / impossible, and the reason."""
        words = [Status(int(c)).words for c in self.status_codes]
        return pd.DataFrame(
            {"status": words, "reason": self.reasons}, index=self.index, dtype=object
        )

    def _summary(self, what: str) -> str:
        """One line: how many, how many answered, by which method, in what time."""
        count = {s: int((self.status_codes == s).sum()) for s in Status}
        parts = [f"{count[s]:,} {s.words}" for s in Status if count[s]]
        return (
            f"{what}: {', '.join(parts) or 'none'} ({self.run.settings}, {self.run.seconds:.2f} s)"
        )

    def _where_answered(self, values: Tensor) -> "pd.Series[float]":
        """Values (n,), missing where no answer was found."""
        failed = torch.tensor(self.failed)
        return pd.Series(
            values.double().masked_fill(failed, float("nan")).numpy(), index=self.index
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Counterfactuals(Answers):
    """Answers, row by row. Rows without an answer stay, with the best attempt, their status and the
    reason.

    `cfs[rows]` are some of them, always as `Counterfactuals`: rows are chosen by position, as one
    number, a slice, an array of numbers or a boolean mask, such as `cfs[cfs.found]`. Iterating
    gives them one by one.

    >>> import holdfast as hf
    >>> moons = hf.datasets.moons(300)
    >>> model = hf.Model.of(lambda X: (X["x1"] > 0.5).to_numpy().astype(float), moons.schema)
    >>> cfs = hf.TreeSearch().explain(model, moons.X[moons.X["x1"] < 0.5], target=1)
    >>> bool(cfs.found.all()), cfs[:3].to_frame().shape
    (True, (3, 2))
    >>> cfs[0].changes()["feature"].tolist()
    ['x1']
    """

    before: pd.DataFrame  # the rows that were asked about (repeated when a row has several answers)
    after: pd.DataFrame  # the rows a person would hand in
    schema: Schema
    estimate_before: Tensor | None = None  # (n, 1) what a regression model estimated for `before`

    def __iter__(self) -> Iterator["Counterfactuals"]:
        return (self[i] for i in range(len(self)))

    @property
    def index(self) -> pd.Index:
        """The names of the rows, as in the table."""
        return self.after.index

    @property
    def is_regression(self) -> bool:
        """Are these answers about what a regression model estimates?"""
        return isinstance(self.goal, IntervalTarget)

    @property
    def probability(self) -> "pd.Series[float]":
        """Probability of the wanted outcome that the model gives to each answer."""
        if self.is_regression:
            raise SettingError("a regression model has no probabilities; see .estimate")
        return self._series(self.goal.value(self.scores))

    @property
    def estimate(self) -> "pd.Series[float]":
        """The number that the model estimates for each answer."""
        if not self.is_regression:
            raise SettingError("a model with classes has no estimates; see .probability")
        return self._series(self.goal.value(self.scores))

    def to_frame(self) -> pd.DataFrame:
        """The answers as rows to hand in: same index, columns and dtypes as the input."""
        return self.after.copy()

    def changes(self) -> pd.DataFrame:
        """Only what changes, one line per row and feature, for rows with an answer."""
        parts: list[pd.DataFrame] = []
        different = (
            differ(self.schema.read(self.before), self.schema.read(self.after))
            & self.answered[:, None]
        )
        for place, feature in enumerate(self.schema.features):
            moved = different[:, place]
            if moved.any():
                cells = {"row": self.after.index[moved], "feature": feature.name}
                for name, table in (("before", self.before), ("after", self.after)):
                    cells[name] = table[feature.name][moved].astype(object).to_numpy()
                parts.append(pd.DataFrame(cells).assign(_row=np.flatnonzero(moved), _place=place))
        if not parts:
            return pd.DataFrame(
                {name: pd.Series(dtype=object) for name in ("row", "feature", "before", "after")}
            )
        tidy = pd.concat(parts, ignore_index=True).sort_values(["_row", "_place"], kind="stable")
        return tidy.drop(columns=["_row", "_place"]).reset_index(drop=True)

    def cost(self, norm: str | Distance = "l1", *, units: str = "encoded") -> "pd.Series[float]":
        """How far each answer is from its question; missing where there is none.

        Args:
            norm: "l0" (number of features that change), "l1", "l2", "linf", "weighted" (l1 with the
                schema's weights), or a `Distance`. A number that was missing and is filled in
                counts 1, and how far it is from what stands for it while it is missing, the center
                of the feature.
            units: "encoded" (after scaling), or "raw" (the user's units; another category counts
                1).
        """
        if units not in ("encoded", "raw"):
            raise SettingError(f"units must be 'encoded' or 'raw', got {units!r}")
        encoding = self.schema.encoding(torch.float64)
        x = self.schema.encode(self.before, torch.float64)
        z = self.schema.encode(self.after, torch.float64)
        delta = torch.where(self.x == self.x_cf, 0.0, z - x)
        distance = weighted(l1, encoding.weight) if norm == "weighted" else distance_of(norm)
        if distance.per_feature or (units == "raw" and norm != "weighted"):
            delta = encoding.per_feature(
                delta.abs() * torch.where(encoding.one_hot, 0.5, encoding.scale)
            )
        return self._where_answered(distance.value(delta))

    def sentences(self) -> "pd.Series[str]":
        """What to do, in words, one sentence per row."""
        from holdfast.render.sentences import sentences

        return sentences(self)

    def summary(self) -> str:
        """One line: how many rows, how many answered, by which method, in what time."""
        rows = len(set(self.source.tolist()))
        what = f"{rows:,} row{'s' * (rows != 1)}"
        return self._summary(what if rows == len(self) else f"{len(self):,} answers for {what}")

    def _series(self, values: Tensor) -> "pd.Series[float]":
        return pd.Series(values.double().numpy(), index=self.index)

    def __repr__(self) -> str:
        return f"<Counterfactuals {self.summary()}>"

    def _repr_html_(self) -> str:
        from holdfast.render.html import changes_table

        return changes_table(self)

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page with the changes and two plots; needs the `plot` extra."""
        from holdfast.render.html import write_report

        return write_report(self, Path(path))

    def plot(self) -> Any:
        """What answers cost against their probability, or estimate: a dot for each that was found;
        needs the `plot` extra."""
        from holdfast.render.charts.theme import cost_probability

        return cost_probability(self)

    # ---- files

    def table(self) -> pd.DataFrame:
        """Answers with status, reason, probability (or estimate) and a sentence per row: what CSV
        and JSON files get."""
        extra = {"status": self.status["status"], "reason": self.status["reason"]}
        extra |= (
            {"estimate": self.estimate} if self.is_regression else {"probability": self.probability}
        )
        extra |= {"sentence": self.sentences()}
        taken = set(self.after.columns)
        renamed = {
            (name if name not in taken else f"holdfast_{name}"): value
            for name, value in extra.items()
        }
        return self.after.assign(**cast(Any, renamed))

    def to_dict(self) -> dict[str, Any]:
        """The run, and the rows of `table` as records, as plain values; what is missing is None."""
        from holdfast.datasets.tables import records

        return {
            "summary": self.summary(),
            "run": asdict(self.run),
            "answers": records(self.table()),
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, written to a file where there is one to write to."""
        return as_json(self.to_dict(), path)

    def save(self, path: str | Path) -> None:
        """Write the format of the extension: .parquet has everything, for `load`: answers,
        questions, scores, status, schema and provenance; .json and .csv have the rows of `table`,
        which `hf.datasets.read_table` reads."""
        from holdfast.datasets.tables import known_extension, write_table

        path = Path(path)
        if known_extension(path, "write") != ".parquet":
            write_table(self.table(), path)
            return
        try:
            table, content = self.to_arrow()
        # a column of Parquet holds one type, the levels of a category may be of several
        except Exception as error:
            raise FileError(f"cannot write {str(path)!r}: {error}; try a .json file") from None
        write_sealed(path, table, {MARK: content})

    def to_arrow(self) -> tuple[Any, dict[str, Any]]:
        """All that `save` writes to a Parquet file: an Arrow table, and plain values."""
        scores = pd.DataFrame(self.scores.double().numpy(), index=self.after.index)
        parts = {"after:": self.after, "before:": self.before, "score:": scores}
        table = pd.concat([part.add_prefix(prefix) for prefix, part in parts.items()], axis=1)
        known: dict[str, Any] = {
            "status": self.status_codes,
            "reason": self.reasons,
            "source": self.source,
        }
        known["label"] = self.goal.label.numpy()
        if self.estimate_before is not None:
            known["estimate_before"] = self.estimate_before.squeeze(1).double().numpy()
        table = table.assign(**{f"holdfast:{name}": values for name, values in known.items()})
        content = {
            "run": asdict(self.run),
            "schema": self.schema.to_dict(),
            "classes": list(self.classes),
            "goal": {k: v for k, v in asdict(self.goal).items() if k not in ("label", "k")},
            "dtype": str(self.x.dtype).removeprefix("torch."),
        }
        return untyped("pyarrow").Table.from_pandas(table), content

    @classmethod
    def load(cls, path: str | Path) -> "Counterfactuals":
        """Read a .parquet file written by `save`."""
        if Path(path).suffix.lower() in (".json", ".csv"):
            raise FileError(_why_not_loaded(Path(path)))
        table = read_sealed(path, MARK, NOT_OURS)
        with damage_named(path):
            return cls.from_arrow(table)

    @classmethod
    def from_arrow(cls, arrow: Any) -> "Counterfactuals":
        """The answers of an Arrow table as `read_sealed` gives it; an error of any kind where its
        parts do not fit together."""
        content: dict[str, Any] = content_of(arrow, MARK)
        table: pd.DataFrame = arrow.to_pandas()
        schema = Schema.from_dict(content["schema"])
        after = _columns_with(table, "after:")
        before = _columns_with(table, "before:")
        # Rows are encoded again rather than stored: that is exact, and half the file.
        dtype = DTYPES[content["dtype"]]
        scores = torch.tensor(_columns_with(table, "score:").to_numpy(np.float64), dtype=dtype)
        label = torch.tensor(table["holdfast:label"].to_numpy(np.int64))
        goal_type = IntervalTarget if "unit" in content["goal"] else BoundTarget
        goal = goal_type(label, k=scores.shape[1], **content["goal"])
        codes = table["holdfast:status"].to_numpy(np.int64)
        source = table["holdfast:source"].to_numpy(np.int64)
        estimate_before = None
        if "holdfast:estimate_before" in table:
            numbers = table[["holdfast:estimate_before"]].to_numpy(np.float64)
            estimate_before = torch.tensor(numbers, dtype=dtype)
        _check_codes(codes, label, max(len(content["classes"]), scores.shape[1]))
        return cls(
            before=before,
            after=after,
            x=schema.encode(before, dtype),
            x_cf=schema.encode(after, dtype),
            scores=scores,
            goal=goal,
            status_codes=codes,
            reasons=list(table["holdfast:reason"]),
            source=source,
            schema=schema,
            classes=tuple(content["classes"]),
            run=run_of(content["run"]),
            estimate_before=estimate_before,
        )


def _check_codes(codes: npt.NDArray[np.int64], label: Tensor, classes: int) -> None:
    """An error unless every status is one, and every label is a class."""
    strange = sorted({*codes.tolist()} - {int(status) for status in Status})
    if strange:
        raise ValueError(f"there is no status {strange[0]}")
    strange = label[(label < 0) | (label >= classes)].numpy()
    if len(strange):
        raise ValueError(f"there is no class {strange[0]} of {classes}")


def _columns_with(table: pd.DataFrame, prefix: str) -> pd.DataFrame:
    """The columns whose names begin so, by the rest of their names."""
    names = [name for name in table.columns if str(name).startswith(prefix)]
    return table[names].rename(columns=lambda name: str(name).removeprefix(prefix))


def run_of(content: dict[str, Any]) -> Run:
    """A Run from JSON, which knows lists and no tuples."""
    signatures = tuple(tuple(map(float, row)) for row in content.get("signatures", ()))
    return Run(
        **dict[str, Any](
            content, guided_by=tuple(content.get("guided_by", ())), signatures=signatures
        )
    )


def _some(values: Any, rows: npt.NDArray[np.int64]) -> Any:
    """Some rows of a table, a tensor, an array or a list; anything else is about all of them."""
    if isinstance(values, pd.DataFrame):
        return values.iloc[rows]
    if isinstance(values, list):
        return [values[i] for i in rows.tolist()]
    return (
        cast(Any, values)[rows] if isinstance(values, Tensor | BoundTarget | np.ndarray) else values
    )


def _why_not_loaded(path: Path) -> str:
    """Why a CSV or JSON file is not enough: it has answers without what they were made of, or is
    not of answers at all."""
    from holdfast.datasets.tables import read_table

    if not path.is_file():
        return f"no file at {str(path)!r}"
    columns = set(read_table(path).columns)
    if {"status", "sentence"} <= {str(name).removeprefix("holdfast_") for name in columns}:
        return (
            f"{str(path)!r} has the answers and nothing else; read it with hf.datasets.read_table, "
            "and save to a .parquet file to load all of it again"
        )
    return (
        f"{str(path)!r} is a table without answers; make some with `holdfast explain` or a "
        "method's explain, and save them to a .parquet file"
    )
