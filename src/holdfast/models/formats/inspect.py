"""What a model file is, whether loading it is safe, what it expects, and which methods can explain it.

Looks at the file and runs nothing of it, whatever it is.
"""

import json
from pathlib import Path
from typing import Any

from holdfast.errors import FileError
from holdfast.models.formats import limits
from holdfast.models.formats.detect import kind_of
from holdfast.models.formats.loaded import Description
from holdfast.models.formats.read import reader_of
from holdfast.models.formats.safetensors import read_header


def inspect(path: Path) -> dict[str, Any]:
    """Plain values: file, bytes, kind, what, loading, problem, schema, inputs, classes, outputs, gradients, details."""
    kind = kind_of(path)
    out: dict[str, Any] = {
        "file": str(path), "bytes": path.stat().st_size, "kind": kind.name, "what": kind.title, "loading": "safe",
        "problem": None, "schema": False, "inputs": [], "classes": None, "outputs": None, "gradients": None,
        "details": {},
    }  # fmt: skip
    if kind.loading == "code":
        problem = "it can run any code when it is loaded; only with trust=True or --trust-model-code"
        return out | {"loading": "runs code", "problem": problem}
    if kind.loading == "unknown":
        return out | {"loading": "refused", "problem": "no reader for it"}
    try:
        safetensors = kind.name == "safetensors"
        found = _safetensors(path) if safetensors else reader_of(kind).describe(limits.read_bytes(path))
    except (FileError, RecursionError) as error:
        return out | {"loading": "refused", "problem": str(error)}
    except Exception as error:  # a damaged file can fail anywhere
        return out | {"loading": "refused", "problem": f"damaged: {type(error).__name__}: {error}"}
    own = bool(found.details.pop("schema", False))
    return out | {
        "schema": own, "inputs": found.inputs, "classes": found.classes, "outputs": found.outputs,
        "gradients": found.gradients, "details": found.details,
    }  # fmt: skip


def _safetensors(path: Path) -> Description:
    """The header has it all; the tensors are not looked at."""
    metadata, tensors = read_header(path)
    what = f"it holds {len(tensors)} tensors, but not the architecture: it was not written by Model.save"
    limits.refuse("holdfast" not in metadata, what)
    content = json.loads(metadata["holdfast"])
    layers = [" ".join(str(v) for v in layer.values()) for layer in content["architecture"]]
    columns = [f"{f['name']}: {f.get('kind', 'real')}" for f in content["schema"]["feature"]]
    recourse = "holdfast_generator" in metadata
    details = {"schema": True, "layers": layers, "tensors": len(tensors), "recourse network": recourse}
    return Description(columns, content["classes"], content["outputs"], True, details)
