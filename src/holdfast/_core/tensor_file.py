"""Tensors and texts in one safetensors file, which runs no code when it is read."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from torch import Tensor

from holdfast.errors import FileError, untyped


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> None:
    """Write named tensors and texts."""
    try:
        untyped("safetensors.torch").save_file(dict(tensors), path, metadata=dict(texts))
    except Exception as error:  # safetensors has an error of its own, which is no OSError
        raise FileError(f"cannot write {str(path)!r}: {error}") from None


def read_tensors(path: str | Path, prefix: str = "") -> tuple[dict[str, str], dict[str, Tensor]]:
    """The texts of a file, and its tensors whose names begin so."""
    try:
        with untyped("safetensors").safe_open(path, framework="pt") as file:
            texts = cast(dict[str, str], file.metadata() or {})
            names = [name for name in cast(list[str], list(file.keys())) if name.startswith(prefix)]
            return texts, {name: file.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise FileError(f"there is no file {str(path)!r}") from None
    except Exception as error:
        raise FileError(f"{str(path)!r} is not a readable safetensors file ({error})") from None


def has_text(path: str | Path, name: str) -> bool:
    """Is there a text of this name in the file? False if it is no safetensors file at all."""
    try:
        with untyped("safetensors").safe_open(path, framework="pt") as file:
            return name in (file.metadata() or {})
    except Exception:  # whoever reads the file says better what is wrong with it
        return False
