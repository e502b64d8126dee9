"""What the commands share: exit codes, options, and which outcome is wanted."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from holdfast.errors import SettingError, TargetError

if TYPE_CHECKING:
    import holdfast as hf

BAD_INPUT = 2
UNANSWERED = 3
INTERNAL = 70
INTERRUPTED = 130
PANELS = {
    "asked": "What is asked",
    "table": "Table",
    "method": "Method and settings",
    "retraining": "Retrained models",
    "measure": "Measurement",
    "output": "Output",
    "images": "Only for images",
    "": None,
}


def option(
    panel: str, value: str | None, about: str, default: Any = None, *names: str, **more: Any
) -> Any:
    """An option under a heading of the help, named as its parameter; a flag has no value, and its
    name is given."""
    return typer.Option(
        default, *names, metavar=value, help=about, rich_help_panel=PANELS[panel], **more
    )


def argument(value: str, about: str) -> Any:
    """A required argument, by its position."""
    return typer.Argument(metavar=value, help=about)


# ---- options of several commands

CLASSES = option("asked", "LIST", "Classes in the order of the scores, such as denied,approved.")
PROBABILITY = option("asked", "P", "Least probability of the wanted class.")
TRUST = option(
    "asked",
    None,
    "Load files that can run code; only for your own files.",
    False,
    "--trust-model-code",
)
SCHEMA = option("table", "FILE", "Schema (TOML): what may change; inferred by default.")
FIXED = option("table", "LIST", "Columns that nobody can change; repeatable.")
UP = option("table", "LIST", "Columns that may only rise; repeatable.")
DOWN = option("table", "LIST", "Columns that may only fall; repeatable.")
SETTINGS = option(
    "method",
    "KEY=VALUE",
    "Setting such as steps=200; repeatable.",
    None,
    "--set",
)
SEED = option("method", "N", "Random seed.", 0)
TABLE_OUT = option("output", "FILE", "Table file: .csv, .json or .parquet.")
REPORT = option("output", "FILE.html", "Page with plots.")
QUIET = option("output", None, "Print only errors on stderr.", False, "--quiet")
AS_JSON = option("output", None, "Print JSON instead of a table.", False, "--json")


def strict_if(unanswered: str) -> Any:
    """The flag that makes it an error if there is such an answer."""
    return option("output", None, f"Exit with {UNANSWERED} if {unanswered}.", False, "--strict")


# ---- what is asked


def wanted(
    classes: Sequence[Any], name: str | None, any_other: bool, probability: float | None
) -> "hf.Target":
    """The target that the options name."""
    import holdfast as hf

    if not classes:
        of_classes = {"--any-other": any_other, "--probability": probability}
        refuse(of_classes, "{} is for models with classes, this one has none; leave it out")
        if name is None:
            raise TargetError(
                "this is a regression model: say which range you want, such as --target 200..250"
            )
    if any_other:
        if name is not None:
            raise TargetError("--target and --any-other contradict each other; give one of them")
        return hf.Target(probability=probability)
    if name is None:
        choices = " or ".join(f"--target {shlex.quote(str(c))}" for c in classes[:6])
        raise TargetError(f"say which outcome you want: {choices}, or --any-other")
    return hf.Target.parse(name, classes, probability)


def refuse(options: dict[str, Any], why: str) -> None:
    """An option that would have no effect is an error; `why` has a place {} for its name."""
    for name, value in options.items():
        if value is not None and value is not False and value != []:
            raise SettingError(why.replace("{}", name, 1))
