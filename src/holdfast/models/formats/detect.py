"""What a file is, recognised by its content, without loading it; its name only breaks ties between
files that run code."""

import contextlib
import pickletools
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from holdfast.errors import FileError
from holdfast.models.formats.limits import names_in_zip

Loading = Literal["data", "code", "unknown"]
HEAD = 1 << 16  # bytes looked at


@dataclass(frozen=True)
class Kind:
    """A file format: its name in words, whether a file holds data or can run code, and the module
    that reads it."""

    name: str
    title: str
    loading: Loading
    reader: str = ""


CODE = {
    "pt2": "a torch.export program (.pt2)",
    "torchscript": "a TorchScript program",
    "pickle": "a pickle",
    "torch": "a torch file, which holds a pickle",
    "joblib": "a joblib file, which holds a pickle",
    "cloudpickle": "a pickle made by cloudpickle",
    "dill": "a pickle made by dill",
    "compressed": "a compressed file, such as joblib and pickle make",
}
UNKNOWN = {
    "keras": "a Keras or HDF5 file",
    "catboost": "a CatBoost model",
    "empty": "an empty file",
    "zip": "a zip file, but not one of a model",
    "unknown": "not a model file that is known here",
}
KINDS: dict[str, Kind] = {
    **{name: Kind(name, title, "code") for name, title in CODE.items()},
    **{name: Kind(name, title, "unknown") for name, title in UNKNOWN.items()},
    "safetensors": Kind("safetensors", "a safetensors file", "data"),
    "onnx": Kind("onnx", "an ONNX model", "data", "onnx.runtime"),
    "skops": Kind("skops", "a skops file (scikit-learn)", "data", "skops.reader"),
    "xgboost-json": Kind("xgboost-json", "an XGBoost model (JSON)", "data", "xgboost"),
    "xgboost-ubj": Kind("xgboost-ubj", "an XGBoost model (UBJSON)", "data", "xgboost"),
    "lightgbm": Kind("lightgbm", "a LightGBM model (text)", "data", "lightgbm"),
}
COMPRESSED = (
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ\0",
    b"\x04\x22\x4d\x18",
    b"\x28\xb5\x2f\xfd",
    b"\x5d\0\0",
)
ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
MARKS = {
    b"CBM1": "catboost",
    b"\x89HDF\r\n\x1a\n": "keras",
    **dict.fromkeys(COMPRESSED + ZLIB, "compressed"),
}
PICKLED_NAMES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".bin", ".dill", ".ckpt")


def kind_of_file(path: Path) -> Kind:
    """The kind of a file; an error only if the file does not exist."""
    if not path.is_file():
        raise FileError(f"no model file at {str(path)!r}")
    with path.open("rb") as file:
        head = file.read(HEAD)
    return KINDS[_name(path, head, path.stat().st_size)]


def _name(path: Path, head: bytes, size: int) -> str:
    if not head:
        return "empty"
    if _is_safetensors(head, size):
        return "safetensors"
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _zipped(path)
    start = head[:512].lstrip()
    if start[:1] == b"{" and b'"learner"' in head:
        return "xgboost-json"
    if start[:1] == b"{" and head[1:2] in b"LiUIl" and b"learner" in head[:512]:
        return "xgboost-ubj"
    if head[:4] == b"tree" and b"version=" in head[:64]:
        return "lightgbm"
    for mark, name in MARKS.items():
        if head.startswith(mark):
            return name
    if head[:1] == b"\x80" or _is_old_pickle(head):
        return _pickled(path, head)
    if _is_onnx(path, size):
        return "onnx"
    # The content tells nothing, but whoever chose the name meant a file that runs code.
    return "pickle" if path.suffix.lower() in PICKLED_NAMES else "unknown"


def _is_safetensors(head: bytes, size: int) -> bool:
    """8 bytes for the length of the header, then the header, which is JSON."""
    if len(head) < 9 or head[8:9] != b"{":
        return False
    (length,) = struct.unpack("<Q", head[:8])
    return 2 <= length <= 100_000_000 and (length <= size - 8 or head[9:10] in b'"} ')


def _zipped(path: Path) -> str:
    names = names_in_zip(path)
    # torch puts everything into one directory
    inner = {name.partition("/")[2] or name for name in names}
    if "schema.json" in names:
        return "skops"
    if (
        "archive_format" in inner
        or "serialized_exported_program.json" in inner
        or "models/model.json" in inner
    ):
        return "pt2"
    if "constants.pkl" in inner or any(name.startswith("code/") for name in inner):
        return "torchscript"
    if any(name.endswith((".pkl", ".pickle")) for name in names):
        return "torch"
    if "model.weights.h5" in names:
        return "keras"
    suffix = path.suffix.lower()
    if not names and suffix == ".skops":
        return "skops"  # damaged, and a message that says so
    return "pt2" if suffix == ".pt2" else "torch" if suffix in PICKLED_NAMES else "zip"


def _is_old_pickle(head: bytes) -> bool:
    """Pickles of protocol 0 and 1 have no mark at the start: read the operations and see whether
    they make sense."""
    seen = set[str]()
    with contextlib.suppress(Exception):  # cut off by us, or not a pickle
        for count, (code, _, _) in enumerate(pickletools.genops(head)):
            seen.add(code.name)
            if code.name == "STOP":
                return count > 0
    return bool(seen & {"GLOBAL", "INST"} and seen & {"REDUCE", "BUILD", "MARK"})


def _pickled(path: Path, head: bytes) -> str:
    for maker in ("dill", "cloudpickle", "joblib"):
        if maker.encode() in head:
            return maker
    if head.startswith(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"):
        return "torch"  # as written before torch 1.6
    return {".joblib": "joblib", ".dill": "dill"}.get(path.suffix.lower(), "pickle")


# The fields of an ONNX model (ModelProto) and how they are written; see
# `holdfast.models.formats.onnx.graph`.
MODEL_WIRES = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}


def _is_onnx(path: Path, size: int) -> bool:
    """Step over the outermost fields of the message: all of them known, and a graph among them."""
    graph = False
    with path.open("rb") as file:
        for _ in range(1000):
            if file.tell() >= size:
                return graph
            tag = _varint(file)
            if tag is None or MODEL_WIRES.get(tag >> 3) != tag & 7:
                return False
            value = _varint(file)
            if value is None:
                return graph
            if tag & 7 == 2:
                graph |= tag >> 3 == 7
                file.seek(min(value, size - file.tell()), 1)
    return graph


def _varint(file: BinaryIO) -> int | None:
    """The next number, 7 bits to a byte, lowest first; None if the file ends or it is too long."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
    return None
