"""Reading a schema off a table."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from holdfast.errors import SchemaError, did_you_mean, listed
from holdfast.feature import Change, Feature, Kind, Level, Rule
from holdfast.schema import Schema

MOST_LEVELS = 1000  # a text column with more distinct values is a name or an id, not a category


def infer_schema(
    frame: pd.DataFrame,
    *,
    fixed: Iterable[str] = (),
    up: Iterable[str] = (),
    down: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    integers: Iterable[str] = (),
    categories: Iterable[str] = (),
    ordered: Mapping[str, Sequence[Level]] | None = None,
    allowed: Mapping[str, Sequence[Level]] | None = None,
    steps: Mapping[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
    words: Mapping[str, Mapping[str, Any]] | None = None,
    rules: Iterable[str] = (),
    max_changes: int = 0,
    scaling: Literal["standard", "minmax", "none"] = "standard",
) -> Schema:
    """Kinds, levels, ranges and scaling from a table; what may change from you.

    Args:
        frame: the rows the model was trained on.
        fixed, up, down: columns that may not change, only rise, only fall.
        bounds: lowest and highest value an answer may have.
        integers: columns of whole numbers that the table holds as floats.
        categories: columns of numbers that are really codes.
        ordered: levels of ordered categories, lowest first (ordered pandas categories need no mention).
        allowed: levels an answer may have.
        steps: answers in this column are multiples of it.
        weights: cost of one encoded unit of change.
        words: `label`, `unit` and `verbs` for sentences, per column.
        rules: linear rules such as "open_accounts <= total_accounts".
        max_changes: at most this many features may change; 0 for no limit.
        scaling: zero mean and unit variance, the range to [0, 1], or none.
    """
    if not isinstance(frame, pd.DataFrame):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SchemaError(f"expected a pandas DataFrame, got {type(frame).__name__}")
    if len(frame) == 0:
        raise SchemaError("cannot infer a schema from a table without rows")
    if scaling not in ("standard", "minmax", "none"):
        raise SchemaError(f"scaling must be 'standard', 'minmax' or 'none', got {scaling!r}")
    names = [str(c) for c in frame.columns]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise SchemaError(f"duplicate column(s) {listed(twice)} in the table; rename or drop one of each")
    change: dict[str, Change] = {}
    for word, columns in (("fixed", _names(fixed)), ("up", _names(up)), ("down", _names(down))):
        for name in columns:
            if name in change:
                raise SchemaError(f"column {name!r} is declared both {change[name]!r} and {word!r}; keep one")
            change[name] = word
    integers, categories = _names(integers), _names(categories)
    bounds, ordered, allowed = bounds or {}, ordered or {}, allowed or {}
    steps, weights, words = steps or {}, weights or {}, words or {}
    for group in (change, bounds, integers, categories, ordered, allowed, steps, weights, words):
        for name in group:
            if name not in names:
                raise SchemaError(f"unknown column {name!r}; {did_you_mean(name, names)}")

    def feature(name: str) -> Feature:
        column = frame[name]
        settings: dict[str, Any] = dict(words.get(name, {})) | {"change": change.get(name, "free")}
        settings |= {"weight": float(weights.get(name, 1.0)), "dtype": _dtype_name(column)}
        kind = _kind(column, name in integers, name in categories, name in ordered)
        if kind in ("category", "ordered"):
            levels = ordered.get(name) or _levels(column, name)
            settings |= {"levels": tuple(levels), "allowed": tuple(allowed.get(name, ()))}
            settings["missing"] = bool(column.isna().any())
            if kind == "ordered":
                settings |= {"scale": max(len(levels) - 1.0, 1.0)}
            return Feature(name, kind, **settings)
        if name in bounds:
            low, high = bounds[name]
            settings["bounds"] = (float(low), float(high))
        settings["step"] = float(steps.get(name, 0.0))
        values = Feature(name, kind).numbers(column)
        low, high = float(values.min()), float(values.max())
        if kind != "boolean":
            settings["seen"] = (low, high)
            spread = {"standard": float(values.std()), "minmax": high - low, "none": 1.0}[scaling]
            settings["center"] = {"standard": float(values.mean()), "minmax": low, "none": 0.0}[scaling]
            # A constant column keeps its own unit; one that overflows cannot be scaled by its spread either.
            settings["scale"] = spread if math.isfinite(spread) and spread > 1e-12 * max(abs(low), abs(high)) else 1.0
        return Feature(name, kind, **settings)

    features = tuple(feature(n) for n in names)
    return Schema(features, tuple(Rule.parse(r) for r in _names(rules)), max_changes)


def _names(value: Iterable[str]) -> list[str]:
    """A lone text is one name, not its letters."""
    return [value] if isinstance(value, str) else list(value)


def _dtype_name(column: "pd.Series[Any]") -> str:
    return "category" if isinstance(column.dtype, pd.CategoricalDtype) else str(column.dtype)


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
    if pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype):
        return "category"
    raise SchemaError(f"column {column.name!r} is {dtype}, which has no meaning here; convert it to numbers or text")


def _levels(column: "pd.Series[Any]", name: str) -> list[Level]:
    dtype = column.dtype
    found: list[Any] = list(dtype.categories if isinstance(dtype, pd.CategoricalDtype) else column.dropna().unique())
    levels = [v.item() if isinstance(v, np.generic) else v for v in found]
    strange = [v for v in levels if not isinstance(v, str | int | float | bool)]
    if strange:
        raise SchemaError(f"column {name!r} holds {type(strange[0]).__name__} values; convert them to text or numbers")
    if len(levels) > MOST_LEVELS:
        raise SchemaError(f"column {name!r} has {len(levels)} distinct texts, so it looks like an id; drop it")
    if not levels:
        raise SchemaError(f"column {name!r} has no values at all; drop it")
    if isinstance(dtype, pd.CategoricalDtype):
        return levels
    return sorted(levels, key=lambda v: (isinstance(v, str), v))
