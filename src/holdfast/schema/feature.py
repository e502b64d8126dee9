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
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from holdfast._core.checks import did_you_mean, listed
from holdfast.errors import SchemaError

Kind = Literal["real", "integer", "boolean", "ordered", "category", "date"]
Change = Literal["free", "fixed", "up", "down"]
Level = str | int | float | bool
Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

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
        bounds: the lowest and the highest value of an answer.
        levels: of a category, or of an ordered one from the lowest to the highest.
        allowed: the levels that an answer may have; none: all of them.
        missing: may a value be missing? An answer may leave it so or fill it in.
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
        self._need(self.kind in KINDS, f"kind {self.kind!r} is not one of {listed(KINDS)}")
        self._need(
            self.change in CHANGES, f"change {self.change!r} is not one of {listed(CHANGES)}"
        )
        for name, (low, high) in (("bounds", self.bounds), ("seen", self.seen)):
            self._need(not (math.isnan(low) or math.isnan(high)), f"{name} hold a missing number")
            self._need(
                low <= high, f"{name} {(low, high)} are empty: the lower one is above the upper one"
            )
        self._need(
            math.isfinite(self.scale) and self.scale > 0,
            f"scale must be positive, got {self.scale}",
        )
        self._need(math.isfinite(self.center), f"center must be a number, got {self.center}")
        self._need(
            self.weight >= 0 and math.isfinite(self.weight),
            f"weight must be >= 0, got {self.weight}",
        )
        self._need(
            self.step >= 0 and math.isfinite(self.step), f"step must be >= 0, got {self.step}"
        )
        self._need(
            self.step == 0 or self.kind in ("real", "integer"), f"kind {self.kind!r} has no steps"
        )
        self._need(
            self.kind == "real" or self.step == round(self.step),
            f"{self.step} is no step of integers",
        )
        if self.kind == "date":
            fix = (
                "keep it 'fixed' and without bounds, or make a number of it, such as the days "
                "since then"
            )
            unchanged = self.change == "fixed" and self.bounds == (-math.inf, math.inf)
            self._need(unchanged, f"no answer changes a date; {fix}")
        if self.kind in ("ordered", "category"):
            self._need(len(self.levels) > 0, f"kind {self.kind!r} needs its levels")
            self._need(
                not any(_is_missing(v) for v in self.levels),
                "a missing value is no level; set missing = true",
            )
            self._need(len(set(self.levels)) == len(self.levels), "a level appears twice")
            unknown = [a for a in self.allowed if a not in self.levels]
            self._need(not unknown, f"allowed level {listed(unknown)} is not among the levels")
            self._need(
                self.bounds == (-math.inf, math.inf),
                "has levels, so `allowed` limits it, not bounds",
            )
        else:
            self._need(not self.levels and not self.allowed, f"kind {self.kind!r} has no levels")
        if self.kind == "category":
            one_way = self.change in ("up", "down")
            self._need(
                not one_way, f"change {self.change!r} needs an order; make it kind 'ordered'"
            )
        elif self.kind in ("boolean", "ordered"):
            self._need(
                not self.missing, f"kind {self.kind!r} cannot hold missing values; use 'category'"
            )
        if self.kind == "ordered" and self.allowed:
            ranks = sorted(self.levels.index(a) for a in self.allowed)
            whole = ranks == list(range(ranks[0], ranks[-1] + 1))
            self._need(whole, "allowed levels leave a gap; make it kind 'category' to allow a gap")
        low, high = self.limits
        self._need(low <= high, f"no value that the column can hold lies in {self.bounds}")

    def _need(self, holds: bool, message: str) -> None:
        if not holds:
            raise SchemaError(f"feature {self.name!r}: {message}")

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
        """The numpy dtype in which the table holds the numbers."""
        if self.kind not in ("real", "integer"):
            return np.dtype(np.float64)
        try:
            dtype: Any = pd.api.types.pandas_dtype(self.dtype or "float64")
        except TypeError:
            raise SchemaError(
                f"feature {self.name!r}: pandas knows no dtype {self.dtype!r}"
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
        """Does the table hold its numbers with fewer digits than they are calculated with?"""
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
        """The lowest and the highest number the column can hold at all: 0 to 1, ranks, what fits
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

    # ---- table -> numbers

    def numbers(self, column: "pd.Series[Any]") -> Array:
        """The column as one number per row, checked: values (NaN where missing), ranks, or level
        positions."""
        if self.kind in ("ordered", "category"):
            return self._positions(column)
        if self.kind == "date":
            return self._seconds(column)
        wanted = "True/False" if self.kind == "boolean" else "numbers"
        dtype = column.dtype
        types = pd.api.types
        if not (
            types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype)
        ) or types.is_complex_dtype(dtype):
            found = f"{dtype} (such as {next((v for v in column if not _is_missing(v)), None)!r})"
            fix = "convert it, or declare it a category"
            raise SchemaError(
                f"column {self.name!r} should hold {wanted}, but it is {found}; {fix}"
            )
        values: Array = column.to_numpy(dtype=np.float64, na_value=np.nan)
        fix = "fill them in or drop those rows"
        if self.kind == "boolean":
            self._refuse(np.isnan(values), "missing values", fix)
        else:
            self._refuse_missing(np.isnan(values), "missing numbers")
        self._refuse(np.isinf(values), "infinite values", fix)
        if self.kind == "boolean":
            self._refuse(
                ~np.isin(values, (0, 1)), "values that are neither True nor False", "recode them"
            )
        if self.kind == "integer":
            broken = differ(values, np.round(values))
            self._refuse(broken, "values that are not integers", "round them or declare it real")
        return values

    def _seconds(self, column: "pd.Series[Any]") -> Array:
        """Dates as seconds since 1970, UTC."""
        dates = pd.api.types.is_datetime64_any_dtype(column.dtype)
        fix = "convert it with pd.to_datetime"
        if not dates:
            raise SchemaError(
                f"column {self.name!r} should hold dates, but it is {column.dtype}; {fix}"
            )
        self._refuse_missing(column.isna().to_numpy(), "missing dates")
        return (column.to_numpy("datetime64[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "s")

    def _positions(self, column: "pd.Series[Any]") -> Array:
        index = pd.Index(list(self.levels), dtype=object)
        values = column.astype(object)
        missing: Mask = column.isna().to_numpy()
        try:
            positions = np.where(missing, len(self.levels), index.get_indexer(cast(Any, values)))
        except TypeError:  # lists and the like have no hash
            raise SchemaError(
                f"column {self.name!r} holds lists or records; levels are strings or numbers"
            ) from None
        if not self.missing:
            self._refuse(
                missing,
                "missing values",
                "fill them in, or infer the schema from data that has some too",
            )
        unknown = positions < 0
        if unknown.any():
            names = listed(dict.fromkeys(values[unknown]))
            advice = did_you_mean(values[unknown].iloc[0], self.levels)
            raise SchemaError(
                f"column {self.name!r} has {int(unknown.sum())} unknown level(s): {names}; {advice}"
            )
        return positions.astype(np.float64)

    def _refuse_missing(self, missing: Mask, what: str) -> None:
        if not self.missing:
            change = f"**{{{self.name!r}: {{'missing': True}}}}"
            allow = (
                "infer the schema from data that has gaps too, or allow them: "
                f"schema.change({change})"
            )
            self._refuse(
                missing, what, f"fill them in or drop those rows; if they belong there, {allow}"
            )

    def _refuse(self, bad: Mask, what: str, fix: str) -> None:
        if bad.any():
            first = int(np.argmax(bad))
            raise SchemaError(
                f"column {self.name!r} has {int(bad.sum())} {what} (first at row {first}); {fix}"
            )

    # ---- numbers -> table

    def values(self, numbers: Array, like: "pd.Series[Any] | None") -> "pd.Series[Any]":
        """One number per row (see `numbers`) -> a column of the table, with the dtype of `like`, or
        a wider one where that cannot hold them (2.5 among integers, a level that its categories do
        not list)."""
        dtype: Any = like.dtype if like is not None else self._own_dtype()
        if self.kind in ("ordered", "category"):
            known = np.array([*self.levels, None], dtype=object)
            column = pd.Series(known[numbers.astype(np.int64)], dtype=object)
            if isinstance(dtype, pd.CategoricalDtype):
                strange = [v for v in dict.fromkeys(column.dropna()) if v not in dtype.categories]
                if strange:
                    dtype = pd.CategoricalDtype(
                        [*dtype.categories, *strange], ordered=dtype.ordered
                    )
            return _as_dtype(column, dtype)
        if self.kind == "boolean":
            return _as_dtype(pd.Series(numbers.astype(bool)), dtype)
        if self.kind == "date":  # to the second: a model may ask for the day of the week
            missing = np.isnan(numbers)
            seconds = np.round(np.where(missing, 0, numbers)).astype(np.int64)
            # not by pd.to_datetime, which in pandas 2 ends in 2262
            dates: Any = pd.Series(seconds.astype("datetime64[s]")).mask(missing)
            zoned = isinstance(dtype, pd.DatetimeTZDtype)
            return (dates.dt.tz_localize("UTC") if zoned else dates).astype(dtype)
        if dtype in ("float64", np.float64):
            return pd.Series(numbers)
        column = _as_dtype(pd.Series(numbers), dtype)
        return (
            _as_dtype(column, np.dtype(np.int64))
            if self.kind == "integer" and column.dtype != dtype
            else column
        )

    def replaced(self, column: "pd.Series[Any]", rows: Any, numbers: Array) -> "pd.Series[Any]":
        """The column with other numbers in some rows, by position; every other cell as it was to
        the last bit."""
        if isinstance(column.dtype, np.dtype) and column.dtype.kind == "f":
            held: Any = column.to_numpy(copy=True)
            held[rows] = numbers
            return pd.Series(held, index=column.index)
        new = self.values(numbers, column)
        wide: Any = cast(Any, column).astype(new.dtype).copy()  # wider where `new` had to be
        wide.iloc[rows] = new.array
        return wide

    def held(self, column: "pd.Series[Any]") -> "pd.Series[Any]":
        """The column in the dtype of the table that the schema was read off; as it is, where that
        cannot hold it, and where it would make numbers of strings."""
        if self.kind == "date":
            return self._dates(column)
        if not self.dtype or not (self.levels or pd.api.types.is_numeric_dtype(column.dtype)):
            return column
        dtype = self._own_dtype()
        strange = (
            isinstance(dtype, pd.CategoricalDtype)
            and not column.dropna().isin(dtype.categories).all()
        )
        return column if strange or column.dtype == dtype else _as_dtype(column, dtype)

    def _dates(self, column: "pd.Series[Any]") -> "pd.Series[Any]":
        """Strings such as '2024-03-01' or '2024-03-01T12:30:00' as dates."""
        dtype = self._own_dtype()
        if pd.api.types.is_numeric_dtype(column.dtype) and not column.isna().all():
            return column
        try:
            dates: Any = pd.to_datetime(
                column, utc=isinstance(dtype, pd.DatetimeTZDtype), format="ISO8601"
            )
            return dates if dates.dtype == dtype else dates.astype(dtype)
        except (TypeError, ValueError, OverflowError):
            # pandas 2 reads through nanoseconds, which end in 2262; dates need no reading
            values = column.dropna().tolist()
            are_dates = all(isinstance(value, pd.Timestamp) for value in values)
            late = cast("pd.Series[Any]", column.astype(dtype)) if are_dates else column
            return late

    @property
    def has_levels_of_pandas(self) -> bool:
        """Did the table hold it as a category? Some models know levels by their place in its
        list."""
        return _CATEGORY.fullmatch(self.dtype) is not None

    def _own_dtype(self) -> Any:
        category = _CATEGORY.fullmatch(self.dtype)
        if category:
            index = pd.Index(list(self.levels), dtype=category["held"])
            return pd.CategoricalDtype(index, ordered=category["ordered"] is not None)
        if self.kind == "date":
            return pd.api.types.pandas_dtype(self.dtype or "datetime64[ns]")
        return self.dtype or {"integer": "int64", "boolean": "bool", "real": "float64"}.get(
            self.kind, "object"
        )


_CATEGORY = re.compile(r"(?P<ordered>ordered )?category(?:\[(?P<held>.+)\])?")


def dtype_name(column: "pd.Series[Any]") -> str:
    """How the table holds a column, as a string: 'int8', 'category', 'ordered category',
    'category[int8]'."""
    dtype = column.dtype
    if not isinstance(dtype, pd.CategoricalDtype):
        return str(dtype)
    usual = pd.Index(dtype.categories.tolist()).dtype == dtype.categories.dtype
    return (
        ("ordered " if dtype.ordered else "")
        + "category"
        + ("" if usual else f"[{dtype.categories.dtype}]")
    )


def _as_dtype(values: "pd.Series[Any]", dtype: Any) -> "pd.Series[Any]":
    """The values in that dtype, or as they are where it cannot hold them; floats may round."""
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            held = cast("pd.Series[Any]", cast(Any, values).astype(dtype))
    except (TypeError, ValueError, OverflowError):
        return values
    if values.dtype != object and pd.api.types.is_float_dtype(held.dtype):
        return held
    known = values.notna()
    same: Any = cast(Any, held[known]).astype(object) == values[known]
    return held if bool(same.all()) else values


def differ(a: Array, b: Array) -> Mask:
    """Which numbers differ? Two that are missing do not."""
    return (a != b) & ~(np.isnan(a) & np.isnan(b))


def column_names(frame: pd.DataFrame) -> list[str]:
    """The names of a table's columns, which must be strings and all different."""
    fix = (
        "; one row of a table is X.loc[[i]], with two brackets"
        if isinstance(frame, pd.Series)
        else ""
    )
    got = f"{type(cast(object, frame)).__name__}{fix}"
    if not isinstance(frame, pd.DataFrame):
        raise SchemaError(f"expected a pandas DataFrame, got {got}")
    names: list[Any] = list(frame.columns)
    strange = [name for name in names if not isinstance(name, str)]
    fix = "rename them, for example with frame.columns = frame.columns.map(str)"
    if strange:
        raise SchemaError(
            f"{len(strange)} column name(s) are not strings: {listed(strange)}; {fix}"
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


def _is_missing(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


# a number or a column
_FACTOR = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))|`([^`]+)`|([^\W\d]\w*)")
_TERM = re.compile(rf"\s*([-+]?)\s*((?:{_FACTOR.pattern})(?:\s*\*\s*(?:{_FACTOR.pattern}))*)\s*")
_COMPARE = re.compile(r"(<=|>=)(?=(?:[^`]*`[^`]*`)*[^`]*$)")  # outside backticks


