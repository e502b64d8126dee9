"""The cheapest row with the wanted outcome that the search has passed for each person."""

import math

import torch
from torch import Tensor

from holdfast.distances import Distance
from holdfast.problem import SearchProblem


class BestSoFar:
    """The cheapest valid row for each person, or the nearest miss; the distance gives columns
    the weights (d,), by default those of the schema."""

    def __init__(
        self, problem: SearchProblem, distance: Distance, weight: Tensor | None = None
    ) -> None:
        self.problem = problem
        self.distance = distance
        self.x = problem.x
        self.weight = problem.feasible.encoding.weight if weight is None else weight
        self.z = problem.feasible.project(problem.x)
        self.cost = problem.x.new_full((len(problem),), math.inf)
        self.miss = problem.x.new_full((len(problem),), -math.inf)

    @property
    def found(self) -> Tensor:
        """(n,) people with a valid row."""
        return self.cost < math.inf

    def offer(self, p: Tensor, gap: Tensor) -> Tensor:
        """Keep rows p where they are valid and cheaper, or the nearest miss; returns which are
        valid (gap > 0)."""
        met = gap > 0
        cost = torch.where(met, self.distance.value(p - self.x, self.weight), math.inf)
        take = torch.where(met, cost < self.cost, ~self.found & (gap > self.miss))
        self.z = torch.where(take[:, None], p, self.z)
        self.cost = torch.minimum(self.cost, cost)
        self.miss = torch.maximum(self.miss, gap)
        return met

    def judge(self, p: Tensor) -> Tensor:
        """The same for rows p whose gap is not known yet."""
        return self.offer(p, self.problem.gap(p))

    def take(self, other: "BestSoFar", rows: Tensor) -> None:
        """Keep what another search found for `rows` where that is better."""
        cost = other.cost[rows]
        miss = other.miss[rows]
        better = torch.where(other.found[rows], cost < self.cost, ~self.found & (miss > self.miss))
        self.z = torch.where(better[:, None], other.z[rows], self.z)
        self.cost = torch.minimum(self.cost, cost)
        self.miss = torch.maximum(self.miss, miss)

    def put(self, rows: Tensor, other: "BestSoFar") -> None:
        """Take over what another search found for some rows, the first ones it has."""
        n = len(rows)
        self.z[rows] = other.z[:n]
        self.cost[rows] = other.cost[:n]
        self.miss[rows] = other.miss[:n]


class BestOfWalk(BestSoFar):
    """The same for a walk of many small steps, with its end where nothing was found.

    On small batches points are gathered and compared in blocks: comparing each one would cost as
    much as the step itself. On large ones the gathering would.
    """

    def __init__(
        self, problem: SearchProblem, distance: Distance, weight: Tensor | None = None
    ) -> None:
        super().__init__(problem, distance, weight)
        self.points = list[Tensor]()
        self.shortfalls = list[Tensor]()
        self.block = 64 if problem.x.numel() < 4096 else 1

    def see(self, p: Tensor, shortfall: Tensor) -> None:
        """Rows p (n, d) of the walk, and by how much they miss the goal (n, 1): met below 0."""
        self.points.append(p)
        self.shortfalls.append(shortfall)
        if len(self.points) == self.block:
            self._compare()

    def _compare(self) -> None:
        p = self.points[0]
        shortfall = self.shortfalls[0]
        many = len(self.points) > 1
        if many:
            # (block, n, d), (block, n, 1)
            p = torch.stack(self.points)
            shortfall = torch.stack(self.shortfalls)
        cost = self.distance.value(p - self.x, self.weight)
        cost.masked_fill_(shortfall.squeeze(-1) >= 0, math.inf)
        if many:
            cost, step = cost.min(0)
            p = p[step, torch.arange(len(step))]
        rows = (cost < self.cost).nonzero().squeeze(1)
        self.z.index_copy_(0, rows, p.index_select(0, rows))
        self.cost = torch.minimum(cost, self.cost)
        self.points.clear()
        self.shortfalls.clear()

    def done(self, last: Tensor) -> tuple[Tensor, Tensor]:
        """What is kept for each row (the last attempt if nothing was found), and whether it is an
        answer."""
        if self.points:
            self._compare()
        return torch.where(self.found[:, None], self.z, last), self.found
