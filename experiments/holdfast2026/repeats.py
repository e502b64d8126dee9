"""Is the promise honest? Twenty times anew: a base model, its banks, the calibration, the certificates, and the truth.

The truth about an answer is the share of many further models that accept it, which neither guided, nor calibrated, nor
certified. A certificate is false where that share is below the level that it states.
"""

from functools import partial
from typing import Any

import numpy as np

import holdfast as hf
from experiments.cells import Arrays, Cells, Job
from experiments.experiment import Figures
from experiments.holdfast2026.setup import CONFIDENCE, KINDS, SETTINGS, SHARE, Setting, split
from experiments.tables import plain
from holdfast.datasets import Dataset
from holdfast.evaluation.calibration import replace_c

REPEATS, LEVELS = 20, (0.8, 0.9, 0.95)
GUIDE, TUNE, JUDGES, TRUTH, PEOPLE = 80, 100, 100, 500, 50
FIRST_SEED = 200  # other splits and models than those of the main study


def cell(data: Dataset, setting: Setting, kind: str, seed: int) -> Arrays:
    """One repetition: at every level who is certified, and what the truth is."""
    task, recipe = split(data, setting, seed), KINDS[kind].recipe(setting)
    classes = [c for c in task.y.unique() if c != setting.wanted] + [setting.wanted]
    model = recipe.fit(task.X, task.y, task.schema, classes=classes, seed=seed)
    families = {"retrain": GUIDE + TUNE + JUDGES + TRUTH}
    bank = hf.ModelBank.retrain(
        recipe, task.X, task.y, task.schema, families=families, classes=classes, seed=seed, workers=1
    )
    guide, tune, others = bank.split(guide=GUIDE, calibration=TUNE, audit=JUDGES + TRUTH)
    judges, truth = others[:JUDGES], others[JUDGES:]
    refused = [t[(model.predict(t) != setting.wanted).to_numpy()].head(PEOPLE) for t in (task.X, task.test)]
    known, people = refused
    survival, out = hf.SurvivalSearch(guide), dict[str, Any]()
    for level in LEVELS:
        asked: dict[str, Any] = {"at_least": level, "confidence": CONFIDENCE}
        tuned = hf.calibrate(survival, model, known, setting.wanted, tune, share=SHARE, seed=seed, **asked)
        cfs = replace_c(survival, tuned.c).explain(model, people, setting.wanted)
        certified = hf.audit(cfs, judges).certified(**asked).to_numpy()
        held = hf.audit(cfs, truth).held.mean(0)
        out |= {
            f"{level} c": np.array(tuned.c), f"{level} certified": certified, f"{level} held": held,
            f"{level} cost": cfs.cost("l1").to_numpy(), f"{level} found": cfs.found,
        }  # fmt: skip
    return out


def jobs_of(data: Dataset, dataset: str, kind: str) -> list[Job]:
    """All repetitions on one table."""
    make = partial(cell, data, SETTINGS[dataset], kind)
    about = [GUIDE, TUNE, JUDGES, TRUTH, PEOPLE]
    return [(f"repeat {kind} {i}", partial(make, FIRST_SEED + i), about) for i in range(REPEATS)]


def measure_repeats(cells: Cells, data: Dataset, dataset: str, kind: str, digits: int) -> Figures:
    """For every level and repetition the share certified of those who can be, and of the certificates how many are
    false."""
    found = cells.together(jobs_of(data, dataset, kind))
    out: Figures = {}
    for level in LEVELS:
        lines = list[dict[str, Any]]()
        for arrays in found.values():
            certified, held = arrays[f"{level} certified"], arrays[f"{level} held"]
            lines.append({
                "c": float(arrays[f"{level} c"]), "people": len(certified), "certified": int(certified.sum()),
                "false": int((certified & (held < level)).sum()), "held": plain(held, digits),
            })  # fmt: skip
        out[str(level)] = lines
    return out
