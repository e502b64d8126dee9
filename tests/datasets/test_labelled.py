"""Rows with their outcome from a file."""

from pathlib import Path

import pandas as pd
import pytest

import holdfast as hf
from holdfast.datasets import held_out, read_labelled, write_table

TABLE = pd.DataFrame(
    {"age": [20, 30, 40], "id": ["a", "b", "c"], "job": ["x", "y", "x"], "good": [0, 1, 1]}
)
SCHEMA = hf.Schema.infer(TABLE[["age", "job"]])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_table(TABLE, tmp_path / "rows.csv")
    return tmp_path / "rows.csv"


def test_without_a_schema_every_other_column_is_a_feature(path: Path) -> None:
    X, y, schema = read_labelled(path, "good")
    pd.testing.assert_frame_equal(X, TABLE.drop(columns="good"))
    assert (y.tolist(), schema.names) == ([0, 1, 1], ["age", "id", "job"])


@pytest.mark.filterwarnings("default")
def test_a_schema_leaves_out_what_it_does_not_know(path: Path) -> None:
    with pytest.warns(UserWarning, match=r"does not know are left out: \['id'\]"):
        X, _, schema = read_labelled(path, "good", SCHEMA)
    assert (list(X.columns), schema) == (["age", "job"], SCHEMA)


def test_outcomes_become_the_classes_of_a_model(path: Path) -> None:
    y = read_labelled(path, "good", classes=["0", "1"]).y
    assert y.tolist() == ["0", "1", "1"]
    with pytest.raises(
        hf.HoldfastError, match="the outcome has the value '1'; the model's classes are"
    ):
        read_labelled(path, "good", classes=["0", "2"])


def test_the_only_column_that_is_no_feature_is_the_outcome(path: Path) -> None:
    with pytest.raises(
        hf.HoldfastError, match=r"has the columns \['id', 'good'\] besides the features"
    ):
        read_labelled(path, None, SCHEMA)
    write_table(TABLE.drop(columns="id"), path)
    assert read_labelled(path, None, SCHEMA).y.tolist() == [0, 1, 1]
    write_table(TABLE[["age", "job"]], path)
    with pytest.raises(hf.HoldfastError, match="has no column besides the features"):
        read_labelled(path, None, SCHEMA)


def test_a_wrong_outcome_is_named(path: Path) -> None:
    with pytest.raises(hf.HoldfastError, match="no column 'god'; did you mean 'good'"):
        read_labelled(path, "god")
    with pytest.raises(hf.HoldfastError, match="'age' is a feature of the schema"):
        read_labelled(path, "age", SCHEMA)


def test_rows_held_out_are_a_share_in_the_order_of_the_table() -> None:
    learn, held = held_out(20, 0.25, 3)
    assert (len(learn), len(held)) == (15, 5)
    assert sorted(learn + held) == list(range(20))
    assert (learn, held) == (sorted(learn), sorted(held))
    assert held_out(20, 0.25, 3) == (learn, held) != held_out(20, 0.25, 4)
    assert held_out(2, 0.99, 0)[0]  # something is left to learn from
    with pytest.raises(hf.HoldfastError, match="at least two images to train on, got 1"):
        held_out(1, 0.5, 0, "images")
