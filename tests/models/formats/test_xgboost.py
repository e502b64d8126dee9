"""XGBoost's files: the same model to the bit, or refused."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xgboost

import holdfast as hf
from holdfast.errors import FileError
from holdfast.models.compiled.from_boosters import PLAIN
from holdfast.models.formats import xgboost as own_xgboost
from holdfast.models.formats.detect import kind_of_file
from support.model_files import (
    BY_JOB,
    CATEGORIES,
    POSITIVE,
    SCHEMA,
    TABLE,
    THREE,
    TWO,
    X_JSON,
    XGBOOST_NUMBERS,
    check_estimates,
    xgboost_bytes,
)

pytestmark = pytest.mark.usefixtures("no_child")


@pytest.mark.parametrize("kind", ["json", "ubj"])
def test_xgboost_files_predict_the_same_to_the_bit(kind: str, tmp_path: Path) -> None:
    for y, table, more in (
        (TWO, TABLE, {}),
        (THREE, TABLE, {}),
        (TWO, TABLE, {"booster": "dart"}),
        (TWO, TABLE, {"booster": "gblinear"}),
        (TWO, TABLE, {"gamma": 1.0}),
        (BY_JOB, CATEGORIES, {"enable_categorical": True, "max_cat_to_onehot": 1}),
    ):
        path = tmp_path / f"m.{kind}"
        path.write_bytes(xgboost_bytes(kind, y, table, **more))
        assert kind_of_file(path).name == f"xgboost-{kind}"
        original = xgboost.XGBClassifier()
        original.load_model(path)
        model = hf.Model.load(path, hf.Schema.infer(table))
        assert np.array_equal(model.wrapped.predict_proba(table), original.predict_proba(table)), (
            more
        )
        assert model.classes == tuple(range(max(2, len(set(y)))))


def trees(model: dict) -> list[dict]:
    return model["learner"]["gradient_booster"]["model"]["trees"]


def put(key: str, value: object) -> Callable[[dict], None]:
    def change(model: dict) -> None:
        tree = trees(model)[0]
        tree[key] = [value, *tree[key][1:]] if isinstance(tree[key], list) else value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("left_children", 10**6), "child"),
        (put("right_children", -5), "child"),
        (put("left_children", 0), "child"),
        (put("left_children", 2), "two others"),
        (put("left_children", -1), "one child"),
        (put("split_indices", 10**6), "column"),
        (put("split_indices", -1), "column"),
        (put("split_indices", 1.5), "integers"),
        (put("split_conditions", float("nan")), "not finite"),
        (put("split_type", 1), "sets of categories"),
        (lambda m: trees(m)[0]["left_children"].pop(), "nodes"),
        (lambda m: trees(m)[0]["tree_param"].update(num_nodes="9999999"), "9999999 nodes"),
        (lambda m: trees(m)[0]["tree_param"].update(size_leaf_vector="50"), "at most 1"),
        (lambda m: trees(m).pop(), "trees, and says"),
        (
            lambda m: m["learner"]["gradient_booster"]["model"].update(tree_info=[0, 99]),
            "output of a tree",
        ),
        (
            lambda m: m["learner"]["gradient_booster"]["model"].update(iteration_indptr=[0, 50]),
            "steps",
        ),
        (lambda m: m["learner"]["learner_model_param"].update(num_feature="1"), "column|names"),
        (lambda m: m["learner"]["learner_model_param"].update(num_class="-4"), "num_class"),
        (
            lambda m: m["learner"]["learner_model_param"].update(base_score="[1,2,3,4]"),
            "base scores",
        ),
        (lambda m: m["learner"]["learner_model_param"].update(base_score="lots"), "base score"),
        (
            lambda m: m["learner"]["objective"].update(name="rank:ndcg"),
            "neither a classifier .* 'rank:ndcg'",
        ),
        (lambda m: m["learner"]["objective"].update(name="survival:cox"), "nor a regression model"),
        (
            lambda m: m["learner"]["objective"].update(evil="1"),
            "unknown parameter 'evil' of its objective 'binary:log",
        ),
        (
            lambda m: m["learner"]["objective"]["reg_loss_param"].update(evil="1"),
            "unknown parameter 'evil'",
        ),
        (
            lambda m: m["learner"]["objective"]["reg_loss_param"].update(scale_pos_weight="1e999"),
            "expected a number",
        ),
        (
            lambda m: m["learner"]["objective"]["reg_loss_param"].update(scale_pos_weight="[1,2]"),
            "expected a number",
        ),
        (lambda m: m["learner"]["objective"].update(reg_loss_param=[]), "no 'reg_loss_param'"),
        (lambda m: m["learner"]["gradient_booster"].update(name="evil"), "unknown booster"),
        (lambda m: m["learner"].pop("objective"), "no 'objective'"),
        (lambda m: m.update(learner=[]), "no 'learner'"),
    ],
)
def test_wild_numbers_in_xgboost_files_are_refused(
    change: Callable[[dict], object], words: str, tmp_path: Path
) -> None:
    model = json.loads(X_JSON)
    change(model)
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(FileError, match=words):
        hf.Model.load(tmp_path / "m.json", SCHEMA)


def test_wild_categories_in_xgboost_files_are_refused() -> None:
    data = json.loads(
        xgboost_bytes("json", BY_JOB, CATEGORIES, enable_categorical=True, max_cat_to_onehot=1)
    )
    tree = next(t for t in trees(data) if t["categories"])
    for key, value in (
        ("categories", 1 << 40),
        ("categories_sizes", 999),
        ("categories_segments", -1),
        ("categories_nodes", 99),
    ):
        old = tree[key]
        tree[key] = [value, *tree[key][1:]]
        with pytest.raises(FileError, match="categor"):
            own_xgboost.parse(json.dumps(data).encode())
        tree[key] = old
    cats = data["learner"]["gradient_booster"]["model"]["cats"]
    for key, value in (("sorted_idx", 99), ("feature_segments", 5)):
        old = cats[key]
        cats[key] = [value, *cats[key][1:]]
        with pytest.raises(FileError, match="categories"):
            own_xgboost.parse(json.dumps(data).encode())
        cats[key] = old


def test_a_schema_of_other_columns_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(X_JSON)
    with pytest.raises(FileError, match="takes 3 columns, but the schema has 2"):
        hf.Model.load(tmp_path / "m.json", hf.Schema.box(2))
    with pytest.raises(FileError, match="takes a column 'a'"):
        hf.Model.load(tmp_path / "m.json", hf.Schema.box(3))


@pytest.mark.parametrize("objective", XGBOOST_NUMBERS)
@pytest.mark.parametrize("booster", ["gbtree", "dart", "gblinear"])
def test_xgboost_files_that_estimate_a_number(objective: str, booster: str, tmp_path: Path) -> None:
    settings = {"n_estimators": 4, "n_jobs": 1, "booster": booster, **XGBOOST_NUMBERS[objective]}
    fitted = xgboost.XGBRegressor(objective=objective, **settings).fit(
        TABLE, POSITIVE / POSITIVE.max()
    )
    for name in ("m.json", "m.ubj"):
        fitted.save_model(tmp_path / name)
        check_estimates(
            tmp_path / name, fitted.predict, copied=objective in PLAIN and booster == "gbtree"
        )


def test_columns_of_the_library_s_own_names_are_taken_in_order(tmp_path: Path) -> None:
    grown = xgboost.train(
        {"max_depth": 2}, xgboost.DMatrix(TABLE.set_axis(["f0", "f1", "f2"], axis=1), TWO), 2
    )
    grown.save_model(tmp_path / "m.json")
    theirs = grown.predict(xgboost.DMatrix(TABLE.set_axis(["f0", "f1", "f2"], axis=1)))
    assert np.array_equal(hf.Model.load(tmp_path / "m.json", SCHEMA).predict(TABLE), theirs)
