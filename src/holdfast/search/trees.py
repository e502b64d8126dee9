"""Smallest changes by the model's own thresholds: a split value is where the answer of a tree changes.

    minimise over z    (number of changed features, sum_j w_j |z_j - x_j|)   (norm = 0)   or the sum alone   (norm = 1)
    subject to         gap(z) > margin,  z reachable from x

Between two neighbouring thresholds of a column no tree sees a difference, so of each such cell only the value nearest to
the person's own is worth trying (`moves`), and all single changes of a candidate are weighed at once (`profile`).

1. Grow: from the person's own row one feature at a time, keeping the `beam` candidates with the largest gap, or the
   largest gain of it per cost, until some change succeeds; with norm 1 as long as a cheaper one may follow.
2. Exchange: give any one feature back, and make at most one change instead, as long as that is better.
3. Where nothing was found: the nearest data row of the wanted class, exchanged likewise, if the method was fitted;
   then branch and bound over boxes of cells (`proof`), which finds an answer, or proves that there is none, or ends
   with its budget.

Models of which no thresholds are known are asked at `values` places per column (quantiles of the data, or of the range),
and numbers are then pulled back towards the person's own by bisection.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast.convert.leaves import Cells
from holdfast.explainer import SLACK, Explainer, Query, need
from holdfast.feature import Array
from holdfast.geometry import chunks
from holdfast.model import Converted, Model
from holdfast.reach import Layout
from holdfast.search.moves import Moves, Offers
from holdfast.search.neighbors import NearestNeighbor
from holdfast.search.profile import ByLeaves, ByModel, Profile, Table, table_moves
from holdfast.search.tighten import cost_of, revert

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
        boxes: how many boxes may be looked at for a row without an answer, to find one or to prove that there is none.
        values: places per column at which a model is asked whose thresholds are not known, or too many.
    """

    title: ClassVar[str] = "fewest changes along the thresholds of a tree model, any model"
    paper: ClassVar[str] = "thresholds: Tolomei et al. 2017; bounds on trees: Parmentier & Vidal 2021 (OCEAN)"
    needs_grad: ClassVar[bool] = False
    uses_data: ClassVar[bool] = True
    advice: ClassVar[str] = "neither found nor ruled out within the budget: raise beam, depth or boxes, or fit it on data"

    norm: Literal[0, 1] = 0
    beam: int = 16
    depth: int = 6
    boxes: int = 2000
    values: int = 16

    def check(self, model: object) -> None:
        need(self.norm in (0, 1), f"norm must be 0 or 1, got {self.norm!r}")
        need(self.beam >= 1 and self.depth >= 1, "beam and depth must be at least 1")
        need(self.boxes >= 0, f"boxes must be 0 or more, got {self.boxes}")
        need(self.values >= 2, f"values must be at least 2, got {self.values}")

    def fit(self, X: pd.DataFrame | Tensor, model: Model) -> Self:
        """Remember the data: where rows of the wanted class lie, and where to ask a model without thresholds."""
        self.neighbor_: NearestNeighbor = NearestNeighbor().fit(X, model)
        return self

    def search(self, query: Query) -> Tensor:
        moves, table = self._prepare(query.model)
        out = query.reach.project(query.x)
        if not len(moves):
            return out
        for rows in chunks(torch.arange(len(query)), max(8, CELLS // (self.beam * len(moves)))):
            part = query[rows]
            offers = Offers.of(moves, part.reach)
            profile = ByLeaves(part, offers, table) if table else ByModel(part, offers)
            out[rows] = self._answer(part, offers, profile)
            if query.clock.over():
                break
        return out

    def _prepare(self, model: Model) -> tuple[Moves, Table | None]:
        """The moves, and the leaves if the model has any."""
        layout = model.schema.layout(model.dtype)
        grown = model.copy.grown if isinstance(model, Converted) else None
        data = self.neighbor_.data_.double().numpy() if self.is_fitted else None
        leaves = grown.leaves if grown else None
        cells = leaves.features if leaves else _asked(model, layout, grown.cells if grown else None, data, self.values)
        free = [c for c in cells if not layout.fixed[c.at.start]]
        moves = Moves.of(free, layout, _digit(model))
        if leaves is None:
            return moves, None
        assert isinstance(model, Converted)
        return moves, Table(leaves, table_moves(leaves.features, moves), model.copy.outputs)

    def _answer(self, query: Query, offers: Offers, profile: Profile) -> Tensor:
        best = Best(offers, self.norm)
        grow(query, offers, profile, best, self.beam, self.depth)
        exchange(query, offers, profile, best)
        z = offers.rows(torch.arange(len(offers)), best.at)
        return z


class Best:
    """The best candidate that succeeds for each person, and the nearest miss where there is none."""

    def __init__(self, offers: Offers, norm: int) -> None:
        self.norm, n = norm, len(offers)
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

    def first(self, hit: Tensor, count: Tensor, price: Tensor) -> tuple[Tensor, Tensor]:
        """(r, c) candidates -> (r,) which of those that succeed is the best, and whether there is one."""
        if self.norm == 0:
            least = torch.where(hit, count, count.max() + 1).amin(1, keepdim=True)
            hit = hit & (count == least)
        which = torch.where(hit, price, torch.inf).argmin(1)
        return which, hit.any(1)


def grow(query: Query, offers: Offers, profile: Profile, best: Best, beam: int, depth: int) -> None:
    """One changed feature after the other."""
    moves = offers.moves
    rows, at = torch.arange(len(offers)), offers.own[:, None]  # (r,), (r, b, features)
    alive = torch.ones(at.shape[:2], dtype=torch.bool)
    home: Tensor | None = None
    most = query.reach.layout.max_changes
    for _ in query.steps(depth):
        r, b, f = at.shape
        person, flat = rows.repeat_interleave(b), at.reshape(-1, f)
        count, price = (v[:, None] for v in offers.cost(person, flat))  # (s, 1)
        own = offers.own[person]
        same = (flat == own)[:, moves.feature]  # (s, m) is the feature still at home?
        left = offers.price[person].gather(1, own)[:, moves.feature]
        stayed = offers.moved[person].gather(1, own)[:, moves.feature]
        count = count + offers.moved[person].long() - stayed.long()
        price = price + offers.price[person] - left
        tried = same & alive.reshape(-1, 1) & price.isfinite() & (own[:, moves.feature] != torch.arange(len(moves)))
        if most:
            tried &= count <= most
        if best.norm == 1:
            tried &= price < best.price[person, None]
        if home is None:
            tried |= own[:, moves.feature] == torch.arange(len(moves))  # once, for the gap at home
        gap = profile.gaps(person, flat, tried)
        if home is None:
            home = gap.gather(1, own).amax(1)
        hit = tried & (gap > query.level)
        if len(query.reach.layout.rules):
            hit &= offers.keeps(person, flat)
        best_take(best, offers, rows, flat, hit.view(r, -1), count.view(r, -1), price.view(r, -1), len(moves))
        tried &= ~hit
        stay = (~best.found[rows] if best.norm == 0 else torch.ones(r, dtype=torch.bool)).nonzero().squeeze(1)
        if not len(stay):
            return
        rows = rows[stay]
        shape = r, b, len(moves)
        gap = torch.where(tried, gap, -torch.inf).view(shape)[stay]
        gain = (gap - home[rows][:, None, None]) / price.view(shape)[stay].clamp_min(1e-9)
        at, alive = _widest(moves, at[stay], gap, gain, beam)
        on = alive.any(1).nonzero().squeeze(1)
        rows, at, alive = rows[on], at[on], alive[on]
        if not len(rows):
            return


def best_take(
    best: Best, offers: Offers, rows: Tensor, flat: Tensor, hit: Tensor, count: Tensor, price: Tensor, m: int
) -> None:
    """Keep the best success among single changes of the candidates `flat` (r b, features)."""
    which, any_ = best.first(hit, count, price)
    some = torch.arange(len(rows))
    count, price = count[some, which], price[some, which]
    ok = (any_ & best.beaten(rows, count, price)).nonzero().squeeze(1)
    b = hit.shape[1] // m
    state, move = ok * b + which[ok] // m, which[ok] % m
    at = flat[state].scatter(1, offers.moves.feature[move][:, None], move[:, None])
    best.at[rows[ok]], best.count[rows[ok]], best.price[rows[ok]] = at, count[ok], price[ok]


def _widest(moves: Moves, at: Tensor, gap: Tensor, gain: Tensor, beam: int) -> tuple[Tensor, Tensor]:
    """The next candidates (r, beam, features) of each row, and which of them there are: in turn those with the largest
    gap and with the largest gain per cost, of each candidate and feature as few as will do, none twice."""
    r, b, m = gap.shape
    each = -(-beam // (b * len(moves.spans)))
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
    order = order[:, :beam]
    state, move, feature = (v.gather(1, order) for v in (state, move, feature))
    new = at[torch.arange(r)[:, None], state].scatter(2, feature[..., None], move[..., None])
    return new, rank[:, :beam] < 1 << 40


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


def exchange(query: Query, offers: Offers, profile: Profile, best: Best) -> None:
    """Give one feature back and change at most one instead, as long as that is better."""
    moves, m = offers.moves, len(offers.moves)
    rows = best.found.nonzero().squeeze(1)
    most = query.reach.layout.max_changes
    for _ in range(PASSES):
        if not len(rows) or query.clock.over():
            return
        at, own = best.at[rows], offers.own[rows]
        changed = at != own
        b = int(changed.sum(1).max())
        if not b:
            return
        given, feature = (v[:, :b] for v in changed.sort(dim=1, descending=True, stable=True))
        states = at[:, None].repeat(1, b, 1).scatter(2, feature[..., None], own.gather(1, feature)[..., None])
        person, flat = rows.repeat_interleave(b), states.flatten(0, 1)
        own = offers.own[person]
        count, price = (v[:, None] for v in offers.cost(person, flat))
        same = (flat == own)[:, moves.feature]
        left = offers.price[person].gather(1, own)[:, moves.feature]
        stayed = offers.moved[person].gather(1, own)[:, moves.feature]
        count = count + offers.moved[person].long() - stayed.long()
        price = price + offers.price[person] - left
        better = best.beaten(rows, count.view(-1, b * m), price.view(-1, b * m)).view(-1, m)
        tried = same & given.reshape(-1, 1) & price.isfinite() & better
        if most:
            tried &= count <= most
        hit = tried & (profile.gaps(person, flat, tried) > query.level)
        if len(query.reach.layout.rules):
            hit &= offers.keeps(person, flat)
        before = best.price[rows], best.count[rows]
        best_take(best, offers, rows, flat, hit.view(len(rows), -1), count.view(len(rows), -1), price.view(len(rows), -1), m)
        rows = rows[(best.price[rows] != before[0]) | (best.count[rows] != before[1])]


def _digit(model: Model) -> float:
    """The last digit of a number of size 1 in the coarsest precision that the table or the model holds numbers in."""
    kinds = [f.storage for f in model.schema.features if f.storage.kind == "f"]
    coarsest = max((float(np.finfo(k).eps) for k in kinds), default=0.0)
    return max(coarsest, float(torch.finfo(model.dtype).eps))


def _asked(model: Model, at: Layout, known: list[Cells] | None, data: Array | None, values: int) -> list[Cells]:
    """Cells of features of which no thresholds are known, or too many: at quantiles."""
    out: list[Cells] = []
    for i, (f, s) in enumerate(zip(model.schema.features, model.schema.slices, strict=True)):
        if f.is_category:
            out.append(Cells(i, s, None, f.width))
            continue
        own = next((c.cuts for c in known or () if c.feature == i), None)
        if known is not None and own is None:
            continue  # no tree asks about it
        low, high = float(at.seen_low[s.start]), float(at.seen_high[s.start])
        low, high = (low if np.isfinite(low) else -2.0), (high if np.isfinite(high) else 2.0)
        places = own if own is not None else data[:, s.start] if data is not None else np.array([low, high])
        tick = float(at.grid[s.start])
        if own is None and tick > 0 and (high - low) / tick < values:
            cuts = np.arange(low, high, tick) + tick / 2
        elif own is not None and len(own) <= values:
            cuts = own
        else:
            cuts = np.unique(np.quantile(places, (np.arange(values) + 0.5) / values))
        out.append(Cells(i, s, cuts, len(cuts) + 1))
    return out
