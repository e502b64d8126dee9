"""Is there any reachable row with the wanted outcome? Branch and bound over boxes of cells, for tree models.

A box is a set of cells for each feature. In it no row can score more than

    UB = start + sum over trees of the largest leaf that the box reaches,

and the wanted outcome needs UB > margin. The largest leaves ask for cells; where those of all trees agree, the row
at such cells has the score UB itself. Where they do not, the feature they disagree about most is split: into the
cells that most of them ask for, and the others. Boxes that cannot succeed are dropped, and when none is left, nothing
can be reached.

Rules and max_changes only ever take rows away, so what is proved without looking at them holds with them.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holdfast._core.rows import chunks
from holdfast.methods.tree_search.moves import Offers, mended
from holdfast.methods.tree_search.single_changes import ByLeaves, Table
from holdfast.problem import SLACK, SearchProblem
from holdfast.target import IntervalTarget

PEOPLE = 32  # rows at once
WIDTH = 16  # boxes of a row looked at in one round


@dataclass(frozen=True)
class Wish:
    """The outcome as linear functions of the model's outputs, all (or any) of which must be above zero: (f, outputs)
    weights and (f,) constants."""

    weights: Tensor
    constants: Tensor
    every: bool

    @staticmethod
    def of(problem: SearchProblem, label: int, k: int, outputs: str) -> "Wish":
        goal = replace(problem.goal, label=torch.tensor([label]))
        if isinstance(goal, IntervalTarget):  # low <= v <= high, in units as the gap
            ends = [(way, way * end) for way, end in ((1.0, goal.low), (-1.0, goal.high)) if math.isfinite(end)]
            w, c = torch.tensor(ends, dtype=torch.float64).T / goal.unit
            return Wish(w[:, None], -c, True)
        level = float(goal.least)
        if k == 1:
            way = goal.sign if label == 1 else -goal.sign
            return Wish(torch.tensor([[way]], dtype=torch.float64), torch.tensor([-level], dtype=torch.float64), True)
        if goal.soft and goal.sign < 0:
            level -= math.log(k - 1)  # the sum of the others may exceed the largest of them by so much
            level = level if goal.is_lead else max(level, 0.0)  # which must also lead
        rivals = [j for j in range(k) if j != label]
        w, c = torch.zeros(k - 1, k, dtype=torch.float64), torch.zeros(k - 1, dtype=torch.float64)
        for i, j in enumerate(rivals):
            up, down = (label, j) if goal.sign > 0 else (j, label)
            w[i, up], w[i, down] = 1.0, -1.0
            if outputs == "probabilities":
                w[i, down] = -math.exp(level)  # log p - log q > level
            else:
                c[i] = -level
        return Wish(w, c, goal.sign > 0)


class Bound:
    """Upper bounds over boxes, and what they ask for."""

    def __init__(self, table: Table, wish: Wish) -> None:
        leaves, tree = table.leaves, table.leaves.tree
        self.every, self.value = wish.every, leaves.value @ wish.weights.T / leaves.share  # (leaves, f)
        self.base = leaves.start @ wish.weights.T / leaves.share + wish.constants
        self.inside = torch.cat([1 - o.float() for o in table.outside])  # (m, leaves)
        size = torch.bincount(tree)
        first = size.cumsum(0) - size
        self.leaf = torch.full((len(size), int(size.max())), len(tree))  # (trees, most leaves), filled up with no leaf
        self.leaf[tree, torch.arange(len(tree)) - first[tree]] = torch.arange(len(tree))
        strong = self.value.abs().amax(1)
        none = strong.new_zeros(len(size))
        high, low = (none.scatter_reduce(0, tree, strong, how, include_self=False) for how in ("amax", "amin"))
        self.weight = (high - low + 1e-6)[tree].float()  # how much the tree of a leaf can matter

    def __call__(self, mask: Tensor, shut: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes (p, m), and which leaves (p, leaves) fixed features exclude -> (p,) the bound, (p, m) how much weight
        its leaves give each cell, and (p,) how much they have together."""
        closed, wide = shut > 0, mask.float()
        for a, b in spans:
            closed |= wide[:, a:b] @ self.inside[a:b] == 0
        bounds: list[Tensor] = []
        places: list[Tensor] = []
        for value in self.value.T:
            v = torch.where(closed, -torch.inf, value)
            v = torch.cat([v, v.new_full((len(v), 1), -torch.inf)], 1)[:, self.leaf]  # (p, trees, most)
            top, place = v.max(2)
            bounds.append(top.sum(1))
            places.append(place)
        both = torch.stack(bounds, 1) + self.base  # (p, f)
        ub, which = both.min(1) if self.every else both.max(1)
        place = torch.stack(places, 1)[torch.arange(len(mask)), which]  # (p, trees)
        leaf = self.leaf.expand(len(mask), -1, -1).gather(2, place[..., None]).squeeze(2)
        chosen = torch.zeros(closed.shape).scatter_(1, leaf, self.weight[leaf])
        return ub, torch.where(mask, chosen @ self.inside.T, -1.0), chosen.sum(1)


