"""What the installed versions can do: the lowest that pyproject.toml allows lack some settings."""

import inspect
from collections.abc import Callable
from typing import Any

import pandas as pd
from sklearn._loss._loss import CyHalfBinomialLoss
from sklearn.preprocessing import MaxAbsScaler

# how messages name a column of strings
STRINGS = str(pd.Series(["text"]).dtype)
# Before scikit-learn 1.9 this class names a module that is not there, and no file can hold it.
FILES_HOLD_HISTOGRAMS = CyHalfBinomialLoss.__module__ != "_loss"


def supported(maker: Callable[..., Any], **settings: Any) -> dict[str, Any]:
    """Those of the settings that this version takes."""
    taken = inspect.signature(maker).parameters
    return {name: value for name, value in settings.items() if name in taken}


MAX_ABS_CLIPS = bool(supported(MaxAbsScaler, clip=True))
