"""Names that load what they need when first used, so that importing a package stays light.

The public names of a package are the lines `from ... import name as name` of its stub `__init__.pyi`, which type
checkers read too: one table for both.
"""

import importlib
from collections.abc import Callable
from typing import Any


def public_names(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and the list of names for the `__init__` of a package, whose file is `file`."""
    with open(file.removesuffix(".py") + ".pyi", encoding="utf-8") as stub:
        imports = [line.split() for line in stub if line.startswith("from ")]
    table = {alias: (module, name) for _, module, _, name, _, alias in imports}

    def get(name: str) -> Any:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = table[name]
        if module == package:  # a module of its own, which asking the package for would ask here again
            return importlib.import_module(f"{module}.{attribute}")
        found = importlib.import_module(module)
        return getattr(found, attribute, None) or importlib.import_module(f"{module}.{attribute}")

    return get, sorted(table)
