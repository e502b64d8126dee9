"""The text format of LightGBM models: read and checked line by line, and written again.

What LightGBM gets to see is text that we wrote from lines we know, with sizes we counted: it trusts
the sizes in a file, and follows the indices of a tree without a look.
"""

import json
import math
import re
from typing import Any, cast

import numpy as np

from holdfast._core.checks import listed
from holdfast.errors import FileError
from holdfast.models.formats.limits import parse_json
from holdfast.models.formats.tree_checks import check_tree, finite, inside, integers

HEADER = (
    "version",
    "num_class",
    "num_tree_per_iteration",
    "label_index",
    "max_feature_idx",
    "objective",
    "average_output",
    "feature_names",
    "monotone_constraints",
    "feature_infos",
    "tree_sizes",
)
# Lines of a tree -> how many numbers: for each split, for each leaf, one, or as many as categories
# need.
PER_SPLIT = (
    "split_feature",
    "split_gain",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
    "internal_value",
    "internal_weight",
    "internal_count",
)
PER_LEAF = ("leaf_value", "leaf_weight", "leaf_count")
NEEDED = ("split_feature", "threshold", "decision_type", "left_child", "right_child", "leaf_value")
SINGLE = ("num_leaves", "num_cat", "is_linear", "shrinkage")
SETS = ("cat_boundaries", "cat_threshold")
INTEGERS = (
    "split_feature",
    "decision_type",
    "left_child",
    "right_child",
    "cat_boundaries",
    "cat_threshold",
)
MOST_TREES = 100_000
MOST_COLUMNS = 1_000_000
NAME = re.compile(r"[^\x00-\x20,=\[\]{}:\"]+")
NUMBER = r"-?(?:\d[\d.]*(?:e[+-]?\d+)?|inf|nan)"
# of a column: ends, categories, or none
RANGE = re.compile(rf"none|\[{NUMBER}:{NUMBER}\]|-?\d+(?::-?\d+)*")
CLASSES = ("binary", "multiclass", "multiclassova", "cross_entropy")
NUMBERS = (
    "regression",
    "regression_l1",
    "huber",
    "fair",
    "poisson",
    "quantile",
    "mape",
    "gamma",
    "tweedie",
)
# What may follow the name of an objective: words such as 'sigmoid:2', and one without a number.
PARAMETERS = (
    "num_class",
    "sigmoid",
    "alpha",
    "fair_c",
    "poisson_max_delta_step",
    "tweedie_variance_power",
)
# How it was trained, as far as that makes a difference to another training: numbers and one or two
# words.
TRAINED = (
    "boosting",
    "data_sample_strategy",
    "num_iterations",
    "learning_rate",
    "num_leaves",
    "max_depth",
    "min_data_in_leaf",
    "min_sum_hessian_in_leaf",
    "bagging_fraction",
    "pos_bagging_fraction",
    "neg_bagging_fraction",
    "bagging_freq",
    "feature_fraction",
    "feature_fraction_bynode",
    "extra_trees",
    "max_delta_step",
    "lambda_l1",
    "lambda_l2",
    "min_gain_to_split",
    "drop_rate",
    "max_drop",
    "skip_drop",
    "xgboost_dart_mode",
    "uniform_drop",
    "top_rate",
    "other_rate",
    "min_data_per_group",
    "max_cat_threshold",
    "cat_l2",
    "cat_smooth",
    "max_cat_to_onehot",
    "path_smooth",
    "max_bin",
    "min_data_in_bin",
    "bin_construct_sample_cnt",
    "is_unbalance",
    "scale_pos_weight",
    "sigmoid",
    "boost_from_average",
    "reg_sqrt",
    "alpha",
    "fair_c",
    "poisson_max_delta_step",
    "tweedie_variance_power",
)
TRAINING = re.compile(rf"\[({'|'.join(TRAINED)}): ({NUMBER}|gbdt|dart|rf|goss|bagging)\]")
FILE = "the LightGBM file"
ROOTS = "sqrt"  # the trees estimate the square root


def parse(data: bytes) -> dict[str, Any]:
    """The model in the bytes of a file: header, trees (lines as numbers), and pandas' categories;
    all checked."""
    # Header, trees and the rest are told apart by the lines between them; a file without one of
    # those was cut off.
    try:
        text = data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise FileError(f"{FILE} is not text") from None
    head, mark, rest = text.partition("\nTree=")
    body, end, tail = rest.partition("\nend of trees")
    if not mark or not end:
        raise FileError(f"{FILE} is cut off: it has no trees, or no line 'end of trees'")
    if "\nend of parameters" not in tail:
        raise FileError(f"{FILE} is cut off: it has no line 'end of parameters'")
    header = _lines(head.split("\n"), ("tree", "average_output"))
    unknown = [key for key in header if key not in HEADER]
    if unknown:
        raise FileError(f"{FILE} has an unknown line {listed(unknown)} in its header")
    names = _column_names(header)
    classes = _count(header, "num_class", 1, 100_000)
    per_step = _count(header, "num_tree_per_iteration", 1, 100_000)
    objective = _objective(header.get("objective", "").split(), classes)
    if per_step != (classes if objective[0].startswith("multiclass") else 1):
        raise FileError(f"{FILE} has {per_step} trees in a step for {classes} classes")
    blocks = body.split("\nTree=")
    if len(blocks) > MOST_TREES or len(blocks) % per_step:
        raise FileError(f"{FILE} has {len(blocks):,} trees, {per_step} in a step")
    trees = [_tree(i, block, len(names)) for i, block in enumerate(blocks)]
    return {
        "header": header,
        "names": names,
        "classes": classes,
        "objective": objective,
        "trees": trees,
        "categories": _categories(tail),
        "training": _training(tail),
    }


