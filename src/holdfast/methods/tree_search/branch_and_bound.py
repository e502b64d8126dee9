"""Is there any reachable row with the wanted outcome? Branch and bound over boxes of cells, for
tree models.

A box is a set of cells for each feature. In it no row can score more than

    UB = start + sum over trees of the largest leaf that the box reaches,

and the wanted outcome needs UB > margin. The largest leaves vote for cells; where those of all
trees agree, the row at such cells has the score UB itself. Where they do not, the feature they
disagree about most is split: into the cells that most of them vote for, and the others. Boxes that
cannot succeed are dropped, and when none is left, nothing can be reached.

Rules and max_changes only ever take rows away, so what is proved without looking at them holds with
them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holdfast._core.rows import chunks
from holdfast.methods.tree_search.moves import repaired
from holdfast.methods.tree_search.single_changes import LeafChanges, LeafTable
from holdfast.problem import SLACK, SearchProblem
from holdfast.target import IntervalTarget

PEOPLE = 32  # rows at once
WIDTH = 16  # boxes of a row looked at in one round


@dataclass(frozen=True)
class LinearGoal:
    """The outcome as linear functions of the model's outputs, all (or any) of which must be above
    zero: (f, outputs) weights and (f,) constants."""

    weights: Tensor
    constants: Tensor
    every: bool
    relaxed: bool = False  # are they above zero for more than what has the outcome?

    @staticmethod
    def of(problem: SearchProblem, label: int, k: int, outputs: str) -> "LinearGoal":
        goal = replace(problem.goal, label=torch.tensor([label]))
        if isinstance(goal, IntervalTarget):  # low <= v <= high, in units as the gap
            ends = [
                (way, way * end)
                for way, end in ((1.0, goal.low), (-1.0, goal.high))
                if math.isfinite(end)
            ]
            w, c = torch.tensor(ends, dtype=torch.float64).T / goal.unit
            return LinearGoal(w[:, None], -c, True)
        level = float(goal.least)
        if k == 1:
            w = torch.tensor([[goal.sign if label == 1 else -goal.sign]], dtype=torch.float64)
            return LinearGoal(w, torch.tensor([-level], dtype=torch.float64), True)
        if goal.soft and goal.sign < 0:
            # the sum of the others may exceed the largest of them by so much
            level -= math.log(k - 1)
            level = level if goal.is_lead else max(level, 0.0)  # which must also lead
        rivals = [j for j in range(k) if j != label]
        w = torch.zeros(k - 1, k, dtype=torch.float64)
        c = torch.zeros(k - 1, dtype=torch.float64)
        for i, j in enumerate(rivals):
            up, down = (label, j) if goal.sign > 0 else (j, label)
            w[i, up] = 1.0
            w[i, down] = -1.0
            if outputs == "probabilities":
                w[i, down] = -math.exp(level)  # log p - log q > level
            else:
                c[i] = -level
        return LinearGoal(w, c, goal.sign > 0, relaxed=goal.soft and k > 2)

    def one_by_one(self) -> "list[LinearGoal]":
        """Each function alone."""
        parts = zip(self.weights, self.constants, strict=True)
        return [replace(self, weights=w[None], constants=c[None], every=True) for w, c in parts]


class Bound:
    """Upper bounds over boxes, and the cells that their leaves vote for."""

    def __init__(self, table: LeafTable, goal: LinearGoal) -> None:
        tree = table.leaves.tree
        leaves = table.leaves
        # (leaves, f)
        self.every = goal.every
        self.value = leaves.value @ goal.weights.T / leaves.share
        self.base = leaves.start @ goal.weights.T / leaves.share + goal.constants
        self.inside = torch.cat([1 - f.outside.float() for f in table.features])  # (m, leaves)
        size = torch.bincount(tree)
        first = size.cumsum(0) - size
        # (trees, most leaves), filled up with no leaf
        self.leaf = torch.full((len(size), int(size.max())), len(tree))
        self.leaf[tree, torch.arange(len(tree)) - first[tree]] = torch.arange(len(tree))
        strong = self.value.abs().amax(1)
        zeros = strong.new_zeros(len(size))
        high = zeros.scatter_reduce(0, tree, strong, "amax", include_self=False)
        low = zeros.scatter_reduce(0, tree, strong, "amin", include_self=False)
        self.weight = (high - low + 1e-6)[tree].float()  # how much the tree of a leaf can matter

    def __call__(
        self, box: Tensor, outside_fixed: Tensor, spans: list[tuple[int, int]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes (p, m), and which leaves (p, leaves) fixed features exclude -> (p,) the bound, (p,
        m) how much weight its leaves give each cell, and (p,) how much they have together."""
        closed = outside_fixed > 0
        cells = box.float()
        for a, b in spans:
            closed |= cells[:, a:b] @ self.inside[a:b] == 0
        no_leaf = self.value.new_full((len(box), 1), -torch.inf)
        values = (
            torch.cat([torch.where(closed, -torch.inf, value), no_leaf], 1)
            for value in self.value.T
        )
        # of (p, trees, most leaves), for each function
        best = [v[:, self.leaf].max(2) for v in values]
        functions = torch.stack([top.sum(1) for top, _ in best], 1) + self.base  # (p, f)
        ub, which = functions.min(1) if self.every else functions.max(1)
        # (p, trees)
        place = torch.stack([place for _, place in best], 1)[torch.arange(len(box)), which]
        leaf = self.leaf.expand(len(box), -1, -1).gather(2, place[..., None]).squeeze(2)
        chosen = torch.zeros(closed.shape).scatter_(1, leaf, self.weight[leaf])
        return ub, torch.where(box, chosen @ self.inside.T, -1.0), chosen.sum(1)


