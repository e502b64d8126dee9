"""The graph in an ONNX file: operators in order, constants, inputs and outputs, as plain values.

Only the parts of the format that a classifier needs: no subgraphs, no functions in the file, no
data in other files. See `onnx.protobuf` for how it is read and `onnx.runtime` for how it is run.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import FileError
from holdfast.models.formats.onnx.protobuf import message, read

ML = "ai.onnx.ml"
Scalar = TypeVar("Scalar", int, float, str)
MOST_NODES = 20_000
NEWEST = {"": 30, ML: 10}  # later operator sets may mean something else by the same name

# Element types: number in the file -> name, NumPy's type of the raw bytes, and the field of short
# lists.
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
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name, _, _ in ELEMENTS.values()}

# ---- the messages, by the field numbers of onnx.proto

_DIMENSION = message("dimension", size=(1, "int"), word=(2, "string"))
_TENSOR_TYPE = message(
    "tensor type", element=(1, "int"), shape=(2, message("shape", dims=(1, [_DIMENSION])))
)
_ANY = message("type")
_TYPE = message("type", tensor=(1, _TENSOR_TYPE), sequence=(4, _ANY), map=(5, _ANY))
_VALUE = message("value", name=(1, "string"), type=(2, _TYPE))
_TENSOR = message(
    "tensor",
    dims=(1, ["int"]),
    element=(2, "int"),
    float_data=(4, ["float"]),
    int32_data=(5, ["int"]),
    string_data=(6, ["bytes"]),
    int64_data=(7, ["int"]),
    name=(8, "string"),
    raw=(9, "bytes"),
    double_data=(10, ["double"]),
    location=(14, "int"),
    external=(13, [message("entry", key=(1, "string"), value=(2, "string"))]),
)
_ATTRIBUTE = message(
    "attribute",
    name=(1, "string"),
    f=(2, "float"),
    i=(3, "int"),
    s=(4, "bytes"),
    t=(5, _TENSOR),
    graph=(6, _ANY),
    floats=(7, ["float"]),
    ints=(8, ["int"]),
    strings=(9, ["bytes"]),
    graphs=(11, [_ANY]),
    type=(20, "int"),
    reference=(21, "string"),
)
_NODE = message(
    "node",
    inputs=(1, ["string"]),
    outputs=(2, ["string"]),
    name=(3, "string"),
    op=(4, "string"),
    attributes=(5, [_ATTRIBUTE]),
    domain=(7, "string"),
)
_GRAPH = message(
    "graph",
    nodes=(1, [_NODE]),
    constants=(5, [_TENSOR]),
    inputs=(11, [_VALUE]),
    outputs=(12, [_VALUE]),
    sparse=(15, [_ANY]),
)
_OPSET = message("operator set", domain=(1, "string"), version=(2, "int"))
_MODEL = message(
    "model",
    ir_version=(1, "int"),
    producer=(2, "string"),
    graph=(7, _GRAPH),
    opsets=(8, [_OPSET]),
    functions=(25, [_ANY]),
)
_ATTRIBUTE_TYPES = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}


@dataclass(frozen=True)
class Strings:
    """A constant of strings."""

    values: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """One operator: its name ('Gemm', 'ai.onnx.ml.Scaler'), its version, and the names of what goes
    in and out."""

    op: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]

    def get(self, name: str, default: Scalar) -> Scalar:
        """An attribute: an integer, a number or a string, as its default is."""
        return (
            self._list(name, (self.attributes[name],), type(default))[0]
            if name in self.attributes
            else default
        )

    def integers(self, name: str) -> tuple[int, ...]:
        return self._list(name, self.attributes.get(name, ()), int)

    def strings(self, name: str) -> tuple[str, ...]:
        return self._list(name, self.attributes.get(name, ()), str)

    def reals(self, name: str, *, infinite: bool = False) -> tuple[float, ...]:
        return self._list(name, self.attributes.get(name, ()), float, infinite)

    def _list(
        self, name: str, values: Any, kind: type[Scalar], infinite: bool = False
    ) -> tuple[Scalar, ...]:
        listed: tuple[Any, ...] = cast(Any, values) if isinstance(values, tuple) else (None,)
        what = f"operator {self.op}: attribute {name!r} is"
        if not all(isinstance(v, kind) for v in listed):
            raise FileError(f"{what} of the wrong type")
        if kind is float and not all(
            math.isfinite(v) or (infinite and math.isinf(v)) for v in listed
        ):
            raise FileError(f"{what} {'NaN' if infinite else 'not finite'}")
        return listed


@dataclass(frozen=True)
class Slot:
    """An input or output of the graph: its element type ('float', 'string', 'maps', ...) and shape,
    None where open."""

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
    # What could hide work from the interpreter (functions, graphs in attributes, sparse constants)
    # is refused by name before anything in it is looked at.
    model = read(data, _MODEL)
    graph = model["graph"]
    if graph is None:
        raise FileError("the file holds no graph")
    if model["functions"]:
        raise FileError(
            "the graph has functions of its own, which are not supported; export it with them "
            "inlined"
        )
    if graph["sparse"]:
        raise FileError("the graph has sparse constants, which are not supported")
    opsets = _opsets(model["opsets"])
    count = len(graph["nodes"])
    if count > MOST_NODES:
        raise FileError(
            f"the graph has {count:,} operators, more than the {MOST_NODES:,} that are run"
        )
    constants: dict[str, Tensor | Strings] = {}
    for entry in graph["constants"]:
        name = entry["name"] or ""
        if not name or name in constants:
            raise FileError(f"a constant of the graph is called {name!r}, which is empty or taken")
        constants[name] = tensor(entry)
    nodes = tuple(_node(entry, opsets) for entry in graph["nodes"])
    inputs = tuple(_slot(v) for v in graph["inputs"] if v["name"] not in constants)
    outputs = tuple(_slot(v) for v in graph["outputs"])
    _check_names(nodes, {*constants, *(slot.name for slot in inputs)}, outputs)
    return Graph(nodes, constants, inputs, outputs, model["producer"] or "", opsets)


def _opsets(entries: list[dict[str, Any]]) -> dict[str, int]:
    out: dict[str, int] = {}
    for entry in entries:
        domain = "" if entry["domain"] in (None, "ai.onnx") else entry["domain"]
        version = entry["version"] or 1
        if out.get(domain, version) != version:
            raise FileError(f"the file names two versions of the operator set {domain!r}")
        if domain in NEWEST and not 1 <= version <= NEWEST[domain]:
            raise FileError(
                f"operator set {domain or 'ai.onnx'!r} has version {version}, known is "
                f"{NEWEST[domain]}"
            )
        out[domain] = version
    return out


def _node(entry: dict[str, Any], opsets: dict[str, int]) -> Node:
    domain = "" if entry["domain"] in (None, "ai.onnx") else entry["domain"]
    op = f"{domain}.{entry['op']}" if domain else str(entry["op"])
    attributes: dict[str, Any] = {}
    for a in entry["attributes"]:
        name = a["name"]
        if a["graph"] is not None or a["graphs"] or a["reference"]:
            raise FileError(
                f"operator {op}: attribute {name!r} holds a graph of its own, which is not "
                "supported"
            )
        kind = _ATTRIBUTE_TYPES.get(a["type"] or 0) or next(
            (k for k in _ATTRIBUTE_TYPES.values() if a[k]), None
        )
        if not name or name in attributes or kind is None:
            raise FileError(
                f"operator {op}: attribute {name!r} is given twice or of an unknown type"
            )
        attributes[name] = _attribute(op, name, kind, a[kind])
    return Node(
        op, opsets.get(domain, 1), tuple(entry["inputs"]), tuple(entry["outputs"]), attributes
    )


def _attribute(op: str, name: str, kind: str, value: Any) -> Any:
    if value is None:  # a number or string left out is zero or empty
        value = {"f": 0.0, "i": 0, "s": b""}.get(kind)
    if value is None:
        raise FileError(f"operator {op}: attribute {name!r} is empty")
    if kind in ("strings", "floats", "ints"):
        return tuple(_string(v) for v in value) if kind == "strings" else tuple(value)
    return tensor(value) if kind == "t" else _string(value) if kind == "s" else value


def _string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FileError("a string in the file is not readable") from None


def tensor(entry: dict[str, Any]) -> Tensor | Strings:
    """A constant; its data must be in the file, and as much as its shape says."""
    # Counted before the numbers are shaped: no more memory is taken than the file is long.
    name = entry["name"] or ""
    dims = tuple(cast(list[int], entry["dims"]))
    if entry["external"] or entry["location"]:
        raise FileError(
            f"constant {name!r} is in another file, which is not read: put everything into one, "
            "with `torch.onnx.export(..., external_data=False)` or `onnx.save(onnx.load(path), "
            "path)`"
        )
    if any(d < 0 for d in dims) or len(dims) > 8:
        raise FileError(f"constant {name!r} has the impossible shape {dims}")
    size = math.prod(dims)
    if entry["element"] == STRING:
        if len(entry["string_data"]) != size:
            raise FileError(
                f"constant {name!r} has shape {dims}, but {len(entry['string_data']):,} strings"
            )
        return Strings(tuple(_string(v) for v in entry["string_data"]), dims)
    if entry["element"] not in ELEMENTS:
        raise FileError(
            f"constant {name!r} is of an element type ({entry['element']}) that is not supported"
        )
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
            raise FileError(f"constant {name!r} holds a number that is not a {word}") from None
    if len(values) != size:
        raise FileError(f"constant {name!r} has shape {dims}, but {len(values):,} numbers")
    return torch.tensor(values.astype(values.dtype.newbyteorder("="))).reshape(dims)


def _slot(entry: dict[str, Any]) -> Slot:
    kind: dict[str, Any] = entry["type"] or {"tensor": None, "sequence": None, "map": None}
    element = "unknown"
    shape = None
    if kind["tensor"] is not None:
        code = kind["tensor"]["element"]
        element = (
            "string" if code == STRING else ELEMENTS[code][0] if code in ELEMENTS else "unknown"
        )
        if kind["tensor"]["shape"] is not None:
            shape = tuple(cast("int | None", d["size"]) for d in kind["tensor"]["shape"]["dims"])
    elif kind["sequence"] is not None or kind["map"] is not None:
        element = "maps"
    return Slot(entry["name"] or "", element, shape)


def _check_names(nodes: tuple[Node, ...], known: set[str], outputs: tuple[Slot, ...]) -> None:
    """Everything is made once, and before it is used."""
    for node in nodes:
        for name in node.inputs:
            if name and name not in known:
                raise FileError(f"operator {node.op} takes {name!r}, which nothing before it makes")
        for name in node.outputs:
            if name and name in known:
                raise FileError(f"operator {node.op} makes {name!r}, which exists already")
            known.add(name)
    for slot in outputs:
        if slot.name not in known:
            raise FileError(f"output {slot.name!r} of the graph is made by nothing")