def _column_names(header: dict[str, str]) -> list[str]:
    """The names of the columns: as many as the header says, and none of them twice."""
    columns = _count(header, "max_feature_idx", 0, MOST_COLUMNS) + 1
    names = header.get("feature_names", "").split()
    ranges = header.get("feature_infos", "").split()
    if len(names) != columns or len(ranges) != columns or len(set(names)) != columns:
        raise FileError(
            f"{FILE} has {columns} columns, but {len(names)} names and {len(ranges)} ranges"
        )
    if not all(NAME.fullmatch(name) for name in names):
        raise FileError(f"{FILE} has a column name with letters that no column name has")
    return names


def _objective(words: list[str], classes: int) -> list[str]:
    """'multiclass num_class:3', as LightGBM will read it; its numbers must fit the rest."""
    name = words[0] if words else "none"
    if name not in (*CLASSES, *NUMBERS):
        raise FileError(
            f"{FILE} is neither a classifier nor a regression model: its objective is {name!r}"
        )
    roots = [word for word in words[1:] if word == ROOTS and name in NUMBERS]
    given = {
        key: value
        for key, _, value in (word.partition(":") for word in words[1:] if word not in roots)
    }
    for key, value in given.items():
        if key not in PARAMETERS:
            raise FileError(f"{FILE} has an unknown parameter {key!r} of its objective {name!r}")
        if not 0 < _float(value) < math.inf:
            raise FileError(f"{FILE} has {key} = {value[:40]!r}, expected a positive number")
    if given.get("num_class", "1") != str(classes):
        raise FileError(f"{FILE} has the objective {' '.join(words)[:80]!r} for {classes} classes")
    return [name, *roots[:1], *(f"{key}:{_number(_float(value))}" for key, value in given.items())]


def _lines(lines: list[str], bare: tuple[str, ...] = ()) -> dict[str, str]:
    out: dict[str, str] = {}
    for line in lines:
        key, mark, value = line.partition("=")
        if not line.strip():
            continue
        if not mark and key not in bare:
            raise FileError(f"{FILE} has a line without a value: {line[:60]!r}")
        if key in out:
            raise FileError(f"{FILE} has the line {key!r} twice")
        out[key] = value
    out.pop("tree", None)
    return out


def _count(lines: dict[str, str], key: str, low: int, high: int) -> int:
    try:
        value = int(lines[key])
    except (KeyError, ValueError):
        raise FileError(f"{FILE} has no integer {key!r}") from None
    inside([value], low, high + 1, f"{key!r} of {FILE}")
    return value


def _numbers(lines: dict[str, str], key: str, count: int | None) -> Any:
    words = lines.get(key, "").split()
    if count is not None and len(words) != count:
        raise FileError(f"a tree of {FILE} has {len(words)} numbers in {key!r}, expected {count}")
    try:
        values = [int(w) for w in words] if key in INTEGERS else [float(w) for w in words]
    except ValueError:
        raise FileError(f"a tree of {FILE} has something that is not a number in {key!r}") from None
    return integers(values, key) if key in INTEGERS else finite(values, key)


def _tree(i: int, block: str, columns: int) -> dict[str, Any]:
    number, _, rest = block.partition("\n")
    if number.strip() != str(i):
        raise FileError(f"tree {i} of {FILE} is called {number[:20]!r}")
    lines = _lines(rest.split("\n"))
    what = f"tree {i} of {FILE}"
    unknown = [key for key in lines if key not in (*PER_SPLIT, *PER_LEAF, *SINGLE, *SETS)]
    if unknown:
        raise FileError(f"{what} has a line {listed(unknown)}, which is not supported")
    leaves = _count(lines, "num_leaves", 1, 1 << 24)
    cats = _count(lines, "num_cat", 0, leaves) if "num_cat" in lines else 0
    if lines.get("is_linear", "0").strip() != "0":
        raise FileError(f"{what} has linear leaves, which are not supported")
    out: dict[str, Any] = {"num_leaves": leaves, "num_cat": cats}
    # A tree of one leaf has no splits, and LightGBM writes none of their lines.
    splits = leaves - 1
    for key in (*PER_SPLIT, *PER_LEAF):
        needed = key in NEEDED
        if key in lines and (lines[key].strip() or needed):
            out[key] = _numbers(lines, key, leaves if key in PER_LEAF else splits)
        elif needed and (splits or key == "leaf_value"):
            raise FileError(f"{what} lacks {key!r}")
    out["shrinkage"] = float(finite([_float(lines.get("shrinkage", "1"))], "shrinkage")[0])
    if cats and not splits:
        raise FileError(f"{what} has categories but no split")
    if splits:
        _check(out, lines, what, leaves, columns, cats)
    return out


