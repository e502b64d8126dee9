"""Load a file in a child process first: a crash, a loop or a hunger for memory there is a refusal here.

The child gets the bytes on its standard input, makes the estimator, checks it and lets it predict. It may not write
files, and has limits on time and memory where the system has them.
"""

import contextlib
import os
import signal
import subprocess
import sys
from typing import Any

from holdfast.errors import FileError, HoldfastError, UnsafeFileError, untyped

SECONDS, PATIENCE = 60, 900  # of computing, and by the clock of a machine that has other things to do
MEMORY = 4 << 30
FINE, REFUSED, UNSAFE = 0, 3, 4


PROGRAM = "from holdfast.models.formats.sandbox import main; main()"


def try_in_child(data: bytes, program: str = PROGRAM, patience: float = PATIENCE) -> None:
    """An error if a child process cannot load the skops file in `data` and predict with it."""
    command = [sys.executable, "-P", "-c", program]
    one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    path = os.pathsep.join(p for p in sys.path if p)
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=patience, check=False,
            env={**os.environ, **one, "PYTHONPATH": path},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise FileError(f"loading the file took a child process more than {patience:g} s, so it is refused") from None
    if done.returncode in (REFUSED, UNSAFE):
        kind = UnsafeFileError if done.returncode == UNSAFE else FileError
        raise kind(done.stdout.decode(errors="replace").strip()[:2000])
    if done.returncode < 0:
        names = {s.value: s.name for s in signal.Signals}
        name = names.get(-done.returncode, f"signal {-done.returncode}")
        raise FileError(f"loading the file crashed a child process ({name}), so it is refused")
    if done.returncode != FINE:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise FileError(f"loading the file failed in a child process, so it is refused: {last[:500]}")


def main() -> None:
    """What the child does."""
    from holdfast.models.formats.skops import reader as skops

    data = sys.stdin.buffer.read()
    untyped("sklearn.pipeline")  # what is imported under the limits counts against them
    _limit(len(data))
    try:
        estimator = skops.made(data)
        with contextlib.suppress(Exception):  # a model may ask for a table with names; only a crash counts
            skops.exercise(estimator)
    except HoldfastError as error:
        sys.stdout.write(str(error))  # the parent reads it
        sys.exit(UNSAFE if isinstance(error, UnsafeFileError) else REFUSED)


def _limit(size: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has no limits of this kind
        return
    limits: dict[Any, int] = {
        resource.RLIMIT_CPU: SECONDS, resource.RLIMIT_AS: MEMORY + 16 * size, resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
    }  # fmt: skip
    for name, value in limits.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(name, (value, value))
