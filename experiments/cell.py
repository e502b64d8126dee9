"""A cell: a part of a paper's experiments that takes minutes, and the file of its results.

A cell is one data set, one group of methods and one seed, and takes at most five minutes on one
core; a longer one is made of parts that are kept where it runs (`parts`), so it goes on where it
was stopped. When it is finished, its figures become a file in `experiments/cells`, with arrays
beside it if rows are worth keeping, and are committed.

A file tells which commit made it, when, from which rows, on which processor and with how many
threads. It stays when other files change; whoever changes answers deletes the files of the cells
that have to be made again. A file made with settings other than its cell's counts as missing.
"""

import dataclasses
import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from experiments.parts import (
    BROKEN,
    Arrays,
    OutOfTime,
    Parts,
    arrays_as_bytes,
    read_arrays,
    set_aside,
)
from holdfast import __version__
from holdfast._core.files import write_whole

FOLDER = Path(__file__).parent / "cells"
ROOT = Path(__file__).parents[1]
FORMAT = 1
Figures = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a cell gave.

    Args:
        figures: anything that JSON can hold.
        data: name of a table -> hash of the rows learnt from and asked about (`hash_of`).
        arrays: what is kept of single rows.
    """

    figures: Figures
    data: Mapping[str, str]
    arrays: Arrays = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Cell:
    """One part of a paper's experiments.

    Args:
        paper, dataset, group, seed: what it is; together its name.
        make: the outcome; everything in it that takes long is a part.
        settings: what decides the outcome, besides the code.
        minutes: about how long it takes on one core.
        longest: about how many minutes its longest part takes; None if it is in one piece.
    """

    paper: str
    dataset: str
    group: str
    seed: int
    make: Callable[[Parts], Outcome]
    settings: Any
    minutes: float
    longest: float | None = None

    @property
    def name(self) -> str:
        return f"{self.paper}/{self.dataset}/{self.group}/{self.seed}"

    @property
    def file(self) -> Path:
        """Where it is, in a folder of cells."""
        return Path(self.paper, self.dataset, f"{self.group}-{self.seed}.json")


@dataclass(frozen=True)
class Made:
    """A finished cell: what its file says."""

    cell: Cell
    head: Figures
    figures: Figures
    arrays_file: Path

    @property
    def arrays(self) -> Arrays:
        return read_arrays(self.arrays_file) if self.head["arrays"] else {}

    @property
    def minutes(self) -> float:
        return self.head["minutes"]


@dataclass(frozen=True)
class Store:
    """A folder of finished cells."""

    folder: Path = FOLDER

    def find(self, cell: Cell) -> Made | None:
        """What a cell gave; None if it is missing or was made with other settings. A file that
        was cut short is set aside."""
        path = self.folder / cell.file
        if not path.is_file():
            return None
        arrays = path.with_suffix(".npz")
        try:
            head = json.loads(path.read_text(encoding="utf-8"))
            figures = head.pop("figures")
            settings = head.pop("settings")
            if head["arrays"] and head["arrays"] != _hash_of_file(arrays):
                raise ValueError(f"{arrays} is not the file that {path} was written with")
        except (*BROKEN, FileNotFoundError):
            set_aside(path)
            return None
        if settings != plain(cell.settings):
            return None
        return Made(cell, head, figures, arrays)

    def write(self, cell: Cell, outcome: Outcome, seconds: float) -> None:
        """Keep what a cell gave; the file with the figures comes last, and the cell with it."""
        path = self.folder / cell.file
        arrays: str | None = None
        if outcome.arrays:
            content = arrays_as_bytes(outcome.arrays)
            write_whole(path.with_suffix(".npz"), content)
            arrays = hashlib.sha256(content).hexdigest()
        head = {
            "format": FORMAT,
            "cell": cell.name,
            **provenance(),
            "data": dict(outcome.data),
            "minutes": round(seconds / 60, 3),
            "arrays": arrays,
            "settings": plain(cell.settings),
            "figures": outcome.figures,
        }
        text = json.dumps(head, indent=1, allow_nan=False)
        write_whole(path, f"{text}\n".encode())

    def make(self, cell: Cell, work: Path, until: float) -> bool:
        """Make a cell, as far as the time allows; is it finished?

        Args:
            work: folder of the parts, of all cells.
            until: no part is begun once `time.monotonic` has passed this.
        """
        parts = Parts(work / cell.file.with_suffix(""), plain(cell.settings), until=until)
        start = time.perf_counter()
        try:
            outcome = cell.make(parts)
        except OutOfTime:
            return False
        # parts of earlier runs took their time then
        earlier = sum(seconds for _, seconds in parts.took.values()) - parts.spent
        self.write(cell, outcome, time.perf_counter() - start + earlier)
        return True


def plain(value: Any) -> Any:
    """Settings in JSON's types: dataclasses with all their fields, anything else by its words."""

    def words(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {"is": type(value).__name__} | {
                f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init
            }
        return str(value)

    return json.loads(json.dumps(value, default=words))


# ---- where figures come from


def provenance() -> Figures:
    """Commit, date, versions, processor and threads of what is made now."""
    commit = _git("rev-parse", "HEAD")
    # what lies in the folders of results is not code
    changed = _git("status", "--porcelain", "--", "src", "experiments/*.py")
    return {
        "commit": commit,
        "changed": None if changed is None else bool(changed),
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "processor": processor(),
        "threads": torch.get_num_threads(),
    }


def processor() -> str:
    """The processor as the system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _git(*words: str) -> str | None:
    """What git says about this checkout; None if there is none."""
    try:
        ran = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return ran.stdout.strip()


def _hash_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hash_of(*values: Any) -> str:
    """Sixteen digits that stand for tables, tensors, and anything made of them."""
    digest = hashlib.sha256()
    for value in values:
        for piece in _pieces(value):
            digest.update(piece)
    return digest.hexdigest()[:16]


def _pieces(value: Any) -> Iterable[bytes]:
    """The bytes that say what a value is."""
    if isinstance(value, pd.DataFrame):
        for name in value.columns:
            yield str(name).encode()
            yield from _pieces(value[name].to_numpy())
    elif isinstance(value, pd.Series):
        yield from _pieces(value.to_numpy())
    elif isinstance(value, Tensor):
        yield from _pieces(value.detach().cpu().numpy())
    elif isinstance(value, np.ndarray):
        array = cast(np.ndarray[Any, Any], value)
        yield f"{array.shape}".encode()
        if array.dtype.kind in "biuf":
            yield np.ascontiguousarray(array).tobytes()
        else:
            yield "\0".join(map(str, array.ravel().tolist())).encode()
    elif isinstance(value, Mapping):
        for key, one in cast(Mapping[Any, Any], value).items():
            yield str(key).encode()
            yield from _pieces(one)
    elif isinstance(value, list | tuple):
        for one in cast(Iterable[Any], value):
            yield from _pieces(one)
    elif dataclasses.is_dataclass(value):
        for part in dataclasses.fields(value):
            yield from _pieces(getattr(value, part.name))
    else:
        yield str(value).encode()
