"""What certainty costs three people, by hand."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

import holdfast as hf
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema
from holdfast.target import Status
from support.answers import made

SCHEMA = Schema((Feature("money", seen=(0, 10)),))
COSTS = [[1, 2, 3], [5, 4, 6], [1, 1, 1]]  # three plans of each person
CHOSEN_BY = [[80, 90, 100], [98, 95, 50], [100, 100, 100]]  # of 100 calibration models
JUDGED_BY = [[70, 91, 99], [95, 90, 60], [100, 100, 100]]  # of 100 audit models


def three_people(
    *,
    holds: Sequence[float] = (0.8, 0.9, 0.99),
    names: Sequence[str] = ("Ann", "Ben", "Cyd"),
    copies: int = 1,
) -> hf.Frontier:
    """Ann gets surer as she pays more; Ben's cheapest plan is accepted often, and none 99 times;
    for Cyd there was no plan, only attempts that the model refuses."""
    people = len(names) * copies
    index = pd.Index(list(names) * copies).repeat(3)
    before = pd.DataFrame({"money": np.zeros(3 * people)}, index)
    after = before.assign(money=np.tile(np.array(COSTS, dtype=float).ravel(), copies))
    codes = ([Status.FOUND] * 6 + [Status.NOT_FOUND] * 3) * copies
    source = np.arange(people).repeat(3).tolist()
    cfs = made(
        SCHEMA, before, after, codes=codes, reasons=["out of reach"] * len(codes), source=source
    )

    def audit(accepted: list[list[int]]) -> hf.Audit:
        held = np.arange(100)[:, None] < np.tile(np.array(accepted).ravel(), copies)
        return hf.Audit(cfs, held, np.array(["retrain"] * 100), "a bank")

    return hf.Frontier(audit(CHOSEN_BY), audit(JUDGED_BY), tuple(holds))
