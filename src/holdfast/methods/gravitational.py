"""Gravitational and ClaPROAR: answers that also pay for what they cost everybody else.

    minimise over z    CE(M(z), t) + lam |z - x|_1 + external * cost(z, t)

    Gravitational    cost = mean_i |z - n_i|_1    n_1 .. n_K: the data rows of class t nearest to x
    ClaPROAR         cost = CE(M(z), t)           the loss that the new row brings to a model that is trained on it

Altmeyer, Angela, Buszydlik, Dobiczek, van Deursen and Liem 2023, "Endogenous Macrodynamics in Algorithmic Recourse":
people who take the cheapest way gather at the boundary and move it. The stop, and what is shared with other methods, is
in `search/guided.py`. Neighbours are found once, around the row as it was (the authors' code offers K random rows, or
the nearest at every step); with few in a class all of them draw, with none no one does.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast._core.rows import chunks
from holdfast.errors import require
from holdfast.methods._guided import GuidedMethod, GuidedWalk, classes_of, encoded, scores_of
from holdfast.models.base import Model
from holdfast.problem import Outcomes, Rows, SearchProblem

CELLS = 1 << 22  # distances held at once
BLOCK = 1 << 17  # numbers of neighbours looked at together: what stays in the cache is faster
POOL = 1000  # rows of a class among which neighbours are looked for


@dataclass(eq=False, repr=False, kw_only=True)
class Gravitational(GuidedMethod):
    """Gradient descent drawn towards the nearest data rows of the wanted class.

    Args:
        external: weight of the mean distance to them.
        neighbors: K, how many they are.
        seed: which 1,000 rows of a class with more are looked at.
        lam, tau, lr, steps: see `GuidedMethod`.
    """

    title: ClassVar[str] = "gradient descent drawn to the nearest data rows of the wanted class"
    paper: ClassVar[str] = "Altmeyer et al. 2023 (Gravitational)"
    needs_data: ClassVar[bool] = True
    advice: ClassVar[str] = "lower external, raise steps or lr, or try NearestNeighbor"

    lam: float = 0.1
    external: float = 0.5
    neighbors: int = 50
    seed: int = 0

    def check(self, model: Model) -> None:
        super().check(model)
        require(self.external >= 0, f"external must be 0 or more (below 0 it rewards distance), got {self.external}")
        require(self.neighbors >= 1, f"neighbors must be at least 1, got {self.neighbors}")
        columns, width = self.data_.shape[1], model.schema.width
        require(columns == width, f"fitted on rows of {columns} columns, the model takes {width}; call .fit again")

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Remember up to 1,000 rows of each class y (left out: those that the model says)."""
        x = encoded(X, model, "Gravitational")
        labels = classes_of(scores_of(x, model), model, y)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(self.seed))
        kept = torch.cat([order[labels[order] == k][:POOL] for k in range(len(model.classes))])
        self.data_, self.labels_ = x[kept], labels[kept]

    def walk(self, problem: SearchProblem) -> "GravityWalk":
        return GravityWalk(self, problem)


class GravityWalk(GuidedWalk):
    """The walk with the slope of the mean distance to each row's neighbours."""

    def __init__(self, how: Gravitational, problem: SearchProblem) -> None:
        super().__init__(how, problem)
        self.weight = how.external
        data, labels = how.data_.to(self.z.dtype), how.labels_
        most = min(how.neighbors, len(data))
        self.near = self.z.new_full((most, *self.z.shape), math.inf)  # (K, n, d), inf where there are fewer
        self.count = torch.zeros_like(self.z[:, :1])
        for label in range(problem.goal.k):
            rows, pool = (self.label == label).nonzero()[:, 0], data[labels == label]
            k = min(most, len(pool))
            self.count[rows] = k
            for part in chunks(rows, CELLS // max(len(pool), 1) + 1) if k else ():
                nearest = torch.cdist(problem.x[part], pool, p=1.0).topk(k, 1, largest=False).indices
                self.near[:k, part] = pool[nearest.T]

    def only(self, rows: Tensor) -> None:
        super().only(rows)
        self.near, self.count = self.near[:, rows], self.count[rows]

    def by_row(self, grad: Tensor, p: Tensor) -> Tensor:
        signs = torch.zeros_like(p)
        for part in chunks(self.near, BLOCK // max(p.numel(), 1) + 1):
            signs += (p - part).sign_().sum(0)
        missing = len(self.near) - self.count  # each added -1
        return grad + self.weight * (signs + missing) / self.count.clamp_min(1)
