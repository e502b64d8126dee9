"""Documents as tests run them: the code blocks of a page in order, with what they print."""

import contextlib
import doctest
import io
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from support.terminal import run

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the output that is shown right below it."""

    language: str
    code: str
    shown: str | None
    line: int


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page; a `text` block that follows code at once is what the code prints."""
    found = list(FENCE.finditer(text))
    for this, after in zip_longest(found, found[1:]):
        near = (
            after is not None
            and after[1] == "text"
            and not text[this.end() : after.start()].strip()
        )
        shown = after[2] if near and after is not None else None
        yield Block(this[1], this[2], shown, text[: this.start()].count("\n") + 1)


def same(shown: str, printed: str) -> bool:
    """Is this what was printed? Dots stand for anything, and white space is not counted."""
    return doctest.OutputChecker().check_output(shown, printed, FLAGS)


def run_page(name: str, space: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the Python and the console blocks of a page in the present directory; the names that are
    left."""
    space = {"__name__": "page"} if space is None else space
    with threadpool_limits(1):  # threads that wait for one another on a busy machine take minutes
        for block in blocks((ROOT / name).read_text(encoding="utf-8")):
            place = f"{name}:{block.line}"
            if block.language == "python":
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    # Line numbers of the page, so that a traceback points at it.
                    exec(compile("\n" * block.line + block.code, place, "exec"), space)
                if block.shown is not None:
                    assert same(block.shown, out.getvalue()), f"{place} prints\n{out.getvalue()}"
            elif block.language == "console":
                run_console(block.code, place)
    return space


def run_console(code: str, place: str) -> None:
    """Run the `holdfast` commands of a transcript, and compare what they print where something is
    shown."""
    commands = re.split(r"^\$ ", code.replace("\\\n", " "), flags=re.MULTILINE)[1:]
    for command, _, shown in (part.partition("\n") for part in commands):
        words = shlex.split(command, comments=True)
        if words[0] == "cd":
            os.chdir(words[1])
        if words[0] != "holdfast":
            assert words[0] in ("pip", "make", "python", "git", "cd"), (
                f"{place}: what is `{command}`?"
            )
            continue
        ran = run(*words[1:], terminal=True)
        assert ran.code == 0, f"{place}: {command}\n{ran.err}"
        printed = ran.out + ran.err
        assert not shown.strip() or same(shown, printed), f"{place}: {command} prints\n{printed}"
