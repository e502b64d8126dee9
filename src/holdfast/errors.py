"""Errors that name the thing, the value and the fix. All of them are `HoldfastError`s."""

import difflib
import importlib
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


class HoldfastError(Exception):
    """Root of every error raised on purpose by this library.

    >>> import holdfast as hf
    >>> try:
    ...     hf.Schema.box(0)
    ... except hf.HoldfastError as error:
    ...     print(type(error).__name__)
    SchemaError
    """


class SettingError(HoldfastError, ValueError):
    """A hyperparameter or argument has a value that cannot work."""


class SchemaError(HoldfastError, ValueError):
    """A schema contradicts itself, or a table does not fit it."""


class ModelError(HoldfastError, ValueError):
    """A model cannot be used as asked."""


class TargetError(HoldfastError, ValueError):
    """The wanted outcome does not exist or cannot be asked of this model."""


class FileError(HoldfastError, ValueError):
    """A file is missing, unreadable or not what it claims to be."""


class UnsafeFileError(FileError):
    """Loading the file would run code from it."""


class MissingExtraError(HoldfastError, ImportError):
    """An optional dependency is not installed."""


def listed(names: Iterable[object], most: int = 6) -> str:
    """'a', 'b', 'c' and 4 more."""
    shown = [repr(n) for n in names]
    rest = len(shown) - most
    return ", ".join(shown) if rest <= 0 else ", ".join(shown[:most]) + f" and {rest} more"


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """A closing phrase that offers the nearest known name, or lists the known ones."""
    known = list(known)
    near = difflib.get_close_matches(str(name), [str(k) for k in known], n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"known: {listed(known)}"


def untyped(module: str) -> Any:
    """Import a dependency that has no type information, so that checkers do not ask for it."""
    return importlib.import_module(module)


def optional(module: str, extra: str) -> Any:
    """Import a dependency that lives in an extra, or say how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.split(".")[0]
        raise MissingExtraError(f"{name!r} is not installed; run: pip install 'holdfast[{extra}]'") from error


def require_integer(name: str, value: object, least: int = 1) -> None:
    """Raise a `SettingError` unless a setting is an integer of at least `least`."""
    good = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
    require(good, f"{name} must be an integer of at least {least}, got {value!r}")


def require_number(name: str, value: object, *, positive: bool = False) -> None:
    """Raise a `SettingError` unless a setting is a finite number of at least 0, or above it."""
    good = isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf
    least = "positive" if positive else "at least 0"
    require(good and not (positive and value == 0), f"{name} must be a number and {least}, got {value!r}")


def require(holds: object, message: str, error: type[HoldfastError] = SettingError) -> None:
    """Raise an error, of a setting if nothing else is said, unless it holds."""
    if not holds:
        raise error(message)
