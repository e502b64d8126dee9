"""Some of many things, chosen by position: a number, a slice, numbers, or a mask."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from holdfast.errors import SettingError

RowSelection = (
    int | slice | Sequence[int] | Sequence[bool] | npt.NDArray[np.generic] | pd.Series | Tensor
)


def positions(rows: RowSelection, n: int, what: str = "answers") -> npt.NDArray[np.int64]:
    """The numbers of the rows that are chosen of n; `what` names them in errors."""
    if isinstance(rows, slice):
        return np.arange(n)[rows].copy()  # torch does not take negative strides
    chosen = np.atleast_1d(np.asarray(rows))
    if chosen.dtype == bool and chosen.shape != (n,):
        raise SettingError(
            f"a mask has one value for each of the {n} {what}, got shape {chosen.shape}"
        )
    if chosen.ndim != 1 or (len(chosen) and chosen.dtype.kind not in "biu"):
        raise SettingError(
            f"{what} are chosen by position or by a mask, got {type(rows).__name__} {rows!r:.60}"
        )
    if chosen.dtype == bool:
        return np.flatnonzero(chosen)
    outside = chosen[(chosen < -n) | (chosen >= n)]
    if len(outside):
        raise IndexError(
            f"there is no {what.removesuffix('s')} {outside[0]}: there are {n}, counted from 0"
        )
    return chosen.astype(np.int64) % max(n, 1)
