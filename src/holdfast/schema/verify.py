"""What a schema promises, checked in the user's units on the tables themselves.

`violations` shares no code with the projection: a mistake there cannot hide itself here.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from holdfast._core.checks import listed
from holdfast._core.types import Array, Mask
from holdfast.schema.columns import differ
from holdfast.schema.feature import Feature
from holdfast.schema.rule import Rule
from holdfast.schema.schema import Schema
from holdfast.schema.user_units import limits

_MOVES = {"fixed": "is fixed", "up": "may only rise", "down": "may only fall"}


def blocked(schema: Schema, numbers: Array) -> Any:
    """(n, features) rows of people -> for each why nothing can be reached at all, or ''."""
    # The first reason stands: single columns come before what they cannot do together.
    all_fixed = all(f.change == "fixed" for f in schema.features)
    why = "every column is fixed, so nothing may change" if all_fixed else ""
    reason = np.full(len(numbers), why, dtype=object)
    low, high = limits(schema, numbers)
    forced = np.zeros(len(numbers), dtype=np.int64)
    for i, f in enumerate(schema.features):
        outside, cannot_leave = _outside(f, numbers[:, i], low[:, i] > high[:, i])
        forced += outside
        cannot_leave &= reason == ""
        if cannot_leave.any():
            why = f"which the schema does not allow, and {_MOVES[f.change]}"
            values = f.values(numbers[cannot_leave, i], None)
            reason[cannot_leave] = [f"{f.label or f.name} is {v}, {why}" for v in values]
    if schema.max_changes:
        many = (forced > schema.max_changes) & (reason == "")
        reason[many] = [
            f"{k} values are not allowed by the schema, too many to change with at most "
            f"{schema.max_changes} change(s)"
            for k in forced[many]
        ]
    for rule in schema.rules:
        lost = _least(schema, rule, numbers, low, high) > rule.bound
        reason[lost & (reason == "")] = f"rule {rule.text!r} cannot be kept from here"
    if schema.rules:
        lost = _rules_contradict(schema, numbers)
        rules = listed(rule.text for rule in schema.rules)
        reason[lost & (reason == "")] = f"rule(s) {rules} cannot be kept from here"
    return reason


def _outside(f: Feature, value: Array, no_room: Mask) -> tuple[Mask, Mask]:
    """Which values of a column no answer may have, and which of those cannot be left either."""
    if f.is_category:
        outside = ~f.may_become()[value.astype(np.int64)] & (value < len(f.levels))
        return outside, outside & (f.change == "fixed")
    outside = (value < f.limits[0]) | (value > f.limits[1])
    return outside, outside & (no_room | (f.change == "fixed"))


def _least(schema: Schema, rule: Rule, numbers: Array, low: Array, high: Array) -> Any:
    """(n,) the least that the left side of a rule can become."""
    total: Any = 0.0
    for name, weight in rule.weights.items():
        i = schema.names.index(name)
        least = np.minimum(weight * low[:, i], weight * high[:, i])
        # a missing number can stay, and breaks none
        total = total + np.where(np.isnan(numbers[:, i]), np.nan, least)
    return total


def _rules_contradict(schema: Schema, numbers: Array) -> Mask:
    """(n,) rows from which the rules cannot be kept together, however many columns change.

    What no number of changes can do is blocked; which of them a limit leaves is for the search to
    find out.
    """
    unlimited = replace(schema, max_changes=0)
    feasible = unlimited.feasible(schema.encode_numbers(numbers, torch.float64))
    return ~feasible.contains(feasible.fallback).numpy()


def violations(schema: Schema, before: Array, after: Array) -> Any:
    """(n, features) rows before and after -> for each answer the first promise it breaks, or ''."""
    # Fields of features and nothing else: no limit that the search has calculated is trusted here.
    broken = np.full(len(after), "", dtype=object)

    def note(bad: Any, what: str) -> None:
        broken[bad & (broken == "")] = what

    moved = differ(before, after)
    for i, f in enumerate(schema.features):
        was = before[:, i]
        now = after[:, i]
        if f.levels:
            refused = np.array(
                [bool(f.allowed) and level not in f.allowed for level in f.levels] + [False]
            )
            note(refused[now.astype(np.int64)], f"{f.name}: a level that is not allowed")
            note(moved[:, i] & (now >= len(f.levels)), f"{f.name}: became missing")
        else:
            note(moved[:, i] & np.isnan(now), f"{f.name}: became missing")
            low, high = f.bounds
            note((now < low) | (now > high), f"{f.name}: outside {low:g} to {high:g}")
        if f.grid:
            off = np.abs(now - np.round(now / f.grid) * f.grid)
            note(
                moved[:, i] & (off > 1e-9 * f.grid + f.digit(now)),
                f"{f.name}: between steps of {f.grid:g}",
            )
        if f.change == "fixed":
            note(moved[:, i], f"{f.name}: fixed, but changed")
        elif f.change == "up":
            note(now < was, f"{f.name}: may only rise, but fell")
        elif f.change == "down":
            note(now > was, f"{f.name}: may only fall, but rose")
    if schema.max_changes:
        note(moved.sum(1) > schema.max_changes, f"more than {schema.max_changes} changes")
    for rule in schema.rules:
        total = sum(w * after[:, schema.names.index(n)] for n, w in rule.weights.items())
        note(np.asarray(total > rule.bound), f"rule {rule.text!r} broken")
    return broken
