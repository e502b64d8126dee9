"""Plans that hold: what they cost and how often they do, beside rivals set by the same rule, on five tables.

Every base seed splits the table, trains a model, retrains it, calibrates c (and the margin of the smallest answers, the
honest rival) on people and models that the audit never sees, and asks for at least 60 refused people of the test half.
"""

from functools import partial
from typing import Any

import numpy as np

from experiments.cells import Arrays, Job
from experiments.experiment import Experiment, Figures, Run
from experiments.holdfast2026.drift import measure_drift
from experiments.holdfast2026.measure import cell
from experiments.holdfast2026.page import page, pictures
from experiments.holdfast2026.repeats import measure_repeats
from experiments.holdfast2026.setup import FIRST_SEED, KINDS, SETTINGS, Setting, prepare
from experiments.tables import plain
from holdfast.datasets import Dataset

DIGITS = 5
DRIFT, REPEATED = "sba_loan", "german_credit"


def seeds_of(run: Run[Setting, Dataset]) -> range:
    """The base seeds."""
    return range(FIRST_SEED, FIRST_SEED + run.models)


def jobs_of(run: Run[Setting, Dataset], kind: str) -> list[Job]:
    """Every base seed of one kind of model."""
    about, banks = KINDS[kind], run.cells.directory / "banks"
    sizes = [about.guide, about.judges, about.calibration, about.known, about.oracle, run.rows]
    make = partial(cell, run.task, run.setting, kind)
    return [(f"{kind} {seed}", partial(make, seed, run.rows, banks), sizes) for seed in seeds_of(run)]


def measure(run: Run[Setting, Dataset]) -> Figures:
    """One dataset: every kind of model, every base seed."""
    about = {"title": run.setting.title, "wanted": run.setting.wanted, "seeds": run.models}
    if run.dataset == DRIFT:
        return about | {"years": measure_drift(run.cells, seeds_of(run), DIGITS)}
    found = run.cells.together([job for kind in KINDS for job in jobs_of(run, kind)])
    kinds = {kind: [_plain(found[f"{kind} {seed}"]) for seed in seeds_of(run)] for kind in KINDS}
    repeats = measure_repeats(run.cells, run.task, run.dataset, "network l1", DIGITS) if run.dataset == REPEATED else {}
    return about | {"kinds": kinds, "repeats": repeats}


def _plain(values: Arrays) -> dict[str, Any]:
    return {name: plain(np.asarray(value), DIGITS) for name, value in values.items()}


EXPERIMENT = Experiment(
    name="holdfast2026",
    title="Plans that hold when the model is retrained",
    settings=SETTINGS | {DRIFT: Setting("SBA loans, by year", "paid")},
    models=3,  # base seeds
    quick="german_credit",
    quick_models=1,
    prepare=prepare,
    measure=measure,
    page=page,
    pictures=pictures,
    workers=2,
)
