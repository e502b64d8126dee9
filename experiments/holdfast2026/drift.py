"""When the world changes: SBA loans of one year, judged by models of the years after it.

The base model learns from one year. `survival` is guided by models retrained on that year; `history` by half as many of
them, and by models of the two years before. c is what models of the base year calibrate for the first of these, since the
years before are to add to the spread and not to the sample; with a history guide it is 3 at least, as in `Recourse`.
"""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import holdfast as hf
from experiments.cells import Arrays, Cells, Job
from experiments.data import load_table
from experiments.experiment import Figures
from experiments.holdfast2026.setup import CONFIDENCE, HOLD, SHARE
from experiments.tables import plain
from holdfast.datasets import Dataset
from holdfast.evaluation.calibration import USUAL, replace_c

YEARS, WANTED = (1997, 2000, 2003), "paid"
ROWS, ASKED, CALIBRATED, GUIDE, CALIBRATION, JUDGES = 6000, 100, 100, 80, 100, 100
AHEAD = (0, 1, 2)  # years after the base year


def rows_of(data: Dataset, years: list[int], seed: int) -> tuple[pd.DataFrame, "pd.Series[Any]", "pd.Series[Any]"]:
    """Some loans of each year: table, outcome, year."""
    assert data.parts is not None
    random = np.random.default_rng(seed)
    places = np.concatenate([
        random.permutation(np.flatnonzero((data.parts == year).to_numpy()))[:ROWS] for year in years
    ])  # fmt: skip
    return data.X.iloc[places], data.y.iloc[places], data.parts.iloc[places]


def cell(data: Dataset, year: int, seed: int) -> Arrays:
    """What people refused by the model of a year are told, and whether models of later years accept it."""
    recipe = hf.Recipe(hidden=(32, 16), epochs=15, weight_decay=1e-3)
    X, y, when = rows_of(data, [year - 2, year - 1, year], seed)
    now = (when == year).to_numpy()
    classes: dict[str, Any] = {"classes": ["charged off", WANTED], "seed": seed}
    model = recipe.fit(X[now], y[now], data.schema, **classes)
    families = {"retrain": GUIDE + CALIBRATION + JUDGES, "history": GUIDE // 2}
    bank = hf.ModelBank.retrain(recipe, X, y, data.schema, families=families, time=when, window=1, **classes)
    present, older = bank["retrain"], bank["history"]
    guide, tune, judges = present.split(guide=GUIDE, calibration=CALIBRATION, audit=JUDGES)
    mixed = guide[: GUIDE // 2].join(older)
    later = {0: judges}
    for ahead in AHEAD[1:]:
        X2, y2, _ = rows_of(data, [year + ahead], seed)
        later[ahead] = hf.ModelBank.retrain(recipe, X2, y2, data.schema, families={"retrain": JUDGES}, **classes)
    refused = X[now][(model.predict(X[now]) != WANTED).to_numpy()]
    known, people = refused.head(CALIBRATED), refused.iloc[CALIBRATED : CALIBRATED + ASKED]
    survival = hf.SurvivalSearch(guide)
    level: dict[str, Any] = {"at_least": HOLD, "confidence": CONFIDENCE, "share": SHARE, "seed": seed}
    c = hf.calibrate(survival, model, known, WANTED, tune, **level).c
    methods: dict[str, hf.Explainer] = {
        "smallest": hf.MinCost(), "survival": replace_c(survival, c), "history": hf.SurvivalSearch(mixed, c=max(c, USUAL))
    }  # fmt: skip
    out: Arrays = {"c": np.array(c), "people": np.array(len(people))}
    for name, method in methods.items():
        cfs = method.explain(model, people, WANTED)
        out |= {f"{name} cost": cfs.cost("l1").to_numpy(), f"{name} answered": cfs.answered}
        for ahead, bank_ in later.items():
            held = hf.audit(cfs, bank_, rule="class").held
            out[f"{name} held {ahead}"] = (held & cfs.answered).mean(0)
    return out


def jobs_of(data: Dataset, seeds: range) -> list[Job]:
    """All base years and seeds."""
    about = [ROWS, ASKED, CALIBRATED, GUIDE, CALIBRATION, JUDGES]
    return [(f"drift {y} {seed}", partial(cell, data, y, seed), about) for y in YEARS for seed in seeds]


def measure_drift(cells: Cells, seeds: range, digits: int) -> Figures:
    """All base years and seeds."""
    found = cells.together(jobs_of(load_table("sba_loan"), seeds))
    return {
        str(year): [
            {name: plain(np.asarray(v), digits) for name, v in found[f"drift {year} {seed}"].items()}
            for seed in seeds
        ]
        for year in YEARS
    }  # fmt: skip
