"""Numbers pulled back towards the person's own, on models of which no thresholds are known."""

import torch
from torch import Tensor

from holdfast._core.rows import whole_blocks
from holdfast.distances import l1
from holdfast.problem import SearchProblem

HALVINGS = 12  # of a change


def pull_back(problem: SearchProblem, z: Tensor, halvings: int = HALVINGS) -> Tensor:
    """Rows that succeed, with each number as near to the person's own as bisection finds that it
    can be."""
    encoding = problem.feasible.encoding
    z = z.clone()
    for column in map(int, encoding.numbers[~encoding.missing[encoding.numbers]]):
        changed = (
            ((z[:, column] != problem.x[:, column]) & ~problem.feasible.outside[:, column])
            .nonzero()
            .squeeze(1)
        )
        if not len(changed):
            continue
        filled = whole_blocks(changed)
        nearer = _pull_back_one(problem[filled], z[filled], column, halvings)
        z[changed] = nearer[: len(changed)]
        if problem.budget.over():
            return z
    return z


def _pull_back_one(problem: SearchProblem, z: Tensor, column: int, halvings: int) -> Tensor:
    """The same of one column."""
    near = problem.x[:, column]
    far = z[:, column].clone()
    encoding = problem.feasible.encoding
    for i in range(halvings):
        middle = near if i == 0 else (near + far) / 2
        tried = z.clone()
        tried[:, column] = middle
        tried = problem.feasible.project(tried)
        cost = l1.value(tried - problem.x, encoding.weight)
        cost_now = l1.value(z - problem.x, encoding.weight)
        ok = problem.met(tried) & (cost <= cost_now)
        z = torch.where(ok[:, None], tried, z)
        far = torch.where(ok, middle, far)
        near = torch.where(ok, near, middle)
    return z
