"""Plans for people: a page in one file, a table for notebooks, and one for terminals.

All of them show only what changes, what it costs, how many retrained models accept it, and whether
that is certified; people without a plan that holds stay in, with the reason.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holdfast._core.checks import optional
from holdfast.auditing import certificates
from holdfast.plans.plan import Plan, plans_at
from holdfast.render.changes import changed_labels
from holdfast.render.charts.theme import MOST_BARS, MOST_DOTS, changed_features, to_svg
from holdfast.render.html import (
    MOST_ROWS,
    inline_svg,
    middle,
    provenance,
    render,
    several_each,
    shortened,
    some_names,
    write_page,
)
from holdfast.render.sentences import moves
from holdfast.target import Status

if TYPE_CHECKING:
    from holdfast.counterfactuals import Counterfactuals
    from holdfast.plans.plans import Plans

UNLUCKY = (
    "The confidence is over training tables too: a table that is unlucky is unlucky for many "
    "plans at once.",
)

MARKS = {True: "yes", False: "no", None: "-"}


def write_plans(plans: "Plans", path: Path) -> Path:
    """Write plans, costs, survival and certificates to one self-contained HTML file; needs the
    `plot` extra."""
    for module in ("altair", "vl_convert"):  # before any work
        optional(module, "plot")
    codes = plans.cfs.status_codes
    cfs = plans.cfs
    found = np.flatnonzero(cfs.found)
    fragile = np.flatnonzero(codes == Status.FRAGILE)
    open_ = np.flatnonzero(cfs.failed)
    holding = plans_at(plans, found[:MOST_ROWS])
    shaky = plans_at(plans, fragile[:MOST_ROWS])
    without = plans_at(plans, open_[:MOST_ROWS])
    answered = int(cfs.answered.sum())
    return write_page(
        path,
        "plans.html",
        headline=headline(plans),
        figures=figures(plans),
        several=several_each(cfs),
        scatter=inline_svg(to_svg(plans.plot())) if answered else None,
        answered=answered,
        dots=min(answered, MOST_DOTS),
        bars=inline_svg(to_svg(changed_features(cfs))) if len(found) else None,
        bars_left_out=len(moves(cfs, cfs.found)) > MOST_BARS,
        most_bars=MOST_BARS,
        holding=holding,
        found=len(found),
        features=changed_labels(cfs, [plan.changes for plan in holding]),
        shaky=shaky,
        fragile=len(fragile),
        without=without,
        open=len(open_),
        hold=plans.hold,
        start=bar_start(plans),
        met=some_names(cfs, np.flatnonzero(codes == Status.ALREADY_MET)),
        checked=checked(plans),
        provenance=provenance(cfs.run),
    )


def plans_table(plans: "Plans", most: int = 50) -> str:
    """The first plans as an HTML fragment, for notebooks."""
    shown = plans_at(plans, np.arange(min(len(plans), most)))
    return render("plans-table.html", people=shown, summary=plans.summary(), total=len(plans))


def plans_text(plans: "Plans", most: int, width: int) -> str:
    """The first plans for a terminal: one line per change, and no wider than asked for."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("person", overflow="fold")
    table.add_column("what changes", overflow="fold", ratio=1)
    table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("holds on")
    table.add_column("certified")
    for plan in plans_at(plans, np.arange(min(len(plans), most))):
        # As Text: a level "[red]" is not markup.
        table.add_row(*map(Text, _cells(plan)))
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, force_terminal=False).print(table)
    lines = [line.rstrip() for line in out.getvalue().rstrip().split("\n")]
    more = [f"The first {most} of {len(plans):,}."] if len(plans) > most else []
    return "\n".join([*lines, *more])


def _cells(plan: Plan) -> tuple[str, ...]:
    """One person in a table on a terminal."""
    lines = [f"{change.label}: {change.was} → {change.becomes}" for change in plan.changes]
    if plan.status != Status.FOUND.words:
        lines.append(f"{plan.status}: {plan.reason}" if plan.reason else plan.status)
    return (
        f"{plan.name} ({plan.place})" if plan.place else plan.name,
        "\n".join(lines) or "nothing",
        f"{plan.cost:.2f}" if plan.holds_on else "",
        f"{plan.holds_on}\n{plan.bound_in_words}" if plan.holds_on else "",
        MARKS[plan.certified] if plan.holds_on else "",
    )


# ---- what the pages say


