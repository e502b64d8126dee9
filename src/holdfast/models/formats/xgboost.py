"""XGBoost models in JSON or UBJSON, read and checked by us, then written anew as JSON for XGBoost's
own reader.

What XGBoost gets to see holds nothing that was not checked: it follows the children, columns and
sets of categories of a tree without a look, and takes sizes from the file.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from holdfast._core.checks import listed, optional
from holdfast._core.types import Array, Ints, Mask
from holdfast.errors import FileError
from holdfast.models.formats import ubjson
from holdfast.models.formats.limits import parse_json
from holdfast.models.formats.loaded import Description, LoadedModel
from holdfast.models.formats.sandbox import try_in_child
from holdfast.models.formats.tree_checks import check_tree, columns_of, finite, inside, integers

if TYPE_CHECKING:
    from holdfast.schema.schema import Schema

MOST_COLUMNS = 1_000_000
MOST_CLASSES = 100_000
MOST_CATEGORIES = 1 << 18
# the parent of the root, and the column of a node that was taken out
ROOT = 2**31 - 1
DELETED = 2**31 - 1
# What a model was trained for -> where the file has its parameters, and the default of
# each.
LOSS = ("reg_loss_param", {"scale_pos_weight": "1"})
SOFTMAX = ("softmax_multiclass_param", {"num_class": "0"})
CLASSES = {"binary:logistic": LOSS, "multi:softprob": SOFTMAX, "multi:softmax": SOFTMAX}
NUMBERS = {
    **{
        f"reg:{name}": LOSS
        for name in ("squarederror", "squaredlogerror", "absoluteerror", "logistic", "gamma")
    },
    "reg:pseudohubererror": ("pseudo_huber_param", {"huber_slope": "1"}),
    "reg:quantileerror": ("quantile_loss_param", {"quantile_alpha": "[0.5]"}),
    "reg:tweedie": ("tweedie_regression_param", {"tweedie_variance_power": "1.5"}),
    "count:poisson": ("poisson_regression_param", {"max_delta_step": "0.7"}),
}
OBJECTIVES = CLASSES | NUMBERS
NUMBER = r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
Entry = dict[str, Any]
FILE = "the XGBoost file"
STATISTICS = ("base_weights", "loss_changes", "sum_hessian")  # of the nodes


def parse(data: bytes) -> Entry:
    """The model in the bytes of a file, with the parts that are known, all of them checked."""
    model = (
        ubjson.read(data)
        if data[:1] == b"{" and data[1:2] in b"LiUIl"
        else parse_json(data, FILE, nan=True)
    )
    try:
        learner = _learner(_entry(model, "learner"))
        version = integers(model.get("version", [1, 0, 0]), "the version")
        if len(version) != 3 or (version < 0).any() or (version > 10_000).any():
            raise FileError(f"{FILE} has an impossible version")
        return {"learner": learner, "version": version.tolist()}
    except (FileError, RecursionError):
        raise
    except Exception as error:  # a value may be of any type
        raise FileError(f"{FILE} is damaged: {type(error).__name__}: {error}") from None


def _entry(value: Any, key: str) -> Entry:
    if not isinstance(value, dict) or not isinstance(cast(Entry, value).get(key), dict):
        raise FileError(f"{FILE} is damaged or cut off: there is no {key!r}")
    return cast(Entry, value)[key]


def _learner(learner: Entry) -> Entry:
    given = _entry(learner, "learner_model_param")
    objective = _entry(learner, "objective")
    columns = _count(given, "num_feature", MOST_COLUMNS)
    classes = _count(given, "num_class", MOST_CLASSES)
    if columns < 1 or _count(given, "num_target", 1, "1") != 1:
        raise FileError(f"{FILE} has no columns, or several targets")
    base = str(given.get("base_score", "5E-1"))
    if not re.fullmatch(rf"\[?{NUMBER}(?:,{NUMBER})*\]?", base):
        raise FileError(f"{FILE} has an odd base score {base[:40]!r}")
    goal = _objective(objective)
    scores = len(base.split(","))
    several = goal["name"].startswith("multi:")
    if several != (classes >= 2):
        raise FileError(f"{FILE} has the objective {goal['name']!r} and {classes} classes")
    if scores not in (1, max(classes, 1)):
        raise FileError(f"{FILE} has {scores} base scores for {classes} classes")
    params = {
        "num_feature": str(columns),
        "num_class": str(classes),
        "num_target": "1",
        "base_score": base,
        "boost_from_average": "1",
    }
    if several:  # also of a model that would only name the class
        goal = {"name": "multi:softprob", "softmax_multiclass_param": {"num_class": str(classes)}}
    attributes: Any = learner.get("attributes", {})
    if not all(isinstance(v, str) for v in attributes.values()):
        raise FileError(f"{FILE} has attributes that are not strings")
    return {
        "attributes": attributes,
        "learner_model_param": params,
        "objective": goal,
        **{
            key: _names(learner.get(key, []), columns) for key in ("feature_names", "feature_types")
        },
        "gradient_booster": _booster(_entry(learner, "gradient_booster"), columns, max(classes, 1)),
    }


def _objective(objective: Entry) -> Entry:
    """What the model was trained for, as XGBoost will read it: with all of its parameters, each of
    them a number."""
    name = objective.get("name")
    if name not in OBJECTIVES:
        raise FileError(
            f"{FILE} is neither a classifier nor a regression model: its objective is {name!r}"
        )
    place, known = OBJECTIVES[cast(str, name)]
    given = _entry(objective, place) if place in objective else {}
    unknown = [key for key in (*objective, *given) if key not in ("name", place, *known)]
    if unknown:
        raise FileError(
            f"{FILE} has an unknown parameter {listed(unknown)} of its objective {name!r}"
        )
    values = {key: str(given.get(key, usual)) for key, usual in known.items()}
    for key, word in values.items():
        if not (
            re.fullmatch(rf"{NUMBER}|\[{NUMBER}\]", word) and math.isfinite(float(word.strip("[]")))
        ):
            raise FileError(f"{FILE} has {key} = {word[:40]!r}, expected a number")
    return {"name": name, place: values}


def _count(given: Entry, key: str, most: int, default: str | None = None) -> int:
    word = str(given.get(key, default))
    if not re.fullmatch(r"\d{1,12}", word) or int(word) > most:
        raise FileError(
            f"{FILE} has {key} = {word[:40]!r}, expected an integer of at most {most:,}"
        )
    return int(word)


def _names(value: Any, columns: int) -> list[str]:
    names: list[Any] = cast(list[Any], value) if isinstance(value, list) else [None]
    if len(names) not in (0, columns) or not all(isinstance(n, str) for n in names):
        raise FileError(f"{FILE} has {columns} columns and {len(names)} names or types for them")
    return names


def _booster(booster: Entry, columns: int, outputs: int) -> Entry:
    name = booster.get("name")
    if name == "gbtree":
        return {"name": name, "model": _trees(_entry(booster, "model"), columns, outputs)}
    if name == "dart":
        inner = _booster(_entry(booster, "gbtree"), columns, outputs)
        weights = finite(booster.get("weight_drop", []), "weight_drop")
        if inner["name"] != "gbtree" or len(weights) != len(inner["model"]["trees"]):
            raise FileError(f"{FILE} has weights that do not fit its trees")
        return {"name": name, "gbtree": inner, "weight_drop": weights.tolist()}
    if name == "gblinear":
        model = _entry(booster, "model")
        weights = finite(model.get("weights", []), "weights")
        if len(weights) != (columns + 1) * outputs:
            raise FileError(
                f"{FILE} has {len(weights)} weights for {columns} columns and {outputs} outputs"
            )
        rounds = int(integers([model.get("boosted_rounds", 0)], "boosted_rounds")[0])
        return {"name": name, "model": {"weights": weights.tolist(), "boosted_rounds": rounds}}
    raise FileError(f"{FILE} has an unknown booster {name!r}")


def _trees(model: Entry, columns: int, outputs: int) -> Entry:
    # XGBoost reads as many trees, and predicts with as many steps, as these numbers say.
    param = _entry(model, "gbtree_model_param")
    trees = model.get("trees")
    if not isinstance(trees, list) or not all(isinstance(t, dict) for t in cast(list[Any], trees)):
        raise FileError(f"{FILE} has no list of trees")
    trees = [_tree(i, t, columns) for i, t in enumerate(cast(list[Entry], trees))]
    count = len(trees)
    parallel = _count(param, "num_parallel_tree", 1 << 20, "1")
    if _count(param, "num_trees", 1 << 31) != count:
        raise FileError(f"{FILE} has {count} trees, and says {param['num_trees']}")
    info = integers(model.get("tree_info", []), "tree_info")
    if len(info) != count:
        raise FileError(f"{FILE} has {count} trees, and says of {len(info)} what they are for")
    inside(info, 0, outputs, f"an output of a tree of {FILE}")
    step = max(parallel, 1) * outputs
    starts = integers(
        model.get("iteration_indptr", list(range(0, count + 1, step))), "iteration_indptr"
    )
    if not len(starts) or starts[0] != 0 or starts[-1] != count or (np.diff(starts) < 0).any():
        raise FileError(f"{FILE} has steps that do not fit its trees")
    out: Entry = {
        "gbtree_model_param": {"num_trees": str(count), "num_parallel_tree": str(parallel)},
        "trees": trees,
        "tree_info": info.tolist(),
        "iteration_indptr": starts.tolist(),
    }
    if "cats" in model:
        out["cats"] = _cats(_entry(model, "cats"), columns)
    return out


def _cats(cats: Entry, columns: int) -> Entry:
    """The categories of the columns, by which those of a table are known."""
    enc = cast(list[Any], cats.get("enc", []))
    segments = integers(cats.get("feature_segments", []), "feature_segments")
    order = integers(cats.get("sorted_idx", []), "sorted_idx")
    if (
        not isinstance(enc, list)
        or len(enc) not in (0, columns)
        or bool(enc) != bool(len(segments))
    ):
        raise FileError(f"{FILE} has categories that do not fit its columns")
    kept = [_encoded(e) for e in enc]
    if len(segments) and (
        segments[0] != 0 or len(segments) != columns + 1 or segments[-1] != len(order)
    ):
        raise FileError(f"{FILE} has categories that do not fit their bounds")
    sizes = [len(e["offsets"]) - 1 if e.get("offsets") else len(e["values"]) for e in kept]
    if (np.diff(segments) != sizes).any():
        raise FileError(f"{FILE} has another number of categories than it says")
    for size, first in zip(sizes, segments.tolist(), strict=False):
        if sorted(order[first : first + size].tolist()) != list(range(size)):
            raise FileError(f"{FILE} has categories whose order does not match")
    return {"enc": kept, "feature_segments": segments.tolist(), "sorted_idx": order.tolist()}


def _encoded(entry: Any) -> Entry:
    if not isinstance(entry, dict) or set(cast(Entry, entry)) - {"offsets", "values", "type"}:
        raise FileError(f"{FILE} has categories of an unknown kind")
    given = cast(Entry, entry)
    values: list[Any] = given.get("values", [])
    if "offsets" not in given:  # numbers
        kind = int(integers([given.get("type", 0)], "the type of categories")[0])
        inside([kind], 0, 17, "the type of categories")
        read = integers if kind > 8 else finite  # 9 and on: int8, uint8, .. uint64
        return {"values": read(values, "categories").tolist(), "type": kind}
    offsets = integers(given["offsets"], "offsets")
    letters = integers(values, "categories")
    inside(letters, -128, 256, "a letter of a category")
    if len(offsets) and (
        offsets[0] != 0 or offsets[-1] != len(letters) or (np.diff(offsets) < 0).any()
    ):
        raise FileError(f"{FILE} has categories that do not fit their lengths")
    return {"offsets": offsets.tolist(), "values": letters.tolist()}


@dataclass(frozen=True)
class _TreeLists:
    """The lists of one tree, with a number for each node."""

    tree: Entry
    what: str  # which tree it is, for errors
    count: int  # of nodes

    def numbers(
        self, key: str, read: Callable[[Any, str], Any] = integers, default: float | None = None
    ) -> Any:
        """The list of this name; `default` stands for each number of one that is left out."""
        left_out: list[float] = [] if default is None else [default] * self.count
        values = read(self.tree.get(key, left_out), f"{key} of {self.what}")
        if len(values) != self.count:
            raise FileError(
                f"{self.what} has {self.count} nodes, and {len(values)} numbers in {key!r}"
            )
        return values

    def conditions(self, by_set: Mask) -> Array:
        """Thresholds; those of nodes that split by a set may be anything."""
        values = np.asarray(self.tree.get("split_conditions", []), np.float64)
        if values.shape != (self.count,) or not np.isfinite(values[~by_set]).all():
            raise FileError(
                f"{self.what} has {self.count} nodes, and {values.size} thresholds, or one that is "
                "not finite"
            )
        return values

    def parents(self, left: Ints, right: Ints, inner: Mask) -> Ints:
        """As the children say; XGBoost looks at the parent of every node but the root, even of
        nodes that were taken out."""
        parents = self.numbers("parents", default=0)
        parents = np.where((parents >= 0) & (parents < self.count), parents, 0)
        parents[0] = ROOT
        for side in (left, right):
            parents[side[inner]] = np.flatnonzero(inner)
        return parents


def _tree(i: int, tree: Entry, columns: int) -> Entry:
    """A tree as it will be written again: nothing that is not named here goes on to XGBoost."""
    # XGBoost follows every list below without a look; each is checked before the next one uses it.
    what = f"tree {i} of {FILE}"
    param = _entry(tree, "tree_param")
    count = _count(param, "num_nodes", 1 << 26)
    widest = _count(param, "num_feature", MOST_COLUMNS)
    if widest > columns or _count(param, "size_leaf_vector", 1, "0") > 1:
        raise FileError(f"{what} is about other columns, or has leaves of several numbers")
    lists = _TreeLists(tree, what, count)
    left = lists.numbers("left_children")
    right = lists.numbers("right_children")
    column = lists.numbers("split_indices")
    inner = left != -1
    if (inner != (right != -1)).any():
        raise FileError(f"{what} has a node with one child")
    check_tree(left, right, inner, what)
    inside(column[inner], 0, columns, f"{what}: a column")
    inside(column[~inner & (column != DELETED)], 0, columns, f"{what}: a column")
    kind = lists.numbers("split_type", default=0)
    inside(kind, 0, 2, f"{what}: a type of split")
    by_set = inner & (kind == 1)
    parents = lists.parents(left, right, inner)
    conditions = lists.conditions(by_set)
    default = lists.numbers("default_left", read=_truths)
    inside(default, 0, 2, f"{what}: a default")
    return {
        "id": i,
        "left_children": left.tolist(),
        "right_children": right.tolist(),
        "parents": parents.tolist(),
        "split_indices": column.tolist(),
        "split_type": kind.tolist(),
        "split_conditions": conditions.tolist(),
        "default_left": default.tolist(),
        **{key: lists.numbers(key, finite, 0.0).tolist() for key in STATISTICS},
        **_sets(tree, by_set, what),
        "tree_param": _tree_param(count, columns, _count(param, "num_deleted", count, "0")),
    }


def _tree_param(nodes: int, columns: int, deleted: int) -> dict[str, str]:
    return {
        "num_nodes": str(nodes),
        "num_feature": str(columns),
        "size_leaf_vector": "1",
        "num_deleted": str(deleted),
    }


def _truths(values: Any, what: str) -> Ints:
    """Truth values, which UBJSON writes as words and JSON as numbers."""
    return integers(np.asarray(values).astype(np.int64), what)


def _sets(tree: Entry, by_set: Any, what: str) -> Entry:
    """The categories that go right, for nodes that split by them."""
    keys = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
    values, nodes, starts, sizes = (integers(tree.get(k, []), f"{k} of {what}") for k in keys)
    if (
        not len(nodes) == len(starts) == len(sizes)
        or nodes.tolist() != np.flatnonzero(by_set).tolist()
    ):
        raise FileError(
            f"{what} has sets of categories for other nodes than those that split by them"
        )
    inside(values, 0, MOST_CATEGORIES, f"{what}: a category")
    if (sizes < 0).any() or (starts < 0).any() or (starts + sizes > len(values)).any():
        raise FileError(f"{what} has sets of categories that do not fit their bounds")
    return dict(zip(keys, (v.tolist() for v in (values, nodes, starts, sizes)), strict=True))


def checked(data: bytes, schema: "Schema | None") -> bytes:
    """JSON for XGBoost's own reader, written anew from what was checked; if the model takes the
    table, its columns must be those of the schema."""
    model = parse(data)
    learner = model["learner"]
    names = learner["feature_names"] or [
        f"f{i}" for i in range(int(learner["learner_model_param"]["num_feature"]))
    ]
    if schema is not None and learner["feature_names"]:
        learner["feature_names"] = columns_of(names, schema, r"f\d+")
    elif schema is not None:
        columns_of(names, schema, r"f\d+")
    return json.dumps(model).encode()


def load(
    data: bytes, schema: "Schema", *, trust: bool = False, inputs: str | None = None
) -> LoadedModel:
    """XGBoost's own classifier or regressor, read from JSON that was checked, and tried in a child
    process."""
    text = checked(data, schema)
    optional("xgboost", "trees")
    if not trust:
        try_in_child("xgboost", text)
    return LoadedModel(made(text, regression=_is_regression(text)))


def _is_regression(text: bytes) -> bool:
    return json.loads(text)["learner"]["objective"]["name"] in NUMBERS


def made(data: bytes, *, regression: bool) -> Any:
    """The estimator in JSON that was checked, or in a file of one's own."""
    xgboost = optional("xgboost", "trees")
    estimator = xgboost.XGBRegressor(n_jobs=1) if regression else xgboost.XGBClassifier(n_jobs=1)
    try:
        estimator.load_model(bytearray(data))
    except Exception as error:
        raise FileError(f"XGBoost cannot read the file: {str(error).splitlines()[0]}") from None
    return estimator


def try_out(text: bytes) -> None:
    """Load the model that `load` wrote, and predict two rows of zeros."""
    estimator = made(text, regression=_is_regression(text))
    with contextlib.suppress(Exception):  # it may need columns of categories; only a crash counts
        estimator.predict(np.zeros((2, estimator.n_features_in_)), validate_features=False)


def describe(data: bytes) -> Description:
    learner = parse(data)["learner"]
    classes = int(learner["learner_model_param"]["num_class"])
    booster = learner["gradient_booster"]
    trees = booster.get("gbtree", booster).get("model", {}).get("trees", [])
    inputs = learner["feature_names"] or [
        f"{learner['learner_model_param']['num_feature']} columns"
    ]
    details = {
        "booster": booster["name"],
        "trees": len(trees),
        "objective": learner["objective"]["name"],
    }
    return Description.of_trees(
        inputs, None if details["objective"] in NUMBERS else classes, details
    )
