"""A schema read off a table."""

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import holdfast as hf
from holdfast.errors import SchemaError


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {"age": [20, 30, 40], "job": ["clerk", "cook", None], "pay": [1.5, 2.5, 3.5]}
    )


@pytest.mark.parametrize(
    ("given_settings", "words"),
    [
        ({"fixed": ["agee"]}, "did you mean 'age'"),
        ({"fixed": ["age"], "up": ["age"]}, "both 'fixed' and 'up'"),
        ({"bounds": {"age": (5, 1)}}, "lower one is above"),
        ({"bounds": {"job": (0, 1)}}, "has levels"),
        ({"allowed": {"age": [1]}}, "has no levels"),
        ({"allowed": {"job": ["king"]}}, "not among the levels"),
        ({"up": ["job"]}, "needs an order"),
        ({"steps": {"pay": -1}}, "step must be"),
        ({"weights": {"pay": -1}}, "weight must be"),
        ({"scaling": "log"}, "scaling must be"),
        ({"max_changes": -1}, "max_changes"),
        ({"max_changes": 10**400}, "max_changes is more than"),
        ({"rules": ["job <= age"]}, "holds levels"),
        ({"rules": ["age <= wage"]}, "unknown column 'wage'"),
        ({"fixd": ["age"]}, "did you mean 'fixed'"),
        ({"words": {"pay": {"labl": "x"}}}, "labl"),
    ],
)
def test_wrong_settings(frame: pd.DataFrame, given_settings: Any, words: str) -> None:
    with pytest.raises((SchemaError, TypeError), match=words):
        hf.Schema.infer(frame, **given_settings)


def test_tables_that_make_no_schema(frame: pd.DataFrame) -> None:
    for words, table in {
        "without rows": frame.iloc[:0],
        "no meaning here": frame.assign(span=pd.to_timedelta([1, 2, 3], "D")),
        "convert them with pd.to_datetime": frame.assign(
            day=[datetime.date(2020, 1, i) for i in (1, 2, 3)]
        ),
        "complex": frame.assign(z=[1j, 2j, 3j]),
        "no values at all": frame.assign(gone=[None, None, None]),
        "duplicate": pd.concat([frame, frame], axis=1),
        "looks like an id": pd.DataFrame({"name": [f"n{i}" for i in range(1500)]}),
        "infinite values": frame.assign(pay=[1.0, np.inf, 2.0]),
    }.items():
        with pytest.raises(SchemaError, match=words):
            hf.Schema.infer(table)
    with pytest.raises(SchemaError, match="DataFrame"):
        hf.Schema.infer([1, 2])


def test_infer_reads_kinds_and_settings(frame: pd.DataFrame) -> None:
    table = frame.assign(
        whole=[1.0, 2.0, 3.0],
        code=[7, 8, 7],
        flag=[True, False, True],
        grade=["lo", "hi", "lo"],
        size=pd.Categorical(["s", "l", "s"], ["s", "m", "l"], ordered=True),
        constant=[5.0, 5.0, 5.0],
    )
    schema = hf.Schema.infer(
        table,
        fixed="job",
        up=["age"],
        down=["pay"],
        integers=["whole"],
        categories=["code"],
        ordered={"grade": ["lo", "hi"]},
        bounds={"pay": (0, 9)},
        allowed={"size": ["s", "m"]},
        steps={"pay": 0.5},
        weights={"age": 2},
        words={"pay": {"label": "the pay", "unit": "EUR"}},
        rules="age >= whole",
        max_changes=2,
    )
    kinds = {f.name: f.kind for f in schema.features}
    assert kinds == {
        "age": "integer",
        "job": "category",
        "pay": "real",
        "whole": "integer",
        "code": "category",
        "flag": "boolean",
        "grade": "ordered",
        "size": "ordered",
        "constant": "real",
    }
    assert schema["job"].missing
    assert schema["job"].change == "fixed"
    assert (schema["age"].change, schema["pay"].change) == ("up", "down")
    assert schema["pay"].bounds == (0, 9)
    assert schema["pay"].step == 0.5
    assert schema["pay"].unit == "EUR"
    assert schema["age"].weight == 2
    assert schema["constant"].scale == 1
    assert schema["size"].limits == (0, 1)
    assert schema["code"].levels == (7, 8)
    assert schema.max_changes == 2
    x = schema.encode(table, torch.float64)
    age = x[:, schema.slices[0]].squeeze(1)
    assert abs(float(age.mean())) < 1e-12
    assert float(age.var(correction=0)) == pytest.approx(1)
    unit = hf.Schema.infer(table, scaling="minmax").encode(table, torch.float64)[:, 0]
    assert (unit.min(), unit.max()) == (0, 1)
    assert schema.columns[:4] == ["age", "job=clerk", "job=cook", "job=(missing)"]


def test_robust_scaling_by_hand() -> None:
    """Median and quartiles: a few huge values change nothing about the usual ones."""
    usual = np.arange(101.0)
    heavy = np.append(usual, [1e9] * 2)
    table = pd.DataFrame({"a": heavy})
    feature = hf.Schema.infer(table, scaling="robust").features[0]
    low, middle, high = np.quantile(heavy, [0.25, 0.5, 0.75])
    assert feature.center == middle == 51
    assert feature.scale == pytest.approx((high - low) / 1.349)
    assert hf.Schema.infer(table).features[0].scale > 1e8


def test_robust_scaling_of_normal_numbers_is_the_standard_one() -> None:
    values = pd.DataFrame({"a": np.random.default_rng(0).normal(3, 2, 200_000)})
    robust = hf.Schema.infer(values, scaling="robust").features[0]
    assert robust.scale == pytest.approx(2, rel=0.01)
    assert robust.center == pytest.approx(3, abs=0.02)


def test_robust_scaling_where_the_quartiles_are_one() -> None:
    """Most people have nothing: the deviation takes the place of the quartiles."""
    values = np.array([0.0] * 90 + [5.0] * 10)
    feature = hf.Schema.infer(pd.DataFrame({"a": values}), scaling="robust").features[0]
    assert feature.scale == pytest.approx(values.std())
