"""Answers as HTML: a table for notebooks, and a report in one file that needs neither network nor
server."""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast._core.checks import optional
from holdfast._core.files import write_whole
from holdfast._core.types import Ints, Mask
from holdfast.render.changes import changed_labels, changes_of
from holdfast.render.charts.theme import (
    MOST_BARS,
    MOST_DOTS,
    changed_features,
    cost_probability,
    row_names,
    to_svg,
)
from holdfast.render.sentences import joined, moves, sentences
from holdfast.target import IntervalTarget, Status

if TYPE_CHECKING:
    from holdfast.counterfactuals import Answers, Counterfactuals, Run

MOST_ROWS = 500  # in each table of the report
MOST_NAMES = 12
MOST_LETTERS = 400  # of a provenance entry: a target may name a class for every row


def changes_table(cfs: "Counterfactuals", most: int = 50) -> str:
    """Only what changes, as an HTML fragment: a column per feature that changes in one of the
    first `most` rows."""
    shown = answer_columns(cfs, np.arange(min(len(cfs), most)))
    return render(
        "changes.html",
        shown=shown,
        columns=changed_labels(cfs, shown["changes"]),
        several=several_each(cfs),
        outcome="estimate" if cfs.is_regression else "probability",
        summary=cfs.summary(),
        total=len(cfs),
    )


def write_report(cfs: "Counterfactuals", path: str | Path) -> Path:
    """Write the whole story of a run to one self-contained HTML file; needs the `plot` extra."""
    for module in ("altair", "vl_convert"):  # before any work
        optional(module, "plot")
    found = np.flatnonzero(cfs.found)
    open_ = np.flatnonzero(cfs.failed)
    accepted = np.flatnonzero(cfs.answered)  # fragile ones too: their sentence says so
    answered = answer_columns(cfs, accepted[:MOST_ROWS])
    return write_page(
        Path(path),
        "report.html",
        headline=headline(cfs),
        figures=figures(cfs),
        several=several_each(cfs),
        outcome="estimate" if cfs.is_regression else "probability",
        scatter=inline_svg(to_svg(cost_probability(cfs))) if len(found) else None,
        bars=inline_svg(to_svg(changed_features(cfs))) if len(found) else None,
        dots=min(len(found), MOST_DOTS),
        bars_left_out=len(moves(cfs, cfs.found)) > MOST_BARS,
        most_bars=MOST_BARS,
        found=len(found),
        answers=len(accepted),
        answered=answered,
        features=changed_labels(cfs, answered["changes"]),
        open=len(open_),
        unanswered=answer_columns(cfs, open_[:MOST_ROWS]),
        met=some_names(cfs, np.flatnonzero(cfs.status_codes == Status.ALREADY_MET)),
        provenance=provenance(cfs.run),
    )


# ---- what the pages say


def headline(cfs: "Counterfactuals") -> str:
    """One line: how many rows can get what, and by how many changes."""
    if not len(cfs):
        return "No rows were asked about."
    total = len(np.unique(cfs.source))
    found = cfs.found
    answered = len(np.unique(cfs.source[found]))
    met = len(np.unique(cfs.source[cfs.status_codes == Status.ALREADY_MET]))
    wanted = shortened(cfs.run.target, 60)
    text = (
        f"{answered:,} of {total:,} row{'s' * (total != 1)} can get the wanted outcome ({wanted})"
    )
    text += f", {met:,} ha{'s' if met == 1 else 've'} it already" if met else ""
    if not found.any():
        return text + "."
    changes = float(np.median(cfs.cost("l0").to_numpy()[found]))
    return f"{text}; half of the answers change {changes:g} feature{'s' * (changes != 1)} or fewer."


def figures(cfs: "Counterfactuals") -> list[tuple[str, str, str]]:
    """(name, number, small print) at a glance."""
    n = len(cfs)
    found = cfs.found
    rows = len(np.unique(cfs.source))
    if isinstance(cfs.goal, IntervalTarget):
        kept = cfs.estimate.to_numpy()[found]
        mean = cfs.goal.numbers([float(kept.mean())])[0] if len(kept) else "n/a"
        outcome = "Mean estimate", mean, "by the model, of the answers"
    else:
        outcome = (
            "Mean probability",
            middle(cfs.probability, found, "mean", ".1%"),
            "of the wanted outcome",
        )
    return [
        ("Rows", f"{rows:,}", f"{n:,} answers sought" if several_each(cfs) else "asked about"),
        *by_status(cfs, "answers" if several_each(cfs) else "rows"),
        ("Median cost", middle(cfs.cost("l1"), found, "median", ".2f"), "sum of encoded changes"),
        ("Median changes", middle(cfs.cost("l0"), found, "median", "g"), "features per answer"),
        outcome,
        (
            "Time",
            f"{cfs.run.seconds:.2f} s",
            f"{1e3 * cfs.run.seconds / n:.2g} ms per row" if n else "",
        ),
    ]


