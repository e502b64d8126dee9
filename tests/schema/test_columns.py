"""One column: from the cells of a table to numbers, checked, and back."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from holdfast.errors import SchemaError
from holdfast.schema.columns import dtype_name
from holdfast.schema.feature import Feature
from support.versions import STRINGS

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
