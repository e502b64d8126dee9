"""From a file to what is in it: one reader per kind, chosen by content."""

from pathlib import Path
from typing import Literal

from holdfast.errors import FileError, HoldfastError
from holdfast.models.formats import limits as bounded
from holdfast.models.formats import unsafe as trusted
from holdfast.models.formats.detect import Kind
from holdfast.models.formats.loaded import Found
from holdfast.schema.schema import Schema

KNOWN = "safetensors (written by `Model.save`), ONNX, skops, XGBoost (JSON or UBJSON) and LightGBM (text)"


def read(
    path: Path, kind: Kind, schema: Schema | None, *, trust: bool, inputs: Literal["frame", "encoded"] | None
) -> Found:
    """The model in a file of any kind but safetensors. Nothing that runs code is loaded without `trust`."""
    if kind.loading == "code" and not trust:
        raise trusted.refuse(path, kind)
    if kind.loading == "unknown" and not (trust and kind.name == "unknown"):
        raise FileError(f"{str(path)!r} is {kind.title}; models are read from {KNOWN}")
    if schema is None:
        raise FileError(f"{str(path)!r} does not hold a schema; pass one (--schema FILE)")
    if kind.loading != "data":
        return Found(trusted.load(path, kind), inputs=inputs)
    try:
        return _read(bounded.read_bytes(path), kind, schema, trust=trust, inputs=inputs)
    except FileError as error:  # the readers see bytes; here it has a name
        raise type(error)(f"{str(path)!r}, {kind.title}: {error}") from None
    except HoldfastError:
        raise
    except (Exception, RecursionError) as error:
        raise FileError(f"{str(path)!r}, {kind.title}, is damaged: {type(error).__name__}: {error}") from None


def _read(data: bytes, kind: Kind, schema: Schema, *, trust: bool, inputs: Literal["frame", "encoded"] | None) -> Found:
    if kind.name == "onnx":
        from holdfast.models.formats.onnx import runtime as onnx

        return onnx.load(data, schema, inputs)
    if inputs == "encoded":
        raise FileError("the model takes the table, so inputs='encoded' is of no use")
    if kind.name == "skops":
        from holdfast.models.formats.skops import reader as skops

        return skops.load(data, trust=trust)
    if kind.name == "lightgbm":
        from holdfast.models.formats import lightgbm

        return lightgbm.load(data, schema)
    from holdfast.models.formats import xgboost

    return xgboost.load(data, schema)
