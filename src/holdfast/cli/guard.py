"""No command writes over a file that it reads, whatever the two are called."""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from holdfast.cli.options import PANELS
from holdfast.errors import FileError

FOLDER = "--from"  # holds files that are read when they are needed
Named = tuple[str, Path]  # a file, and how the command line calls it


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with an error before its work where an output would destroy an input or another
    output."""
    types = get_type_hints(command)
    parameters = signature(command).parameters.values()
    paths = {p.name: p.default for p in parameters if types[p.name] in (Path, Path | None)}
    lists = [p for p in parameters if types[p.name] == list[str] | None]

    @wraps(command)
    def run(**given: Any) -> None:
        outputs = list[Named]()
        inputs = [file for parameter in lists for file in _in_list(parameter, given)]
        for name, known in paths.items():
            if isinstance(given[name], Path):
                of = outputs if _is_output(known) else inputs
                of.append((_spelt(name, known), given[name]))
        check_apart(outputs, inputs)
        command(**given)

    return run


def _is_output(known: ArgumentInfo | OptionInfo) -> bool:
    return known.rich_help_panel == PANELS["output"]


def _spelt(name: str, known: ArgumentInfo | OptionInfo) -> str:
    """How the command line calls a parameter."""
    if isinstance(known, ArgumentInfo):
        return str(known.metavar)
    return next(iter(known.param_decls or ()), f"--{name.replace('_', '-')}")


def _in_list(parameter: Parameter, given: dict[str, Any]) -> Iterator[Named]:
    """The files of an option that takes NAME=FILE."""
    if parameter.default.metavar == "NAME=FILE":
        for text in given[parameter.name] or ():
            yield _spelt(parameter.name, parameter.default), Path(text.partition("=")[2])


def check_apart(outputs: list[Named], inputs: list[Named]) -> None:
    """An error if an output is an input or another output, or lies in a folder that is one, however
    the paths are spelt."""
    for i, (name, path) in enumerate(outputs):
        for other, read in inputs:
            if (name, other) == ("--save", FOLDER):
                continue  # saved again to where it was read from
            in_folder = other == FOLDER and _is_inside(path, read)
            if is_same(path, read) or in_folder or _is_inside(read, path):
                raise FileError(
                    f"{name} {str(path)!r} would destroy {other} {str(read)!r}; name another place"
                )
        for other, written in outputs[:i]:
            if is_same(path, written) or _is_inside(path, written) or _is_inside(written, path):
                raise FileError(
                    f"{name} {str(path)!r} and {other} {str(written)!r} are one place; name another"
                )


def is_same(one: Path, other: Path) -> bool:
    """Are they one file, or will they be?"""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return os.path.realpath(one) == os.path.realpath(other)


def _is_inside(path: Path, folder: Path) -> bool:
    """Does a path lie in a folder?"""
    if not folder.is_dir():
        return False
    parents = Path(os.path.realpath(path)).parents
    return any(is_same(parent, folder) for parent in parents)
