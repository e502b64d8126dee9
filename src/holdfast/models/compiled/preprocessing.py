"""What an estimator at the end of a pipeline sees: each of its inputs as a function of one column
of the table.

The transformers known here (scalers, encoders, imputers, and pipelines of them) treat one column at
a time. So an input is

    of a column of numbers:   a chain of the same floating-point steps, all rising, in the same
                              precision; handing in a missing number shows what one becomes
    of a column of levels:    a table with one value for each level (a missing one is a level too)

Anything that mixes columns, or is not on the list, is refused with the reason.
"""

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from holdfast._core.types import Array
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema

Step = tuple[Callable[..., Any], tuple[Any, ...]]


class RefusedError(Exception):
    """A model cannot be compiled; the text says why."""


@dataclass(frozen=True)
class Raw:
    """One column as the model gets it; `at` says which encoded columns hold it."""

    name: str
    at: slice
    feature: Feature | None  # None: the model gets the encoded column itself
    levels: "pd.Series[Any] | None"  # what the model sees for each level; None for numbers
    # does the model get the table itself, or decoded rows?
    by_table: bool = True

    @staticmethod
    def all_of(
        schema: Schema, encoded: bool, by_table: bool = True, never_missing: Collection[str] = ()
    ) -> "list[Raw]":
        if encoded:
            return [Raw(name, slice(i, i + 1), None, None) for i, name in enumerate(schema.columns)]
        features = zip(schema.without_gaps(never_missing).features, schema.slices, strict=True)
        return [
            Raw(f.name, slice(s.start, s.start + f.width), f, _levels(f), by_table)
            for f, s in features
        ]

    @property
    def indicator(self) -> int | None:
        """The encoded column that is 1 where the number is missing, if it may be."""
        return self.at.stop - 1 if self.feature is not None and self.feature.has_gaps else None

    @property
    def affine(self) -> tuple[float, float]:
        """value = a * encoded + b, for all but categories."""
        return (1.0, 0.0) if self.feature is None else (self.feature.scale, self.feature.center)

    def decoded(self, x: Array) -> Array:
        """(n,) encoded -> numbers or ranks as the table holds them, by the arithmetic of
        `Schema.decode`."""
        f = self.feature
        if f is None:
            return x
        values = x * f.scale + f.center
        return f.stored(np.clip(np.round(values), *f.holds) if f.kind != "real" else values)

    def held(self, columns: Array) -> Array:
        """(n,) from encoded columns (d, n), the numbers as the table holds them, NaN where they are
        missing."""
        values = self.decoded(columns[self.at.start])
        return (
            values
            if self.indicator is None
            else np.where(columns[self.indicator] > 0.5, np.nan, values)
        )


def _levels(f: Feature) -> "pd.Series[Any] | None":
    count = 2 if f.kind == "boolean" else len(f.levels) + f.missing
    return (
        None
        if f.kind in ("real", "integer")
        else f.values(np.arange(count, dtype=np.float64), None)
    )


