"""Plans for people: a page in one file, a table for notebooks, and one for terminals.

All of them show only what changes, what it costs, how many retrained models accept it, and whether
that is certified; people without a plan that holds stay in, with the reason.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from holdfast._core.checks import optional
from holdfast.render import certificates
from holdfast.render.charts.audit import survival_cost
from holdfast.render.charts.theme import MOST_BARS, MOST_DOTS, changed_features, to_svg
from holdfast.render.html import (
    MOST_ROWS,
    Cell,
    Line,
    inline_svg,
    middle,
    provenance,
    render,
    several_each,
    shortened,
    some_names,
    table_lines,
    write_page,
)
from holdfast.render.sentences import Ints, headings, moves, sentences
from holdfast.target import Status

if TYPE_CHECKING:
    from holdfast.counterfactuals import Counterfactuals
    from holdfast.plans import Plans

UNLUCKY = (
    "The confidence is over training tables too: a table that is unlucky is unlucky for many "
    "plans at once.",
)
# None: too few models for any certificate
CERTIFIED = {True: "certified", False: "not certified", None: ""}


@dataclass(frozen=True)
class PlanLine:
    """One person."""

    line: Line
    cost: str
    accepted: str  # '99 of 101', or nothing where there is no plan
    bound: str  # 'at least 95.4%'
    share: float
    low: float  # the bound that a certificate rests on
    certified: bool | None
    sentence: str

    @property
    def verdict(self) -> str:
        """Whether it is certified, in words."""
        return CERTIFIED[self.certified] if self.accepted else ""

    @property
    def cells(self) -> list[Cell]:
        """What changes, largest first."""
        return list(self.line.cells.values())


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
    holding = plan_lines(plans, found[:MOST_ROWS])
    shaky = plan_lines(plans, fragile[:MOST_ROWS])
    without = plan_lines(plans, open_[:MOST_ROWS])
    used = {cell.feature for person in holding for cell in person.cells}
    answered = int(cfs.answered.sum())
    dots = survival_cost(
        plans.audit, at_least=plans.hold, confidence=plans.confidence, norm="weighted"
    )
    return write_page(
        path,
        "plans.html",
        headline=headline(plans),
        figures=figures(plans),
        several=several_each(cfs),
        scatter=inline_svg(to_svg(dots)) if answered else None,
        answered=answered,
        dots=min(answered, MOST_DOTS),
        bars=inline_svg(to_svg(changed_features(cfs))) if len(found) else None,
        bars_left_out=len(moves(cfs, cfs.found)) > MOST_BARS,
        most_bars=MOST_BARS,
        holding=holding,
        found=len(found),
        features=[n for n in headings(cfs.schema.features) if n in used],
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
    shown = plan_lines(plans, np.arange(min(len(plans), most)))
    return render("plans-table.html", people=shown, words=plans.words(), total=len(plans))


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
    marks = {True: "yes", False: "no", None: "-"}
    for person in plan_lines(plans, np.arange(min(len(plans), most))):
        line = person.line
        changes = [f"{c.feature}: {c.before} → {c.after}{c.unit}" for c in person.cells]
        status = f"{line.status}{': ' * bool(line.reason)}{line.reason}"
        what = [*changes, *([status] if line.status != Status.FOUND.words else [])]
        accepted = f"{person.accepted}\n{person.bound}" if person.accepted else ""
        mark = marks[person.certified] if person.accepted else ""
        name = f"{line.name} ({line.answer})" if line.answer else line.name
        # As Text: a level "[red]" is no markup.
        table.add_row(*map(Text, (name, "\n".join(what) or "nothing", person.cost, accepted, mark)))
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, force_terminal=False).print(table)
    lines = [line.rstrip() for line in out.getvalue().rstrip().split("\n")]
    more = [f"The first {most} of {len(plans):,}."] if len(plans) > most else []
    return "\n".join([*lines, *more])


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
    if too_few(plans):
        return f"{text}; there are too few retrained models for certificates."
    certified = int(plans.certified.to_numpy().sum())
    each = certificates.level(plans.hold, plans.confidence, plans.audit.families)
    return (
        f"{text}; {certified:,} plan{'s are' if certified != 1 else ' is'} certified: each {each}."
    )


def figures(plans: "Plans") -> list[tuple[str, str, str]]:
    """(name, number, small print) at a glance."""
    n = len(plans)
    codes = plans.cfs.status_codes
    cfs = plans.cfs
    count = {s: int((codes == s).sum()) for s in Status}
    share = {s: f"{count[s] / n:.0%}" if n else "" for s in Status}
    proved = (
        f"{count[Status.IMPOSSIBLE]:,} proved impossible"
        if count[Status.IMPOSSIBLE]
        else "nothing within reach"
    )
    met = count[Status.ALREADY_MET]
    needed = len(plans.audit.held)
    certified = "n/a" if too_few(plans) else f"{int(plans.certified.sum()):,}"
    level = f"each for {100 * plans.hold:g}% of models, {100 * plans.confidence:g}% sure"
    together = plans.together()
    every = (
        f"all at once at least {certificates.rounded_down(together)}"
        if together == together
        else ""
    )
    return [
        (
            "People",
            f"{_people(cfs, np.ones(n, bool)):,}",
            f"{met:,} have it already" if met else "asked about",
        ),
        (
            "Plans that hold",
            f"{count[Status.FOUND]:,}",
            f"{share[Status.FOUND]} of people" if n else "",
        ),
        ("Certified", certified, f"{level}{'; ' * bool(every)}{every}"),
        ("Fragile", f"{count[Status.FRAGILE]:,}", "too few models accept"),
        ("No plan", f"{count[Status.NOT_FOUND] + count[Status.IMPOSSIBLE]:,}", proved),
        (
            "Median cost",
            middle(cfs.cost("weighted"), cfs.found, "median", ".2f"),
            "of plans that hold, see below",
        ),
        (
            "Mean survival",
            middle(plans.survival, cfs.found, "mean", ".1%"),
            "of plans that hold",
        ),
        ("Judges", f"{needed:,}", "models that had no part in the search"),
    ]


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
    return [*out, plans.words(), *UNLUCKY[: not too_few(plans) and bool(plans.certified.any())]]


def too_few(plans: "Plans") -> bool:
    """Are there too few models for any certificate?"""
    return bool(plans.audit.too_few(at_least=plans.hold, confidence=plans.confidence))


def bar_start(plans: "Plans") -> float:
    """Where the bars of survival start: a round share below all bounds of plans that hold."""
    low = plans.bound.to_numpy()[plans.found]
    return float(np.floor(10 * min([plans.hold, *low.tolist()]) - 1e-9) / 10)


def plan_lines(plans: "Plans", rows: Ints) -> list[PlanLine]:
    """The people of these row numbers as strings."""
    cfs = plans.cfs
    audit = plans.audit
    cost, held, models = cfs.cost("weighted").to_numpy(), audit.held.sum(0), len(audit.held)
    bounds = plans.bound.tolist()
    certified: Sequence[bool | None] = (
        [None] * len(cfs) if too_few(plans) else plans.certified.tolist()
    )
    words: list[str] = sentences(cfs).tolist()
    answered = cfs.answered.tolist()
    out = list[PlanLine]()
    numbers = cast(list[int], rows.tolist())
    for i, line in zip(numbers, table_lines(cfs, rows), strict=True):
        there = bool(answered[i])
        out.append(
            PlanLine(
                line=line,
                cost=f"{cost[i]:.2f}" if there else "",
                accepted=certificates.holds_on(held[i], models) if there else "",
                bound=f"at least {certificates.rounded_down(bounds[i])}" if there else "",
                share=float(held[i]) / models,
                low=bounds[i],
                certified=certified[i],
                sentence=words[i],
            )
        )
    return out


def _people(cfs: "Counterfactuals", chosen: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> int:
    """How many people the chosen answers are for."""
    return len(np.unique(cfs.source[chosen]))
