"""Make cells, the most important first; list what there is; make some again and compare."""

import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from experiments.cell import Cell, Made, Store
from experiments.order import in_order

WORK = Path(".holdfast-bench")


@dataclass
class Ran:
    """What a run did.

    Args:
        made: the cells that were finished.
        begun: those for which the time was too short; their parts are kept.
        failed: those that raised an error, with its message.
        left: those still missing and not begun.
    """

    made: list[Cell] = field(default_factory=list[Cell])
    begun: list[Cell] = field(default_factory=list[Cell])
    failed: list[tuple[Cell, str]] = field(default_factory=list[tuple[Cell, str]])
    left: list[Cell] = field(default_factory=list[Cell])


def run(
    cells: Iterable[Cell],
    store: Store,
    *,
    minutes: float = math.inf,
    work: Path = WORK,
    report: Callable[[str], None] = lambda _: None,
) -> Ran:
    """Make missing cells on one thread, in the order of `order`, for this many minutes.

    A cell, or the next part of one, is begun only if enough time is left for it.

    Args:
        store: where finished cells are kept.
        work: folder of the parts of unfinished ones.
        report: called with the name of each cell that is begun.
    """
    wanted = in_order(cells)
    end = time.monotonic() + 60 * minutes
    expected = Expectation(wanted, store)
    ran = Ran()
    with one_thread():
        for cell in wanted:
            if store.find(cell) is not None:
                continue
            latest_start = end - 60 * expected.of_a_part(cell)
            if time.monotonic() > latest_start:
                ran.left.append(cell)
                continue
            report(cell.name)
            try:
                finished = store.make(cell, work, latest_start)
            except Exception as error:  # the others do not depend on it
                ran.failed.append((cell, f"{type(error).__name__}: {error}"))
                continue
            (ran.made if finished else ran.begun).append(cell)
    return ran


@contextmanager
def one_thread() -> Generator[None]:
    """Let torch compute on one thread, so figures do not depend on how many there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Expectation:
    """How long cells take: as long as those of other seeds took, or else the stated minutes."""

    def __init__(self, cells: Sequence[Cell], store: Store) -> None:
        self.took = dict[tuple[str, str, str], list[float]]()
        for cell in cells:
            made = store.find(cell)
            if made is not None:
                self.took.setdefault(self._kind(cell), []).append(made.minutes)

    def of(self, cell: Cell) -> float:
        """Minutes of a cell."""
        took = self.took.get(self._kind(cell))
        return float(np.mean(took)) if took else cell.minutes

    def of_a_part(self, cell: Cell) -> float:
        """Minutes of the longest piece that cannot be stopped and kept."""
        return self.of(cell) if cell.longest is None else cell.longest

    @staticmethod
    def _kind(cell: Cell) -> tuple[str, str, str]:
        return cell.paper, cell.dataset, cell.group


def listing(cells: Iterable[Cell], store: Store) -> str:
    """What is there, what is missing and how long it will take, in the order of
    making."""
    wanted = in_order(cells)
    expected = Expectation(wanted, store)
    lines = list[str]()
    there = 0
    left = 0.0
    for cell in wanted:
        made = store.find(cell)
        if made is None:
            left += expected.of(cell)
            lines.append(f"missing  {cell.name}  about {expected.of(cell):.1f} min")
        else:
            there += 1
            lines.append(f"there    {cell.name}  {_origin(made)}, {made.minutes:.1f} min")
    hours = f"{left / 60:.1f} hours" if left >= 60 else f"{left:.0f} minutes"
    last = f"{there} of {len(wanted)} cells are there; the others take about {hours} on one core."
    return "\n".join([*lines, last])


def _origin(made: Made) -> str:
    commit = made.head["commit"]
    changed = " with changes" if made.head["changed"] else ""
    return f"{made.head['date']}, commit {commit[:9] if commit else 'unknown'}{changed}"


# ---- the same figures again


def differences(cell: Cell, store: Store, work: Path) -> list[str]:
    """Make a cell again, and say where its figures differ from those kept."""
    kept = store.find(cell)
    if kept is None:
        return [f"{cell.name} is missing: python -m experiments run"]
    again = Store(work / "again")
    with one_thread():
        again.make(cell, work / "parts", math.inf)
    made = again.find(cell)
    assert made is not None
    out = list[str]()
    for name in sorted(kept.figures.keys() | made.figures.keys()):
        old = digits(kept.figures.get(name))
        new = digits(made.figures.get(name))
        if old != new:
            out.append(f"{cell.name}: {name} was {old}, is {new}")
    if kept.head["data"] != made.head["data"]:
        out.append(f"{cell.name}: the rows were {kept.head['data']}, are {made.head['data']}")
    return out


def digits(value: Any) -> Any:
    """A figure to four significant digits, which another processor also gives."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list):
        return [digits(one) for one in cast(list[Any], value)]
    if isinstance(value, dict):
        return {key: digits(one) for key, one in cast(dict[str, Any], value).items()}
    return value
