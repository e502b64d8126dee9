"""What the commands share: exit codes, options, how they print, which outcome is wanted, and where files may go.

What a program wants to read goes to stdout, what a person wants to know on the way goes to stderr.
"""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.errors import FileError, SettingError, TargetError, listed, optional

if TYPE_CHECKING:
    import holdfast as hf

BAD_INPUT, UNANSWERED, INTERNAL, INTERRUPTED = 2, 3, 70, 130
LONGEST = 1000  # letters of an error: some quote a value from a file
MOST_ROWS = 20  # in a table on the terminal; a file gets all of them

# ---- options that several commands have

# Headings of the help.
ASKED, TABLE, METHOD, RETRAINING, MEASURE, OUTPUT = (
    "What is asked", "Table", "Method and settings", "Retrained models", "Measurement", "Output"
)  # fmt: skip
IMAGES, COUNTERFACTUAL = "Only for images", "Only for counterfactual"


def option(panel: str, name: str, value: str | None, about: str, **more: Any) -> Any:
    """An option under a heading of the help; a flag has no value."""
    return typer.Option(name, metavar=value, help=about, rich_help_panel=panel, **more)


SchemaFile = Annotated[
    Path | None, option(TABLE, "--schema", "FILE", "What may change (TOML); left out: read off the table.")
]
Fixed = Annotated[
    list[str] | None,
    option(TABLE, "--fixed", "LIST", "Columns that nobody can change, with commas between them; may be repeated."),
]
Settings = Annotated[
    list[str] | None,
    option(METHOD, "--set", "KEY=VALUE", "A setting, such as steps=200 or epochs=20; may be repeated."),
]
Seed = Annotated[int, option(METHOD, "--seed", "N", "Where all random numbers come from.")]
TableOut = Annotated[Path | None, option(OUTPUT, "--out", "FILE", "Where the table goes: .csv, .json or .parquet.")]
Quiet = Annotated[bool, option(OUTPUT, "--quiet", None, "Nothing on stderr but errors.")]
AsJson = Annotated[bool, option(OUTPUT, "--json", None, "Print JSON instead of a table.")]


# ---- printing


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


def print_rich(table: Any) -> None:
    """A table for eyes."""
    from rich.console import Console

    console = Console()
    with console.capture() as text:
        console.print(table)
    echo(text.get().rstrip("\n"))


def print_json(value: Any) -> None:
    """JSON for programs."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    echo(json.dumps(value, indent=1, ensure_ascii=not utf8, default=str))


# ---- what is asked


def wanted(classes: Sequence[Any], name: str | None, any_other: bool, probability: float | None) -> "hf.Target":
    """The target in the model's own terms: a class may be a number there, but is a text here."""
    import holdfast as hf

    if not classes:
        return _range(name, any_other, probability)
    if any_other and name is not None:
        raise TargetError("--target and --any-other contradict each other; give one of them")
    if any_other:
        return hf.Target(probability=probability)
    if name is None:
        known = " or ".join(f"--target {shlex.quote(str(c))}" for c in classes[:6])
        raise TargetError(f"say which outcome is wanted: {known}, or --any-other")
    same = [c for c in classes if c == name] or [c for c in classes if str(c) == name]
    return hf.Target(same[0] if same else name, probability)


def _range(text: str | None, any_other: bool, probability: float | None) -> "hf.Target":
    """'200000..250000', '200000..' or '..250000': what is wanted of a regression model."""
    import holdfast as hf

    refuse({"--any-other": any_other, "--probability": probability}, "is for models with classes, this one has none")
    low, dots, high = (text or "").partition("..")
    try:
        ends = [float(end) if end.strip() else None for end in (low, high)]
    except ValueError:
        dots, ends = "", []
    if not dots or ends == [None, None]:
        got = "" if text is None else f", got {text!r}"
        raise TargetError(f"the model estimates a number: say which range is wanted, such as --target 200..250{got}")
    return hf.Target.between(*ends)


def refuse(options: dict[str, Any], why: str) -> None:
    """An option that would do nothing is an error."""
    for name, value in options.items():
        if value is not None and value is not False and value != []:
            raise SettingError(f"{name} {why}; leave it out")


# ---- where files go


def check_ending(path: Path | None, endings: Sequence[str], what: str) -> None:
    """A file of that kind has one of these endings."""
    if path and path.suffix.lower() not in endings:
        ends = endings[0] if len(endings) == 1 else f"one of {listed(endings)}"
        raise FileError(f"cannot write {str(path)!r}: {what} name must end in {ends}")


def check_report(path: Path | None) -> None:
    """A page is an HTML file."""
    if path and path.suffix.lower() not in (".html", ".htm"):
        raise FileError(f"cannot write {str(path)!r}: a report's name must end in .html")


def check_table(path: Path | None) -> None:
    """A table has one of the extensions that we know."""
    from holdfast.datasets import known_extension

    if path:
        known_extension(path, "write")


def check_chart(path: Path | None) -> None:
    """A chart has one of the extensions that we know, and what draws it is installed."""
    from holdfast.render.charts.theme import EXTENSIONS

    if path is None:
        return
    if path.suffix.lower() not in EXTENSIONS:
        raise FileError(f"cannot write {str(path)!r}: the extension must be one of {', '.join(EXTENSIONS)}")
    for module in ("altair", "vl_convert"):
        optional(module, "plot")


def check_writable(*paths: Path | None) -> None:
    """A file that cannot be written is told before the work, not after it."""
    for path in paths:
        if path is None:
            continue
        if not path.parent.is_dir():
            raise FileError(f"cannot write {str(path)!r}: there is no directory {str(path.parent)!r}")
        if path.is_dir():
            raise FileError(f"cannot write {str(path)!r}: it is a directory")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise FileError(f"cannot write {str(path)!r}: no permission")
