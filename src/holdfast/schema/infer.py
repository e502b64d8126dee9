"""Reading a schema off a table."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Literal, TypedDict, Unpack, cast, get_args

import numpy as np
import pandas as pd

from holdfast._core.checks import did_you_mean, listed
from holdfast._core.types import Array
from holdfast.errors import SchemaError
from holdfast.schema.columns import column_names, dtype_name
from holdfast.schema.feature import Change, Feature, Kind, Level
from holdfast.schema.rule import Rule

# a column of strings with more distinct values is a name or an id, not a category
MOST_LEVELS = 1000
# the settings that name columns, in the order in which an unknown one is reported
OF_COLUMNS = (
    "bounds",
    "integers",
    "categories",
    "ordered",
    "allowed",
    "steps",
    "weights",
    "words",
)
Scaling = Literal["standard", "minmax", "robust", "none"]
SCALINGS: tuple[Scaling, ...] = get_args(Scaling)
NORMAL_QUARTILES = 1.349  # between the quartiles of a normal variable of deviation 1


class InferSettings(TypedDict, total=False):
    """What `Schema.infer` takes beside the table."""

    fixed: Iterable[str]
    up: Iterable[str]
    down: Iterable[str]
    bounds: Mapping[str, tuple[float, float]]
    integers: Iterable[str]
    categories: Iterable[str]
    ordered: Mapping[str, Sequence[Level]]
    allowed: Mapping[str, Sequence[Level]]
    steps: Mapping[str, float]
    weights: Mapping[str, float]
    words: Mapping[str, Mapping[str, Any]]
    rules: Iterable[str]
    max_changes: int
    scaling: Scaling


def inferred(
    frame: pd.DataFrame, **settings: Unpack[InferSettings]
) -> tuple[tuple[Feature, ...], tuple[Rule, ...], int]:
    """The features, rules and limit of a schema; see `Schema.infer`."""
    known = InferSettings.__annotations__
    for name in settings:
        if name not in known:
            raise SchemaError(f"unknown setting {name!r}; {did_you_mean(name, known)}")
    names = column_names(frame)
    scaling = settings.get("scaling", "standard")
    if not len(frame):
        raise SchemaError("cannot infer a schema from a table without rows")
    if scaling not in SCALINGS:
        raise SchemaError(f"scaling must be one of {listed(SCALINGS)}, got {scaling!r}")
    for name in ("integers", "categories"):  # read once: they may be generators
        settings[name] = _names(settings.get(name, ()))
    # every setting must name columns of this table
    change = _changes(settings)
    for group in (change, *(settings.get(name, ()) for name in OF_COLUMNS)):
        for name in _names(group):
            if name not in names:
                raise SchemaError(f"unknown column {name!r}; {did_you_mean(name, names)}")
    features = tuple(
        _feature(frame[name], name, change.get(name), settings, scaling) for name in names
    )
    rules = tuple(Rule.parse(text) for text in _names(settings.get("rules", ())))
    return features, rules, settings.get("max_changes", 0)


def _changes(settings: InferSettings) -> dict[str, Change]:
    """How columns may change, where the settings say so."""
    change: dict[str, Change] = {}
    for word in ("fixed", "up", "down"):
        for name in _names(settings.get(word, ())):
            if name in change:
                raise SchemaError(
                    f"column {name!r} is declared both {change[name]!r} and {word!r}; keep one"
                )
            change[name] = word
    return change


def _feature(
    column: "pd.Series[Any]",
    name: str,
    change: Change | None,
    settings: InferSettings,
    scaling: str,
) -> Feature:
    """One column: what it holds, and what the settings say about it."""
    ordered = settings.get("ordered", {})
    is_integer = name in settings.get("integers", ())
    is_category = name in settings.get("categories", ())
    kind = _kind(column, is_integer, is_category, name in ordered)
    usual: Change = "fixed" if kind == "date" else "free"
    given: dict[str, Any] = dict(settings.get("words", {}).get(name, {}))
    given["change"] = change or usual
    given["weight"] = float(settings.get("weights", {}).get(name, 1.0))
    given["dtype"] = dtype_name(column)
    given["allowed"] = tuple(settings.get("allowed", {}).get(name, ()))
    given["step"] = float(settings.get("steps", {}).get(name, 0.0))
    bounds = settings.get("bounds", {})
    if name in bounds:
        low, high = bounds[name]
        given["bounds"] = (float(low), float(high))
    if kind in ("category", "ordered"):
        levels = ordered.get(name) or _levels(column, name)
        given["levels"] = tuple(levels)
        given["missing"] = bool(column.isna().any())
        # ranks from 0 to 1, so that a step of a long scale weighs less
        scale = max(len(levels) - 1.0, 1.0) if kind == "ordered" else 1.0
        return Feature(name, kind, scale=scale, **given)
    if kind == "boolean":
        Feature(name, kind).numbers(column)
        return Feature(name, kind, **given)
    given["missing"] = bool(column.isna().any())
    values = Feature(name, kind, usual, missing=True).numbers(column)
    values = values[~np.isnan(values)]
    if not len(values):
        raise SchemaError(f"column {name!r} has no values at all; drop it")
    return Feature(name, kind, **_scaled(values, scaling), **given)


def _scaled(values: Array, scaling: str) -> dict[str, Any]:
    """The range of the data, and what makes it small numbers."""
    low = float(values.min())
    high = float(values.max())
    center, spread = _center_and_spread(values, scaling)
    # A constant column keeps its own unit; one that overflows cannot be scaled by its spread
    # either.
    varies = math.isfinite(spread) and spread > 1e-12 * max(abs(low), abs(high))
    return {"seen": (low, high), "center": center, "scale": spread if varies else 1.0}


def _center_and_spread(values: Array, scaling: str) -> tuple[float, float]:
    """What is taken off and what it is divided by.

    The quartiles of "robust" do not see a few huge values, which would make every usual change look
    like none. Where half of the rows or more have the same value they are one and the same, and the
    deviation takes their place.
    """
    if scaling == "none":
        return 0.0, 1.0
    if scaling == "minmax":
        return float(values.min()), float(values.max() - values.min())
    if scaling == "standard":
        return float(values.mean()), float(values.std())
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    between = (high - low) / NORMAL_QUARTILES
    return middle, between or float(values.std())


def _names(value: Iterable[str]) -> list[str]:
    """A lone string is one name, not its letters."""
    return [value] if isinstance(value, str) else list(value)


def _kind(column: "pd.Series[Any]", integer: bool, category: bool, ordered: bool) -> Kind:
    dtype = column.dtype
    if ordered:
        return "ordered"
    if isinstance(dtype, pd.CategoricalDtype):
        return "ordered" if dtype.ordered and not column.isna().any() else "category"
    if category:
        return "category"
    if pd.api.types.is_bool_dtype(dtype):
        return "category" if column.isna().any() else "boolean"
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        return "integer" if integer or pd.api.types.is_integer_dtype(dtype) else "real"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return "date"
    if pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype):
        return "category"
    raise SchemaError(
        f"column {column.name!r} is {dtype}, which has no meaning here; convert it to numbers or "
        "strings"
    )


def _levels(column: "pd.Series[Any]", name: str) -> list[Level]:
    dtype = column.dtype
    ranked = isinstance(dtype, pd.CategoricalDtype)
    try:
        found = list(dtype.categories) if ranked else list(column.dropna().unique())
    except TypeError:  # lists and the like have no hash to tell them apart by
        odd = next(type(v).__name__ for v in column if not isinstance(v, Hashable))
        fix = "give each of their parts a column of its own, or drop it"
        raise SchemaError(f"column {name!r} holds {odd} values; {fix}") from None
    levels: list[Any] = [cast(Any, v).item() if isinstance(v, np.generic) else v for v in found]
    strange = [v for v in levels if not isinstance(v, str | int | float | bool)]
    if strange:
        fix = "with pd.to_datetime" if isinstance(strange[0], date) else "to strings or numbers"
        raise SchemaError(
            f"column {name!r} holds {type(strange[0]).__name__} values; convert them {fix}"
        )
    if len(levels) > MOST_LEVELS:
        raise SchemaError(
            f"column {name!r} has {len(levels)} distinct strings, so it looks like an id; drop it: "
            "what the schema does not know is carried through"
        )
    if not levels:
        raise SchemaError(f"column {name!r} has no values at all; drop it")
    return levels if ranked else sorted(levels, key=lambda v: (isinstance(v, str), v))
