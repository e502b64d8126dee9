"""Nearest neighbour: the person takes over what they can from the nearest data row that then
succeeds.

For each data row t of the wanted class the candidate is the reachable point nearest to t: the
person's own fixed values, everything else as near to t as bounds, directions and rules allow.
Candidates are tried in the order of their distance to the person, so the first that succeeds is the
nearest, and a row comes back without an answer only when no data row gives one. No gradients: any
model will do.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast._core.rows import chunks, rows_per_chunk
from holdfast.distances import Distance, Norm, penalty_of
from holdfast.errors import SettingError
from holdfast.methods._data import DataMethod
from holdfast.models.base import Model
from holdfast.problem import SearchProblem

BLOCK = 64  # candidates tried at once for each row


@dataclass(eq=False, repr=False)
class NearestNeighbor(DataMethod):
    """The nearest data row of the wanted class, as far as the person can reach it.

        minimise over data rows t    |z_t - x|        z_t: the reachable row nearest to t
        subject to                   gap(z_t) >= margin

    Args:
        norm: 1, 2, a name such as "linf", or a `Distance`: the distance that counts.
        n_counterfactuals: how many different answers per row; a row with fewer repeats its last
            one.

    >>> import holdfast as hf
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.Model.of(LogisticRegression().fit(data.X, data.y), data.schema)
    >>> cfs = hf.NearestNeighbor().fit(model, data.X).explain(model, data.X.head(20), "yes")
    >>> bool((model.predict(cfs.to_frame()) == "yes").all())
    True

    Reference:
        Compare Brughmans, Leyman and Martens 2023, "NICE: an Algorithm for Nearest Instance
        Counterfactual Explanations".
    """

    title = "nearest data row of the wanted class, any model"
    paper = "nearest-neighbour counterfactuals; compare NICE, Brughmans et al. 2023"
    when = "any model, and an answer wherever the data have one; a row much like real ones"
    cost = "one forward pass per data row when fitted, then blocks of 64 per row until one succeeds"
    regression = True
    keeps_repeats = False
    advice = "no data row leads to one from here: give more data, or free more columns"

    norm: Norm | Distance = 1
    n_counterfactuals: int = 1

    def check(self, model: Model) -> None:
        super().check(model)
        penalty_of(self.norm)
        if not self.n_counterfactuals >= 1:
            raise SettingError(
                f"n_counterfactuals must be at least 1, got {self.n_counterfactuals}"
            )

    def search(self, problem: SearchProblem) -> Tensor:
        out = problem.feasible.project(problem.x)[:, None].repeat(1, self.n_counterfactuals, 1)
        for people, data in self.data_by_label(problem):
            for part in chunks(people, rows_per_chunk(data.numel(), 1 << 24)):
                out[part] = self._nearest(problem[part], data)
        return out

    def _nearest(self, problem: SearchProblem, data: Tensor) -> Tensor:
        """(n, answers, d): candidates in the order of distance, tried in blocks until enough
        succeed."""
        n, d, m = *problem.x.shape, len(data)
        feasible = problem.feasible.repeat(m)
        candidates = feasible.project(data.repeat(n, 1))  # (n m, d)
        cost = (
            penalty_of(self.norm)
            .value(candidates - feasible.x, feasible.encoding.weight)
            .reshape(n, m)
        )
        order = cost.argsort(1)
        candidates = candidates.reshape(n, m, d)
        out = problem.feasible.project(problem.x)[:, None].repeat(1, self.n_counterfactuals, 1)
        have = torch.zeros(n, dtype=torch.int64)
        rows = torch.arange(n)
        for block in (order[:, i : i + BLOCK] for i in range(0, m, BLOCK)):
            tried = candidates[rows[:, None], block[rows]]  # (active, block, d)
            many = problem[rows.repeat_interleave(tried.shape[1])]
            met = many.met(tried.flatten(0, 1)).reshape(len(rows), -1)
            # the place of each success in its row's answers
            rank = have[rows, None] + met.cumsum(1) - 1
            take = met & (rank < self.n_counterfactuals)
            row, which = take.nonzero(as_tuple=True)
            out[rows[row], rank[row, which]] = tried[row, which]
            have[rows] += met.sum(1)
            # Places not filled yet repeat the latest answer.
            for k in range(1, self.n_counterfactuals):
                repeats = rows[(have[rows] <= k) & (have[rows] > 0)]
                out[repeats, k] = out[repeats, k - 1]
            rows = rows[have[rows] < self.n_counterfactuals]
            if not len(rows) or problem.budget.over():
                break
        return out
