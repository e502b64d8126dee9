"""What is left of a model for one person: cells that cost too much are dropped, leaves that need
them too, and cells that no leaf left tells apart become one.

A plan costs `base` at least, the sum of each feature's cheapest cell; a cell or a leaf that makes
it as dear as the best plan known cannot be part of a better one. This, and not the search, is why
exactness is cheap.
"""

from typing import NamedTuple

import numpy as np

from holdfast._core.compiled import compiled
from holdfast._core.types import Array, Ints, Mask
from holdfast.methods.tree_search.boxes.ensemble import Ensemble


class Goal(NamedTuple):
    """Functions of the leaves that must add up to a level."""

    value: Array  # (L, J) what each leaf adds
    least: Array  # (J,) below it a plan fails
    enough: Array  # (J,) above it a plan succeeds; in between the model must be asked


class Cells(NamedTuple):
    """The cells of a person that can be part of a better plan.

    Those of a line in their order; those of a set by their cost.
    """

    start: Ints  # (F + 1,)
    move: Ints  # (C,)
    cost: Array  # (C,)
    line: Mask  # (F,)
    origin: Ints  # (F,) the cheapest
    owner: Ints  # (C,) the feature


class Own(NamedTuple):
    """The model that is left for a person, in the manner of an `Ensemble`; entries of leaves name
    cells."""

    cells: Cells
    rest: float  # what the features without cells cost
    ptr: Ints
    feature: Ints
    first: Ints
    last: Ints
    set_at: Ints
    sets: Mask
    tree: Ints  # (T + 1,) the first leaf of each tree
    value: Array  # (l, J)
    least: Array  # (J,) less what trees without a choice add
    enough: Array


@compiled
def reachable_cells(ens: Ensemble, cost: Array, moved: Mask, own: Ints, room: float) -> Cells:
    """Cells that cost less than `room` beside the cheapest of their feature."""
    features = len(ens.line)
    start = np.zeros(features + 1, np.int64)
    move = np.zeros(len(cost), np.int64)
    line = np.zeros(features, np.bool_)
    origin = np.zeros(features, np.int64)
    owner = np.zeros(len(cost), np.int64)
    count = 0
    for f in range(features):
        first = ens.start[f]
        cheapest = first  # of the same cost one that changes nothing
        for m in range(first, ens.start[f + 1]):
            same = cost[m] == cost[cheapest]
            if cost[m] < cost[cheapest] or (same and moved[cheapest] and not moved[m]):
                cheapest = m
        line[f] = ens.line[f] and own[f] != ens.gap[f]
        for m in range(first, ens.start[f + 1]):
            if m == cheapest or (cost[m] < np.inf and cost[m] - cost[cheapest] < room):
                if m == cheapest:
                    origin[f] = count
                move[count] = m
                owner[count] = f
                count += 1
        start[f + 1] = count
        line[f] = line[f] and rises(cost, move, start[f], origin[f], count)
        if not line[f]:
            sort_by_cost(cost, move, start[f], count, cheapest)
            origin[f] = start[f]
    move = move[:count].copy()
    return Cells(start, move, cost[move], line, origin, owner[:count].copy())


@compiled
def rises(cost: Array, move: Ints, start: int, origin: int, end: int) -> bool:
    """Does what a cell costs rise on both sides of the cheapest?"""
    falls = 0
    for c in range(start, end - 1):
        left = cost[move[c]]
        right = cost[move[c + 1]]
        falls += int(left < right if c < origin else left > right)
    return falls == 0


@compiled
def sort_by_cost(cost: Array, move: Ints, start: int, end: int, cheapest: int) -> None:
    """Moves start .. end - 1 by what they cost, `cheapest` before all."""
    for c in range(start + 1, end):
        m = move[c]
        at = c
        while at > start:
            before = move[at - 1]
            if m != cheapest and (before == cheapest or cost[before] <= cost[m]):
                break
            move[at] = before
            at -= 1
        move[at] = m


