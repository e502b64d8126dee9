"""Plans written by hand: six people, and which of 100 models accept what they were told."""

from dataclasses import replace

import numpy as np
import pandas as pd

import holdfast as hf
from holdfast.evaluation.calibration import Calibration
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema
from holdfast.target import Status
from support.answers import RUN, made

SCHEMA = Schema(
    (
        Feature("money", seen=(0, 1000), scale=100.0, unit="€", weight=2.0),
        Feature("home", "category", levels=("rent", "own")),
        Feature("still", seen=(0, 1)),
    )
)
PEOPLE = pd.Index(["Ann", "Ben", "Cyd", "Dee", "Eve", "Fay"])
# Found and certified; found, and 95 of 100 are too few for a certificate; fragile; not found; impossible; already met.
CODES = [
    Status.FOUND,
    Status.FOUND,
    Status.FRAGILE,
    Status.NOT_FOUND,
    Status.IMPOSSIBLE,
    Status.ALREADY_MET,
]
REASONS = ["", "", "only 61% of the retrained models that guided the search accept it", "out of reach", "no leaf", ""]
ACCEPTED = [100, 95, 60, 0, 0, 100]
CALIBRATION = Calibration(
    2.5, 0.95, 0.95, 0.9, 50, 100, pd.DataFrame({"found": [1.0], "certified": [0.92], "cost": [2.0]}, index=[2.5])
)


def six_plans(models: int = 100, **changed: object) -> hf.Plans:
    """Costs in units of 100: 1 x 2 (weight) for Ann, 2 x 2 and another home (2) for Ben, 3 x 2 for Cyd."""
    before = pd.DataFrame({"money": [100.0] * 6, "home": ["rent"] * 6, "still": [0.5] * 6}, PEOPLE)
    after = before.assign(money=[200.0, 300, 400, 100, 100, 100], home=["rent", "own", *["rent"] * 4])
    run = replace(RUN, method="SurvivalSearch", guided_by=("a", "b", "c"))
    cfs = made(SCHEMA, before, after, codes=CODES, reasons=REASONS, run=run)
    held = np.arange(100)[:, None] < np.array(ACCEPTED)
    audit = hf.Audit(cfs, held[:models], np.array(["retrain"] * models), "a bank")
    return hf.Plans(audit, **{"calibration": CALIBRATION, **changed})
