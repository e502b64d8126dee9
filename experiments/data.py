"""Tables as experiments take them."""

from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from holdfast import datasets
from holdfast.datasets import Dataset
from holdfast.schema.schema import Schema


@dataclass(frozen=True)
class Split:
    """Rows to learn from and rows to ask about."""

    X: pd.DataFrame
    y: "pd.Series[Any]"
    test_X: pd.DataFrame
    test_y: "pd.Series[Any]"
    schema: Schema

    @property
    def width(self) -> int:
        return self.X.shape[1]


def load_table(name: str, **settings: Any) -> Dataset:
    """A dataset by name, which must be a table."""
    return cast(Dataset, datasets.load(name, **settings))
