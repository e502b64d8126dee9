"""Smallest changes by the model's own thresholds: a split value is where the answer of a tree changes.

    minimise over z    (number of changed features, sum_j w_j |z_j - x_j|)   (norm = 0)   or the sum alone   (norm = 1)
    subject to         gap(z) > margin,  z reachable from x

Between two neighbouring thresholds of a column no tree sees a difference, so of each such cell only the value nearest
to the person's own is worth trying (`moves`), and all single changes of a candidate are weighed at once (`profile`).

1. Grow: from the person's own row one feature at a time, keeping the `beam` candidates with the largest gap, or the
   largest gain of it per cost, until some change succeeds; with norm 1 as long as a cheaper one may follow.
2. Exchange: give any one feature back, and make at most one change instead, as long as that is better.
3. Where nothing was found: the nearest data row of the wanted class, exchanged likewise, if the method was fitted;
   then branch and bound over boxes of cells (`proof`), which finds an answer, or proves that there is none, or ends
   with its budget.

Models of which no thresholds are known are asked at `thresholds` places per column (quantiles of the data, or of the
range), and numbers are then pulled back towards the person's own by bisection.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast._core.rows import chunks
from holdfast.distances import l1
from holdfast.errors import require
from holdfast.explainer import Explainer
from holdfast.methods._tighten import revert
from holdfast.methods.nearest_neighbor import NearestNeighbor
from holdfast.methods.tree_search.branch_and_bound import decide
from holdfast.methods.tree_search.moves import Moves, Offers, mended, whole
from holdfast.methods.tree_search.single_changes import ByLeaves, ByModel, Profile, Table, table_moves
from holdfast.models.base import Model
from holdfast.models.compiled.tree_leaves import Cells
from holdfast.problem import SLACK, Found, Outcomes, Rows, SearchProblem
from holdfast.schema.encoding import Encoding
from holdfast.schema.feature import Array

CELLS = 1 << 20  # changes weighed at once
PASSES = 20  # exchanges at most
HALVINGS = 12  # of a change, on models without thresholds


@dataclass(eq=False, repr=False)
class TreeSearch(Explainer):
    """The fewest or smallest changes, along the thresholds of a tree model.

    Args:
        norm: 0: as few changed features as possible, and among these the smallest weighted l1; 1: the smallest l1.
        beam: candidates kept for each row while changes are grown.
        depth: features changed at most while growing.
        max_nodes: boxes that may be looked at for a row without an answer, to find one or to prove that there is none.
        thresholds: places per column at which a model is asked whose thresholds are not known, or too many.
    """

    title: ClassVar[str] = "fewest or smallest changes, along the thresholds of trees; any model"
    paper: ClassVar[str] = "compare Tolomei et al. 2017 (feature tweaking); Parmentier & Vidal 2021 (OCEAN)"
    needs_grad: ClassVar[bool] = False
    uses_data: ClassVar[bool] = True
    regression: ClassVar[bool] = True
    advice: ClassVar[str] = "not ruled out within the budget: raise beam, depth or max_nodes, or fit it on data"

    norm: Literal[0, 1] = 0
    beam: int = 16
    depth: int = 6
    max_nodes: int = 2000
    thresholds: int = 16

    def check(self, model: Model) -> None:
        require(self.norm in (0, 1), f"norm must be 0 or 1, got {self.norm!r}")
        require(self.beam >= 1 and self.depth >= 1, "beam and depth must be at least 1")
        require(self.max_nodes >= 0, f"max_nodes must be 0 or more, got {self.max_nodes}")
        require(self.thresholds >= 2, f"thresholds must be at least 2, got {self.thresholds}")

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Remember the data: where rows of the wanted class lie, and where to ask a model without thresholds."""
        self.neighbor_: NearestNeighbor = NearestNeighbor().fit(model, X)

    def search(self, problem: SearchProblem) -> Found:
        moves, table = self._prepare(problem.model)
        out = problem.feasible.project(problem.x)
        if not len(moves):  # there is but one row to reach
            return Found(out, ~problem.goal.met(problem.model(out), -SLACK))
        infeasible = torch.zeros(len(problem), dtype=torch.bool)
        for rows in chunks(torch.arange(len(problem)), max(8, CELLS // (self.beam * len(moves)))):
            part = problem[rows]
            offers = Offers.of(moves, part.feasible)
            profile = ByLeaves(part, offers, table) if table else ByModel(part, offers)
            out[rows], infeasible[rows] = self._answer(part, offers, profile)
            if problem.budget.over():
                break
        return Found(out, infeasible)

    def _prepare(self, model: Model) -> tuple[Moves, Table | None]:
        """The moves, and the leaves if the model has any."""
        known = model.thresholds
        if known and known.leaves:
            moves = _moves(model, known.cells)
            return moves, Table(known.leaves, table_moves(known.cells, moves), known.outputs)
        data = self.neighbor_.data_.double().numpy() if self.is_fitted else None
        at = model.schema.encoding(model.dtype)
        return _moves(model, _asked(model, at, known.cells if known else None, data, self.thresholds)), None

    def _answer(self, problem: SearchProblem, offers: Offers, profile: Profile) -> tuple[Tensor, Tensor]:
        """(n, d) answers, or the nearest misses, and which rows have been proved to have none."""
        best, none = Best(offers, self.norm), torch.zeros(len(problem), dtype=torch.bool)
        grow(profile, best, self.beam, self.depth)
        exchange(profile, best, best.found)
        rows = (~best.found).nonzero().squeeze(1)
        seeds = problem.x[:0]
        if len(rows) and self.is_fitted and not problem.budget.over():
            seeds = self.neighbor_.search(problem[rows])[:, 0]
            best.offer(
                rows, offers.moves.within(seeds), problem.feasible[rows].contains(seeds) & problem[rows].met(seeds)
            )
        open_ = (~best.found).nonzero().squeeze(1)
        if len(open_) and self.max_nodes and isinstance(profile, ByLeaves) and not problem.budget.over():
            found, at, proved = decide(problem, offers, profile, open_, self.max_nodes)
            best.offer(open_, at, found)
            none[open_[proved]] = True
        exchange(profile, best, torch.zeros_like(none).index_fill_(0, rows, True) & best.found)
        return self._settled(problem, offers, profile, best, rows, seeds), none

    def _settled(
        self, problem: SearchProblem, offers: Offers, profile: Profile, best: "Best", rows: Tensor, seeds: Tensor
    ) -> Tensor:
        """The rows that the moves lead to; where these do not hold, but the data row of those `rows` did, that one."""
        z = mended(problem.feasible, offers.rows(torch.arange(len(offers)), best.at))
        if len(seeds):
            held, nearest = (
                problem[rows].met(z[rows]) & problem.feasible[rows].contains(z[rows]),
                problem[rows].met(seeds),
            )
            z[rows] = torch.where((nearest & ~held)[:, None], revert(problem[rows], seeds, l1), z[rows])
        ok = problem.met(z).nonzero().squeeze(1)
        if len(ok) and not profile.exact:
            z[ok] = pull_back(problem[ok], z[ok])
        return z


class Best:
    """The best candidate that succeeds for each person, and the nearest miss where there is none."""

    def __init__(self, offers: Offers, norm: int) -> None:
        self.offers, self.norm, n = offers, norm, len(offers)
        self.at = offers.own.clone()
        self.count = torch.full((n,), torch.iinfo(torch.int64).max)
        self.price = torch.full((n,), torch.inf, dtype=torch.float64)
        self.miss = torch.full((n,), -torch.inf, dtype=torch.float64)

    @property
    def found(self) -> Tensor:
        return self.price.isfinite()

    def beaten(self, rows: Tensor, count: Tensor, price: Tensor) -> Tensor:
        """(r, ...) would candidates of some rows with that many changes and that price be better?"""
        wide = [-1] + [1] * (count.ndim - 1)
        now, paid = self.count[rows].view(wide), self.price[rows].view(wide)
        return (price < paid) & (count <= now) | (count < now) if self.norm == 0 else price < paid

    def offer(self, rows: Tensor, at: Tensor, ok: Tensor) -> None:
        """Keep moves (r, features) of some rows where they are `ok` and better."""
        self.keep(rows, at, ok, *self.offers.cost(rows, at))

    def keep(self, rows: Tensor, at: Tensor, ok: Tensor, count: Tensor, price: Tensor) -> None:
        """The same, with what they cost."""
        ok = (ok & self.beaten(rows, count, price)).nonzero().squeeze(1)
        self.at[rows[ok]], self.count[rows[ok]], self.price[rows[ok]] = at[ok], count[ok], price[ok]

    def take(self, rows: Tensor, at: Tensor, gap: Tensor, hit: Tensor, count: Tensor, price: Tensor) -> Tensor:
        """Keep the best success among the single changes (r b, m) of candidates `at` (r b, features), or, where there
        is none yet, the one with the largest gap; the places of the rows that got better."""
        r, m = len(rows), hit.shape[1]
        gap, hit, count, price = (v.view(r, -1) for v in (gap, hit, count, price))
        if self.norm == 0:
            least = torch.where(hit, count, count.max() + 1).amin(1, keepdim=True)
            hit = hit & (count == least)
        top, far = gap.max(1)
        which = torch.where(hit.any(1), torch.where(hit, price, torch.inf).argmin(1), far)
        some = torch.arange(r)
        count, price = count[some, which], price[some, which]
        win = hit.any(1) & self.beaten(rows, count, price)
        nearer = ~hit.any(1) & ~self.found[rows] & (top > self.miss[rows])
        ok = (win | nearer).nonzero().squeeze(1)
        state, move = ok * (gap.shape[1] // m) + which[ok] // m, which[ok] % m
        self.at[rows[ok]] = at[state].scatter(1, self.offers.moves.feature[move][:, None], move[:, None])
        self.miss[rows] = torch.maximum(self.miss[rows], top)
        win = win.nonzero().squeeze(1)
        self.count[rows[win]], self.price[rows[win]] = count[win], price[win]
        return win


def grow(profile: Profile, best: Best, beam: int, depth: int) -> None:
    """One changed feature after the other."""
    problem, offers = profile.problem, profile.offers
    moves, everything = offers.moves, torch.arange(len(offers.moves))
    rows, at = torch.arange(len(offers)), offers.own[:, None]  # (r,), (r, b, features)
    alive = torch.ones(at.shape[:2], dtype=torch.bool)
    home, wide = torch.empty(0), 1  # wide: candidates a row could have; how many it has is up to its neighbours
    for step in problem.steps(depth):
        r, b, f = at.shape
        person, flat = rows.repeat_interleave(b), at.reshape(-1, f)
        count, price, tried = offers.singles(person, flat)
        stays = offers.own[person][:, moves.feature] == everything
        tried &= alive.reshape(-1, 1)
        if best.norm == 1:
            tried &= price < best.price[person, None]
        if step:  # at first the gap at home is asked for too
            tried &= ~stays
        gap = profile.gaps(person, flat, tried)
        if not step:
            home = gap.gather(1, offers.own).amax(1)
        hit = tried & (gap > problem.level)
        _take(profile, best, rows, person, flat, gap, hit, count, price)
        on = (~best.found[rows] if best.norm == 0 else torch.ones(r, dtype=torch.bool)).nonzero().squeeze(1)
        rows, shape = rows[on], (r, b, len(moves))
        gap = torch.where(tried & ~hit & ~stays, gap, -torch.inf).view(shape)[on]
        gain = (gap - home[rows][:, None, None]) / price.view(shape)[on].clamp_min(1e-9)
        each = -(-2 * beam // (wide * f))
        at, alive = _widest(moves, at[on], gap, gain, beam, each)
        wide = min(beam, wide * len(moves))
        on = alive.any(1).nonzero().squeeze(1)
        rows, at, alive = rows[on], at[on], alive[on]
        if not len(rows):
            return


def exchange(profile: Profile, best: Best, chosen: Tensor) -> None:
    """Give one feature back and change at most one instead, as long as that is better."""
    problem, offers = profile.problem, profile.offers
    rows, m = chosen.nonzero().squeeze(1), len(offers.moves)
    for _ in range(PASSES):
        at, own = best.at[rows], offers.own[rows]
        changed = at != own
        b = int(changed.sum(1).max()) if len(rows) else 0
        if not b or problem.budget.over():
            return
        given, feature = (v[:, :b] for v in changed.sort(dim=1, descending=True, stable=True))
        back = at[:, None].repeat(1, b, 1).scatter(2, feature[..., None], own.gather(1, feature)[..., None])
        person, flat = rows.repeat_interleave(b), back.flatten(0, 1)
        count, price, tried = offers.singles(person, flat)
        tried &= given.reshape(-1, 1)
        tried &= best.beaten(rows, count.view(-1, b * m), price.view(-1, b * m)).view(-1, m)
        gap = profile.gaps(person, flat, tried)
        hit = tried & (gap > problem.level)
        rows = rows[_take(profile, best, rows, person, flat, gap, hit, count, price)]


def _take(
    profile: Profile,
    best: Best,
    rows: Tensor,
    person: Tensor,
    at: Tensor,
    gap: Tensor,
    hit: Tensor,
    count: Tensor,
    price: Tensor,
) -> Tensor:
    """`Best.take` of what keeps the rules; the best of what does not is tried with the other columns moved for it."""
    problem, offers = profile.problem, profile.offers
    layout = problem.feasible.encoding
    if not len(layout.rules):
        return best.take(rows, at, gap, hit, count, price)
    kept = offers.keeps(person, at)
    won = best.take(rows, at, gap, hit & kept, count, price)
    other = Best(offers, best.norm)
    other.take(rows, at, gap, hit & ~kept, count, price)
    some = rows[other.found[rows]]
    if not len(some):
        return won
    reach = problem.feasible[some]
    z = mended(reach, offers.rows(some, other.at[some]))
    ok = reach.contains(z) & problem[some].met(z)
    changed = (layout.per_feature((z != reach.x).to(z.dtype)) > 0).sum(1)
    best.keep(some, other.at[some], ok, changed, whole(((z - reach.x).abs() * layout.weight).double().sum(1)))
    return won


def pull_back(problem: SearchProblem, z: Tensor) -> Tensor:
    """Rows that succeed, with each number as near to the person's own as bisection finds that it can be."""
    at = problem.feasible.encoding
    for column in map(int, at.numbers[~at.missing[at.numbers]]):
        x, far = problem.x[:, column], z[:, column].clone()
        near = torch.where(problem.feasible.outside[:, column], far, x)
        if bool((near == far).all()):
            continue
        for i in range(HALVINGS):
            middle = near if i == 0 else (near + far) / 2
            tried = z.clone()
            tried[:, column] = middle
            tried = problem.feasible.project(tried)
            ok = problem.met(tried) & (l1.value(tried - problem.x, at.weight) <= l1.value(z - problem.x, at.weight))
            z = torch.where(ok[:, None], tried, z)
            far, near = torch.where(ok, middle, far), torch.where(ok, near, middle)
            if problem.budget.over():
                return z
    return z


def _widest(moves: Moves, at: Tensor, gap: Tensor, gain: Tensor, beam: int, each: int) -> tuple[Tensor, Tensor]:
    """The next candidates (r, beam, features) of each row, and which of them there are: in turn those with the largest
    gap and with the largest gain per cost, so many of each candidate and feature, none twice."""
    r, b, m = gap.shape
    picks: list[Tensor] = []
    ranks: list[Tensor] = []
    for turn, value in enumerate((gap, gain)):
        value = torch.where(gap > -torch.inf, value, -torch.inf)
        parts = [_top(value[:, :, first:last], each, first) for first, last in moves.spans]
        v = torch.cat([p for p, _ in parts], 2).flatten(1)
        move = torch.cat([p for _, p in parts], 2)
        move = (move + torch.arange(b)[:, None] * m).flatten(1)  # (r, b c)
        v, order = v.sort(dim=1, descending=True, stable=True)
        picks.append(move.gather(1, order)[:, : 2 * beam])
        rank = 2 * torch.arange(v.shape[1]) + turn
        ranks.append(torch.where(v > -torch.inf, rank, 1 << 40)[:, : 2 * beam])
    rank, order = torch.cat(ranks, 1).sort(dim=1, stable=True)
    pick = torch.cat(picks, 1).gather(1, order)
    state, move = pick // m, pick % m
    feature = moves.feature[move]
    key = _key(at).gather(1, state) + _code(move) - _code(at[torch.arange(r)[:, None], state, feature])
    sorted_, place = key.sort(dim=1, stable=True)
    again = torch.zeros_like(rank, dtype=torch.bool)
    again.scatter_(1, place[:, 1:], sorted_[:, 1:] == sorted_[:, :-1])
    rank, order = torch.where(again, 1 << 40, rank).sort(dim=1, stable=True)
    order = order[:, : int((rank[:, :beam] < 1 << 40).sum(1).max()) if r else 0]
    state, move, feature = (v.gather(1, order) for v in (state, move, feature))
    new = at[torch.arange(r)[:, None], state].scatter(2, feature[..., None], move[..., None])
    return new, rank[:, : order.shape[1]] < 1 << 40


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


def _key(at: Tensor) -> Tensor:
    return _code(at).sum(-1)


def _moves(model: Model, cells: list[Cells]) -> Moves:
    """To the cells of all features that may change."""
    layout = model.schema.encoding(model.dtype)
    return Moves.of([c for c in cells if not layout.fixed[c.at.start]], layout, _digits(model))


def _digits(model: Model) -> Array:
    """(d,) the last digit of a number of size 1, as the table or the model holds it, whichever is coarser."""
    own = [float(np.finfo(f.storage).eps) if f.storage.kind == "f" else 0.0 for f in model.schema.features]
    return np.maximum(np.repeat(own, [f.width for f in model.schema.features]), torch.finfo(model.dtype).eps)


def _asked(model: Model, at: Encoding, known: list[Cells] | None, data: Array | None, values: int) -> list[Cells]:
    """Cells of features of which no thresholds are known, or too many: at quantiles."""
    out: list[Cells] = []
    for i, (f, s) in enumerate(zip(model.schema.features, model.schema.slices, strict=True)):
        if f.is_category:
            out.append(Cells(i, s, None))
            continue
        own = next((c.cuts for c in known or () if c.feature == i), None)
        if known is not None and own is None:
            continue  # no tree asks about it
        low, high = float(at.seen_low[s.start]), float(at.seen_high[s.start])
        low, high = (low if np.isfinite(low) else -2.0), (high if np.isfinite(high) else 2.0)
        there = data[data[:, s.stop - 1] <= 0.5] if data is not None and f.has_gaps else data
        seen = there[:, s.start] if there is not None and len(there) else np.array([low, high])
        places = own if own is not None else seen
        tick = float(at.grid[s.start])
        if own is None and tick > 0 and (high - low) / tick < values:
            cuts = np.arange(low, high, tick) + tick / 2
        elif own is not None and len(own) <= values:
            cuts = own
        else:
            cuts = np.unique(np.quantile(places, (np.arange(values) + 0.5) / values))
        out.append(Cells(i, s, cuts, f.has_gaps))
    return out
