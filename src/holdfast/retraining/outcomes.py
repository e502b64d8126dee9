"""Outcomes to learn from: a column beside the rows, its classes, and their numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.types import Label, Outcomes
from holdfast.errors import SettingError

ClassNames = Sequence[Label] | npt.NDArray[Any]  # in the order of the scores


def outcomes(X: pd.DataFrame, y: Outcomes) -> "pd.Series[Any]":
    """The outcomes as a column beside the rows, matched by position; the same index in another
    order is an error, as it means that rows and outcomes do not belong together."""
    if not isinstance(y, pd.Series):
        values = np.asarray(y)
        if values.ndim != 1:
            raise SettingError(f"outcomes must be one per row, got shape {values.shape}")
        return pd.Series(values, index=X.index if len(values) == len(X) else None)
    a = X.index
    b = y.index
    if len(a) == len(b) and not a.equals(b) and sorted(map(str, a)) == sorted(map(str, b)):
        raise SettingError(
            "rows and outcomes have the same index in another order; align them first"
        )
    return y


def class_names(X: pd.DataFrame, y: "pd.Series[Any]", classes: ClassNames | None) -> list[Any]:
    """The classes in the order of the scores; None sorts what is in y."""
    if len(X) != len(y) or not len(X):
        raise SettingError(
            f"need as many outcomes as rows and at least one, got {len(y)} for {len(X)} rows"
        )
    if bool(y.isna().any()):
        raise SettingError(f"{int(y.isna().sum())} outcomes are missing; leave those rows out")
    seen = [plain(v) for v in y.unique()]
    names = [plain(v) for v in (sorted(seen) if classes is None else classes)]
    unknown = [v for v in seen if v not in names]
    if unknown or len(set(names)) < max(2, len(names)):
        raise SettingError(
            f"outcomes {unknown or names} do not make at least two known classes {names}"
        )
    return names


def class_numbers(y: "pd.Series[Any]", names: Sequence[Any]) -> Tensor:
    """(n,) the place of each outcome among the classes."""
    place = {name: i for i, name in enumerate(names)}
    return torch.tensor([place[v] for v in y])


def numbers(X: pd.DataFrame, y: "pd.Series[Any]") -> Tensor:
    """(n,) the outcomes of a regression: finite numbers."""
    if len(X) != len(y) or not len(X):
        raise SettingError(
            f"need as many outcomes as rows and at least one, got {len(y)} for {len(X)} rows"
        )
    values = pd.to_numeric(y, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise SettingError(
            f"outcomes of a regression must be numbers, and {bad} are not; leave those rows out"
        )
    return torch.tensor(values)


def as_named(y: "pd.Series[Any]", own: Sequence[Any], names: Sequence[Any]) -> "pd.Series[Any]":
    """Outcomes as a model names them: its own classes under the names it was
    given."""
    seen = {plain(v) for v in y.dropna().unique()}
    by_name = {plain(v): name for v, name in zip(own, names, strict=True)}
    return y.map(by_name) if not seen <= set(names) and seen <= set(by_name) else y


def plain(value: Any) -> Any:
    """A number of Python's own for one of NumPy's."""
    return value.item() if hasattr(value, "item") else value
