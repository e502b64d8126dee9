"""Results of studies as files: everything in Parquet for `load`, and what people read in JSON and
CSV."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from holdfast._core.checks import listed, untyped
from holdfast.errors import FileError

MARK = b"holdfast-result"
Made = TypeVar("Made")


def write_as(path: str | Path, writers: dict[str, Callable[[Path], object]]) -> None:
    """Write by the extension of the file."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in writers:
        raise FileError(
            f"cannot write {str(path)!r}: the extension must be one of {listed(writers)}"
        )
    try:
        writers[kind](path)
    except OSError as error:
        raise FileError(f"cannot write {str(path)!r}: {error.strerror or error}") from None


def write_marked(path: Path, rows: pd.DataFrame, kind: str, content: dict[str, Any]) -> None:
    """Write rows as Parquet, with the name of their type and whatever else there is to know."""
    table: Any = untyped("pyarrow").Table.from_pandas(rows)
    text = json.dumps({"kind": kind, **content}, default=str)
    marked = table.replace_schema_metadata({**table.schema.metadata, MARK: text.encode()})
    untyped("pyarrow.parquet").write_table(marked, path)


def read_marked(
    path: str | Path, kind: str, build: Callable[[pd.DataFrame, dict[str, Any]], Made]
) -> Made:
    """What `build` makes of a file that `write_marked` wrote for this type."""
    try:
        table: Any = untyped("pyarrow.parquet").read_table(path)
        metadata: dict[bytes, bytes] = table.schema.metadata or {}
        content = json.loads(metadata[MARK])
        written_by = content["kind"]
    except FileNotFoundError:
        raise FileError(f"no file at {str(path)!r}") from None
    except KeyError:
        raise FileError(f"{str(path)!r} was not written by {kind}.save") from None
    except Exception as error:  # the file may say anything
        raise FileError(
            f"cannot read {str(path)!r}: {error}; {kind}.save writes a .parquet file to load again"
        ) from None
    if written_by != kind:
        raise FileError(f"{str(path)!r} holds a {written_by}, not a {kind}")
    try:
        return build(table.to_pandas(), content)
    except Exception as error:
        raise FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})") from None
