"""The search of one person over boxes: dive to the wanted side of each cut until a box closes, then
go on with the open box of the lowest bound."""

from typing import NamedTuple

import numpy as np

from holdfast._core.compiled import compiled
from holdfast._core.types import Array, Ints, Mask
from holdfast.methods.tree_search.boxes.look import (
    Box,
    Look,
    base_of,
    cut,
    cut_for,
    empty_look,
    open_leaves,
)
from holdfast.methods.tree_search.boxes.person import Own
from holdfast.methods.tree_search.boxes.shares import Shares, bound, equal_shares

ROOT = 60  # rounds of the bound in the first box
INNER = 4  # and in all others
UNSURE = 32  # points kept about which the model must be asked


class Rules(NamedTuple):
    """Rules as sums over moves, and how many features may change."""

    term: Array  # (R, M) what each move adds
    room: Array  # (R,) what the sums may be
    changes: int  # at most, 0: any number
    changed: int  # by the features without moves


class Outcome(NamedTuple):
    """What came of a search."""

    found: bool  # something cheaper than the limit
    cost: float  # of it
    taken: Ints  # (F,) its moves
    lower: float  # no plan costs less
    looked: int  # at so many boxes
    # (u, F) moves that are plans if the model says so: it says the same all over their boxes
    unsure: Ints
    price: Array  # (u,) what they cost


class Waiting(NamedTuple):
    """Boxes to be looked at later."""

    low: Ints  # (w, F)
    high: Ints
    inside: Ints  # (w, C)
    lower: Array  # (w,)
    weight: Array  # (w, J)


@compiled
def keeps(rules: Rules, own: Own, base: Ints) -> bool:
    """Does a point keep the rules?"""
    for r in range(len(rules.room)):
        total = 0.0
        for f in range(len(base)):
            total += rules.term[r, own.cells.move[base[f]]]
        if total > rules.room[r]:
            return False
    return True


@compiled
def too_many(rules: Rules, own: Own, base: Ints, moved: Mask) -> bool:
    """Does the cheapest point of a box, and so every one in it, change too many features?"""
    if rules.changes == 0:
        return False
    count = rules.changed
    for f in range(len(base)):
        count += moved[own.cells.move[base[f]]]
    return count > rules.changes


@compiled
def reaches(score: Array, level: Array) -> bool:
    for j in range(len(level)):
        if not score[j] >= level[j]:
            return False
    return True


@compiled
def exceeds(score: Array, level: Array) -> bool:
    for j in range(len(level)):
        if not score[j] > level[j]:
            return False
    return True


@compiled
def first_weights(own: Own, look: Look, price: float) -> Array:
    """(J,) lambda to begin with: a price for each unit of what is missing."""
    weight = np.zeros(len(own.least))
    for j in range(len(weight)):
        missing = max(look.top[j] - look.score[j], 1e-9)
        weight[j] = price / missing / len(weight)
    return weight


@compiled
def farthest(own: Own) -> float:
    """What a plan can cost at most."""
    cost = own.rest
    for f in range(len(own.cells.line)):
        cost += own.cells.cost[own.cells.start[f] : own.cells.start[f + 1]].max()
    return cost


@compiled
def least_of(waiting: Waiting, count: int) -> int:
    """The box with the lowest bound."""
    best = 0
    for i in range(1, count):
        if waiting.lower[i] < waiting.lower[best]:
            best = i
    return best


@compiled
def put(waiting: Waiting, at: int, box: Box, lower: float, weight: Array) -> None:
    waiting.low[at] = box.low
    waiting.high[at] = box.high
    waiting.inside[at] = box.inside
    waiting.lower[at] = lower
    waiting.weight[at] = weight


@compiled
def take(waiting: Waiting, at: int, box: Box, weight: Array) -> None:
    box.low[:] = waiting.low[at]
    box.high[:] = waiting.high[at]
    box.inside[:] = waiting.inside[at]
    weight[:] = waiting.weight[at]


