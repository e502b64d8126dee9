"""Papers whose figures for a data set are one cell, made of many parts (`experiment`)."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from experiments.cell import Cell, Figures, Outcome, Store, hash_of
from experiments.experiment import Experiment, Run
from experiments.pages import RESULTS
from experiments.paper import Found, Paper, load_paper
from experiments.parts import Parts

GROUP = "all"
SEED = 0
UNKNOWN = 10.0  # minutes of a data set that was never measured
# Minutes of the longest part, if earlier figures do not tell the seconds of each.
LONGEST = {"black2022": 2.0, "hoeltgen2021": 15.0}


def as_paper(experiment: Experiment[Any, Any], check: Cell) -> Paper:
    """The paper of an experiment, with a cheap cell to check."""

    def shown(found: Found) -> list[Figures]:
        return results(experiment, found)

    return Paper(
        name=experiment.name,
        title=experiment.title,
        cells=lambda: [check, *whole_cells(experiment)],
        check=check.name,
        page=lambda found: [*age(experiment, found), *experiment.page(shown(found))],
        pictures=lambda found: experiment.pictures(shown(found)),
        experiment=experiment,
    )


def whole_cells(experiment: Experiment[Any, Any]) -> list[Cell]:
    """A cell for each data set of a full run."""
    out = list[Cell]()
    for dataset in experiment.full or experiment.settings:
        earlier = earlier_figures(experiment.name, dataset)
        out.append(
            Cell(
                paper=experiment.name,
                dataset=dataset,
                group=GROUP,
                seed=SEED,
                make=partial(_measured, experiment, dataset),
                settings={"models": experiment.models},
                minutes=took(earlier) if earlier else UNKNOWN,
                longest=longest_part(experiment.name, earlier) if earlier else UNKNOWN,
            )
        )
    return out


def _measured(experiment: Experiment[Any, Any], dataset: str, parts: Parts) -> Outcome:
    task = experiment.prepare(dataset, SEED)
    setting = experiment.settings[dataset]
    figures = experiment.measure(Run(dataset, setting, task, experiment.models, None, SEED, parts))
    result = {
        "paper": experiment.name,
        "dataset": dataset,
        **figures,
        "seed": SEED,
        "seconds": parts.seconds(),
    }
    return Outcome(result, {dataset: hash_of(task)})


# ---- figures that are older than the cells


def earlier_figures(paper: str, dataset: str, folder: Path = RESULTS) -> Figures | None:
    """What was measured before results were cells; None if nothing was."""
    file = folder / paper / f"{dataset}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def took(figures: Figures) -> float:
    """Minutes that all parts took together."""
    return sum(_seconds(figures)) / 60


def longest_part(paper: str, figures: Figures) -> float:
    """Minutes of the longest part."""
    return LONGEST.get(paper, max(_seconds(figures)) / 60)


def _seconds(figures: Figures) -> list[float]:
    return [seconds for name, seconds in figures["seconds"].items() if name != "this call"]


def committed(name: str) -> list[Figures]:
    """The figures of each data set of a paper, as in the repository."""
    paper = load_paper(name)
    return results(paper.experiment, Found.of(paper.cells(), Store()))


def results(experiment: Experiment[Any, Any], found: Found) -> list[Figures]:
    """The figures of each data set: its cell's, or else older ones."""
    out = list[Figures]()
    for dataset in experiment.settings:
        cells = found.seeds(dataset, GROUP)
        figures = cells[0].figures if cells else earlier_figures(experiment.name, dataset)
        if figures is not None:
            out.append(figures)
    return out


def age(experiment: Experiment[Any, Any], found: Found) -> list[str]:
    """What a reader should know about how old the figures are."""
    old = list[str]()
    missing = list[str]()
    for dataset in experiment.full or experiment.settings:
        if found.seeds(dataset, GROUP):
            continue
        (old if earlier_figures(experiment.name, dataset) else missing).append(dataset)
    lines = list[str]()
    if old:
        lines += [
            f"Older than the code, and to be measured again: {', '.join(old)}. These figures were "
            "measured before\nresults carried their commit.",
            "",
        ]
    if missing:
        lines += [f"Not measured yet: {', '.join(missing)}.", ""]
    return lines


def check_cell(
    paper: str, dataset: str, make: Callable[[], Outcome], settings: Any, minutes: float = 0.1
) -> Cell:
    """The cheap cell of a paper."""
    return Cell(paper, dataset, "check", SEED, lambda _: make(), settings, minutes)
