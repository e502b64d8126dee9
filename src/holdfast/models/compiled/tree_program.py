"""All trees of a model over blocks of rows, with integers only.

Number the leaves of a tree from left to right. With b = 1 where a row would go right at a node, the
leaf below it is

    leaf(node) = max(leaf(left), b * leaf(right)),

as every leaf on the right has a higher number. So a tree is some comparisons, products and maxima
of bytes, each over a whole block of rows, 32 of them in one instruction; every node is evaluated
for every row, which is still faster than walking from node to node. What a leaf adds is looked up
once per tree.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from holdfast._core.types import Array, Mask
from holdfast.models.compiled.tree_nodes import Codes, Nodes

BLOCK = 1 << 15  # rows: registers stay in the second-level cache
PIECE = 1 << 12  # rows that are turned into columns at a time
MANY = 12  # from this many levels on, a set is looked up rather than compared one by one

# function, first, second, result: slots of codes, registers, constants
Op = tuple[Callable[..., Any], Any, Any, Any]


@dataclass(frozen=True)
class Tree:
    """The program of one tree."""

    # on slots ("code", i), ("register", i), the same as booleans ("bits", i), and constants
    ops: list[Op]
    result: Any
    value: Array  # (k, leaves)
    adds_to: int


class TreeProgram:
    """The sum of the trees, ready to be evaluated: encoded rows (n, d) -> (n, outputs)."""

    def __init__(
        self, nodes: Nodes, codes: Sequence[Codes], rights: dict[int, tuple[int, Mask]]
    ) -> None:
        self.code_dtype: Any = np.min_scalar_type(max((c.count for c in codes), default=1))
        self.coders = [coder(c, self.code_dtype) for c in codes]
        self.start = nodes.start
        self.share = nodes.share
        self.outputs = len(nodes.start)
        self.registers = 1
        written = [self._tree(nodes, which, rights) for which in range(len(nodes.roots))]
        self.constants: list[Any] = []
        places: dict[Any, int] = {("code", i): i for i in range(len(codes))}
        for i in range(self.registers):
            places |= {("register", i): len(places), ("bits", i): len(places) + 1}

        def place(slot: Any) -> int:
            key: Any = cast(Any, slot) if isinstance(slot, tuple) else (type(slot), slot)
            if key not in places:
                places[key] = len(places)
                self.constants.append(slot)
            return places[key]

        ops = [[(f, place(a), place(b), place(o)) for f, a, b, o in tree.ops] for tree in written]
        self.trees = [
            replace(t, ops=o, result=place(t.result)) for t, o in zip(written, ops, strict=True)
        ]

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.numpy()
        total = np.empty((self.outputs, len(rows)))
        for begin in range(0, len(rows), BLOCK):
            self._block(rows[begin : begin + BLOCK], total[:, begin : begin + BLOCK])
        return torch.as_tensor(np.ascontiguousarray(total.T))

    def _block(self, rows: Array, total: Array) -> None:
        # All arrays are made once a block and written in place: a fresh one for each step would
        # cost more than the step.
        n = len(rows)
        codes = np.empty((len(self.coders), n), dtype=self.code_dtype)
        for at, columns in pieces(rows):
            for coder, out in zip(self.coders, codes, strict=True):
                coder(columns, out[at])
        registers = np.empty((self.registers, n), dtype=np.uint8)
        slots: list[Any] = [
            *codes,
            *[view for r in registers for view in (r, r.view(np.bool_))],
            *self.constants,
        ]
        total[:] = self.start[:, None]
        looked = np.empty(n)
        for tree in self.trees:
            for f, a, b, out in tree.ops:
                f(slots[a], slots[b], out=slots[out])
            leaf = slots[tree.result]
            for k, value in enumerate(tree.value):
                target = total[k if tree.adds_to < 0 else tree.adds_to]
                if len(value) == 1:
                    target += value[leaf]
                else:
                    target += np.take(value, leaf, out=looked, mode="clip")
        if self.share != 1.0:
            total /= self.share

    def _tree(self, nodes: Nodes, which: int, rights: dict[int, tuple[int, Mask]]) -> Tree:
        writer = Writer(nodes, rights, self.code_dtype)
        result = writer.below(int(nodes.roots[which]))
        self.registers = max(self.registers, writer.used)
        return Tree(
            writer.ops,
            result,
            np.ascontiguousarray(nodes.value[writer.leaves].T),
            int(nodes.adds_to[which]),
        )


class Writer:
    """Writes the program of one tree."""

    def __init__(self, nodes: Nodes, rights: dict[int, tuple[int, Mask]], dtype: Any) -> None:
        self.nodes = nodes
        self.rights = rights
        self.dtype = dtype
        self.ops: list[Op] = []
        self.leaves: list[int] = []  # nodes, from left to right
        self.free: list[int] = []
        self.used = 0

    def below(self, node: int) -> Any:
        """A slot that will hold the number of the leaf below the node, or, below a leaf, that
        number itself."""
        if self.nodes.left[node] < 0:
            self.leaves.append(node)
            return len(self.leaves) - 1
        # A slot is a tuple, the number of a leaf is not.
        left = self.below(int(self.nodes.left[node]))
        right = self.below(int(self.nodes.right[node]))
        b = self._bits(node)
        slot = "register", b
        if isinstance(left, int) and isinstance(right, int):  # then right = left + 1
            if left:
                self.ops.append((np.add, slot, np.uint8(left), slot))
            return slot
        if isinstance(right, int):
            self.ops.append((np.multiply, slot, np.uint8(right), slot))
            right = slot
        else:
            self.ops.append((np.multiply, right, slot, right))
            self.free.append(b)
        if isinstance(left, int):
            if left:
                self.ops.append((np.maximum, right, np.uint8(left), right))
            return right
        self.ops.append((np.maximum, left, right, left))
        self.free.append(right[1])
        return left

    def _register(self) -> int:
        if self.free:
            return self.free.pop()
        self.used += 1
        return self.used - 1

    def _bits(self, node: int) -> int:
        """A register with 1 where a row goes right at the node."""
        place, right = self.rights[node]
        code = "code", place
        register = self._register()
        bits = "bits", register
        one = self.dtype.type
        flips = np.flatnonzero(np.diff(right))
        # If the codes change sides at most once, one comparison is enough; a small set of codes is
        # compared one by one, a large one looked up.
        if len(flips) == 0:
            self.ops.append((np.greater_equal if right[0] else np.less, code, one(0), bits))
            return register
        if len(flips) == 1:
            self.ops.append((np.less_equal if right[0] else np.greater, code, one(flips[0]), bits))
            return register
        few_go_right = right.sum() * 2 <= len(right)
        members = np.flatnonzero(right if few_go_right else ~right)
        if len(members) > MANY:
            self.ops.append((partial(_look_up, right), code, None, bits))
            return register
        same = np.equal if few_go_right else np.not_equal
        join = np.logical_or if few_go_right else np.logical_and
        self.ops.append((same, code, one(members[0]), bits))
        other = self._register()
        for member in members[1:]:
            self.ops.append((same, code, one(member), ("bits", other)))
            self.ops.append((join, bits, ("bits", other), bits))
        self.free.append(other)
        return register


def _look_up(right: Mask, code: Any, _: Any, out: Any) -> None:
    """Is the code in a large set?"""
    np.take(right, code, out=out, mode="clip")


def pieces(rows: Array) -> Iterator[tuple[slice, Array]]:
    """Columns (d, n) of a few rows (n, d) at a time, in the same memory, which stays in the
    cache."""
    turned = np.empty((rows.shape[1], min(PIECE, len(rows))))
    for begin in range(0, len(rows), PIECE):
        piece = rows[begin : begin + PIECE]
        columns = turned[:, : len(piece)]
        columns[:] = piece.T
        yield slice(begin, begin + PIECE), columns


def coder(codes: Codes, dtype: Any) -> Callable[[Array, npt.NDArray[Any]], None]:
    """Writes the codes of encoded columns (d, n) into an array (n,) of that dtype."""
    if codes.cuts is None:
        count = codes.at.stop - codes.at.start
        # The first level weighs most: of several largest columns, the heaviest is the first.
        return partial(
            _levels, codes.at, np.arange(count, 0, -1, dtype=np.min_scalar_type(count))[:, None]
        )
    ranks = Ranks(codes.cuts, codes.at.start, dtype)
    return (
        ranks
        if codes.indicator is None
        else partial(_or_missing, ranks, codes.indicator, codes.missing_code)
    )


def _levels(at: slice, weights: npt.NDArray[Any], columns: Array, out: npt.NDArray[Any]) -> None:
    """The position of the largest of the one-hot columns, the first if there are several."""
    hot = columns[at]
    np.subtract(
        len(hot), ((hot == hot.max(axis=0)) * weights).max(axis=0), out=out, casting="unsafe"
    )


def _or_missing(
    ranks: "Ranks", indicator: int, code: int, columns: Array, out: npt.NDArray[Any]
) -> None:
    """Ranks of numbers that may be missing: one more code, the first or the last, is for missing
    ones."""
    ranks(columns, out)
    if code == 0:
        out += 1
    out[columns[indicator] > 0.5] = code


class Ranks:
    """The number of cuts below an encoded value.

    A grid of cells is laid over the cuts: a value's cell says how many cuts lie in lower cells, and
    only those in the same cell have to be compared. If they crowd too much, a binary search is
    used.
    """

    # cells per cut; most comparisons per value
    CELLS = 8
    CROWD = 3

    def __init__(self, cuts: Array, at: int, dtype: Any) -> None:
        self.cuts = cuts
        self.at = at
        self.cells = 0
        if len(cuts) > self.CROWD and np.isfinite(cuts[-1] - cuts[0]):
            self.cells = 1 << int(np.ceil(np.log2(self.CELLS * len(cuts))))
            self.scale = self.cells / (cuts[-1] - cuts[0])
            cell = self._cell(cuts) if np.isfinite(self.scale) else np.zeros(len(cuts), np.intp)
            crowd = int(np.bincount(cell).max())
            if crowd > self.CROWD:
                self.cells = 0
                return
            lower = np.searchsorted(cell, np.arange(self.cells))
            padded = np.append(cuts, np.full(crowd, np.inf))
            self.inside = [padded[lower + i] for i in range(crowd)]
            self.lower = lower.astype(dtype)

    def _cell(self, x: Array) -> npt.NDArray[np.intp]:
        place = x - self.cuts[0]
        place *= self.scale
        np.clip(place, 0, self.cells - 1, out=place)
        return place.astype(np.intp)

    def __call__(self, columns: Array, out: npt.NDArray[Any]) -> None:
        x = columns[self.at]
        if self.cells:
            cell = self._cell(x)
            np.take(self.lower, cell, out=out, mode="clip")
            for inside in self.inside:
                out += x > np.take(inside, cell)
        elif len(self.cuts) > self.CROWD:
            out[:] = np.searchsorted(self.cuts, x)
        else:
            out[:] = 0
            for cut in self.cuts:
                out += x > cut
