"""From the papers to the code: which function or class is an equation, and which test checks it.

What the papers have is listed in `experiments/PAPER/elements.toml`. What is what says the last
paragraph of a docstring, of a module, a class, a function or a test:

    Paper: black2022 Eq. 3, Theorem 2; krishna2024 Eq. 2.
"""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from docs.generator import api
from docs.generator.docstrings import PAPER, split_papers
from experiments import PAPERS

ROOT = Path(__file__).parents[2]
HOMES = ("src/holdfast", "experiments")
TESTS = ("tests",)
SHOWN = re.compile(
    r"(Table|Figure) "
)  # what is measured or drawn, where no test is asked for
Documented = ast.Module | ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class ElementList:
    """What a paper has: name -> what it is, in what the code differs from it, and the reasons for
    what is missing here."""

    name: str
    title: str
    cited: str
    elements: dict[str, str]
    differs: dict[str, str]
    not_here: dict[str, str]
    not_tested: dict[str, str]


@dataclass(frozen=True)
class Mark:
    """Something that says of itself which element of a paper it is, or checks."""

    paper: str
    element: str
    file: str  # from the top of the repository
    name: str  # such as 'Descent.scfe'; empty for a module

    @property
    def place(self) -> str:
        return f"{self.file}: {self.name}" if self.name else self.file


def read_list(name: str) -> ElementList:
    """The list of a paper."""
    path = ROOT / "experiments" / name / "elements.toml"
    listed = tomllib.loads(path.read_text(encoding="utf-8"))
    return ElementList(
        name,
        listed["title"],
        listed["cited"],
        listed["elements"],
        listed.get("differs", {}),
        listed.get("not_here", {}),
        listed.get("not_tested", {}),
    )


# ---- marks


def marked(docstring: str) -> list[tuple[str, str]]:
    """(paper, element) of each element that a docstring names."""
    text = inspect.cleandoc(docstring)
    rest, words = split_papers(text)
    if any(line.startswith(PAPER) for line in rest.splitlines()):
        raise ValueError(f"{PAPER!r} must begin the last paragraph of a docstring")
    if not words:
        return []
    if not text.endswith("."):
        raise ValueError(f"{words!r} must end with a dot")
    out = list[tuple[str, str]]()
    for part in words.split("; "):
        paper, _, names = part.partition(" ")
        out += [(paper, name) for name in names.split(", ")]
    return out


def marks_in(text: str, file: str) -> Iterator[Mark]:
    """The marks of a source file."""
    for name, node in _documented(ast.parse(text), ""):
        for paper, element in marked(ast.get_docstring(node) or ""):
            yield Mark(paper, element, file, name)


def _documented(node: Documented, name: str) -> Iterator[tuple[str, Documented]]:
    yield name, node
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef):
            yield from _documented(inner, f"{name}.{inner.name}".lstrip("."))


@cache
def marks(trees: tuple[str, ...]) -> tuple[Mark, ...]:
    """All marks below these folders."""
    out = list[Mark]()
    for tree in trees:
        for path in sorted((ROOT / tree).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if PAPER in text:
                out += marks_in(text, path.relative_to(ROOT).as_posix())
    return tuple(out)


# ---- do both sides agree?


def problems(
    lists: Iterable[ElementList], homes: Iterable[Mark], tests: Iterable[Mark]
) -> list[str]:
    """Elements without a home, a test or a reason; reasons that are no longer true; marks of what
    is not listed."""
    by_name = {paper.name: paper for paper in lists}
    here = {(mark.paper, mark.element) for mark in homes}
    tested = {(mark.paper, mark.element) for mark in tests}
    out = [
        f"{mark.place} names {mark.paper} {mark.element}, which is not listed"
        for mark in (*homes, *tests)
        if mark.paper not in by_name or mark.element not in by_name[mark.paper].elements
    ]
    for paper in by_name.values():
        for name in (*paper.differs, *paper.not_here, *paper.not_tested):
            if name not in paper.elements:
                out.append(f"{paper.name} {name} has a reason and is not listed")
        for name in paper.elements:
            place = (paper.name, name)
            words = _problem(paper, name, place in here, place in tested)
            if words:
                out.append(f"{paper.name} {name} {words}")
    return out


def _problem(paper: ElementList, name: str, here: bool, tested: bool) -> str:
    if not here and name in paper.differs:
        return "differs, and has no home"
    if here and name in paper.not_here:
        return "is here, and is said not to be"
    if tested and name in paper.not_tested:
        return "is tested, and is said not to be"
    if not here and name not in paper.not_here:
        return "has no home and no reason"
    if here and not tested and name not in paper.not_tested and not SHOWN.match(name):
        return "has no test and no reason"
    return ""


# ---- the page


def table(name: str) -> str:
    """The elements of a paper, each with its code and its tests."""
    paper = read_list(name)
    lines = [
        f"*{paper.title}* ({paper.cited}).",
        "",
        "| in the paper | what it is | here | test |",
        "|---|---|---|---|",
    ]
    for element, what in paper.elements.items():
        if element in paper.not_here:
            cells = [f"*not here:* {paper.not_here[element]}", ""]
        else:
            homes = [_home(mark) for mark in _of(marks(HOMES), name, element)]
            if element in paper.differs:
                homes.append(f"*differs:* {paper.differs[element]}")
            cells = [
                "<br>".join(homes),
                "<br>".join(_test(mark) for mark in _of(marks(TESTS), name, element)),
            ]
        if element in paper.not_tested:
            cells[1] = f"*none:* {paper.not_tested[element]}"
        lines.append(f"| {element} | {what} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _of(found: Iterable[Mark], paper: str, element: str) -> list[Mark]:
    return [mark for mark in found if (mark.paper, mark.element) == (paper, element)]


def _home(mark: Mark) -> str:
    """A public name with its place in the API, else the name and its file."""
    public = _public().get((_module(mark.file), mark.name))
    if public is not None:
        room, name = public
        return f"[`{name}`](../api/{room}.md#{api.anchor(name)})"
    file = mark.file.removeprefix("src/holdfast/").removesuffix("/__init__.py")
    return f"`{mark.name}` in `{file}`" if mark.name else f"`{file}`"


def _test(mark: Mark) -> str:
    return f"`{mark.name}` in `{mark.file.removeprefix('tests/')}`"


def _module(file: str) -> str:
    return (
        file.removeprefix("src/")
        .removesuffix(".py")
        .removesuffix("/__init__")
        .replace("/", ".")
    )


@cache
def _public() -> dict[tuple[str, str], tuple[str, str]]:
    """(module, name in it) of everything on the pages of the API -> room and public name."""
    out = dict[tuple[str, str], tuple[str, str]]()
    for room, names in api.rooms().items():
        for name, obj in names.items():
            if inspect.ismodule(obj):
                for inner in api.functions_of(obj):
                    out[inner.__module__, inner.__name__] = (
                        room,
                        f"{name}.{inner.__name__}",
                    )
                continue
            out[obj.__module__, obj.__name__] = room, name
            if inspect.isclass(obj):
                for member in _documented_members(obj):
                    whole = room, f"{name}.{member}"
                    out[obj.__module__, f"{obj.__name__}.{member}"] = whole
    return out


def _documented_members(cls: Any) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


def all_lists() -> list[ElementList]:
    """The lists of all papers."""
    return [read_list(name) for name in PAPERS]
