"""Counterfactual images: one per pair of an image and a wanted class."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from holdfast.errors import SettingError, did_you_mean
from holdfast.geometry import row_norm
from holdfast.result import NORMS, Run
from holdfast.status import Status
from holdfast.target import Goal


@dataclass(frozen=True, eq=False, repr=False)
class ImageCounterfactuals:
    """Answers, pair by pair. Pairs without an answer stay, with the last attempt, their status and the reason."""

    x: Tensor  # (n, c, h, w) the images that were asked about, repeated for each wanted class
    x_cf: Tensor
    scores: Tensor  # (n, k) of `x_cf`, by the bare model
    goal: Goal
    codes: npt.NDArray[np.int64]  # (n,) Status
    reasons: list[str]
    source: npt.NDArray[np.int64]  # (n,) number of the image that is answered
    iterations: npt.NDArray[np.int64]  # (n,) steps of the search
    passes: int  # images that went forward and backward through the model
    classes: tuple[Any, ...]
    run: Run

    def __len__(self) -> int:
        return len(self.x)

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """(n,) pairs with an answer."""
        return self.codes == Status.FOUND

    @property
    def target(self) -> npt.NDArray[Any]:
        """(n,) the wanted classes."""
        return np.array(self.classes)[self.goal.label.numpy()]

    @property
    def confidence(self) -> "pd.Series[float]":
        """Probability of the wanted class that the model gives to each answer."""
        return pd.Series(self.goal.confidence(self.scores).numpy())

    def cost(self, norm: str = "l1", *, tolerance: float = 0.0) -> "pd.Series[float]":
        """How far each answer is from its image; missing where there is none.

        Args:
            norm: "l0" (number of values that change), "l1", "l2" or "linf".
            tolerance: changes up to it do not count.
        """
        if norm not in NORMS:
            raise SettingError(f"unknown cost {norm!r}; {did_you_mean(norm, NORMS)}")
        delta = (self.x_cf.double() - self.x.double()).flatten(1)
        value = row_norm(delta.masked_fill(delta.abs() <= tolerance, 0.0), NORMS[norm])
        return pd.Series(value.masked_fill(torch.tensor(self.codes == Status.NOT_FOUND), float("nan")).numpy())
