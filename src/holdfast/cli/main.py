"""The command line, one file per command.

Everything that can go wrong ends in `main`, as one sentence and a documented exit code. The library
itself (torch, pandas) is imported inside the commands, so that `holdfast --help` answers at once.
"""

import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import typer

from holdfast import __version__
from holdfast.cli.audit import audit
from holdfast.cli.demo import demo
from holdfast.cli.explain import explain
from holdfast.cli.inspect import inspect
from holdfast.cli.listings import datasets, methods
from holdfast.cli.options import BAD_INPUT, INTERNAL, INTERRUPTED, option
from holdfast.cli.output import say
from holdfast.cli.plans import plans
from holdfast.cli.tradeoff import tradeoff
from holdfast.cli.train import commands as train
from holdfast.errors import HoldfastError

EXIT_CODES = """Exit codes: 0 answered (rows without an answer are in the output, with the
reason); 2 bad input or usage; 3 with --strict, some row has no answer; 70 an error inside holdfast
(set HOLDFAST_DEBUG=1 to see where); 130 interrupted."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=" ".join(EXIT_CODES.split()),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; no error gets past here."""
    return run_app(app, "holdfast", argv)


def run_app(app: typer.Typer, name: str, argv: Sequence[str] | None = None) -> int:
    """Run the commands of an app, whose errors become one line and an exit code."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            # one that cannot show a letter gets its code instead
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, io.TextIOWrapper):
                    stream.reconfigure(errors="backslashreplace")
            typer.main.get_command(app).main(
                args=None if argv is None else list(argv), prog_name=name
            )
        except SystemExit as done:  # how typer ends, also after a usage error
            if done.code == INTERRUPTED:
                say("interrupted")
            return int(done.code or 0)
        except KeyboardInterrupt:
            say("interrupted")
            return INTERRUPTED
        except (HoldfastError, OSError) as error:
            return _failed(BAD_INPUT, str(error))
        except Exception as error:
            failure = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            hint = (
                "probably a bug in holdfast, not in your input; set HOLDFAST_DEBUG=1 to see where"
            )
            return _failed(INTERNAL, f"unexpected {failure} ({hint})")
    return 0


def _failed(code: int, message: str) -> int:
    if os.environ.get("HOLDFAST_DEBUG"):
        traceback.print_exc()
    say(f"error: {message}")
    return code


def _show_warning(
    message: Warning | str, category: type[Warning], *place: Any, **more: Any
) -> None:
    say(f"note: {message}")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def holdfast(
    version: bool = option(
        "",
        None,
        "Print the version and exit.",
        False,
        "--version",
        callback=_version,
        is_eager=True,
    ),
) -> None:
    """What would have to change for another decision: counterfactual explanations and recourse."""


for _command in (demo, plans, explain, methods, datasets, inspect, audit, tradeoff):
    app.command()(_command)
app.add_typer(train.app, name="train")