def headline(plans: "Plans") -> str:
    """One line: how many people have a plan that holds, and what is certified."""
    people = _people(plans.cfs, np.ones(len(plans), bool))
    found = _people(plans.cfs, plans.found)
    if not people:
        return "No people were asked about."
    met = _people(plans.cfs, plans.cfs.status_codes == Status.ALREADY_MET)
    wanted = shortened(plans.cfs.run.target, 60)
    have = f"{found:,} of {people:,} {'people have' if people != 1 else 'person has'}"
    already = f", {met:,} ha{'s' if met == 1 else 've'} it already" if met else ""
    if plans.refused:
        return f"No certificates: {plans.refused} {have} a plan ({wanted}){already}."
    text = f"{have} a plan that holds ({wanted}){already}"
    if plans.too_few():
        return f"{text}; there are too few retrained models for certificates."
    certified = int(plans.certified.to_numpy().sum())
    each = certificates.level(plans.hold, plans.confidence, plans.audit.families)
    return (
        f"{text}; {certified:,} plan{'s are' if certified != 1 else ' is'} certified: each {each}."
    )


def figures(plans: "Plans") -> list[tuple[str, str, str]]:
    """(name, number, small print) at a glance."""
    n = len(plans)
    cfs = plans.cfs
    found = int(cfs.found.sum())
    count = {status: int((cfs.status_codes == status).sum()) for status in Status}
    impossible = count[Status.IMPOSSIBLE]
    met = count[Status.ALREADY_MET]
    # an empty table has neither shares nor means
    people = (
        "People",
        f"{_people(cfs, np.ones(n, bool)):,}",
        f"{met:,} have it already" if met else "asked about",
    )
    holding = (
        "Plans that hold",
        f"{found:,}",
        f"{found / n:.0%} of people" if n else "",
    )
    without = (
        "No plan",
        f"{count[Status.NOT_FOUND] + impossible:,}",
        f"{impossible:,} proved impossible" if impossible else "nothing within reach",
    )
    cost = middle(cfs.cost("weighted"), cfs.found, "median", ".2f")
    survival = middle(plans.survival, cfs.found, "mean", ".1%")
    return [
        people,
        holding,
        certified_figure(plans),
        ("Fragile", f"{count[Status.FRAGILE]:,}", "too few models accept"),
        without,
        ("Median cost", cost, "of plans that hold, see below"),
        ("Mean survival", survival, "of plans that hold"),
        ("Judges", f"{len(plans.audit.held):,}", "models that had no part in the search"),
    ]


def certified_figure(plans: "Plans") -> tuple[str, str, str]:
    """How many plans are certified, at which level, each and all at once."""
    count = "n/a" if plans.too_few() else f"{int(plans.certified.sum()):,}"
    level = f"each for {100 * plans.hold:g}% of models, {100 * plans.confidence:g}% sure"
    together = plans.together()
    if together != together:
        return "Certified", count, level
    at_once = f"all at once at least {certificates.rounded_down(together)}"
    return "Certified", count, f"{level}; {at_once}"


def checked(plans: "Plans") -> list[str]:
    """How the plans were found and put to the test, in sentences."""
    cfs = plans.cfs
    models = len(plans.audit.held)
    guides = len(cfs.run.guided_by)
    out = [f"The search was guided by {guides:,} retrained models."] if guides else []
    judged = f"Every plan was then put before {models:,} judges, which had no part in finding it"
    out.append(f"{judged}; a judge accepts a plan if it gives {plans.audit.asked}.")
    what = certificates.judges(plans.audit.families, plans.audit.spread)
    if what:
        out.append(what)
    like = plans.likeness
    if like is not None and like.alike:
        middle = (
            "trained again on the same rows a model lies"
            if like.made_again
            else "their middle lies"
        )
        near = f"{middle} {like.distance:.2g} deviations of retraining away from it"
        out.append(f"The retrained models are made as the model in use was: {near}.")
    return [*out, plans.summary(), *UNLUCKY[: not plans.too_few() and bool(plans.certified.any())]]


def bar_start(plans: "Plans") -> float:
    """Where the bars of survival start: a round share below all bounds of plans that hold."""
    low = plans.bound.to_numpy()[plans.found]
    return float(np.floor(10 * min([plans.hold, *low.tolist()]) - 1e-9) / 10)


def _people(cfs: "Counterfactuals", chosen: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> int:
    """How many people the chosen answers are for."""
    return len(np.unique(cfs.source[chosen]))
