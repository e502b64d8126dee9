"""What a model file is, whether loading it is safe, what it expects, and which methods can explain
it.

Looks at the file and runs nothing in it, whatever it is.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from holdfast.errors import FileError
from holdfast.models.compiled.column_names import found_among
from holdfast.models.formats import limits
from holdfast.models.formats.detect import kind_of_file
from holdfast.models.formats.loaded import Description
from holdfast.models.formats.read import reader_of
from holdfast.models.formats.safetensors import read_header


def inspect(path: Path) -> dict[str, Any]:
    """Plain values: file, bytes, kind, what, loading, problem, schema, inputs, classes, outputs,
    gradients, details."""
    kind = kind_of_file(path)
    out: dict[str, Any] = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "kind": kind.name,
        "what": kind.title,
        "loading": "safe",
        "problem": None,
        "schema": False,
        "inputs": [],
        "classes": None,
        "outputs": None,
        "gradients": None,
        "details": {},
    }
    if kind.loading == "code":
        problem = (
            "it can run any code when it is loaded; only with trust=True or --trust-model-code"
        )
        return out | {"loading": "runs code", "problem": problem}
    if kind.loading == "unknown":
        return out | {"loading": "refused", "problem": "no reader for it"}
    try:
        safetensors = kind.name == "safetensors"
        found = (
            _safetensors(path) if safetensors else reader_of(kind).describe(limits.read_bytes(path))
        )
    except (FileError, RecursionError) as error:
        return out | {"loading": "refused", "problem": str(error)}
    except Exception as error:  # a damaged file can fail anywhere
        return out | {"loading": "refused", "problem": f"damaged: {type(error).__name__}: {error}"}
    own = bool(found.details.pop("schema", False))
    return out | {
        "schema": own,
        "inputs": found.inputs,
        "classes": found.classes,
        "outputs": found.outputs,
        "gradients": found.gradients,
        "details": found.details,
    }


def as_taken(table: pd.DataFrame, path: Path, carried: tuple[str, ...] = ()) -> pd.DataFrame:
    """A table read without a schema, as the model in a file takes it: with the columns it names,
    and those to carry along, and, for boosted trees, with strings as categories."""
    found = inspect(path)
    named = [found_among(list(table.columns), str(name)) for name in found["inputs"]]
    if named and None not in named:
        kept = [name for name in table.columns if name in named or name in carried]
        extra = [name for name in table.columns if name not in kept]
        if extra:
            warnings.warn(
                f"columns that the model does not take are left out: {extra}", stacklevel=3
            )
        table = table[kept]
    if not found["kind"].startswith(("xgboost", "lightgbm")):
        return table
    words = [
        name
        for name in table.columns
        if pd.api.types.is_string_dtype(table[name]) and name not in carried
    ]
    return table.astype(dict.fromkeys(words, "category"))


def _safetensors(path: Path) -> Description:
    """The header has it all; the tensors are not looked at."""
    metadata, tensors = read_header(path)
    if "holdfast" not in metadata:
        raise FileError(
            f"it holds {len(tensors)} tensors, but not the architecture: it was not written by "
            "Model.save"
        )
    content = json.loads(metadata["holdfast"])
    layers = [" ".join(str(v) for v in layer.values()) for layer in content["architecture"]]
    columns = [f"{f['name']}: {f.get('kind', 'real')}" for f in content["schema"]["feature"]]
    recourse = "holdfast_generator" in metadata
    details = {
        "schema": True,
        "layers": layers,
        "tensors": len(tensors),
        "recourse network": recourse,
    }
    return Description(columns, content["classes"], content["outputs"], True, details)
