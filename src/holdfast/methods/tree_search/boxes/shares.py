"""A lower bound on what a better plan in a box costs: the trees share the price.

Let a line be one feature in one direction from its cheapest cell, with steps from cell to cell that
cost s_k >= 0 each, and theta what the leaves must add up to. Any shares z_tk >= 0 with sum_t z_tk =
s_k, and any lambda >= 0, give

    Y_t(v)  = sum of z_tk over the steps to v                  what tree t pays to get there
    LB      = base + lambda theta
              + sum_t min over open leaves l of t [ sum_f ( Y_t(v_l) - Y_t(base) ) - lambda a_l ],

with v_l the cheapest point of leaf l in the box, and no accepted plan of the box costs less: at
any such plan the trees' leaves cost at most their shares, which add up to its price, and lambda
(sum a - theta) >= 0. So shares and lambda may be as they like; a few rounds of subgradients make
them good.
"""

from typing import NamedTuple

import numpy as np

from holdfast._core.compiled import compiled
from holdfast._core.types import Array, Ints, Mask
from holdfast.methods.tree_search.boxes.look import Look
from holdfast.methods.tree_search.boxes.person import Own

SHRINK = 0.6  # the step of lambda, each time it turns round


class Shares(NamedTuple):
    """Who pays for what; kept, and improved, from box to box."""

    step: Array  # (C,) cost of the step to each cell from the one before it
    before: Ints  # (C,) that cell; itself where there is none
    takes_part: Mask  # (C, T) does the tree share the step?
    sharing: Ints  # (C,) how many do
    part: Array  # (C, T) the shares
    paid: Array  # (C, T) their sums, from the cheapest cell
    reach: Ints  # (F, T) how far the picked leaf of each tree goes
    picked: Ints  # (T,) which open leaf each tree picks


@compiled
def equal_shares(own: Own, look: Look) -> Shares:
    """Equal ones, of the trees that have an open leaf that far."""
    cells = own.cells
    count = len(cells.move)
    trees = len(own.tree) - 1
    step = np.zeros(count)
    before = np.arange(count)
    for c in range(count):
        origin = cells.origin[cells.owner[c]]
        if c != origin:
            before[c] = c - 1 if c > origin else c + 1
            step[c] = max(cells.cost[c] - cells.cost[before[c]], 0.0)
    takes_part = np.zeros((count, trees), np.bool_)
    for t in range(trees):
        for i in range(look.tree[t], look.tree[t + 1]):
            for k in range(look.ptr[i], look.ptr[i + 1]):
                c = look.cell[k]
                if not cells.line[cells.owner[c]]:
                    # in a smaller box it may have to go farther
                    c = cells.start[cells.owner[c] + 1] - 1
                while before[c] != c and not takes_part[c, t]:
                    takes_part[c, t] = True
                    c = before[c]
    part = np.zeros((count, trees))
    sharing = np.zeros(count, np.int64)
    for c in range(count):
        sharing[c] = takes_part[c].sum()
        part[c] = takes_part[c] * (step[c] / max(sharing[c], 1))
    shares = Shares(
        step,
        before,
        takes_part,
        sharing,
        part,
        np.zeros((count, trees)),
        np.zeros((len(cells.line), trees), np.int64),
        np.zeros(trees, np.int64),
    )
    for f in range(len(cells.line)):
        add_up(part, shares.paid, cells.origin[f], cells.start[f], cells.start[f + 1])
    return shares


@compiled
def add_up(part: Array, paid: Array, origin: int, start: int, end: int) -> None:
    """What the trees have paid along a feature."""
    for c in range(origin + 1, end):
        for t in range(paid.shape[1]):
            paid[c, t] = paid[c - 1, t] + part[c, t]
    for c in range(origin - 1, start - 1, -1):
        for t in range(paid.shape[1]):
            paid[c, t] = paid[c + 1, t] + part[c, t]


@compiled
def pick(own: Own, look: Look, shares: Shares, weight: Array) -> float:
    """The best open leaf of each tree; returns the sum of what they pay less what they add."""
    ptr = look.ptr
    cell = look.cell
    leaf = look.leaf
    base = look.base
    owner = own.cells.owner
    paid = shares.paid
    total = 0.0
    for t in range(len(shares.picked)):
        least = np.inf
        for i in range(look.tree[t], look.tree[t + 1]):
            value = 0.0
            for k in range(ptr[i], ptr[i + 1]):
                c = cell[k]
                value += paid[c, t] - paid[base[owner[c]], t]
            for j in range(len(weight)):
                value -= weight[j] * own.value[leaf[i], j]
            if value < least:
                least = value
                shares.picked[t] = i
        total += least
    return total


