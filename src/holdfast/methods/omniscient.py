"""Omniscient: a random data row that the model gives the wanted outcome. A control, not advice.

The control of "Counterfactual Training" (Altmeyer et al. 2025): as plausible as rows can be, and
with no thought for cost. There d itself is the answer; here a person keeps what they cannot change,
and the model says whether the result still has the outcome. With more `draws`, rows that lost it
try again. No gradients: any model will do.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.errors import SettingError
from holdfast.methods._data import DataMethod, have_outcome
from holdfast.models.base import Model
from holdfast.problem import SearchProblem


@dataclass(eq=False, repr=False)
class Omniscient(DataMethod):
    """A random data row with the wanted outcome, as far as the person can reach it.

        answer = the reachable row nearest to d
        d drawn from { data rows with the wanted outcome }

    Args:
        draws: the most data rows tried.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> cfs = hf.Omniscient().fit(model, data.X).explain(model, data.X.head(20), "yes")
    >>> bool((model.predict(cfs.to_frame()) == "yes").all())
    True

    Reference:
        Altmeyer et al. 2025, "Counterfactual Training".

    Paper: altmeyer2025 Generator Omni.
    """

    title = "a random data row of the wanted class: a control, any model"
    paper = "Altmeyer et al. 2025 (Omniscient)"
    when = "a comparison needs a control: plausible rows, found without any thought for cost"
    cost = "up to draws forward passes"
    regression = True
    advice = "raise draws, or try NearestNeighbor"

    draws: int = 1

    def check(self, model: Model) -> None:
        if not self.draws >= 1:
            raise SettingError(f"draws must be at least 1, got {self.draws}")
        super().check(model)

    def search(self, problem: SearchProblem) -> Tensor:
        data = self.data_.to(problem.x.dtype)
        label = problem.goal.label
        # (k, m)
        fits = torch.stack([have_outcome(problem, k, self.scores_) for k in range(problem.goal.k)])
        # the rows for each label, one label after the other
        size = fits.sum(1)
        pool = fits.nonzero()[:, 1]
        start = size.cumsum(0) - size
        answer = problem.feasible.project(problem.x)
        rows = (size[label] > 0).nonzero().squeeze(1)
        for draw in problem.steps(self.draws):
            if not len(rows):
                break
            part = problem[rows]
            k = label[rows]
            u = part.rng.uniform(draw=draw, dtype=torch.float64)
            answer[rows] = part.feasible.project(data[pool[start[k] + (u * size[k]).long()]])
            rows = rows[~part.met(answer[rows])]
        return answer
