"""Results of studies as files: everything in Parquet for `load`, and what people read in JSON and
CSV."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from holdfast._core.checks import listed, untyped
from holdfast._core.parquet import content_of, damage_named, read_sealed, write_sealed
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
    writers[kind](path)


def write_marked(path: Path, rows: pd.DataFrame, kind: str, content: dict[str, Any]) -> None:
    """Write rows as Parquet, with the name of their type and whatever else there is to know."""
    table: Any = untyped("pyarrow").Table.from_pandas(rows)
    write_sealed(path, table, {MARK: {"kind": kind, **content}})


def read_marked(
    path: str | Path, kind: str, build: Callable[[pd.DataFrame, dict[str, Any]], Made]
) -> Made:
    """What `build` makes of a file that `write_marked` wrote for this type."""
    if Path(path).exists() and Path(path).suffix.lower() in (".json", ".csv"):
        raise FileError(
            f"cannot read {str(path)!r}: {kind}.save writes a .parquet file to load again"
        )
    table = read_sealed(path, MARK, f"was not written by {kind}.save")
    content = content_of(table, MARK)
    if content.get("kind") != kind:
        raise FileError(f"{str(path)!r} holds a {content.get('kind')!s:.40}, not a {kind}")
    with damage_named(path):
        return build(table.to_pandas(), content)
