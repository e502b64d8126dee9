"""Load a file in a child process first: if that crashes, never ends or takes too much memory, the
file is refused.

For formats that a library's compiled code reads: skops, XGBoost and LightGBM. The child gets the
bytes on its standard input, loads them as they will be loaded here, and lets the model predict two
rows. It cannot write files, and has limits on time and memory where the system has them. See
SECURITY.md for what that covers and what it does not.
"""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Literal

from holdfast._core.checks import untyped
from holdfast.errors import FileError, HoldfastError, UnsafeFileError

# of computing, and by the clock, on a machine with other things to do
CPU_SECONDS = 60
TIMEOUT = 900
AT_ONCE = 20  # models of a bank that get the time of one
MEMORY = 4 << 30  # bytes, and 16 times the size of the file
# exit codes of the child
ACCEPTED = 0
REFUSED = 3
UNSAFE = 4

Format = Literal["skops", "xgboost", "lightgbm"]
# Format -> the module whose `try_out` loads it, and the library that is imported before the limits
# apply.
READERS: dict[Format, tuple[str, str]] = {
    "skops": ("holdfast.models.formats.skops.reader", "sklearn.pipeline"),
    "xgboost": ("holdfast.models.formats.xgboost", "xgboost"),
    "lightgbm": ("holdfast.models.formats.lightgbm", "lightgbm"),
}


def try_in_child(kind: Format, data: bytes) -> None:
    """An error if a child process cannot load the model in `data` and predict with it."""
    run_child(f"from holdfast.models.formats.sandbox import main; main({kind!r})", data)


def try_all_in_child(models: Sequence[tuple[Format, bytes]]) -> None:
    """An error if a child process cannot load all of these models and predict with them."""
    head = json.dumps([(kind, len(data)) for kind, data in models]).encode()
    content = b"".join([struct.pack("<Q", len(head)), head, *(data for _, data in models)])
    if models:
        run_child(
            "from holdfast.models.formats.sandbox import main_of_many; main_of_many()", content
        )


def run_child(program: str, data: bytes, timeout: float = TIMEOUT) -> None:
    """An error unless a Python program, given the data, ends as `main` does for a file that is
    accepted."""
    # Threads would take their stacks from the memory that the child is allowed.
    one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    path = os.pathsep.join(p for p in sys.path if p)
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", program],
            input=data,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, **one, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        raise FileError(
            f"loading the file took a child process more than {timeout:g} s, so it is refused"
        ) from None
    code = child.returncode
    if code in (REFUSED, UNSAFE):
        error = UnsafeFileError if code == UNSAFE else FileError
        raise error(child.stdout.decode(errors="replace").strip()[:2000])
    if code < 0:
        name = {s.value: s.name for s in signal.Signals}.get(-code, f"signal {-code}")
        raise FileError(f"loading the file crashed a child process ({name}), so it is refused")
    if code != ACCEPTED:
        last = (child.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise FileError(
            f"loading the file failed in a child process, so it is refused: {last[:500]}"
        )


def main(kind: Format) -> None:
    """What the child does."""
    _try_out([(kind, sys.stdin.buffer.read())])


def main_of_many() -> None:
    """What the child does with many models."""
    content = sys.stdin.buffer.read()
    models = list[tuple[Format, bytes]]()
    (at,) = struct.unpack("<Q", content[:8])
    head = json.loads(content[8 : 8 + at])
    at = 8 + at
    for kind, size in head:
        models.append((kind, content[at : at + size]))
        at += size
    _try_out(models)


def _try_out(models: Sequence[tuple[Format, bytes]]) -> None:
    readers = dict[Format, Any]()
    for kind, _ in models:
        module, library = READERS[kind]
        readers[kind] = untyped(module)
        untyped(library)  # what is imported under the limits counts against them
    _limit(sum(len(data) for _, data in models), CPU_SECONDS * -(-len(models) // AT_ONCE))
    try:
        for kind, data in models:
            readers[kind].try_out(data)
    except HoldfastError as error:
        sys.stdout.write(str(error))  # the parent reads it
        sys.exit(UNSAFE if isinstance(error, UnsafeFileError) else REFUSED)


def _limit(size: int, seconds: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has no limits of this kind
        return
    limits: dict[Any, int] = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_AS: MEMORY + 16 * size,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
    }
    for name, value in limits.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(name, (value, value))