def decide(changes: LeafChanges, rows: Tensor, max_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which of the rows (r,) have an answer, the moves (r, features) to it, and which are proved to
    have none.

    Rows that are neither took more than `max_nodes` boxes, or are too close to call.
    """
    problem = changes.problem
    table = changes.table
    found, proved = (torch.zeros(len(rows), dtype=torch.bool) for _ in range(2))
    taken = changes.personal.own[rows]
    if table.k == 1 and table.outputs == "probabilities":
        return found, taken, proved
    for label in range(problem.goal.k):
        same = (problem.goal.label[rows] == label).nonzero().squeeze(1)
        if not len(same):
            continue
        bound = Bound(table, LinearGoal.of(problem, label, table.k, table.outputs))
        for part in chunks(same, PEOPLE):
            found[part], taken[part], proved[part] = _decide(changes, bound, rows[part], max_nodes)
            if problem.budget.over():
                break
    return found, taken, proved


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of cells that are still to be looked at."""

    cells: Tensor  # (p, m) which cells are inside
    row: Tensor  # (p,) whose they are
    rank: Tensor  # (p,) the largest is looked at first

    def __len__(self) -> int:
        return len(self.row)

    def where(self, chosen: Tensor) -> "Boxes":
        """Those of a mask (p,)."""
        return Boxes(self.cells[chosen], self.row[chosen], self.rank[chosen])

    def and_more(self, parts: Sequence[Tensor], row: Tensor, rank: Tensor) -> "Boxes":
        """With further boxes, every part of which belongs to these rows."""
        times = len(parts)
        return Boxes(
            torch.cat([self.cells, *parts]),
            torch.cat([self.row, *[row] * times]),
            torch.cat([self.rank, *[rank] * times]),
        )


def _decide(
    changes: LeafChanges, bound: Bound, rows: Tensor, max_nodes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for rows that want one class and fit into memory together."""
    personal = changes.personal
    r = len(rows)
    taken = personal.own[rows]
    looked = torch.zeros(r, dtype=torch.int64)
    found = torch.zeros(r, dtype=torch.bool)
    undecided = torch.zeros(r, dtype=torch.bool)
    every_cell = personal.price[rows].isfinite()
    boxes = Boxes(every_cell, torch.arange(r), torch.zeros(r, dtype=torch.float64))
    while len(boxes):
        if changes.problem.budget.over():
            undecided[boxes.row] = True
            break
        first = _first(boxes.row, boxes.rank, WIDTH)
        looked += torch.bincount(boxes.row[first], minlength=r)
        seen = _promising(changes, bound, rows, boxes.where(first))
        boxes = boxes.where(~first)
        if len(seen.boxes):
            # The best of each box is asked for; where it fails, the box is cut in two.
            row = seen.boxes.row
            top, point, size = seen.favourites(changes, rows)
            holds = succeeds(changes, rows[row], point)
            found[row[holds]] = True
            taken[row[holds]] = point[holds]
            stuck = (size.amax(1) <= 1) & ~holds
            undecided[row[stuck]] = True
            split = ~stuck & ~holds
            parts = seen.cut(changes, split, top, point, size)
            boxes = boxes.and_more(parts, row[split], seen.boxes.rank[split])
        over = looked >= max_nodes
        undecided[boxes.row[over[boxes.row]]] = True
        boxes = boxes.where(~(found | over)[boxes.row])
    return found, taken, ~(found | undecided)


@dataclass(frozen=True, eq=False)
class Bounded:
    """Boxes that may hold an answer, ranked by their bounds, and how their leaves vote."""

    boxes: Boxes
    votes: Tensor  # (p, m)
    total: Tensor  # (p,)

    def favourites(self, changes: LeafChanges, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `_favourites`."""
        personal = changes.personal
        price = personal.price[rows[self.boxes.row]]
        return _favourites(self.votes, self.boxes.cells, price, personal.moves.spans)

    def cut(
        self, changes: LeafChanges, split: Tensor, top: Tensor, point: Tensor, size: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Two boxes for each of those to split: along the feature whose cells the leaves disagree
        about most, or where they agree, that with most cells."""
        conflict = torch.where(size > 1, self.total[:, None] - top, -1.0)
        agreed = conflict.amax(1) <= 1e-4 * self.total
        feature = torch.where(agreed, size.argmax(1), conflict.argmax(1))
        return _split(
            self.boxes.cells[split],
            self.votes[split],
            top[split],
            point[split],
            feature[split],
            changes.personal.moves.feature,
        )


def _promising(changes: LeafChanges, bound: Bound, rows: Tensor, boxes: Boxes) -> Bounded:
    """The boxes whose bound reaches the goal, with no more changes than are allowed."""
    personal = changes.personal
    person = rows[boxes.row]
    upper, votes, total = bound(boxes.cells, changes.outside_fixed[person], personal.moves.spans)
    alive = upper > -SLACK
    most = changes.problem.feasible.encoding.max_changes
    if most:
        unchanged = personal.own[person]
        stays = boxes.cells.gather(1, unchanged) & ~personal.moved[person].gather(1, unchanged)
        alive &= (~stays).sum(1) + personal.rest_count[person] <= most
    ranked = Boxes(boxes.cells[alive], boxes.row[alive], upper[alive])
    return Bounded(ranked, votes[alive], total[alive])


def _first(row: Tensor, rank: Tensor, count: int) -> Tensor:
    """(p,) which boxes are among the first of their row, largest rank first."""
    order = rank.argsort(descending=True, stable=True)
    order = order[row[order].argsort(stable=True)]
    size = torch.bincount(row)
    place = torch.arange(len(row)) - (size.cumsum(0) - size)[row[order]]
    return torch.zeros(len(row), dtype=torch.bool).scatter_(0, order, place < count)


def _favourites(
    votes: Tensor, box: Tensor, price: Tensor, spans: list[tuple[int, int]]
) -> tuple[Tensor, Tensor, Tensor]:
    """(p, features): the weight of the cell with most votes, the cheapest such cell, and how many
    cells there are."""
    found = list[tuple[Tensor, Tensor, Tensor]]()
    for a, b in spans:
        top = votes[:, a:b].amax(1, keepdim=True)
        cheap = torch.where(
            (votes[:, a:b] >= top * (1 - 1e-5)) & box[:, a:b], price[:, a:b], torch.inf
        )
        found.append((top.squeeze(1), a + cheap.argmin(1), box[:, a:b].sum(1)))
    tops, points, sizes = (torch.stack(v, 1) for v in zip(*found, strict=True))
    return tops, points, sizes


def succeeds(changes: LeafChanges, person: Tensor, taken: Tensor) -> Tensor:
    """(p,) do these candidates succeed, and keep every rule?"""
    part = changes.problem[person]
    z = repaired(part.feasible, changes.personal.rows(person, taken))
    return part.met_exactly(z) & part.feasible.contains(z)


def _split(
    box: Tensor, votes: Tensor, top: Tensor, point: Tensor, feature: Tensor, owner: Tensor
) -> tuple[Tensor, Tensor]:
    """Two boxes (p, m) for each: the cells of one feature that have most votes, and the others."""
    of_feature = owner == feature[:, None]
    best = top.gather(1, feature[:, None]) * (1 - 1e-5)
    chosen = of_feature & box & (votes >= best)
    # nothing to choose between: one cell, and others
    all_of_them = (chosen == (of_feature & box)).all(1, keepdim=True)
    single = torch.zeros_like(chosen).scatter_(1, point.gather(1, feature[:, None]), True)
    chosen = torch.where(all_of_them, single, chosen)
    return box & (~of_feature | chosen), box & ~chosen
