"""What a search is asked: the rows of n people, what they want, what they can reach, and the time there is."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast.models.base import Model
from holdfast.nn.relu_network import Pullback
from holdfast.schema.feasible import FeasibleSet
from holdfast.target import BoundTarget

Rows = pd.DataFrame | Tensor  # of the table, or their encoding (n, d)
Outcomes = Sequence[Any] | npt.NDArray[Any] | pd.Series  # one per row

# A search aims this far beyond the goal, so that rounding in the last digit cannot lose the answer.
SLACK = 1e-5


@dataclass
class TimeBudget:
    """The time a call may take, and the bar that shows how far it is."""

    budget: float | None
    bar: Progress
    start: float = field(default_factory=time.perf_counter)
    ran_out: bool = False

    def steps(self, count: int) -> Iterator[int]:
        """0 .. count - 1, cut short when the time is used up; at least one step is always made."""
        for i in range(count):
            if i and self.budget is not None and self.over():
                return
            yield i
            if self.bar.shown:
                self.bar.step(1 / count)

    def over(self) -> bool:
        self.ran_out |= self.budget is not None and time.perf_counter() - self.start > self.budget
        return self.ran_out


@dataclass(frozen=True)
class Found:
    """What a search returns that can also prove that there is no answer."""

    rows: Tensor  # (n, d)
    infeasible: Tensor  # (n,) bool: nothing that the person can reach has the wanted outcome


@dataclass(frozen=True)
class SearchProblem:
    """The questions of n people to one model."""

    model: Model
    x: Tensor  # (n, d)
    goal: BoundTarget
    feasible: FeasibleSet
    rng: RowRandom
    budget: TimeBudget

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Tensor) -> "SearchProblem":
        """The questions of some of the people: how finished rows leave the working batch."""
        return SearchProblem(
            self.model, self.x[rows], self.goal[rows], self.feasible[rows], self.rng[rows], self.budget
        )

    def steps(self, count: int) -> Iterator[int]:
        return self.budget.steps(count)

    @property
    def level(self) -> float:
        """The gap to exceed: the goal's own margin, and a little to spare."""
        return self.goal.margin + SLACK

    def met(self, z: Tensor) -> Tensor:
        """(n,) do reachable rows `z` get the wanted outcome, with a little to spare?"""
        return self.goal.met(self.model(z), SLACK)

    def shortfall(self, z: Tensor, *, soft: bool | None = None) -> tuple[Tensor, Tensor, Pullback]:
        """By how much rows `z` miss the goal: u = level - gap (n, 1), met where u < 0.

        Returns u, the same for the gap to differentiate (it differs with more than two classes and `soft`, see
        `Goal`), and the pullback of the latter: weights (n, 1) -> gradients (n, d).
        """
        return self.model.shortfall(z, self.goal, self.level, soft)

    def gap_and_gradient(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """By how much the goal is exceeded (met: > 0), and the gradient of that by the rows."""
        u, v, pull = self.shortfall(z)
        return -u.squeeze(1), pull(torch.full_like(v, -1.0))