@dataclass(frozen=True)
class Rule:
    """A linear rule between columns, sum of weight x value <= bound, in the user's units.

    Args:
        text: the rule as it was written.
        weights: of the columns.
        bound: what the weighted sum may not exceed.

    >>> import holdfast as hf
    >>> rule = hf.Rule.parse("2 * open_accounts <= total_accounts + 3")
    >>> dict(rule.weights), rule.bound
    ({'open_accounts': 2.0, 'total_accounts': -1.0}, 3.0)
    """

    text: str
    weights: Mapping[str, float] = field(compare=False)
    bound: float = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Read a rule such as 'open_accounts <= total_accounts' or '2 * a - `b c` >= -3'."""
        text = text.strip()

        def need(holds: object, why: str) -> None:
            example = "write it like 'open_accounts <= total_accounts' or '2 * a - `b c` >= -3'"
            if not bool(holds):
                raise SchemaError(f"rule {text!r}: {why}; {example}")

        sides = _COMPARE.split(text)  # left, comparison, right
        need(len(sides) == 3, "it needs one comparison, <= or >=")
        flip = 1.0 if sides[1] == "<=" else -1.0
        weights = {"": 0.0}  # of each column; of none: the constants
        for side, rest in ((flip, sides[0]), (-flip, sides[2])):
            first = True
            while first or rest:
                term = _TERM.match(rest)
                why = f"cannot read {rest.strip()!r}" if rest.strip() else "one side is empty"
                need(term and (first or term[1]), why)
                assert term is not None
                weight = -side if term[1] == "-" else side
                columns = [""]
                for number, quoted, name in _FACTOR.findall(term[2]):
                    weight *= float(number or 1)
                    columns += [quoted or name] if quoted or name else []
                need(len(columns) <= 2, "it multiplies two columns")
                weights[columns[-1]] = weights.get(columns[-1], 0.0) + weight
                first = False
                rest = rest[term.end() :]
        bound = 0.0 - weights.pop("")
        weights = {name: w for name, w in weights.items() if w}
        need(weights, "it needs at least one column")
        need(all(map(math.isfinite, (bound, *weights.values()))), "its numbers are too large")
        return cls(text, weights, bound)
