"""Simple pages of results: the finding, its picture and its table, in one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from holdfast._core.checks import optional
from holdfast.render.charts.theme import row_names, to_svg
from holdfast.render.html import MOST_ROWS, inline_svg, provenance, write_page

if TYPE_CHECKING:
    from holdfast.auditing.audit import Audit
    from holdfast.plans.frontier import Frontier


class Study(Protocol):
    """A result whose page has only its summary, its chart and its table."""

    def summary(self) -> str: ...

    def plot(self) -> Any: ...

    def table(self) -> pd.DataFrame: ...


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
        chart: None if there is nothing to draw.
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


def study_page(
    study: Study, path: str | Path, title: str, caption: str, facts: Sequence[tuple[str, str]]
) -> Path:
    """Write the page of a study: its summary, its chart and its table."""
    return result_page(
        Path(path),
        title=title,
        headline=study.summary(),
        chart=study.plot(),
        caption=caption,
        table=study.table(),
        facts=facts,
    )


def written(value: Any) -> str:
    """A cell of a table: numbers with four digits, nothing for a missing value."""
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return str(value)


def audit_page(audit: "Audit", path: Path, *, hold: float, confidence: float) -> Path:
    """Survival against cost, and what is certified."""
    optional("altair", "plot")
    answers = int(audit.cfs.answered.sum())
    chart = audit.plot(hold=hold, confidence=confidence) if answers else None
    survival = float(np.nanmean(audit.survival())) if answers else float("nan")
    families = [f"{name}: {int((audit.family == name).sum()):,}" for name in audit.families]
    certified = "n/a"
    if not audit.too_few(hold=hold, confidence=confidence):
        certified = f"{int(audit.certified(hold=hold, confidence=confidence).sum()):,}"
    return result_page(
        path,
        title="Audit",
        headline=audit.statement(hold=hold, confidence=confidence),
        figures=[
            ("Answers", f"{answers:,}", f"of {len(audit.cfs):,} rows"),
            ("Models", f"{len(audit.held):,}", ", ".join(families)),
            ("Mean survival", f"{survival:.1%}" if answers else "n/a", "models that accept"),
            ("Certified", certified, f"{100 * hold:g}% of models, {100 * confidence:g}% sure"),
        ],
        chart=chart,
        caption="One dot per answer: what it costs, and the share of the models that accept it.",
        table=audit.table(hold=hold, confidence=confidence),
        facts=provenance(audit.cfs.run),
    )


def frontier_page(frontier: "Frontier", path: Path) -> Path:
    """What each share of models costs."""
    optional("altair", "plot")
    costs = frontier.costs()
    reached = costs.notna().sum()
    people = len(costs)
    figures = [
        (
            f"{100 * hold:g}% of models",
            f"{costs[hold].median():.2f}" if reached[hold] else "n/a",
            f"median cost, reached by {reached[hold]:,} of {people:,}",
        )
        for hold in frontier.holds
    ]
    return result_page(
        path,
        title="What certainty costs",
        headline=f"The cheapest plan of {people:,} people, by how many models are to accept it.",
        figures=figures,
        chart=frontier.plot() if bool(reached.any()) else None,
        caption="One thin line per person; the thick one is the median of those who can have it.",
        table=frontier.table(),
        facts=provenance(frontier.judged_by.cfs.run),
    )
