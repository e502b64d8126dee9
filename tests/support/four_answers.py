"""Four answers whose metrics can be worked out by hand."""

import numpy as np
import pandas as pd
import torch

import holdfast as hf
from holdfast.counterfactuals import Counterfactuals, Run
from holdfast.target import BoundTarget, Status

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
    codes = np.array([Status.FOUND, Status.FOUND, Status.NOT_FOUND, Status.ALREADY_MET])
    goal = BoundTarget(torch.ones(4, dtype=torch.int64), 1.0, 0.0, False, 2)
    x = SCHEMA.encode(BEFORE)
    z = SCHEMA.encode(AFTER)
    return Counterfactuals(
        before=BEFORE,
        after=AFTER,
        x=x,
        x_cf=z,
        scores=scores,
        goal=goal,
        status_codes=codes,
        reasons=["", "", "no", "met"],
        source=np.arange(4),
        schema=SCHEMA,
        classes=("no", "yes"),
        run=run,
    )
