"""Simple pages of results: what was found out, its picture and its table, in one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from holdfast._core.checks import optional
from holdfast.render.charts.theme import row_names, to_svg
from holdfast.render.html import MOST_ROWS, inline_svg, write_page

Figures = Sequence[tuple[str, str, str]]  # name, number, small print


def result_page(
    path: Path,
    *,
    title: str,
    headline: str,
    figures: Figures = (),
    chart: Any = None,
    caption: str = "",
    table: pd.DataFrame,
    facts: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write a page with a headline, figures, a chart and a table.

    Args:
        chart: None where there is nothing to draw.
        caption: what the chart shows.
        facts: where it comes from, by name.
    """
    optional("vl_convert", "plot")
    shown = table.head(MOST_ROWS)
    rows = zip(row_names(shown.index), shown.itertuples(index=False, name=None), strict=True)
    return write_page(
        path,
        "result.html",
        heading=title,
        headline=headline,
        figures=list(figures),
        chart=None if chart is None else inline_svg(to_svg(chart)),
        caption=caption,
        columns=[str(name) for name in shown.columns],
        rows=[(name, [written(value) for value in row]) for name, row in rows],
        total=len(table),
        provenance=list(facts),
    )


def written(value: Any) -> str:
    """A cell of a table: numbers with four digits, nothing where a value is missing."""
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return str(value)
