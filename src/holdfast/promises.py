"""What a schema promises, checked in the user's units on the tables themselves.

`violations` shares no code with the projection: a mistake there cannot hide itself here.
"""

from typing import Any

import numpy as np
import torch

from holdfast.feature import Array
from holdfast.schema import Schema

_MOVES = {"fixed": "fixed", "up": "only allowed to rise", "down": "only allowed to fall", "free": "not movable"}


def blocked(schema: Schema, numbers: Array) -> Any:
    """(n, features) rows of people -> for each why nothing can be reached at all, or ''."""
    reason = np.full(len(numbers), "", dtype=object)
    forced = np.zeros(len(numbers), dtype=np.int64)
    reach = schema.reach(schema.encode_numbers(numbers, torch.float64))
    for i, (f, s) in enumerate(zip(schema.features, schema.slices, strict=True)):
        value = numbers[:, i]
        if f.is_category:
            outside = ~f.may_become()[value.astype(np.int64)] & (value < len(f.levels))
        else:
            outside = (value < f.limits[0]) | (value > f.limits[1])
        if not outside.any():
            continue
        forced += outside
        stuck = outside & (reach.lo[:, s] >= reach.hi[:, s]).all(1).numpy() & (reason == "")
        shown = f.values(value[stuck], None).tolist()
        reason[stuck] = [f"{f.label or f.name} is {v}, which the schema does not allow, and is {_MOVES[f.change]}" for v in shown]
    if schema.max_changes:
        many = (forced > schema.max_changes) & (reason == "")
        reason[many] = f"more than max_changes = {schema.max_changes} values are not allowed by the schema"
    at = reach.layout
    for rule, weights, bound in zip(schema.rules, at.rules, at.bounds, strict=True):
        used = weights != 0
        ends = torch.minimum(weights[used] * reach.lo[:, used], weights[used] * reach.hi[:, used])
        reason[(ends.sum(1) > bound + 1e-9).numpy() & (reason == "")] = f"rule {rule.text!r} cannot be kept from here"
    return reason


def violations(schema: Schema, before: Array, after: Array) -> Any:
    """(n, features) rows before and after -> for each answer the first promise it breaks, or ''."""
    broken = np.full(len(after), "", dtype=object)

    def note(bad: Any, what: str) -> None:
        if bad.any():
            broken[bad & (broken == "")] = what

    moved = before != after
    for i, f in enumerate(schema.features):
        was, now = before[:, i], after[:, i]
        if f.is_category:
            gone = now >= len(f.levels)
            note(~f.may_become()[now.astype(np.int64)] & ~gone, f"{f.name}: a level that is not allowed")
            note(moved[:, i] & gone, f"{f.name}: became missing")
        else:
            low, high = f.limits
            note((now < low) | (now > high), f"{f.name}: outside {low:g} to {high:g}")
            if f.grid:
                note(moved[:, i] & (np.abs(now / f.grid - np.round(now / f.grid)) > 1e-9), f"{f.name}: between steps")
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
