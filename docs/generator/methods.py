"""One page per method, from the registry: the class says what it is, its fields are the
settings."""

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from docs.generator.docstrings import parse, type_name, value
from holdfast.registry import list_image_methods, list_methods

TABLE_HEAD = "| method | what it does | paper |\n|---|---|---|"


@dataclass(frozen=True)
class Method:
    """A method with its name on the command line."""

    name: str
    cls: Any
    images: bool

    @property
    def page(self) -> str:
        """Its page, from the folder `docs`."""
        return f"methods/{'images/' if self.images else ''}{self.name}.md"

    @property
    def path(self) -> str:
        """How Python code names it."""
        import holdfast as hf

        top = getattr(hf, self.cls.__name__, None) is self.cls
        return f"hf.{'' if top else 'images.'}{self.cls.__name__}"


def methods() -> list[Method]:
    """All of them, those for images last."""
    tables = [Method(name, cls, False) for name, cls in list_methods().items()]
    return tables + [
        Method(name, cls, True) for name, cls in list_image_methods().items()
    ]


def row(m: Method, folder: str) -> str:
    """Its line in a table; `folder` is the way from the page to `docs`."""
    return f"| [`{m.path.removeprefix('hf.')}`]({folder}{m.page}) | {m.cls.title} | {m.cls.paper} |"


def table(*, images: bool) -> str:
    """The tables on the page of all methods."""
    return "\n".join(
        [TABLE_HEAD, *(row(m, "../") for m in methods() if m.images == images)]
    )


def needs_table() -> str:
    """What each method for tables needs of a model and of data."""
    out = [
        "| method | gradients | training data | regression models | several answers per row |",
        "|---|---|---|---|---|",
    ]
    for m in methods():
        if not m.images:
            several = "n_counterfactuals" in {f.name for f in dataclasses.fields(m.cls)}
            cells = [
                _word(m.cls.needs_grad),
                _data(m.cls),
                _word(m.cls.regression),
                _word(several),
            ]
            out.append(f"| [`{m.cls.__name__}`]({m.name}.md) | {' | '.join(cells)} |")
    return "\n".join(out)


def navigation() -> str:
    """The lines of `mkdocs.yml`."""
    return "\n".join(
        f"      - {m.cls.__name__}{' (images)' if m.images else ''}: {m.page}"
        for m in sorted(methods(), key=lambda m: (m.images, m.cls.__name__.lower()))
    )


def page(m: Method) -> str:
    """What a method is, when to use it, and what can be set."""
    doc = parse(m.cls.__doc__)
    head = parse(sys.modules[m.cls.__module__].__doc__)
    parts = [f"# {m.cls.__name__}", doc.summary]
    if doc.body:
        parts.append(doc.body)
    parts.append(_facts(m))
    if when := getattr(m.cls, "when", ""):
        parts += ["## When to use it", _sentence(when)]
    parts += ["## How it works", head.summary, head.body]
    parts += [f"**{name}.** {text}" for name, text in head.sections.items()]
    parts += ["## Settings", _settings(m.cls)]
    if variants := list(_variants(m.cls)):
        parts += [
            "The settings under which the literature knows it:",
            "\n".join(variants),
        ]
    if cost := getattr(m.cls, "cost", ""):
        parts += ["## Cost", _sentence(cost)]
    parts += (
        ["## Example", *(_fenced(example) for example in doc.examples)]
        if doc.examples
        else []
    )
    parts += [
        "## Where a row gets no answer",
        f"Its reason ends in this advice: {m.cls.advice}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(m: Method) -> str:
    rows = {
        "in Python": f"`{m.path}`",
        "in the terminal": f"`--method {m.name}`",
        "paper": m.cls.paper,
        "model": "an image classifier with gradients"
        if m.images
        else "one with gradients"
        if m.cls.needs_grad
        else "any model",
        "training data": _data(m.cls),
        "source": f"`src/{m.cls.__module__.replace('.', '/')}.py`",
    }
    if not m.images:
        rows["regression models"] = _word(m.cls.regression)
    if elements := parse(m.cls.__doc__).papers:
        up = "../" * m.page.count("/")
        rows["in the papers"] = f"[{elements}]({up}reproductions/papers.md)"
    lines = [f"| {name} | {text} |" for name, text in rows.items()]
    return "\n".join([lines[0], "|---|---|", *lines[1:]])


def _data(cls: Any) -> str:
    if cls.needs_data is True:
        return "needs some: `fit(model, X)`"
    return (
        "can use some: `fit(model, X)`"
        if getattr(cls, "uses_data", False) is True
        else "none"
    )


def _word(flag: Any) -> str:
    return "yes" if flag is True else "no"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _settings(cls: Any) -> str:
    """A table of the settings; those that are explained together share a line."""
    lines = dict[str, list[dataclasses.Field[Any]]]()
    for f in dataclasses.fields(cls):
        lines.setdefault(_meaning(cls, f.name) or f.name, []).append(f)
    if not lines:
        return "None."
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for meaning, fields in lines.items():
        names = ", ".join(f"`{f.name}`" for f in fields)
        kinds = list(dict.fromkeys(_kind(_annotation(cls, f.name)) for f in fields))
        defaults = ", ".join(f"`{value(_default(f))}`" for f in fields)
        text = "" if meaning == fields[0].name else _cell(meaning)
        rows.append(f"| {names} ({', '.join(kinds)}) | {defaults} | {text} |")
    return "\n".join(rows)


def _default(f: "dataclasses.Field[Any]") -> Any:
    return (
        f.default_factory()
        if f.default_factory is not dataclasses.MISSING
        else f.default
    )


def _annotation(cls: Any, name: str) -> Any:
    return inspect.get_annotations(_owner(cls, name), eval_str=True)[name]


def _owner(cls: Any, name: str) -> Any:
    """The class whose body declares a field."""
    return next(
        base for base in cls.__mro__ if name in vars(base).get("__annotations__", {})
    )


def _meaning(cls: Any, name: str) -> str:
    """What a setting is: by the class itself, or by the class that it comes from."""
    for base in cls.__mro__:
        text = parse(base.__doc__).meaning(name) if base.__doc__ else ""
        if text and not re.match(r"see `\w+`\.?$", text):
            return text
    return ""


def _kind(annotation: Any) -> str:
    """A type in a few words: `1` or `2` or `Distance`."""
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(dict.fromkeys(_kind(part) for part in get_args(annotation)))
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice!r}`" for choice in get_args(annotation))
    return f"`{'None' if annotation is NoneType else type_name(annotation)}`"


def _variants(cls: Any) -> Iterator[str]:
    for name, member in vars(cls).items():
        if (
            isinstance(member, classmethod)
            and not name.startswith("_")
            and _is_preset(member.__func__)
        ):
            yield f"- `{cls.__name__}.{name}()`: {parse(member.__func__.__doc__).summary}"


def _is_preset(function: Any) -> bool:
    """Does it make the method with nothing but settings?"""
    return [p.kind.name for p in inspect.signature(function).parameters.values()][
        1:
    ] == ["VAR_KEYWORD"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _fenced(example: str) -> str:
    return f"```pycon\n{example}\n```"
