"""Reading a schema off a table."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Literal, TypedDict, Unpack, cast

import numpy as np
import pandas as pd

from holdfast._core.checks import did_you_mean
from holdfast.errors import SchemaError
from holdfast.schema.feature import Change, Feature, Kind, Level, Rule, column_names, dtype_name

# a column of strings with more distinct values is a name or an id, not a category
MOST_LEVELS = 1000


class Settings(TypedDict, total=False):
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
    scaling: Literal["standard", "minmax", "none"]


def inferred(
    frame: pd.DataFrame, **settings: Unpack[Settings]
) -> tuple[tuple[Feature, ...], tuple[Rule, ...], int]:
    """The features, rules and limit of a schema; see `Schema.infer`."""
    known = Settings.__annotations__
    for name in settings:
        if name not in known:
            raise SchemaError(f"unknown setting {name!r}; {did_you_mean(name, known)}")
    names = column_names(frame)
    scaling = settings.get("scaling", "standard")
    if len(frame) <= 0:
        raise SchemaError("cannot infer a schema from a table without rows")
    fits = scaling in ("standard", "minmax", "none")
    if not fits:
        raise SchemaError(f"scaling must be 'standard', 'minmax' or 'none', got {scaling!r}")
    change: dict[str, Change] = {}
    for word in ("fixed", "up", "down"):
        for name in _names(settings.get(word, ())):
            if name in change:
                raise SchemaError(
                    f"column {name!r} is declared both {change[name]!r} and {word!r}; keep one"
                )
            change[name] = word
    integers = _names(settings.get("integers", ()))
    categories = _names(settings.get("categories", ()))
    bounds = settings.get("bounds", {})
    steps = settings.get("steps", {})
    weights = settings.get("weights", {})
    ordered = settings.get("ordered", {})
    allowed = settings.get("allowed", {})
    words = settings.get("words", {})
    for group in (change, bounds, integers, categories, ordered, allowed, steps, weights, words):
        for name in group:
            if name not in names:
                raise SchemaError(f"unknown column {name!r}; {did_you_mean(name, names)}")

    def feature(name: str) -> Feature:
        column = frame[name]
        kind = _kind(column, name in integers, name in categories, name in ordered)
        usual = "fixed" if kind == "date" else "free"
        given: dict[str, Any] = dict(words.get(name, {})) | {"change": change.get(name, usual)}
        given |= {"weight": float(weights.get(name, 1.0)), "dtype": dtype_name(column)}
        given |= {"allowed": tuple(allowed.get(name, ())), "step": float(steps.get(name, 0.0))}
        if name in bounds:
            low, high = bounds[name]
            given["bounds"] = (float(low), float(high))
        if kind in ("category", "ordered"):
            levels = ordered.get(name) or _levels(column, name)
            given |= {"levels": tuple(levels), "missing": bool(column.isna().any())}
            return Feature(
                name, kind, scale=max(len(levels) - 1.0, 1.0) if kind == "ordered" else 1.0, **given
            )
        if kind == "boolean":
            Feature(name, kind).numbers(column)
            return Feature(name, kind, **given)
        given["missing"] = bool(column.isna().any())
        values = Feature(name, kind, usual, missing=True).numbers(column)
        values = values[~np.isnan(values)]
        if len(values) <= 0:
            raise SchemaError(f"column {name!r} has no values at all; drop it")
        low = float(values.min())
        high = float(values.max())
        spread = {"standard": float(values.std()), "minmax": high - low, "none": 1.0}[scaling]
        center = {"standard": float(values.mean()), "minmax": low, "none": 0.0}[scaling]
        # A constant column keeps its own unit; one that overflows cannot be scaled by its spread
        # either.
        varies = math.isfinite(spread) and spread > 1e-12 * max(abs(low), abs(high))
        return Feature(
            name, kind, seen=(low, high), center=center, scale=spread if varies else 1.0, **given
        )

    rules = tuple(Rule.parse(r) for r in _names(settings.get("rules", ())))
    return tuple(feature(n) for n in names), rules, settings.get("max_changes", 0)


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
    what = f"{len(levels)} distinct strings, so it looks like an id"
    fix = "drop it: what the schema does not know is carried through"
    if len(levels) > MOST_LEVELS:
        raise SchemaError(f"column {name!r} has {what}; {fix}")
    if not bool(levels):
        raise SchemaError(f"column {name!r} has no values at all; drop it")
    return levels if ranked else sorted(levels, key=lambda v: (isinstance(v, str), v))