@compiled
def move_last(waiting: Waiting, to: int, last: int) -> None:
    """Fill the place of a box that has been taken."""
    waiting.low[to] = waiting.low[last]
    waiting.high[to] = waiting.high[last]
    waiting.inside[to] = waiting.inside[last]
    waiting.lower[to] = waiting.lower[last]
    waiting.weight[to] = waiting.weight[last]


@compiled
def descend(own: Own, moved: Mask, rules: Rules, limit: float, near: float, nodes: int) -> Outcome:
    """Search what is left of a model for the cheapest plan below `limit`.

    Args:
        own: the model that is left.
        moved: (M,) which moves change their feature.
        rules: what a plan must keep.
        limit: the cost to stay below.
        near: by which share of itself a plan must be cheaper to be worth finding.
        nodes: boxes looked at, at most.
    """
    cells = own.cells
    features = len(cells.line)
    count = len(cells.move)
    functions = len(own.least)
    look = empty_look(own)
    box = Box(cells.start[:-1].copy(), cells.start[1:] - 1, np.ones(count, np.int64))
    size = nodes + 1
    waiting = Waiting(
        np.zeros((size, features), np.int64), np.zeros((size, features), np.int64),
        np.zeros((size, count), np.int64), np.zeros(size), np.zeros((size, functions)),
    )
    other = Box(box.low.copy(), box.high.copy(), box.inside.copy())
    found = False
    taken = np.zeros(features, np.int64)
    unsure = np.zeros((UNSURE, features), np.int64)
    price = np.zeros(UNSURE)
    asked = 0
    loose = np.inf
    left = 0
    looked = 0
    here = own.rest
    base_of(own, box, look.base)
    weight = np.zeros(functions)
    shares = equal_shares(own, look)
    reach = min(limit, farthest(own))
    while True:
        looked += 1
        goal = limit - near * limit if limit < np.inf else np.inf
        is_open = False
        base = base_of(own, box, look.base)
        here = max(here, base)
        if here < goal and not too_many(rules, own, look.base, moved):
            open_leaves(own, box, look, goal - base)
            if reaches(look.top, own.least):
                kept = keeps(rules, own, look.base)
                if kept and exceeds(look.score, own.enough):
                    limit = base
                    reach = limit
                    found = True
                    goal = limit - near * limit
                    for f in range(features):
                        taken[f] = cells.move[look.base[f]]
                else:
                    is_open = True
                    first = looked == 1
                    if first:
                        shares = equal_shares(own, look)
                        weight = first_weights(own, look, reach - base)
                    rounds = ROOT if first else INNER
                    aim = min(goal, reach)
                    lower = bound(
                        own, look, shares, weight, base, aim, rounds,
                        0.5 if first else 0.25, 1.0 if first else 0.5,
                    )
                    here = max(here, lower)
                    if here >= goal:
                        is_open = False
        if is_open:
            c = cut_for(own, box, look, shares.picked, weight)
            if c < 0:
                is_open = False
                if asked < UNSURE:
                    for f in range(features):
                        unsure[asked, f] = cells.move[look.base[f]]
                    price[asked] = base
                    asked += 1
                if asked == UNSURE or not keeps(rules, own, look.base):
                    loose = min(loose, base)
            else:
                other.low[:] = box.low
                other.high[:] = box.high
                other.inside[:] = box.inside
                cut(own, look, c, box, other)
                put(waiting, left, other, here, weight)
                left += 1
        if not is_open:
            if left == 0:
                break
            best = least_of(waiting, left)
            here = waiting.lower[best]
            if here >= goal:
                left = 0
                break
            take(waiting, best, box, weight)
            left -= 1
            move_last(waiting, best, left)
            if looked >= nodes:
                loose = min(loose, here)
                break
        elif looked >= nodes:
            loose = min(loose, here)
            break
    for i in range(left):
        loose = min(loose, waiting.lower[i])
    return Outcome(found, limit, taken, min(loose, limit), looked, unsure[:asked], price[:asked])
