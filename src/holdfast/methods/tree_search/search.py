"""Smallest changes by the model's own thresholds: a split value is where the answer of a tree
changes.

Between two neighbouring thresholds of a column no tree sees a difference, so of each such cell only
the value nearest to the person's own is worth trying (`moves.py`), and all single changes of a
candidate are weighed at once (`single_changes.py`).

1. Grow: from the person's own row one feature at a time, keeping the `beam` candidates with the
largest gap, or the
   largest gain of it per cost, until some change succeeds; as long as a better one may follow.
2. Exchange: give any one feature back, and make at most one change instead, as long as that is
better.
3. Where nothing was found: the nearest data row of the wanted class, exchanged likewise, if the
method was fitted;
   then branch and bound over boxes of cells (`branch_and_bound.py`), which finds an answer, or proves that there is
   none, or ends with its budget.

Models of which no thresholds are known are asked at `thresholds` places per column (quantiles of
the data, or of the range), and numbers are then pulled back towards the person's own by bisection.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from holdfast._core.rows import chunks, rows_per_chunk, whole_blocks
from holdfast.distances import distance_of, l0, l1
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods._tighten import revert
from holdfast.methods.nearest_neighbor import NearestNeighbor
from holdfast.methods.tree_search.branch_and_bound import decide
from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves, repaired, rounded
from holdfast.methods.tree_search.single_changes import (
    LeafChanges,
    LeafTable,
    ModelChanges,
    SingleChanges,
    Tried,
)
from holdfast.models.base import Model
from holdfast.models.compiled.tree_leaves import Cells
from holdfast.problem import SLACK, Found, Outcomes, Rows, SearchProblem
from holdfast.schema.feature import Array

PASSES = 20  # exchanges at most
HALVINGS = 12  # of a change, on models without thresholds
LAST = 1 << 40  # rank of what is no candidate


@dataclass(eq=False, repr=False)
class TreeSearch(Explainer):
    """The fewest or smallest changes, along the thresholds of a tree model.

        minimise over z    (number of changed features, sum_j w_j |z_j - x_j|)   (norm = 0)
                           or the sum                                            (norm = 1)
        subject to         gap(z) > margin,  z reachable from x

    Args:
        norm: 0: as few changed features as possible, and among these the smallest weighted l1; 1:
            the smallest l1.
        beam: candidates kept for each row while changes are grown.
        depth: features changed at most while growing.
        max_nodes: boxes that may be looked at for a row without an answer, to find one or to prove
            that there is none.
        thresholds: places per column at which a model is asked whose thresholds are not known, or
            too many.

    >>> import holdfast as hf
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> data = hf.datasets.moons(n=200)
    >>> forest = RandomForestClassifier(10, max_depth=4, random_state=0).fit(data.X, data.y)
    >>> model = hf.Model.of(forest, data.schema)
    >>> cfs = hf.TreeSearch().explain(model, data.X.head(20), "yes")
    >>> bool((model.predict(cfs.to_frame()) == "yes").all())
    True

    Reference:
        Compare Tolomei et al. 2017, "Interpretable Predictions of Tree-based Ensembles via
        Actionable Feature Tweaking"; Parmentier and Vidal 2021, "Optimal Counterfactual
        Explanations in Tree Ensembles" (OCEAN).
    """

    title = "fewest or smallest changes, along the thresholds of trees; any model"
    paper = "compare Tolomei et al. 2017 (feature tweaking); Parmentier & Vidal 2021 (OCEAN)"
    when = "trees: random forests, XGBoost, LightGBM; it also proves that a row has no answer"
    cost = (
        "beam x depth looks at all single changes, each like a few forward passes of a tree model"
    )
    needs_grad = False
    uses_data = True
    regression = True
    advice = "not ruled out within the budget: raise beam, depth or max_nodes, or fit it on data"

    norm: Literal[0, 1, "l0", "l1"] = 0
    beam: int = 16
    depth: int = 6
    max_nodes: int = 2000
    thresholds: int = 16

    def check(self, model: Model) -> None:
        distance_of(self.norm, (l0, l1))
        if not (self.beam >= 1 and self.depth >= 1):
            raise SettingError("beam and depth must be at least 1")
        if not self.max_nodes >= 0:
            raise SettingError(f"max_nodes must be 0 or more, got {self.max_nodes}")
        if not self.thresholds >= 2:
            raise SettingError(f"thresholds must be at least 2, got {self.thresholds}")

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Remember the data: where rows of the wanted class lie, and where to ask a model without
        thresholds."""
        self.neighbor_: NearestNeighbor = NearestNeighbor().fit(model, X)

    def search(self, problem: SearchProblem) -> Found:
        moves, table = self._prepare(problem.model)
        out = problem.feasible.project(problem.x)
        if not len(moves):  # there is but one row to reach
            return Found(out, ~problem.goal.met(problem.model(out), -SLACK))
        infeasible = torch.zeros(len(problem), dtype=torch.bool)
        for rows in chunks(
            torch.arange(len(problem)), rows_per_chunk(self.beam * len(moves), at_least=8)
        ):
            part = problem[rows]
            personal = PersonalMoves.of(moves, part.feasible)
            changes = LeafChanges(part, personal, table) if table else ModelChanges(part, personal)
            out[rows], infeasible[rows] = self._answer(changes)
            if problem.budget.over():
                break
        return Found(out, infeasible)

    def _prepare(self, model: Model) -> tuple[CellMoves, LeafTable | None]:
        """The moves, and the leaves if the model has any."""
        trees = model.thresholds
        if trees and trees.leaves:
            moves = CellMoves.of(trees.cells, model.schema, model.dtype)
            return moves, LeafTable(trees.leaves, moves, trees.outputs)
        return self.places(model), None

    def places(self, model: Model) -> CellMoves:
        """Moves to `thresholds` places per column, at quantiles."""
        data = self.neighbor_.data_.double().numpy() if self.is_fitted else None
        known = model.thresholds.cells if model.thresholds else None
        return CellMoves.of(
            _quantile_cells(model, known, data, self.thresholds), model.schema, model.dtype
        )

    def _answer(self, changes: SingleChanges) -> tuple[Tensor, Tensor]:
        """(n, d) answers, or the nearest misses, and which rows have been proved to have none."""
        problem = changes.problem
        personal = changes.personal
        best = BestMoves(personal, fewest=distance_of(self.norm) == l0)
        infeasible = torch.zeros(len(problem), dtype=torch.bool)
        grow(changes, best, self.beam, self.depth)
        exchange(changes, best, best.found)
        rows = (~best.found).nonzero().squeeze(1)
        nearest = problem.x[:0]
        if len(rows) and self.is_fitted and not problem.budget.over():
            nearest = self.neighbor_.search(problem[rows])[:, 0]
            part = problem[rows]
            best.offer(
                rows,
                personal.moves.within(nearest),
                part.feasible.contains(nearest) & part.met(nearest),
            )
        open_rows = (~best.found).nonzero().squeeze(1)
        if (
            len(open_rows)
            and self.max_nodes
            and isinstance(changes, LeafChanges)
            and not problem.budget.over()
        ):
            found, taken, proved = decide(changes, open_rows, self.max_nodes)
            best.offer(open_rows, taken, found)
            infeasible[open_rows[proved]] = True
        exchange(
            changes, best, torch.zeros_like(infeasible).index_fill_(0, rows, True) & best.found
        )
        z = self._settled(changes, best, rows, nearest)
        if isinstance(changes, LeafChanges) and changes.ties and changes.table.ties.known:
            lost = (best.found & ~problem.met_exactly(z)).nonzero().squeeze(1)
            if len(lost):  # ties that the model, asked itself, does not count
                part = problem[lost]
                own = PersonalMoves.of(personal.moves, part.feasible)
                z[lost], infeasible[lost] = self._answer(
                    LeafChanges(part, own, changes.table, ties=False)
                )
        return z, infeasible

    def _settled(
        self, changes: SingleChanges, best: "BestMoves", rows: Tensor, nearest: Tensor
    ) -> Tensor:
        """The rows that the moves lead to; where these do not hold, but the data row of those
        `rows` did, that one."""
        problem = changes.problem
        personal = changes.personal
        z = repaired(problem.feasible, personal.rows(torch.arange(len(personal)), best.taken))
        if len(nearest):
            part = problem[rows]
            held = part.met_exactly(z[rows]) & part.feasible.contains(z[rows])
            instead = part.met(nearest) & ~held
            z[rows] = torch.where(instead[:, None], revert(part, nearest, l1), z[rows])
        ok = problem.met(z).nonzero().squeeze(1)
        if len(ok) and not changes.exact:
            z[ok] = pull_back(problem[ok], z[ok])
        return z


