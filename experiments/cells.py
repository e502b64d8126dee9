"""Long experiments as cells on disk: a run that was killed goes on where it stopped.

A cell is one file, written under another name first and renamed when complete, so that it is there
whole or not at all. Its name holds a hash of everything that went into it; with other settings it
is another cell.
"""

import hashlib
import io
import json
import os
import threading
import time
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


def _nothing(_: str) -> None:
    """Reports to nobody; unlike a lambda it can be sent to another process."""


def _worker(parent: int) -> None:
    """One thread, since processes that each take all cores are in each other's way; and an end with
    its parent, which a worker in the middle of a cell would outlive by hours."""
    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@dataclass
class Cells:
    """The cells of one experiment.

    Args:
        directory: where they are.
        settings: what decides the contents of all of them.
        report: called with the name of each cell that is made.
        workers: processes that `together` uses.
        took: by file, the name of each cell that was asked for and the seconds it took.
    """

    directory: Path
    settings: dict[str, Any]
    report: Callable[[str], None] = field(default=_nothing)
    workers: int = 1
    took: dict[Path, tuple[str, float]] = field(default_factory=dict[Path, tuple[str, float]])

    def arrays(self, name: str, make: Callable[[], Arrays], about: Any = None) -> Arrays:
        """The arrays of a cell, read or made; `seconds` tells how long making them took.

        Args:
            about: what decides the contents of this cell, besides the settings.
        """
        path = self.made(name, make, about)
        with np.load(path, allow_pickle=False) as file:
            out = {key: file[key] for key in file.files}
        self.took[path] = name, float(out["seconds"])
        return out

    def made(self, name: str, make: Callable[[], Arrays], about: Any = None) -> Path:
        """The file of a cell, which is written if it is not there."""
        path = self.path(name, about)
        if not path.is_file():
            self.report(name)
            start = time.perf_counter()
            arrays = make()
            arrays["seconds"] = np.array(time.perf_counter() - start)
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
            write_whole(path, buffer.getvalue())
        return path

    def together(self, jobs: Sequence[Job]) -> dict[str, Arrays]:
        """Several cells by their names, made in processes of their own if there is more than one
        worker."""
        missing = [job for job in jobs if not self.path(job[0], job[2]).is_file()]
        if self.workers > 1 and missing:
            quiet = replace(self, report=_nothing)
            parent = (os.getpid(),)
            with ProcessPoolExecutor(
                self.workers, get_context("spawn"), initializer=_worker, initargs=parent
            ) as pool:
                waiting = [pool.submit(quiet.made, *job) for job in missing]
                for job, cell in zip(missing, waiting, strict=True):
                    cell.add_done_callback(lambda _, name=job[0]: self.report(name))
                for cell in waiting:
                    cell.result()
        return {job[0]: self.arrays(*job) for job in jobs}

    def seconds(self) -> dict[str, float]:
        """How long it took to make each cell that was asked for; those that share a name are added
        up."""
        out = dict[str, float]()
        for name, took in self.took.values():
            out[name] = round(out.get(name, 0.0) + took, 1)
        return out

    def path(self, name: str, about: Any = None) -> Path:
        content = json.dumps([self.settings, about], sort_keys=True, default=str)
        digest = hashlib.sha256(content.encode()).hexdigest()[:10]
        return self.directory / f"{name.replace(' ', '_').replace('/', '_by_')}-{digest}.npz"
