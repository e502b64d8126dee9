"""One column of a table: the values it may take, how a person may change it, and how it becomes numbers.

Numbers, booleans and ordered levels take one encoded column, (value - center) / scale, where the value
of a boolean is 0 or 1 and that of an ordered level its rank. An unordered category takes one column per
level (one-hot); a missing value is one more level, which an answer keeps but never asks for.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from holdfast.errors import SchemaError, did_you_mean, listed

Kind = Literal["real", "integer", "boolean", "ordered", "category"]
Change = Literal["free", "fixed", "up", "down"]
Level = str | int | float | bool
Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

KINDS: tuple[Kind, ...] = ("real", "integer", "boolean", "ordered", "category")
CHANGES: tuple[Change, ...] = ("free", "fixed", "up", "down")


@dataclass(frozen=True)
class Feature:
    """One column: what it holds and how it may change.

    `bounds` and `allowed` are promises about answers: no answer lies outside them. `seen` is the range of
    the data; a search stays inside it, stretched to the person's own value where that lies outside.
    """

    name: str
    kind: Kind = "real"
    change: Change = "free"
    bounds: tuple[float, float] = (-math.inf, math.inf)
    levels: tuple[Level, ...] = ()
    allowed: tuple[Level, ...] = ()  # empty: all levels
    missing: bool = False  # a missing category is a level of its own
    step: float = 0.0  # answers are multiples of it; 0: any number
    seen: tuple[float, float] = (-math.inf, math.inf)
    center: float = 0.0
    scale: float = 1.0
    weight: float = 1.0  # cost of one encoded unit of change
    dtype: str = ""  # how the table held it
    label: str = ""  # words for sentences: "the loan", "months", ("lengthen", "shorten")
    unit: str = ""
    verbs: tuple[str, str] = ("raise", "lower")

    def __post_init__(self) -> None:
        self._need(self.kind in KINDS, f"kind {self.kind!r} is not one of {listed(KINDS)}")
        self._need(self.change in CHANGES, f"change {self.change!r} is not one of {listed(CHANGES)}")
        for name, (low, high) in (("bounds", self.bounds), ("seen", self.seen)):
            self._need(not (math.isnan(low) or math.isnan(high)), f"{name} hold a missing number")
            self._need(low <= high, f"{name} {(low, high)} are empty: the lower one is above the upper one")
        self._need(math.isfinite(self.scale) and self.scale > 0, f"scale must be positive, got {self.scale}")
        self._need(math.isfinite(self.center), f"center must be a number, got {self.center}")
        self._need(self.weight >= 0 and math.isfinite(self.weight), f"weight must be >= 0, got {self.weight}")
        self._need(self.step >= 0 and math.isfinite(self.step), f"step must be >= 0, got {self.step}")
        if self.kind in ("ordered", "category"):
            self._need(len(self.levels) > 0, f"kind {self.kind!r} needs its levels")
            self._need(len(set(self.levels)) == len(self.levels), "a level appears twice")
            unknown = [a for a in self.allowed if a not in self.levels]
            self._need(not unknown, f"allowed level {listed(unknown)} is not among the levels")
            self._need(self.bounds == (-math.inf, math.inf), "has levels, so `allowed` limits it, not bounds")
        else:
            self._need(not self.levels and not self.allowed, f"kind {self.kind!r} has no levels")
        if self.kind == "category":
            one_way = self.change in ("up", "down")
            self._need(not one_way, f"change {self.change!r} needs an order; make it kind 'ordered'")
        else:
            self._need(not self.missing, f"kind {self.kind!r} cannot hold missing values; use 'category'")
        if self.kind == "ordered" and self.allowed:
            ranks = sorted(self.levels.index(a) for a in self.allowed)
            whole = ranks == list(range(ranks[0], ranks[-1] + 1))
            self._need(whole, "allowed levels leave a gap; make it kind 'category' to allow a gap")

    def _need(self, holds: bool, message: str) -> None:
        if not holds:
            raise SchemaError(f"feature {self.name!r}: {message}")

    @property
    def is_category(self) -> bool:
        return self.kind == "category"

    @property
    def width(self) -> int:
        """How many encoded columns it takes."""
        return len(self.levels) + self.missing if self.is_category else 1

    @property
    def grid(self) -> float:
        """Distance between the values an answer may take, in the user's units; 0 for any number."""
        return max(self.step, 1.0) if self.kind in ("integer", "boolean", "ordered") else self.step

    @property
    def limits(self) -> tuple[float, float]:
        """The hard interval of answers in the user's units: bounds, allowed ranks, and what the dtype holds."""
        low, high = self.bounds
        if self.kind == "boolean":
            low, high = max(low, 0.0), min(high, 1.0)
        if self.kind == "ordered":
            ranks = [self.levels.index(a) for a in self.allowed or self.levels]
            low, high = float(min(ranks)), float(max(ranks))
        if re.fullmatch(r"u?int(8|16|32|64)", self.dtype.lower()):
            info = np.iinfo(self.dtype.lower())
            low, high = max(low, float(info.min)), min(high, float(info.max))
        if self.grid:
            low = math.ceil(low / self.grid) * self.grid if math.isfinite(low / self.grid) else low
            high = math.floor(high / self.grid) * self.grid if math.isfinite(high / self.grid) else high
            if low > high:
                raise SchemaError(f"feature {self.name!r}: no multiple of {self.grid:g} lies in {self.bounds}")
        return low, high

    def may_become(self) -> Mask:
        """For each encoded column of a category: may an answer move to that level?"""
        allowed = self.allowed or self.levels
        return np.array([level in allowed for level in self.levels] + [False] * self.missing)

    # ---- table -> numbers

    def numbers(self, column: "pd.Series[Any]") -> Array:
        """The column as one number per row, checked: values, ranks, or level positions for a category."""
        if self.kind in ("ordered", "category"):
            return self._positions(column)
        wanted = "True/False" if self.kind == "boolean" else "numbers"
        if not (pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype)):
            example = next((v for v in column if not _is_missing(v)), None)
            raise SchemaError(
                f"column {self.name!r} should hold {wanted}, but it is {column.dtype} (such as {example!r}); "
                f"convert it, or declare it a category"
            )
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        fix = "fill them in or drop those rows"
        self._refuse(np.isnan(values), "missing numbers" if wanted == "numbers" else "missing values", fix)
        self._refuse(np.isinf(values), "infinite values", fix)
        if self.kind == "boolean":
            self._refuse(~np.isin(values, (0, 1)), "values that are neither True nor False", "recode them")
        if self.kind == "integer":
            broken = values != np.round(values)
            self._refuse(broken, "values that are not whole numbers", "round them or declare it real")
        return values

    def _positions(self, column: "pd.Series[Any]") -> Array:
        index = pd.Index(list(self.levels), dtype=object)
        values = column.astype(object)
        try:
            positions = index.get_indexer(cast(Any, values))
        except TypeError:  # lists and the like have no hash
            raise SchemaError(f"column {self.name!r} holds lists or records; levels are texts or numbers") from None
        gone = column.isna().to_numpy()
        if self.missing:
            positions = np.where(gone, len(self.levels), positions)
        elif gone.any():
            self._refuse(gone, "missing values", "infer the schema from data that has them, or fill them in")
        unknown = positions < 0
        if unknown.any():
            names = listed(dict.fromkeys(values[unknown]))
            advice = did_you_mean(values[unknown].iloc[0], self.levels)
            raise SchemaError(
                f"column {self.name!r} has {int(unknown.sum())} unknown level(s): {names}; {advice}"
            )
        return positions.astype(np.float64)

    def _refuse(self, bad: Mask, what: str, fix: str) -> None:
        if bad.any():
            first = int(np.argmax(bad))
            raise SchemaError(f"column {self.name!r} has {int(bad.sum())} {what} (first at row {first}); {fix}")

    # ---- numbers -> table

    def values(self, numbers: Array, like: "pd.Series[Any] | None") -> "pd.Series[Any]":
        """One number per row (see `numbers`) -> a column of the table, with the dtype of `like`."""
        dtype: Any = like.dtype if like is not None else self._own_dtype()
        if self.kind in ("ordered", "category"):
            known = np.array([*self.levels, None], dtype=object)
            column = pd.Series(known[numbers.astype(np.int64)], dtype=object)
            if isinstance(dtype, pd.CategoricalDtype):
                strange = [v for v in dict.fromkeys(column.dropna()) if v not in dtype.categories]
                if strange:
                    dtype = pd.CategoricalDtype([*dtype.categories, *strange], ordered=dtype.ordered)
            return _as_dtype(column, dtype)
        if self.kind == "boolean":
            return pd.Series(numbers.astype(bool)).astype(dtype)
        if pd.api.types.is_integer_dtype(dtype):
            return pd.Series(np.round(numbers).astype(np.int64)).astype(dtype)
        return pd.Series(numbers).astype(dtype)

    def _own_dtype(self) -> Any:
        if self.dtype == "category":
            return pd.CategoricalDtype(list(self.levels), ordered=self.kind == "ordered")
        return self.dtype or {"integer": "int64", "boolean": "bool", "real": "float64"}.get(self.kind, "object")


