"""Names of types that many rooms use."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
AnyArray = np.ndarray[Any, Any]  # numbers, truth values or objects

Label = str | int | float | bool | np.generic  # a class
# one class per row
Labels = Sequence[Label] | npt.NDArray[np.generic] | pd.Series | pd.Index | Tensor
Outcomes = Sequence[Label] | npt.NDArray[np.generic] | pd.Series  # of rows of the past, one each
Rows = pd.DataFrame | Tensor  # of the table, or their encoding (n, d)

# (n, k) weights on the outputs of a function of rows -> (n, d) their gradient by the rows
Pullback = Callable[[Tensor], Tensor]
