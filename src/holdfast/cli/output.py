"""What the commands print, and where files may go.

What a program reads goes to stdout; what a person wants to know on the way goes to stderr.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast._core.checks import listed, optional
from holdfast.errors import FileError

if TYPE_CHECKING:
    from holdfast.counterfactuals import Counterfactuals
    from holdfast.images.result import ImageCounterfactuals

LONGEST = 1000  # letters of an error: some quote a value from a file
MOST_ROWS = 20  # in a table on the terminal; a file gets all of them


def say(text: str) -> None:
    """One line on stderr, whatever is in it."""
    line = printable(" ".join(text.split()))
    with contextlib.suppress(BrokenPipeError):
        typer.echo(line if len(line) <= LONGEST else f"{line[:LONGEST]} ...", err=True)


def echo(text: str) -> None:
    """Text on stdout."""
    try:
        typer.echo(text)
    except BrokenPipeError:  # the reader has seen enough, as in `| head`: nothing is wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def printable(text: str) -> str:
    """Names and levels come from files: they must not steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def print_table(
    names: Sequence[str], rows: Iterable[Iterable[object]], *, lines: bool = False
) -> None:
    """A table for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*names, show_lines=lines)
    console = Console()
    for cells in rows:
        # as Text: a level "[red]" is not markup
        table.add_row(*(Text(printable(str(cell))) for cell in cells))
    with console.capture() as text:
        console.print(table)
    echo(text.get().rstrip("\n"))


def print_json(value: Any) -> None:
    """JSON for programs."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    echo(json.dumps(value, indent=1, ensure_ascii=not utf8, default=str))


def print_report(report: dict[str, Any], words: Callable[[dict[str, Any]], str]) -> None:
    """In words for people, as JSON for programs."""
    if sys.stdout.isatty():
        echo(words(report))
    else:
        print_json(report)


@dataclass(frozen=True)
class AnswerFiles:
    """Where answers go."""

    out: Path | None
    report: Path | None
    quiet: bool

    def check(self, *others: Path | None) -> None:
        """Raise an error if a page cannot be made, or one of the files not be written."""
        check_report(self.report)
        check_writable(self.out, self.report, *others)


def hand_out(
    cfs: "Counterfactuals | ImageCounterfactuals",
    files: AnswerFiles,
    show: Callable[[Any, int], None],
) -> int:
    """To the files, or to stdout: by `show` for people, as JSON for programs; returns how many have
    no answer."""
    from holdfast.datasets import records

    if files.out is not None:
        cfs.save(files.out)
    elif sys.stdout.isatty():
        show(cfs, MOST_ROWS)
    else:
        print_json(records(cfs.table()))
    if files.report:
        cfs.report(files.report)
    if not files.quiet:
        say(cfs.summary())
    return int(cfs.failed.sum())


# ---- where files go


def check_ending(path: Path | None, endings: Sequence[str], what: str) -> None:
    """A file of that kind has one of these endings."""
    ends = endings[0] if len(endings) == 1 else f"one of {listed(endings)}"
    if path is not None and path.suffix.lower() not in endings:
        raise FileError(f"cannot write {str(path)!r}: {what} name must end in {ends}")


def check_report(path: Path | None) -> None:
    """A page is an HTML file."""
    if path and path.suffix.lower() != ".htm":
        check_ending(path, (".html",), "a report's")


def check_table(path: Path | None) -> None:
    """A table has one of the known extensions."""
    from holdfast.datasets import known_extension

    if path:
        known_extension(path, "write")


def check_chart(path: Path | None) -> None:
    """A chart has one of the known extensions, and what draws it is installed."""
    from holdfast.render.charts.theme import EXTENSIONS

    if path is None:
        return
    hint = f"the extension must be one of {', '.join(EXTENSIONS)}"
    if path.suffix.lower() not in EXTENSIONS:
        raise FileError(f"cannot write {str(path)!r}: {hint}")
    for module in ("altair", "vl_convert"):
        optional(module, "plot")


def check_writable(*paths: Path | None) -> None:
    """A file that cannot be written is an error before the work, not after it."""
    for path in (path for path in paths if path is not None):
        start = f"cannot write {str(path)!r}"
        folder = path.parent
        if not folder.is_dir():
            raise FileError(f"{start}: there is no directory {str(folder)!r}")
        if path.is_dir():
            raise FileError(f"{start}: it is a directory")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise FileError(f"{start}: no permission")
