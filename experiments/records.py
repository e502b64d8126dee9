"""The one shape of results: a record for each figure of each table.

A record says what the paper printed, what was measured, how sure that is, and what follows. Pages,
the tables of the documents, and the tests read records and nothing else; they are kept as JSON, one
per line, in `experiments/results/PAPER/records.jsonl`. A record's cells tell the rest: commit,
date, rows, processor and threads.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from holdfast._core.checks import untyped
from holdfast._core.files import write_whole

Verdict = Literal["reproduced", "differs", "no published figure", "not measured yet"]
LEVEL = 0.95
FILE = "records.jsonl"


@dataclass(frozen=True)
class Record:
    """One figure of one table.

    Args:
        paper: its citation.
        table: where the paper has it, such as "Table 2".
        dataset: what it was measured on.
        row: the method, as the page calls it.
        column: the figure.
        reported: what the paper prints, as [mean, standard deviation]; the deviation is None if it
            prints none; None if it has no such figure.
        measured: the mean over seeds; None if not measured yet.
        interval: of the mean over seeds, at 95 % by Student's t; None with fewer than two seeds.
        n: how many answers each seed was asked for.
        seeds: which seeds.
        by_seed: the figure of each seed, in their order.
        verdict: what follows, see `verdict_on`.
        note: what a reader should know about this figure.
        cells: the names of the cells it is made of.
    """

    paper: str
    table: str
    dataset: str
    row: str
    column: str
    reported: tuple[float, float | None] | None
    measured: float | None
    interval: tuple[float, float] | None
    n: int | None
    seeds: tuple[int, ...]
    by_seed: tuple[float, ...]
    verdict: Verdict
    note: str = ""
    cells: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        place: dict[str, str],
        by_seed: dict[int, float],
        reported: Sequence[float | None] | None = None,
        *,
        n: int | None = None,
        note: str = "",
        cells: Iterable[str] = (),
    ) -> "Record":
        """A record of the figures of some seeds.

        Args:
            place: paper, table, dataset, row and column.
            by_seed: seed -> the figure; empty: not measured yet.
            reported: mean and, if there is one, standard deviation.
        """
        values = list(by_seed.values())
        told = _told(reported)
        interval = interval_of(values)
        measured = float(np.mean(values)) if values else None
        return cls(
            **place,
            reported=told,
            measured=measured,
            interval=interval,
            n=n,
            seeds=tuple(by_seed),
            by_seed=tuple(values),
            verdict=verdict_on(measured, interval, told),
            note=note,
            cells=tuple(cells),
        )

    @property
    def spread(self) -> tuple[float, float] | None:
        """The lowest and the highest seed."""
        return (min(self.by_seed), max(self.by_seed)) if self.by_seed else None


def _told(reported: Sequence[float | None] | None) -> tuple[float, float | None] | None:
    if not reported or reported[0] is None:
        return None
    return reported[0], reported[1] if len(reported) > 1 else None


def interval_of(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean, by Student's t; None with fewer than two values."""
    if len(values) < 2:
        return None
    t = float(untyped("scipy.stats").t.ppf(0.5 + LEVEL / 2, len(values) - 1))
    half = t * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    mean = float(np.mean(values))
    return mean - half, mean + half


def verdict_on(
    measured: float | None,
    interval: tuple[float, float] | None,
    reported: tuple[float, float | None] | None,
) -> Verdict:
    """A figure is reproduced if the paper's lies in the interval of ours, or ours within the
    paper's own standard deviation of its figure; else it differs."""
    if measured is None:
        return "not measured yet"
    if reported is None:
        return "no published figure"
    mean, deviation = reported
    inside = interval is not None and interval[0] <= mean <= interval[1]
    near = deviation is not None and abs(measured - mean) <= deviation
    return "reproduced" if inside or near else "differs"


def write_records(path: Path, records: Sequence[Record]) -> None:
    """One record a line."""
    lines = [json.dumps(asdict(record), allow_nan=False) for record in records]
    write_whole(path, "".join(f"{line}\n" for line in lines).encode())


def read_records(path: Path) -> list[Record]:
    """The records of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Record(**_with_tuples(json.loads(line))) for line in lines]


def _with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(cast(list[Any], value)) if isinstance(value, list) else value
        for name, value in fields.items()
    }
