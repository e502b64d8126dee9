"""Plans written by hand: six people, and which of 100 judges accept what they were told."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import holdfast as hf
from holdfast.auditing.likeness import Likeness
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
# As the search leaves them. For a certificate 100 of 100 judges are enough, and 95 are not.
CODES = [
    Status.FOUND,
    Status.FOUND,
    Status.FRAGILE,
    Status.NOT_FOUND,
    Status.IMPOSSIBLE,
    Status.ALREADY_MET,
]
REASONS = [
    "",
    "",
    "only 61% of the retrained models that guided the search accept it",
    "out of reach",
    "no leaf",
    "",
]
ACCEPTED = [100, 95, 60, 0, 0, 100]
ALIKE = Likeness(0.4, 0.5, 0.9, 0.88, 0.1)
UNLIKE = Likeness(3.0, 0.5, 0.7, 0.9, 0.4, "Other settings may be the reason.")


def six_plans(
    judges: int = 100, *, hold: float = 0.95, confidence: float = 0.95, **more: Any
) -> hf.Plans:
    """As the judges see them: Ann's plan holds, those of Ben and Cyd do not.

    Costs in units of 100: 1 x 2 (weight) for Ann, 2 x 2 and another home (2) for Ben, 3 x 2 for
    Cyd.
    """
    before = pd.DataFrame({"money": [100.0] * 6, "home": ["rent"] * 6, "still": [0.5] * 6}, PEOPLE)
    after = before.assign(
        money=[200.0, 300, 400, 100, 100, 100], home=["rent", "own", *["rent"] * 4]
    )
    run = replace(RUN, method="SurvivalSearch", guided_by=("a", "b", "c"))
    cfs = made(SCHEMA, before, after, codes=CODES, reasons=REASONS, run=run)
    held = np.arange(100)[:, None] < np.array(ACCEPTED)
    audit = hf.Audit(cfs, held[:judges], np.array(["retrain"] * judges), "a bank")
    return hf.Plans.of(audit, hold, confidence, **more)
