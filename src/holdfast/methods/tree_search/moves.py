"""The moves that are open to a person: of one feature, to the nearest value in another cell of it.

A cell is a stretch of values between two cuts, a level, or that a number is missing. Where the cuts
are a tree model's own thresholds, the answer is the same all over a cell, so the value nearest to
the person's own is the only one worth trying; of a missing number, that nearest to what stands for
it. Moves, pairs of a feature and a cell, are numbered through; a candidate takes one of them for
each feature, `taken` (features,).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from holdfast._core.types import Array
from holdfast.models.compiled.tree_leaves import Cells
from holdfast.schema.feasible import FeasibleSet
from holdfast.schema.feature import Feature
from holdfast.schema.rule_projection import excess
from holdfast.schema.schema import Schema

# last digits by which a value is put beyond a cut, so that writing it in the table cannot lose it
HAIR = 16


@dataclass(frozen=True)
class CellMoves:
    """All moves of a schema: m of them, one for each cell of each feature that has cells."""

    spans: list[tuple[int, int]]  # of each feature: its first move, and the one after its last
    feature: Tensor  # (m,) place in `spans`
    column: Tensor  # (m,) the encoded column it sets: of the number, or of the level
    is_level: Tensor  # (m,)
    first: Tensor  # (m,) the lowest and
    last: Tensor  # (m,) the highest value of the cell that is worth taking, and
    above: Tensor  # (m,) what lies
    # (m,) between these two, open and closed, is in the cell too; of levels all are 0 or 1
    below: Tensor
    missing_column: Tensor  # (m,) the encoded column that says whether the number is missing, or -1
    to_missing: Tensor  # (m,) is this the cell of a missing number? Nobody can go there.
    cells: list[Cells]  # of each feature

    @staticmethod
    def of(cells: list[Cells], schema: Schema, dtype: torch.dtype) -> "CellMoves":
        """Those to cells of the features that may change, of rows that are encoded in that
        precision."""
        encoding = schema.encoding(dtype)
        cells = [c for c in cells if not encoding.fixed[c.at.start]]
        spans = list[tuple[int, int]]()
        count = 0
        feature = list[int]()
        column = list[int]()
        missing_column = list[int]()
        is_level = list[bool]()
        to_missing = list[bool]()
        ends = list[Array]()
        # A number has one encoded column and ends of its cells; a category has a column for each
        # level, which is its cell.
        for i, c in enumerate(cells):
            spans.append((count, count + c.count))
            count += c.count
            feature += [i] * c.count
            is_level += [c.cuts is None] * c.count
            column += range(c.at.start, c.at.stop) if c.cuts is None else [c.at.start] * c.count
            missing_column += [c.at.stop - 1 if c.has_gap else -1] * c.count
            to_missing += [False] * (c.count - 1) + [c.has_gap]
            level = np.tile([1.0, 1.0, 0.0, 1.0], (c.count, 1))
            ends.append(
                level if c.cuts is None else _ends(c.cuts, schema.features[c.feature], dtype)
            )
            ends += [np.array([[np.inf, -np.inf, np.inf, -np.inf]])] * c.has_gap
        table = np.concatenate([np.zeros((0, 4)), *ends])
        first, last, above, below = torch.tensor(table, dtype=encoding.center.dtype).T.contiguous()
        feature_ = torch.tensor(feature, dtype=torch.int64)
        column_ = torch.tensor(column, dtype=torch.int64)
        missing = torch.tensor(missing_column, dtype=torch.int64)
        level = torch.tensor(is_level, dtype=torch.bool)
        to_gap = torch.tensor(to_missing, dtype=torch.bool)
        return CellMoves(
            spans, feature_, column_, level, first, last, above, below, missing, to_gap, cells
        )

    def __len__(self) -> int:
        return len(self.feature)

    @cached_property
    def starts(self) -> Tensor:
        """(features,) the first move of each."""
        return torch.tensor([a for a, _ in self.spans], dtype=torch.int64)

    @cached_property
    def gaps(self) -> list[int]:
        """The features that may be missing."""
        return [i for i, c in enumerate(self.cells) if c.has_gap]

    def within(self, z: Tensor) -> Tensor:
        """(n, d) -> (n, features) the move that each feature's value belongs to."""
        cells = [a + c.of(z) for (a, _), c in zip(self.spans, self.cells, strict=True)]
        return torch.stack(cells, 1) if cells else z.new_zeros(len(z), 0, dtype=torch.int64)


def _ends(cuts: Array, f: Feature, dtype: torch.dtype) -> Array:
    """(cells, 4) the lowest and the highest value in each cell, on the grid or a hair inside, and
    where it begins (that is not part of it) and ends; of a grid as far as rounding may take a
    value."""
    if f.grid:
        down, up = around(cuts, f, dtype)
        near = 1e-6 * f.grid / f.scale
        low = up - near
        high = down + near
    else:
        down, up = _beside(cuts, f, dtype)
        low = cuts
        high = cuts
    ends = [
        np.append(-np.inf, up),
        np.append(down, np.inf),
        np.append(-np.inf, low),
        np.append(high, np.inf),
    ]
    return np.stack(ends, 1)


