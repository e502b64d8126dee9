"""Tables as files, by extension."""

import csv
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from holdfast._core.files import whole_file
from holdfast._core.result import write_csv
from holdfast.errors import FileError
from holdfast.schema.columns import repeated
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema

# Before pandas 3.1 a number read from CSV could be off in its last digit, which may cost an answer
# its outcome.
_IS_EXACT = tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1)
EXACT: dict[str, Any] = {} if _IS_EXACT else {"float_precision": "round_trip"}
LONGEST_LINE = 1 << 20  # bytes at the end of a CSV file that are looked at
MISSING_WORDS = {"", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>", "n/a", "#N/A"}


def read_table(path: str | Path, schema: Schema | None = None) -> pd.DataFrame:
    """A CSV, JSON (list of records) or Parquet file, by its extension.

    With a schema, columns are read as the schema means them: "NA" or an empty cell is missing only
    where it is not a level of the column, codes keep their type, and each column gets the type that
    the schema's own table had, unless that cannot hold it: then it stays as it is, and whoever
    encodes it says which value does not fit.
    """
    path = Path(path)
    reader = READERS[known_extension(path, "read")]
    if not path.is_file():
        raise FileError(f"no file at {str(path)!r}")
    try:
        table = reader(path, schema)
    # parsers raise whatever they like about a file that is not what it claims to be
    except Exception as error:
        raise FileError(f"cannot read {str(path)!r}: {error}") from None
    # Parquet keeps names that are not strings
    table.columns = pd.Index([str(name) for name in table.columns])
    return table if schema is None else _typed(table, schema)


def known_extension(path: Path, doing: str) -> str:
    """The extension of a table file, or an error that lists those we know."""
    suffix = path.suffix.lower()
    known = ", ".join(READERS)
    if suffix not in READERS:
        raise FileError(f"cannot {doing} {str(path)!r}: the extension must be one of {known}")
    return suffix


def _read_csv(path: Path, schema: Schema | None) -> pd.DataFrame:
    """CSV has no types: without a schema they are guessed, with one the columns of strings are
    known."""
    features = schema.features if schema else ()
    strings = {f.name: f for f in features if any(isinstance(v, str) for v in f.levels)}
    settings = dict(EXACT)
    if schema is not None:
        # "NA" or "None" is a missing value only if it is not a level.
        levels = {
            f.name: {str(v) for v in f.levels} if f.name in strings else set[str]()
            for f in features
        }
        settings["na_values"] = {
            name: sorted(MISSING_WORDS - known) for name, known in levels.items()
        }
        settings |= {"keep_default_na": False, "dtype": dict.fromkeys(strings, str)}
    read = cast(Any, pd).read_csv
    # The names as they are: pandas would make a second "age" an "age.1", and a column without a
    # name "Unnamed: 0".
    names: list[str] = (
        read(path, header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0].tolist()
    )
    if twice := repeated(names):
        raise ValueError(f"column {twice[0]!r} appears twice")
    _check_last_line(path, len(names))
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            table: pd.DataFrame = read(
                path, header=0, names=names, index_col=False, low_memory=False, **settings
            )
        except pd.errors.ParserWarning:  # cells would be lost, or shift by one column
            raise ValueError("the first row has more cells than the header") from None
    for name, feature in strings.items():
        if name in table and not all(isinstance(v, str) for v in feature.levels):
            table[name] = _as_levels(table[name], feature)
    return table


def _check_last_line(path: Path, columns: int) -> None:
    """An error if the file ends within a row, as one does that was cut: pandas would make up the
    cells that are missing."""
    with path.open("rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - LONGEST_LINE, 0))
        tail = file.read().rpartition(b"\n")[2].decode(errors="replace")
    # within quotes there may be line ends, and pandas says if quotes are left open
    if tail.strip() and tail.count('"') % 2 == 0:
        cells = len(next(csv.reader([tail])))
        if cells < columns:
            raise ValueError(
                f"it ends within a row: the header has {columns} cells, the last line {cells}; "
                "was the file cut?"
            )


def _as_levels(column: "pd.Series[Any]", feature: Feature) -> "pd.Series[Any]":
    """Strings as the levels they stand for, where a column has both strings and numbers."""
    meant: dict[Any, Any] = {str(v): v for v in reversed(feature.levels)}
    values = [meant.get(v, v) for v in column.astype(object)]
    return pd.Series(values, index=column.index, dtype=object)


def _read_json(path: Path, schema: Schema | None) -> pd.DataFrame:
    """JSON has types, and they are kept: pandas' own reader turns "1" into 1 and `posted_at` into a
    date."""
    content: Any = json.loads(path.read_text(encoding="utf-8-sig"))
    rows = cast(list[dict[str, Any]], content)
    if not isinstance(content, list) or not all(
        isinstance(row, dict) for row in cast(list[Any], content)
    ):
        raise ValueError(
            'expected a list of records, like [{"age": 33, "job": "clerk"}, {"age": 51, "job": '
            '"none"}]'
        )
    for row in rows:
        nested = [name for name, value in row.items() if isinstance(value, dict | list)]
        if nested:
            raise ValueError(
                f"{nested[0]!r} holds a list or a record; a cell is a number, string, true, false "
                "or null"
            )
    return pd.DataFrame(rows)


def _read_parquet(path: Path, schema: Schema | None) -> pd.DataFrame:
    return pd.read_parquet(path)


READERS: dict[str, Callable[[Path, Schema | None], pd.DataFrame]] = {
    ".csv": _read_csv,
    ".json": _read_json,
    ".parquet": _read_parquet,
}


def _typed(table: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The table with the types of the schema, as far as they can hold it."""
    names = [str(name) for name in table.columns]
    if repeated(names):
        return table
    # says nothing about types, and a JSON list without records not even about columns
    if not len(table):
        typed = {f.name: f.values(np.zeros(0), None) for f in schema.features}
        return pd.DataFrame(
            {name: typed.get(name, pd.Series(dtype=object)) for name in names or schema.names}
        )
    return table.assign(
        **{f.name: f.held(table[f.name]) for f in schema.features if f.name in names}
    )


def write_table(table: pd.DataFrame, path: str | Path, *, index: bool = False) -> None:
    """Write CSV, JSON (list of records) or Parquet, by extension; every digit is kept."""
    path = Path(path)
    suffix = known_extension(path, "write")
    try:
        if suffix == ".csv":
            write_csv(table, path, index=index)
            return
        if suffix == ".json":
            content = json.dumps(records(table), indent=1, ensure_ascii=False).encode() + b"\n"
        else:
            content = table.to_parquet()
        with whole_file(path) as file:
            file.write(content)
    except FileError:
        raise
    except Exception as error:  # as above: a column may hold what the format cannot
        raise FileError(f"cannot write {str(path)!r}: {error}") from None


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values for JSON, which knows neither missing nor infinite numbers: both become
    null. Dates become strings such as '2024-03-01T00:00:00'."""
    columns = {str(name): _plain_values(table[name]) for name in table.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain_values(column: "pd.Series[Any]") -> list[Any]:
    unknown = column.isna() | column.isin([np.inf, -np.inf])
    values: list[Any] = column.tolist()
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        values = [date.isoformat() for date in values]
    return [None if empty else value for value, empty in zip(values, unknown.tolist(), strict=True)]
