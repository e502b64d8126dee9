"""What an estimator at the end of a pipeline sees: each of its inputs as a function of one column of the table.

The transformers known here (scalers, encoders, imputers, and pipelines of them) treat one column at a time. So an
input is

    of a column of numbers:   a chain of the same floating-point steps, all rising, in the same precision; what a
                              missing number becomes, it is asked too
    of a column of levels:    a table with one value for each level (a missing one is a level too)

Anything that mixes columns, or that is not on the list, is refused with the reason.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from holdfast.feature import Array, Feature
from holdfast.schema import Schema

Step = tuple[Callable[..., Any], tuple[Any, ...]]


class RefusedError(Exception):
    """A model has no exact copy; the text says why."""


@dataclass(frozen=True)
class Raw:
    """One column as the model is handed it: `at` says which encoded columns hold it."""

    name: str
    at: slice
    feature: Feature | None  # None: the model is handed the encoded column itself
    levels: "pd.Series[Any] | None"  # what the model sees for each level; None for numbers

    @staticmethod
    def all_of(schema: Schema, encoded: bool) -> "list[Raw]":
        if encoded:
            return [Raw(name, slice(i, i + 1), None, None) for i, name in enumerate(schema.columns)]
        return [Raw(f.name, s, f, _levels(f)) for f, s in zip(schema.features, schema.slices, strict=True)]

    @property
    def says(self) -> int | None:
        """The encoded column that says whether the number is missing, if it may be."""
        return self.at.stop - 1 if self.feature is not None and self.feature.has_gaps else None

    @property
    def dtype(self) -> Any:
        if self.feature is not None and self.feature.kind == "boolean":
            return np.dtype(np.bool_)
        return np.dtype(np.float64) if self.feature is None else self.feature.storage

    @property
    def affine(self) -> tuple[float, float]:
        """value = a * encoded + b, for all but categories."""
        return (1.0, 0.0) if self.feature is None else (self.feature.scale, self.feature.center)

    def decoded(self, x: Array) -> Array:
        """(n,) encoded -> numbers or ranks as the table holds them; the same arithmetic as `Schema.decode`."""
        f = self.feature
        if f is None:
            return x
        values = x * f.scale + f.center
        return f.stored(np.clip(np.round(values), *f.holds) if f.kind != "real" else values)


def _levels(f: Feature) -> "pd.Series[Any] | None":
    if f.kind in ("real", "integer"):
        return None
    count = 2 if f.kind == "boolean" else len(f.levels) + f.missing
    return f.values(np.arange(count, dtype=np.float64), None)


@dataclass(frozen=True)
class Column:
    """One input of the estimator."""

    raw: int  # of which column of the table, and
    table: "pd.Series[Any] | None"  # its value for each level, or, of numbers,
    dtype: Any  # the precision it is held in, and
    steps: tuple[Step, ...] = ()  # what was done to it
    sparse: bool = False  # is it part of a sparse matrix?

    def then(self, f: Callable[..., Any], *constants: Any) -> "Column":
        return replace(self, steps=(*self.steps, (f, constants)))

    def cast(self, dtype: Any) -> "Column":
        return replace(self, dtype=np.dtype(dtype)).then(np.asarray, dtype)

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
        a, b = 1.0, 0.0
        for f, constants in self.steps:
            c = float(constants[0]) if f is not np.asarray else 0.0
            if f is np.subtract or f is np.add:
                b += c if f is np.add else -c
            elif f is np.multiply or f is np.divide:
                a, b = (a * c, b * c) if f is np.multiply else (a / c, b / c)
        return a, b

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest value: those of a scaler that clips, else there is no end to them."""
        low, high = self.number(np.array([-np.inf, np.inf]))
        return float(low), float(high)

    def values(self) -> Array:
        """(levels,) the table as floats, missing ones as NaN."""
        assert self.table is not None
        try:
            return np.array(self.table.astype(object).tolist(), dtype=np.float64)
        except (TypeError, ValueError):
            raise RefusedError("a text reaches the model without an encoder") from None


def raw_columns(raws: Sequence[Raw]) -> list[Column]:
    """The table itself."""
    return [Column(i, r.levels, r.dtype) for i, r in enumerate(raws)]


def kind_of(thing: Any) -> str:
    """'sklearn.Pipeline': the library, told from where the class lives, and the name of the class."""
    return f"{type(thing).__module__.partition('.')[0]}.{type(thing).__name__}"