@compiled
def neighbours(ens: Ensemble, cells: Cells) -> tuple[Ints, Ints]:
    """Of each move on a line, the first cell from it on and the last up to it; beyond the ends
    where there is none."""
    moves = ens.start[len(ens.line)]
    up = np.zeros(moves, np.int64)
    down = np.zeros(moves, np.int64)
    for f in range(len(ens.line)):
        at = cells.start[f]
        for m in range(ens.start[f], ens.start[f + 1]):
            while at < cells.start[f + 1] and cells.move[at] < m:
                at += 1
            up[m] = at
            hit = at < cells.start[f + 1] and cells.move[at] == m
            down[m] = at if hit else at - 1
    return up, down


@compiled
def cheapest_in_set(ens: Ensemble, e: int, cells: Cells) -> int:
    """The first cell that an entry lets through, or -1."""
    f = ens.feature[e]
    for c in range(cells.start[f], cells.start[f + 1]):
        if ens.sets[ens.set_at[e] + cells.move[c] - ens.start[f]]:
            return c
    return -1


@compiled
def reachable_leaves(
    ens: Ensemble, cells: Cells, closed: Mask, up: Ints, down: Ints, room: float
) -> Mask:
    """(L,) leaves whose cheapest point costs less than `room` more than the cheapest of all."""
    keep = np.zeros(len(ens.tree), np.bool_)
    for leaf in range(len(ens.tree)):
        if closed[leaf]:
            continue
        more = 0.0
        fits = True
        for e in range(ens.ptr[leaf], ens.ptr[leaf + 1]):
            f = ens.feature[e]
            at = cells.origin[f]
            if cells.line[f]:
                # stretches whose cells have all been dropped are empty too
                empty = ens.first[e] > ens.last[e]
                a = cells.start[f + 1] if empty else up[ens.first[e]]
                b = cells.start[f] - 1 if empty else down[ens.last[e]]
                fits = a <= b
                at = max(a, min(at, b))
            else:
                at = cheapest_in_set(ens, e, cells)
                fits = at >= 0
            if not fits:
                break
            more += cells.cost[at] - cells.cost[cells.origin[f]]
            if more >= room:
                fits = False
                break
        keep[leaf] = fits
    return keep


@compiled
def merged(ens: Ensemble, cells: Cells, keep: Mask, up: Ints, down: Ints) -> tuple[Cells, Ints]:
    """Neighbours on a line that no leaf left tells apart become one, the cheapest of them; also
    which of the new cells each one is now."""
    count = len(cells.move)
    apart = np.zeros(count + 1, np.bool_)
    for leaf in range(len(ens.tree)):
        if not keep[leaf]:
            continue
        for e in range(ens.ptr[leaf], ens.ptr[leaf + 1]):
            if cells.line[ens.feature[e]]:
                apart[up[ens.first[e]]] = True
                apart[down[ens.last[e]] + 1] = True
    start = np.zeros_like(cells.start)
    origin = np.zeros_like(cells.origin)
    became = np.zeros(count, np.int64)
    chosen = np.zeros(count, np.int64)
    new = 0
    for f in range(len(cells.line)):
        for c in range(cells.start[f], cells.start[f + 1]):
            if c == cells.start[f] or apart[c] or not cells.line[f]:
                chosen[new] = c
                new += 1
            elif c <= cells.origin[f]:
                chosen[new - 1] = c  # on this side the later one is the cheaper
            became[c] = new - 1
        start[f + 1] = new
        origin[f] = became[cells.origin[f]]
    chosen = chosen[:new]
    kept = Cells(
        start, cells.move[chosen], cells.cost[chosen], cells.line, origin, cells.owner[chosen]
    )
    return kept, became