def _float(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


def _check(
    out: dict[str, Any], lines: dict[str, str], what: str, leaves: int, columns: int, cats: int
) -> None:
    """Children are splits (0, 1, ..) or leaves (-1, -2, ..); renumbered, they must be one tree."""
    splits = leaves - 1
    sides = list[Any]()
    # Leaves come after the splits, and have no children of their own.
    for side in (out["left_child"], out["right_child"]):
        inside(side, -leaves, splits, f"{what}: a child")
        renumbered = cast(Any, np.where(side < 0, splits + ~side, side))
        sides.append(np.append(renumbered, np.zeros(leaves, np.int64)))
    check_tree(sides[0], sides[1], np.arange(splits + leaves) < splits, what)
    inside(out["split_feature"], 0, columns, f"{what}: a column")
    inside(out["decision_type"], 0, 16, f"{what}: a decision type")
    by_set = (out["decision_type"] & 1) > 0
    if int(by_set.sum()) != cats and (by_set.any() or cats):
        raise FileError(f"{what} has {int(by_set.sum())} splits by category, and says {cats}")
    if cats:
        ends = _numbers(lines, "cat_boundaries", cats + 1)
        bits = _numbers(lines, "cat_threshold", None)
        inside(bits, 0, 1 << 32, f"{what}: a set of categories")
        if ends[0] != 0 or (np.diff(ends) < 1).any() or ends[-1] != len(bits):
            raise FileError(f"{what} has sets of categories that do not fit their bounds")
        places = out["threshold"][by_set]
        if (places != places.astype(np.int64)).any():
            raise FileError(f"{what} has a set of categories without a number")
        inside(places.astype(np.int64), 0, cats, f"{what}: a set of categories")
        out["cat_boundaries"] = ends
        out["cat_threshold"] = bits


def _training(tail: str) -> list[str]:
    """The lines that say how the model was trained, those that are known; they make no difference
    to what it gives."""
    lines = tail.partition("\nparameters:")[2].partition("\nend of parameters")[0].split("\n")
    return [line for line in lines if TRAINING.fullmatch(line)]


def _categories(tail: str) -> list[list[Any]] | None:
    """The categories of pandas columns, which LightGBM's Python part writes at the end."""
    line = next((x for x in tail.split("\n") if x.startswith("pandas_categorical:")), "")
    value = parse_json(line.partition(":")[2].encode() or b"null", "pandas_categorical")
    lists: list[Any] = cast(list[Any], value) if isinstance(value, list) else [value]
    for one in lists if value is not None else ():
        if not isinstance(one, list) or not all(
            isinstance(v, str | int | float) for v in cast(list[Any], one)
        ):
            raise FileError(f"{FILE} has pandas categories that are not lists of values")
    return None if value is None else lists


def written(model: dict[str, Any]) -> str:
    """The text of a model that was parsed, with every size counted anew."""
    header = model["header"]
    blocks = [_block(i, tree) for i, tree in enumerate(model["trees"])]
    for word in header["feature_infos"].split():
        if not RANGE.fullmatch(word):
            raise FileError(f"{FILE} has an odd range {word[:40]!r}")
    lines = [
        "tree",
        "version=v4",
        f"num_class={model['classes']}",
        f"num_tree_per_iteration={int(header['num_tree_per_iteration'])}",
        "label_index=0",
        f"max_feature_idx={len(model['names']) - 1}",
        f"objective={' '.join(model['objective'])}",
    ]
    lines += ["average_output"] if "average_output" in header else []
    lines += [
        f"feature_names={' '.join(model['names'])}",
        f"feature_infos={header['feature_infos']}",
    ]
    lines += [f"tree_sizes={' '.join(str(len(b.encode())) for b in blocks)}", "", ""]
    trained = "".join(f"{line}\n" for line in model["training"])
    end = f"end of trees\n\nparameters:\n{trained}end of parameters\n\n"
    end += f"pandas_categorical:{json.dumps(model['categories'])}\n"
    return "\n".join(lines) + "".join(blocks) + end


def _block(i: int, tree: dict[str, Any]) -> str:
    lines = [f"Tree={i}", f"num_leaves={tree['num_leaves']}", f"num_cat={tree['num_cat']}"]
    for key in (*PER_SPLIT, *SETS, *PER_LEAF):
        if key in tree:
            write = str if key in INTEGERS else _number
            lines.append(f"{key}={' '.join(map(write, tree[key].tolist()))}")
    return "\n".join([*lines, "is_linear=0", f"shrinkage={_number(tree['shrinkage'])}", "", "", ""])


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
