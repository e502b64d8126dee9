"""Results as Parquet files, with a checksum over every byte of them.

Any Parquet reader reads them. Ours first looks whether the file is as it was written: SHA-256 over
the whole file, with zeros where the checksum itself stands among the metadata. So nothing of a
damaged file is even parsed.
"""

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast._core.checks import untyped
from holdfast._core.files import read_bytes, whole_file
from holdfast._core.result import plain_value
from holdfast.errors import FileError

FORMAT = 1  # of the columns and metadata that results have; a file of another one is refused
MOST_BYTES = 1 << 34
ZEROS = b"0" * 64
NAME = b"holdfast-sha256"
FORMAT_NAME = b"holdfast-format"
# In the footer a name and a value follow each other, each with its length.
BEFORE_DIGEST = NAME + b"\x18" + bytes([len(ZEROS)])


def write_sealed(path: str | Path, table: Any, contents: Mapping[bytes, Any]) -> None:
    """Write an Arrow table, with plain values in its metadata.

    Args:
        contents: by the names of the entries in the metadata.
    """
    kept: dict[bytes, bytes] = table.schema.metadata or {}
    texts = {name: json.dumps(content, default=plain_value) for name, content in contents.items()}
    marks = {FORMAT_NAME: str(FORMAT), NAME: ZEROS}
    data = _bytes_of(table.replace_schema_metadata({**kept, **texts, **marks}))
    at = _place_of_digest(data)
    if at is None or data[at : at + len(ZEROS)] != ZEROS:
        raise FileError(f"cannot write {str(path)!r}: no place for its checksum was found")
    data[at : at + len(ZEROS)] = hashlib.sha256(data).hexdigest().encode()
    with whole_file(path) as file:
        file.write(data)


def read_sealed(path: str | Path, mark: bytes, otherwise: str) -> Any:
    """The Arrow table that `write_sealed` wrote.

    Args:
        mark: an entry that the metadata must have.
        otherwise: what is wrong with a file that has none, for the error.
    """
    start = f"cannot read {str(path)!r}"
    try:
        data = bytearray(read_bytes(path, MOST_BYTES))
    except FileNotFoundError:
        raise FileError(f"no file at {str(path)!r}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{start}: {getattr(error, 'strerror', None) or error}") from None
    at = _place_of_digest(data)
    if at is None:
        raise FileError(_why_not_sealed(path, data, mark, otherwise))
    written = bytes(data[at : at + len(ZEROS)])
    data[at : at + len(ZEROS)] = ZEROS
    if hashlib.sha256(data).hexdigest().encode() != written:
        raise FileError(
            f"{str(path)!r} is damaged: its content is not as it was written, the checksum is "
            "another one"
        )
    try:
        table: Any = untyped("pyarrow.parquet").read_table(untyped("pyarrow").BufferReader(data))
    except Exception as error:  # whoever knows the checksum may have written anything
        raise FileError(f"{start}: {error}") from None
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    if mark not in metadata:
        raise FileError(f"{str(path)!r} {otherwise}")
    known = str(FORMAT).encode()
    if metadata.get(FORMAT_NAME) != known:
        raise FileError(
            f"{str(path)!r} was written in format {metadata.get(FORMAT_NAME, b'')!r:.20}, and this "
            f"version of Holdfast reads format {FORMAT}"
        )
    return table


@contextmanager
def damage_named(path: str | Path) -> Generator[None]:
    """What goes wrong with the content of a file is an error that names the file: it may say
    anything."""
    try:
        yield
    except Exception as error:
        raise FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})") from None


def content_of(table: Any, mark: bytes) -> Any:
    """The plain values of an entry in the metadata."""
    return json.loads(table.schema.metadata[mark])


def _bytes_of(table: Any) -> bytearray:
    """The table as a Parquet file."""
    sink: Any = untyped("pyarrow").BufferOutputStream()
    untyped("pyarrow.parquet").write_table(table, sink)
    return bytearray(memoryview(sink.getvalue()))


def _place_of_digest(data: bytearray) -> int | None:
    """Where the checksum stands: the footer is at the end of a Parquet file."""
    at = data.rfind(BEFORE_DIGEST)
    return None if at < 0 else at + len(BEFORE_DIGEST)


def _why_not_sealed(path: str | Path, data: bytearray, mark: bytes, otherwise: str) -> str:
    """What is wrong with a file without a checksum."""
    try:
        schema: Any = untyped("pyarrow.parquet").read_schema(untyped("pyarrow").BufferReader(data))
    except Exception as error:
        return f"cannot read {str(path)!r}: {error}"
    if mark in (schema.metadata or {}):
        return f"{str(path)!r} was written before results had a checksum; make it again"
    return f"{str(path)!r} {otherwise}"
