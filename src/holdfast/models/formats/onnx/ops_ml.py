"""The operators of `ai.onnx.ml` that scikit-learn's models are exported with, as torch operations.

Columns of categories are `LevelColumns`: a weight for each level instead of a string, one-hot for a
row of a table. Encoders are then products of matrices, and a model over strings has gradients by
the weights. Trees are in `onnx.trees`.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from holdfast.models.formats.onnx.class_scores import after, labels
from holdfast.models.formats.onnx.graph import DTYPES, ELEMENTS, ML, Node
from holdfast.models.formats.onnx.levels import LevelColumns, as_numbers
from holdfast.models.formats.onnx.missing import Gaps
from holdfast.models.formats.onnx.op_checks import Operator, numbers, one, room, unsupported
from holdfast.models.formats.onnx.ops import same
from holdfast.models.formats.onnx.trees import TREES, tree_classifier, tree_regressor
from holdfast.models.formats.tree_checks import inside


def linear(node: Node) -> Operator:
    """LinearClassifier and LinearRegressor."""
    c = torch.tensor(node.reals("coefficients"))
    b = torch.tensor(node.reals("intercepts"))
    names = labels(node)
    k = len(b) or node.get("targets", 1)
    classifies = node.op == f"{ML}.LinearClassifier"
    if not (k >= 1 and len(c) > 0 and len(c) % k == 0):
        raise unsupported(node, f"{len(c)} coefficients for {k} outputs")
    fits_classes = k == len(names) or (k == 1 and len(names) == 2)
    if classifies and not fits_classes:
        raise unsupported(node, "classes do not fit")
    if not classifies and node.get("post_transform", "NONE") != "NONE":
        raise unsupported(node, "a post_transform is not supported")
    w = c.reshape(k, -1).T.contiguous()

    def run(node: Node, x: Tensor) -> Any:
        if x.ndim != 2 or x.shape[1] != len(w):
            raise unsupported(node, f"takes {len(w)} columns, got {tuple(x.shape)}")
        scores = x.float() @ w + b if len(b) else x.float() @ w
        return (None, after(node, scores, all_positive=k == 1)) if classifies else scores

    return run


def scaler(node: Node, x: Tensor) -> Tensor:
    offset = torch.tensor(node.reals("offset") or (0.0,))
    scale = torch.tensor(node.reals("scale") or (1.0,))
    if not all(len(v) in (1, x.shape[-1]) for v in (offset, scale)):
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


def one_hot(node: Node, x: Tensor | LevelColumns) -> Tensor:
    strings = node.strings("cats_strings")
    codes = node.integers("cats_int64s")
    if bool(strings) == bool(codes):
        raise unsupported(node, "categories are missing")
    if isinstance(x, LevelColumns):
        cats: list[Any] = list(strings or codes)
        known = {level for _, levels in x.columns for level in levels}
        covered = all(any(_equal(v, c) for c in cats) for v in known)
        if not node.get("zeros", 1) and not covered:
            raise unsupported(node, f"knows only {cats[:6]}")
        return x.map(lambda v: [float(_equal(v, c)) for c in cats])
    if not codes:
        raise unsupported(node, "strings where numbers are expected")
    room(node, x.numel(), len(codes))
    return (x[..., None] == torch.tensor(codes)).float()


def _equal(level: Any, cat: Any) -> bool:
    return str(level) == cat if isinstance(cat, str) else level == cat


def label_encoder(node: Node, x: Tensor | LevelColumns) -> Tensor:
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
    if isinstance(x, LevelColumns):
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


def pick_columns(node: Node, x: Tensor | LevelColumns, index: Tensor) -> Tensor | LevelColumns:
    """ArrayFeatureExtractor."""
    at = [int(i) for i in cast(list[Any], cast(Any, index).reshape(-1).tolist())]
    if isinstance(x, LevelColumns):
        inside(at, 0, len(x.columns), f"operator {node.op}: a column")
        return LevelColumns(tuple(x.columns[i] for i in at))
    if not x.ndim >= 1:
        raise unsupported(node, "does not take a single number")
    x = x[None] if x.ndim == 1 else x
    inside(at, 0, x.shape[-1], f"operator {node.op}: a column")
    room(node, *x.shape[:-1], len(at))
    return x[..., at]


def feature_vectorizer(node: Node, *parts: Tensor) -> Tensor:
    return torch.cat([p.float().reshape(len(p), -1) for p in parts], 1)


# Operators that take columns of categories as they are.


def _concat_levels(node: Node, *parts: Any) -> LevelColumns:
    if not all(isinstance(p, LevelColumns) for p in parts):
        raise unsupported(node, "strings and numbers cannot be put together")
    if node.get("axis", 1) not in (1, -1):
        raise unsupported(node, "strings can only be put side by side")
    return LevelColumns(tuple(c for p in parts for c in p.columns))


def _gather_levels(node: Node, x: LevelColumns, index: Tensor) -> Tensor | LevelColumns:
    if node.get("axis", 0) not in (1, -1):
        raise unsupported(node, "of strings, only columns can be picked")
    return pick_columns(node, x, index)


def _reshape_levels(node: Node, x: LevelColumns, shape: Tensor) -> LevelColumns:
    sizes = numbers(node, shape, "shape") or []
    if sizes[1:] != [len(x.columns)]:
        raise unsupported(node, "strings cannot be put into another shape")
    return x


def _cast_levels(node: Node, x: LevelColumns) -> Tensor | LevelColumns:
    to = node.get("to", 0)
    if to == 8:
        return LevelColumns(tuple((w, tuple(str(v) for v in levels)) for w, levels in x.columns))
    if to not in ELEMENTS:
        raise unsupported(node, f"cannot cast to element type {to}")
    dtype = DTYPES[ELEMENTS[to][0]]
    if dtype.is_floating_point:
        return x.numbers(node, dtype)
    values = [(w, as_numbers(node, levels)) for w, levels in x.columns]
    return LevelColumns(tuple((w, tuple(int(v) for v in numbers)) for w, numbers in values))


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