@compiled
def bound(
    own: Own,
    look: Look,
    shares: Shares,
    weight: Array,
    base: float,
    limit: float,
    effort: tuple[int, float, float],
) -> float:
    """The largest lower bound of some rounds, which end when it reaches `limit`.

    Args:
        own: the model that is left.
        look: what was seen of the box.
        shares: who pays for what; improved.
        weight: (J,) lambda; improved.
        base: what the cheapest point of the box costs.
        limit: the cost to stay below.
        effort: how many rounds, by which share of itself lambda changes at first, and how far
            shares move, as a part of what would close the gap.
    """
    rounds, step, pull = effort
    functions = len(weight)
    steps = np.full(functions, step)
    way = np.zeros(functions)
    best = base
    kept = weight.copy()
    for _ in range(rounds):
        lower = base + pick(own, look, shares, weight)
        for j in range(functions):
            lower += weight[j] * own.least[j]
        if lower > best:
            best = lower
            kept[:] = weight
        if best >= limit:
            break
        # any shares and weights are valid: an early end costs tightness, never truth
        move_shares(own, look, shares, pull * (limit - lower))
        for j in range(functions):
            added = 0.0
            for t in range(len(shares.picked)):
                added += own.value[look.leaf[shares.picked[t]], j]
            turn = 1.0 if added < own.least[j] else -1.0
            if way[j] * turn < 0.0:
                steps[j] *= SHRINK
            way[j] = turn
            weight[j] *= 1.0 + steps[j] if turn > 0.0 else 1.0 / (1.0 + steps[j])
    weight[:] = kept
    return best


@compiled
def move_shares(own: Own, look: Look, shares: Shares, gap: float) -> None:
    """Trees whose picks need a step pay more for it, and those that share it and do not, less."""
    cells = own.cells
    owner = cells.owner
    reach = shares.reach
    low = look.base.copy()
    high = look.base.copy()
    for f in range(len(low)):
        reach[f] = low[f]
    ptr = look.ptr
    cell = look.cell
    for t in range(len(shares.picked)):
        i = shares.picked[t]
        for k in range(ptr[i], ptr[i + 1]):
            c = cell[k]
            f = owner[c]
            reach[f, t] = c
            low[f] = min(low[f], c)
            high[f] = max(high[f], c)
    slope = 0.0
    for f in range(len(low)):
        base = look.base[f]
        slope += slope_of(shares.sharing, reach[f], base + 1, high[f] + 1, True)
        slope += slope_of(shares.sharing, reach[f], low[f], base, False)
    if slope <= 0.0:  # the picks agree about every step
        return
    by = gap / slope
    for f in range(len(low)):
        base = look.base[f]
        if low[f] == high[f]:
            continue
        part = shares.part
        step = shares.step
        move_steps(part, shares.takes_part, step, reach[f], base + 1, high[f] + 1, by, True)
        move_steps(part, shares.takes_part, step, reach[f], low[f], base, by, False)
        add_up(part, shares.paid, cells.origin[f], cells.start[f], cells.start[f + 1])


@compiled
def slope_of(sharing: Ints, reach: Ints, first: int, end: int, up: bool) -> float:
    """How fast the bound grows with the shares of the steps to some cells, of one direction."""
    slope = 0.0
    for c in range(first, end):
        need = 0
        for t in range(len(reach)):
            need += reach[t] >= c if up else reach[t] <= c
        if need < sharing[c]:
            slope += need * (1.0 - need / sharing[c])
    return slope


@compiled
def move_steps(
    part: Array,
    takes_part: Mask,
    step: Array,
    reach: Ints,
    first: int,
    end: int,
    by: float,
    up: bool,
) -> None:
    """Change the shares of the steps to some cells, and scale them back to what each costs."""
    trees = len(reach)
    for c in range(first, end):
        need = 0
        sharing = 0
        for t in range(trees):
            need += reach[t] >= c if up else reach[t] <= c
            sharing += takes_part[c, t]
        if not 0 < need < sharing or step[c] == 0.0:
            continue
        share = need / sharing
        total = 0.0
        for t in range(trees):
            needs = reach[t] >= c if up else reach[t] <= c
            if takes_part[c, t]:
                part[c, t] = max(part[c, t] + by * (needs - share), 0.0)
                total += part[c, t]
        scale = step[c] / total
        for t in range(trees):
            part[c, t] *= scale