# ---- transformers


def is_passed(step: Any) -> bool:
    """Is it a step of a pipeline that does nothing?"""
    return step is None or (isinstance(step, str) and step == "passthrough")


def through(step: Any, columns: list[Column]) -> list[Column]:
    """The columns behind a fitted transformer."""
    if is_passed(step):
        return columns
    kind = kind_of(step)
    if kind not in STEPS:
        raise RefusedError(f"{kind.partition('.')[2]} in its pipeline has no exact copy")
    return STEPS[kind](step, columns)


def _pipeline(step: Any, columns: list[Column]) -> list[Column]:
    for _, inner in step.steps:
        columns = through(inner, columns)
    return columns


def _column_transformer(step: Any, columns: list[Column]) -> list[Column]:
    if step.transformer_weights:
        raise RefusedError("a ColumnTransformer with transformer_weights has no exact copy")
    names = [str(n) for n in getattr(step, "feature_names_in_", [])]
    width = max((s.stop for s in step.output_indices_.values()), default=0)
    out: list[Column | None] = [None] * width
    for name, inner, chosen in step.transformers_:
        at = positions(chosen, names, len(columns))
        if not at or (isinstance(inner, str) and inner == "drop"):
            continue
        made = through(inner, [columns[i] for i in at])
        place = step.output_indices_[name]
        if place.stop - place.start != len(made):
            raise RefusedError(f"the part {name!r} of its ColumnTransformer makes another number of columns")
        out[place] = made
    if any(c is None for c in out):
        raise RefusedError("its ColumnTransformer makes columns of unknown origin")
    return [replace(c, sparse=bool(step.sparse_output_)) for c in cast(list[Column], out)]


def positions(chosen: Any, names: list[str], width: int) -> list[int]:
    """The columns that a part of a ColumnTransformer was given, by name or by place."""
    if isinstance(chosen, str | int | np.integer):
        chosen = [chosen]
    if isinstance(chosen, slice):
        named = cast(Any, chosen)
        first, last = (names.index(e) if isinstance(e, str) else e for e in (named.start, named.stop))
        return list(range(width))[first : last + 1 if isinstance(named.stop, str) else last : named.step]
    chosen = list(chosen)
    if chosen and all(isinstance(c, bool | np.bool_) for c in chosen):
        return [i for i, c in enumerate(chosen) if c]
    return [names.index(str(c)) if isinstance(c, str) else int(c) % width for c in chosen]


def _scaled(columns: list[Column], parts: Sequence[tuple[Any, Any]], *, early: bool = False) -> list[Column]:
    """Columns after `block = f(block, constants)` for each of the parts, in the precision scikit-learn uses: that of
    the whole block. `early`: the constants are brought to it first."""
    held = np.result_type(*[c.dtype for c in columns])
    dtype: Any = held if held.name in ("float32", "float64") else np.dtype(np.float64)
    out: list[Column] = []
    for j, column in enumerate(columns):
        c = column.cast(dtype)
        for f, constants in parts:
            if constants is None:
                continue
            picked = [np.asarray(v)[j] if np.ndim(v) else v for v in (constants if f is np.clip else (constants,))]
            if dtype == np.float32:
                picked = [np.float32(v) if early or f is np.clip else np.float64(v) for v in picked]
            if f in (np.multiply, np.divide) and not picked[0] > 0:
                raise RefusedError("a scaler that turns a column around has no exact copy")
            c = c.then(f, *picked)
            c = c.cast(dtype) if dtype == np.float32 and not early else c
        if column.table is not None:
            values = column.values()
            for f, constants in c.steps[len(column.steps) :]:
                values = f(values, *constants)
            c = replace(column, table=pd.Series(values), dtype=dtype)
        out.append(c)
    return out


def _is_sparse(columns: list[Column]) -> bool:
    return any(c.sparse for c in columns)


def _over(scale: Any, columns: list[Column]) -> tuple[Any, Any]:
    """Division by the scale; sparse columns are multiplied by one over it, whose last digit may differ."""
    return (np.multiply, 1.0 / scale) if scale is not None and _is_sparse(columns) else (np.divide, scale)


def _standard(step: Any, columns: list[Column]) -> list[Column]:
    mean, scale = step.mean_ if step.with_mean else None, step.scale_ if step.with_std else None
    return _scaled(columns, [(np.subtract, mean), _over(scale, columns)], early=not _is_sparse(columns))


