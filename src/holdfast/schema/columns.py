"""One column of a table: from its cells to numbers, checked, and from numbers back to cells.

Number-like kinds become their values (a boolean 0 or 1, a date seconds since 1970), an ordered
level its rank, a category the position of its level. What does not fit is an error that names the
column, the first row and the fix. The way back keeps the dtype of the table wherever it can.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from holdfast._core.checks import did_you_mean, listed
from holdfast._core.types import Array, Mask
from holdfast.errors import SchemaError

if TYPE_CHECKING:
    from holdfast.schema.feature import Feature


CATEGORY = re.compile(r"(?P<ordered>ordered )?category(?:\[(?P<held>.+)\])?")
DTYPES = {"integer": "int64", "boolean": "bool", "real": "float64"}  # of kinds; else: objects
DROP = "fill them in or drop those rows"


# ---- table -> numbers


def numbers(feature: "Feature", column: "pd.Series[Any]") -> Array:
    """The column as one number per row; see `Feature.numbers`."""
    if feature.kind in ("ordered", "category"):
        return _positions(feature, column)
    if feature.kind == "date":
        return _seconds(feature, column)
    if not _holds_numbers(column):
        wanted = "True/False" if feature.kind == "boolean" else "numbers"
        example = next((cell for cell in column if not is_missing(cell)), None)
        raise SchemaError(
            f"column {feature.name!r} should hold {wanted}, but it is {column.dtype} (such as "
            f"{example!r}); convert it, or declare it a category"
        )
    values: Array = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if feature.kind == "boolean":
        _refuse_cells(feature, np.isnan(values), "missing values", DROP)
    else:
        _refuse_missing(feature, np.isnan(values), "missing numbers")
    _refuse_cells(feature, np.isinf(values), "infinite values", DROP)
    if feature.kind == "boolean":
        neither = ~np.isin(values, (0, 1))
        _refuse_cells(feature, neither, "values that are neither True nor False", "recode them")
    if feature.kind == "integer":
        broken = differ(values, np.round(values))
        fix = "round them or declare it real"
        _refuse_cells(feature, broken, "values that are not integers", fix)
    return values


def _holds_numbers(column: "pd.Series[Any]") -> bool:
    types = pd.api.types
    if types.is_complex_dtype(column.dtype):
        return False
    return types.is_numeric_dtype(column.dtype) or types.is_bool_dtype(column.dtype)


def _seconds(feature: "Feature", column: "pd.Series[Any]") -> Array:
    """Dates as seconds since 1970, UTC."""
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        raise SchemaError(
            f"column {feature.name!r} should hold dates, but it is {column.dtype}; convert it "
            "with pd.to_datetime"
        )
    _refuse_missing(feature, column.isna().to_numpy(), "missing dates")
    return (column.to_numpy("datetime64[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "s")


def _positions(feature: "Feature", column: "pd.Series[Any]") -> Array:
    """Levels by their place in `levels`; a missing one comes after the last."""
    index = pd.Index(list(feature.levels), dtype=object)
    cells = column.astype(object)
    missing: Mask = column.isna().to_numpy()
    try:
        places = index.get_indexer(cast(Any, cells))
    except TypeError:  # lists and the like have no hash
        raise SchemaError(
            f"column {feature.name!r} holds lists or records; levels are strings or numbers"
        ) from None
    positions = np.where(missing, len(feature.levels), places)
    if not feature.missing:
        fix = "fill them in, or infer the schema from data that has some too"
        _refuse_cells(feature, missing, "missing values", fix)
    unknown = positions < 0
    if unknown.any():
        names = listed(dict.fromkeys(cells[unknown]))
        advice = did_you_mean(cells[unknown].iloc[0], feature.levels)
        raise SchemaError(
            f"column {feature.name!r} has {int(unknown.sum())} unknown level(s): {names}; {advice}"
        )
    return positions.astype(np.float64)


def _refuse_missing(feature: "Feature", missing: Mask, what: str) -> None:
    if feature.missing:
        return
    change = f"**{{{feature.name!r}: {{'missing': True}}}}"
    fix = (
        f"{DROP}; if they belong there, infer the schema from data that has gaps too, or allow "
        f"them: schema.change({change})"
    )
    _refuse_cells(feature, missing, what, fix)


def _refuse_cells(feature: "Feature", bad: Mask, what: str, fix: str) -> None:
    if bad.any():
        first = int(np.argmax(bad))
        raise SchemaError(
            f"column {feature.name!r} has {int(bad.sum())} {what} (first at row {first}); {fix}"
        )


# ---- numbers -> table


def values(feature: "Feature", numbers: Array, like: "pd.Series[Any] | None") -> "pd.Series[Any]":
    """One number per row as a column of the table; see `Feature.values`."""
    dtype: Any = own_dtype(feature) if like is None else like.dtype
    if feature.kind in ("ordered", "category"):
        return _levels(feature, numbers, dtype)
    if feature.kind == "boolean":
        return _as_dtype(pd.Series(numbers.astype(bool)), dtype)
    if feature.kind == "date":  # to the second: a model may ask for the day of the week
        missing = np.isnan(numbers)
        seconds = np.round(np.where(missing, 0, numbers)).astype(np.int64)
        # not by pd.to_datetime, which in pandas 2 ends in 2262
        dates: Any = pd.Series(seconds.astype("datetime64[s]")).mask(missing)
        zoned = isinstance(dtype, pd.DatetimeTZDtype)
        return (dates.dt.tz_localize("UTC") if zoned else dates).astype(dtype)
    if dtype in ("float64", np.float64):
        return pd.Series(numbers)
    column = _as_dtype(pd.Series(numbers), dtype)
    if feature.kind == "integer" and column.dtype != dtype:
        return _as_dtype(column, np.dtype(np.int64))
    return column


def _levels(feature: "Feature", positions: Array, dtype: Any) -> "pd.Series[Any]":
    """Levels by their positions; categories of pandas get those that they do not list."""
    known = np.array([*feature.levels, None], dtype=object)
    column = pd.Series(known[positions.astype(np.int64)], dtype=object)
    if isinstance(dtype, pd.CategoricalDtype):
        strange = [v for v in dict.fromkeys(column.dropna()) if v not in dtype.categories]
        if strange:
            dtype = pd.CategoricalDtype([*dtype.categories, *strange], ordered=dtype.ordered)
    return _as_dtype(column, dtype)


def replaced(
    feature: "Feature", column: "pd.Series[Any]", rows: Any, numbers: Array
) -> "pd.Series[Any]":
    """The column with other numbers in some rows; see `Feature.replaced`."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "f":
        cells: Any = column.to_numpy(copy=True)
        cells[rows] = numbers
        return pd.Series(cells, index=column.index)
    new = values(feature, numbers, column)
    wide: Any = cast(Any, column).astype(new.dtype).copy()  # wider where `new` had to be
    wide.iloc[rows] = new.array
    return wide


