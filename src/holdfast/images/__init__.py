"""Counterfactuals for image classifiers: networks, methods that change few pixels, and how real the
answers look.

The public names are listed in `__init__.pyi`; each loads what it needs when it is first used.
"""

from typing import Any

from holdfast._core.lazy import public_names

_get, __all__ = public_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    return _get(name)


def __dir__() -> list[str]:
    return __all__
