"""Nearest neighbour: the person takes over what they can from the nearest data row that then succeeds.

For each data row t of the wanted class the candidate is the reachable point nearest to t: the person's own
fixed values, everything else as near to t as bounds, directions and rules allow. Candidates are tried in the
order of their distance to the person, so the first that succeeds is the nearest, and a row comes back without
an answer only when no data row gives one. No gradients: any model will do.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast._core.rows import chunks
from holdfast.errors import require, untyped
from holdfast.explainer import Explainer
from holdfast.methods._tighten import cost_of
from holdfast.models.base import Model
from holdfast.problem import Outcomes, Rows, SearchProblem

BLOCK = 64  # candidates tried at once for each row
CELLS = 1 << 24  # numbers held at once while distances are computed


@dataclass(eq=False, repr=False)
class NearestNeighbor(Explainer):
    """The nearest data row of the wanted class, as far as the person can reach it.

    Args:
        norm: 1 or 2: the distance that counts.
        n_counterfactuals: how many different answers per row; a row with fewer repeats its last one.
    """

    title: ClassVar[str] = "nearest data row of the wanted class, any model"
    paper: ClassVar[str] = "nearest-neighbour counterfactuals; compare NICE, Brughmans et al. 2023"
    regression: ClassVar[bool] = True
    needs_grad: ClassVar[bool] = False
    needs_data: ClassVar[bool] = True
    advice: ClassVar[str] = "no data row leads to one from here: give more data, or free more columns"

    norm: Literal[1, 2] = 1
    n_counterfactuals: int = 1

    def check(self, model: object) -> None:
        require(self.norm in (1, 2), f"norm must be 1 or 2, got {self.norm!r}")
        require(self.n_counterfactuals >= 1, f"n_counterfactuals must be at least 1, got {self.n_counterfactuals}")

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Remember the data, encoded, without repeats."""
        x = X.to(model.dtype) if isinstance(X, Tensor) else model.schema.encode(X, model.dtype)
        require(len(x) > 0, "NearestNeighbor needs at least one data row")
        self.data_: Tensor = untyped("torch").unique(x, dim=0)
        with model.eval_mode():
            self.scores_ = torch.cat([model(part) for part in chunks(self.data_, 1 << 16)])

    def search(self, problem: SearchProblem) -> Tensor:
        d = problem.x.shape[1]
        out = problem.feasible.project(problem.x)[:, None].repeat(1, self.n_counterfactuals, 1)
        data, scores = self.data_.to(problem.x.dtype), self.scores_
        for label in range(problem.goal.k):
            rows = (problem.goal.label == label).nonzero().squeeze(1)
            if not len(rows):
                continue
            fits = problem.goal[rows[:1]][torch.zeros(len(data), dtype=torch.int64)].met(scores)
            if fits.any():
                for part in chunks(rows, max(1, CELLS // (int(fits.sum()) * d))):
                    out[part] = self._nearest(problem[part], data[fits])
        return out

    def _nearest(self, problem: SearchProblem, data: Tensor) -> Tensor:
        """(n, answers, d): candidates in the order of distance, tried in blocks until enough succeed."""
        n, d, m = *problem.x.shape, len(data)
        wide = problem.feasible.repeat(m)
        candidates = wide.project(data.repeat(n, 1))  # (n m, d)
        cost = cost_of(candidates - wide.x, wide.encoding.weight, self.norm).reshape(n, m)
        order = cost.argsort(1)
        candidates = candidates.reshape(n, m, d)
        out = problem.feasible.project(problem.x)[:, None].repeat(1, self.n_counterfactuals, 1)
        have, rows = torch.zeros(n, dtype=torch.int64), torch.arange(n)
        for block in (order[:, i : i + BLOCK] for i in range(0, m, BLOCK)):
            tried = candidates[rows[:, None], block[rows]]  # (active, block, d)
            many = problem[rows.repeat_interleave(tried.shape[1])]
            met = many.met(tried.flatten(0, 1)).reshape(len(rows), -1)
            rank = have[rows, None] + met.cumsum(1) - 1  # the place of each success in its row's answers
            take = met & (rank < self.n_counterfactuals)
            at, which = take.nonzero(as_tuple=True)
            place = rank[at, which]
            out[rows[at], place] = tried[at, which]
            # Places not filled yet repeat the latest answer.
            for k in range(1, self.n_counterfactuals):
                late = have[rows] + met.sum(1) <= k
                got = late & (have[rows] + met.sum(1) > 0)
                out[rows[got], k] = out[rows[got], k - 1]
            have[rows] += met.sum(1)
            rows = rows[have[rows] < self.n_counterfactuals]
            if not len(rows) or problem.budget.over():
                break
        return out
