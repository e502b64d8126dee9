"""One column of a table: the values it may take, how a person may change it, and how it becomes
numbers.

Numbers, booleans and ordered levels take one encoded column, (value - center) / scale, where the
value of a boolean is 0 or 1 and that of an ordered level its rank. An unordered category takes one
column per level (one-hot); a missing value is one more level, which an answer keeps but never asks
for.

A number that may be missing takes a second column, 1 where it is missing; the first then holds a
number to stand in for it, so that no arithmetic ever sees a NaN. An answer may keep it missing or
fill it in, never the other way round.

A date is a number too, the seconds since 1970, for models that look at it; it is always fixed.
"""

import math
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd

from holdfast._core.checks import listed
from holdfast._core.types import Array, Mask
from holdfast.errors import SchemaError
from holdfast.schema import columns
from holdfast.schema.columns import is_missing

Kind = Literal["real", "integer", "boolean", "ordered", "category", "date"]
Change = Literal["free", "fixed", "up", "down"]
Level = str | int | float | bool

KINDS: tuple[Kind, ...] = get_args(Kind)
CHANGES: tuple[Change, ...] = get_args(Change)


@dataclass(frozen=True)
class Feature:
    """One column: what it holds and how it may change.

    `bounds` and `allowed` are promises about answers: no answer lies outside them. `seen` is the
    range of the data; a search stays inside it, stretched to the person's own value where that lies
    outside.

    Args:
        name: of the column.
        kind: "real", "integer", "boolean", "ordered" (levels with ranks), "category", or "date",
            which is always fixed.
        change: "free", "fixed", "up" (may only rise) or "down" (may only fall).
        bounds: the lowest and highest value of an answer.
        levels: of a category; of an ordered one, from lowest to highest.
        allowed: the levels that an answer may have; empty: all of them.
        missing: whether values may be missing. An answer may leave one missing or fill it in.
        step: answers are multiples of it; 0: any number.
        seen: the range of the data.
        center, scale: the encoded value is (value - center) / scale.
        weight: the cost of one encoded unit of change.
        dtype: how the table held the column.
        label, unit, verbs: words for sentences: "the loan", "months", ("lengthen", "shorten").

    >>> import holdfast as hf
    >>> age = hf.Feature("age", "integer", "fixed", seen=(19, 75))
    >>> age
    Feature(name='age', kind='integer', change='fixed', seen=(19, 75))
    >>> age.grid  # distance between the values that an answer may take
    1.0
    """

    name: str
    kind: Kind = "real"
    change: Change = "free"
    bounds: tuple[float, float] = (-math.inf, math.inf)
    levels: tuple[Level, ...] = ()
    allowed: tuple[Level, ...] = ()  # empty: all levels
    # a missing category is a level of its own, a missing number has a column that says so
    missing: bool = False
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
        # In this order: later checks rely on what earlier ones have made sure of.
        if self.kind not in KINDS:
            raise self._wrong(f"kind {self.kind!r} is not one of {listed(KINDS)}")
        if self.change not in CHANGES:
            raise self._wrong(f"change {self.change!r} is not one of {listed(CHANGES)}")
        self._check_ranges()
        self._check_numbers()
        if self.kind == "date":
            self._check_date()
        if self.kind in ("ordered", "category"):
            self._check_levels()
        elif self.levels or self.allowed:
            raise self._wrong(f"kind {self.kind!r} has no levels")
        self._check_order()
        low, high = self.limits
        if low > high:
            raise self._wrong(f"no value that the column can hold lies in {self.bounds}")

    def _wrong(self, message: str) -> SchemaError:
        return SchemaError(f"feature {self.name!r}: {message}")

    def _check_ranges(self) -> None:
        for name, (low, high) in (("bounds", self.bounds), ("seen", self.seen)):
            if math.isnan(low) or math.isnan(high):
                raise self._wrong(f"{name} hold a missing number")
            if low > high:
                raise self._wrong(
                    f"{name} {(low, high)} are empty: the lower one is above the upper one"
                )

    def _check_numbers(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise self._wrong(f"scale must be positive, got {self.scale}")
        if not math.isfinite(self.center):
            raise self._wrong(f"center must be a number, got {self.center}")
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise self._wrong(f"weight must be >= 0, got {self.weight}")
        if not (math.isfinite(self.step) and self.step >= 0):
            raise self._wrong(f"step must be >= 0, got {self.step}")
        if self.step and self.kind not in ("real", "integer"):
            raise self._wrong(f"kind {self.kind!r} has no steps")
        if self.kind != "real" and self.step != round(self.step):
            raise self._wrong(f"{self.step} is not a step of integers")

    def _check_date(self) -> None:
        if self.change != "fixed" or self.bounds != (-math.inf, math.inf):
            raise self._wrong(
                "no answer changes a date; keep it 'fixed' and without bounds, or turn it into "
                "a number, such as the days since then"
            )

    def _check_levels(self) -> None:
        if not self.levels:
            raise self._wrong(f"kind {self.kind!r} needs its levels")
        if any(is_missing(level) for level in self.levels):
            raise self._wrong("a missing value is not a level; set missing = true")
        if len(set(self.levels)) < len(self.levels):
            raise self._wrong("a level appears twice")
        unknown = [level for level in self.allowed if level not in self.levels]
        if unknown:
            raise self._wrong(f"allowed level {listed(unknown)} is not among the levels")
        if self.bounds != (-math.inf, math.inf):
            raise self._wrong("has levels, so `allowed` limits it, not bounds")

    def _check_order(self) -> None:
        """What needs an order, and what an order rules out."""
        if self.kind == "category" and self.change in ("up", "down"):
            raise self._wrong(f"change {self.change!r} needs an order; make it kind 'ordered'")
        if self.kind in ("boolean", "ordered") and self.missing:
            raise self._wrong(f"kind {self.kind!r} cannot hold missing values; use 'category'")
        if self.kind == "ordered" and self.allowed:
            ranks = sorted(self.levels.index(level) for level in self.allowed)
            if ranks != list(range(ranks[0], ranks[-1] + 1)):
                raise self._wrong(
                    "allowed levels leave a gap; make it kind 'category' to allow a gap"
                )

    def __repr__(self) -> str:
        given = [
            f"{s.name}={getattr(self, s.name)!r}"
            for s in fields(self)
            if getattr(self, s.name) != s.default
        ]
        return f"Feature({', '.join(given)})"

    @property
    def is_category(self) -> bool:
        """Is it a category without order, with a column for each level?"""
        return self.kind == "category"

    @property
    def width(self) -> int:
        """How many encoded columns it takes."""
        return (len(self.levels) if self.is_category else 1) + self.missing

    @property
    def has_gaps(self) -> bool:
        """Is it a number that may be missing?"""
        return self.missing and not self.is_category

    @cached_property
    def stand_in(self) -> float:
        """The value in place of a missing number, in its first encoded column: the center, or the
        nearest allowed."""
        near = np.array([self.center])
        value = float(self.stored(self.multiples(near) if self.grid else near)[0])
        return min(max(value, self.limits[0]), self.limits[1])

    @property
    def grid(self) -> float:
        """Distance between the values an answer may take, in the user's units; 0 for any number."""
        return max(self.step, 1.0) if self.kind in ("integer", "boolean", "ordered") else self.step

    def multiples(self, values: Array, way: int = 0) -> Array:
        """Multiples of the grid, to the digits it is written in (3 steps of 0.1 are 0.3): the
        nearest, or the next one upwards (`way` 1) or downwards (-1)."""
        digits = -int(Decimal(repr(self.grid)).normalize().as_tuple().exponent)
        with np.errstate(over="ignore"):
            ticks = values / self.grid
            whole = np.round(ticks if way == 0 else ticks + way * (0.5 - 1e-9)) * self.grid
        return np.round(whole, digits) if 0 < digits <= 15 else whole

    @cached_property
    def storage(self) -> np.dtype[Any]:
        """The NumPy dtype in which the table holds the numbers."""
        if self.kind not in ("real", "integer"):
            return np.dtype(np.float64)
        try:
            dtype: Any = pd.api.types.pandas_dtype(self.dtype or "float64")
        except TypeError:
            raise SchemaError(
                f"feature {self.name!r}: pandas does not know the dtype {self.dtype!r}"
            ) from None
        dtype = getattr(dtype, "numpy_dtype", dtype)  # of nullable and Arrow columns
        plain = isinstance(dtype, np.dtype) and cast(Any, dtype).kind in "iuf"
        return cast(Any, dtype) if plain else np.dtype(np.float64)

    def stored(self, values: Array) -> Array:
        """The values as the table will hold them: a column of float32 rounds."""
        with np.errstate(over="ignore"):
            return (
                values.astype(self.storage).astype(np.float64)
                if self.storage.kind == "f"
                else values
            )

    @property
    def rounds(self) -> bool:
        """Does the table hold fewer digits than the calculation uses?"""
        return not self.grid and self.storage.kind == "f" and self.storage != np.float64

    def neighbors(self, values: Array) -> tuple[Array, Array]:
        """The last number up to each value that the table can hold, and the first from it on."""
        held = self.stored(values)
        down = np.nextafter(held.astype(self.storage), (-np.inf), dtype=self.storage)
        up = np.nextafter(held.astype(self.storage), np.inf, dtype=self.storage)
        low = np.where(held > values, down, held)
        high = np.where(held < values, up, held)
        return low.astype(np.float64), high.astype(np.float64)

    def digit(self, values: Array) -> Array:
        """The last digit of the values as the table will hold them: distance to the next one."""
        dtype = self.storage if self.storage.kind == "f" else np.dtype(np.float64)
        return np.spacing(np.abs(values).astype(dtype)).astype(np.float64)

    @cached_property
    def holds(self) -> tuple[float, float]:
        """The lowest and highest number the column can hold at all: 0 to 1, ranks, what fits
        into an int8."""
        if self.kind == "boolean":
            return 0.0, 1.0
        if self.kind == "ordered":
            return 0.0, len(self.levels) - 1.0
        if self.storage.kind in "iu":
            info = np.iinfo(self.storage)
            top = float(info.max)  # of an int64 that is 2^63, one more than it can hold
            return float(info.min), top if int(top) <= info.max else math.nextafter(top, 0)
        return -math.inf, math.inf

    @cached_property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest answer in the user's units: bounds or allowed ranks, as the
        column holds them."""
        low, high = self.bounds
        if self.kind == "ordered" and self.allowed:
            ranks = [self.levels.index(a) for a in self.allowed]
            low = float(min(ranks))
            high = float(max(ranks))
        return self.inward(max(low, self.holds[0]), 1), self.inward(min(high, self.holds[1]), -1)

    def inward(self, bound: float, way: int) -> float:
        """The bound, or the next value in direction `way` that is on the grid and that the dtype
        can hold."""
        if not math.isfinite(bound):
            return bound
        if self.grid:
            near = self.stored(self.multiples(bound + way * self.grid * np.arange(3.0), way))
        else:
            exact = self.stored(np.array([bound])).astype(
                self.storage if self.storage.kind == "f" else np.float64
            )
            near = np.append(
                exact, np.nextafter(exact, way * np.array(np.inf, exact.dtype))
            ).astype(np.float64)
        return next((v for v in near.tolist() if (v - bound) * way >= 0), bound)

    def may_become(self) -> Mask:
        """For each encoded column of a category: may an answer move to that level?"""
        allowed = self.allowed or self.levels
        return np.array([level in allowed for level in self.levels] + [False] * self.missing)

    # ---- table <-> numbers: see `holdfast.schema.columns`

    def numbers(self, column: "pd.Series[Any]") -> Array:
        """The column as one number per row, checked: values (NaN where missing), ranks, or level
        positions."""
        return columns.numbers(self, column)

    def values(self, numbers: Array, like: "pd.Series[Any] | None") -> "pd.Series[Any]":
        """One number per row (see `numbers`) -> a column of the table, with the dtype of `like`, or
        a wider one where that cannot hold them (2.5 among integers, a level that its categories do
        not list)."""
        return columns.values(self, numbers, like)

    def replaced(self, column: "pd.Series[Any]", rows: Any, numbers: Array) -> "pd.Series[Any]":
        """The column with other numbers in some rows, by position; every other cell as it was to
        the last bit."""
        return columns.replaced(self, column, rows, numbers)

    def held(self, column: "pd.Series[Any]") -> "pd.Series[Any]":
        """The column in the dtype of the table that the schema was read off; as it is, where that
        cannot hold it, and where it would make numbers of strings."""
        return columns.held(self, column)

    @property
    def has_levels_of_pandas(self) -> bool:
        """Did the table hold it as a category? Some models know levels by their place in its
        list."""
        return columns.CATEGORY.fullmatch(self.dtype) is not None
