"""Estimators from files: what compiled code would follow without looking is refused."""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from holdfast.errors import UnsafeFileError
from holdfast.models.formats.skops import reader as own
from support.skops_files import RNG, TABLE, TWO, ZOO, crafted, refused, saved


def with_array(data: bytes, attribute: str, array: Callable[[Any], Any]) -> bytes:
    """Another array for every attribute of this name."""

    def change(schema: dict[str, Any], entries: dict[str, bytes]) -> None:
        files = {
            e[attribute]["file"] for e in own._entries(schema) if "file" in e.get(attribute, {})
        }
        assert files
        for name in files:
            out = io.BytesIO()
            np.save(out, array(np.load(io.BytesIO(entries[name]))))
            entries[name] = out.getvalue()

    return crafted(data, change)


def with_value(data: bytes, attribute: str, value: Any, owner: str = "") -> bytes:
    """Another plain value for every attribute of this name, or one that the object did not have."""
    entry = {
        "__class__": "str",
        "__module__": "builtins",
        "__loader__": "JsonNode",
        "content": json.dumps(value),
    }

    def change(schema: dict[str, Any], entries: dict[str, bytes]) -> None:
        found = [
            e for e in own._entries(schema) if attribute in e and "__loader__" in str(e[attribute])
        ]
        if owner:
            objects = [e for e in own._entries(schema) if e.get("__class__") == owner]
            found = [e["content"]["content"] for e in objects]
            for e in objects:
                e["content"]["key_types"]["content"].append(
                    {
                        "__class__": "str",
                        "__module__": "builtins",
                        "__loader__": "TypeNode",
                        "__id__": 10**15,
                    }
                )
        assert found
        for i, e in enumerate(found):
            e[attribute] = {**entry, "__id__": 10**15 + 1 + i}

    return crafted(data, change)


def nodes(change: Callable[[Any], None]) -> Callable[[Any], Any]:
    def one(array: Any) -> Any:
        change(array)
        return array

    return one


def as_categories(array: Any) -> None:
    array["is_categorical"] = 1
    array["bitset_idx"] = 0


def far(field: str, value: int) -> Callable[[Any], Any]:
    def one(array: Any) -> Any:
        array[field][(array["is_leaf"] == 0) & (array["is_categorical"] != 0)] = value
        return array

    return one


HIST = "HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5)"
CATEGORIES = "categories"
BOOSTED = "GradientBoostingClassifier(n_estimators=2, random_state=0)"
FIXED = "FixedThresholdClassifier(estimator=LogisticRegression(), threshold=0.3)"
STACKED = next(name for name in ZOO if name.startswith("StackingClassifier"))


def test_a_column_of_numbers_split_as_a_category_is_refused() -> None:
    data = saved(HIST)[1]
    for sets in ("raw_left_cat_bitsets", "binned_left_cat_bitsets"):
        data = with_array(data, sets, lambda _: np.zeros((1, 8), np.uint32))
    refused(
        with_array(data, "nodes", nodes(as_categories)),
        "column of numbers as if it were a category",
    )


@pytest.mark.parametrize(
    ("name", "attribute", "change", "words"),
    [
        (CATEGORIES, "nodes", far("bitset_idx", 10**6), "a set is 1000000"),
        (CATEGORIES, "nodes", far("feature_idx", 10**6), "a column is 1000000"),
        (
            CATEGORIES,
            "nodes",
            lambda a: a[["left", "right", "is_leaf"]],
            "cannot load|damaged|another kind",
        ),
        (CATEGORIES, "nodes", lambda a: a[None], "another kind|different lengths"),
        (CATEGORIES, "raw_left_cat_bitsets", lambda a: a[:, :4].copy(), "sets of shape"),
        (CATEGORIES, "raw_left_cat_bitsets", lambda a: a[:0].copy(), "different lengths|a set is"),
        (
            CATEGORIES,
            "binned_left_cat_bitsets",
            lambda a: np.concatenate([a, a]),
            "different lengths",
        ),
        (CATEGORIES, "raw_left_cat_bitsets", lambda a: a.astype(np.float64), "sets of shape"),
        (CATEGORIES, "is_categorical_", lambda a: a[:-1].copy(), "which columns are categories"),
        (CATEGORIES, "is_categorical_", lambda a: ~a.astype(bool), "category|other columns"),
        (
            HIST,
            "is_categorical_",
            lambda a: np.zeros((3, 1), np.uint8),
            "which columns are categories",
        ),
        ("SVC()", "support_vectors_", lambda a: a[:, :2].copy(), "a support_vectors_ of shape"),
        ("SVC()", "support_vectors_", lambda a: a[:2].copy(), "a support_vectors_ of shape"),
        ("SVC()", "_dual_coef_", lambda a: a[:, :2].copy(), "a _dual_coef_ of shape"),
        ("SVC()", "_intercept_", lambda a: a[:0].copy(), "a _intercept_ of shape"),
        ("SVC()", "_n_support", lambda a: a * 1000, "another number of support vectors"),
        (
            "SVC()",
            "_n_support",
            lambda a: np.array([-5, a.sum() + 5], a.dtype),
            "another number of support vectors",
        ),
        ("SVC() of three", "_n_support", lambda a: a[:2].copy(), "a _n_support of shape"),
        ("SVR()", "_n_support", lambda a: a[:1].copy(), "a _n_support of shape"),
        ("SVC()", "_probA", lambda a: np.zeros(1), "a _probA and a _probB"),
    ],
)
def test_wild_arrays_are_refused(
    name: str, attribute: str, change: Callable[[Any], Any], words: str
) -> None:
    refused(with_array(saved(name)[1], attribute, change), words)


