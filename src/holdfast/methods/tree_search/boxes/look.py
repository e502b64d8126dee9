"""One box: its cheapest point, the leaves that a better plan in it could use, and its cut."""

from typing import NamedTuple

import numpy as np

from holdfast._core.compiled import compiled
from holdfast._core.types import Array, Ints, Mask
from holdfast.methods.tree_search.boxes.person import Own


class Box(NamedTuple):
    """Cells: of a line low .. high, of a set those that are `inside`."""

    low: Ints  # (F,)
    high: Ints  # (F,)
    inside: Mask  # (C,)


class Look(NamedTuple):
    """What was seen of a box; arrays that are written anew for each."""

    base: Ints  # (F,) the cells of its cheapest point
    leaf: Ints  # (o,) open leaves, tree by tree
    tree: Ints  # (T + 1,) the first of each tree
    ptr: Ints  # (o + 1,)
    cell: Ints  # the cells in which an open leaf's cheapest point is not the base
    at_base: Ints  # (T,) which open leaf holds the base
    score: Array  # (J,) what the base adds up to
    top: Array  # (J,) what the best open leaves add up to


@compiled
def empty_look(own: Own) -> Look:
    trees = len(own.tree) - 1
    leaves = len(own.value)
    functions = len(own.least)
    return Look(
        np.zeros(len(own.cells.line), np.int64),
        np.zeros(leaves, np.int64),
        np.zeros(trees + 1, np.int64),
        np.zeros(leaves + 1, np.int64),
        np.zeros(len(own.feature), np.int64),
        np.zeros(trees, np.int64),
        np.zeros(functions),
        np.zeros(functions),
    )


@compiled
def whole(own: Own) -> Box:
    """All cells."""
    cells = own.cells
    return Box(cells.start[:-1].copy(), cells.start[1:] - 1, np.ones(len(cells.move), np.bool_))


@compiled
def copied(box: Box) -> Box:
    return Box(box.low.copy(), box.high.copy(), box.inside.copy())


@compiled
def base_of(own: Own, box: Box, base: Ints) -> float:
    """Write the cheapest cells of a box; returns what they cost."""
    cells = own.cells
    cost = own.rest
    for f in range(len(cells.line)):
        if cells.line[f]:
            base[f] = max(box.low[f], min(cells.origin[f], box.high[f]))
        else:
            c = cells.start[f]
            while not box.inside[c]:
                c += 1
            base[f] = c
        cost += cells.cost[base[f]]
    return float(cost)


@compiled
def open_leaves(own: Own, box: Box, look: Look, room: float) -> None:
    """Write the leaves whose cheapest point in the box costs less than `room` beyond its base."""
    # One loop over plain arrays: to hand them all to a function for each leaf takes longer than
    # what it does.
    cells = own.cells
    ptr = own.ptr
    feature = own.feature
    first_of = own.first
    last_of = own.last
    set_at = own.set_at
    sets = own.sets
    cost = cells.cost
    line = cells.line
    start = cells.start
    low = box.low
    high = box.high
    inside = box.inside
    base_cell = look.base
    count = 0
    used = 0
    look.score[:] = 0.0
    look.top[:] = 0.0
    for t in range(len(own.tree) - 1):
        first = count
        look.at_base[t] = -1
        for leaf in range(own.tree[t], own.tree[t + 1]):
            more = 0.0
            far = used
            fits = True
            for e in range(ptr[leaf], ptr[leaf + 1]):
                f = feature[e]
                base = base_cell[f]
                if line[f]:
                    fits = first_of[e] <= high[f] and last_of[e] >= low[f]
                    c = max(first_of[e], min(base, last_of[e]))
                else:
                    c = start[f]
                    shift = set_at[e] - c
                    while c < start[f + 1] and not (inside[c] and sets[shift + c]):
                        c += 1
                    fits = c < start[f + 1]
                if not fits:
                    break
                if c != base:
                    more += cost[c] - cost[base]
                    if more >= room:
                        fits = False
                        break
                    look.cell[far] = c
                    far += 1
            if fits:
                if far == used:
                    look.at_base[t] = count
                    for j in range(len(look.score)):
                        look.score[j] += own.value[leaf, j]
                look.leaf[count] = leaf
                used = far
                count += 1
                look.ptr[count] = used
        look.tree[t + 1] = count
        for j in range(len(look.top)):
            best = own.value[look.leaf[first], j]
            for i in range(first + 1, count):
                best = max(best, own.value[look.leaf[i], j])
            look.top[j] += best


@compiled
def cut_for(own: Own, box: Box, look: Look, picked: Ints, weight: Array) -> int:
    """The cell whose side the picked leaves want most, where the base is on the other side; -1 if
    the base is in every open leaf."""
    votes = np.zeros(len(own.cells.move))
    for t in range(len(picked)):
        i = picked[t]
        gain = gain_of(own, look, t, i, weight)
        if gain > 0.0:
            vote(own, box, look, i, gain, votes)
    best = 0
    for c in range(len(votes)):
        if votes[c] > votes[best]:
            best = c
    if votes[best] > 0.0:
        return best
    most = -np.inf
    best = -1
    for t in range(len(picked)):
        for i in range(look.tree[t], look.tree[t + 1]):
            gain = gain_of(own, look, t, i, weight)
            if look.ptr[i + 1] > look.ptr[i] and gain > most:
                most = gain
                best = look.cell[look.ptr[i]]
    return int(best)


@compiled
def gain_of(own: Own, look: Look, t: int, i: int, weight: Array) -> float:
    """What an open leaf adds beyond the leaf of the base."""
    gain = 0.0
    for j in range(len(weight)):
        at_base = own.value[look.leaf[look.at_base[t]], j]
        gain += weight[j] * (own.value[look.leaf[i], j] - at_base)
    return gain


@compiled
def vote(own: Own, box: Box, look: Look, i: int, gain: float, votes: Array) -> None:
    """Add what an open leaf gains to the cells where it begins; of a set, to all that it has."""
    cells = own.cells
    for k in range(look.ptr[i], look.ptr[i + 1]):
        c = look.cell[k]
        f = cells.owner[c]
        if cells.line[f]:
            votes[c] += gain
            continue
        for e in range(own.ptr[look.leaf[i]], own.ptr[look.leaf[i] + 1]):
            if own.feature[e] == f:
                for d in range(cells.start[f], cells.start[f + 1]):
                    if own.sets[own.set_at[e] + d - cells.start[f]] and box.inside[d]:
                        votes[d] += gain


@compiled
def cut(own: Own, look: Look, c: int, wanted: Box, other: Box) -> None:
    """Narrow two copies of a box to both sides of a cut: that of the cell, and that of the
    base."""
    f = own.cells.owner[c]
    if not own.cells.line[f]:
        wanted.inside[own.cells.start[f] : own.cells.start[f + 1]] = False
        wanted.inside[c] = True
        other.inside[c] = False
    elif c > look.base[f]:
        wanted.low[f] = c
        other.high[f] = c - 1
    else:
        wanted.high[f] = c
        other.low[f] = c + 1
