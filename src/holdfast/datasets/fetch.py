"""Where the files of datasets come from: the data directory, else the cache, else their public
source.

The data directory is what the environment variable HOLDFAST_DATA names, else the entry `data =
"..."` of `~/.config/holdfast/config.toml`. Downloads are kept in `~/.cache/holdfast`. Both places
follow XDG_CONFIG_HOME and XDG_CACHE_HOME. Whatever the place, the content is read only if its
SHA-256 is the known one.
"""

import gzip
import hashlib
import http.client
import os
import tomllib
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from holdfast._core.files import write_whole
from holdfast._core.version import version
from holdfast.errors import FileError

Place = Literal["data directory", "cached", "can be downloaded", "by hand"]
SECONDS = 30  # without a byte from the source
CHUNK = 1 << 20

# files whose checksum was right: path, size, time of change
_checked: set[tuple[str, int, int]] = set()


@dataclass(frozen=True)
class File:
    """One file of a dataset: its name, its checksums, and how to get it."""

    path: str  # in the data directory; ".gz" at the end means that the content is compressed there
    packed: str  # SHA-256 of the compressed file
    content: str  # SHA-256 of what is in it
    urls: tuple[str, ...] = ()  # where the public source has it; none: a person has to fetch it
    # from what the source has to the content
    convert: Callable[[Sequence[bytes]], bytes] = b"".join
    by_hand: str = ""  # where a person gets it


# ---- places


def shipped_toml(name: str) -> dict[str, Any]:
    """A TOML file of this package."""
    return tomllib.loads((files("holdfast.datasets") / name).read_text(encoding="utf-8"))


def data_directory() -> tuple[Path, str] | None:
    """The directory of datasets and the setting that names it."""
    if named := os.environ.get("HOLDFAST_DATA"):
        return Path(named).expanduser(), "HOLDFAST_DATA"
    config = _xdg("XDG_CONFIG_HOME", ".config") / "config.toml"
    if not config.is_file():
        return None
    try:
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read the settings in {str(config)!r}: {error}") from None
    data = settings.get("data")
    if data is None:
        return None
    named = isinstance(data, str) and bool(data)
    if not named:
        raise FileError(f"{str(config)!r}: data must be the name of a directory, got {data!r}")
    return Path(data).expanduser(), str(config)


def cache_directory() -> Path:
    """Where downloads are kept."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def _xdg(variable: str, usual: str) -> Path:
    root = os.environ.get(variable)
    return (Path(root) if root else Path.home() / usual) / "holdfast"


def data_file(relative: str) -> Path:
    """A file in the data directory, whatever is in it."""
    root = data_directory()
    if root is None:
        raise FileError(
            f"{relative!r} is not shipped; set HOLDFAST_DATA to the directory that holds it"
        )
    path = root[0] / relative
    where = f"the data directory {str(root[0])!r} ({root[1]})"
    if not path.is_file():
        raise FileError(f"no file {relative!r} in {where}")
    return path


def _stored(file: File) -> tuple[Path, Place] | None:
    """The file on this machine; in the data directory it may also lie unpacked."""
    plain = file.path.removesuffix(".gz")
    root = data_directory()
    places: list[tuple[Path, Place]] = [(cache_directory() / plain, "cached")]
    if root:
        places = [
            (root[0] / file.path, "data directory"),
            (root[0] / plain, "data directory"),
            *places,
        ]
    return next((found for found in places if found[0].is_file()), None)


def place(file: File) -> Place:
    """Where the file is, or how it can be had; nothing is read."""
    found = _stored(file)
    return found[1] if found else "can be downloaded" if file.urls else "by hand"


# ---- content


def content(file: File) -> bytes:
    """What is in the file, from wherever it is; downloaded if need be."""
    found = _stored(file)
    return _read(file, found[0]) if found else download(file)


def _read(file: File, path: Path) -> bytes:
    try:
        stored = path.read_bytes()
        data = gzip.decompress(stored) if path.suffix == ".gz" else stored
        state = path.stat()
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"cannot read {str(path)!r}: {error}") from None
    known = str(path), state.st_size, state.st_mtime_ns
    if known not in _checked:
        # Compressed again by somebody else, the same content has other bytes outside.
        if _sha256(stored) != file.packed and _sha256(data) != file.content:
            what = f"SHA-256 of the content is {_sha256(data)}, expected {file.content}"
            raise FileError(
                f"{str(path)!r} is not the file that is known: {what}; remove it, or put the "
                "original there"
            )
        _checked.add(known)
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- download


def download(file: File) -> bytes:
    """Fetch from the public source, check, keep in the cache. The cache never holds part of a
    file."""
    if not file.urls:
        raise FileError(_what_to_do(file))
    parts = [_fetched(url, file) for url in file.urls]
    source = " and ".join(file.urls)
    try:
        data = file.convert(parts)
    except Exception as error:  # not an archive, or a table with other columns
        raise FileError(f"what {source} sent is not the file that is known: {error}") from None
    got = _sha256(data)
    fix = f"nothing was kept. The source may have changed. {_where_to_put(file)}"
    why = f"wrong checksum: what {source} sent has SHA-256 {got}, expected {file.content}; {fix}"
    if got != file.content:
        raise FileError(why)
    _keep(data, cache_directory() / file.path.removesuffix(".gz"))
    return data


def _fetched(url: str, file: File) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": f"holdfast/{version()}"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            length = answer.headers.get("Content-Length")
            data = b"".join(iter(lambda: answer.read(CHUNK), b""))
    except urllib.error.HTTPError as error:
        why = f"the server says {error.code} {error.reason}. {_where_to_put(file)}"
    except http.client.IncompleteRead as error:
        raise FileError(_cut(url, f"{len(error.partial)}")) from None
    except urllib.error.URLError as error:
        why = f"{error.reason}. Is this machine offline? {_where_to_put(file)}"
    except (OSError, http.client.HTTPException) as error:
        why = f"{error or type(error).__name__}; nothing was kept, try again"
    else:
        if length is not None and len(data) != int(length):
            raise FileError(_cut(url, f"{len(data)} of {length}"))
        return data
    raise FileError(f"cannot download {url}: {why}")


def _cut(url: str, got: str) -> str:
    return f"the connection was cut: {got} bytes of {url} arrived; nothing was kept, try again"


def _keep(data: bytes, path: Path) -> None:
    """Whoever looks finds the whole file or none."""
    try:
        write_whole(path, data)
    except FileError as error:
        raise FileError(f"cannot write to the cache {str(path.parent)!r}: {error}") from None


def _what_to_do(file: File) -> str:
    root = data_directory()
    looked = (
        f"no file {file.path!r} in the data directory {str(root[0])!r} ({root[1]})"
        if root
        else None
    )
    looked = looked or f"{file.path!r} is not shipped"
    return (
        f"{looked}, and it cannot be downloaded without a person: get it from {file.by_hand}. "
        f"{_where_to_put(file)}"
    )


def _where_to_put(file: File) -> str:
    root = data_directory()
    if root:
        return f"A copy you have goes to {str(root[0] / file.path)!r}."
    return f"If you have a copy as {file.path!r}, set HOLDFAST_DATA to the directory it is in."
