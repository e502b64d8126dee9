"""Outcomes as a model knows them."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from holdfast.errors import SettingError, did_you_mean
from holdfast.retraining.outcomes import outcomes


def known_outcomes(X: pd.DataFrame, y: Any, classes: Sequence[Any]) -> "pd.Series[Any]":
    """The outcomes (n,) of rows, or an error if one of them is missing or no class of the model."""
    y = outcomes(X, y)
    if len(y) != len(X):
        raise SettingError(f"need as many outcomes as rows, got {len(y)} for {len(X)} rows")
    unknown = [v for v in y.unique() if v not in classes]
    if unknown:
        raise SettingError(f"the model has no class {unknown[0]!r}; {did_you_mean(unknown[0], classes)}")
    return y
