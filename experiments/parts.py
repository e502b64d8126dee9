"""What a long experiment has done so far: a killed run goes on where it stopped.

A part is one file of arrays, first written under another name and renamed when complete, so it is
there whole or not at all. Its name holds a hash of everything that went into it; with other
settings it is another part. Parts stay on the machine that made them; results that others can read
are cells (`cell`).
"""

import hashlib
import io
import json
import math
import os
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast._core.files import write_whole

Arrays = dict[str, np.ndarray[Any, Any]]
Job = tuple[str, Callable[[], Arrays], Any]  # name, how it is made, and what decides its contents


class OutOfTime(Exception):
    """No further part may be begun; those that are made stay."""


def _nothing(_: str) -> None:
    """Reports to nobody; unlike a lambda it can be sent to another process."""


def _worker(parent: int) -> None:
    """One thread, since processes that each take all cores get in each other's way; and end with
    the parent, which a worker in the middle of a cell would outlive by hours."""
    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@dataclass
class Parts:
    """The parts of one experiment.

    Args:
        directory: where they are.
        settings: what decides the contents of all of them.
        report: called with the name of each part that is made.
        workers: processes that `together` uses.
        until: when the clock (`time.monotonic`) has passed this, no part is begun: `OutOfTime`.
        took: by file, the name of each part that was asked for and the seconds it took.
        fresh: of those that were made now, the seconds.
    """

    directory: Path
    settings: dict[str, Any]
    report: Callable[[str], None] = field(default=_nothing)
    workers: int = 1
    until: float = math.inf
    took: dict[Path, tuple[str, float]] = field(default_factory=dict[Path, tuple[str, float]])
    fresh: dict[Path, float] = field(default_factory=dict[Path, float])

    def beside(self, folder: str) -> "Parts":
        """Parts that cells share: they lie beside those of this one, whatever its settings."""
        return replace(self, directory=self.directory.parent / folder, settings={})

    @property
    def spent(self) -> float:
        """Seconds that went into parts made now."""
        return sum(self.fresh.values())

    def arrays(self, name: str, make: Callable[[], Arrays], about: Any = None) -> Arrays:
        """The arrays of a part, read or made; `seconds` tells how long making them took. A file
        that cannot be read is set aside, and its part made again.

        Args:
            about: what decides the contents of this part, besides the settings.
        """
        path = self.made(name, make, about)
        try:
            out = read_arrays(path)
        except BROKEN:
            set_aside(path)
            out = read_arrays(self.made(name, make, about))
        self.took[path] = name, float(out["seconds"])
        return out

    def made(self, name: str, make: Callable[[], Arrays], about: Any = None) -> Path:
        """The file of a part, written if it is not there."""
        path = self.path(name, about)
        if not path.is_file():
            if time.monotonic() > self.until:
                raise OutOfTime(name)
            self.report(name)
            start = time.perf_counter()
            arrays = make()
            seconds = time.perf_counter() - start
            self.fresh[path] = seconds
            arrays["seconds"] = np.array(seconds)
            write_whole(path, arrays_as_bytes(arrays))
        return path

    def together(self, jobs: Sequence[Job]) -> dict[str, Arrays]:
        """Several parts by their names, made in processes of their own if there is more than one
        worker."""
        missing = [job for job in jobs if not self.path(job[0], job[2]).is_file()]
        if self.workers > 1 and missing:
            quiet = replace(self, report=_nothing)
            parent = (os.getpid(),)
            with ProcessPoolExecutor(
                self.workers, get_context("spawn"), initializer=_worker, initargs=parent
            ) as pool:
                waiting = [pool.submit(quiet.made, *job) for job in missing]
                for job, part in zip(missing, waiting, strict=True):
                    part.add_done_callback(lambda _, name=job[0]: self.report(name))
                for part in waiting:
                    part.result()
        return {job[0]: self.arrays(*job) for job in jobs}

    def seconds(self) -> dict[str, float]:
        """How long it took to make each part asked for; those that share a name are added
        up."""
        out = dict[str, float]()
        for name, took in self.took.values():
            out[name] = round(out.get(name, 0.0) + took, 1)
        return out

    def path(self, name: str, about: Any = None) -> Path:
        content = json.dumps([self.settings, about], sort_keys=True, default=str)
        digest = hashlib.sha256(content.encode()).hexdigest()[:10]
        return self.directory / f"{name.replace(' ', '_').replace('/', '_by_')}-{digest}.npz"


# ---- files of arrays


# What reading a file that was cut short can raise.
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError)


def arrays_as_bytes(arrays: Arrays) -> bytes:
    """The contents of a compressed file of arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def read_arrays(path: Path) -> Arrays:
    """The arrays of a file."""
    content = io.BytesIO(path.read_bytes())
    with np.load(content, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be used, so that it can be inspected and another made."""
    aside = path.with_name(f"{path.name}.broken")
    os.replace(path, aside)
    return aside