def _beside(cuts: Array, f: Feature, dtype: torch.dtype) -> tuple[Array, Array]:
    """The values of a real feature a hair below and above each cut: as near as writing them in the
    table cannot lose; where that is too far, in thin cells, as near as the table can hold them, and
    else as encoded rows can."""
    model = torch.finfo(dtype)
    table = np.finfo(f.storage if f.storage.kind == "f" else np.float64)
    digit = np.maximum(
        float(table.eps) * (np.abs(cuts) + abs(f.center) / f.scale), model.eps * np.abs(cuts)
    )
    hair = HAIR * digit + max(float(table.tiny) / f.scale, model.tiny)
    down = cuts - hair
    up = cuts + hair
    thin = up[:-1] > down[1:]
    if thin.any():
        below, above = _held(cuts, f, dtype)
        up[:-1] = np.where(thin, above[:-1], up[:-1])
        down[1:] = np.where(thin, below[1:], down[1:])
        thin = up[:-1] > down[1:]
        up[:-1] = np.where(thin, np.nextafter(cuts[:-1], np.inf), up[:-1])
        down[1:] = np.where(thin, cuts[1:], down[1:])
    return down, up


def _held(cuts: Array, f: Feature, dtype: torch.dtype) -> tuple[Array, Array]:
    """The last number that the table can hold and that is not above each cut, and the first one
    that is, encoded."""
    values = cuts * f.scale + f.center
    storage = f.storage if f.storage.kind == "f" else np.dtype(np.float64)
    values = values.astype(storage)
    beside = [values]
    for way in (-np.inf, np.inf):
        beside += [np.nextafter(values, np.array(way, storage))]
        beside += [np.nextafter(beside[-1], np.array(way, storage))]
    encoded = [
        torch.tensor((v.astype(np.float64) - f.center) / f.scale, dtype=dtype).double().numpy()
        for v in beside
    ]
    sides = np.stack(encoded)
    return np.where(sides <= cuts, sides, -np.inf).max(0), np.where(
        sides > cuts, sides, np.inf
    ).min(0)


def around(cuts: Array, f: Feature, dtype: torch.dtype) -> tuple[Array, Array]:
    """The last value of a feature's grid that is not above each cut, and the first one that is,
    encoded just as rows of the table are: a cut may lie a last digit beside such a value."""

    def encoded(ticks: Array) -> Array:
        values = (f.stored(f.multiples(ticks * f.grid)) - f.center) / f.scale
        return torch.tensor(values, dtype=dtype).double().numpy()

    near = np.round((cuts * f.scale + f.center) / f.grid)
    last = near - 2 + sum((encoded(near + i) <= cuts).astype(np.float64) for i in (-1, 0, 1))
    return encoded(last), encoded(last + 1)


