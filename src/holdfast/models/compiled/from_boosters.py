"""XGBoost's and LightGBM's trees, read from the JSON that both libraries write themselves."""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pandas as pd

from holdfast._core.checks import untyped
from holdfast._core.types import Array
from holdfast.errors import ModelError
from holdfast.models.compiled.from_sklearn import Kernel, stacked, tree_of
from holdfast.models.compiled.preprocessing import Column, RefusedError, type_name
from holdfast.models.compiled.tree_nodes import Nodes
from holdfast.models.formats import lightgbm_text

# Beginnings of objectives for regression, and those whose estimate is simply the sum of the trees.
NUMBERS = ("reg:", "count:", *lightgbm_text.NUMBERS)
CLASSES = ("binary", "multi", "cross_entropy")  # and those for classification
# LightGBM's names for the same objective
ONE_AGAINST_ALL = ("multiclassova", "multiclass_ova", "ova", "ovr")
MARGINS = ("xgboost.XGBClassifier", "xgboost.XGBRFClassifier", "lightgbm.LGBMClassifier")
PLAIN = (
    "reg:squarederror",
    "reg:absoluteerror",
    "reg:pseudohubererror",
    "reg:quantileerror",
    "reg:linear",
    "regression",
    "regression_l1",
    "huber",
    "fair",
    "quantile",
    "mape",
)
ENDLESS = 1e300  # stands for infinity, and all numbers beyond this, in LightGBM's trees
LIGHTGBM_ZERO = float(np.float32(1e-35))


def is_xgboost(booster: Any) -> bool:
    return type(booster).__module__.startswith("xgboost")


def _objective(booster: Any) -> str:
    if is_xgboost(booster):
        return str(json.loads(booster.save_config())["learner"]["objective"]["name"])
    return str(booster.dump_model(num_iteration=1).get("objective", "none"))


def boosted(booster: Any, outputs: str | None = None) -> "Boosted | BoostedNumbers":
    """A bare Booster in the style of an estimator. The outputs the user gives take precedence over
    its objective: for the user's own objective XGBoost notes its default, a regression, and
    LightGBM nothing."""
    if outputs == "logits":
        return Boosted(booster)
    objective = _objective(booster)
    if objective.startswith(NUMBERS) or (outputs == "value" and not objective.startswith(CLASSES)):
        return BoostedNumbers(booster)
    if not (objective.startswith(CLASSES) and objective != "cross_entropy_lambda"):
        raise ModelError(
            f"a Booster with objective {objective!r} is neither a classifier nor a regression "
            "model by itself; if its sum of trees is the score of a class, pass outputs='logits' "
            "and classes=[...]; if an estimate, outputs='value'"
        )
    return Boosted(booster)


def booster_names(booster: Any) -> list[str] | None:
    """The columns that a Booster was trained on, if it has names for them; for an array LightGBM
    makes some up."""
    names: Any = booster.feature_names if is_xgboost(booster) else booster.feature_name()
    return None if names is None else list(names)


def _rows(booster: Any, table: Any) -> Any:
    """A table as a Booster takes it: LightGBM goes by the order of its columns, XGBoost insists on
    it. They stay as they are if it has no names for them, or other names, as LightGBM does after
    training on an array."""
    names = booster_names(booster) or []
    ordered = isinstance(table, pd.DataFrame) and names and set(names) <= set(table.columns)
    rows = table[names] if ordered else table
    return (
        untyped("xgboost").DMatrix(rows, enable_categorical=True) if is_xgboost(booster) else rows
    )


class BoostedNumbers:
    """A bare Booster that is a regression model: `predict` over the table."""

    _estimator_type = "regressor"

    def __init__(self, booster: Any) -> None:
        self.booster = booster

    def predict(self, frame: Any) -> Any:
        return self.booster.predict(_rows(self.booster, frame))


class Boosted:
    """A bare Booster in the style of an estimator: `decision_function` gives logits over the
    table."""

    def __init__(self, booster: Any) -> None:
        self.booster = booster
        self.objective = _objective(booster)

    def decision_function(self, frame: Any) -> Any:
        rows = _rows(self.booster, frame)
        if is_xgboost(self.booster):
            return self.booster.predict(rows, output_margin=True)
        scores = self.booster.predict(rows, raw_score=True) * _steepness(self.objective)
        # Each class against all others: the shares of the sigmoids are the softmax of their
        # logarithms.
        return -np.logaddexp(0, -scores) if self.objective.startswith(ONE_AGAINST_ALL) else scores


def is_booster(model: Any) -> bool:
    return type(model).__name__ == "Booster" and type(model).__module__.partition(".")[0] in (
        "xgboost",
        "lightgbm",
    )


def has_margins(model: Any) -> bool:
    """Is it a classifier of XGBoost or LightGBM, which can give the sums of its trees?"""
    return type_name(model) in MARGINS


def margins(model: Any, inner: Any) -> Callable[[Any], Any]:
    """The sums of the trees by `model`, whose last step is the classifier `inner`."""
    by_xgboost = type_name(inner).startswith("xgboost.")
    return (
        partial(model.predict, output_margin=True)
        if by_xgboost
        else partial(model.predict_proba, raw_score=True)
    )


