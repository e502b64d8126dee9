"""A paper that was run again: its cells, the records made from them, and its page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from experiments import PAPERS
from experiments.cell import Cell, Made, Store
from experiments.records import Record
from holdfast._core.checks import did_you_mean
from holdfast.errors import SettingError

Pictures = Mapping[str, Callable[[], Any]]  # file name -> draws a chart, or the bytes of the file


@dataclass(frozen=True)
class Found:
    """Which of a paper's cells are there, and which are missing."""

    made: tuple[Made, ...]
    missing: tuple[Cell, ...]

    @classmethod
    def of(cls, cells: Sequence[Cell], store: Store) -> "Found":
        looked_up = [(cell, store.find(cell)) for cell in cells]
        made = tuple(found for _, found in looked_up if found is not None)
        missing = tuple(cell for cell, found in looked_up if found is None)
        return cls(made, missing)

    def seeds(self, dataset: str, group: str) -> list[Made]:
        """The finished cells of a group, by seed."""
        fitting = [
            one for one in self.made if (one.cell.dataset, one.cell.group) == (dataset, group)
        ]
        return sorted(fitting, key=lambda one: one.cell.seed)

    def missing_of(self, dataset: str) -> list[Cell]:
        return [cell for cell in self.missing if cell.dataset == dataset]

    def __iter__(self) -> Iterator[Made]:
        return iter(self.made)


@dataclass(frozen=True)
class Paper:
    """One paper.

    Args:
        name: the citation, which is the name of its package and of the folder of its results.
        title: the heading of its page.
        cells: all of them, made when called.
        check: the name of a cheap cell, which `make reproduce-check` makes again.
        records: the tables, as records, of what there is.
        page: the lines of the page between its heading and the notes.
        pictures: those of the page, by file name; they are drawn when called.
        quick: the cells of a quick run, made when called; None: `experiment` has one.
        experiment: the `Experiment` whose parts can be run, if there is one.
    """

    name: str
    title: str
    cells: Callable[[], list[Cell]]
    check: str
    page: Callable[[Found], list[str]]
    pictures: Callable[[Found], Pictures]
    records: Callable[[Found], list[Record]] = field(default=lambda _: [])
    quick: Callable[[], list[Cell]] | None = None
    experiment: Any = None

    def cell(self, name: str) -> Cell:
        """A cell by its name."""
        by_name = {cell.name: cell for cell in self.cells()}
        if name not in by_name:
            raise SettingError(f"unknown cell {name!r}; {did_you_mean(name, by_name)}")
        return by_name[name]


def load_paper(name: str) -> Paper:
    """A paper by its citation."""
    if name not in PAPERS:
        raise SettingError(f"unknown paper {name!r}; {did_you_mean(name, PAPERS)}")
    return import_module(f"experiments.{name}.paper").PAPER


def load_papers() -> list[Paper]:
    """All of them."""
    return [load_paper(name) for name in PAPERS]
