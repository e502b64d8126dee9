"""scikit-learn's trees: random forests, extremely random trees, single trees, and both kinds of
gradient boosting."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from holdfast._core.types import Array
from holdfast.models.compiled.preprocessing import RefusedError
from holdfast.models.compiled.tree_nodes import Nodes

# the model's inputs (n, m) -> outputs (n, k), by the library's compiled code
Kernel = Callable[[Any], Array]


def stacked(trees: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The nodes of trees, each counted from 0, one after the other."""
    roots = np.cumsum([0, *[len(t["left"]) for t in trees][:-1]])
    out: dict[str, Any] = {"roots": roots}
    for key in ("left", "right"):
        shifted = [np.where(t[key] >= 0, t[key] + r, -1) for t, r in zip(trees, roots, strict=True)]
        out[key] = np.concatenate(shifted).astype(np.int64)
    for key in ("column", "threshold", "missing_left", "value"):
        out[key] = np.concatenate([t[key] for t in trees])
    return out


def tree_of(
    left: Any, right: Any, column: Any, threshold: Any, missing_left: Any, value: Any
) -> dict[str, Any]:
    """The nodes of one tree, as `Nodes` has them; the children of a leaf are -1."""
    left = np.asarray(left, np.int64)
    right = np.asarray(right, np.int64)
    column = np.asarray(column, np.int64)
    value = np.asarray(value, np.float64).reshape(len(left), -1)
    tests = {
        "threshold": np.asarray(threshold, np.float64),
        "missing_left": np.asarray(missing_left).astype(bool),
    }
    return {
        "left": left,
        "right": right,
        "column": np.where(left < 0, 0, column),
        **tests,
        "value": value,
    }


def _plain(t: Any, value: Array) -> dict[str, Any]:
    return tree_of(
        t.children_left, t.children_right, t.feature, t.threshold, t.missing_go_to_left, value
    )


def forest(model: Any) -> tuple[Nodes, Kernel]:
    """Random forests, extremely random trees, one tree: the mean of the leaves' shares of each
    class, or estimates."""
    trees = [e.tree_ for e in getattr(model, "estimators_", [model])]
    if model.n_outputs_ != 1:
        raise RefusedError("it has more than one output")
    parts = stacked([_plain(t, t.value[:, 0, :]) for t in trees])
    k = int(parts["value"].shape[1])
    nodes = Nodes(
        **parts,
        adds_to=np.full(len(trees), -1),
        start=np.zeros(k),
        precision=np.float32,
        share=float(len(trees)),
        outputs="probabilities" if hasattr(model, "classes_") else "value",
    )
    return nodes, partial(_kernel, trees, k)


def _kernel(trees: list[Any], k: int, inputs: Any) -> Array:
    total = np.zeros((len(inputs), k))
    for tree in trees:
        total += tree.predict(inputs).reshape(len(inputs), k)
    return total / len(trees)


def gradient_boosting(model: Any) -> tuple[Nodes, Kernel | None]:
    """The older gradient boosting: a start, and a tree for each class in each round."""
    # its probability is the sigmoid of twice the sum
    factor = 2.0 if model.loss == "exponential" else 1.0
    trees = [(e.tree_, k) for round_ in model.estimators_ for k, e in enumerate(round_)]
    rate = model.learning_rate * factor
    start = _start(model) * factor
    parts = stacked([_plain(t, t.value[:, 0, :] * rate) for t, _ in trees])
    to = np.array([k for _, k in trees])
    return Nodes(**parts, adds_to=to, start=start, precision=np.float32, outputs=_raw(model)), None


def _start(model: Any) -> Array:
    """What the rounds start from; the same for every row unless the caller gave a
    model."""
    outputs = int(model.estimators_.shape[1])
    if isinstance(model.init_, str):  # "zero"
        return np.zeros(outputs)
    if (
        type(model.init_).__name__ not in ("DummyClassifier", "DummyRegressor")
        or model.init is not None
    ):
        raise RefusedError("it starts from another model (init=...)")
    return np.asarray(
        model._raw_predict_init(np.zeros((1, model.n_features_in_), np.float32))[0],
        dtype=np.float64,
    )


def hist_gradient_boosting(model: Any) -> tuple[Nodes, Kernel | None]:
    """The newer gradient boosting, which handles categories and missing values itself."""
    if _raw(model) == "value" and model.loss in ("gamma", "poisson"):
        raise RefusedError(f"its loss {model.loss!r} ends in an exponential")
    trees = [(p, k) for round_ in model._predictors for k, p in enumerate(round_)]
    known, place_of = model._bin_mapper.make_known_categories_bitsets()
    parts = list[dict[str, Any]]()
    sets = dict[int, Array]()
    count = 0
    for predictor, _ in trees:
        n = predictor.nodes
        leaf = n["is_leaf"].astype(bool)
        missing_left = n["missing_go_to_left"].astype(bool)
        for i in np.flatnonzero(n["is_categorical"].astype(bool) & ~leaf).tolist():
            goes_left = bits(predictor.raw_left_cat_bitsets[n["bitset_idx"][i]])
            if missing_left[i]:  # levels that training never saw go where missing ones go
                seen = bits(known[place_of[n["feature_idx"][i]]])
                goes_left = np.union1d(goes_left, np.setdiff1d(np.arange(256), seen))
            sets[count + i] = goes_left.astype(np.float64)
        left = np.where(leaf, -1, n["left"].astype(np.int64))
        right = np.where(leaf, -1, n["right"].astype(np.int64))
        parts.append(
            tree_of(left, right, n["feature_idx"], n["num_threshold"], missing_left, n["value"])
        )
        count += len(n)
    start = np.asarray(model._baseline_prediction, dtype=np.float64).ravel()
    to = np.array([k for _, k in trees], dtype=np.int64)
    parts = stacked(parts)
    return Nodes(
        **parts, adds_to=to, start=start, precision=np.float64, sets=sets, outputs=_raw(model)
    ), None


def _raw(model: Any) -> Literal["logits", "value"]:
    """What the sum over a boosting's trees is."""
    return "logits" if hasattr(model, "classes_") else "value"


def bits(words: Any) -> Array:
    """Words of 32 bits -> the numbers of the bits that are set."""
    wide = np.unpackbits(np.asarray(words, dtype="<u4").view(np.uint8), bitorder="little")
    return np.flatnonzero(wide).astype(np.float64)