@pytest.mark.parametrize(
    ("name", "attribute", "value", "words"),
    [
        ("SVC()", "kernel", "precomputed", "the kernel 'precomputed'"),
        ("SVC()", "_sparse", True, "a sparse matrix"),
        ("SVC()", "n_features_in_", 2, "a support_vectors_ of shape"),
        ("SVC()", "n_features_in_", None, "no number of columns"),
        ("one-hot", "_n_features_outs", [1, 1], "a level is"),
        ("dense", "_n_features_outs", [3], "lists of different lengths"),
        ("dropped", "_n_features_outs", [1, 1], "a level is"),
        ("rare", "_infrequent_indices", [[70], None], "a rare level is 70"),
        ("rare", "_infrequent_indices", [None, None], "rare levels in one list"),
        ("rare", "_default_to_infrequent_mappings", [[0, 9, 1], None], "a level is"),
        ("rare", "_default_to_infrequent_mappings", [[0, -9, 1], None], "a level is"),
        (
            CATEGORIES,
            "_transformer_to_input_indices",
            {"encoder": [3], "numerical": [0]},
            "encoder of other columns",
        ),
        (STACKED, "stack_method_", ["fit"], "methods to call"),
        (FIXED, "response_method", "fit", "a response_method that is not known: 'fit'"),
        (FIXED, "response_method", ["predict_proba", "fit"], "a response_method that is not known"),
        (FIXED, "threshold", "other", "the threshold 'other'"),
        (FIXED, "threshold", [0.5], "the threshold"),
        (FIXED, "pos_label", [1], "the label"),
        (BOOSTED, "n_outputs_", 2, "first guess"),
        (BOOSTED, "init_", "other", "first guess"),
        (f"{BOOSTED} of three", "n_classes_", 2, "first guess"),
        (f"{BOOSTED} of three", "n_trees_per_iteration_", 1, "first guess"),
        (f"{BOOSTED} of three", "_loss", None, "a loss NoneType"),
        ("SplineTransformer() before", "k", 50, "do not fit"),
        ("SplineTransformer() before", "k", -1, "the degree -1"),
        ("categories", "kw_args", {"copy": True}, "more for its function"),
    ],
)
def test_wild_values_are_refused(name: str, attribute: str, value: Any, words: str) -> None:
    refused(with_value(saved(name)[1], attribute, value), words)


@pytest.mark.parametrize(
    ("name", "owner", "attribute", "words"),
    [
        ("LogisticRegression()", "LogisticRegression", "predict_proba", "in place of its class's"),
        ("SVC()", "SVC", "_impl", "in place of its class's"),
        (FIXED, "FixedThresholdClassifier", "classes_", "in place of its class's"),
        (
            "FrozenEstimator(estimator=LogisticRegression())",
            "FrozenEstimator",
            "fit",
            "in place of its class's",
        ),
        (HIST, "HistGradientBoostingClassifier", "_in_fit", "still learning"),
        (HIST, "TreePredictor", "predict", "in place of its class's"),
        (HIST, "_BinMapper", "make_known_categories_bitsets", "in place of its class's"),
    ],
)
def test_attributes_that_take_the_place_of_methods_are_refused(
    name: str, owner: str, attribute: str, words: str
) -> None:
    refused(with_value(saved(name)[1], attribute, "epsilon_svr", owner), words)


def test_levels_out_of_order_are_refused() -> None:
    """Numbers are found by halving the list: in one out of order, beyond its end."""
    table = TABLE.assign(n=RNG.choice([1, 2, 5], 80))
    columns = make_column_transformer((OneHotEncoder(), ["n"]), remainder="passthrough")
    data = skops.io.dumps(make_pipeline(columns, LogisticRegression()).fit(table, TWO))
    own.made(data)

    def mixed(order: list[Any]) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
        def change(schema: dict[str, Any], entries: dict[str, bytes]) -> None:
            (found,) = (e["categories_"] for e in own._entries(schema) if "categories_" in e)
            out = io.BytesIO()
            np.save(out, np.array(order))
            entries[found["content"][0]["file"]] = out.getvalue()

        return change

    for order in ([5, 1, 2], [5.0, np.nan, 1.0], ["9.0", "10.0", "1.0"]):
        refused(crafted(data, mixed(order)), "levels that are not in order")
    own.made(crafted(data, mixed(["z", "y", "x"])))


def test_functions_are_called_with_the_table_only() -> None:
    data = skops.io.dumps(
        make_pipeline(FunctionTransformer(np.square), LogisticRegression()).fit(TABLE, TWO)
    )
    refused(with_value(data, "kw_args", {"out": [1]}), "more for its function than the table")

    def other(schema: dict[str, Any], entries: dict[str, bytes]) -> None:
        for e in own._entries(schema):
            if e.get("__loader__") == "PartialNode":
                e["content"]["func"] |= {"__module__": "numpy", "__class__": "square"}

    refused(crafted(saved(CATEGORIES)[1], other), "another function")
    own_function = make_pipeline(FunctionTransformer(np.sin), LogisticRegression()).fit(TABLE, TWO)
    with pytest.raises(UnsafeFileError, match=r"numpy\.sin"):
        own.check_file(skops.io.dumps(own_function))
