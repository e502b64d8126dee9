"""LightGBM's files: the same model to the bit, or refused."""

import re
from pathlib import Path

import lightgbm
import numpy as np
import pytest

import holdfast as hf
from holdfast.errors import FileError
from holdfast.models.compiled.from_boosters import PLAIN
from holdfast.models.formats import lightgbm as own_lightgbm
from holdfast.models.formats.detect import kind_of_file
from support.model_files import (
    BY_JOB,
    CATEGORIES,
    L_TEXT,
    LIGHTGBM_NUMBERS,
    POSITIVE,
    SCHEMA,
    TABLE,
    THREE,
    TWO,
    check_estimates,
    lightgbm_text,
)

pytestmark = pytest.mark.usefixtures("no_child")


def test_lightgbm_files_predict_the_same_to_the_bit(tmp_path: Path) -> None:
    for y, table, more in (
        (TWO, TABLE, {}),
        (THREE, TABLE, {}),
        (THREE, TABLE, {"objective": "multiclassova"}),
        (TWO, TABLE, {"objective": "cross_entropy"}),
        (TWO, TABLE, {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
        (BY_JOB, CATEGORIES, {"min_data_per_group": 1, "cat_smooth": 0}),
        (TWO, TABLE, {"min_child_samples": 80}),  # trees of one leaf
    ):
        path = tmp_path / "m.txt"
        path.write_text(lightgbm_text(y, table, **more))
        assert kind_of_file(path).name == "lightgbm"
        expected = lightgbm.Booster(model_file=path).predict(table, raw_score=True)
        model = hf.Model.load(path, hf.Schema.infer(table))
        own = model.wrapped.decision_function(table[table.columns[::-1]])
        # whose probabilities are the shares of sigmoids
        if more.get("objective") == "multiclassova":
            expected = -np.logaddexp(0, -expected)
        assert np.array_equal(own, expected), more
        assert model.classes == tuple(range(max(2, len(set(y)))))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r"left_child=-?\d+", "left_child=999", "child"),
        (r"left_child=-?\d+", "left_child=-999", "child"),
        (r"right_child=-?\d+", "right_child=0", "child"),
        (r"split_feature=\d+", "split_feature=99", "column"),
        (r"split_feature=\d+", "split_feature=-1", "column"),
        (r"split_feature=\d+", "split_feature=x", "not a number"),
        (r"decision_type=\d+", "decision_type=99", "decision type"),
        (r"decision_type=\d+", "decision_type=3", "splits by category"),
        (r"num_leaves=\d+", "num_leaves=99", "expected 98|numbers in"),
        (r"num_leaves=\d+", "num_leaves=99999999999", "num_leaves"),
        (r"num_cat=0", "num_cat=2", "splits by category"),
        (r"leaf_value=\S+", "leaf_value=nan", "finite"),
        (r"is_linear=0", "is_linear=1", "linear leaves"),
        (r"shrinkage=1", "shrinkage=1\nleaf_coeff=1", "not supported"),
        (r"shrinkage=1", "shrinkage=1\nnum_cat=0", "twice"),
        (r"max_feature_idx=\d+", "max_feature_idx=99", "names"),
        (r"num_class=1", "num_class=7000000", "num_class"),
        (r"num_tree_per_iteration=1", "num_tree_per_iteration=2", "trees in a step"),
        (
            r"objective=binary",
            "objective=lambdarank",
            "neither a classifier nor a regression model.*'lambdarank'",
        ),
        (r"objective=binary.*\n", "", "its objective is 'none'"),
        (
            r"objective=binary",
            "objective=binary evil:1",
            "unknown parameter 'evil' of its objective 'binary'",
        ),
        (r"objective=binary", "objective=binary sqrt", "unknown parameter 'sqrt'"),
        (
            r"objective=binary.*",
            "objective=quantile alpha:nan",
            "alpha = 'nan', expected a positive number",
        ),
        (
            r"objective=binary.*",
            "objective=regression num_class:3",
            "'regression num_class:3' for 1 classes",
        ),
        (r"feature_infos=\S+", "feature_infos=[evil]", "odd range"),
        (r"version=v4", "version=v4\nevil=1", "unknown line"),
        (r"Tree=1", "Tree=7", "is called"),
        (r"end of trees", "", "cut off"),
        (r"pandas_categorical:\S+", "pandas_categorical:[1]", "pandas categories"),
    ],
)
def test_wild_numbers_in_lightgbm_files_are_refused(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    crafted = re.sub(old, new, L_TEXT, count=1)
    assert crafted != L_TEXT
    (tmp_path / "m.txt").write_text(crafted)
    with pytest.raises(FileError, match=words):
        hf.Model.load(tmp_path / "m.txt", SCHEMA)


def test_sizes_in_a_lightgbm_file_are_counted_anew() -> None:
    crafted = re.sub(r"tree_sizes=.*", "tree_sizes=99999999 -5", L_TEXT)
    again = own_lightgbm.written(own_lightgbm.parse(crafted.encode()))
    start = again.index("Tree=0")
    sizes = [int(s) for s in re.findall(r"tree_sizes=(.*)", again)[0].split()]
    assert again[start + sizes[0] :].startswith("Tree=1")
    assert again[start + sum(sizes) :].startswith("end of trees")


@pytest.mark.parametrize("objective", LIGHTGBM_NUMBERS)
@pytest.mark.parametrize("more", [{}, {"reg_sqrt": True}], ids=["", "sqrt"])
def test_lightgbm_files_that_estimate_a_number(
    objective: str, more: dict[str, bool], tmp_path: Path
) -> None:
    settings = {
        "objective": objective,
        "verbose": -1,
        "num_threads": 1,
        "num_leaves": 4,
        "min_data_in_leaf": 5,
    }
    grown = lightgbm.train(
        {**settings, **LIGHTGBM_NUMBERS[objective], **more}, lightgbm.Dataset(TABLE, POSITIVE), 4
    )
    grown.save_model(tmp_path / "m.txt")
    roots = "sqrt" in (tmp_path / "m.txt").read_text().partition("objective=")[2].partition("\n")[0]
    check_estimates(tmp_path / "m.txt", grown.predict, copied=objective in PLAIN and not roots)
