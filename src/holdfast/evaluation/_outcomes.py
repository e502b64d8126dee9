"""Outcomes as a model knows them."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from holdfast._core.checks import did_you_mean
from holdfast.errors import SettingError
from holdfast.retraining.outcomes import outcomes


def known_outcomes(X: pd.DataFrame, y: Any, classes: Sequence[Any] | None) -> "pd.Series[Any]":
    """The outcomes (n,) of rows, or an error if one is missing or is not a class of the model, if
    it has classes."""
    y = outcomes(X, y)
    if len(y) != len(X):
        raise SettingError(f"need as many outcomes as rows, got {len(y)} for {len(X)} rows")
    unknown = [] if classes is None else [v for v in y.unique() if v not in classes]
    if unknown:
        raise SettingError(
            f"the model has no class {unknown[0]!r}; {did_you_mean(unknown[0], classes or ())}"
        )
    return y
