"""Gravitational: answers drawn towards data of the wanted class, not only across the boundary.

People who take the cheapest way gather at the boundary and move it when the model is trained on
them; one who ends among others of the wanted class does not. Neighbours are found once, around the
row as it was (the authors' code offers K random rows, or the nearest at every step). If a class has
fewer than K rows, all of them draw; if it has none, nothing does. What is shared with other
methods, such as when a row stops, is in `_guided.py`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast._core.checks import require_weight
from holdfast._core.rows import chunks, rows_per_chunk
from holdfast._core.types import Outcomes, Rows
from holdfast.distances import l1
from holdfast.errors import SettingError
from holdfast.methods._data import check_columns, classes_of, encoded, scores_of
from holdfast.methods._guided import GuidedMethod, GuidedWalk
from holdfast.models.base import Model
from holdfast.problem import SearchProblem

POOL = 1000  # rows of a class among which neighbours are looked for


@dataclass(eq=False, repr=False, kw_only=True)
class Gravitational(GuidedMethod):
    """Gradient descent drawn towards the nearest data rows of the wanted class.

        minimise over z    CE(M(z), t) + lam |z - x|_1 + external * mean_i |z - n_i|_1
        n_1 .. n_K         the data rows of class t nearest to x

    Args:
        external: weight of the mean distance to them.
        neighbors: K, how many there are.
        seed: which 1,000 rows are looked at in a class with more.
        lam, tau, lr, steps: see `GuidedMethod`.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> method = hf.Gravitational(external=0.05).fit(model, data.X, data.y)
    >>> len(method.explain(model, data.X.head(20), "yes"))
    20

    Reference:
        Altmeyer, Angela, Buszydlik, Dobiczek, van Deursen and Liem 2023, "Endogenous
        Macrodynamics in Algorithmic Recourse".
    """

    title = "gradient descent drawn to the nearest data rows of the wanted class"
    paper = "Altmeyer et al. 2023 (Gravitational)"
    when = "many people will follow the advice, and the model will be trained on them"
    needs_data = True
    advice = "lower external, raise steps or lr, or try NearestNeighbor"

    lam: float = 0.1
    external: float = 0.5
    neighbors: int = 50
    seed: int = 0

    def check(self, model: Model) -> None:
        super().check(model)
        require_weight("external", self.external, "distance")
        if not self.neighbors >= 1:
            raise SettingError(f"neighbors must be at least 1, got {self.neighbors}")
        check_columns(self.data_.shape[1], model)

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Remember up to 1,000 rows of each class y (by default the class the model predicts)."""
        x = encoded(X, model, "Gravitational")
        labels = classes_of(scores_of(x, model), model, y)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(self.seed))
        kept = torch.cat([order[labels[order] == k][:POOL] for k in range(len(model.classes))])
        self.data_ = x[kept]
        self.labels_ = labels[kept]

    def walk(self, problem: SearchProblem) -> "GravityWalk":
        return GravityWalk(self, problem)


class GravityWalk(GuidedWalk):
    """The walk with the slope of the mean distance to each row's neighbours."""

    def __init__(self, how: Gravitational, problem: SearchProblem) -> None:
        super().__init__(how, problem)
        self.weight = how.external
        data = how.data_.to(self.z.dtype)
        labels = how.labels_
        most = min(how.neighbors, len(data))
        # (K, n, d), inf where there are fewer
        self.near = self.z.new_full((most, *self.z.shape), math.inf)
        self.count = torch.zeros_like(self.z[:, :1])
        for label in range(problem.goal.k):
            rows = (self.label == label).nonzero()[:, 0]
            pool = data[labels == label]
            k = min(most, len(pool))
            self.count[rows] = k
            for part in chunks(rows, rows_per_chunk(len(pool), 1 << 22)) if k else ():
                nearest = l1.between(problem.x[part], pool).topk(k, 1, largest=False).indices
                self.near[:k, part] = pool[nearest.T]

    def only(self, rows: Tensor) -> None:
        super().only(rows)
        self.near = self.near[:, rows]
        self.count = self.count[rows]

    def by_row(self, grad: Tensor, p: Tensor) -> Tensor:
        signs = torch.zeros_like(p)
        for part in chunks(self.near, rows_per_chunk(p.numel(), 1 << 17)):
            signs += (p - part).sign_().sum(0)
        missing = len(self.near) - self.count  # each added -1
        return grad + self.weight * (signs + missing) / self.count.clamp_min(1)
