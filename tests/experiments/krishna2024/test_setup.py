"""Columns, test part and budgets."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.krishna2024.setup import binarised, methods, prepare


@pytest.mark.parametrize(
    ("name", "rows", "columns"), [("adult", 48842, 12), ("bail", 10357, 15), ("compas", 6172, 14)]
)
def test_columns_are_between_0_and_1_and_a_fifth_of_each_class_is_held_out(
    name: str, rows: int, columns: int, data_dir: Path
) -> None:
    """Paper: krishna2024 Datasets."""
    task = prepare(name)
    assert len(task.X) + len(task.test_X) == rows
    assert task.width == columns
    both = pd.concat([task.X, task.test_X])
    assert both.index.is_unique
    assert (both.min() == 0).all()
    assert (both.max() == 1).all()
    assert task.test_y.mean() == pytest.approx(task.y.mean(), abs=1e-3)
    assert len(task.test_X) == pytest.approx(rows / 5, abs=2)
    assert not task.schema.encoding().fixed.any()
    other = prepare(name, seed=1)
    assert set(other.test_X.index) != set(task.test_X.index)


def test_adult_has_two_values_for_each_category() -> None:
    row: dict[str, Any] = {
        "age": 30,
        "workclass": "Private",
        "education": "Bachelors",
        "marital-status": "Married-civ-spouse",
        "occupation": "Sales",
        "relationship": "Husband",
        "race": "White",
        "sex": "Female",
        "capital-gain": 0,
        "capital-loss": 0,
        "hours-per-week": 40,
        "native-country": "Cuba",
    }
    out = binarised(
        pd.DataFrame([row, row | {"education": "Preschool", "occupation": "Prof-specialty"}])
    )
    assert out["education"].tolist() == [13.0, 1.0]
    assert out["occupation"].tolist() == [0.0, 1.0]
    first = out.iloc[0]
    assert (first["workclass"], first["marital-status"], first["sex"], first["native-country"]) == (
        1,
        1,
        0,
        0,
    )


def test_a_budget_is_the_same_for_every_epsilon_and_can_be_doubled() -> None:
    once = methods()
    twice = methods(budget=2)
    assert list(once) == list(twice)
    for name, attribute in (
        ("SCFE", "steps"),
        ("C-CHVAE", "rings"),
        ("Growing Spheres", "rings"),
        ("ROAR", "steps"),
    ):
        assert getattr(twice[name], attribute) == 2 * getattr(once[name], attribute)