def is_raw(model: Any) -> bool:
    """An XGBoost classifier whose `predict_proba` gives the sums of its trees instead."""
    return type_name(model).startswith("xgboost.") and model.objective == "binary:logitraw"


def is_own(model: Any) -> bool:
    """A classifier whose objective is a function of the user's."""
    return has_margins(model) and callable(model.objective)


def half(model: Any) -> tuple[float, ...]:
    """What to add to scores: XGBoost predicts class 1 above one half, even if that is a sum and not
    a probability."""
    raw = type_name(model).startswith("xgboost.") and (is_raw(model) or is_own(model))
    return (0.0, -0.5) if raw and len(model.classes_) == 2 else ()


def is_one_against_all(model: Any) -> bool:
    """A LightGBM classifier whose probabilities do not add up to 1."""
    return (
        type_name(model).startswith("lightgbm.")
        and getattr(model, "objective_", None) in ONE_AGAINST_ALL
    )


def xgboost(model: Any) -> tuple[Nodes, Kernel]:
    """A Booster, or the booster of an XGBClassifier up to its best round."""
    booster = model if type(model).__name__ == "Booster" else model.get_booster()
    if model is not booster and not pd.isna(model.missing):
        raise RefusedError(f"it takes {model.missing} for missing")
    content = _learner(booster)
    objective = content["objective"]["name"]
    boosted_trees = content["gradient_booster"]["model"]
    trees = boosted_trees["trees"]
    groups = boosted_trees["tree_info"]
    last = _best_round(model)
    if last is not None:
        ends = boosted_trees["iteration_indptr"]
        trees = trees[: ends[last + 1]]
        groups = groups[: ends[last + 1]]
    start = _start(objective, content["learner_model_param"])
    parts, sets = _xgboost_trees(trees)
    nodes = Nodes(
        **stacked(parts),
        adds_to=np.array(groups, dtype=np.int64),
        start=start.astype(np.float32).astype(np.float64),  # XGBoost adds in single precision
        precision=np.float32,
        strict=True,
        outputs="value" if objective in PLAIN else "logits",
        sets=sets,
        sets_left=False,
    )
    return nodes, partial(_kernel, booster, (0, 0) if last is None else (0, last + 1))


def _start(objective: str, parameters: dict[str, Any]) -> Array:
    """(outputs,) what the sums of trees begin with; the file gives it as a probability."""
    outputs = max(int(parameters["num_class"]), 1)
    base = np.array(json.loads(parameters["base_score"]), dtype=np.float64).ravel()
    base = np.broadcast_to(base, outputs)
    if objective == "binary:logistic":
        return np.log(base) - np.log1p(-base)
    if objective not in ("multi:softprob", "multi:softmax", "binary:logitraw", *PLAIN):
        raise RefusedError(f"its objective {objective!r} cannot be compiled")
    return base


def _xgboost_trees(trees: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[int, Array]]:
    """The nodes of each tree, and the set of categories of each node that has one."""
    parts = list[dict[str, Any]]()
    sets = dict[int, Array]()
    count = 0
    for tree in trees:
        if int(tree["tree_param"]["size_leaf_vector"]) > 1:
            raise RefusedError("its trees have leaves of several values")
        parts.append(_xgboost_tree(tree, sets, count))
        count += len(parts[-1]["left"])
    return parts, sets


def _kernel(booster: Any, rounds: tuple[int, int], inputs: Any) -> Array:
    how = {"predict_type": "margin", "missing": np.nan, "validate_features": False}
    margin = booster.inplace_predict(inputs, iteration_range=rounds, **how)
    return np.asarray(margin, dtype=np.float64).reshape(len(inputs), -1)


def _learner(booster: Any) -> dict[str, Any]:
    content = json.loads(bytes(booster.save_raw("json")))["learner"]
    name = content["gradient_booster"]["name"]
    if name != "gbtree":
        raise RefusedError(f"its booster is {name!r}, not 'gbtree'")
    return content


def _best_round(model: Any) -> int | None:
    """An XGBClassifier that stopped early predicts with the rounds up to the best one."""
    if type(model).__name__ == "Booster":
        return None
    try:
        return int(model.best_iteration)
    except AttributeError:
        return None


def _xgboost_tree(tree: dict[str, Any], sets: dict[int, Array], count: int) -> dict[str, Any]:
    condition = np.array(tree["split_conditions"], dtype=np.float32).astype(np.float64)
    by_set = (tree[f"categories_{name}"] for name in ("nodes", "segments", "sizes"))
    for node, begin, size in zip(*by_set, strict=True):
        sets[count + node] = np.array(tree["categories"][begin : begin + size], dtype=np.float64)
    left = tree["left_children"]
    right = tree["right_children"]
    column = tree["split_indices"]
    return tree_of(
        left,
        right,
        column,
        condition,
        tree["default_left"],
        np.where(np.array(left) < 0, condition, 0.0),
    )