class BestMoves:
    """The best candidate that succeeds for each person, and the nearest miss where there is none:
    that with the fewest changed features, and among these the lowest price; or the lowest price
    alone."""

    def __init__(self, personal: PersonalMoves, *, fewest: bool) -> None:
        self.personal = personal
        self.fewest = fewest
        n = len(personal)
        self.taken = personal.own.clone()
        self.count = torch.full((n,), torch.iinfo(torch.int64).max)
        self.price = torch.full((n,), torch.inf, dtype=torch.float64)
        self.miss = torch.full((n,), -torch.inf, dtype=torch.float64)

    @property
    def found(self) -> Tensor:
        """(n,) people with a candidate that succeeds."""
        return self.price.isfinite()

    def beaten(self, rows: Tensor, count: Tensor, price: Tensor) -> Tensor:
        """(r, ...) would candidates of some rows with that many changes and that price be
        better?"""
        shape = [-1] + [1] * (count.ndim - 1)
        fewer = count - self.count[rows].view(shape)
        cheaper = price < self.price[rows].view(shape)
        return cheaper & (fewer <= 0) | (fewer < 0) if self.fewest else cheaper

    def offer(self, rows: Tensor, taken: Tensor, ok: Tensor) -> None:
        """Keep moves (r, features) of some rows where they are `ok` and better."""
        self.keep(rows, taken, ok, *self.personal.cost(rows, taken))

    def keep(self, rows: Tensor, taken: Tensor, ok: Tensor, count: Tensor, price: Tensor) -> None:
        """The same, with what they cost."""
        ok = (ok & self.beaten(rows, count, price)).nonzero().squeeze(1)
        self.taken[rows[ok]] = taken[ok]
        self.count[rows[ok]] = count[ok]
        self.price[rows[ok]] = price[ok]

    def take(self, rows: Tensor, tried: Tried) -> Tensor:
        """Keep the best success among what was tried for each row, or, where there is none yet,
        what has the largest gap; the places of the rows that got better."""
        r = len(rows)
        m = tried.hit.shape[1]
        gap = tried.gap.view(r, -1)
        hit = tried.hit.view(r, -1)
        count = tried.changed.view(r, -1)
        price = tried.price.view(r, -1)
        if self.fewest:
            least = torch.where(hit, count, count.max() + 1).amin(1, keepdim=True)
            hit = hit & (count == least)
        top, far = gap.max(1)
        which = torch.where(hit.any(1), torch.where(hit, price, torch.inf).argmin(1), far)
        some = torch.arange(r)
        count = count[some, which]
        price = price[some, which]
        win = hit.any(1) & self.beaten(rows, count, price)
        nearer = ~hit.any(1) & ~self.found[rows] & (top > self.miss[rows])
        ok = (win | nearer).nonzero().squeeze(1)
        state = ok * (gap.shape[1] // m) + which[ok] // m
        move = which[ok] % m
        feature = self.personal.moves.feature[move][:, None]
        self.taken[rows[ok]] = tried.taken[state].scatter(1, feature, move[:, None])
        self.miss[rows] = torch.maximum(self.miss[rows], top)
        win = win.nonzero().squeeze(1)
        self.count[rows[win]] = count[win]
        self.price[rows[win]] = price[win]
        return win


def grow(changes: SingleChanges, best: BestMoves, beam: int, depth: int, further: int = 0) -> None:
    """One changed feature after the other; `further` than the depth those people who have no answer
    yet, and with half as many candidates."""
    problem = changes.problem
    personal = changes.personal
    everything = torch.arange(len(personal.moves))
    moves = personal.moves
    # (r,), (r, b, features)
    rows = torch.arange(len(personal))
    taken = personal.own[:, None]
    alive = torch.ones(taken.shape[:2], dtype=torch.bool)
    # wide: candidates a row could have; how many it has is up to its neighbours
    gap_before = torch.empty(0)
    wide = 1
    for step in problem.steps(depth + further):
        if step == depth:
            on = (~best.found[rows]).nonzero().squeeze(1)
            beam = -(-beam // 2)
            rows = rows[on]
            taken = taken[on, :beam]
            alive = alive[on, :beam]
        if not len(rows):
            return
        r, b, f = taken.shape
        person = rows.repeat_interleave(b)
        flat = taken.reshape(-1, f)
        count, price, open_ = personal.singles(person, flat)
        stays = personal.own[person][:, moves.feature] == everything
        open_ &= alive.reshape(-1, 1) & best.beaten(person, count, price)
        if step:  # at first the gap before any change is asked for too
            open_ &= ~stays
        gap = changes.gaps(person, flat, open_)
        if not step:
            gap_before = gap.gather(1, personal.own).amax(1)
        hit = open_ & (gap > problem.level)
        _take(changes, best, rows, Tried(person, flat, gap, hit, count, price))
        # One more change is one more feature, unless one has to change anyway: it may change
        # otherwise.
        on = (
            ~best.found[rows] | personal.must_move[rows]
            if best.fewest
            else torch.ones(r, dtype=torch.bool)
        )
        on = on.nonzero().squeeze(1)
        rows = rows[on]
        shape = r, b, len(moves)
        gap = torch.where(open_ & ~hit & ~stays, gap, -torch.inf).view(shape)[on]
        gain = (gap - gap_before[rows][:, None, None]) / price.view(shape)[on].clamp_min(1e-9)
        each = -(-2 * beam // (wide * f))
        taken, alive = _widest(moves, taken[on], gap, gain, beam, each)
        wide = min(beam, wide * len(moves))
        on = alive.any(1).nonzero().squeeze(1)
        rows = rows[on]
        taken = taken[on]
        alive = alive[on]


def exchange(changes: SingleChanges, best: BestMoves, chosen: Tensor) -> None:
    """Give one feature back and change at most one instead, as long as that is better."""
    problem = changes.problem
    personal = changes.personal
    rows = chosen.nonzero().squeeze(1)
    m = len(personal.moves)
    for _ in range(PASSES):
        taken = best.taken[rows]
        own = personal.own[rows]
        changed = taken != own
        b = int(changed.sum(1).max()) if len(rows) else 0
        if not b or problem.budget.over():
            return
        given, feature = (v[:, :b] for v in changed.sort(dim=1, descending=True, stable=True))
        back = (
            taken[:, None]
            .repeat(1, b, 1)
            .scatter(2, feature[..., None], own.gather(1, feature)[..., None])
        )
        person = rows.repeat_interleave(b)
        flat = back.flatten(0, 1)
        count, price, open_ = personal.singles(person, flat)
        open_ &= given.reshape(-1, 1)
        open_ &= best.beaten(rows, count.view(-1, b * m), price.view(-1, b * m)).view(-1, m)
        gap = changes.gaps(person, flat, open_)
        hit = open_ & (gap > problem.level)
        rows = rows[_take(changes, best, rows, Tried(person, flat, gap, hit, count, price))]


def _take(changes: SingleChanges, best: BestMoves, rows: Tensor, tried: Tried) -> Tensor:
    """`BestMoves.take` of what keeps the rules; the best of what does not is tried with other
    columns moved for it."""
    problem = changes.problem
    personal = changes.personal
    encoding = problem.feasible.encoding
    if not len(encoding.rules):
        return best.take(rows, changes.confirmed(rows, tried, fewest=best.fewest))
    kept = personal.keep_rules(tried.person, tried.taken)
    won = best.take(
        rows, changes.confirmed(rows, tried._replace(hit=tried.hit & kept), fewest=best.fewest)
    )
    other = BestMoves(personal, fewest=best.fewest)
    other.take(rows, tried._replace(hit=tried.hit & ~kept))
    some = rows[other.found[rows]]
    if not len(some):
        return won
    part = problem[some]
    taken = other.taken[some]
    z = repaired(part.feasible, personal.rows(some, taken))
    ok = part.feasible.contains(z) & part.met(z)
    changed = (encoding.per_feature((z != part.x).to(z.dtype)) > 0).sum(1)
    best.keep(
        some, taken, ok, changed, rounded(((z - part.x).abs() * encoding.weight).double().sum(1))
    )
    return won


def pull_back(problem: SearchProblem, z: Tensor, halvings: int = HALVINGS) -> Tensor:
    """Rows that succeed, with each number as near to the person's own as bisection finds that it
    can be."""
    encoding = problem.feasible.encoding
    z = z.clone()
    for column in map(int, encoding.numbers[~encoding.missing[encoding.numbers]]):
        changed = (
            ((z[:, column] != problem.x[:, column]) & ~problem.feasible.outside[:, column])
            .nonzero()
            .squeeze(1)
        )
        if not len(changed):
            continue
        full = whole_blocks(changed)
        z[changed] = _pull_back_one(problem[full], z[full], column, halvings)[: len(changed)]
        if problem.budget.over():
            return z
    return z


def _pull_back_one(problem: SearchProblem, z: Tensor, column: int, halvings: int) -> Tensor:
    near = problem.x[:, column]
    far = z[:, column].clone()
    encoding = problem.feasible.encoding
    for i in range(halvings):
        middle = near if i == 0 else (near + far) / 2
        tried = z.clone()
        tried[:, column] = middle
        tried = problem.feasible.project(tried)
        cost = l1.value(tried - problem.x, encoding.weight)
        cost_now = l1.value(z - problem.x, encoding.weight)
        ok = problem.met(tried) & (cost <= cost_now)
        z = torch.where(ok[:, None], tried, z)
        far = torch.where(ok, middle, far)
        near = torch.where(ok, near, middle)
    return z


def _widest(
    moves: CellMoves, taken: Tensor, gap: Tensor, gain: Tensor, beam: int, each: int
) -> tuple[Tensor, Tensor]:
    """The next candidates (r, beam, features) of each row, and which of them there are: in turn
    those with the largest gap and with the largest gain per cost, so many of each candidate and
    feature, none twice."""
    r, b, m = gap.shape
    picks = list[Tensor]()
    ranks = list[Tensor]()
    for turn, value in enumerate((gap, gain)):
        value = torch.where(gap > -torch.inf, value, -torch.inf)
        parts = [_top(value[:, :, first:last], each, first) for first, last in moves.spans]
        v = torch.cat([p for p, _ in parts], 2).flatten(1)
        move = torch.cat([p for _, p in parts], 2)
        move = (move + torch.arange(b)[:, None] * m).flatten(1)  # (r, b c)
        v, order = v.sort(dim=1, descending=True, stable=True)
        picks.append(move.gather(1, order)[:, : 2 * beam])
        rank = 2 * torch.arange(v.shape[1]) + turn
        ranks.append(torch.where(v > -torch.inf, rank, LAST)[:, : 2 * beam])
    rank, order = torch.cat(ranks, 1).sort(dim=1, stable=True)
    pick = torch.cat(picks, 1).gather(1, order)
    state = pick // m
    move = pick % m
    feature = moves.feature[move]
    replaced = taken[torch.arange(r)[:, None], state, feature]
    key = _code(taken).sum(-1).gather(1, state) + _code(move) - _code(replaced)
    sorted_, place = key.sort(dim=1, stable=True)
    again = torch.zeros_like(rank, dtype=torch.bool)
    again.scatter_(1, place[:, 1:], sorted_[:, 1:] == sorted_[:, :-1])
    rank, order = torch.where(again, LAST, rank).sort(dim=1, stable=True)
    order = order[:, : int((rank[:, :beam] < LAST).sum(1).max()) if r else 0]
    state = state.gather(1, order)
    move = move.gather(1, order)
    feature = feature.gather(1, order)
    new = taken[torch.arange(r)[:, None], state].scatter(2, feature[..., None], move[..., None])
    return new, rank[:, : order.shape[1]] < LAST


def _top(value: Tensor, count: int, first: int) -> tuple[Tensor, Tensor]:
    """The largest of (r, b, c), and their places counted from `first`."""
    if count == 1:
        top, place = value.max(2, keepdim=True)
    else:
        top, place = (v[:, :, :count] for v in value.sort(dim=2, descending=True, stable=True))
    return top, place + first


def _code(move: Tensor) -> Tensor:
    """A number for each move; candidates are told apart by the sum of those of their moves."""
    z = (move + 1) * -7046029254386353131
    return (z ^ (z >> 29)) * -4658895280553007687


def _quantile_cells(
    model: Model, known: list[Cells] | None, data: Array | None, count: int
) -> list[Cells]:
    """Cells of features of which no thresholds are known, or too many: so many of each, at
    quantiles."""
    encoding = model.schema.encoding(model.dtype)
    out = list[Cells]()
    for i, (f, s) in enumerate(zip(model.schema.features, model.schema.slices, strict=True)):
        if f.is_category:
            out.append(Cells(i, s, None))
            continue
        thresholds = next((c.cuts for c in known or () if c.feature == i), None)
        if known is not None and thresholds is None:
            continue  # no tree asks about it
        low = float(encoding.seen_low[s.start])
        high = float(encoding.seen_high[s.start])
        low = low if np.isfinite(low) else -2.0
        high = high if np.isfinite(high) else 2.0
        there = data[data[:, s.stop - 1] <= 0.5] if data is not None and f.has_gaps else data
        seen = there[:, s.start] if there is not None and len(there) else np.array([low, high])
        tick = float(encoding.grid[s.start])
        if thresholds is None and tick > 0 and (high - low) / tick < count:
            cuts = np.arange(low, high, tick) + tick / 2
        elif thresholds is not None and len(thresholds) <= count:
            cuts = thresholds
        else:
            places = seen if thresholds is None else thresholds
            cuts = np.unique(np.quantile(places, (np.arange(count) + 0.5) / count))
        out.append(Cells(i, s, cuts, f.has_gaps))
    return out
