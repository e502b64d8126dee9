"""Loops over numbers, compiled where the `fast` extra is installed, and run as they stand where it
is not: the same answers to the last bit, some hundred times slower."""

import hashlib
import importlib
import importlib.util
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
IS_COMPILED = importlib.util.find_spec("numba") is not None


def compiled(function: F) -> F:
    """The function, compiled when it is first called and kept for later processes."""
    if not IS_COMPILED:
        return function
    numba: Any = importlib.import_module("numba")
    made = numba.njit(cache=True)(function)
    # What is kept has the functions in it that are called, and is only looked up by the age of the
    # caller's own file: it must be that of all files of the folder.
    made._cache._cache_file._source_stamp = sources(Path(function.__code__.co_filename).parent)
    return cast(F, made)


@cache
def sources(folder: Path) -> str:
    """A hash of the Python files of a folder."""
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()


@cache
def say_that_it_is_slow(what: str) -> None:
    """Once: what would be faster with the extra."""
    logging.getLogger("holdfast").warning(
        "%s is slow and cut short without a compiler; run: pip install 'holdfast[fast]'", what
    )
