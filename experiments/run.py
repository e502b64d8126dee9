"""Run a part of an experiment, or the quick one: parts on disk, one JSON file per dataset, then a
page and pictures over all of them. Full results are cells (`runner`)."""

import json
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.experiment import Experiment, Figures, Run
from experiments.pages import page_text, write_page
from experiments.parts import Parts
from holdfast import __version__
from holdfast._core.checks import did_you_mean
from holdfast._core.files import write_whole
from holdfast.errors import SettingError

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
    """Measure datasets one after the other; what `work` already holds is not measured again.

    Args:
        datasets: names; without any, all of a full run.
        out: directory of the results, `<out>/<paper>/<dataset>.json` and a page over all of them.
        work: directory of the parts; delete it to start anew.
        models: retrained models per family, repeats with other seeds, or test sets; None takes as
            many as the paper.
        rows: test rows; None takes all.
        report: called with the name of each part that is made.

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
        parts = Parts(
            work / experiment.name / dataset,
            {"seed": seed, "version": __version__},
            report=lambda part, dataset=dataset: report(f"{dataset}/{part}"),
            workers=experiment.workers,
        )
        setting = experiment.settings[dataset]
        task = experiment.prepare(dataset, seed)
        figures = experiment.measure(Run(dataset, setting, task, count, rows, seed, parts))
        result = {
            "paper": experiment.name,
            "dataset": dataset,
            **figures,
            "seed": seed,
            "seconds": parts.seconds() | {"this call": round(time.perf_counter() - start, 1)},
            "version": __version__,
            "machine": f"Python {platform.python_version()}, torch {torch.__version__}, one thread",
        }
        file = out / experiment.name / f"{dataset}.json"
        write_whole(file, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
        results.append(result)
    write_experiment(experiment, out)
    return results


def write_experiment(experiment: Experiment[Any, Any], out: Path) -> Path:
    """Write the page over all results of a paper so far, and its pictures."""
    directory = out / experiment.name
    found = [directory / f"{dataset}.json" for dataset in experiment.settings]
    results: list[Figures] = [json.loads(path.read_text()) for path in found if path.is_file()]
    pictures = experiment.pictures(results)
    text = page_text(experiment.name, experiment.title, experiment.page(results), pictures)
    return write_page(directory, text, pictures)
