"""The leaves of all trees as boxes of codes, for a search that walks along the model's own
thresholds.

Every column that a node tests has codes (see `tree_nodes`), and a leaf is reached exactly if its
path lets the code of each column through,

    leaf l is reached  <=>  inside_j[l, code_j] for all columns j.

So with all codes but one given, the model along the remaining column is a sum of such rows of
`inside`, and what a whole box of codes can reach is an `any` over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from holdfast._core.types import Array, Ints, Mask
from holdfast.models.compiled.tree_nodes import Codes, Nodes
from holdfast.models.compiled.tree_program import coder
from holdfast.models.scores import Outputs
from holdfast.schema.schema import Schema

MOST = 1 << 26  # cells of the tables: leaves times codes

Rights = dict[int, tuple[int, Mask]]


@dataclass(frozen=True)
class Cells:
    """Where the answer can change along one feature: between levels, at cuts, and between a number
    and a missing one."""

    feature: int
    at: slice  # its encoded columns
    cuts: Array | None  # encoded, rising; None: one cell for each level
    has_gap: bool = False  # is the last cell for a missing number?

    @property
    def count(self) -> int:
        return (
            self.at.stop - self.at.start if self.cuts is None else len(self.cuts) + 1 + self.has_gap
        )

    def of(self, x: Tensor) -> Tensor:
        """(n, d) encoded rows -> (n,) the cell each is in."""
        if self.cuts is None:
            return x[:, self.at].argmax(1)
        cell = torch.searchsorted(
            torch.tensor(self.cuts, dtype=x.dtype), x[:, self.at.start].contiguous()
        )
        return (
            torch.where(x[:, self.at.stop - 1] > 0.5, self.count - 1, cell)
            if self.has_gap
            else cell
        )


@dataclass(frozen=True)
class FeatureLeaves:
    """All leaves along one feature: which of its cells the path to each lets through."""

    cells: Cells
    inside: Tensor  # (leaves, cells) bool
    value: Tensor  # (leaves, outputs) what a leaf adds

    @cached_property
    def outside(self) -> Tensor:
        """(cells, leaves) 1 where the path to a leaf keeps a cell out."""
        return (~self.inside).T.to(torch.uint8).contiguous()

    @cached_property
    def tested(self) -> Tensor:
        """The leaves whose paths test the feature."""
        return self.outside.any(0).nonzero().squeeze(1)

    @cached_property
    def outside_tested(self) -> Tensor:
        """(cells, those leaves)"""
        return self.outside[:, self.tested].contiguous()

    @cached_property
    def weights(self) -> Tensor:
        """(those leaves, cells * outputs) what each adds in each cell."""
        inside = 1 - self.outside_tested.T.double()
        return (inside[:, :, None] * self.value[self.tested][:, None]).flatten(1).contiguous()


@dataclass(frozen=True)
class Leaves:
    """All leaves, tree by tree."""

    features: list[FeatureLeaves]  # of every feature that some node tests
    value: Tensor  # (leaves, outputs) what a leaf adds
    tree: Tensor  # (leaves,) the number of its tree
    start: Tensor  # (outputs,)
    share: float


@dataclass(frozen=True)
class TreeIndex:
    """The trees of a model, over a schema's encoded columns: where its scores can change, and to
    what.

    `cells` says where, feature by feature; `leaves` has the tables for looking up scores, each made
    when first needed, and then kept. `rights` is left out if they would be too large.
    """

    nodes: Nodes
    codes: list[Codes]
    rights: Rights | None
    schema: Schema
    outputs: Outputs

    @staticmethod
    def of(nodes: Nodes, codes: list[Codes], rights: Rights, schema: Schema) -> "TreeIndex":
        cells = int(nodes.leaves().sum()) * sum(c.count for c in codes)
        return TreeIndex(nodes, codes, rights if cells <= MOST else None, schema, nodes.outputs)

    @property
    def ends(self) -> list[tuple[int, Array]]:
        """Features of numbers, and the last number of the table on this side of each of their
        cuts."""
        place = {s.start: i for i, s in enumerate(self.schema.slices)}
        found = [
            (place[c.at.start], c.ends)
            for c in self.codes
            if c.ends is not None and c.at.start in place
        ]
        return [(i, ends[np.isfinite(ends)]) for i, ends in found]

    def _codes_at(self, at: slice) -> list[int]:
        """Which codes belong to some encoded columns."""
        return [i for i, c in enumerate(self.codes) if at.start <= c.at.start < at.stop]

    @cached_property
    def cells(self) -> list[Cells]:
        """The cells of every feature that a node tests."""
        out: list[Cells] = []
        for i, (f, at) in enumerate(zip(self.schema.features, self.schema.slices, strict=True)):
            codes = [self.codes[j] for j in self._codes_at(at)]
            if f.is_category and codes:
                out.append(Cells(i, at, None))
            elif codes:
                # Nodes that send missing numbers left and right have their own codes, and so their
                # own cuts.
                cuts = [c.cuts for c in codes if c.cuts is not None and c.at.start == at.start]
                out.append(
                    Cells(i, at, np.unique(np.concatenate([np.zeros(0), *cuts])), f.has_gaps)
                )
        return out

    @cached_property
    def leaves(self) -> Leaves | None:
        """None if the tables would be too large."""
        if self.rights is None:
            return None
        order, tree, per_code = _boxes(self.nodes, self.codes, self.rights)
        k = len(self.nodes.start)
        to = self.nodes.adds_to[tree]
        values = np.zeros((len(order), k))
        wide = to < 0
        values[wide] = self.nodes.value[order[wide]]
        values[np.flatnonzero(~wide), to[~wide]] = self.nodes.value[order[~wide], 0]
        value = torch.tensor(values)
        features = list[FeatureLeaves]()
        for cells in self.cells:
            inside = np.ones((len(order), cells.count), dtype=bool)
            for i in self._codes_at(cells.at):
                inside &= per_code[i][:, self._codes_of(self.codes[i], cells)]
            features.append(FeatureLeaves(cells, torch.tensor(inside), value))
        return Leaves(
            features, value, torch.tensor(tree), torch.tensor(self.nodes.start), self.nodes.share
        )

    def _codes_of(self, codes: Codes, cells: Cells) -> Ints:
        """(cells,) the code of each cell of the feature: that of any row in it."""
        columns = np.zeros((self.schema.width, cells.count))
        if cells.cuts is None:
            columns[cells.at] = np.eye(cells.count)
        else:
            columns[cells.at.start, : len(cells.cuts) + 1] = np.append(cells.cuts, np.inf)
        if cells.has_gap:
            f = self.schema.features[cells.feature]
            columns[cells.at, -1] = (f.stand_in - f.center) / f.scale, 1.0
        out = np.empty(cells.count, dtype=np.int64)
        coder(codes, np.int64)(columns, out)
        return out


def _boxes(nodes: Nodes, codes: Sequence[Codes], rights: Rights) -> tuple[Ints, Ints, list[Mask]]:
    """Leaves (as nodes) from left to right, the tree of each, and for each column the codes a leaf
    lets through."""
    order = list[int]()
    tree = list[int]()
    # of each node: its first leaf, and the one after its last
    spans: dict[int, tuple[int, int]] = {}

    def number(node: int, which: int) -> None:
        first = len(order)
        if nodes.left[node] < 0:
            order.append(node)
            tree.append(which)
        else:
            number(int(nodes.left[node]), which)
            number(int(nodes.right[node]), which)
        spans[node] = first, len(order)

    for which, root in enumerate(nodes.roots.tolist()):
        number(root, which)
    inside = [np.ones((len(order), c.count), dtype=bool) for c in codes]
    for node, (place, right) in rights.items():
        a, b = spans[int(nodes.left[node])]
        inside[place][a:b] &= ~right
        a, b = spans[int(nodes.right[node])]
        inside[place][a:b] &= right
    return np.array(order, dtype=np.int64), np.array(tree, dtype=np.int64), inside
