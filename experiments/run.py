"""Run an experiment: cells on disk, one JSON file per dataset, then a page and pictures over all of
them."""

import contextlib
import json
import platform
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from experiments.cells import Cells
from experiments.experiment import Experiment, Figures, Results, Run
from holdfast import __version__
from holdfast._core.checks import did_you_mean
from holdfast._core.files import write_whole
from holdfast.errors import MissingExtraError, SettingError
from holdfast.render.charts.theme import save as save_chart

FULL_SEED = 0  # and all rows, and as many models as the paper has


def reproduce(
    experiment: Experiment[Any, Any],
    datasets: Sequence[str] = (),
    *,
    out: Path,
    work: Path,
    models: int | None = None,
    rows: int | None = None,
    seed: int = FULL_SEED,
    report: Callable[[str], None] = lambda _: None,
) -> list[Figures]:
    """Measure datasets one after the other; what is in `work` already is not measured again.

    Args:
        datasets: names; none means all of a full run.
        out: directory of the results, `<out>/<paper>/<dataset>.json` and a page over all of them.
        work: directory of the cells; delete it to start anew.
        models: retrained models per family, repeats with other seeds, or test sets; None takes as
            many as the paper.
        rows: test rows; None takes all.
        report: called with the name of each cell that is made.

    Returns:
        One result per dataset, as in the files.
    """
    for dataset in datasets:
        if dataset not in experiment.settings:
            known = did_you_mean(dataset, experiment.settings)
            raise SettingError(f"{experiment.name} has no dataset {dataset!r}; {known}")
    count = experiment.models if models is None else models
    if not 1 <= count <= experiment.models:
        raise SettingError(
            f"models must be 1 to {experiment.models} for {experiment.name}, got {count}"
        )
    results = list[Figures]()
    for dataset in datasets or experiment.full or experiment.settings:
        start = time.perf_counter()
        cells = Cells(
            work / experiment.name / dataset,
            {"seed": seed, "version": __version__},
            report=lambda cell, dataset=dataset: report(f"{dataset}/{cell}"),
            workers=experiment.workers,
        )
        setting = experiment.settings[dataset]
        task = experiment.prepare(dataset, seed)
        figures = experiment.measure(Run(dataset, setting, task, count, rows, seed, cells))
        result = {
            "paper": experiment.name,
            "dataset": dataset,
            **figures,
            "seed": seed,
            "seconds": cells.seconds() | {"this call": round(time.perf_counter() - start, 1)},
            "version": __version__,
            "machine": f"Python {platform.python_version()}, torch {torch.__version__}, one thread",
        }
        file = out / experiment.name / f"{dataset}.json"
        write_whole(file, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
        results.append(result)
    write_page(experiment, out)
    return results


def page_text(experiment: Experiment[Any, Any], results: Results) -> str:
    """The markdown page over all results of a paper: its tables, its notes, its pictures."""
    body = "\n".join(experiment.page(results)).rstrip()
    notes = (
        (files(f"experiments.{experiment.name}") / "notes.md").read_text(encoding="utf-8").rstrip()
    )
    pictures = [f"![{Path(file).stem}]({file})" for file in experiment.pictures(results)]
    return "\n".join(
        [f"# {experiment.title}", "", body, "", notes, "", "## Pictures", "", *pictures, ""]
    )


def write_page(experiment: Experiment[Any, Any], out: Path) -> Path:
    """Write the page over all results of a paper that there are, and its pictures."""
    directory = out / experiment.name
    found = [directory / f"{dataset}.json" for dataset in experiment.settings]
    results: list[Figures] = [json.loads(path.read_text()) for path in found if path.is_file()]
    page = directory / "README.md"
    write_whole(page, page_text(experiment, results).encode())
    with contextlib.suppress(MissingExtraError):  # pictures need the plot extra; figures do not
        for file, draw in experiment.pictures(results).items():
            picture = draw()
            if isinstance(picture, bytes):
                write_whole(directory / file, picture)
            else:
                save_chart(picture, directory / file)
    return page
