"""Answers written by hand."""

import numpy as np
import pandas as pd
import torch

from holdfast.counterfactuals import Counterfactuals, Run
from holdfast.schema.schema import Schema
from holdfast.target import BoundTarget, Status

RUN = Run(
    "MinCost",
    "MinCost(norm=2)",
    "good",
    7,
    1.5,
    "m0del",
    "5chema",
    "0.1.0",
    "2025-01-01T00:00:00+00:00",
)


def made(
    schema: Schema,
    before: pd.DataFrame,
    after: pd.DataFrame,
    *,
    codes: list[Status] | None = None,
    reasons: list[str] | None = None,
    source: list[int] | None = None,
    scores: list[float] | None = None,
    classes: int = 2,
    run: Run = RUN,
) -> Counterfactuals:
    """Answers written by hand; the wanted class is the last, the others score 0."""
    n = len(after)
    lead = torch.zeros(n, classes, dtype=torch.float64)
    lead[:, -1] = torch.tensor(scores or [1.0] * n, dtype=torch.float64)
    return Counterfactuals(
        before=before,
        after=after,
        x=schema.encode(before, torch.float64),
        x_cf=schema.encode(after, torch.float64),
        scores=lead,
        goal=BoundTarget(torch.full((n,), classes - 1), 1.0, 0.0, False, classes),
        status_codes=np.array(codes or [Status.FOUND] * n, dtype=np.int64),
        reasons=reasons or [""] * n,
        source=np.array(source if source is not None else range(n), dtype=np.int64),
        schema=schema,
        classes=tuple(range(classes)),
        run=run,
    )
