"""Checks of what users pass, and the words of the errors they raise."""

import difflib
import importlib
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from holdfast.errors import MissingExtraError, SettingError


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
        raise MissingExtraError(
            f"{name!r} is not installed; run: pip install 'holdfast[{extra}]'"
        ) from error


def trained_part(owner: object, name: str, call: str) -> Any:
    """What training leaves in an attribute of this name, or an error that says what to call
    first."""
    if not hasattr(owner, name):
        raise SettingError(f"this {type(owner).__name__} has not been fitted; call {call} first")
    return getattr(owner, name)


def require_integer(name: str, value: object, least: int = 1) -> None:
    """Raise a `SettingError` unless a setting is an integer of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise SettingError(f"{name} must be an integer of at least {least}, got {value!r}")


def require_number(name: str, value: object, *, positive: bool = False) -> None:
    """Raise a `SettingError` unless a setting is a finite number of at least 0, or above it."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
    if not 0 <= number < math.inf or (positive and number == 0):
        least = "positive" if positive else "at least 0"
        raise SettingError(f"{name} must be a number and {least}, got {value!r}")


def require_positive(name: str, value: float) -> None:
    """Raise a `SettingError` unless a setting is above 0."""
    if not value > 0:
        raise SettingError(f"{name} must be positive, got {value}")


def require_weight(name: str, value: float, rewards: str) -> None:
    """Raise a `SettingError` for a weight below 0, which would reward what it is to keep small."""
    if not value >= 0:
        raise SettingError(f"{name} must be 0 or more (below 0 it rewards {rewards}), got {value}")
