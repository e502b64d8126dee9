"""The operators of `ai.onnx.ml` that scikit-learn's models are exported with, as torch operations.

Columns of categories are `Levels`: a weight for each level instead of a string, one-hot for a row
of a table. Encoders are then products of matrices, and a model over strings has gradients by the
weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from holdfast._core.checks import listed
from holdfast.errors import FileError
from holdfast.models.formats.onnx.graph import DTYPES, ELEMENTS, ML, Node
from holdfast.models.formats.onnx.missing import Gaps
from holdfast.models.formats.onnx.ops import MOST, Operator, numbers, one, room, same, unsupported
from holdfast.models.formats.tree_checks import check_tree, inside, same_lengths

MOST_DEPTH = 2_000
TREES = (f"{ML}.TreeEnsembleClassifier", f"{ML}.TreeEnsembleRegressor")


@dataclass(frozen=True)
class Levels:
    """(n, columns) categories: for each column the weights (n, levels) of its levels, and the
    levels."""

    columns: tuple[tuple[Tensor, tuple[Any, ...]], ...]

    def numbers(self, node: Node, dtype: torch.dtype = torch.float32) -> Tensor:
        """(n, columns) the levels as numbers, weighted."""
        out = [w @ torch.tensor(_values(node, levels), dtype=w.dtype) for w, levels in self.columns]
        return torch.stack(out, 1).to(dtype)

    def map(self, f: Callable[[Any], list[float]], dtype: torch.dtype = torch.float32) -> Tensor:
        """(n, columns, m): each level becomes m numbers."""
        tables = [
            (w, torch.tensor([f(v) for v in levels], dtype=w.dtype)) for w, levels in self.columns
        ]
        return torch.stack([w @ table for w, table in tables], 1).to(dtype)


def _values(node: Node, levels: tuple[Any, ...]) -> list[float]:
    try:
        return [float(v) for v in levels]
    except ValueError:
        raise FileError(
            f"operator {node.op} takes numbers, not strings such as {levels[0]!r}"
        ) from None


def after(node: Node, scores: Tensor, all_positive: bool = False) -> Tensor:
    """(n, k) sums -> what the classifier returns; one column of two classes becomes two."""
    how = node.get("post_transform", "NONE")
    if how not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise unsupported(node, f"post_transform {how!r} is not supported")
    if scores.shape[1] == 1 and len(labels(node)) == 2:
        if how == "LOGISTIC":
            return torch.sigmoid(torch.cat([-scores, scores], 1))
        return torch.cat([1 - scores if all_positive else -scores, scores], 1)
    return (
        torch.softmax(scores, 1)
        if how == "SOFTMAX"
        else torch.sigmoid(scores)
        if how == "LOGISTIC"
        else scores
    )


def labels(node: Node) -> list[Any]:
    """The names of the classes that a classifier or a ZipMap knows."""
    for name in ("classlabels_strings", "classlabels_ints", "classlabels_int64s"):
        if name in node.attributes:
            return list(node.strings(name) if name.endswith("strings") else node.integers(name))
    return []


def linear(node: Node) -> Operator:
    """LinearClassifier and LinearRegressor."""
    c = torch.tensor(node.reals("coefficients"))
    b = torch.tensor(node.reals("intercepts"))
    names = labels(node)
    k = len(b) or node.get("targets", 1)
    classifies = node.op == f"{ML}.LinearClassifier"
    if not (k >= 1 and len(c) > 0 and len(c) % k == 0):
        raise unsupported(node, f"{len(c)} coefficients for {k} outputs")
    if not (not classifies or k == len(names) or (k == 1 and len(names) == 2)):
        raise unsupported(node, "classes do not fit")
    supported = classifies or node.get("post_transform", "NONE") == "NONE"
    if not supported:
        raise unsupported(node, "a post_transform is not supported")
    w = c.reshape(k, -1).T.contiguous()

    def run(node: Node, x: Tensor) -> Any:
        if x.ndim != 2 or x.shape[1] != len(w):
            raise unsupported(node, f"takes {len(w)} columns, got {tuple(x.shape)}")
        scores = x.float() @ w + b if len(b) else x.float() @ w
        return (None, after(node, scores, all_positive=k == 1)) if classifies else scores

    return run


_TESTS = {f"BRANCH_{test}": i for i, test in enumerate(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))}
_COMPARE = (torch.le, torch.lt, torch.ge, torch.gt, torch.eq, torch.ne)


class Forest:
    """Trees as tables, walked by all rows through all trees at once, one level at a time."""

    def __init__(self, node: Node, prefix: str, targets: int) -> None:
        tree = node.integers("nodes_treeids")
        local = node.integers("nodes_nodeids")
        feature = node.integers("nodes_featureids")
        yes = node.integers("nodes_truenodeids")
        no = node.integers("nodes_falsenodeids")
        modes = node.strings("nodes_modes")
        values = _floats(node, "nodes_values", infinite=True)
        count = same_lengths(
            f"operator {node.op}",
            treeids=tree,
            nodeids=local,
            featureids=feature,
            modes=modes,
            values=values,
            true=yes,
            false=no,
        )
        if not (count > 0 and count * targets <= MOST // 4):
            raise unsupported(node, f"{count:,} nodes with {targets:,} outputs")
        where = {pair: i for i, pair in enumerate(zip(tree, local, strict=True))}
        if len(where) != count:
            raise unsupported(node, "two nodes have the same number")
        unknown = [m for m in modes if m != "LEAF" and m not in _TESTS]
        if unknown:
            raise unsupported(node, f"unknown test {listed(unknown)}")
        inner = np.array([m != "LEAF" for m in modes])
        inside(np.array(feature)[inner], 0, 1 << 31, f"operator {node.op}: a column of a node")
        sides = [zip(tree, side, inner, strict=True) for side in (yes, no)]
        left, right = (
            np.array([where.get((t, c), -1) if on else -1 for t, c, on in s], np.int64)
            for s in sides
        )
        # One more node above all, whose children are not looked at, so that every root may be a
        # root.
        above = [np.concatenate([[-1], side + (side >= 0)]) for side in (left, right)]
        check_tree(above[0], above[1], np.concatenate([[False], inner]), f"operator {node.op}")
        is_child = np.zeros(count, bool)
        is_child[np.concatenate([left[inner], right[inner]])] = True
        roots = np.flatnonzero(~is_child)
        first = {t: i for i, t in reversed(list(enumerate(tree)))}
        if roots.tolist() != sorted(first.values()):
            raise unsupported(node, "a tree does not begin with its only root")
        level = roots
        self.depth = 0
        while len(level := level[inner[level]]):
            level = np.concatenate([left[level], right[level]])
            self.depth = self.depth + 1
            if not self.depth <= MOST_DEPTH:
                raise unsupported(node, f"a tree is deeper than {MOST_DEPTH}")
        here = np.arange(count)
        self.roots = torch.tensor(roots)
        self.feature = torch.tensor(np.where(inner, feature, 0))
        self.left = torch.tensor(np.where(inner, left, here))
        self.right = torch.tensor(np.where(inner, right, here))
        self.values = values
        self.width = int(self.feature.max()) + 1
        self.mode = torch.tensor([_TESTS.get(m, 0) for m in modes], dtype=torch.uint8)
        self.modes = sorted({_TESTS[m] for m in modes if m != "LEAF"})
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
        fits = x.ndim == 2 and x.shape[1] >= self.width
        if not fits:
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
    return Ensemble(
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
    return Ensemble(
        node, forest, base, len(forest.roots) if how == "AVERAGE" else 1, lambda sums: sums
    )


def _base(node: Node, allowed: tuple[int, ...], count: int, what: str) -> Tensor:
    """What the sums of the trees begin with; `count` zeros if the file says nothing."""
    base = _floats(node, "base_values").double()
    if len(base) not in allowed:
        raise unsupported(node, f"{len(base)} base values for {what}")
    return base if len(base) else torch.zeros(count, dtype=torch.float64)


def scaler(node: Node, x: Tensor) -> Tensor:
    offset = torch.tensor(node.reals("offset") or (0.0,))
    scale = torch.tensor(node.reals("scale") or (1.0,))
    fits = all(len(v) in (1, x.shape[-1]) for v in (offset, scale))
    if not fits:
        raise unsupported(node, f"offset and scale do not fit {tuple(x.shape)}")
    return (x.float() - offset) * scale


def normalizer(node: Node, x: Tensor) -> Tensor:
    how = node.get("norm", "MAX")
    x = x.float()
    sizes = {
        "MAX": lambda: x.amax(-1),
        "L1": lambda: x.abs().sum(-1),
        "L2": lambda: x.square().sum(-1).sqrt(),
    }
    if how not in sizes:
        raise unsupported(node, f"unknown norm {how!r}")
    size = sizes[how]()[..., None]
    return x / torch.where(size == 0, 1.0, size)


def imputer(node: Node, x: Tensor | Gaps) -> Tensor:
    dtype, shape = (x.value.dtype, x.value.shape) if isinstance(x, Gaps) else (x.dtype, x.shape)
    real = dtype.is_floating_point
    given = node.reals("imputed_value_floats") if real else node.integers("imputed_value_int64s")
    values = torch.tensor(given, dtype=dtype)
    if len(values) not in (1, shape[-1]):
        raise unsupported(node, f"{len(values)} values for {tuple(shape)}")
    gap = node.attributes.get(
        "replaced_value_float" if real else "replaced_value_int64", 0.0 if real else 0
    )
    if isinstance(x, Gaps):
        if gap != gap:
            return x.filled(values)
        x = x.numbers()
    return torch.where(x.isnan() if gap != gap else x == gap, values, x)


def one_hot(node: Node, x: Tensor | Levels) -> Tensor:
    strings = node.strings("cats_strings")
    codes = node.integers("cats_int64s")
    if bool(strings) == bool(codes):
        raise unsupported(node, "categories are missing")
    if isinstance(x, Levels):
        cats: list[Any] = list(strings or codes)
        known = {level for _, levels in x.columns for level in levels}
        covered = all(any(_equal(v, c) for c in cats) for v in known)
        if not bool(node.get("zeros", 1)) and not covered:
            raise unsupported(node, f"knows only {cats[:6]}")
        return x.map(lambda v: [float(_equal(v, c)) for c in cats])
    if not bool(codes):
        raise unsupported(node, "strings where numbers are expected")
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
        keys = node.strings("classes_strings")
        values = tuple(range(len(node.strings("classes_strings"))))
        real = False
    if not len(keys) == len(values) > 0:
        raise unsupported(node, "keys and values do not fit, or are strings")
    default = node.attributes.get("default_float", -0.0) if real else node.get("default_int64", -1)
    dtype = torch.float32 if real else torch.int64
    if isinstance(x, Levels):
        table = dict(zip(keys, values, strict=True))
        as_string = isinstance(keys[0], str)
        # Kept as a real number even where integers are written: weights between levels have
        # gradients that way.
        return x.map(lambda v: [float(table.get(str(v) if as_string else v, default))])[..., 0]
    if isinstance(keys[0], str):
        raise unsupported(node, "strings where numbers are expected")
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
    if not x.ndim >= 1:
        raise unsupported(node, "takes no single number")
    x = x[None] if x.ndim == 1 else x
    inside(at, 0, x.shape[-1], f"operator {node.op}: a column")
    room(node, *x.shape[:-1], len(at))
    return x[..., at]


def feature_vectorizer(node: Node, *parts: Tensor) -> Tensor:
    return torch.cat([p.float().reshape(len(p), -1) for p in parts], 1)


# Operators that take columns of categories as they are.


def _concat_levels(node: Node, *parts: Any) -> Levels:
    if not all(isinstance(p, Levels) for p in parts):
        raise unsupported(node, "strings and numbers cannot be put together")
    if node.get("axis", 1) not in (1, -1):
        raise unsupported(node, "strings can only be put side by side")
    return Levels(tuple(c for p in parts for c in p.columns))


def _gather_levels(node: Node, x: Levels, index: Tensor) -> Tensor | Levels:
    if node.get("axis", 0) not in (1, -1):
        raise unsupported(node, "of strings, only columns can be picked")
    return pick_columns(node, x, index)


def _reshape_levels(node: Node, x: Levels, shape: Tensor) -> Levels:
    sizes = numbers(node, shape, "shape") or []
    if sizes[1:] != [len(x.columns)]:
        raise unsupported(node, "strings cannot be put into another shape")
    return x


def _cast_levels(node: Node, x: Levels) -> Tensor | Levels:
    to = node.get("to", 0)
    if to == 8:
        return Levels(tuple((w, tuple(str(v) for v in levels)) for w, levels in x.columns))
    if to not in ELEMENTS:
        raise unsupported(node, f"cannot cast to element type {to}")
    dtype = DTYPES[ELEMENTS[to][0]]
    if dtype.is_floating_point:
        return x.numbers(node, dtype)
    values = [(w, _values(node, levels)) for w, levels in x.columns]
    return Levels(tuple((w, tuple(int(v) for v in numbers)) for w, numbers in values))


ML_OPERATORS: dict[str, Operator] = {
    f"{ML}.Scaler": scaler,
    f"{ML}.Normalizer": normalizer,
    f"{ML}.Imputer": imputer,
    f"{ML}.OneHotEncoder": one_hot,
    f"{ML}.LabelEncoder": label_encoder,
    f"{ML}.ArrayFeatureExtractor": pick_columns,
    f"{ML}.FeatureVectorizer": feature_vectorizer,
    f"{ML}.ZipMap": same,
    f"{ML}.Binarizer": one(lambda node, x: (x > node.get("threshold", 0.0)).to(x.dtype)),
}
# Operators with tables to be made once: node -> operator.
PREPARED: dict[str, Callable[[Node], Operator]] = {
    f"{ML}.LinearClassifier": linear,
    f"{ML}.LinearRegressor": linear,
    TREES[0]: tree_classifier,
    TREES[1]: tree_regressor,
}
ON_LEVELS: dict[str, Operator] = {
    "Identity": same,
    "Concat": _concat_levels,
    "Reshape": _reshape_levels,
    "Cast": _cast_levels,
    "Gather": _gather_levels,
    f"{ML}.OneHotEncoder": one_hot,
    f"{ML}.LabelEncoder": label_encoder,
    f"{ML}.ArrayFeatureExtractor": pick_columns,
}