@dataclass(frozen=True)
class Column:
    """One input of the estimator."""

    raw: int  # which column of the table it comes from, and
    table: "pd.Series[Any] | None"  # its value for each level or, for numbers,
    steps: tuple[Step, ...] = ()  # what was done to it

    def then(self, f: Callable[..., Any], *constants: Any) -> "Column":
        return replace(self, steps=(*self.steps, (f, constants)))

    def number(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(n,) numbers of the table -> values of the input."""
        out: Any = values
        for f, constants in self.steps:
            out = f(out, *constants)
        return out

    @property
    def of_missing(self) -> float:
        """What a missing number becomes; NaN if it reaches the model."""
        return float(self.number(np.array([np.nan]))[0])

    @property
    def affine(self) -> tuple[float, float]:
        """The chain of steps as value = a * number + b, within the `span`."""
        a = 1.0
        b = 0.0
        for f, constants in self.steps:
            c = float(constants[0]) if f is not np.asarray else 0.0
            if f in (np.subtract, np.add):
                b = f(b, c)
            elif f in (np.multiply, np.divide):
                a = f(a, c)
                b = f(b, c)
        return float(a), float(b)

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest value: those of a scaler that clips, else
        infinite."""
        low, high = self.number(np.array([-np.inf, np.inf]))
        return float(low), float(high)

    @property
    def levels(self) -> int:
        """How many there are; none for a number."""
        return 0 if self.table is None else len(self.table)

    def values(self) -> Array:
        """(levels,) the table as floats, missing ones as NaN."""
        assert self.table is not None
        table = self.table.astype(object)
        try:
            return np.array(table.where(table.notna(), np.nan).tolist(), dtype=np.float64)
        except (TypeError, ValueError):
            raise RefusedError("a string reaches the model without an encoder") from None


@dataclass(frozen=True)
class StepColumns:
    """The columns between two steps of a pipeline, and a few rows as scikit-learn has them, which
    decide last digits."""

    columns: list[Column]
    rows: Any

    @property
    def is_sparse(self) -> bool:
        return hasattr(self.rows, "tocsr")

    def part(self, at: list[int], names: list[str]) -> "StepColumns":
        """Some of the columns; a frame's go by their names."""
        rows = (
            self.rows[[names[i] for i in at]]
            if isinstance(self.rows, pd.DataFrame)
            else self.rows[:, at]
        )
        return StepColumns([self.columns[i] for i in at], rows)


def precision(rows: Any) -> Any:
    """Single if every column has it, else double, which is used for all other kinds of
    numbers."""
    held = list(rows.dtypes) if isinstance(rows, pd.DataFrame) else [rows.dtype]
    return np.dtype(np.float32 if all(dtype == np.float32 for dtype in held) else np.float64)


def type_name(thing: Any) -> str:
    """'sklearn.Pipeline': the library, known from the class's module, and the name of the
    class."""
    return f"{type(thing).__module__.partition('.')[0]}.{type(thing).__name__}"


def is_passed(step: Any) -> bool:
    """Is it a step of a pipeline that does nothing?"""
    return step is None or (isinstance(step, str) and step == "passthrough")


def through(step: Any, block: StepColumns) -> StepColumns:
    """The columns behind a fitted transformer."""
    if is_passed(step):
        return block
    kind = type_name(step)
    if kind not in STEPS:
        raise RefusedError(f"{kind.partition('.')[2]} in its pipeline cannot be compiled")
    rows = _transformed(step, block.rows)
    return StepColumns(STEPS[kind](step, block, rows), rows)


def _transformed(step: Any, rows: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about unknown levels, which it then treats as set
        return step.transform(rows)


def _pipeline(step: Any, block: StepColumns, _: Any) -> list[Column]:
    for _, inner in step.steps:
        block = through(inner, block)
    return block.columns


def _column_transformer(step: Any, block: StepColumns, _: Any) -> list[Column]:
    if step.transformer_weights:
        raise RefusedError("a ColumnTransformer with transformer_weights cannot be compiled")
    names = [str(n) for n in getattr(step, "feature_names_in_", [])]
    out: list[Column | None] = [None] * max(
        (s.stop for s in step.output_indices_.values()), default=0
    )
    for name, inner, chosen in step.transformers_:
        at = positions(chosen, names, len(block.columns))
        if not at or (isinstance(inner, str) and inner == "drop"):
            continue
        made = through(inner, block.part(at, names)).columns
        place = step.output_indices_[name]
        if place.stop - place.start != len(made):
            raise RefusedError(
                f"the part {name!r} of its ColumnTransformer makes another number of columns"
            )
        out[place] = made
    if any(c is None for c in out):
        raise RefusedError("its ColumnTransformer makes columns of unknown origin")
    return cast(list[Column], out)


def positions(chosen: Any, names: list[str], width: int) -> list[int]:
    """The columns given to a part of a ColumnTransformer, by name or by place."""
    if isinstance(chosen, str | int | np.integer):
        chosen = [chosen]
    if isinstance(chosen, slice):
        named = cast(Any, chosen)
        first = names.index(named.start) if isinstance(named.start, str) else named.start
        last = names.index(named.stop) if isinstance(named.stop, str) else named.stop
        return list(range(width))[
            first : last + 1 if isinstance(named.stop, str) else last : named.step
        ]
    chosen = list(chosen)
    if chosen and all(isinstance(c, bool | np.bool_) for c in chosen):
        return [i for i, c in enumerate(chosen) if c]
    return [names.index(str(c)) if isinstance(c, str) else int(c) % width for c in chosen]


def _scaled(
    block: StepColumns, rows: Any, *parts: tuple[Any, Any], early: bool = False
) -> list[Column]:
    """Columns after `block = f(block, constants)` for each of the parts, in scikit-learn's
    precision, to which the constants are first brought if `early`."""
    out = list[Column]()
    dtype = precision(rows)
    for j, column in enumerate(block.columns):
        c = column.then(np.asarray, dtype)
        for f, constants in parts:
            if constants is None:
                continue
            picked = [
                np.asarray(v)[j] if np.ndim(v) else v
                for v in (constants if f is np.clip else (constants,))
            ]
            if dtype == np.float32:
                picked = [np.float32(v) if early or f is np.clip else np.float64(v) for v in picked]
            if f in (np.multiply, np.divide) and not picked[0] > 0:
                raise RefusedError("a scaler that turns a column around cannot be compiled")
            c = c.then(f, *picked)
            c = c.then(np.asarray, dtype) if dtype == np.float32 and not early else c
        if column.table is not None:
            scaled = replace(c, steps=c.steps[len(column.steps) :])
            c = replace(column, table=pd.Series(scaled.number(column.values())))
        out.append(c)
    return out


def _over(scale: Any, block: StepColumns) -> tuple[Any, Any]:
    """Division by the scale; sparse columns are multiplied by its inverse, so the last digit may
    differ."""
    return (
        (np.multiply, 1.0 / scale) if scale is not None and block.is_sparse else (np.divide, scale)
    )


def _standard(step: Any, block: StepColumns, rows: Any) -> list[Column]:
    mean = step.mean_ if step.with_mean else None
    scale = step.scale_ if step.with_std else None
    return _scaled(block, rows, (np.subtract, mean), _over(scale, block), early=not block.is_sparse)


def _robust(step: Any, block: StepColumns, rows: Any) -> list[Column]:
    center = step.center_ if step.with_centering else None
    scale = step.scale_ if step.with_scaling else None
    return _scaled(block, rows, (np.subtract, center), _over(scale, block))


def _minmax(step: Any, block: StepColumns, rows: Any) -> list[Column]:
    clip = step.feature_range if step.clip else None
    return _scaled(block, rows, (np.multiply, step.scale_), (np.add, step.min_), (np.clip, clip))


def _maxabs(step: Any, block: StepColumns, rows: Any) -> list[Column]:
    clip = (-1.0, 1.0) if getattr(step, "clip", False) else None
    return _scaled(block, rows, _over(step.scale_, block), (np.clip, clip))


def _of_levels(step: Any, block: StepColumns) -> npt.NDArray[Any]:
    """What the step itself makes of every level: row i has the i-th level of each column, starting
    again if it has fewer, and some numbers in the other columns."""
    tables = [
        c.table if c.table is not None else _numbers(block, j) for j, c in enumerate(block.columns)
    ]
    count = max(len(t) for t in tables)
    cells = [t.take((np.arange(count) % len(t)).tolist()).reset_index(drop=True) for t in tables]
    rows: Any = pd.concat(cells, axis=1)
    if isinstance(block.rows, pd.DataFrame):
        rows.columns = block.rows.columns
    else:
        rows = rows.to_numpy(dtype=block.rows.dtype if block.rows.dtype.kind in "biuf" else object)
    try:
        made = _transformed(step, rows)
    except Exception as error:
        raise RefusedError(
            f"{type(step).__name__} does not know all levels of the schema: {error}"
        ) from None
    return np.asarray(made.toarray() if hasattr(made, "toarray") else made)


def _numbers(block: StepColumns, j: int) -> "pd.Series[Any]":
    if isinstance(block.rows, pd.DataFrame):
        return block.rows.iloc[:, j]
    return pd.Series(
        (block.rows[:, [j]].toarray() if block.is_sparse else block.rows[:, j]).ravel()
    )


def _encoder(step: Any, block: StepColumns, _: Any) -> list[Column]:
    numbers = any(c.table is None for c in block.columns)
    columns = block.columns
    if numbers:
        raise RefusedError(
            "it encodes a column of numbers level by level; declare that column a category"
        )
    made = _of_levels(step, block)
    one_each = [1] * len(columns)
    counts = getattr(step, "_n_features_outs", one_each) if hasattr(step, "drop_idx_") else one_each
    owner = np.repeat(np.arange(len(columns)), counts)
    if len(owner) != made.shape[1]:
        raise RefusedError(f"{type(step).__name__} makes another number of columns than it says")
    of = [columns[i] for i in owner.tolist()]
    return [replace(c, table=pd.Series(made[: c.levels, j])) for j, c in enumerate(of)]


def _imputer(step: Any, block: StepColumns, rows: Any) -> list[Column]:
    if step.add_indicator:
        raise RefusedError("SimpleImputer with add_indicator cannot be compiled")
    fill: list[Any] = list(step.statistics_)
    drops = step.strategy != "constant" and bool(pd.Series(fill).isna().any())
    if not pd.isna(step.missing_values) or drops:
        raise RefusedError(
            "SimpleImputer that replaces a value, or drops a column, cannot be compiled"
        )
    fill = [np.float32(v) for v in fill] if precision(rows) == np.float32 else fill
    made = _of_levels(step, block)
    tables = [pd.Series(made[: c.levels, j]) for j, c in enumerate(block.columns)]
    each = zip(block.columns, fill, tables, strict=True)
    return [
        c.then(impute, v) if c.table is None else replace(c, table=table) for c, v, table in each
    ]


def impute(values: npt.NDArray[Any], fill: Any) -> npt.NDArray[Any]:
    """Numbers with those that are missing filled in."""
    return np.where(np.isnan(values), np.float64(fill), values)


def _function(step: Any, block: StepColumns, _: Any) -> list[Column]:
    run: Any = step.func
    # the one of gradient boosting
    checks = isinstance(run, partial) and cast(Any, run).func.__name__ == "check_array"
    if cast(Any, run) is not None and not checks:
        raise RefusedError(
            "FunctionTransformer runs a function of your own, which cannot be compiled"
        )
    return block.columns


def _selector(step: Any, block: StepColumns, _: Any) -> list[Column]:
    return [c for c, kept in zip(block.columns, step.get_support(), strict=True) if kept]


# (a fitted step, its input, the rows it made of that) -> the columns it makes
STEPS: dict[str, Callable[[Any, StepColumns, Any], list[Column]]] = {
    "sklearn.Pipeline": _pipeline,
    "sklearn.ColumnTransformer": _column_transformer,
    "sklearn.StandardScaler": _standard,
    "sklearn.MinMaxScaler": _minmax,
    "sklearn.MaxAbsScaler": _maxabs,
    "sklearn.RobustScaler": _robust,
    "sklearn.OneHotEncoder": _encoder,
    "sklearn.OrdinalEncoder": _encoder,
    "sklearn.SimpleImputer": _imputer,
    "sklearn.FunctionTransformer": _function,
    "sklearn.FrozenEstimator": lambda step, block, _: through(step.estimator, block).columns,
    "sklearn.VarianceThreshold": _selector,
    "sklearn.SelectKBest": _selector,
    "sklearn.SelectPercentile": _selector,
}