def xgboost_lists(model: Any) -> list[list[Any]]:
    """The levels of each column of categories, in the order they were trained on."""
    booster = model if type(model).__name__ == "Booster" else model.get_booster()
    out: list[list[Any]] = []
    for entry in _learner(booster)["gradient_booster"]["model"].get("cats", {}).get("enc", []):
        values = entry["values"]
        ends = entry.get("offsets", [])
        if ends:
            text = bytes(v % 256 for v in values)
            out.append([text[a:b].decode() for a, b in pairwise(ends)])
        elif values:
            out.append(values)
    return out


def lightgbm(model: Any) -> tuple[Nodes, Kernel | None]:
    """A Booster, or the booster of an LGBMClassifier, up to its best round."""
    booster = model if type(model).__name__ == "Booster" else model.booster_
    content = booster.dump_model()  # up to the best round, like its predictions
    objective = str(content.get("objective", "none"))
    plain = objective.partition(" ")[0] in PLAIN and "sqrt" not in objective
    if not plain and objective.partition(" ")[0] not in ("binary", "multiclass", "cross_entropy"):
        raise RefusedError(f"its objective {objective!r} cannot be compiled")
    steep = _steepness(objective)
    per_round = int(content["num_tree_per_iteration"])
    parts = list[dict[str, Any]]()
    zeros = list[Any]()
    sets = dict[int, Array]()
    count = 0
    for tree in content["tree_info"]:
        part, zero = _lightgbm_tree(tree["tree_structure"], sets, count, steep)
        parts.append(part)
        zeros.append(zero)
        count += len(zero)
    zero_missing = np.concatenate(zeros)
    nodes = Nodes(
        **stacked(parts),
        adds_to=np.arange(len(parts)) % per_round,
        start=np.zeros(per_round),
        precision=np.float64,
        share=len(parts) / per_round if content["average_output"] else 1.0,
        outputs="value" if plain else "logits",
        sets=sets,
        zero_missing=zero_missing if zero_missing.any() else None,
    )
    return nodes, None


def _steepness(objective: str) -> float:
    """'binary sigmoid:2': the probability is the sigmoid of twice the sum of the leaves."""
    found = re.search(r"^(?:binary|multiclassova) .*sigmoid:(\S+)", objective)
    return float(found[1]) if found else 1.0


def _lightgbm_tree(
    root: Any, sets: dict[int, Array], count: int, steep: float
) -> tuple[dict[str, Any], Any]:
    found = list[dict[str, Any]]()
    links = list[list[int]]()
    stack = [(root, -1, 0)]
    while stack:
        node, parent, side = stack.pop()
        place = len(found)
        found.append(node)
        links.append([-1, -1])
        if parent >= 0:
            links[parent][side] = place
        if "split_feature" in node:
            stack += [(node["right_child"], place, 1), (node["left_child"], place, 0)]
    if any("leaf_coeff" in n for n in found):
        raise RefusedError(
            "its leaves hold linear models (linear_tree=True), which cannot be compiled"
        )
    inner = np.array(["split_feature" in n for n in found])
    zeros, missing_left = np.zeros(len(found), dtype=bool), np.zeros(len(found), dtype=bool)
    threshold = np.zeros(len(found))
    for i in np.flatnonzero(inner).tolist():
        n = found[i]
        if n["decision_type"] == "==":
            sets[count + i] = np.array([float(v) for v in str(n["threshold"]).split("||")])
            continue  # missing ones go right
        threshold[i] = n["threshold"] if n["threshold"] < ENDLESS else np.inf
        if abs(threshold[i]) <= LIGHTGBM_ZERO:  # an input this small counts as zero
            threshold[i] = (
                LIGHTGBM_ZERO if threshold[i] >= 0 else np.nextafter(-LIGHTGBM_ZERO, -np.inf)
            )
        zeros[i] = n["missing_type"] == "Zero"
        # Where nothing was missing in training, a missing value counts as zero.
        missing_left[i] = n["default_left"] if n["missing_type"] != "None" else threshold[i] >= 0
    value = [n.get("leaf_value", 0) for n in found]
    column = [n.get("split_feature", 0) for n in found]
    left, right = np.array(links).T
    return tree_of(
        left, right, column, threshold, missing_left, np.array(value, dtype=np.float64) * steep
    ), zeros


def coded(columns: Sequence[Column], known: Sequence[Any]) -> list[Column]:
    """Category columns as the libraries see them: places in the lists they were trained on; others
    are missing."""
    out = list[Column]()
    lists = iter(known)
    for c in columns:
        if c.table is None or not isinstance(c.table.dtype, pd.CategoricalDtype):
            out.append(c)
            continue
        listed: Any = next(lists, None)
        if listed is None:
            raise RefusedError("it was trained on fewer columns of categories than the schema has")
        place = pd.Index(list(listed), dtype=object).get_indexer(cast(Any, c.table.astype(object)))
        out.append(Column(c.raw, pd.Series(np.where(place < 0, np.nan, place))))
    return out
