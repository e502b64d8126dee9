"""Make a valid answer cheaper without losing it. Shared by the searches that end near the
boundary."""

import torch
from torch import Tensor

from holdfast.distances import Distance, squared_l2
from holdfast.problem import SearchProblem
from holdfast.schema.feasible import FeasibleSet


def tangent_step(
    feasible: FeasibleSet,
    u: Tensor,
    gap: Tensor,
    grad: Tensor,
    radius: Tensor,
    distance: Distance,
    aim: float,
    *,
    whole: bool = False,
) -> Tensor:
    """Cheapest row within `radius` of u whose gap, by the tangent plane at u, is `aim`.

    From the row p nearest to x inside the trust region every move costs w_j per unit and gains
    |g_j|; the distance decides which moves are cheapest. One-hot columns, and marks of missing
    numbers, stay as in u.

    With `whole`, cost is counted from x, which is right near the optimum; to get across at all,
    counting the moves from p alone does better. For l1 both are the same.
    """
    frozen = feasible.encoding.one_hot | feasible.encoding.missing
    lo = torch.where(frozen, u, torch.maximum(feasible.lo, u - radius))
    hi = torch.where(frozen, u, torch.minimum(feasible.hi, u + radius))
    p = torch.minimum(torch.maximum(feasible.x, lo), hi)
    weight = feasible.encoding.weight.clamp_min(1e-6)
    need = aim - gap - ((p - u) * grad).sum(1)
    room = torch.where(grad > 0, hi - p, p - lo)
    begun = (p - feasible.x).abs() if whole else None
    moved = p + distance.least_step(need, grad.abs(), weight, room, begun) * grad.sign()
    return _round_away(feasible, moved) if distance.is_sparse else moved


def _round_away(feasible: FeasibleSet, u: Tensor) -> Tensor:
    """Round steps on a grid away from x: one step too many keeps the answer, one too few loses
    it."""
    step = feasible.encoding.grid
    ticks = torch.ceil((u - feasible.x).abs() / step.clamp_min(1e-12) - 1e-3)
    return torch.where(step > 0, feasible.x + torch.sign(u - feasible.x) * ticks * step, u)


def tighten(problem: SearchProblem, z: Tensor, distance: Distance, steps: int) -> Tensor:
    """Trust-region steps from valid rows z; a step counts only if the row stays valid and gets
    cheaper."""
    feasible = problem.feasible
    x = problem.x
    weight = feasible.encoding.weight
    widths = feasible.widths
    gap, grad = problem.gap_and_gradient(z)
    cost = distance.value(z - x, weight)
    size = torch.full_like(gap, 0.2)
    for _ in problem.steps(steps):
        radius = widths * size[:, None]
        u = feasible.project(
            tangent_step(feasible, z, gap, grad, radius, distance, aim=1e-4, whole=True)
        )
        new_gap, new_grad = problem.gap_and_gradient(u)
        new_cost = distance.value(u - x, weight)
        better = (new_gap > 0) & (new_cost < cost)
        z = torch.where(better[:, None], u, z)
        grad = torch.where(better[:, None], new_grad, grad)
        gap = torch.where(better, new_gap, gap)
        cost = torch.where(better, new_cost, cost)
        size = torch.where(better, size * 2, size / 2).clamp(1e-4, 1.0)
    return z


def swap(problem: SearchProblem, z: Tensor, distance: Distance, steps: int = 8) -> Tensor:
    """Try to do without each changed feature, the most expensive first, by asking the numbers to
    make up for it."""
    feasible = problem.feasible
    x = problem.x
    encoding = feasible.encoding
    price = encoding.per_feature(distance.terms(z - x))
    order = price.argsort(1, descending=True)
    cost = distance.value(z - x, encoding.weight)
    for i in range(int((price > 0).sum(1).max()) if len(z) else 0):
        if problem.budget.over():
            break
        chosen = order[:, i : i + 1]
        trying = price.gather(1, chosen) > 0
        without = feasible.freeze(trying & (encoding.owner == chosen))
        u = without.project(z)
        for k in range(steps):
            gap, grad = problem.gap_and_gradient(u)
            new_cost = distance.value(u - x, encoding.weight)
            better = trying.squeeze(1) & (gap > 0) & (new_cost < cost)
            z = torch.where(better[:, None], u, z)
            cost = torch.where(better, new_cost, cost)
            u = without.project(
                tangent_step(without, u, gap, grad, feasible.widths * 0.5**k, distance, aim=1e-3)
            )
    return z


def revert(problem: SearchProblem, z: Tensor, distance: Distance = squared_l2) -> Tensor:
    """Give features back their own value, smallest change first, wherever the row stays valid
    without it.

    Works for any model: it only asks whether rows are valid.
    """
    feasible = problem.feasible
    x = problem.x
    encoding = feasible.encoding
    size = encoding.per_feature(distance.terms(z - x))  # (n, features)
    order = torch.where(size > 0, size, torch.inf).argsort(1)
    for i in range(int((size > 0).sum(1).max()) if len(z) else 0):
        if problem.budget.over():
            break
        chosen = order[:, i]
        trying = size.gather(1, chosen[:, None]).squeeze(1) > 0
        back = trying[:, None] & (encoding.owner == chosen[:, None])
        candidate = feasible.project(torch.where(back, x, z))
        valid = trying & problem.met(candidate)
        z = torch.where(valid[:, None], candidate, z)
    return z
