"""The operators of trees in `ai.onnx.ml`: read into tables, checked, and walked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast._core.checks import listed
from holdfast._core.types import Ints, Mask
from holdfast.models.formats.onnx.class_scores import after, labels
from holdfast.models.formats.onnx.graph import ML, Node
from holdfast.models.formats.onnx.op_checks import MOST, Operator, room, unsupported
from holdfast.models.formats.tree_checks import check_tree, inside, same_lengths

MOST_DEPTH = 2_000
TREES = (f"{ML}.TreeEnsembleClassifier", f"{ML}.TreeEnsembleRegressor")
_TESTS = {f"BRANCH_{test}": i for i, test in enumerate(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))}
_COMPARE = (torch.le, torch.lt, torch.ge, torch.gt, torch.eq, torch.ne)


class Forest:
    """Trees as tables, walked by all rows through all trees at once, one level at a time."""

    def __init__(self, node: Node, prefix: str, targets: int) -> None:
        # Every index is checked here, once: the walk follows them without a look.
        tree = node.integers("nodes_treeids")
        local = node.integers("nodes_nodeids")
        modes = node.strings("nodes_modes")
        count = _node_count(node, targets)
        where = {pair: i for i, pair in enumerate(zip(tree, local, strict=True))}
        if len(where) != count:
            raise unsupported(node, "two nodes have the same number")
        unknown = [mode for mode in modes if mode != "LEAF" and mode not in _TESTS]
        if unknown:
            raise unsupported(node, f"unknown test {listed(unknown)}")
        inner = np.array([mode != "LEAF" for mode in modes])
        feature = node.integers("nodes_featureids")
        inside(np.array(feature)[inner], 0, 1 << 31, f"operator {node.op}: a column of a node")
        left = _children(tree, node.integers("nodes_truenodeids"), inner, where)
        right = _children(tree, node.integers("nodes_falsenodeids"), inner, where)
        roots = _roots(node, tree, left, right, inner)
        self.depth = _depth(node, roots, left, right, inner)
        here = np.arange(count)
        self.roots = torch.tensor(roots)
        self.feature = torch.tensor(np.where(inner, feature, 0))
        self.left = torch.tensor(np.where(inner, left, here))
        self.right = torch.tensor(np.where(inner, right, here))
        self.values = _floats(node, "nodes_values", infinite=True)
        self.width = int(self.feature.max()) + 1
        self.mode = torch.tensor([_TESTS.get(mode, 0) for mode in modes], dtype=torch.uint8)
        self.modes = sorted({_TESTS[mode] for mode in modes if mode != "LEAF"})
        missing = node.integers("nodes_missing_value_tracks_true") or (0,) * count
        if len(missing) != count:
            raise unsupported(node, "missing_value_tracks_true has another length")
        self.missing = torch.tensor(missing, dtype=torch.bool)
        self.leaf = self._leaves(node, prefix, targets, where, count)

    def _leaves(
        self, node: Node, prefix: str, targets: int, where: dict[tuple[int, int], int], count: int
    ) -> Tensor:
        """(nodes, targets) what each leaf adds."""
        tree = node.integers(f"{prefix}_treeids")
        local = node.integers(f"{prefix}_nodeids")
        ids = node.integers(f"{prefix}_ids")
        added = _floats(node, f"{prefix}_weights")
        same_lengths(f"operator {node.op}", treeids=tree, nodeids=local, ids=ids, weights=added)
        inside(ids, 0, targets, f"operator {node.op}: a class of a leaf")
        rows = [where.get(pair, -1) for pair in zip(tree, local, strict=True)]
        inside(rows, 0, count, f"operator {node.op}: a leaf")
        self.all_positive = bool((added >= 0).all())
        self.ids = set(ids)
        # Is there a tree all of whose leaves speak of class 1?
        second = {row for row, k in zip(rows, ids, strict=True) if k == 1}
        trees = node.integers("nodes_treeids")
        modes = node.strings("nodes_modes")
        silent = {
            t
            for i, (t, mode) in enumerate(zip(trees, modes, strict=True))
            if mode == "LEAF" and i not in second
        }
        self.full = len(silent) < len(set(trees))
        out = torch.zeros(count, targets, dtype=torch.float64)
        return out.index_put_(
            (torch.tensor(rows), torch.tensor(ids)), added.double(), accumulate=True
        )

    def __call__(self, node: Node, x: Tensor) -> Tensor:
        """(n, d) -> (n, targets) sums over trees."""
        if not (x.ndim == 2 and x.shape[1] >= self.width):
            raise unsupported(node, f"takes {self.width} columns or more, got {tuple(x.shape)}")
        room(node, len(x), len(self.roots))
        x = x.detach().to(self.values.dtype)
        at = self.roots.expand(len(x), -1)  # (n, trees)
        for _ in range(self.depth):
            value = x.gather(1, self.feature[at])
            threshold = self.values[at]
            yes = _COMPARE[self.modes[0]](value, threshold)
            for mode in self.modes[1:]:
                yes = torch.where(self.mode[at] == mode, _COMPARE[mode](value, threshold), yes)
            yes |= value.isnan() & self.missing[at]
            at = torch.where(yes, self.left[at], self.right[at])
        return torch.nn.functional.embedding_bag(at, self.leaf, mode="sum")


def _node_count(node: Node, targets: int) -> int:
    """How many nodes there are, in all lists alike, and not too many."""
    count = same_lengths(
        f"operator {node.op}",
        treeids=node.integers("nodes_treeids"),
        nodeids=node.integers("nodes_nodeids"),
        featureids=node.integers("nodes_featureids"),
        modes=node.strings("nodes_modes"),
        values=_floats(node, "nodes_values", infinite=True),
        true=node.integers("nodes_truenodeids"),
        false=node.integers("nodes_falsenodeids"),
    )
    if not 0 < count <= MOST // 4 // targets:
        raise unsupported(node, f"{count:,} nodes with {targets:,} outputs")
    return count


def _children(
    tree: Sequence[int], side: Sequence[int], inner: Mask, where: dict[tuple[int, int], int]
) -> Ints:
    """(nodes,) the place of the child of each inner node, -1 if there is none."""
    numbered = zip(tree, side, inner, strict=True)
    return np.array([where.get((t, c), -1) if on else -1 for t, c, on in numbered], np.int64)


def _roots(node: Node, tree: Sequence[int], left: Ints, right: Ints, inner: Mask) -> Ints:
    """The root of each tree, which must be its first node, and its only one."""
    # One more node above all, whose children are not looked at, so that every root may be a root.
    above = [np.concatenate([[-1], side + (side >= 0)]) for side in (left, right)]
    check_tree(above[0], above[1], np.concatenate([[False], inner]), f"operator {node.op}")
    is_child = np.zeros(len(inner), bool)
    is_child[np.concatenate([left[inner], right[inner]])] = True
    roots = np.flatnonzero(~is_child)
    first = {t: i for i, t in reversed(list(enumerate(tree)))}
    if roots.tolist() != sorted(first.values()):
        raise unsupported(node, "a tree does not begin with its only root")
    return roots


def _depth(node: Node, roots: Ints, left: Ints, right: Ints, inner: Mask) -> int:
    """How many steps lead from the roots to the deepest leaf."""
    depth = 0
    level = roots[inner[roots]]
    while len(level):
        depth += 1
        if depth > MOST_DEPTH:
            raise unsupported(node, f"a tree is deeper than {MOST_DEPTH}")
        level = np.concatenate([left[level], right[level]])
        level = level[inner[level]]
    return depth


def _floats(node: Node, name: str, *, infinite: bool = False) -> Tensor:
    """Numbers, as a list or a tensor. Thresholds may be infinite: scikit-learn parts what is
    missing that way."""
    given = node.attributes.get(f"{name}_as_tensor")
    if given is None:
        return torch.tensor(node.reals(name, infinite=infinite), dtype=torch.float32)
    if not (isinstance(given, Tensor) and given.ndim == 1 and given.is_floating_point()):
        raise unsupported(node, f"bad {name}")
    fine = ~given.isnan() if infinite else given.isfinite()
    if not bool(fine.all()):
        raise unsupported(node, f"{name} are {'NaN' if infinite else 'not finite'}")
    return given


@dataclass(frozen=True)
class TreeEnsemble:
    """An operator of trees: what their leaves add up to, and what is made of that."""

    node: Node
    forest: Forest
    base: Tensor  # (k,) what the sums begin with
    share: int  # and are divided by
    end: Callable[[Tensor], Any]

    def sums(self, x: Tensor) -> Tensor:
        """(n, d) -> (n, k) in double precision."""
        return self.forest(self.node, x)[:, : len(self.base)] / self.share + self.base

    def __call__(self, node: Node, x: Tensor) -> Any:
        return self.end(self.sums(x).float())


def tree_classifier(node: Node) -> Operator:
    names = labels(node)
    if len(names) < 2:
        raise unsupported(node, "knows fewer than two classes")
    forest = Forest(node, "class", len(names))
    # With two classes, runtimes agree on three cases only: all leaves speak of class 0, whose score
    # then stands for class 1; all speak of class 1; or some tree always speaks of class 1, so that
    # both have a score.
    single = len(names) == 2 and forest.ids <= {0}
    allowed = (0, 1) if single else (0,) if len(names) == 2 else (0, len(names))
    base = _base(node, allowed, 1 if single else len(names), f"{len(names)} classes")
    if not single and len(names) <= 2 and forest.ids != {1} and not forest.full:
        raise unsupported(node, "leaves leave out a class now and then")
    return TreeEnsemble(
        node, forest, base, 1, lambda sums: (None, after(node, sums, forest.all_positive))
    )


def tree_regressor(node: Node) -> Operator:
    targets = node.get("n_targets", 1)
    how = node.get("aggregate_function", "SUM")
    if not (1 <= targets <= 1 << 16 and how in ("SUM", "AVERAGE")):
        raise unsupported(node, f"{targets} targets by {how}")
    if node.get("post_transform", "NONE") != "NONE":
        raise unsupported(node, "a post_transform is not supported")
    forest = Forest(node, "target", targets)
    base = _base(node, (0, targets), targets, f"{targets} targets")
    return TreeEnsemble(
        node, forest, base, len(forest.roots) if how == "AVERAGE" else 1, lambda sums: sums
    )


def _base(node: Node, allowed: tuple[int, ...], count: int, what: str) -> Tensor:
    """What the sums of the trees begin with; `count` zeros if the file says nothing."""
    base = _floats(node, "base_values").double()
    if len(base) not in allowed:
        raise unsupported(node, f"{len(base)} base values for {what}")
    return base if len(base) else torch.zeros(count, dtype=torch.float64)