@compiled
def own_model(
    ens: Ensemble,
    goal: Goal,
    cost: Array,
    moved: Mask,
    own: Ints,
    closed: Mask,
    rest: float,
    limit: float,
) -> tuple[bool, Own]:
    """What is left for a person who knows a plan at the cost `limit`; False: nothing is cheaper.

    Args:
        ens: the leaves.
        goal: what they must add up to.
        cost: (M,) of each move, inf where it cannot be made.
        moved: (M,) does it change the feature?
        own: (F,) the moves that change nothing.
        closed: (L,) leaves that features without moves exclude.
        rest: what these features cost.
        limit: the cost to stay below.
    """
    base = rest
    for f in range(len(ens.line)):
        base += cost[ens.start[f] : ens.start[f + 1]].min()
    room = limit - base
    cells = reachable_cells(ens, cost, moved, own, room)
    up, down = neighbours(ens, cells)
    keep = reachable_leaves(ens, cells, closed, up, down, room)
    new, became = merged(ens, cells, keep, up, down)
    return base < limit, narrowed(ens, goal, cells, new, became, keep, up, down, rest)


@compiled
def narrowed(
    ens: Ensemble,
    goal: Goal,
    cells: Cells,
    new: Cells,
    became: Ints,
    keep: Mask,
    up: Ints,
    down: Ints,
    rest: float,
) -> Own:
    """The leaves that are kept, over the new cells; trees without a choice become part of the
    level."""
    size = np.zeros(len(ens.tree) + 1, np.int64)  # kept leaves of each tree
    for leaf in range(len(ens.tree)):
        size[ens.tree[leaf]] += keep[leaf]
    entries = ens.ptr[len(ens.tree)]
    feature = np.zeros(entries, np.int64)
    first = np.zeros(entries, np.int64)
    last = np.zeros(entries, np.int64)
    set_at = np.full(entries, -1)
    sets = np.zeros(set_bytes(ens, new, keep), np.bool_)
    ptr = np.zeros(len(ens.tree) + 1, np.int64)
    tree = np.zeros(len(ens.tree) + 1, np.int64)
    value = np.zeros_like(goal.value)
    least = goal.least.copy()
    enough = goal.enough.copy()
    leaves = 0
    trees = 0
    last_tree = -1
    count = 0
    written = 0
    for leaf in range(len(ens.tree)):
        if not keep[leaf]:
            continue
        if size[ens.tree[leaf]] == 1:
            least -= goal.value[leaf]
            enough -= goal.value[leaf]
            continue
        if ens.tree[leaf] != last_tree:
            last_tree = ens.tree[leaf]
            trees += 1
        value[leaves] = goal.value[leaf]
        for e in range(ens.ptr[leaf], ens.ptr[leaf + 1]):
            f = ens.feature[e]
            if cells.line[f]:
                first[count] = became[up[ens.first[e]]]
                last[count] = became[down[ens.last[e]]]
                limits = first[count] > new.start[f] or last[count] < new.start[f + 1] - 1
            else:
                limits = False
                for i in range(new.start[f], new.start[f + 1]):
                    inside = ens.sets[ens.set_at[e] + new.move[i] - ens.start[f]]
                    sets[written + i - new.start[f]] = inside
                    limits = limits or not inside
                set_at[count] = written
                if limits:
                    written += new.start[f + 1] - new.start[f]
            if limits:
                feature[count] = f
                count += 1
        leaves += 1
        ptr[leaves] = count
        tree[trees] = leaves
    return Own(
        new,
        rest,
        ptr[: leaves + 1],
        feature[:count],
        first[:count],
        last[:count],
        set_at[:count],
        sets,
        tree[: trees + 1],
        value[:leaves],
        least,
        enough,
    )


@compiled
def set_bytes(ens: Ensemble, cells: Cells, keep: Mask) -> int:
    """How many bytes the sets of all kept leaves take, and of one more entry."""
    total = 0
    widest = 0
    for leaf in range(len(ens.tree)):
        if not keep[leaf]:
            continue
        for e in range(ens.ptr[leaf], ens.ptr[leaf + 1]):
            f = ens.feature[e]
            if not cells.line[f]:
                wide = cells.start[f + 1] - cells.start[f]
                total += wide
                widest = max(widest, wide)
    return int(total + widest)
