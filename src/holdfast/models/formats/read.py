"""From a file to the model in it: one reader per format, chosen by content."""

from pathlib import Path
from typing import Protocol

from holdfast._core.checks import untyped
from holdfast.errors import FileError, HoldfastError
from holdfast.models.formats import limits, unsafe
from holdfast.models.formats.detect import Kind
from holdfast.models.formats.loaded import Description, LoadedModel
from holdfast.models.scores import Inputs
from holdfast.schema.schema import Schema

KNOWN = (
    "safetensors (written by `Model.save`), ONNX, skops, XGBoost (JSON or UBJSON) and LightGBM "
    "(text)"
)


class Reader(Protocol):
    """A module that reads the bytes of one format, all of them checked."""

    def load(
        self, data: bytes, schema: Schema, *, trust: bool, inputs: Inputs | None
    ) -> LoadedModel: ...
    def describe(self, data: bytes) -> Description: ...


def reader_of(kind: Kind) -> Reader:
    """The module that reads files of this kind; imported here, as each needs a library of its
    own."""
    return untyped(f"holdfast.models.formats.{kind.reader}")


def read(
    path: Path, kind: Kind, schema: Schema | None, *, trust: bool, inputs: Inputs | None
) -> LoadedModel:
    """The model in a file of any kind but safetensors. Nothing that runs code is loaded without
    `trust`."""
    if kind.loading == "code" and not trust:
        raise unsafe.refusal(path, kind)
    if kind.loading == "unknown" and not (trust and kind.name == "unknown"):
        raise FileError(f"{str(path)!r} is {kind.title}; models are read from {KNOWN}")
    if schema is None:
        raise FileError(f"{str(path)!r} does not hold a schema; pass one (--schema FILE)")
    if kind.loading != "data":
        return LoadedModel(unsafe.load(path, kind), inputs=inputs)
    try:
        if inputs == "encoded" and kind.name != "onnx":
            raise FileError("the model takes the table, so inputs='encoded' is of no use")
        return reader_of(kind).load(limits.read_bytes(path), schema, trust=trust, inputs=inputs)
    except FileError as error:  # the readers see bytes; here it has a name
        raise type(error)(f"{str(path)!r}, {kind.title}: {error}") from None
    except HoldfastError:
        raise
    except (Exception, RecursionError) as error:
        raise FileError(
            f"{str(path)!r}, {kind.title}, is damaged: {type(error).__name__}: {error}"
        ) from None
