"""Reading what strangers wrote: everything stops at a limit and says which, and a file is read
once, so what is checked is what is loaded. It may claim any size, nest without end, or inflate to a
thousand times its size."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from holdfast._core import files
from holdfast.errors import FileError

MOST_BYTES = 1 << 30  # of a file
MOST_INFLATED = 1 << 30  # of everything in a zip file together
MOST_ENTRIES = 20_000  # in a zip file
# how far a zip file may shrink its content beyond the first 64 MiB
FREE_BYTES = 1 << 26
MOST_RATIO = 200
CHUNK = 1 << 20


def read_bytes(path: Path) -> bytes:
    """The whole file."""
    return files.read_bytes(path, MOST_BYTES)


def parse_json(text: bytes, what: str, *, nan: bool = False) -> Any:
    """JSON with each key once and, unless `nan`, finite numbers only; readers differ on the
    rest."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(items)
        if len(out) < len(items):
            raise ValueError("a key appears twice in an object")
        return out

    def constant(name: str) -> float:
        if nan:
            return float(name)
        raise ValueError(f"{name} is not finite")

    try:
        return json.loads(text.decode(), object_pairs_hook=pairs, parse_constant=constant)
    except RecursionError:
        raise FileError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise FileError(f"{what} is not readable as JSON: {error}") from None


def unzip(data: bytes, what: str) -> dict[str, bytes]:
    """The entries of a zip file, each inflated and compared with its checksum; a bomb is an
    error."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_claims(entries, len(data), what)
            out = dict[str, bytes]()
            left = _room(len(data))
            for entry in entries:
                with archive.open(entry) as file:
                    out[entry.filename] = content = _inflate(file, left, what)
                left -= len(content)
            return out
    except FileError:
        raise
    except Exception as error:  # zipfile has many ways to say that a file is damaged
        raise FileError(f"{what} is a damaged zip file ({type(error).__name__}: {error})") from None


def _room(size: int) -> int:
    return min(MOST_INFLATED, max(FREE_BYTES, MOST_RATIO * size))


def _check_claims(entries: list[zipfile.ZipInfo], size: int, what: str) -> None:
    if len(entries) > MOST_ENTRIES:
        raise FileError(
            f"{what} has {len(entries):,} entries, more than the {MOST_ENTRIES:,} that are read"
        )
    claimed = sum(e.file_size for e in entries)
    if claimed > _room(size):
        raise FileError(
            f"{what} would grow from {size:,} to {claimed:,} bytes: a zip bomb, or too large"
        )
    if len({e.filename for e in entries}) < len(entries):
        raise FileError(f"{what} holds two entries of the same name")
    for e in entries:
        if e.flag_bits & 1 or e.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileError(
                f"{what}: entry {e.filename!r} is encrypted or compressed in an unusual way"
            )


def _inflate(file: Any, most: int, what: str) -> bytes:
    parts = list[bytes]()
    size = 0
    while part := file.read(CHUNK):
        parts.append(part)
        size += len(part)
        if size > most:
            raise FileError(f"{what} grows to more than it claims: a zip bomb")
    return b"".join(parts)


def names_in_zip(path: Path) -> list[str]:
    """The names of the entries, without reading any; none if the file cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()[: MOST_ENTRIES + 1]
    except Exception:
        return []
