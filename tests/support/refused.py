"""What every method that needs data refuses."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import holdfast as hf


def refuses(cls: type[Any], model: hf.Model, x: Tensor, wrong: Mapping[str, Any]) -> None:
    """Settings that cannot work are named, and so are data without rows and models of other
    columns.

    Args:
        cls: a method.
        model: of 4 encoded columns.
        x: rows for it (n, 4).
        wrong: settings, each wrong by itself.
    """
    for name, value in wrong.items():
        with pytest.raises(hf.HoldfastError, match=name):
            cls(**{name: value}).fit(model, x).explain(model, x, 1)
    with pytest.raises(hf.HoldfastError, match="at least one data row"):
        cls().fit(model, x[:0])
    other = hf.Model.of(nn.Linear(3, 1), hf.Schema.box(3))
    with pytest.raises(hf.HoldfastError, match=r"4 columns, the model takes 3"):
        cls().fit(model, x).explain(other, x[:, :3], np.int64(1))
