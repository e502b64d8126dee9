"""`python -m docs.generator.examples [NAME ...]`: run the scripts of docs/examples, all of them or
those named, and write a page of each.

A script is in percent format, which editors show as a notebook: cells of prose, and cells of code.
Its page has the same cells, and below each cell of code what it prints; pictures lie beside it. The
pages are kept in the repository, and the tests run their code as that of any other page.
"""

import contextlib
import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.generator.pictures import shrink

ROOM = Path(__file__).parents[1] / "examples"
CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


def scripts() -> list[Path]:
    """All examples."""
    return sorted(ROOM.glob("*.py"))


def cells(text: str) -> Iterator[tuple[str, str]]:
    """("prose" or "code", text) of each cell of a script."""
    _, *parts = CELL.split(text)
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        if mark is None:
            yield "code", body.strip("\n")
        else:
            lines = [
                line.removeprefix("#").removeprefix(" ") for line in body.splitlines()
            ]
            yield "prose", "\n".join(lines).strip("\n")


def page(text: str, printed: list[str]) -> str:
    """The page of a script, with what its cells of code print."""
    outputs = iter(printed)
    parts = list[str]()
    for kind, body in cells(text):
        if kind == "prose":
            parts.append(body)
            continue
        parts.append(f"```python\n{body}\n```")
        shown = next(outputs)
        if shown.strip():
            parts.append(f"```text\n{shown.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def run(text: str) -> list[str]:
    """What each cell of code prints, in the present directory."""
    space: dict[str, Any] = {"__name__": "example"}
    printed = list[str]()
    for kind, body in cells(text):
        if kind == "code":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(body, "example", "exec"), space)
            printed.append(out.getvalue())
    return printed


def main() -> None:
    os.chdir(ROOM)
    named = sys.argv[1:]
    for script in scripts():
        if named and script.stem not in named:
            continue
        text = script.read_text(encoding="utf-8")
        script.with_suffix(".md").write_text(page(text, run(text)), encoding="utf-8")
        picture = script.with_suffix(".png")
        if picture.exists() and shutil.which("pngquant"):
            shrink(picture)
        print(f"{script.stem}: written")


if __name__ == "__main__":
    main()
