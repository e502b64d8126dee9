"""The operators of `ai.onnx.ml` that scikit-learn's models are exported with, as torch operations.

Columns of categories are `Levels`: a weight for each level instead of a string, one-hot for a row of a table. Encoders
are then products of matrices, and a model over strings has gradients by the weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import FileError, listed
from holdfast.models.formats.onnx.graph import DTYPES, ELEMENTS, ML, Node
from holdfast.models.formats.onnx.missing import Gaps
from holdfast.models.formats.onnx.ops import MOST, Operator, numbers, one, require, room, same
from holdfast.models.formats.tree_checks import check_tree, inside, same_lengths

MOST_DEPTH = 2_000
TREES = (f"{ML}.TreeEnsembleClassifier", f"{ML}.TreeEnsembleRegressor")


@dataclass(frozen=True)
class Levels:
    """(n, columns) categories: for each column the weights (n, levels) of its levels, and the levels."""

    columns: tuple[tuple[Tensor, tuple[Any, ...]], ...]

    def numbers(self, node: Node, dtype: torch.dtype = torch.float32) -> Tensor:
        """(n, columns) the levels as numbers, weighted."""
        out = [w @ torch.tensor(_values(node, levels), dtype=w.dtype) for w, levels in self.columns]
        return torch.stack(out, 1).to(dtype)

    def map(self, f: Callable[[Any], list[float]], dtype: torch.dtype = torch.float32) -> Tensor:
        """(n, columns, m): each level becomes m numbers."""
        tables = [(w, torch.tensor([f(v) for v in levels], dtype=w.dtype)) for w, levels in self.columns]
        return torch.stack([w @ table for w, table in tables], 1).to(dtype)


def _values(node: Node, levels: tuple[Any, ...]) -> list[float]:
    try:
        return [float(v) for v in levels]
    except ValueError:
        raise FileError(f"operator {node.op} takes numbers, not strings such as {levels[0]!r}") from None


def after(node: Node, scores: Tensor, all_positive: bool = False) -> Tensor:
    """(n, k) sums -> what the classifier returns; one column of two classes becomes two."""
    how = node.get("post_transform", "NONE")
    require(node, how in ("NONE", "LOGISTIC", "SOFTMAX"), f"post_transform {how!r} is not supported")
    if scores.shape[1] == 1 and len(labels(node)) == 2:
        if how == "LOGISTIC":
            return torch.sigmoid(torch.cat([-scores, scores], 1))
        return torch.cat([1 - scores if all_positive else -scores, scores], 1)
    return torch.softmax(scores, 1) if how == "SOFTMAX" else torch.sigmoid(scores) if how == "LOGISTIC" else scores


def labels(node: Node) -> list[Any]:
    """The names of the classes that a classifier or a ZipMap knows."""
    for name in ("classlabels_strings", "classlabels_ints", "classlabels_int64s"):
        if name in node.attributes:
            return list(node.strings(name) if name.endswith("strings") else node.integers(name))
    return []


def linear(node: Node) -> Operator:
    """LinearClassifier and LinearRegressor."""
    c, b, names = torch.tensor(node.reals("coefficients")), torch.tensor(node.reals("intercepts")), labels(node)
    k, classifies = len(b) or node.get("targets", 1), node.op == f"{ML}.LinearClassifier"
    require(node, k >= 1 and len(c) > 0 and len(c) % k == 0, f"{len(c)} coefficients for {k} outputs")
    require(node, not classifies or k == len(names) or (k == 1 and len(names) == 2), "classes do not fit")
    supported = classifies or node.get("post_transform", "NONE") == "NONE"
    require(node, supported, "a post_transform is not supported")
    w = c.reshape(k, -1).T.contiguous()

    def run(node: Node, x: Tensor) -> Any:
        require(node, x.ndim == 2 and x.shape[1] == len(w), f"takes {len(w)} columns, got {tuple(x.shape)}")
        scores = x.float() @ w + b if len(b) else x.float() @ w
        return (None, after(node, scores, all_positive=k == 1)) if classifies else scores

    return run


_TESTS = {f"BRANCH_{test}": i for i, test in enumerate(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))}
_COMPARE = (torch.le, torch.lt, torch.ge, torch.gt, torch.eq, torch.ne)


class Forest:
    """Trees as tables, walked by all rows through all trees at once, one level at a time."""

    def __init__(self, node: Node, prefix: str, targets: int) -> None:
        tree, local, feature = (node.integers(f"nodes_{n}") for n in ("treeids", "nodeids", "featureids"))
        yes, no = node.integers("nodes_truenodeids"), node.integers("nodes_falsenodeids")
        modes, values = node.strings("nodes_modes"), _floats(node, "nodes_values", infinite=True)
        count = same_lengths(f"operator {node.op}", treeids=tree, nodeids=local, featureids=feature, modes=modes,
                             values=values, true=yes, false=no)  # fmt: skip
        require(node, count > 0 and count * targets <= MOST // 4, f"{count:,} nodes with {targets:,} outputs")
        where = {pair: i for i, pair in enumerate(zip(tree, local, strict=True))}
        require(node, len(where) == count, "two nodes have the same number")
        unknown = [m for m in modes if m != "LEAF" and m not in _TESTS]
        require(node, not unknown, f"unknown test {listed(unknown)}")
        inner = np.array([m != "LEAF" for m in modes])
        inside(np.array(feature)[inner], 0, 1 << 31, f"operator {node.op}: a column of a node")
        sides = [zip(tree, side, inner, strict=True) for side in (yes, no)]
        left, right = (np.array([where.get((t, c), -1) if on else -1 for t, c, on in s], np.int64) for s in sides)
        # One more node above all, whose children are not looked at, so that every root may be a root.
        above = [np.concatenate([[-1], side + (side >= 0)]) for side in (left, right)]
        check_tree(above[0], above[1], np.concatenate([[False], inner]), f"operator {node.op}")
        is_child = np.zeros(count, bool)
        is_child[np.concatenate([left[inner], right[inner]])] = True
        roots = np.flatnonzero(~is_child)
        first = {t: i for i, t in reversed(list(enumerate(tree)))}
        require(node, roots.tolist() == sorted(first.values()), "a tree does not begin with its only root")
        level, self.depth = roots, 0
        while len(level := level[inner[level]]):
            level, self.depth = np.concatenate([left[level], right[level]]), self.depth + 1
            require(node, self.depth <= MOST_DEPTH, f"a tree is deeper than {MOST_DEPTH}")
        here = np.arange(count)
        self.roots, self.feature = torch.tensor(roots), torch.tensor(np.where(inner, feature, 0))
        self.left, self.right = (torch.tensor(np.where(inner, side, here)) for side in (left, right))
        self.values, self.width = values, int(self.feature.max()) + 1
        self.mode = torch.tensor([_TESTS.get(m, 0) for m in modes], dtype=torch.uint8)
        self.modes = sorted({_TESTS[m] for m in modes if m != "LEAF"})
        missing = node.integers("nodes_missing_value_tracks_true") or (0,) * count
        require(node, len(missing) == count, "missing_value_tracks_true has another length")
        self.missing = torch.tensor(missing, dtype=torch.bool)
        self.leaf = self._leaves(node, prefix, targets, where, count)

    def _leaves(self, node: Node, prefix: str, targets: int, where: dict[tuple[int, int], int], count: int) -> Tensor:
        """(nodes, targets) what each leaf adds."""
        tree, local, ids = (node.integers(f"{prefix}_{n}") for n in ("treeids", "nodeids", "ids"))
        added = _floats(node, f"{prefix}_weights")
        same_lengths(f"operator {node.op}", treeids=tree, nodeids=local, ids=ids, weights=added)
        inside(ids, 0, targets, f"operator {node.op}: a class of a leaf")
        rows = [where.get(pair, -1) for pair in zip(tree, local, strict=True)]
        inside(rows, 0, count, f"operator {node.op}: a leaf")
        self.all_positive, self.ids = bool((added >= 0).all()), set(ids)
        # Is there a tree all of whose leaves speak of class 1?
        second = {row for row, k in zip(rows, ids, strict=True) if k == 1}
        trees, modes = node.integers("nodes_treeids"), node.strings("nodes_modes")
        silent = {t for i, (t, mode) in enumerate(zip(trees, modes, strict=True)) if mode == "LEAF" and i not in second}
        self.full = len(silent) < len(set(trees))
        out = torch.zeros(count, targets, dtype=torch.float64)
        return out.index_put_((torch.tensor(rows), torch.tensor(ids)), added.double(), accumulate=True)

    def __call__(self, node: Node, x: Tensor) -> Tensor:
        """(n, d) -> (n, targets) sums over trees."""
        fits = x.ndim == 2 and x.shape[1] >= self.width
        require(node, fits, f"takes {self.width} columns or more, got {tuple(x.shape)}")
        room(node, len(x), len(self.roots))
        x = x.detach().to(self.values.dtype)
        at = self.roots.expand(len(x), -1)  # (n, trees)
        for _ in range(self.depth):
            value, threshold = x.gather(1, self.feature[at]), self.values[at]
            yes = _COMPARE[self.modes[0]](value, threshold)
            for mode in self.modes[1:]:
                yes = torch.where(self.mode[at] == mode, _COMPARE[mode](value, threshold), yes)
            yes |= value.isnan() & self.missing[at]
            at = torch.where(yes, self.left[at], self.right[at])
        return torch.nn.functional.embedding_bag(at, self.leaf, mode="sum")


def _floats(node: Node, name: str, *, infinite: bool = False) -> Tensor:
    """Numbers, as a list or a tensor. Thresholds may be infinite: scikit-learn parts what is missing that way."""
    given = node.attributes.get(f"{name}_as_tensor")
    if given is None:
        return torch.tensor(node.reals(name, infinite=infinite), dtype=torch.float32)
    require(node, isinstance(given, Tensor) and given.ndim == 1 and given.is_floating_point(), f"bad {name}")
    fine = ~given.isnan() if infinite else given.isfinite()
    require(node, bool(fine.all()), f"{name} are {'NaN' if infinite else 'not finite'}")
    return given


@dataclass(frozen=True)
class Ensemble:
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
    require(node, len(names) >= 2, "knows fewer than two classes")
    forest = Forest(node, "class", len(names))
    # With two classes, runtimes agree on three cases only: all leaves speak of class 0, whose score then stands for
    # class 1; all speak of class 1; or some tree always speaks of class 1, so that both have a score.
    single = len(names) == 2 and forest.ids <= {0}
    allowed = (0, 1) if single else (0,) if len(names) == 2 else (0, len(names))
    base = _base(node, allowed, 1 if single else len(names), f"{len(names)} classes")
    require(node, single or len(names) > 2 or forest.ids == {1} or forest.full, "leaves leave out a class now and then")
    return Ensemble(node, forest, base, 1, lambda sums: (None, after(node, sums, forest.all_positive)))


def tree_regressor(node: Node) -> Operator:
    targets, how = node.get("n_targets", 1), node.get("aggregate_function", "SUM")
    require(node, 1 <= targets <= 1 << 16 and how in ("SUM", "AVERAGE"), f"{targets} targets by {how}")
    require(node, node.get("post_transform", "NONE") == "NONE", "a post_transform is not supported")
    forest, base = Forest(node, "target", targets), _base(node, (0, targets), targets, f"{targets} targets")
    return Ensemble(node, forest, base, len(forest.roots) if how == "AVERAGE" else 1, lambda sums: sums)


def _base(node: Node, allowed: tuple[int, ...], count: int, what: str) -> Tensor:
    """What the sums of the trees begin with; `count` zeros if the file says nothing."""
    base = _floats(node, "base_values").double()
    require(node, len(base) in allowed, f"{len(base)} base values for {what}")
    return base if len(base) else torch.zeros(count, dtype=torch.float64)


def scaler(node: Node, x: Tensor) -> Tensor:
    offset, scale = torch.tensor(node.reals("offset") or (0.0,)), torch.tensor(node.reals("scale") or (1.0,))
    fits = all(len(v) in (1, x.shape[-1]) for v in (offset, scale))
    require(node, fits, f"offset and scale do not fit {tuple(x.shape)}")
    return (x.float() - offset) * scale


def normalizer(node: Node, x: Tensor) -> Tensor:
    how, x = node.get("norm", "MAX"), x.float()
    sizes = {"MAX": lambda: x.amax(-1), "L1": lambda: x.abs().sum(-1), "L2": lambda: x.square().sum(-1).sqrt()}
    require(node, how in sizes, f"unknown norm {how!r}")
    size = sizes[how]()[..., None]
    return x / torch.where(size == 0, 1.0, size)


def imputer(node: Node, x: Tensor | Gaps) -> Tensor:
    dtype, shape = (x.value.dtype, x.value.shape) if isinstance(x, Gaps) else (x.dtype, x.shape)
    real = dtype.is_floating_point
    given = node.reals("imputed_value_floats") if real else node.integers("imputed_value_int64s")
    values = torch.tensor(given, dtype=dtype)
    require(node, len(values) in (1, shape[-1]), f"{len(values)} values for {tuple(shape)}")
    gap = node.attributes.get("replaced_value_float" if real else "replaced_value_int64", 0.0 if real else 0)
    if isinstance(x, Gaps):
        if gap != gap:
            return x.filled(values)
        x = x.numbers()
    return torch.where(x.isnan() if gap != gap else x == gap, values, x)


def one_hot(node: Node, x: Tensor | Levels) -> Tensor:
    strings, codes = node.strings("cats_strings"), node.integers("cats_int64s")
    require(node, bool(strings) != bool(codes), "categories are missing")
    if isinstance(x, Levels):
        cats: list[Any] = list(strings or codes)
        known = {level for _, levels in x.columns for level in levels}
        covered = all(any(_equal(v, c) for c in cats) for v in known)
        require(node, bool(node.get("zeros", 1)) or covered, f"knows only {cats[:6]}")
        return x.map(lambda v: [float(_equal(v, c)) for c in cats])
    require(node, bool(codes), "strings where numbers are expected")
    room(node, x.numel(), len(codes))
    return (x[..., None] == torch.tensor(codes)).float()


def _equal(level: Any, cat: Any) -> bool:
    return str(level) == cat if isinstance(cat, str) else level == cat


def label_encoder(node: Node, x: Tensor | Levels) -> Tensor:
    keys: tuple[Any, ...] = node.strings("keys_strings") or node.integers("keys_int64s")
    keys = keys or node.attributes.get("keys_floats", ())
    values = node.reals("values_floats") or node.integers("values_int64s")
    real = "values_floats" in node.attributes
    if not keys and "classes_strings" in node.attributes:
        keys, values, real = node.strings("classes_strings"), tuple(range(len(node.strings("classes_strings")))), False
    require(node, len(keys) == len(values) > 0, "keys and values do not fit, or are strings")
    default = node.attributes.get("default_float", -0.0) if real else node.get("default_int64", -1)
    dtype = torch.float32 if real else torch.int64
    if isinstance(x, Levels):
        table = dict(zip(keys, values, strict=True))
        as_string = isinstance(keys[0], str)
        # Kept as a real number even where integers are written: weights between levels have gradients that way.
        return x.map(lambda v: [float(table.get(str(v) if as_string else v, default))])[..., 0]
    require(node, not isinstance(keys[0], str), "strings where numbers are expected")
    room(node, x.numel(), len(keys))
    match = x[..., None] == torch.tensor(keys, dtype=x.dtype)
    found = torch.tensor(values, dtype=dtype)[match.int().argmax(-1)]
    return torch.where(match.any(-1), found, torch.tensor(default, dtype=dtype))


def pick_columns(node: Node, x: Tensor | Levels, index: Tensor) -> Tensor | Levels:
    """ArrayFeatureExtractor."""
    at = [int(i) for i in cast(list[Any], cast(Any, index).reshape(-1).tolist())]
    if isinstance(x, Levels):
        inside(at, 0, len(x.columns), f"operator {node.op}: a column")
        return Levels(tuple(x.columns[i] for i in at))
    require(node, x.ndim >= 1, "takes no single number")
    x = x[None] if x.ndim == 1 else x
    inside(at, 0, x.shape[-1], f"operator {node.op}: a column")
    room(node, *x.shape[:-1], len(at))
    return x[..., at]


def feature_vectorizer(node: Node, *parts: Tensor) -> Tensor:
    return torch.cat([p.float().reshape(len(p), -1) for p in parts], 1)


# Operators that take columns of categories as they are.


def _concat_levels(node: Node, *parts: Any) -> Levels:
    require(node, all(isinstance(p, Levels) for p in parts), "strings and numbers cannot be put together")
    require(node, node.get("axis", 1) in (1, -1), "strings can only be put side by side")
    return Levels(tuple(c for p in parts for c in p.columns))


def _gather_levels(node: Node, x: Levels, index: Tensor) -> Tensor | Levels:
    require(node, node.get("axis", 0) in (1, -1), "of strings, only columns can be picked")
    return pick_columns(node, x, index)


def _reshape_levels(node: Node, x: Levels, shape: Tensor) -> Levels:
    sizes = numbers(node, shape, "shape") or []
    require(node, sizes[1:] == [len(x.columns)], "strings cannot be put into another shape")
    return x


def _cast_levels(node: Node, x: Levels) -> Tensor | Levels:
    to = node.get("to", 0)
    if to == 8:
        return Levels(tuple((w, tuple(str(v) for v in levels)) for w, levels in x.columns))
    require(node, to in ELEMENTS, f"cannot cast to element type {to}")
    dtype = DTYPES[ELEMENTS[to][0]]
    if dtype.is_floating_point:
        return x.numbers(node, dtype)
    values = [(w, _values(node, levels)) for w, levels in x.columns]
    return Levels(tuple((w, tuple(int(v) for v in numbers)) for w, numbers in values))


ML_OPERATORS: dict[str, Operator] = {
    f"{ML}.Scaler": scaler, f"{ML}.Normalizer": normalizer, f"{ML}.Imputer": imputer, f"{ML}.OneHotEncoder": one_hot,
    f"{ML}.LabelEncoder": label_encoder, f"{ML}.ArrayFeatureExtractor": pick_columns,
    f"{ML}.FeatureVectorizer": feature_vectorizer, f"{ML}.ZipMap": same,
    f"{ML}.Binarizer": one(lambda node, x: (x > node.get("threshold", 0.0)).to(x.dtype)),
}  # fmt: skip
# Operators with tables to be made once: node -> operator.
PREPARED: dict[str, Callable[[Node], Operator]] = {
    f"{ML}.LinearClassifier": linear, f"{ML}.LinearRegressor": linear, TREES[0]: tree_classifier,
    TREES[1]: tree_regressor,
}  # fmt: skip
ON_LEVELS: dict[str, Operator] = {
    "Identity": same, "Concat": _concat_levels, "Reshape": _reshape_levels, "Cast": _cast_levels,
    "Gather": _gather_levels,
    f"{ML}.OneHotEncoder": one_hot, f"{ML}.LabelEncoder": label_encoder, f"{ML}.ArrayFeatureExtractor": pick_columns,
}  # fmt: skip