def _as_dtype(levels: "pd.Series[Any]", dtype: Any) -> "pd.Series[Any]":
    """Levels in the table's dtype, or as they are where it cannot hold them (2.5 among whole numbers)."""
    try:
        cast_ = levels.astype(dtype)
    except (TypeError, ValueError):
        return levels
    return cast_ if bool(((cast_.astype(object) == levels) | levels.isna()).all()) else levels


def _is_missing(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


_TOKEN = re.compile(r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?)|`(?P<quoted>[^`]+)`|(?P<name>\w+)|(?P<op><=|>=|[-+*]))")


@dataclass(frozen=True)
class Rule:
    """A linear rule between columns, sum of weight x value <= bound, in the user's units."""

    text: str
    weights: Mapping[str, float] = field(compare=False)
    bound: float = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Read rules such as 'open_accounts <= total_accounts' or '2 * a - `b c` >= -3'."""
        weights: dict[str, float] = {}
        constant, side, sign, factor, at = 0.0, 1.0, 1.0, 1.0, 0
        compare, pending = "", False

        def fail(why: str) -> SchemaError:
            return SchemaError(f"rule {text!r}: {why}; write it like 'open_accounts <= total_accounts'")

        def close() -> None:
            nonlocal constant, pending, factor
            if pending:
                constant += side * sign * factor
            pending, factor = False, 1.0

        text = text.strip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if not found:
                raise fail(f"cannot read {text[at:]!r}")
            at = found.end()
            name, op = found["quoted"] or found["name"], found["op"]
            if found["number"]:
                factor, pending = factor * float(found["number"]), True
            elif name:
                weights[name] = weights.get(name, 0.0) + side * sign * factor
                pending, factor = False, 1.0
            elif op == "*":
                if not pending:
                    raise fail("a product is a number times a column")
            elif op in ("+", "-"):
                close()
                sign = 1.0 if op == "+" else -1.0
            else:
                if compare:
                    raise fail("it has more than one comparison")
                close()
                compare, side, sign = op, -1.0, 1.0
        close()
        weights = {n: w for n, w in weights.items() if w}
        if not compare or not weights:
            raise fail("it needs at least one column and one of <= and >=")
        flip = 1.0 if compare == "<=" else -1.0
        return cls(text, {n: flip * w for n, w in weights.items()}, -flip * constant)
