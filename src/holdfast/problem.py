"""The problem that a search solves: the rows of n people, what they want, what they can reach, and
the time."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.types import Pullback
from holdfast.errors import SettingError
from holdfast.models.base import Model
from holdfast.schema.feasible import FeasibleSet
from holdfast.target import BoundTarget

# A search aims this far beyond the goal, so that rounding in the last digit cannot lose the answer.
SLACK = 1e-5


@dataclass
class TimeBudget:
    """The time a call may take, and the bar that shows its progress."""

    seconds: float | None  # None: as many as it takes
    bar: Progress
    start: float = field(default_factory=time.perf_counter)
    ran_out: bool = False

    def steps(self, count: int) -> Iterator[int]:
        """0 .. count - 1, cut short when the time is used up; at least one step is always made."""
        for i in range(count):
            if i and self.seconds is not None and self.over():
                return
            yield i
            if self.bar.shown:
                self.bar.step(1 / count)

    def over(self) -> bool:
        """Is the time used up?"""
        self.ran_out |= self.seconds is not None and time.perf_counter() - self.start > self.seconds
        return self.ran_out


@dataclass(frozen=True)
class Found:
    """What a search returns that can also prove that there is no answer, or no cheaper one."""

    rows: Tensor  # (n, d)
    infeasible: Tensor  # (n,) bool: nothing that the person can reach has the wanted outcome
    # (n,) what an answer costs at least, as weighted l1, if it has as few changes as possible where
    # the method counts these first; NaN: not known. None: the method proves nothing of the kind
    least: Tensor | None = None


@dataclass(frozen=True)
class SearchProblem:
    """The questions of n people to one model: what `Explainer.search` gets.

    Args:
        model: scores encoded rows: `model(x)` (n, k), `model.vjp(x)` with gradients.
        x: the people's encoded rows (n, d).
        goal: the wanted outcome of each row.
        feasible: what each person can reach, and the projection onto it.
        rng: random numbers that belong to each row.
        budget: the time there is; `problem.steps(count)` counts steps as long as there is some.

    >>> import holdfast as hf
    >>> from dataclasses import dataclass
    >>> @dataclass(repr=False)
    ... class Halfway(hf.Explainer):
    ...     needs_grad = False
    ...     def search(self, problem: hf.SearchProblem):
    ...         return problem.feasible.project(problem.x / 2)  # halfway to the mean of the data
    >>> moons = hf.datasets.moons(200)
    >>> model = hf.Model.of(lambda X: (X["x1"] > 0.5).to_numpy().astype(float), moons.schema)
    >>> len(Halfway().explain(model, moons.X))
    200
    """

    model: Model
    x: Tensor
    goal: BoundTarget
    feasible: FeasibleSet
    rng: RowRandom
    budget: TimeBudget

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Tensor) -> "SearchProblem":
        """The questions of some of the people: how finished rows leave the working batch."""
        some = self.x[rows], self.goal[rows], self.feasible[rows], self.rng[rows]
        return SearchProblem(self.model, *some, self.budget)

    def steps(self, count: int) -> Iterator[int]:
        """0 .. count - 1, cut short when the time is used up."""
        return self.budget.steps(count)

    @property
    def level(self) -> float:
        """The gap to exceed: the goal's own margin, and a little to spare."""
        return self.goal.margin + SLACK

    def met(self, z: Tensor) -> Tensor:
        """(n,) do reachable rows `z` get the wanted outcome, with a little to spare?"""
        return self.goal.met(self.model(z), SLACK)

    def judged(self, z: Tensor) -> Tensor:
        """(n,) the same by the model itself, asked about rows of the table: what `predict` says
        decides a tie."""
        return self.goal.met(self.model.score_frame(self.model.schema.decode(z), z))

    def met_exactly(self, z: Tensor) -> Tensor:
        """(n,) do rows `z` get the wanted outcome, if need be with nothing to spare?"""
        scores = self.model(z)
        met = self.goal.met(scores, SLACK)
        close = (~met & self.goal.met(scores, -SLACK)).nonzero().squeeze(1)
        return met.index_copy(0, close, self[close].judged(z[close])) if len(close) else met

    def gap(self, z: Tensor) -> Tensor:
        """(n,) by how much rows `z` exceed the goal, with a little to spare: met where it is above
        0."""
        return self.goal.gap(self.model(z)) - self.level

    def shortfall(self, z: Tensor, *, soft: bool | None = None) -> tuple[Tensor, Tensor, Pullback]:
        """By how much rows `z` miss the goal: u = level - gap (n, 1), met where u < 0.

        Returns u, the same for the gap to differentiate (it differs with more than two classes and
        `soft`, see `BoundTarget`), and the pullback of the latter: weights (n, 1) -> gradients (n,
        d).
        """
        return self.model.shortfall(z, self.goal, self.level, soft)

    def gap_and_gradient(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """By how much the goal is exceeded (met: > 0), and the gradient of that by the rows."""
        u, v, pull = self.shortfall(z)
        return -u.squeeze(1), pull(torch.full_like(v, -1.0))


def check_limits(seed: int, batch_size: int, time_budget: float | None) -> None:
    """Raise a `SettingError` if a call to `explain` cannot work so."""
    if not (isinstance(batch_size, int) and batch_size >= 1):
        raise SettingError(f"batch_size must be at least 1, got {batch_size!r}")
    if not (time_budget is None or time_budget > 0):
        raise SettingError(f"time_budget must be positive seconds, got {time_budget}")
    if not isinstance(seed, int):
        raise SettingError(f"seed must be an integer, got {seed!r}")
    if not -(1 << 63) <= seed < 1 << 63:
        raise SettingError(f"seed must fit into 64 bits, got {seed}")