def decide(
    problem: SearchProblem, offers: Offers, profile: ByLeaves, rows: Tensor, boxes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Which of the rows (r,) have an answer, the moves (r, features) to it, and which are proved to have none.

    Rows that are neither took more than `boxes` boxes, or are too close to call.
    """
    found, proved = (torch.zeros(len(rows), dtype=torch.bool) for _ in range(2))
    at = offers.own[rows]
    if profile.table.k == 1 and profile.table.outputs == "probabilities":
        return found, at, proved
    for label in range(problem.goal.k):
        mine = (problem.goal.label[rows] == label).nonzero().squeeze(1)
        if not len(mine):
            continue
        bound = Bound(profile.table, Wish.of(problem, label, profile.table.k, profile.table.outputs))
        for some in chunks(mine, PEOPLE):
            found[some], at[some], proved[some] = _decide(problem, offers, profile, bound, rows[some], boxes)
            if problem.budget.over():
                break
    return found, at, proved


def _decide(
    problem: SearchProblem, offers: Offers, profile: ByLeaves, bound: Bound, rows: Tensor, boxes: int
) -> tuple[Tensor, Tensor, Tensor]:
    r, spans = len(rows), offers.moves.spans
    most = problem.feasible.encoding.max_changes
    at, looked = offers.own[rows], torch.zeros(r, dtype=torch.int64)
    found, open_ = torch.zeros(r, dtype=torch.bool), torch.zeros(r, dtype=torch.bool)  # open: cannot be proved
    mask, who = offers.price[rows].isfinite(), torch.arange(r)
    rank = torch.zeros(r, dtype=torch.float64)
    while len(mask):
        if problem.budget.over():
            open_[who] = True
            break
        now = _first(who, rank, WIDTH)
        box, mine = mask[now], who[now]
        mask, who, rank = (v[~now] for v in (mask, who, rank))
        looked += torch.bincount(mine, minlength=r)
        ub, asked, total = bound(box, profile.shut[rows[mine]], spans)
        person = rows[mine]
        alive = ub > -SLACK
        if most:
            stays = box.gather(1, offers.own[person]) & ~offers.moved[person].gather(1, offers.own[person])
            alive &= (~stays).sum(1) + offers.rest_moved[person] <= most
        box, mine, person, ub, asked, total = (v[alive] for v in (box, mine, person, ub, asked, total))
        if len(box):
            top, point, size = _each(asked, box, offers.price[person], spans)
            ok = _holds(problem, offers, person, point)
            hit = ok.nonzero().squeeze(1)
            found[mine[hit]] = True
            at[mine[hit]] = point[hit]
            conflict = torch.where(size > 1, total[:, None] - top, -1.0)
            agreed = conflict.amax(1) <= 1e-4 * total
            feature = torch.where(agreed, size.argmax(1), conflict.argmax(1))
            stuck = (size.amax(1) <= 1) & ~ok
            open_[mine[stuck]] = True
            split = ~stuck & ~ok
            parts = _split(box[split], asked[split], top[split], point[split], feature[split], offers.moves.feature)
            mask = torch.cat([mask, *parts])
            who, rank = torch.cat([who, mine[split], mine[split]]), torch.cat([rank, ub[split], ub[split]])
        over = looked >= boxes
        open_[who[over[who]]] = True
        stay = ~(found | over)[who]
        mask, who, rank = mask[stay], who[stay], rank[stay]
    return found, at, ~(found | open_)


def _first(who: Tensor, rank: Tensor, count: int) -> Tensor:
    """(p,) which boxes are among the first of their row, largest rank first."""
    order = rank.argsort(descending=True, stable=True)
    order = order[who[order].argsort(stable=True)]
    size = torch.bincount(who)
    place = torch.arange(len(who)) - (size.cumsum(0) - size)[who[order]]
    return torch.zeros(len(who), dtype=torch.bool).scatter_(0, order, place < count)


def _each(asked: Tensor, box: Tensor, price: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """(p, features): the weight of the cell asked for most, the cheapest such cell, and how many cells there are."""
    tops: list[Tensor] = []
    points: list[Tensor] = []
    sizes: list[Tensor] = []
    for a, b in spans:
        top = asked[:, a:b].amax(1, keepdim=True)
        cheap = torch.where((asked[:, a:b] >= top * (1 - 1e-5)) & box[:, a:b], price[:, a:b], torch.inf)
        tops.append(top.squeeze(1))
        points.append(a + cheap.argmin(1))
        sizes.append(box[:, a:b].sum(1))
    return torch.stack(tops, 1), torch.stack(points, 1), torch.stack(sizes, 1)


def _holds(problem: SearchProblem, offers: Offers, person: Tensor, at: Tensor) -> Tensor:
    """(p,) do these candidates succeed, and keep every rule?"""
    part = problem[person]
    z = mended(part.feasible, offers.rows(person, at))
    return part.met(z) & part.feasible.contains(z)


def _split(
    box: Tensor, asked: Tensor, top: Tensor, point: Tensor, feature: Tensor, owner: Tensor
) -> tuple[Tensor, Tensor]:
    """Two boxes (p, m) for each: the cells of one feature that are asked for most, and the others."""
    mine = owner == feature[:, None]
    best = top.gather(1, feature[:, None]) * (1 - 1e-5)
    chosen = mine & box & (asked >= best)
    whole = (chosen == (mine & box)).all(1, keepdim=True)  # nothing to choose between: one cell, and the others
    single = torch.zeros_like(chosen).scatter_(1, point.gather(1, feature[:, None]), True)
    chosen = torch.where(whole, single, chosen)
    return box & (~mine | chosen), box & ~chosen
