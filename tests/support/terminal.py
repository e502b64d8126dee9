"""The command line as tests run it."""

import contextlib
import io
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from experiments.__main__ import app
from holdfast.cli.main import main, run_app
from holdfast.cli.options import BAD_INPUT


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class Stream(io.TextIOWrapper):
    def __init__(self, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()


def set_to(**values: object) -> tuple[str, ...]:
    """The words of the command that set these settings."""
    return tuple(word for name, value in values.items() for word in ("--set", f"{name}={value}"))


def run(*argv: object, terminal: bool = False) -> Ran:
    """The command in this process, with streams of its own."""
    out = Stream(terminal)
    err = Stream(False)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in argv])
    return Ran(code, out.text(), err.text())


def reproduce(*argv: object) -> Ran:
    """`python -m experiments` in this process."""
    out = Stream(False)
    err = Stream(False)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_app(app, "python -m experiments", [str(word) for word in argv])
    return Ran(code, out.text(), err.text())


def program(*argv: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "holdfast", *(str(word) for word in argv)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", **settings)


def refused(ran: Ran, *words: str) -> None:
    """Exit code 2, nothing on stdout, and one line on stderr that has the words."""
    assert "Traceback" not in ran.err
    assert (ran.code, ran.out) == (BAD_INPUT, ""), ran.err
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert len(ran.err) < 1100
    for word in words:
        assert word in ran.err, ran.err
