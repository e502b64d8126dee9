"""One column: its checks, its limits, its way into numbers and back, and rules read from text."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from holdfast.errors import SchemaError
from holdfast.schema.feature import Feature, Rule, dtype_name
from support.versions import STRINGS

# ---- a feature that contradicts itself


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "number"}, "kind 'number' is not one of"),
        ({"change": "rise"}, "change 'rise' is not one of"),
        ({"bounds": (2, 1)}, "bounds (2, 1) are empty: the lower one is above the upper one"),
        ({"bounds": (math.nan, 1)}, "bounds hold a missing number"),
        ({"seen": (0, math.nan)}, "seen hold a missing number"),
        ({"scale": 0}, "scale must be positive, got 0"),
        ({"scale": math.inf}, "scale must be positive"),
        ({"center": math.inf}, "center must be a number, got inf"),
        ({"weight": -1}, "weight must be >= 0, got -1"),
        ({"step": -0.5}, "step must be >= 0"),
        ({"kind": "integer", "step": 2.5}, "2.5 is no step of integers"),
        ({"kind": "boolean", "step": 1.0}, "kind 'boolean' has no steps"),
        (
            {"kind": "integer", "bounds": (0.2, 0.8)},
            "no value that the column can hold lies in (0.2, 0.8)",
        ),
        ({"step": 5.0, "bounds": (1, 4)}, "no value that the column can hold lies in (1, 4)"),
        (
            {"kind": "integer", "dtype": "int8", "bounds": (200, 300)},
            "no value that the column can hold lies in",
        ),
        ({"kind": "category"}, "kind 'category' needs its levels"),
        ({"kind": "category", "levels": ("a", "a")}, "a level appears twice"),
        ({"kind": "category", "levels": ("a", math.nan)}, "a missing value is no level"),
        (
            {"kind": "category", "levels": ("a",), "allowed": ("b",)},
            "allowed level 'b' is not among the levels",
        ),
        (
            {"kind": "category", "levels": ("a",), "bounds": (0, 1)},
            "`allowed` limits it, not bounds",
        ),
        (
            {"kind": "category", "levels": ("a",), "change": "up"},
            "needs an order; make it kind 'ordered'",
        ),
        ({"kind": "category", "levels": ("a",), "step": 1.0}, "kind 'category' has no steps"),
        (
            {"kind": "ordered", "levels": ("a", "b"), "missing": True},
            "cannot hold missing values; use 'category'",
        ),
        ({"kind": "ordered", "levels": ("a", "b", "c"), "allowed": ("a", "c")}, "leave a gap"),
        ({"levels": ("a",)}, "kind 'real' has no levels"),
        ({"allowed": ("a",)}, "kind 'real' has no levels"),
        ({"dtype": "float31"}, "pandas knows no dtype 'float31'"),
    ],
)
def test_a_contradiction_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError) as error:
        Feature("age", **settings)
    assert str(error.value).startswith("feature 'age': ")
    assert message in str(error.value)


# ---- limits: what answers may be


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({}, (-math.inf, math.inf)),
        ({"bounds": (0.1, 0.3)}, (0.1, 0.3)),
        ({"kind": "boolean"}, (0, 1)),
        ({"kind": "boolean", "bounds": (1, 9)}, (1, 1)),
        ({"kind": "ordered", "levels": ("a", "b", "c")}, (0, 2)),
        ({"kind": "ordered", "levels": ("a", "b", "c"), "allowed": ("c", "b")}, (1, 2)),
        ({"kind": "integer", "bounds": (0.5, 9.5)}, (1, 9)),
        ({"kind": "integer", "bounds": (-9.5, math.inf), "step": 5.0}, (-5, math.inf)),
        ({"kind": "integer", "dtype": "int8"}, (-128, 127)),
        ({"kind": "integer", "dtype": "UInt8", "bounds": (-5, 1000)}, (0, 255)),
        ({"kind": "integer", "dtype": "int16[pyarrow]"}, (-32768, 32767)),
        # 0.3 / 0.1 is a little less than 3, and 3 x 0.1 more than 0.3
        ({"bounds": (0, 0.3), "step": 0.1}, (0, 0.3)),
        ({"bounds": (0.1, 1.0), "step": 0.3}, (0.3, 0.9)),
        ({"bounds": (0, 0.29999999999), "step": 0.1}, (0, 0.2)),
        (
            {"bounds": (-1e300, 1e300), "dtype": "float32"},
            (-3.4028234663852886e38, 3.4028234663852886e38),
        ),
    ],
)
def test_limits(settings: dict[str, Any], limits: tuple[float, float]) -> None:
    assert Feature("age", **settings).limits == limits


def test_limits_of_a_narrow_column_are_numbers_it_can_hold() -> None:
    for dtype in ("float32", "float16", "Float32", "float[pyarrow]"):
        low, high = Feature("ratio", bounds=(0.1, 0.7), dtype=dtype).limits
        assert 0.1 <= low < 0.1001
        assert 0.6995 < high <= 0.7
        held = pd.Series([low, high]).astype(dtype).astype("float64")
        assert held.tolist() == [low, high]


def test_multiples_are_the_decimals_that_a_person_would_write() -> None:
    f = Feature("rate", step=0.1)
    assert f.multiples(np.array([0.3001, 0.69, 12.34])).tolist() == [0.3, 0.7, 12.3]
    assert f.multiples(np.array([0.31, 0.3, -0.31]), 1).tolist() == [0.4, 0.3, -0.3]
    assert f.multiples(np.array([0.39, 0.3, -0.31]), -1).tolist() == [0.3, 0.3, -0.4]
    assert Feature("n", "integer", step=25.0).multiples(np.array([1e15 + 12, 63.0])).tolist() == [
        1e15,
        75.0,
    ]
    assert Feature("third", step=1 / 3).multiples(np.array([0.7])).tolist() == [2 / 3]
    assert Feature("tiny", step=1e-20).multiples(np.array([2.4e-20])).tolist() == pytest.approx(
        [2e-20]
    )


# ---- table -> numbers


def refused(feature: Feature, values: Any, dtype: Any = None) -> str:
    with pytest.raises(SchemaError) as error:
        feature.numbers(pd.Series(values, dtype=dtype))
    return str(error.value)


def test_missing_numbers() -> None:
    message = refused(Feature("age"), [1.0, None, None])
    assert message == (
        "column 'age' has 2 missing numbers (first at row 1); fill them in or drop those rows; "
        "if they belong there, "
        "infer the schema from data that has gaps too, or allow them: schema.change(**{'age': "
        "{'missing': True}})"
    )
    assert "1 missing numbers" in refused(Feature("age", "integer"), [1, pd.NA], "Int64")
    assert "2 missing values" in refused(Feature("own", "boolean"), [None, None, True], "boolean")


def test_infinite_values() -> None:
    message = refused(Feature("age"), [1.0, math.inf, -math.inf])
    assert (
        message
        == "column 'age' has 2 infinite values (first at row 1); fill them in or drop those rows"
    )


def test_values_of_the_wrong_kind() -> None:
    assert "1 values that are not integers (first at row 1); round them" in refused(
        Feature("n", "integer"), [1, 2.5]
    )
    assert "1 values that are neither True nor False (first at row 2)" in refused(
        Feature("b", "boolean"), [0, 1, 2]
    )
    message = refused(Feature("age"), ["12", None], object)
    assert message == (
        "column 'age' should hold numbers, but it is object (such as '12'); convert it, or "
        "declare it a category"
    )
    flag = refused(Feature("b", "boolean"), ["yes"])
    assert f"should hold True/False, but it is {STRINGS}" in flag
    assert "complex128" in refused(Feature("age"), [1 + 2j])
    assert "datetime64" in refused(Feature("age"), pd.to_datetime(["2024-01-01"]))
    assert "timedelta64" in refused(Feature("age"), pd.to_timedelta([3], unit="D"))


def test_unknown_levels() -> None:
    f = Feature("job", "category", levels=("clerk", "nurse"))
    message = refused(f, ["clerc", "clerk", "pilot", "clerc"])
    assert message == "column 'job' has 3 unknown level(s): 'clerc', 'pilot'; did you mean 'clerk'?"
    assert "known: 'clerk', 'nurse'" in refused(f, ["zzz"])
    assert "1 missing values (first at row 0); fill them in, or infer" in refused(
        f, [None, "clerk"]
    )
    assert "holds lists or records" in refused(f, [["clerk"], "nurse"])
    assert f.numbers(pd.Series(["nurse", "clerk"])).tolist() == [1, 0]


def test_codes_match_whatever_dtype_holds_them() -> None:
    f = Feature("code", "category", levels=(1, 2), missing=True)
    for dtype in ("int64", "float64", "Int64", "object", "category", "int8"):
        assert f.numbers(pd.Series([2, 1], dtype=dtype)).tolist() == [1, 0]
    assert f.numbers(pd.Series([2, None, 1], dtype="float64")).tolist() == [1, 2, 0]


# ---- numbers -> table


def test_a_column_that_cannot_hold_an_answer_gets_wider() -> None:
    whole = pd.Series([1, 2], dtype="int8")
    assert Feature("x").values(np.array([2.5]), whole).tolist() == [2.5]
    assert Feature("x").values(np.array([2.0]), whole).dtype == "int8"
    wide = Feature("x", "integer").values(np.array([300.0, -7.0]), whole)
    assert (wide.dtype, wide.tolist()) == ("int64", [300, -7])
    level = Feature("x", "category", levels=(1, 2.5)).values(np.array([1.0]), whole)
    assert level.tolist() == [2.5]
    known = pd.Series(["a", "b"], dtype="category")
    more = Feature("x", "category", levels=("a", "b", "c")).values(np.array([2.0, 0.0]), known)
    assert more.tolist() == ["c", "a"]
    assert more.dtype.categories.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]", "int8", "float32", "object"])
def test_a_boolean_in_any_dtype(dtype: str) -> None:
    f = Feature("own", "boolean", dtype=dtype)
    column = f.values(np.array([0.0, 1.0]), None)
    assert str(column.dtype) == dtype
    assert column.tolist() == [False, True]


def test_dtype_names() -> None:
    assert dtype_name(pd.Series([1], dtype="int8")) == "int8"
    assert dtype_name(pd.Series(["a"], dtype="category")) == "category"
    assert dtype_name(pd.Series(pd.Categorical(["a"], ["a"], ordered=True))) == "ordered category"
    held = pd.CategoricalDtype(pd.Index([1, 2], dtype="int8"))
    assert dtype_name(pd.Series([1], dtype=held)) == "category[int8]"
    f = Feature("x", "category", levels=(1, 2), dtype="category[int8]")
    assert f.values(np.array([1.0]), None).dtype == held


# ---- rules


@pytest.mark.parametrize(
    ("text", "weights", "bound"),
    [
        ("open <= total", {"open": 1, "total": -1}, 0),
        ("open >= total", {"open": -1, "total": 1}, 0),
        ("  a<=5 ", {"a": 1}, 5),
        ("3 <= a", {"a": -1}, -3),
        ("a >= -3", {"a": -1}, 3),
        ("-a <= .5", {"a": -1}, 0.5),
        ("+ a <= 5.", {"a": 1}, 5),
        ("2 * a - `b c` >= -3", {"a": -2, "b c": 1}, 3),
        ("a * 2 <= b", {"a": 2, "b": -1}, 0),
        ("2 * 3 * a * 0.5 <= b", {"a": 3, "b": -1}, 0),
        ("a - 2 <= b + 3", {"a": 1, "b": -1}, 5),
        ("1 + a + 2 <= 10 - b - 3", {"a": 1, "b": 1}, 4),
        ("a + a <= 4 - a", {"a": 3}, 4),
        ("a + b - b <= 1", {"a": 1}, 1),
        ("1.5e3 * a <= 2E-2", {"a": 1500}, 0.02),
        ("a >= b + 1e+3", {"a": -1, "b": 1}, -1000),
        ("`x <= y` <= `-3`", {"x <= y": 1, "-3": -1}, 0),
        ("größe_2 <= _b", {"größe_2": 1, "_b": -1}, 0),
        ("`2nd floor` <= 3", {"2nd floor": 1}, 3),
    ],
)
def test_rules_are_read(text: str, weights: dict[str, float], bound: float) -> None:
    rule = Rule.parse(text)
    assert rule.weights == weights
    assert rule.bound == bound
    assert math.copysign(1, rule.bound) == 1 or rule.bound < 0  # no minus zero
    assert Rule.parse(rule.text) == rule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "one comparison"),
        ("a", "one comparison"),
        ("a + b", "one comparison"),
        ("a < b", "one comparison"),
        ("a == b", "one comparison"),
        ("a <= b <= c", "one comparison"),
        ("`a <= 3`", "one comparison"),
        ("a <=", "one side is empty"),
        ("<= a", "one side is empty"),
        ("`a <= 3", "cannot read '`a'"),
        ("a b <= 3", "cannot read 'b'"),
        ("2 a <= 3", "cannot read 'a'"),
        ("2 3 <= a", "cannot read '3'"),
        ("5a <= 3", "cannot read '5a'"),
        ("a <= 2 *", "cannot read '*'"),
        ("* a <= 2", "cannot read '* a'"),
        ("a + <= 2", "cannot read '+'"),
        ("a - - b <= 2", "cannot read '- - b'"),
        ("2 * -3 * a <= 2", "cannot read '* -3 * a'"),
        ("a / 2 <= 1", "cannot read '/ 2'"),
        ("(a + b) <= 1", "cannot read '(a + b)'"),
        ("a.b <= 1", "cannot read '.b'"),
        ("1.2.3 * a <= 1", "cannot read '1.2.3 * a'"),
        ("a * b <= 1", "multiplies two columns"),
        ("3 <= 4", "needs at least one column"),
        ("a <= a", "needs at least one column"),
        ("0 * a <= 4", "needs at least one column"),
        ("1e999 * a <= 4", "too large"),
        ("a <= 1e999", "too large"),
    ],
)
def test_rules_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(SchemaError) as error:
        Rule.parse(text)
    assert why in str(error.value)
    assert repr(text) in str(error.value)
    assert "write it like 'open_accounts <= total_accounts'" in str(error.value)


def test_the_numbers_on_either_side_that_a_float32_can_hold() -> None:
    # the last digit of a float32 between 1024 and 2048
    f = Feature("year", dtype="float32")
    digit = 2.0**-13
    low, high = f.neighbors(2000 + digit * np.array([0.2, -0.2, 3.0, -1.4]))
    assert ((low - 2000) / digit).tolist() == [0, -1, 3, -2]
    assert ((high - 2000) / digit).tolist() == [1, 0, 3, -1]
    assert np.isnan(f.neighbors(np.array([np.nan]))).all()
    assert f.rounds
    assert not Feature("year", dtype="float64").rounds
    assert not Feature("year", "integer", dtype="int32").rounds
    assert not Feature("year", dtype="float32", step=0.5).rounds
