"""Plans that hold: what they cost and how often they do, beside rivals set by the same rule, on five tables.

Every base seed splits the table, trains a model, retrains it, calibrates c (and the margin of the smallest answers, the
honest rival) on people and models that the audit never sees, and asks for at least 60 refused people of the test half.
"""

from functools import partial
from typing import Any

import numpy as np

from experiments.cells import Arrays, Job
from experiments.experiment import Experiment, Figures, Run
from experiments.holdfast2026.measure import cell
from experiments.holdfast2026.page import page, pictures
from experiments.holdfast2026.setup import CALIBRATION, KINDS, SETTINGS, Setting, prepare
from experiments.tables import plain
from holdfast.datasets import Dataset

DIGITS = 5


def measure(run: Run[Setting, Dataset]) -> Figures:
    """One dataset: every kind of model, every base seed."""
    jobs: list[Job] = []
    for kind, about in KINDS.items():
        for seed in range(run.models):
            sizes = [about.guide, about.judges, CALIBRATION, run.rows]
            jobs.append((f"{kind} {seed}", partial(cell, run.task, run.setting, kind, seed, run.rows), sizes))
    found = run.cells.together(jobs)
    kinds = {kind: [_plain(found[f"{kind} {seed}"]) for seed in range(run.models)] for kind in KINDS}
    return {"title": run.setting.title, "wanted": run.setting.wanted, "seeds": run.models, "kinds": kinds}


def _plain(values: Arrays) -> dict[str, Any]:
    return {name: plain(np.asarray(value), DIGITS) for name, value in values.items()}


EXPERIMENT = Experiment(
    name="holdfast2026",
    title="Plans that hold when the model is retrained",
    settings=SETTINGS,
    models=3,  # base seeds
    quick="german_credit",
    quick_models=1,
    prepare=prepare,
    measure=measure,
    page=page,
    pictures=pictures,
)