@dataclass(frozen=True)
class PersonalMoves:
    """What the moves are to n people."""

    moves: CellMoves
    feasible: FeasibleSet
    start: Tensor  # (n, d) the person's own row, made reachable
    own: Tensor  # (n, features) the moves that stay there
    value: Tensor  # (n, m) what the column becomes
    price: Tensor  # (n, m) of the feature's change, weighted l1; inf where it cannot be reached
    moved: Tensor  # (n, m) does it differ from the person's own value?
    rest_price: Tensor  # (n,) price and
    # (n,) number of changes in features that have no moves: values that may not stay
    rest_count: Tensor

    @staticmethod
    def of(moves: CellMoves, feasible: FeasibleSet) -> "PersonalMoves":
        start = feasible.project(feasible.x)
        x = feasible.x
        encoding = feasible.encoding
        column = moves.column
        unchanged = moves.within(start)
        stays = torch.zeros(len(x), len(moves), dtype=torch.bool).scatter_(1, unchanged, True)
        value_now = x[:, column]
        lo = feasible.lo[:, column]
        hi = feasible.hi[:, column]
        # A limit between the end of a cell and its first value worth taking is in the cell all the
        # same.
        fits = stays | ((hi > moves.above) & (lo <= moves.below) & (moves.first <= moves.last))
        lo, hi = (
            torch.maximum(lo, torch.minimum(moves.first, hi)),
            torch.minimum(hi, torch.maximum(moves.last, lo)),
        )
        value = torch.where(
            stays, start[:, column], torch.minimum(torch.maximum(value_now, lo), hi)
        )
        value = torch.where(moves.is_level, 1.0, value)
        moved = torch.where(moves.is_level, value_now <= 0, value != value_now)
        price = torch.where(moves.is_level, 2.0 * (value_now <= 0), (value - value_now).abs())
        if moves.gaps:
            filled = (
                (moves.missing_column >= 0) & ~moves.to_missing & (x[:, moves.missing_column] > 0.5)
            )
            moved = moved | filled
            price = price + filled
        price = torch.where(fits, rounded((encoding.weight[column] * price).double()), torch.inf)
        has_moves = torch.zeros(encoding.features, dtype=torch.bool)
        has_moves[encoding.owner[column]] = True
        rest = ~has_moves[encoding.owner]
        rest_price = rounded(((start - x).abs() * encoding.weight * rest).double().sum(1))
        changed = encoding.per_feature(((start != x) & rest).to(x.dtype)) > 0
        return PersonalMoves(
            moves, feasible, start, unchanged, value, price, moved, rest_price, changed.sum(1)
        )

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def must_move(self) -> Tensor:
        """(n,) people with a value that may not stay, in a feature that has moves."""
        return self.moved.gather(1, self.own).any(1)

    def cost(self, person: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        """Moves taken (s, features) by people (s,) -> (s,) how many features change, and their
        price."""
        price = self.price[person[:, None], taken]
        moved = self.moved[person[:, None], taken]
        return moved.sum(1) + self.rest_count[person], rounded(price.sum(1)) + self.rest_price[
            person
        ]

    def singles(self, person: Tensor, taken: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Moves taken (s, features) by people (s,) -> (s, m) for each single change of a feature
        that has stayed so far: how many features are changed then, the price, and whether it can be
        made."""
        moves = self.moves
        unchanged = self.own[person]
        count, price = (v[:, None] for v in self.cost(person, taken))
        left = self.price[person].gather(1, unchanged)[:, moves.feature]
        stayed = self.moved[person].gather(1, unchanged)[:, moves.feature]
        count = count + self.moved[person].long() - stayed.long()
        price = price + self.price[person] - left
        fits = (taken == unchanged)[:, moves.feature] & price.isfinite()
        most = self.feasible.encoding.max_changes
        return count, price, fits & (count <= most) if most else fits

    def rows(self, person: Tensor, taken: Tensor) -> Tensor:
        """Moves taken (s, features) by people (s,) -> (s, d) rows."""
        z = self.start[person]
        moves = self.moves
        for a, b in moves.spans:
            if moves.is_level[a]:
                z[:, int(moves.column[a]) : int(moves.column[a]) + b - a] = 0.0
        z[torch.arange(len(taken))[:, None], moves.column[taken]] = self.value[
            person[:, None], taken
        ]
        for i in moves.gaps:
            z[:, moves.cells[i].at.stop - 1] = moves.to_missing[taken[:, i]].to(z.dtype)
        return z

    def after(self, z: Tensor, person: Tensor, move: Tensor) -> Tensor:
        """Rows z (s, d) of people (s,) after one move (s,) each; overwrites them."""
        owner = self.feasible.encoding.owner
        column = self.moves.column[move]
        missing = self.moves.missing_column[move]
        z[(owner == owner[column][:, None]) & self.moves.is_level[move][:, None]] = 0.0
        if self.moves.gaps:
            with_gap = (missing >= 0).nonzero().squeeze(1)
            z[with_gap, missing[with_gap]] = self.moves.to_missing[move[with_gap]].to(z.dtype)
        return z.scatter_(1, column[:, None], self.value[person, move][:, None])

    def keep_rules(self, person: Tensor, taken: Tensor) -> Tensor:
        """Moves taken (s, features) by people (s,) -> (s, m) which single change of them keeps the
        rules."""
        encoding = self.feasible.encoding
        moves = self.moves
        z = self.rows(person, taken)
        value = self.value[person]
        ok = torch.ones_like(value, dtype=torch.bool)
        step = torch.where(moves.is_level, 0.0, value - z[:, moves.column])
        number, missing = encoding.gaps
        is_missing = (z[:, missing] > 0.5).long()
        filled = (
            (moves.missing_column >= 0) & ~moves.to_missing & (z[:, moves.missing_column] > 0.5)
        )
        over = excess(z, encoding.parts).T
        for (_, _, bound), weights, above in zip(encoding.parts, encoding.rules, over, strict=True):
            slack = 8 * torch.finfo(z.dtype).eps * (1 + bound.abs())
            kept = above[:, None] + step * weights[moves.column] <= slack
            unknown = is_missing[:, weights[number] != 0].sum(1)[:, None]
            unknown = unknown - (filled & (weights[moves.column] != 0)).long()
            # a rule about a number that is still missing cannot be broken
            ok &= kept | (unknown > 0)
        return ok


def repaired(feasible: FeasibleSet, z: Tensor) -> Tensor:
    """Rows z, and where they break a rule, the columns that have not changed moved so that it
    holds, if they can."""
    kept = feasible.contains(z)
    if bool(kept.all()):
        return z
    changed = (z != feasible.x) & feasible.encoding.in_rule
    others = replace(
        feasible, lo=torch.where(changed, z, feasible.lo), hi=torch.where(changed, z, feasible.hi)
    )
    return torch.where(kept[:, None], z, others.project(z))


def rounded(v: Tensor) -> Tensor:
    """To 2^-28: sums of the same numbers in another order are then the same, and so are choices by
    them."""
    return torch.round(v * 2.0**28) / 2.0**28
