"""safetensors files: tensors and a few strings, read by us and written by the safetensors library.

Eight bytes hold the length of the header; the header is JSON (name -> dtype, shape, where the bytes
begin and end); the bytes of all tensors follow, one after the other. Nothing in a file is believed:
the tensors must fill the rest of the file exactly, each with as many bytes as its shape says, so no
more memory is taken than the file is long.
"""

import json
import math
import os
import struct
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from holdfast._core.checks import untyped
from holdfast._core.files import whole_file
from holdfast.errors import FileError, HoldfastError
from holdfast.models.formats.limits import parse_json

MOST_HEADER = 100_000_000  # bytes
IMAGE_MARK = "holdfast-image"  # the string that the file of an image model has
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


# each tensor's dtype, shape and first byte in the file
Places = dict[str, tuple[torch.dtype, list[int], int]]


@dataclass(frozen=True, eq=False)
class OpenedFile(os.PathLike[str]):
    """A file whose header has been read and checked, so whoever reads on need not do it again; it
    can be used wherever a path is expected."""

    path: Path
    metadata: dict[str, str]
    places: Places

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


def opened(path: Path) -> Path | OpenedFile:
    """The file with its header, or its path if it does not exist or is something else."""
    try:
        return OpenedFile(path, *read_header(path))
    except (OSError, FileError):
        return path


def read_header(path: Path) -> tuple[dict[str, str], Places]:
    """The checked header: the strings of the file, and where its tensors are, without looking at
    them."""
    # Read by us and not by `safe_open`: its tensors change when the file does, it accepts a name
    # twice, and it lets through truth values other than 0 and 1.
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else size
        if length > min(size - 8, MOST_HEADER):
            raise FileError(
                f"the file is cut off: its header has {length:,} bytes, the file {size:,}"
            )
        header = parse_json(file.read(length), "the header")
    if not isinstance(header, dict):
        raise FileError("the header is not an object")
    entries = cast(dict[str, Any], header)
    metadata: Any = entries.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(
        isinstance(v, str) for v in cast(dict[str, Any], metadata).values()
    ):
        raise FileError("the metadata in the header are not strings")
    try:
        tensors, end = _placed(entries, 8 + length)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"the header is damaged: {type(error).__name__}: {error}") from None
    if end != size:
        raise FileError(
            f"the file is cut off: its tensors end at byte {end:,}, the file at {size:,}"
        )
    return cast(dict[str, str], metadata), tensors


def _placed(entries: dict[str, Any], start: int) -> tuple[Places, int]:
    """The tensors, which follow each other from the byte `start` on, and where the last one
    ends."""
    out = Places()
    at = start
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        dtype = DTYPES[entry["dtype"]]
        shape = [*entry["shape"]]
        begin, end = entry["data_offsets"]
        if not all(type(n) is int and n >= 0 for n in (begin, end, *shape)):
            raise ValueError(f"tensor {name!r} has a size that is not an integer")
        if start + begin != at or end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(
                f"tensor {name!r} has another number of bytes than its shape says, or in another "
                "place"
            )
        out[name] = dtype, shape, at
        at = start + end
    return out, at


def read(
    path: str | os.PathLike[str], keep: Callable[[str], bool] = lambda name: True
) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The strings of a file, and those of its tensors whose names are to be kept."""
    try:
        if isinstance(path, OpenedFile):
            metadata = path.metadata
            places = path.places
        else:
            metadata, places = read_header(Path(path))
        with Path(path).open("rb") as file:
            return metadata, {
                name: _tensor(file, *place) for name, place in places.items() if keep(name)
            }
    except OSError as error:
        raise FileError(str(error)) from None


def _tensor(file: Any, dtype: torch.dtype, shape: list[int], begin: int) -> Tensor:
    file.seek(begin)
    data = bytearray(file.read(math.prod(shape) * dtype.itemsize))
    if not data:
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.bool:  # any other byte than 0 and 1 would be neither
        return torch.frombuffer(data, dtype=torch.uint8).reshape(shape) != 0
    # at an aligned address, as other tensors are
    return torch.frombuffer(data, dtype=dtype).reshape(shape).clone()


def read_marked(
    path: str | os.PathLike[str],
    mark: str,
    what: str,
    writer: str,
    keep: Callable[[str], bool] = lambda name: True,
) -> tuple[Any, dict[str, Tensor]]:
    """What the JSON string named `mark` says, and tensors, of a file that holds `what`, as `writer`
    has written it."""
    try:
        metadata, tensors = read(path, keep)
    except FileError as error:
        raise FileError(f"cannot read {what} from {str(path)!r}: {error}") from None
    if mark not in metadata:
        raise FileError(
            f"{str(path)!r} holds no {what.partition(' ')[2]}; write one with `{writer}`"
        )
    with damage_reported(path):
        return json.loads(metadata[mark]), tensors


@contextmanager
def damage_reported(path: str | os.PathLike[str]) -> Generator[None]:
    """Turn whatever goes wrong with what a file says, which may be anything, into an error that
    names the file."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})") from error


def metadata_of(path: str | os.PathLike[str]) -> dict[str, str]:
    """The strings of a file; none if it does not exist or is something else."""
    file = path if isinstance(path, OpenedFile) else opened(Path(path))
    return file.metadata if isinstance(file, OpenedFile) else {}


def write(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, object]) -> None:
    """Write a file of tensors and strings, which runs no code when loaded; what is not a string
    becomes JSON."""
    try:
        strings = {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in metadata.items()
        }
        data = untyped("safetensors.torch").save(dict(tensors), metadata=strings)
    except Exception as error:  # safetensors has an error of its own, which is not an OSError
        raise FileError(f"cannot write {str(path)!r}: {error}") from None
    with whole_file(path) as file:
        file.write(data)


def in_bytes(tensors: Mapping[str, Tensor]) -> Generator[bytes]:
    """Tensors as bytes, with their names and what they are, for a digest."""
    for name, value in sorted(tensors.items()):
        yield f"{name} {value.dtype} {tuple(value.shape)}".encode()
        flat = value.reshape(-1)
        if value.dtype == torch.bfloat16:  # which numpy does not know
            flat = flat.view(torch.int16)
        yield flat.numpy().tobytes()
