"""Docstrings as Markdown: a summary, paragraphs, Args, Returns and examples, in the manner of
Google's style guide."""

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

SECTION = re.compile(
    r"(Args|Attributes|Returns|Yields|Raises|Examples?|References?|Notes?):\s*$"
)
PAPER = "Paper: "  # begins the last paragraph of what is an element of a paper
NAMES = re.compile(r"((?:\*{0,2}\w+)(?:, \*{0,2}\w+)*): (.*)")


@dataclass
class Doc:
    """The parts of a docstring, each as lines of Markdown without indentation."""

    summary: str = ""
    body: str = ""
    args: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # 'steps, lr' -> what they are
    sections: dict[str, str] = field(default_factory=dict[str, str])
    examples: list[str] = field(default_factory=list[str])
    papers: str = ""  # 'black2022 Eq. 3, Theorem 2'

    def meaning(self, name: str) -> str:
        """What an argument is; several may share a line."""
        return next(
            (text for names, text in self.args.items() if name in names.split(", ")), ""
        )


def parse(text: str | None) -> Doc:
    """The parts of a docstring."""
    whole, papers = split_papers(inspect.cleandoc(text or ""))
    rest, examples = _without_examples(whole)
    doc = Doc(examples=examples, papers=papers)
    title = ""
    lines = dict[str, list[str]]({"": []})
    for line in rest.splitlines():
        if found := SECTION.match(line):
            title = found[1]
            lines.setdefault(title, [])
        else:
            if (
                title and line and not line.startswith(" ")
            ):  # a paragraph after a section
                title = ""
            lines[title].append(line)
    summary, _, body = "\n".join(lines.pop("")).strip().partition("\n\n")
    doc.summary = " ".join(summary.split())
    doc.body = body.strip("\n")
    for name, content in lines.items():
        block = inspect.cleandoc("\n" + "\n".join(content))
        if name in ("Args", "Attributes"):
            doc.args |= _entries(block)
        elif block:
            doc.sections[name] = block
    return doc


def split_papers(text: str) -> tuple[str, str]:
    """A docstring without its last paragraph, and that one, if it names elements of papers."""
    before, _, last = text.rpartition("\n\n")
    if not last.startswith(PAPER):
        return text, ""
    return before, " ".join(last.removeprefix(PAPER).split()).removesuffix(".")


def _without_examples(text: str) -> tuple[str, list[str]]:
    """The text without its `>>>` blocks, and these."""
    kept = list[str]()
    examples = list[str]()
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith(">>>") and not inside:
            inside = True
            examples.append("")
        inside = inside and bool(line.strip())
        if inside:
            examples[-1] += line + "\n"
        else:
            kept.append(line)
    return "\n".join(kept), [inspect.cleandoc("\n" + example) for example in examples]


def _entries(block: str) -> dict[str, str]:
    """Lines such as 'steps, lr: how far' with indented continuations."""
    out = dict[str, str]()
    names = ""
    for line in block.splitlines():
        found = NAMES.match(line)
        if found and not line.startswith(" "):
            names = found[1].replace("*", "")
            out[names] = found[2]
        elif names:
            out[names] += " " + line.strip()
    return {name: text.strip() for name, text in out.items()}


def signature(obj: Any, name: str) -> str:
    """`name(a: int = 1, ...)`, one argument a line where it is long; short names of types."""
    try:
        parts = inspect.signature(obj)
    except (TypeError, ValueError):
        return name
    kept = [p for p in parts.parameters.values() if p.name not in ("self", "cls")]
    arguments = list[str]()
    star = False
    for p in kept:
        if p.kind is p.VAR_POSITIONAL:
            star = True
        elif p.kind is p.KEYWORD_ONLY and not star:
            arguments.append("*")
            star = True
        text = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
        if p.annotation is not p.empty:
            text += f": {type_name(p.annotation)}"
        if p.default is not p.empty:
            text += (
                f" = {value(p.default)}"
                if p.annotation is not p.empty
                else f"={value(p.default)}"
            )
        arguments.append(text)
    back = (
        ""
        if parts.return_annotation in (parts.empty, None)
        else f" -> {type_name(parts.return_annotation)}"
    )
    if inspect.isclass(obj):
        back = ""
    line = f"{name}({', '.join(arguments)}){back}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {a},\n" for a in arguments) + f"){back}"


def type_name(annotation: Any) -> str:
    """`pandas.core.frame.DataFrame | None` -> `DataFrame | None`."""
    text = (
        annotation
        if isinstance(annotation, str)
        else inspect.formatannotation(annotation)
    )
    text = re.sub(r"ForwardRef\('([^']*)'[^)]*\)", r"\1", text)
    text = re.sub(r"\b(?:[A-Za-z_]\w*\.)+([A-Za-z_]\w*)", r"\1", text)
    return re.sub(
        r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]", r"NDArray[\1]", text
    )


def value(default: Any) -> str:
    """A default as it would be written."""
    text = repr(default)
    if isinstance(default, type) or callable(default):
        return getattr(default, "__name__", text)
    return "..." if text.startswith("<") else text
