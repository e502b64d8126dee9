"""What to do, in words: one sentence per answer, such as

    Raise savings from 200 to 1,150 and shorten the loan from 36 to 24 months.

A number that was missing is filled in: "fill in income: 4,200 (was missing)". For a regression
model the sentence ends in what becomes of the estimate: "... : the model's estimate rises from
212,000 to 251,300."

Numbers are rounded for people. An answer often lies just past the point where the decision turns,
so the number to reach is rounded away from the person's own: rounded the other way, half of all
sentences would fall short.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from holdfast._core.types import Array, Ints, Mask
from holdfast.schema.columns import differ
from holdfast.schema.feature import Feature, Level
from holdfast.target import DIGITS, HUGE, MOST_DECIMALS, IntervalTarget, Status, written

if TYPE_CHECKING:
    from holdfast.counterfactuals import Counterfactuals


CURRENCIES = ("$", "€", "£", "¥", "₹")
MISSING = "missing"
EMPTY = "(empty)"
ATTACHED = ("%", "°", "‰")
# A level that reads well without quotation marks: up to four plain words that could not belong to
# the sentence.
PLAIN_LEVEL = re.compile(
    r"(?!.*\b(?:and|at|by|for|from|in|of|on|or|to|with)\b)[\w.+%-]*\w[\w.+%-]*(?: [\w.+%-]+){0,3}",
    re.IGNORECASE,
)


@dataclass(frozen=True, eq=False)
class Moves:
    """The answers in which one feature changes."""

    feature: Feature
    rows: Ints  # (m,) row numbers
    size: Array  # (m,) encoded change
    way: Ints  # (m,) 1 raised, -1 lowered, 0 switched
    was_missing: Mask  # (m,) numbers that are filled in
    before: list[str]
    after: list[str]

    @property
    def unit(self) -> str:
        """What follows the number to reach: ' months', or nothing if the numbers carry their
        unit."""
        f = self.feature
        bare = (
            f.is_category or f.kind == "boolean" or not f.unit or f.unit in (*CURRENCIES, *ATTACHED)
        )
        return "" if bare else f" {f.unit}"

    def phrases(self) -> list[str]:
        """One clause per answer: 'shorten the loan from 36 to 24 months'."""
        f = self.feature
        unit = self.unit
        verb = {1: f.verbs[0], -1: f.verbs[1], 0: "change"}
        name = label(f)
        pairs = zip(self.before, self.after, strict=True)
        pairs = (_quoted(*pair) for pair in pairs) if f.levels else pairs
        return [
            f"fill in {name}: {now}{unit} (was missing)"
            if filled
            else f"{verb[way]} {name} from {was} to {now}{unit}"
            for way, filled, (was, now) in zip(
                self.way.tolist(), self.was_missing.tolist(), pairs, strict=True
            )
        ]


def label(feature: Feature) -> str:
    """The feature inside a sentence: its label, or its name with spaces."""
    return feature.label or " ".join(feature.name.replace("_", " ").split()) or feature.name


def heading(feature: Feature) -> str:
    """The feature on its own, as above a column: 'the loan' is headed 'loan'."""
    return re.sub(r"^the\s+(?=\S)", "", label(feature), flags=re.IGNORECASE)


def headings(features: Sequence[Feature]) -> list[str]:
    """One heading per feature; if two would be the same, the names tell them apart."""
    names = [heading(f) for f in features]
    return [
        h if names.count(h) == 1 else f"{h} ({f.name})"
        for h, f in zip(names, features, strict=True)
    ]


def sentences(cfs: "Counterfactuals") -> "pd.Series[str]":
    """One sentence per row; the largest encoded change comes first."""
    parts = moves(cfs, cfs.answered)
    lines: list[list[str]] = [[] for _ in range(len(cfs))]
    if parts:
        rows: Ints = np.concatenate([m.rows for m in parts])
        size = np.concatenate([m.size for m in parts])
        place = np.repeat(np.arange(len(parts)), [len(m.rows) for m in parts])
        phrases = [p for m in parts for p in m.phrases()]
        order: list[int] = np.lexsort((place, -size, rows)).tolist()
        for i in order:
            lines[int(rows[i])].append(phrases[i])
    effects = _effects(cfs)
    out = [
        _sentence(*row)
        for row in zip(cfs.status_codes.tolist(), cfs.reasons, lines, effects, strict=True)
    ]
    return pd.Series(out, index=cfs.after.index, dtype=object)


def _effects(cfs: "Counterfactuals") -> list[str]:
    """': the model's estimate rises from 212,000 to 251,300' for each answer of a regression model,
    else nothing."""
    goal = cfs.goal
    effects = [""] * len(cfs)
    rows = np.flatnonzero(cfs.answered)
    if not isinstance(goal, IntervalTarget) or cfs.estimate_before is None or not len(rows):
        return effects
    was = goal.value(cfs.estimate_before).numpy()[rows]
    now = goal.value(cfs.scores).numpy()[rows]
    f = Feature("estimate", bounds=(goal.low, goal.high), scale=goal.unit)
    before, after = _numbers(f, was, now)
    for i, up, a, b in zip(rows.tolist(), (now > was).tolist(), before, after, strict=True):
        effects[i] = f": the model's estimate {'rises' if up else 'falls'} from {a} to {b}"
    return effects


def _sentence(code: int, reason: str, phrases: list[str], effect: str) -> str:
    if code in (Status.FOUND, Status.FRAGILE) and phrases:
        text = joined(phrases) + effect
        text += f", but {reason}" if code == Status.FRAGILE else ""
    else:
        text = "No answer" if code in (Status.NOT_FOUND, Status.IMPOSSIBLE) else "Nothing to change"
        text += f": {reason}" if reason else ""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def joined(parts: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def moves(cfs: "Counterfactuals", rows: Mask) -> list[Moves]:
    """What changes in the rows of the mask, feature by feature, without features that never
    change."""
    out: list[Moves] = []
    for f in cfs.schema.features:
        was = f.numbers(cfs.before[f.name])
        now = f.numbers(cfs.after[f.name])
        changed = np.flatnonzero(rows & differ(was, now))
        if not len(changed):
            continue
        was = was[changed]
        now = now[changed]
        missing = np.isnan(was)
        was = np.where(missing, f.stand_in, was) if f.has_gaps else was
        switched = f.is_category or f.kind == "boolean"
        # In a category one level goes and one comes; for a missing number the column that marks it
        # changes too.
        size = (
            np.full(len(changed), 2.0) if f.is_category else np.abs(now - was) / f.scale + missing
        )
        way = np.where(switched | missing, 0, np.sign(now - was)).astype(np.int64)
        before, after = (
            _levels(f, was, now) if f.levels or f.kind == "boolean" else _numbers(f, was, now)
        )
        before = [
            MISSING if filled else value
            for filled, value in zip(missing.tolist(), before, strict=True)
        ]
        out.append(Moves(f, changed, size, way, missing, before, after))
    return out


# ---- values in words


def _levels(f: Feature, was: Array, now: Array) -> tuple[list[str], list[str]]:
    names = [_level(v) for v in f.levels] + [MISSING] if f.levels else ["no", "yes"]
    return [names[i] for i in was.astype(np.int64)], [names[i] for i in now.astype(np.int64)]


def _level(value: Level) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        f"{value:g}"
        if isinstance(value, float) and float(f"{value:g}") == value
        else str(value) or EMPTY
    )


def _quoted(was: str, now: str) -> tuple[str, str]:
    """Levels, both with quotation marks if one of them would run into the sentence, else
    neither."""
    if all(v == EMPTY or PLAIN_LEVEL.fullmatch(v) for v in (was, now)):
        return was, now
    was = was if was in (EMPTY, MISSING) else f"“{was}”"
    now = now if now in (EMPTY, MISSING) else f"“{now}”"
    return was, now


def _numbers(f: Feature, was: Array, now: Array) -> tuple[list[str], list[str]]:
    change = np.abs(now - was)
    # a number that was missing may be its stand-in
    decimals = _decimals(f, np.where(change > 0, change, f.scale))
    plain = (np.maximum(np.abs(was), np.abs(now)) < HUGE) & (decimals <= MOST_DECIMALS)
    digits: list[int | None] = [
        d if ok else None for d, ok in zip(decimals.tolist(), plain.tolist(), strict=True)
    ]
    rounded = np.where(plain, _outward(f, was, now, np.minimum(decimals, MOST_DECIMALS)), now)
    before = [_number(v, d, f.unit) for v, d in zip(was.tolist(), digits, strict=True)]
    after = [_number(v, d, f.unit) for v, d in zip(rounded.tolist(), digits, strict=True)]
    return before, after


def _decimals(f: Feature, change: Array) -> Ints:
    """(m,) as many as the feature's step has, or DIGITS of its range, and at least two digits of
    the change, so before and after cannot look the same."""
    span = f.seen[1] - f.seen[0]
    span = span if math.isfinite(span) and span > 0 else f.scale
    usual = DIGITS - 1 - math.floor(math.log10(span))
    if f.grid:
        exponent = Decimal(repr(f.grid)).normalize().as_tuple().exponent
        stepped = -int(exponent)
        usual = stepped if stepped <= 6 else usual
    needed = np.ceil(-np.log10(change)) + 1
    return np.maximum(needed, min(max(usual, 0), MOST_DECIMALS)).astype(np.int64)


def _outward(f: Feature, was: Array, now: Array, decimals: Ints) -> Array:
    """The numbers to reach, rounded away from where they started unless that leaves the bounds."""
    ten = 10.0**decimals
    ticks = now * ten
    dust = np.clip(1e-6 * np.abs(ticks), 1e-6, 1e-2)  # float32 columns hold 0.7 as 0.69999999
    up = np.ceil(ticks - dust) / ten
    down = np.floor(ticks + dust) / ten
    away = np.where(now > was, up, down)
    back = np.where(now > was, down, up)
    low, high = f.bounds
    return np.where((away >= low) & (away <= high), away, back)


def _number(value: float, decimals: int | None, unit: str = "") -> str:
    """1150.0 -> '1,150'; the unit is added only if it sticks to the number."""
    text = written(value, decimals)
    if unit in CURRENCIES:
        return f"-{unit}{text[1:]}" if text.startswith("-") else unit + text
    return text + unit if unit in ATTACHED else text