def _robust(step: Any, columns: list[Column]) -> list[Column]:
    center, scale = step.center_ if step.with_centering else None, step.scale_ if step.with_scaling else None
    return _scaled(columns, [(np.subtract, center), _over(scale, columns)])


def _minmax(step: Any, columns: list[Column]) -> list[Column]:
    clip = step.feature_range if step.clip else None
    return _scaled(columns, [(np.multiply, step.scale_), (np.add, step.min_), (np.clip, clip)])


def _maxabs(step: Any, columns: list[Column]) -> list[Column]:
    clip = (-1.0, 1.0) if getattr(step, "clip", False) else None
    return _scaled(columns, [_over(step.scale_, columns), (np.clip, clip)])


def _encoder(step: Any, columns: list[Column]) -> list[Column]:
    """The encoder itself, asked about every level of every column."""
    if any(c.table is None for c in columns):
        raise RefusedError("it encodes a column of numbers level by level; declare that column a category")
    tables = [cast("pd.Series[Any]", c.table) for c in columns]
    rows = max(len(t) for t in tables)
    names = getattr(step, "feature_names_in_", None)
    cells = [t.take((np.arange(rows) % len(t)).tolist()).reset_index(drop=True) for t in tables]
    block: Any = pd.concat(cells, axis=1)
    if names is not None:
        block.columns = list(names)
    else:
        block = block.to_numpy(dtype=object)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unknown levels, which it then treats as it was told
            made: Any = step.transform(block)
    except Exception as error:
        raise RefusedError(f"{type(step).__name__} does not know all levels of the schema: {error}") from None
    sparse = hasattr(made, "toarray")
    made = np.asarray(made.toarray() if sparse else made)
    counts = getattr(step, "_n_features_outs", [1] * len(columns)) if hasattr(step, "drop_idx_") else [1] * len(columns)
    owner = np.repeat(np.arange(len(columns)), counts)
    if len(owner) != made.shape[1]:
        raise RefusedError(f"{type(step).__name__} makes another number of columns than it says")
    return [
        Column(columns[i].raw, pd.Series(made[: len(tables[i]), j]), made.dtype, sparse=sparse)
        for j, i in enumerate(owner.tolist())
    ]


def _imputer(step: Any, columns: list[Column]) -> list[Column]:
    if step.add_indicator:
        raise RefusedError("SimpleImputer with add_indicator has no exact copy")
    gap: Any = step.missing_values
    fill: list[Any] = list(step.statistics_)
    if not pd.isna(gap) or (step.strategy != "constant" and bool(pd.Series(fill).isna().any())):
        raise RefusedError("SimpleImputer that replaces a value, or drops a column, has no exact copy")
    held = np.result_type(np.float16, *[c.dtype for c in columns if c.table is None])  # the precision of the block
    out: list[Column] = []
    for j, c in enumerate(columns):
        if c.table is not None:
            values = c.table.astype(object)
            c = replace(c, table=values.where(~values.isna(), fill[j]))
        else:
            c = c.then(impute, np.float32(fill[j]) if held == np.float32 else fill[j])
        out.append(c)
    return out


def impute(values: npt.NDArray[Any], fill: Any) -> npt.NDArray[Any]:
    """Numbers with those that are missing filled in."""
    return np.where(np.isnan(values), np.float64(fill), values)


def _function(step: Any, columns: list[Column]) -> list[Column]:
    run: Any = step.func
    checks = isinstance(run, partial) and cast(Any, run).func.__name__ == "check_array"  # that of gradient boosting
    if cast(Any, run) is not None and not checks:
        raise RefusedError("FunctionTransformer runs a function of your own, which has no exact copy")
    return columns


def _frozen(step: Any, columns: list[Column]) -> list[Column]:
    return through(step.estimator, columns)


def _selector(step: Any, columns: list[Column]) -> list[Column]:
    return [c for c, kept in zip(columns, step.get_support(), strict=True) if kept]


STEPS: dict[str, Callable[[Any, list[Column]], list[Column]]] = {
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
    "sklearn.FrozenEstimator": _frozen,
    "sklearn.VarianceThreshold": _selector,
    "sklearn.SelectKBest": _selector,
    "sklearn.SelectPercentile": _selector,
}
