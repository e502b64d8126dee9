"""What an experiment is: one paper as data, and a few functions over it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from experiments.paper import Pictures
from experiments.parts import Parts

Setting = TypeVar("Setting")
Task = TypeVar("Task")
Figures = dict[str, Any]  # what was measured on one dataset, as in its JSON file
Results = Sequence[Figures]  # the files of a paper, in the order of its settings


@dataclass(frozen=True)
class Run(Generic[Setting, Task]):
    """One dataset of a paper, ready to be measured."""

    dataset: str
    setting: Setting
    task: Task
    models: int
    rows: int | None  # None: all
    seed: int
    parts: Parts


@dataclass(frozen=True)
class Experiment(Generic[Setting, Task]):
    """The experiments of one paper.

    Args:
        name: the citation, which is the name of its package and of the directory of its results.
        title: the heading of its page.
        settings: dataset -> what the paper chose for it.
        models: how many a full run has, which is the most: retrained models per family, repeats
            with other seeds, or test sets.
        quick: the dataset of a quick run.
        quick_models: how many it has.
        prepare: dataset, seed -> the rows to learn from and to ask about.
        measure: the figures of one dataset; everything that takes long is a part of the run.
        page: the lines of the page between its heading and the notes.
        pictures: those of the page, by file name; they are drawn when called.
        full: datasets of a full run; () for all.
        workers: processes that make parts side by side.
    """

    name: str
    title: str
    settings: Mapping[str, Setting]
    models: int
    quick: str
    quick_models: int
    prepare: Callable[[str, int], Task]
    measure: Callable[[Run[Setting, Task]], Figures]
    page: Callable[[Results], list[str]]
    pictures: Callable[[Results], Pictures]
    full: tuple[str, ...] = ()
    workers: int = 1
