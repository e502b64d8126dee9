"""What a model file is, whether loading it is safe, what it expects, and which methods can explain it.

Looks at the file and runs nothing of it, whatever it is.
"""

import json
import struct
from pathlib import Path
from typing import Any, cast

from holdfast.errors import FileError
from holdfast.models.formats import limits as bounded
from holdfast.models.formats.detect import Kind, kind_of
from holdfast.models.formats.loaded import Said

NEEDS_EXTRA = {"skops": "files", "xgboost-json": "trees", "xgboost-ubj": "trees", "lightgbm": "trees"}
MOST_HEADER = 100_000_000


def inspect(path: Path) -> dict[str, Any]:
    """Plain values: file, bytes, kind, what, loading, problem, schema, inputs, classes, outputs, gradients, details."""
    kind = kind_of(path)
    out: dict[str, Any] = {
        "file": str(path), "bytes": path.stat().st_size, "kind": kind.name, "what": kind.title, "loading": "safe",
        "problem": None, "schema": False, "inputs": [], "classes": None, "outputs": None, "gradients": None,
        "details": {},
    }  # fmt: skip
    if kind.loading != "data":
        out["loading"] = "runs code" if kind.loading == "code" else "refused"
        if kind.loading == "code":
            out["problem"] = "it can run any code when it is loaded; only with trust=True or --trust-model-code"
        else:
            out["problem"] = "no reader for it"
        return out
    try:
        said = _describe(path, kind)
    except (FileError, RecursionError) as error:
        return out | {"loading": "refused", "problem": str(error)}
    except Exception as error:  # a damaged file can fail anywhere
        return out | {"loading": "refused", "problem": f"damaged: {type(error).__name__}: {error}"}
    own = bool(said.details.pop("schema", False))
    return out | {
        "schema": own, "inputs": said.inputs, "classes": said.classes, "outputs": said.outputs,
        "gradients": said.gradients, "details": said.details,
    }  # fmt: skip


def _describe(path: Path, kind: Kind) -> Said:
    if kind.name == "safetensors":
        return _safetensors(path)
    data = bounded.read_bytes(path)
    if kind.name == "onnx":
        from holdfast.models.formats.onnx import runtime as onnx

        return onnx.describe(data)
    if kind.name == "skops":
        from holdfast.models.formats.skops import reader as skops

        return skops.describe(data)
    if kind.name == "lightgbm":
        from holdfast.models.formats import lightgbm

        return lightgbm.describe(data)
    from holdfast.models.formats import xgboost

    return xgboost.describe(data)


def _safetensors(path: Path) -> Said:
    """The header says it all; the tensors are not looked at."""
    size = path.stat().st_size
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(size - 8, MOST_HEADER):
            raise FileError(f"the file is cut off: its header has {length:,} bytes, the file {size:,}")
        header = bounded.parse_json(file.read(length), "the header")
    if not isinstance(header, dict):
        raise FileError("the header is no object")
    entries = cast(dict[str, Any], header)
    metadata: Any = entries.pop("__metadata__", {})
    ends = [cast(dict[str, Any], e)["data_offsets"][1] for e in entries.values()]
    if max(ends, default=0) != size - 8 - length:
        raise FileError(
            f"the file is cut off: tensors end at {max(ends, default=0):,}, the data at {size - 8 - length:,}"
        )
    if "holdfast" not in metadata:
        raise FileError(f"it holds {len(entries)} tensors, but not the architecture: it was not written by Model.save")
    content = json.loads(metadata["holdfast"])
    layers = [" ".join(str(v) for v in layer.values()) for layer in content["architecture"]]
    columns = [f"{f['name']}: {f.get('kind', 'real')}" for f in content["schema"]["feature"]]
    details = {
        "schema": True,
        "layers": layers,
        "tensors": len(entries),
        "recourse network": "holdfast_generator" in metadata,
    }
    return Said(columns, content["classes"], content["outputs"], True, details)
