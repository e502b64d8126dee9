"""Four answers whose metrics can be worked out by hand."""

from dataclasses import replace

import pandas as pd
import torch

import holdfast as hf
from holdfast.counterfactuals import Counterfactuals, Run
from holdfast.target import Status
from support.answers import made

SCHEMA = hf.Schema(
    (
        hf.Feature("money", center=100.0, scale=50.0, weight=2.0),
        hf.Feature("years", "integer", scale=2.0),
        hf.Feature("home", "category", levels=("rent", "own"), weight=3.0),
    )
)
BEFORE = pd.DataFrame(
    {
        "money": [100.0, 200.0, 50.0, 80.0],
        "years": [4, 2, 6, 1],
        "home": ["rent", "own", "rent", "own"],
    }
)
AFTER = pd.DataFrame(
    {
        "money": [200.0, 200.0, 50.0, 80.0],
        "years": [4, 8, 6, 1],
        "home": ["own", "own", "rent", "own"],
    }
)


def four_answers() -> Counterfactuals:
    """Row 0: money +2 encoded and another home; row 1: years +3 encoded; row 2 not found; row 3
    already met."""
    scores = torch.tensor([[0.0, 2.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]])
    run = Run("Test", "Test()", "yes", 0, 0.5, "m", "s", "0", "now")
    codes = [Status.FOUND, Status.FOUND, Status.NOT_FOUND, Status.ALREADY_MET]
    answers = made(SCHEMA, BEFORE, AFTER, codes=codes, reasons=["", "", "no", "met"], run=run)
    return replace(answers, scores=scores, classes=("no", "yes"))
