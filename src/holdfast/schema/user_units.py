"""From encoded rows to the rows that people would hand in: every limit and rule kept exactly in the
user's units.

`FeasibleSet.project` keeps them in encoded units, to rounding. Here the projected row is decoded,
put on the grid and into the dtype of its column, and the last digits that rounding leaves over a
limit or a rule are taken off again.
"""

import math
from itertools import product

import numpy as np
import torch
from torch import Tensor

from holdfast._core.types import Array, Mask
from holdfast.schema.columns import differ
from holdfast.schema.rule import Rule
from holdfast.schema.schema import Schema

COMBINED = 6  # columns that are rounded up and down in all combinations


def settle(schema: Schema, z: Tensor, before: Array) -> tuple[Array, Mask]:
    """Encoded rows `z` (n, width) of people whose rows are `before` (n, features), in the user's
    units: the numbers (n, features), and which cells change."""
    x = schema.encode_numbers(before, torch.float64)
    # others are handed in as they are
    moved = schema.changed_features(z, x.to(z.dtype)).any(1, keepdims=True)
    same = z.double() == x.to(z.dtype).double()
    feasible = schema.feasible(x)
    z = torch.where(same, x, z.double())
    y = feasible.freeze(same & ~feasible.outside).project(z)  # move nothing else, if that is enough
    if schema.rules or schema.max_changes:
        y = torch.where(feasible.contains(y)[:, None], y, feasible.project(z))
    numbers = _exact(schema, y, x, before)
    broken = np.array([_excess(schema, rule, numbers) > 0 for rule in schema.rules]).any(0)
    if broken.any():
        rows = torch.as_tensor(broken)
        numbers[broken] = _exact(
            schema, feasible[rows].to_fallback(y[rows]), x[rows], before[broken]
        )
    return numbers, differ(numbers, before) & moved


def roundings(schema: Schema, z: Tensor, before: Array) -> Tensor:
    """(n, c, width) the encoded rows `z` (n, width) with numbers that the table can hold on either
    side of what is meant, in all combinations of the columns that round most; what does not change
    stays."""
    names = [f.name for f in schema.features if f.rounds]
    meant = schema.decode_numbers(z.double())
    size = {
        name: float((f := schema[name]).digit(np.array([f.center]))[0]) / f.scale for name in names
    }
    coarsest = [
        schema.names.index(name) for name in sorted(names, key=lambda name: -size[name])[:COMBINED]
    ]
    sides = np.array(list(product((0, 1), repeat=len(coarsest))), dtype=bool)  # (c, columns)
    numbers = np.repeat(meant[:, None], len(sides), 1)
    for side, i in zip(sides.T, coarsest, strict=True):
        low, high = schema.features[i].neighbors(meant[:, i])
        numbers[..., i] = np.where(side, high[:, None], low[:, None])
    rows = schema.encode_numbers(numbers.reshape(-1, meant.shape[1]), z.dtype).view(
        len(z), len(sides), -1
    )
    same = z == schema.encode_numbers(before, z.dtype)
    return torch.where(same[:, None], z[:, None], rows)


def limits(schema: Schema, before: Array) -> tuple[Array, Array]:
    """(n, features) the lowest and the highest number each person may hand in; of numbers, not
    categories."""
    low = np.tile([f.limits[0] for f in schema.features], (len(before), 1))
    high = np.tile([f.limits[1] for f in schema.features], (len(before), 1))
    fixed = np.array([f.change == "fixed" for f in schema.features])
    up = np.array([f.change == "up" for f in schema.features])
    down = np.array([f.change == "down" for f in schema.features])
    # A missing value is not a limit: fmax and fmin skip it.
    low = np.where(fixed, before, np.where(up, np.fmax(low, before), low))
    return low, np.where(fixed, before, np.where(down, np.fmin(high, before), high))


def _exact(schema: Schema, y: Tensor, x: Tensor, before: Array) -> Array:
    """Reachable rows `y` of the people `x` in the user's units, without a last digit over any limit
    or rule."""
    moved = schema.changed_features(y, x)
    numbers = schema.decode_numbers(y)
    low, high = limits(schema, before)
    for i, f in enumerate(schema.features):
        if f.grid or f.storage != np.float64:
            numbers[:, i] = f.stored(f.multiples(numbers[:, i]) if f.grid else numbers[:, i])
    plain = [i for i, f in enumerate(schema.features) if not f.is_category]
    numbers[:, plain] = np.minimum(np.maximum(numbers[:, plain], low[:, plain]), high[:, plain])
    numbers = np.where(moved, numbers, before)
    _mend_rules(schema, numbers, before, low, high)
    return numbers


def _mend_rules(schema: Schema, numbers: Array, before: Array, low: Array, high: Array) -> None:
    """What rounding leaves a rule over its bound, take off one of its columns that has room, in
    place: best one that changes anyway and whose move breaks no other rule."""
    most = schema.max_changes or len(schema.features)
    names = schema.names
    for rule in schema.rules * 3:  # more than once: mending one rule may break another
        # Some last digits more than the excess: adding up the rule again rounds too.
        tries = product((True, False), (True, False), rule.weights.items(), (0, 1, 2, 8))
        for harmless, changed_only, (name, weight), nudge in tries:
            rows = np.flatnonzero(_excess(schema, rule, numbers) > 0)
            if not len(rows):
                break
            i = names.index(name)
            f = schema[name]
            sign = int(math.copysign(1, weight))
            part = numbers[rows]
            terms = [np.abs(w * part[:, names.index(n)]) for n, w in rule.weights.items()]
            digit = f.grid or np.maximum(
                f.digit(part[:, i]), np.spacing(np.max(terms, 0)) / abs(weight)
            )
            value = part[:, i] - _excess(schema, rule, part) / weight - nudge * digit * sign
            value = f.stored(f.multiples(value, -sign) if f.grid else value)
            changed = differ(part, before[rows])
            new = part.copy()
            new[:, i] = value
            fits = changed[:, i] | ((changed.sum(1) < most) & (not changed_only))
            fits &= (value >= low[rows, i]) & (value <= high[rows, i])
            for other in schema.rules if harmless else ():
                fits &= _excess(schema, other, new) <= np.maximum(_excess(schema, other, part), 0)
            numbers[rows[fits], i] = value[fits]


def _excess(schema: Schema, rule: Rule, numbers: Array) -> Array:
    """(n,) by how much the rule is over its bound."""
    total = np.zeros(len(numbers))
    for name, weight in rule.weights.items():
        total = total + weight * numbers[:, schema.names.index(name)]
    return total - rule.bound
