"""Names that load what they need when first used, so that importing a package stays light.

The public names of a package are the lines `from ... import name as name` of its stub
`__init__.pyi`, which type checkers read too: one table for both.
"""

import importlib
import re
from collections.abc import Callable
from typing import Any

# One name of a stub; one that is too long for a line stands in parentheses.
IMPORT = re.compile(r"^from (\S+) import \(?\s*(\w+) as (\w+)", re.MULTILINE)


def public_names(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and the list of names for the `__init__` of a package, whose file is `file`."""
    with open(file.removesuffix(".py") + ".pyi", encoding="utf-8") as stub:
        imports = IMPORT.findall(stub.read())
    table = {alias: (module, name) for module, name, alias in imports}

    def get(name: str) -> Any:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = table[name]
        # a module of its own, which asking the package for would ask here again
        if module == package:
            return importlib.import_module(f"{module}.{attribute}")
        found = importlib.import_module(module)
        return getattr(found, attribute, None) or importlib.import_module(f"{module}.{attribute}")

    return get, sorted(table)
