"""Counterfactual explanations and recourse that hold when the model changes.

The public names are listed in `__init__.pyi`; each loads what it needs when it is first used.
"""

from typing import Any

from holdfast._core.lazy import public_names

_get, _names = public_names(__name__, __file__)
__all__ = [*_names, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from holdfast._core.version import version

        return version()
    if name not in _names:  # methods are known by their line in the registry
        from holdfast.registry import METHODS, method_class

        for key, (_, cls) in METHODS.items():
            if cls == name:
                return method_class(key)
    return _get(name)


def __dir__() -> list[str]:
    return sorted(__all__)
