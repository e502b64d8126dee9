"""A page for any result: its summary, its table and its picture, in one file that needs neither
network nor server."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from holdfast._core.checks import optional
from holdfast._core.version import version
from holdfast.render.charts.theme import to_svg
from holdfast.render.html import MOST_LETTERS, inline_svg, shortened, write_page

MOST_LINES = 500  # of the table
NOTHING = "n/a"  # where there is no number


class Shown(Protocol):
    """What the page asks of a result."""

    def summary(self) -> str: ...
    def table(self) -> pd.DataFrame: ...
    def plot(self) -> Any: ...


@dataclass(frozen=True)
class Column:
    """The head of a column, and whether its cells are numbers."""

    name: str
    number: bool


def write_result(
    result: Shown, path: str | Path, *, title: str, facts: Sequence[tuple[str, object]] = ()
) -> Path:
    """Write the page of a result; needs the `plot` extra.

    Args:
        title: the heading of the page.
        facts: names and values of what the result is about.
    """
    for module in ("altair", "vl_convert"):  # before any work
        optional(module, "plot")
    table = result.table()
    index = table.index
    numbered = isinstance(index, pd.RangeIndex) and index.name is None
    shown = table if numbered else table.reset_index()
    origin = [(name, shortened(str(value), MOST_LETTERS)) for name, value in facts]
    return write_page(
        Path(path),
        "result.html",
        title=title,
        headline=result.summary(),
        figures=[],
        picture=inline_svg(to_svg(result.plot())),
        columns=[Column(str(name), _is_number(shown[name])) for name in shown.columns],
        lines=[[cell(value) for value in line] for line in shown.head(MOST_LINES).to_numpy(object)],
        total=len(shown),
        provenance=[*origin, ("Holdfast version", version())],
    )


def _is_number(column: "pd.Series[Any]") -> bool:
    return pd.api.types.is_numeric_dtype(column.dtype)


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return NOTHING
    return f"{value:.4g}" if isinstance(value, float) else str(value)
