"""One column: its checks, and its limits."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from holdfast.errors import SchemaError
from holdfast.schema.feature import Feature

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
        ({"kind": "integer", "step": 2.5}, "2.5 is not a step of integers"),
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
        ({"kind": "category", "levels": ("a", math.nan)}, "a missing value is not a level"),
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
        ({"dtype": "float31"}, "pandas does not know the dtype 'float31'"),
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