# ---- the dtype of a column


def held(feature: "Feature", column: "pd.Series[Any]") -> "pd.Series[Any]":
    """The column in the dtype that the schema was read off; see `Feature.held`."""
    if feature.kind == "date":
        return _dates(feature, column)
    has_numbers = pd.api.types.is_numeric_dtype(column.dtype)
    if not feature.dtype or not (feature.levels or has_numbers):
        return column
    dtype = own_dtype(feature)
    knows_levels = isinstance(dtype, pd.CategoricalDtype)
    if knows_levels and not column.dropna().isin(dtype.categories).all():
        return column
    return column if column.dtype == dtype else _as_dtype(column, dtype)


def _dates(feature: "Feature", column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Strings such as '2024-03-01' or '2024-03-01T12:30:00' as dates."""
    dtype = own_dtype(feature)
    if pd.api.types.is_numeric_dtype(column.dtype) and not column.isna().all():
        return column
    try:
        dates: Any = pd.to_datetime(
            column, utc=isinstance(dtype, pd.DatetimeTZDtype), format="ISO8601"
        )
        return dates if dates.dtype == dtype else dates.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        # pandas 2 reads through nanoseconds, which end in 2262; dates need no reading
        are_dates = [isinstance(value, pd.Timestamp) for value in column.dropna()]
        return cast(Any, column).astype(dtype) if all(are_dates) else column


def own_dtype(feature: "Feature") -> Any:
    """The dtype of the table that the schema was read off, or the usual one of the kind."""
    category = CATEGORY.fullmatch(feature.dtype)
    if category:
        index = pd.Index(list(feature.levels), dtype=category["held"])
        return pd.CategoricalDtype(index, ordered=category["ordered"] is not None)
    if feature.kind == "date":
        return pd.api.types.pandas_dtype(feature.dtype or "datetime64[ns]")
    return feature.dtype or DTYPES.get(feature.kind, "object")


def dtype_name(column: "pd.Series[Any]") -> str:
    """How the table holds a column, as a string: 'int8', 'category', 'ordered category',
    'category[int8]'."""
    dtype = column.dtype
    if not isinstance(dtype, pd.CategoricalDtype):
        return str(dtype)
    usual = pd.Index(dtype.categories.tolist()).dtype == dtype.categories.dtype
    ordered = "ordered " if dtype.ordered else ""
    of_what = "" if usual else f"[{dtype.categories.dtype}]"
    return f"{ordered}category{of_what}"


def _as_dtype(values: "pd.Series[Any]", dtype: Any) -> "pd.Series[Any]":
    """The values in that dtype, or as they are where it cannot hold them; floats may round."""
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            converted = cast("pd.Series[Any]", cast(Any, values).astype(dtype))
    except (TypeError, ValueError, OverflowError):
        return values
    if values.dtype != object and pd.api.types.is_float_dtype(converted.dtype):
        return converted
    there = values.notna()
    same: Any = cast(Any, converted[there]).astype(object) == values[there]
    return converted if bool(same.all()) else values


# ---- cells and names


def differ(a: Array, b: Array) -> Mask:
    """Which numbers differ? Two that are missing do not."""
    return (a != b) & ~(np.isnan(a) & np.isnan(b))


def is_missing(value: object) -> bool:
    """None, NaN or NA?"""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def column_names(frame: pd.DataFrame) -> list[str]:
    """The names of a table's columns, which must be strings and all different."""
    if isinstance(frame, pd.Series):
        raise SchemaError(
            f"expected a pandas DataFrame, got {type(cast(object, frame)).__name__}; one row of a "
            "table is X.loc[[i]], with two brackets"
        )
    if not isinstance(frame, pd.DataFrame):
        raise SchemaError(f"expected a pandas DataFrame, got {type(cast(object, frame)).__name__}")
    names: list[Any] = list(frame.columns)
    strange = [name for name in names if not isinstance(name, str)]
    if strange:
        raise SchemaError(
            f"{len(strange)} column name(s) are not strings: {listed(strange)}; rename them, for "
            "example with frame.columns = frame.columns.map(str)"
        )
    twice = repeated(names)
    if twice:
        raise SchemaError(
            f"duplicate column(s) {listed(twice)} in the table; rename or drop one of each"
        )
    return names


def repeated(names: Iterable[str]) -> list[str]:
    """The names that appear more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)
