"""The leaves of several tree models side by side: what every single change does to each model, in
one program.

As in `tree_search.single_changes`, let v_l be the number of features in which a candidate is
outside the box of leaf l. Along feature j, all else as it is, a model is the sum over leaves with
v_l = [outside in j] of value_l * inside_j[l, cell]: one product of matrices for all its cells, and
here one batched product for all models. Every model has its own cells, and every person their own
values to move to, so what a model gives there is looked up cell by cell.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves
from holdfast.models.compiled.tree_leaves import Cells, FeatureLeaves, Leaves, TreeIndex
from holdfast.models.scores import Outputs

NEVER = 254  # for leaves that only fill up a table: no candidate is outside in so many features
DIGITS = 23  # of a sum in single precision


@dataclass(frozen=True)
class StackedFeature:
    """The leaves of G models along one feature; tables are filled up to the largest."""

    cells: list[Cells | None]  # of each model; None where it does not test the feature
    outside: Tensor  # (G * cells, leaves) 1 where the path to a leaf keeps a cell out
    tested: Tensor  # (G, t) the leaves whose paths test the feature
    outside_tested: Tensor  # (G * cells, t)
    weights: Tensor  # (G, t, cells * outputs) what each leaf adds in each cell

    @property
    def count(self) -> int:
        """The number of cells of the model that has most."""
        return len(self.outside) // len(self.cells)

    def own_cells(self, value: Tensor, missing: Tensor) -> Tensor:
        """(n, m) numbers, and which of them are missing -> (G, n, m) the cell of each model."""
        out = torch.zeros(len(self.cells), *value.shape, dtype=torch.int64)
        for i, c in enumerate(self.cells):
            if c is not None and c.cuts is not None:
                cell = torch.searchsorted(
                    torch.tensor(c.cuts, dtype=value.dtype), value.contiguous()
                )
                out[i] = torch.where(missing, c.count - 1, cell) if c.has_gap else cell
        return out


class LeafStack:
    """G tree models with the same outputs; in single precision, leaf values have so few digits that
    all sums are exact, whatever their order."""

    def __init__(self, models: Sequence[TreeIndex], dtype: torch.dtype) -> None:
        leaves = [m.leaves for m in models if m.leaves is not None]
        assert len(leaves) == len(models)
        self.models = models
        self.dtype = dtype
        self.outputs: Outputs = models[0].outputs
        self.k = leaves[0].value.shape[1]
        self.width = max(len(one.tree) for one in leaves)
        self.value = torch.zeros(len(models), self.width, self.k, dtype=dtype)
        for i, one in enumerate(leaves):
            self.value[i, : len(one.tree)] = (
                one.value if dtype == torch.float64 else _few_digits(one)
            )
        self.start = torch.stack([one.start for one in leaves]).to(dtype)[:, None]
        self.share = torch.tensor([one.share for one in leaves], dtype=dtype)[:, None, None]
        self.is_sum = bool((self.share == 1).all())
        by_feature = [{f.cells.feature: f for f in one.features} for one in leaves]
        tested = sorted({i for part in by_feature for i in part})
        self.features = {i: self._stacked([part.get(i) for part in by_feature]) for i in tested}

    def __len__(self) -> int:
        return len(self.models)

    def _stacked(self, parts: Sequence[FeatureLeaves | None]) -> StackedFeature:
        g = len(parts)
        known = [p for p in parts if p is not None]
        cells = max(p.cells.count for p in known)
        t = max(1, *[len(p.tested) for p in known], 1)
        outside = torch.zeros(g, cells, self.width, dtype=torch.uint8)
        outside_tested = torch.full((g, cells, t), NEVER, dtype=torch.uint8)
        tested = torch.zeros(g, t, dtype=torch.int64)
        weights = torch.zeros(g, t, cells, self.k, dtype=self.dtype)
        for i, p in enumerate(parts):
            if p is not None:
                c = p.cells.count
                its = len(p.tested)
                outside[i, :c, : p.outside.shape[1]] = p.outside
                tested[i, :its] = p.tested
                outside_tested[i, :c, :its] = p.outside_tested
                inside = (1 - p.outside_tested.T).to(self.dtype)
                weights[i, :its, :c] = inside[:, :, None] * self.value[i, p.tested][:, None]
        own = [None if p is None else p.cells for p in parts]
        return StackedFeature(
            own, outside.flatten(0, 1), tested, outside_tested.flatten(0, 1), weights.flatten(2)
        )


def _few_digits(leaves: Leaves) -> Tensor:
    """Leaf values as multiples of a power of 2, so that all sums with one leaf of each tree are
    exact."""
    trees = int(leaves.tree.max()) + 1
    largest = torch.zeros(trees, dtype=torch.float64)
    largest.scatter_reduce_(0, leaves.tree, leaves.value.abs().amax(1), "amax")
    total = max(float(largest.sum()), torch.finfo(torch.float32).tiny)
    unit = 2.0 ** (math.ceil(math.log2(total)) - DIGITS)
    return torch.round(leaves.value / unit) * unit


class PersonalLeaves:
    """The stack as n people meet it: the cells of each model that their moves lead to."""

    def __init__(self, stack: LeafStack, personal: PersonalMoves) -> None:
        self.stack = stack
        self.personal = personal
        moves = personal.moves
        x = personal.feasible.x
        n = len(personal)
        g = len(stack)
        # its moves, from and to; leaves; first row
        self.features = list[tuple[int, int, StackedFeature, int]]()
        # (G, n, moves) the row of `table` for the cell a move leads to; an empty one for moves that
        # no model sees
        self.row = torch.zeros(g, n, len(moves), dtype=torch.int64)
        self.outside = torch.zeros(g, n, stack.width, dtype=torch.uint8)  # of the people's own rows
        parts = [torch.zeros(1, stack.width, dtype=torch.uint8)]
        movable = _spans(moves)
        first = 1
        for feature, leaves in stack.features.items():
            begin = (torch.arange(g) * leaves.count)[:, None, None]
            if feature in movable:
                a, b = movable[feature]
                if moves.is_level[a]:
                    cell = torch.arange(b - a).expand(g, n, b - a)
                else:
                    cell = leaves.own_cells(
                        personal.value[:, a:b], moves.to_missing[a:b].expand(n, -1)
                    )
                self.features.append((a, b, leaves, first))
                self.row[:, :, a:b] = cell + begin + first
                parts.append(leaves.outside)
                first += len(leaves.outside)
                continue
            for i, c in enumerate(leaves.cells):
                if c is not None:
                    self.outside[i] += leaves.outside[i * leaves.count + c.of(x)]
        self.table = torch.cat(parts)
        everyone = torch.arange(n)[:, None]
        for own in personal.own.T[:, :, None]:
            self.outside += self.table[self.row[:, everyone, own].squeeze(2)]

    def raw(self, person: Tensor, taken: Tensor, state: Tensor, move: Tensor) -> Tensor:
        """(G, p, k) what each model gives after single moves (p,), in rising order, of the
        candidates at places (p,) among those that people (s,) have taken (s, features)."""
        k = self.stack.k
        g = len(self.stack)
        stack = self.stack
        v = self._outside(person, taken)
        base = torch.bmm(_numbers(v == 0, stack.dtype), stack.value)  # (G, s, k)
        out = base[:, state]
        for a, b, leaves, first in self.features:
            begin = int(torch.searchsorted(move, a))
            end = int(torch.searchsorted(move, b))
            if begin == end:
                continue
            used = torch.zeros(len(person), dtype=torch.bool).index_fill_(0, state[begin:end], True)
            some = used.nonzero().squeeze(1)
            local = (used.cumsum(0) - 1)[state[begin:end]]
            start = first + (torch.arange(g) * leaves.count)[:, None]
            here = self.row[:, person[some], taken[some, self._place(a)]] - first  # (G, s)
            outside = leaves.outside_tested.index_select(0, here.view(-1)).view(g, len(some), -1)
            seen = v if len(some) == len(person) else v.index_select(1, some)
            free = seen.gather(2, leaves.tested[:, None].expand(-1, len(some), -1)) == outside
            # (G, s cells, k)
            along = torch.bmm(_numbers(free, stack.dtype), leaves.weights).view(g, -1, k)
            cell = (
                self.row[:, person[state[begin:end]], move[begin:end]]
                - start
                + local * leaves.count
            )
            now = here + first - start + torch.arange(len(some)) * leaves.count
            there = along.gather(1, cell[..., None].expand(-1, -1, k))
            stays = along.gather(1, now[..., None].expand(-1, -1, k))
            out[:, begin:end] = there + (base[:, some] - stays)[:, local]
        out += stack.start
        return out if stack.is_sum else out.div_(stack.share)

    def _outside(self, person: Tensor, taken: Tensor) -> Tensor:
        """(G, s, leaves) in how many features candidates are outside each box: as the people's own
        rows are, except for the features they have changed."""
        own = self.personal.own[person]
        changed, feature = (taken != own).sort(dim=1, descending=True, stable=True)
        v = self.outside[:, person]
        for f in feature[:, : int(changed.sum(1).max())].T[:, :, None]:
            after = self.row[:, person, taken.gather(1, f).squeeze(1)].view(-1)
            before = self.row[:, person, own.gather(1, f).squeeze(1)].view(-1)
            v += self.table.index_select(0, after).view(v.shape)
            v -= self.table.index_select(0, before).view(v.shape)
        return v

    def _place(self, first_move: int) -> int:
        return int(self.personal.moves.feature[first_move])


def _numbers(flags: Tensor, dtype: torch.dtype) -> Tensor:
    """0 and 1; from bytes this is several times as fast as from booleans."""
    return flags.view(torch.uint8).to(dtype)


def _spans(moves: CellMoves) -> dict[int, tuple[int, int]]:
    """The moves of each feature of the schema, from and to."""
    return {c.feature: span for c, span in zip(moves.cells, moves.spans, strict=True)}
