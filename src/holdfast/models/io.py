"""Models from files; loading one runs no code from the file unless the caller says so."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from holdfast._core.checks import listed
from holdfast.errors import FileError, HoldfastError
from holdfast.models.base import Model, names_of
from holdfast.models.formats import safetensors
from holdfast.models.formats.detect import kind_of_file
from holdfast.models.formats.read import read
from holdfast.models.formats.safetensors import OpenedFile
from holdfast.models.scores import OUTPUTS, Inputs, Outputs
from holdfast.models.torch_model import wrap_module
from holdfast.nn.architecture import build
from holdfast.schema.schema import Schema

_SAFETENSORS_FIX = "save it with `hf.Model.of(module, schema).save('model.safetensors')`"


def load_model(
    path: Path | OpenedFile,
    schema: Schema | None,
    *,
    trust: bool = False,
    classes: Sequence[Any] | None = None,
    outputs: Outputs | None = None,
    inputs: Inputs | None = None,
) -> Model:
    """A model from a file; see `Model.load`. The formats are read in `holdfast.models.formats`."""
    kind = kind_of_file(Path(path))
    if kind.name == "safetensors":
        return _load_safetensors(path, schema, classes)
    found = read(Path(path), kind, schema, trust=trust, inputs=inputs)
    if isinstance(found.model, Model):
        return found.model
    assert schema is not None  # `read` asks for one
    rejected = found.rejects_missing
    model = Model.of(
        found.model,
        schema,
        classes=names_of(classes, found.classes),
        outputs=outputs or found.outputs,
        inputs=found.inputs,
    )
    return (
        replace(model, rejects_missing={**model.rejects_missing, **rejected}) if rejected else model
    )


def _load_safetensors(
    path: Path | OpenedFile, schema: Schema | None, classes: Sequence[Any] | None
) -> Model:
    try:
        # The same file may hold a recourse network that was trained with the model.
        metadata, tensors = safetensors.read(path, lambda name: not name.startswith("generator."))
    except FileError as error:
        raise FileError(
            f"{str(path)!r} is not a readable safetensors file ({error}); {_SAFETENSORS_FIX}"
        ) from None
    if "holdfast" not in metadata:
        raise FileError(f"{str(path)!r} holds tensors but not the architecture; {_SAFETENSORS_FIX}")
    try:
        content = json.loads(metadata["holdfast"])
        if classes is not None:
            content |= {"classes": names_of(classes, content.get("classes"))}
        return from_parts(path, content, tensors, schema)
    except HoldfastError:
        raise
    except Exception as error:  # the text in the file may say anything
        raise FileError(
            f"{str(path)!r} is damaged ({type(error).__name__}: {error}); {_SAFETENSORS_FIX}"
        ) from error


def from_parts(
    path: str | os.PathLike[str], content: Any, tensors: dict[str, Tensor], schema: Schema | None
) -> Model:
    """A network that `TorchModel.contents` took apart; a file of this name said so."""
    for key in ("architecture", "classes", "outputs", "schema"):
        if key not in content:
            raise FileError(f"{str(path)!r} lacks {key!r}; {_SAFETENSORS_FIX}")
    if content["outputs"] not in OUTPUTS:
        raise FileError(
            f"{str(path)!r}: outputs must be one of {listed(OUTPUTS)}, got {content['outputs']!r}"
        )
    classes: Any = content["classes"]
    if not isinstance(classes, list) or any(
        not isinstance(c, str | int | float) or c != c for c in cast(Any, classes)
    ):
        raise FileError(
            f"{str(path)!r}: classes must be a list of strings or numbers, got {classes!r}"
        )
    # Without its own memory until the tensors are in place: the file only claims these
    # sizes.
    with torch.device("meta"):
        module = build(content["architecture"])
    try:
        module.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise FileError(
            f"the tensors in {str(path)!r} do not fit its architecture: {error}"
        ) from None
    if len({t.dtype for t in tensors.values() if t.is_floating_point()}) > 1:
        module = module.float()
    # which must be one, also where another takes its place
    own = Schema.from_dict(content["schema"])
    return wrap_module(module.eval(), schema or own, content["classes"], content["outputs"])
