"""Names that load what they need when first used, so that importing a package stays light.

The public names of a package are the `from ... import name as name` lines of its stub `__init__.pyi`, which type
checkers read too: one table for both.
"""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def public_names(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and the list of names for the `__init__` of a package."""
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    table = {
        alias.asname: (node.module, alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.asname
    }

    def get(name: str) -> Any:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = table[name]
        if module == package:  # a module of its own, which asking the package for would ask here again
            return importlib.import_module(f"{module}.{attribute}")
        found = importlib.import_module(module)
        return getattr(found, attribute, None) or importlib.import_module(f"{module}.{attribute}")

    return get, sorted(table)
