"""Long experiments as cells on disk: a run that was killed goes on where it stopped.

A cell is one file, written under another name first and renamed when complete, so that it is there whole or
not at all. Its name holds a hash of everything that went into it; with other settings it is another cell.
"""

import hashlib
import io
import json
import os
import tempfile
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

Arrays = dict[str, np.ndarray[Any, Any]]
Job = tuple[str, Callable[[], Arrays], Any]  # name, how it is made, and what decides its contents


def _nothing(_: str) -> None:
    """For who says nothing; unlike a lambda it can be sent to another process."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is never seen half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _worker(parent: int) -> None:
    """One thread, since processes that each take all cores are in each other's way; and an end with its parent, which
    a worker in the middle of a cell would outlive by hours."""
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
    """

    directory: Path
    settings: dict[str, Any]
    said: Callable[[str], None] = field(default=_nothing)

    def arrays(self, name: str, make: Callable[[], Arrays], about: Any = None) -> Arrays:
        """The arrays of a cell, read or made; `seconds` tells how long making them took.

        Args:
            about: what decides the contents of this cell, besides the settings.
        """
        path = self.path(name, about)
        if not path.is_file():
            self.said(name)
            start = time.perf_counter()
            made = make()
            made["seconds"] = np.array(time.perf_counter() - start)
            room = io.BytesIO()
            np.savez_compressed(room, **made)  # pyright: ignore[reportArgumentType]
            write_whole(path, room.getvalue())
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}

    def together(self, jobs: Sequence[Job], workers: int) -> list[Arrays]:
        """Several cells, in processes of their own if there is more than one worker."""
        if workers == 1:
            return [self.arrays(*job) for job in jobs]
        told = replace(self, said=_nothing)
        with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_worker, initargs=(os.getpid(),)) as pool:
            waiting = [pool.submit(told.arrays, *job) for job in jobs]
            for job, cell in zip(jobs, waiting, strict=True):
                cell.add_done_callback(lambda _, name=job[0]: self.said(name))
            return [cell.result() for cell in waiting]

    def path(self, name: str, about: Any = None) -> Path:
        content = json.dumps([self.settings, about], sort_keys=True, default=str)
        digest = hashlib.sha256(content.encode()).hexdigest()[:10]
        return self.directory / f"{name.replace(' ', '_')}-{digest}.npz"
