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
    copied,
    cut,
    cut_for,
    empty_look,
    open_leaves,
    whole,
)
from holdfast.methods.tree_search.boxes.person import Own
from holdfast.methods.tree_search.boxes.shares import bound, equal_shares

# rounds of the bound, by how much lambda changes at first, and how far shares move towards closing
# the gap: in the first box, and in all others
FIRST = (60, 0.5, 1.0)
LATER = (4, 0.25, 0.5)
CLOSED = 0  # nothing cheaper in it
PLAN = 1  # its cheapest point is a plan, and nothing in it is cheaper
OPEN = 2
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
    inside: Mask  # (w, C)
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
        count += int(moved[own.cells.move[base[f]]])
    return count > rules.changes


@compiled
def reaches(score: Array, level: Array) -> bool:
    """Is no part of a score less than its level?"""
    short = 0
    for j in range(len(level)):
        short += int(score[j] < level[j])
    return short == 0


@compiled
def exceeds(score: Array, level: Array) -> bool:
    """Is every part of a score more than its level?"""
    short = 0
    for j in range(len(level)):
        short += int(score[j] <= level[j])
    return short == 0


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
def take(waiting: Waiting, at: int, last: int, box: Box, weight: Array) -> None:
    """Take a box out; the last one fills its place."""
    box.low[:] = waiting.low[at]
    box.high[:] = waiting.high[at]
    box.inside[:] = waiting.inside[at]
    weight[:] = waiting.weight[at]
    waiting.low[at] = waiting.low[last]
    waiting.high[at] = waiting.high[last]
    waiting.inside[at] = waiting.inside[last]
    waiting.lower[at] = waiting.lower[last]
    waiting.weight[at] = waiting.weight[last]


@compiled
def room_for(own: Own, nodes: int) -> Waiting:
    features = len(own.cells.line)
    return Waiting(
        np.empty((nodes, features), np.int64),
        np.empty((nodes, features), np.int64),
        np.empty((nodes, len(own.cells.move)), np.bool_),
        np.empty(nodes),
        np.empty((nodes, len(own.least))),
    )


@compiled
def below(limit: float, near: float) -> float:
    """What a plan must cost less than to be worth finding."""
    return limit - near * limit if limit < np.inf else limit


@compiled
def see(
    own: Own, box: Box, look: Look, rules: Rules, moved: Mask, goal: float
) -> tuple[int, float]:
    """What is to be done with a box whose plans must cost less than `goal`, and what its cheapest
    point costs."""
    base = base_of(own, box, look.base)
    if base >= goal or too_many(rules, own, look.base, moved):
        return CLOSED, base
    open_leaves(own, box, look, goal - base)
    if not reaches(look.top, own.least):
        return CLOSED, base
    is_plan = exceeds(look.score, own.enough) and keeps(rules, own, look.base)
    return (PLAN if is_plan else OPEN), base


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
    box = whole(own)
    look = empty_look(own)
    waiting = room_for(own, nodes)
    taken = np.zeros(len(cells.line), np.int64)
    unsure = np.zeros((UNSURE, len(cells.line)), np.int64)
    price = np.zeros(UNSURE)
    found = False
    asked = 0
    left = 0
    looked = 0
    loose = np.inf
    # The first box hands its weights and shares on.
    lower = base_of(own, box, look.base)
    open_leaves(own, box, look, limit - lower)
    shares = equal_shares(own, look)
    reach = min(limit, farthest(own))
    weight = first_weights(own, look, reach - lower)
    while looked < nodes:
        looked += 1
        goal = below(limit, near)
        kind, base = see(own, box, look, rules, moved, goal)
        lower = max(lower, base)
        if kind == PLAN:
            found = True
            limit = base
            taken[:] = cells.move[look.base]
        elif kind == OPEN:
            effort = FIRST if looked == 1 else LATER
            aim = min(goal, reach)
            lower = max(lower, bound(own, look, shares, weight, base, aim, effort))
            c = -1
            if lower < goal:
                c = cut_for(own, box, look, shares.picked, weight)
            if c >= 0:  # dive: the wanted side is next
                other = copied(box)
                cut(own, look, c, box, other)
                put(waiting, left, other, lower, weight)
                left += 1
                continue
            if lower < goal:
                # All leaves agree, so that the model says the same of the whole box.
                if asked < UNSURE:
                    unsure[asked] = cells.move[look.base]
                    price[asked] = base
                    asked += 1
                if asked == UNSURE or not keeps(rules, own, look.base):
                    loose = min(loose, base)
        lower = np.inf
        if left > 0:
            best = least_of(waiting, left)
            lower = waiting.lower[best]
            left -= 1
            take(waiting, best, left, box, weight)
        if lower >= below(limit, near):
            # what still waits costs no less
            lower = np.inf
            left = 0
            break
    loose = min(loose, lower)
    for i in range(left):
        loose = min(loose, waiting.lower[i])
    return Outcome(found, limit, taken, min(loose, limit), looked, unsure[:asked], price[:asked])
