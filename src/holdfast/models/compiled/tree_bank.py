"""All trees of many models at once, for a search that asks a whole bank about a few rows.

The codes of a column (see `tree_nodes`) are ranks among the cuts of all models together. Siblings
lie side by side, and whether a row goes right at a node is looked up in one table,

    next(node) = left(node) + table[offset(node) + code of the node's column],

in which nodes that compare with a cut share the steps of their column, and nodes with sets have
their own rows. A leaf is its own left child. So one step down all trees of all models is five
look-ups, whatever library made them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast._core.types import Array, Ints
from holdfast.models.compiled.tree_leaves import TreeIndex
from holdfast.models.compiled.tree_nodes import Codes

# encoded columns, the one that marks missing numbers, and whether its code is the first
Slot = tuple[int, int, int | None, bool]
VISITED = 1 << 20  # rows times trees at once: they stay in the cache


@dataclass(frozen=True)
class ColumnCodes:
    """The codes of one column, of all models together."""

    codes: Codes
    place: int  # among all columns of codes

    def of(self, x: Tensor) -> Tensor:
        """(n, d) encoded rows -> (n,)"""
        c = self.codes
        if c.cuts is None:
            return x[:, c.at].argmax(1)
        code = torch.searchsorted(torch.tensor(c.cuts), x[:, c.at.start].double().contiguous())
        if c.indicator is None:
            return code
        code = code + int(c.missing_code == 0)
        return torch.where(x[:, c.indicator] > 0.5, 0 if c.missing_code == 0 else c.count - 1, code)

    def own_code(self, own: Codes) -> Ints:
        """(codes,) for each of these, the code of one model that it lies in."""
        c = self.codes
        if c.cuts is None or own.cuts is None:
            return np.arange(c.count)
        code = np.searchsorted(own.cuts, np.append(c.cuts, np.inf))
        if c.indicator is None:
            return code
        return np.append(0, code + 1) if c.missing_code == 0 else np.append(code, own.count - 1)


class TreeBank:
    """The trees of M models with the same outputs: encoded rows (n, d) -> (M, n, outputs)."""

    def __init__(self, models: Sequence[TreeIndex]) -> None:
        self.count = len(models)
        self.outputs = len(models[0].nodes.start)
        self.columns = _columns(models)
        writer = _Writer(models, self.columns)
        trees = max(len(m.nodes.roots) for m in models)
        # models with fewer trees are filled up
        roots = np.full((self.count, trees), writer.nothing)
        for i, model in enumerate(models):
            roots[i, : len(model.nodes.roots)] = writer.roots[i]
        self.roots = torch.tensor(roots.reshape(-1))
        self.column = torch.tensor(writer.column)
        self.offset = torch.tensor(writer.offset)
        self.left = torch.tensor(writer.left)
        self.table = torch.tensor(writer.table)
        self.value = torch.tensor(writer.value)
        self.depth = writer.depth
        self.start = torch.tensor(np.stack([m.nodes.start for m in models]))[:, None]
        self.share = torch.tensor([m.nodes.share for m in models], dtype=torch.float64)[
            :, None, None
        ]

    def __call__(self, x: Tensor) -> Tensor:
        size = max(1, VISITED // max(1, len(self.roots)))
        parts = [self._sums(x[i : i + size]) for i in range(0, len(x), size)]
        total = torch.cat(parts, 1) if parts else self.start.new_zeros(self.count, 0, self.outputs)
        return (total + self.start) / self.share

    def _sums(self, x: Tensor) -> Tensor:
        codes = torch.stack([c.of(x) for c in self.columns.values()], 1)  # (n, columns)
        first = (
            (torch.arange(len(x)) * codes.shape[1])[:, None].expand(-1, len(self.roots)).reshape(-1)
        )
        codes = codes.view(-1)
        node = self.roots.repeat(len(x))
        for _ in range(self.depth):  # index_select is several times as fast as an index in brackets
            code = codes.index_select(0, self.column.index_select(0, node).add_(first))
            right = self.table.index_select(0, code.add_(self.offset.index_select(0, node)))
            node = self.left.index_select(0, node).add_(right)
        value = self.value.index_select(0, node)
        return value.view(len(x), self.count, -1, self.outputs).sum(2).transpose(0, 1)


def _columns(models: Sequence[TreeIndex]) -> dict[Slot, ColumnCodes]:
    """By slot, the columns with the cuts of all models."""
    by_slot: dict[Slot, list[Codes]] = {}
    for model in models:
        for c in model.codes:
            by_slot.setdefault(_slot(c), []).append(c)
    out: dict[Slot, ColumnCodes] = {}
    for slot, parts in by_slot.items():
        first = parts[0]
        known = [c.cuts for c in parts if c.cuts is not None]
        cuts = np.unique(np.concatenate(known)) if known else None
        count = first.count if cuts is None else len(cuts) + 1 + (first.indicator is not None)
        missing_code = 0 if first.missing_code == 0 else count - 1
        out[slot] = ColumnCodes(
            Codes(first.at, cuts, count, first.indicator, missing_code), len(out)
        )
    return out


def _slot(c: Codes) -> Slot:
    return c.at.start, c.at.stop, c.indicator, c.missing_code == 0


class _Writer:
    """Numbers the nodes of all models anew, siblings side by side, and writes the table of which
    codes go right."""

    def __init__(self, models: Sequence[TreeIndex], columns: dict[Slot, ColumnCodes]) -> None:
        widest = max((c.codes.count for c in columns.values()), default=1)
        # of the table; in the first nobody goes right
        self.rows = [np.zeros(widest, dtype=np.int64)]
        self.length = widest
        self.nothing = 0
        self.depth = 0
        self.columns = columns
        # for each column, where a row of the table begins that is all 0 and then all 1
        self.steps = {
            slot: self._row(np.repeat([0, 1], column.codes.count))
            for slot, column in columns.items()
        }
        # node 0 is a leaf that adds nothing
        places = [np.zeros(1, dtype=np.int64)]
        offsets = [np.zeros(1, dtype=np.int64)]
        left = [np.zeros(1, dtype=np.int64)]
        value = [np.zeros((1, len(models[0].nodes.start)))]
        self.roots = list[Ints]()
        count = 1
        for model in models:
            order, new_left, roots, depth = _level_by_level(model, count)
            its_places, its_offsets = self._tests(model, order)
            places.append(its_places)
            offsets.append(its_offsets)
            left.append(new_left)
            value.append(_values(model, order))
            self.roots.append(roots)
            self.depth = max(self.depth, depth)
            count += len(order)
        self.column = np.concatenate(places)
        self.offset = np.concatenate(offsets)
        self.left = np.concatenate(left)
        self.value = np.concatenate(value)
        self.table = np.concatenate(self.rows)

    def _tests(self, model: TreeIndex, order: Ints) -> tuple[Ints, Ints]:
        """(nodes,) the column that each node of a model tests, in the new order, and where the
        table says which codes go right."""
        assert model.rights is not None
        common = [self.columns[_slot(codes)] for codes in model.codes]
        places = np.zeros(len(order), dtype=np.int64)
        offsets = np.zeros(len(order), dtype=np.int64)
        lookups = [c.own_code(codes) for c, codes in zip(common, model.codes, strict=True)]
        ranks = [
            _last_within(lookup, codes.count)
            for lookup, codes in zip(lookups, model.codes, strict=True)
        ]
        for i, node in enumerate(order.tolist()):
            if node not in model.rights:
                continue
            place, right = model.rights[node]
            places[i] = common[place].place
            first = int(right.argmax()) if right.any() else len(right)
            # a step: no code below `first` goes right, every one from there on does
            if bool(right[first:].all()):
                last = ranks[place][first - 1] if first else -1
                slot = _slot(model.codes[place])
                offsets[i] = self.steps[slot] + self.columns[slot].codes.count - 1 - last
            else:
                offsets[i] = self._row(right[lookups[place]].astype(np.int64))
        return places, offsets

    def _row(self, goes_right: Ints) -> int:
        """Where a new row of the table begins."""
        begin = self.length
        self.rows.append(goes_right)
        self.length += len(goes_right)
        return begin


def _last_within(own_code: Ints, count: int) -> Ints:
    """(codes of the model,) for each, the last common code that lies in it or a lower one."""
    return np.searchsorted(own_code, np.arange(count), side="right") - 1


def _level_by_level(model: TreeIndex, first: int) -> tuple[Ints, Ints, Ints, int]:
    """The nodes of all trees from the roots down, siblings side by side; the new number of each
    node's left child, or its own for a leaf; the new numbers of the roots, which begin at `first`;
    and the number of steps."""
    nodes = model.nodes
    level = nodes.roots
    order = list[Ints]()
    left = list[Ints]()
    count = first + len(nodes.roots)
    depth = 0
    begin = first
    while len(level):
        inner = nodes.left[level] >= 0
        new = np.arange(begin, begin + len(level))
        new[inner] = count + 2 * np.arange(int(inner.sum()))
        order.append(level)
        left.append(new)
        begin = count
        count = count + 2 * int(inner.sum())
        level = np.stack([nodes.left[level[inner]], nodes.right[level[inner]]], 1).reshape(-1)
        depth += bool(len(level))
    return (
        np.concatenate(order),
        np.concatenate(left),
        np.arange(first, first + len(nodes.roots)),
        depth,
    )


def _values(model: TreeIndex, order: Ints) -> Array:
    """(nodes, outputs) what each leaf adds."""
    outputs = len(model.nodes.start)
    nodes = model.nodes
    ends = np.append(nodes.roots[1:], len(nodes.left))
    tree = np.searchsorted(ends, order, side="right")
    to = nodes.adds_to[tree]
    value = np.zeros((len(order), outputs))
    leaf = nodes.left[order] < 0
    wide = leaf & (to < 0)
    single = leaf & (to >= 0)
    value[wide] = nodes.value[order[wide]]
    value[single, to[single]] = nodes.value[order[single], 0]
    return value
