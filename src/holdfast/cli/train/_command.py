"""The options of all commands that learn from a table, declared once."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, get_type_hints

from holdfast.cli.options import FIXED, QUIET, SCHEMA, SEED, SETTINGS, argument, option
from holdfast.cli.output import check_chart, check_ending, check_table, check_writable
from holdfast.cli.train._options import assigned, check_share, out_file

TABLE = argument("TABLE", "Rows with outcomes: CSV, JSON or Parquet.")
TARGET = option("table", "COLUMN", "Column of the outcome.", ...)
TEST = option("table", "SHARE", "Share of rows held out.", 0.25)
RECIPE = option("output", "FILE", "Recipe for `holdfast audit` (TOML).")
HISTORY = option("output", "FILE", "Table of epochs: .csv, .json, .parquet.")
PLOT = option("output", "FILE", "Chart of epochs: .png, .svg or .html.")
OF_HISTORY = ("history", "plot")


@dataclass(frozen=True, kw_only=True)
class Given:
    """What such a command gets: the rows to learn from, and where its files go."""

    table: Path = TABLE
    target: str = TARGET
    schema: Path | None = SCHEMA
    fixed: list[str] | None = FIXED
    test: float = TEST
    # the command's own options go here
    settings: list[str] | None = SETTINGS
    seed: int = SEED
    out: Path
    recipe: Path | None = RECIPE
    history: Path | None = HISTORY
    plot: Path | None = PLOT
    quiet: bool = QUIET

    def assigned(self, of_its_own: dict[str, Any]) -> list[str]:
        """The options of the command's own and `--set`s as one list of settings."""
        return assigned(of_its_own, self.settings)

    def check(self) -> None:
        """Raise an error about the first file that cannot be written, before the work."""
        check_share(self.test)
        check_ending(self.out, (".safetensors",), "a model's")
        check_writable(self.out, self.recipe, self.history, self.plot)
        check_table(self.history)
        check_chart(self.plot)


def learns_from_table(
    out: str, *, has_history: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command of a function that takes what is `Given`, and options of its own.

    Args:
        out: where the model goes if nothing else is said.
        has_history: whether there is something to report about every epoch.
    """

    def command(function: Callable[..., None]) -> Callable[..., None]:
        # Typer reads options off a signature: that of `Given`, with the function's own behind the
        # rows.
        _, *its_own = signature(function).parameters.values()
        left_out = () if has_history else OF_HISTORY
        names = [field.name for field in fields(Given) if field.name not in left_out]
        shared = signature(Given).parameters | {
            "out": Parameter("out", Parameter.KEYWORD_ONLY, default=out_file(out))
        }
        first = names.index("settings")
        parameters = [
            *(shared[name] for name in names[:first]),
            *(own.replace(kind=Parameter.KEYWORD_ONLY) for own in its_own),
            *(shared[name] for name in names[first:]),
        ]
        types = get_type_hints(Given) | get_type_hints(function) | {"out": Path | None}

        def run(**options: Any) -> None:
            given = {name: options.pop(name) for name in names}
            given["out"] = given["out"] or Path(out)
            function(Given(**dict.fromkeys(left_out), **given), **options)

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        run.__annotations__ = {parameter.name: types[parameter.name] for parameter in parameters}
        vars(run)["__signature__"] = Signature(parameters)
        return run

    return command
