"""Rows with their outcome from a file, and which of them to hold out: what training and audits
start from."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from holdfast._core.checks import did_you_mean
from holdfast.datasets.tables import read_table
from holdfast.errors import FileError, SettingError
from holdfast.schema.schema import Schema


class LabelledTable(NamedTuple):
    """Rows, their outcomes, and what may change in them."""

    X: pd.DataFrame
    y: "pd.Series[Any]"
    schema: Schema


def read_labelled(
    path: str | Path,
    outcome: str | None = None,
    schema: Schema | None = None,
    *,
    classes: Sequence[Any] | None = None,
) -> LabelledTable:
    """Rows of a CSV, JSON or Parquet file and their outcomes.

    Args:
        path: the file.
        outcome: the column that holds the outcome; None: the only one that is not a feature of the
            schema.
        schema: how to read the columns; None: read off the table. Columns that it does not know are
            left out.
        classes: outcomes become these, which may be numbers where the file has strings; None: as
            they are read.
    """
    rows = read_table(path)
    name = outcome or _only_outcome(rows, [] if schema is None else schema.names, path)
    if name not in rows.columns:
        raise FileError(f"{str(path)!r} has no column {name!r}; {did_you_mean(name, rows.columns)}")
    features = rows.drop(columns=name)
    y = rows[name]
    if schema is None:
        schema = Schema.infer(features)
    else:
        if name in schema.names:
            raise SettingError(f"{name!r} is a feature of the schema, so it cannot be the outcome")
        extra = [column for column in features.columns if column not in schema.names]
        if extra:
            warnings.warn(
                f"columns of {str(path)!r} that the schema does not know are left out: {extra}",
                stacklevel=2,
            )
        features = read_table(path, schema).drop(columns=[name, *extra])
    return LabelledTable(features, y if classes is None else as_classes(y, classes), schema)


def _only_outcome(rows: pd.DataFrame, features: Sequence[str], path: str | Path) -> str:
    """The one column that is not a feature."""
    extra = [str(name) for name in rows.columns if name not in features]
    if len(extra) != 1:
        what = f"the columns {extra}" if extra else "no column"
        raise SettingError(
            f"{str(path)!r} has {what} besides the features; name the outcome with --outcome COLUMN"
        )
    return extra[0]


def as_classes(
    y: "pd.Series[Any]", classes: Sequence[Any], own: Sequence[Any] = ()
) -> "pd.Series[Any]":
    """Outcomes of a file as the model's classes, which may be numbers where the file has
    strings; or where the file has those that the model learnt (`own`), under the names that they
    were given."""
    seen = {str(v) for v in y.dropna().unique()}
    for names in (classes, own):
        known = {str(name): c for name, c in zip(names, classes, strict=False)}
        if known and seen <= set(known):
            return y.astype(str).where(y.notna()).map(known)
    unknown = sorted(seen - {str(c) for c in classes})
    raise SettingError(
        f"the outcome has the value {unknown[0]!r}; the model's classes are {list(classes)}"
    )


def held_out(n: int, share: float, seed: int, what: str = "rows") -> tuple[list[int], list[int]]:
    """Numbers of the rows to learn from, and of a share held out, both in the order of the
    table."""
    if not n >= 2:
        raise SettingError(f"need at least two {what} to train on, got {n}")
    order = np.random.default_rng(abs(seed)).permutation(n)
    out = min(round(n * share), n - 1)
    return sorted(order[out:].tolist()), sorted(order[:out].tolist())
