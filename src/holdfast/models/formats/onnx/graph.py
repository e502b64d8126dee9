"""The graph in an ONNX file: operators in order, constants, inputs and outputs, as plain values.

Only the parts of the format that a classifier needs: no subgraphs, no functions of the file's own, no data in other
files. See `onnx.protobuf` for how it is read and `onnx.runtime` for how it is run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import FileError
from holdfast.models.formats.limits import refuse
from holdfast.models.formats.onnx.protobuf import Field, Message, read

ML = "ai.onnx.ml"
MOST_NODES = 20_000
NEWEST = {"": 30, ML: 10}  # later operator sets may mean something else by the same name

# Element types: number in the file -> name, NumPy's type of the raw bytes, and the field of short lists.
ELEMENTS: dict[int, tuple[str, str, str]] = {
    1: ("float", "<f4", "float_data"),
    2: ("uint8", "u1", "int32_data"),
    3: ("int8", "i1", "int32_data"),
    5: ("int16", "<i2", "int32_data"),
    6: ("int32", "<i4", "int32_data"),
    7: ("int64", "<i8", "int64_data"),
    9: ("bool", "?", "int32_data"),
    10: ("float16", "<f2", "int32_data"),
    11: ("double", "<f8", "double_data"),
}
STRING = 8
DTYPES = {
    "float": torch.float32, "double": torch.float64, "float16": torch.float16, "bool": torch.bool, "uint8": torch.uint8,
    "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
}  # fmt: skip

# ---- the messages, by the field numbers of onnx.proto

_DIMENSION = Message("dimension", {1: Field("size", "int"), 2: Field("word", "string")})
_SHAPE = Message("shape", {1: Field("dims", _DIMENSION, many=True)})
_TENSOR_TYPE = Message("tensor type", {1: Field("element", "int"), 2: Field("shape", _SHAPE)})
_ANY = Message("type")
_TYPE = Message("type", {1: Field("tensor", _TENSOR_TYPE), 4: Field("sequence", _ANY), 5: Field("map", _ANY)})
_VALUE = Message("value", {1: Field("name", "string"), 2: Field("type", _TYPE)})
_ENTRY = Message("entry", {1: Field("key", "string"), 2: Field("value", "string")})
_TENSOR = Message("tensor", {
    1: Field("dims", "int", many=True), 2: Field("element", "int"), 4: Field("float_data", "float", many=True),
    5: Field("int32_data", "int", many=True), 6: Field("string_data", "bytes", many=True),
    7: Field("int64_data", "int", many=True), 8: Field("name", "string"), 9: Field("raw", "bytes"),
    10: Field("double_data", "double", many=True), 13: Field("external", _ENTRY, many=True),
    14: Field("location", "int"),
})  # fmt: skip
_ATTRIBUTE = Message("attribute", {
    1: Field("name", "string"), 2: Field("f", "float"), 3: Field("i", "int"), 4: Field("s", "bytes"),
    5: Field("t", _TENSOR), 6: Field("graph", _ANY), 7: Field("floats", "float", many=True),
    8: Field("ints", "int", many=True), 9: Field("strings", "bytes", many=True), 11: Field("graphs", _ANY, many=True),
    20: Field("type", "int"), 21: Field("reference", "string"),
})  # fmt: skip
_NODE = Message("node", {
    1: Field("inputs", "string", many=True), 2: Field("outputs", "string", many=True), 3: Field("name", "string"),
    4: Field("op", "string"), 5: Field("attributes", _ATTRIBUTE, many=True), 7: Field("domain", "string"),
})  # fmt: skip
_GRAPH = Message("graph", {
    1: Field("nodes", _NODE, many=True), 5: Field("constants", _TENSOR, many=True),
    11: Field("inputs", _VALUE, many=True), 12: Field("outputs", _VALUE, many=True),
    15: Field("sparse", _ANY, many=True),
})  # fmt: skip
_OPSET = Message("operator set", {1: Field("domain", "string"), 2: Field("version", "int")})
_MODEL = Message("model", {
    1: Field("ir_version", "int"), 2: Field("producer", "string"), 7: Field("graph", _GRAPH),
    8: Field("opsets", _OPSET, many=True), 25: Field("functions", _ANY, many=True),
})  # fmt: skip
_ATTRIBUTE_TYPES = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}


# ---- what is made of them


@dataclass(frozen=True)
class Strings:
    """A constant of strings."""

    values: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """One operator: its name ('Gemm', 'ai.onnx.ml.Scaler'), its version, and the names of what goes in and out."""

    op: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]

    def get(self, name: str, kind: "type[Any]", default: Any, *, infinite: bool = False) -> Any:
        """An attribute, which must be of this type; floats, ints and strings may be lists."""
        value = self.attributes.get(name, default)
        if value is default:
            return default
        items: Sequence[Any] = cast(Sequence[Any], value) if isinstance(value, tuple) else (value,)
        listed = isinstance(default, tuple)
        if isinstance(value, tuple) != listed or not all(isinstance(v, kind) for v in items):
            raise FileError(f"operator {self.op}: attribute {name!r} is of the wrong type")
        if kind is float and not all(math.isfinite(v) or (infinite and math.isinf(v)) for v in items):
            raise FileError(f"operator {self.op}: attribute {name!r} is {'NaN' if infinite else 'not finite'}")
        return cast(Any, value)

    def integer(self, name: str, default: int) -> int:
        return self.get(name, int, default)

    def real(self, name: str, default: float) -> float:
        return self.get(name, float, default)

    def string(self, name: str, default: str) -> str:
        return self.get(name, str, default)

    def integers(self, name: str) -> tuple[int, ...]:
        return self.get(name, int, ())

    def reals(self, name: str, *, infinite: bool = False) -> tuple[float, ...]:
        return self.get(name, float, (), infinite=infinite)

    def strings(self, name: str) -> tuple[str, ...]:
        return self.get(name, str, ())


@dataclass(frozen=True)
class Slot:
    """An input or output of the graph: its element type ('float', 'string', 'maps', ...) and shape, None where open."""

    name: str
    element: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Graph:
    """Operators in an order in which they can be run."""

    nodes: tuple[Node, ...]
    constants: dict[str, Tensor | Strings]
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    producer: str
    opsets: dict[str, int]


def read_graph(data: bytes) -> Graph:
    """The graph in the bytes of an ONNX file."""
    model = read(data, _MODEL)
    graph = model["graph"]
    refuse(graph is None, "the file holds no graph")
    if model["functions"]:
        raise FileError("the graph has functions of its own, which are not supported; export it with them inlined")
    refuse(graph["sparse"], "the graph has sparse constants, which are not supported")
    opsets = _opsets(model["opsets"])
    if len(graph["nodes"]) > MOST_NODES:
        raise FileError(f"the graph has {len(graph['nodes']):,} operators, more than the {MOST_NODES:,} that are run")
    constants: dict[str, Tensor | Strings] = {}
    for entry in graph["constants"]:
        name = entry["name"] or ""
        refuse(not name or name in constants, f"a constant of the graph is called {name!r}, which is empty or taken")
        constants[name] = tensor(entry)
    nodes = tuple(_node(entry, opsets) for entry in graph["nodes"])
    inputs = tuple(_slot(v) for v in graph["inputs"] if v["name"] not in constants)
    outputs = tuple(_slot(v) for v in graph["outputs"])
    _check_names(nodes, {*constants, *(slot.name for slot in inputs)}, outputs)
    return Graph(nodes, constants, inputs, outputs, model["producer"] or "", opsets)


def _opsets(entries: list[dict[str, Any]]) -> dict[str, int]:
    out: dict[str, int] = {}
    for entry in entries:
        domain, version = entry["domain"] or "", entry["version"] or 1
        domain = "" if domain == "ai.onnx" else domain
        refuse(out.get(domain, version) != version, f"the file names two versions of the operator set {domain!r}")
        if domain in NEWEST and not 1 <= version <= NEWEST[domain]:
            raise FileError(f"operator set {domain or 'ai.onnx'!r} has version {version}, known is {NEWEST[domain]}")
        out[domain] = version
    return out


def _node(entry: dict[str, Any], opsets: dict[str, int]) -> Node:
    domain = entry["domain"] or ""
    domain = "" if domain == "ai.onnx" else domain
    op = f"{domain}.{entry['op']}" if domain else str(entry["op"])
    attributes: dict[str, Any] = {}
    for a in entry["attributes"]:
        name = a["name"]
        if a["graph"] is not None or a["graphs"] or a["reference"]:
            raise FileError(f"operator {op}: attribute {name!r} holds a graph of its own, which is not supported")
        kind = _ATTRIBUTE_TYPES.get(a["type"] or 0) or next((k for k in _ATTRIBUTE_TYPES.values() if a[k]), None)
        if not name or name in attributes or kind is None:
            raise FileError(f"operator {op}: attribute {name!r} is given twice or of an unknown type")
        attributes[name] = _attribute(op, name, kind, a[kind])
    return Node(op, opsets.get(domain, 1), tuple(entry["inputs"]), tuple(entry["outputs"]), attributes)


def _attribute(op: str, name: str, kind: str, value: Any) -> Any:
    if value is None:  # a number or string left out is zero or empty
        value = {"f": 0.0, "i": 0, "s": b""}.get(kind)
    refuse(value is None, f"operator {op}: attribute {name!r} is empty")
    if kind == "t":
        return tensor(value)
    if kind == "s":
        return _string(value)
    if kind == "strings":
        return tuple(_string(v) for v in value)
    return tuple(value) if kind in ("floats", "ints") else value


def _string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FileError("a string in the file is not readable") from None


def tensor(entry: dict[str, Any]) -> Tensor | Strings:
    """A constant; its data must be in the file, and as much as its shape says."""
    name, dims = entry["name"] or "", tuple(cast(list[int], entry["dims"]))
    if entry["external"] or entry["location"]:
        raise FileError(
            f"constant {name!r} is in another file, which is not read: put everything into one, with "
            "`torch.onnx.export(..., external_data=False)` or `onnx.save(onnx.load(path), path)`"
        )
    refuse(any(d < 0 for d in dims) or len(dims) > 8, f"constant {name!r} has the impossible shape {dims}")
    size = math.prod(dims)
    if entry["element"] == STRING:
        if len(entry["string_data"]) != size:
            raise FileError(f"constant {name!r} has shape {dims}, but {len(entry['string_data']):,} strings")
        return Strings(tuple(_string(v) for v in entry["string_data"]), dims)
    if entry["element"] not in ELEMENTS:
        raise FileError(f"constant {name!r} is of an element type ({entry['element']}) that is not supported")
    word, form, short = ELEMENTS[entry["element"]]
    if entry["raw"] is not None:
        size_of = np.dtype(form).itemsize
        values = np.frombuffer(entry["raw"][: len(entry["raw"]) // size_of * size_of], form)
    elif word == "float16":
        values = np.array([v & 0xFFFF for v in entry[short]], np.uint16).view(np.float16)
    else:
        try:
            values = np.array(entry[short], form)
        except OverflowError:
            raise FileError(f"constant {name!r} holds a number that is no {word}") from None
    refuse(len(values) != size, f"constant {name!r} has shape {dims}, but {len(values):,} numbers")
    return torch.tensor(values.astype(values.dtype.newbyteorder("="))).reshape(dims)


def _slot(entry: dict[str, Any]) -> Slot:
    kind: dict[str, Any] = entry["type"] or {"tensor": None, "sequence": None, "map": None}
    element, shape = "unknown", None
    if kind["tensor"] is not None:
        code = kind["tensor"]["element"]
        element = "string" if code == STRING else ELEMENTS[code][0] if code in ELEMENTS else "unknown"
        if kind["tensor"]["shape"] is not None:
            shape = tuple(cast("int | None", d["size"]) for d in kind["tensor"]["shape"]["dims"])
    elif kind["sequence"] is not None or kind["map"] is not None:
        element = "maps"
    return Slot(entry["name"] or "", element, shape)


def _check_names(nodes: tuple[Node, ...], known: set[str], outputs: tuple[Slot, ...]) -> None:
    """Everything is made once, and before it is used."""
    for node in nodes:
        for name in node.inputs:
            refuse(name and name not in known, f"operator {node.op} takes {name!r}, which nothing before it makes")
        for name in node.outputs:
            refuse(name and name in known, f"operator {node.op} makes {name!r}, which exists already")
            known.add(name)
    for slot in outputs:
        refuse(slot.name not in known, f"output {slot.name!r} of the graph is made by nothing")
