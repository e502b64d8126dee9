"""The API pages: every public name with its signature, docstring and public members, one page per
room."""

import importlib
import inspect
from functools import cached_property
from typing import Any

from docs.generator.docstrings import Doc, parse, signature

TITLES = {
    "schema": "Schema",
    "datasets": "Datasets",
    "models": "Models",
    "distances": "Distances",
    "target": "Targets",
    "counterfactuals": "Answers",
    "explainer": "The contract of methods",
    "methods": "Methods",
    "retraining": "Retraining",
    "training": "Training",
    "auditing": "Audits and certificates",
    "plans": "Plans that hold",
    "evaluation": "Evaluation",
    "images": "Images",
    "errors": "Errors",
}
# small rooms that are read with another
TOGETHER = {"problem": "explainer", "registry": "explainer"}


def rooms() -> dict[str, dict[str, Any]]:
    """The public names, by the room that they come from: {'schema': {'hf.Schema': <class>}}."""
    import holdfast as hf

    out: dict[str, dict[str, Any]] = {room: {} for room in TITLES}
    named = {
        f"hf.{name}": getattr(hf, name)
        for name in hf.__all__
        if name not in ("__version__", "images")
    }
    named |= {
        f"hf.images.{name}": getattr(hf.images, name) for name in hf.images.__all__
    }
    for name, obj in named.items():
        room = (obj.__name__ if inspect.ismodule(obj) else obj.__module__).split(".")[1]
        if (
            name.startswith("hf.images.")
            and getattr(hf, name.rpartition(".")[2], None) is obj
        ):
            continue  # it is on the page already, by its short name
        out.setdefault(TOGETHER.get(room, room), {})[name] = obj
    return {
        room: dict(sorted(names.items(), key=_order))
        for room, names in out.items()
        if names
    }


def _order(item: tuple[str, Any]) -> tuple[int, str]:
    name, obj = item
    kind = 2 if inspect.ismodule(obj) else 0 if inspect.isclass(obj) else 1
    return kind, name.lower()


def navigation() -> str:
    """The lines of `mkdocs.yml`."""
    return "\n".join(f"      - {_title(room)}: api/{room}.md" for room in rooms())


def pages() -> dict[str, str]:
    """Page -> text, from the folder `docs`."""
    index = [
        "# API",
        "Everything below is public; what is not listed here may change without notice. `import "
        "holdfast as hf` loads "
        "nothing but the names; each loads what it needs when it is first used.",
    ]
    out = dict[str, str]()
    for room, names in rooms().items():
        rows = [
            f"| [`{name}`]({room}.md#{anchor(name)}) | {_summary(obj)} |"
            for name, obj in names.items()
        ]
        index += [
            f"## {_title(room)}",
            "\n".join(["| name | what it is |", "|---|---|", *rows]),
        ]
        text = [
            f"# {_title(room)}",
            parse(importlib.import_module(f"holdfast.{room}").__doc__).summary,
        ]
        for name, obj in names.items():
            text += _entry(name, obj, 2)
        out[f"api/{room}.md"] = "\n\n".join(part for part in text if part) + "\n"
    out["api/index.md"] = "\n\n".join(index) + "\n"
    return out


def _title(room: str) -> str:
    return TITLES.get(room, room.capitalize())


def anchor(name: str) -> str:
    return name.lower().replace(".", "-")


def _summary(obj: Any) -> str:
    return parse(obj.__doc__).summary.replace("|", "\\|")


def _entry(name: str, obj: Any, level: int) -> list[str]:
    """Heading, signature, docstring and members of a public name."""
    out = [
        f"{'#' * level} {name.rpartition('.')[2] if level > 2 else name} {{#{anchor(name)}}}"
    ]
    doc = parse(obj.__doc__)
    if inspect.ismodule(obj):
        out += [doc.summary, doc.body]
        for member in functions_of(obj):
            out += _entry(f"{name}.{member.__name__}", member, level + 1)
        return out
    out += [f"```python\n{signature(obj, name)}\n```", *_text(doc)]
    if inspect.isclass(obj):
        for member, value in vars(obj).items():
            out += _member(name, member, value, level + 1)
    return out


def functions_of(module: Any) -> list[Any]:
    """The public functions and classes that a module offers as its own."""
    listed = getattr(module, "__all__", None)
    room = (
        module.__name__
        if hasattr(module, "__path__")
        else module.__name__.rpartition(".")[0]
    )
    found = [
        value
        for name, value in vars(module).items()
        if (name in listed if listed is not None else not name.startswith("_"))
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__.startswith(room)
        and value.__doc__
    ]
    own = (
        found
        if hasattr(module, "__path__")
        else [v for v in found if v.__module__ == module.__name__]
    )
    return sorted(
        {v.__name__: v for v in own}.values(),
        key=lambda v: (not inspect.isclass(v), v.__name__),
    )


def _member(owner: str, name: str, value: Any, level: int) -> list[str]:
    """A documented public method or property; what a dataclass writes by itself is left out."""
    if name.startswith("_"):
        return []
    whole = f"{owner}.{name}"
    heading = f"{'#' * level} {owner.rpartition('.')[2]}.{name} {{#{anchor(whole)}}}"
    if isinstance(value, property | cached_property):
        target = value.fget if isinstance(value, property) else value.func
        return (
            [heading, "*property*", *_text(parse(target.__doc__))]
            if target.__doc__
            else []
        )
    inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not inspect.isfunction(inner) or not inner.__doc__:
        return []
    return [
        heading,
        f"```python\n{signature(inner, whole)}\n```",
        *_text(parse(inner.__doc__)),
    ]


def _text(doc: Doc) -> list[str]:
    """A docstring as Markdown."""
    out = [doc.summary, doc.body]
    if doc.args:
        out.append(
            "\n".join(f"- {_names(names)}: {text}" for names, text in doc.args.items())
        )
    for name, text in doc.sections.items():
        out.append(f"**{name}.** {text}")
    if doc.papers:
        out.append(f"**In the papers.** [{doc.papers}](../reproductions/papers.md).")
    return [*out, *(f"```pycon\n{example}\n```" for example in doc.examples)]


def _names(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))