def by_status(cfs: "Answers", kind: str) -> list[tuple[str, str, str]]:
    """How many rows are found, already met and so on."""
    counts = {s: int((cfs.status_codes == s).sum()) for s in Status}
    share = {
        s: f"{count / len(cfs):.0%} of {kind}" if len(cfs) else "" for s, count in counts.items()
    }
    usual = (Status.FOUND, Status.ALREADY_MET, Status.NOT_FOUND)
    return [
        (s.words.capitalize(), f"{counts[s]:,}", share[s])
        for s in Status
        if s in usual or counts[s]
    ]


def middle(values: "pd.Series[float]", found: Mask, how: str, style: str) -> str:
    """Mean or median of what was found."""
    kept = values.to_numpy()[found]
    return format(float(getattr(np, how)(kept)), style) if len(kept) else "n/a"


def provenance(run: "Run", about: str = "Schema fingerprint") -> list[tuple[str, str]]:
    """Enough to make the answers again."""
    entries = [
        ("Method", run.method),
        ("Settings", run.settings),
        ("Target", run.target),
        ("Seed", str(run.seed)),
        ("Model fingerprint", run.model),
        (about, run.schema),
        ("Holdfast version", run.version),
        ("Created", run.created),
    ]
    return [(name, shortened(value, MOST_LETTERS)) for name, value in entries]


def answer_columns(cfs: "Counterfactuals", rows: Ints) -> pd.DataFrame:
    """What tables say of the answers at these positions, column by column."""
    some = cfs[rows]
    values: list[float] = some.goal.value(some.scores).numpy().tolist()
    if isinstance(some.goal, IntervalTarget):
        outcome = some.goal.numbers(values)
    else:
        outcome = [f"{probability:.1%}" for probability in values]
    number, several = places(cfs)
    place = [
        f"{i} of {k}" for i, k in zip(number[rows].tolist(), several[rows].tolist(), strict=True)
    ]
    columns = {
        "name": row_names(some.after.index),
        "place": place,
        "status": some.status["status"].tolist(),
        "reason": some.reasons,
        "outcome": outcome,
        "changes": changes_of(some),
        "cost": [f"{cost:.2f}" for cost in some.cost("l1")],
        "sentence": sentences(some).tolist(),
    }
    return pd.DataFrame(columns, dtype=object)


def several_each(cfs: "Counterfactuals") -> bool:
    """Are there rows with more than one answer?"""
    return len(np.unique(cfs.source)) < len(cfs)


def places(cfs: "Counterfactuals") -> tuple[Ints, Ints]:
    """(n,) which of its row's answers each one is, from 1, and how many these are."""
    groups = pd.Series(cfs.source).groupby(cfs.source)
    number = groups.cumcount().to_numpy() + 1
    several = groups.transform("size").to_numpy()
    return number.astype(np.int64), several.astype(np.int64)


def some_names(cfs: "Counterfactuals", rows: Ints) -> str:
    """'row 3', 'rows 3 and 17', 'rows 3, 5, 7 and 9 more'."""
    # one of each row's answers is enough
    first = rows[np.unique(cfs.source[rows], return_index=True)[1]]
    names = row_names(cfs.after.index[np.sort(first)[:MOST_NAMES]])
    rest = len(first) - len(names)
    return (
        f"row{'s' * (len(first) > 1)} {joined([*names, *([f'{rest:,} more'] if rest else [])])}"
        if names
        else ""
    )


def shortened(text: str, letters: int) -> str:
    """The text, or its beginning."""
    return text if len(text) <= letters else text[: letters - 1] + "…"


# ---- how they are made


@cache
def _templates() -> Environment:
    loader = PackageLoader("holdfast.render")
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: object) -> str:
    """A page or a part of one."""
    return _templates().get_template(template).render(**values)


def write_page(path: Path, template: str, **values: object) -> Path:
    """Write a page to a file, whose directory is made if need be."""
    page = render(template, **values)
    write_whole(path, page.encode())
    return path


def inline_svg(svg: str) -> Markup:
    """A chart for a page: its marks get native tooltips, and its size follows the page.

    Vega writes what a mark says into its aria-label, escaped for an attribute, which is safe as
    text too.
    """
    return Markup(
        re.sub(
            r'(<path aria-label="([^"]*)"[^>]*?)(?:/>|></path>)',
            r"\1><title>\2</title></path>",
            svg,
        )
    )
