"""Making a valid answer cheaper without losing it. Shared by the searches that end near the boundary."""

import torch
from torch import Tensor

from holdfast.problem import SearchProblem
from holdfast.schema.feasible import FeasibleSet


def cost_of(delta: Tensor, weight: Tensor, norm: int) -> Tensor:
    """(n, d) changes -> (n,) weighted l1, or squared l2."""
    return (delta.abs() if norm == 1 else delta.square()) @ weight


def tangent_step(
    reach: FeasibleSet, u: Tensor, gap: Tensor, grad: Tensor, radius: Tensor, norm: int, aim: float
) -> Tensor:
    """Cheapest row within `radius` of u whose gap, by the tangent plane at u, is `aim`.

    From the row p nearest to x inside the trust region every move costs w_j per unit and gains |g_j|. Norm 1:
    fill columns in the order of gain per cost until the gap is closed. Norm 2: move by tau g_j / w_j, cut off
    at the limits, with tau from bisection. One-hot columns, and what says that a number is missing, stay as in u.
    """
    frozen = reach.encoding.one_hot | reach.encoding.missing
    lo = torch.where(frozen, u, torch.maximum(reach.lo, u - radius))
    hi = torch.where(frozen, u, torch.minimum(reach.hi, u + radius))
    p = torch.minimum(torch.maximum(reach.x, lo), hi)
    weight = reach.encoding.weight.clamp_min(1e-6)
    need = aim - gap - ((p - u) * grad).sum(1)
    room = torch.where(grad > 0, hi - p, p - lo)
    if norm == 1:
        gain = room * grad.abs()
        order = (grad.abs() / weight).argsort(1, descending=True)
        sorted_gain = gain.gather(1, order)
        before = sorted_gain.cumsum(1) - sorted_gain
        share = ((need[:, None] - before) / sorted_gain.clamp_min(1e-12)).clamp(0, 1)
        share = torch.zeros_like(share).scatter_(1, order, share)
        return _round_away(reach, p + share * room * grad.sign())
    return p + shift(need, grad.abs(), weight, room) * grad.sign()


def shift(need: Tensor, gain: Tensor, weight: Tensor, room: Tensor, ridge: float = 0.0) -> Tensor:
    """(n, d) steps tau gain / weight, cut off at `room`, with tau such that steps . gain + ridge tau = need.

    The smallest weighted squares that close the gap `need` (n,), or, with a ridge, the optimum of the squared
    gap plus ridge times the weighted squares. Rows with nothing to close stay.
    """
    pace = gain / weight
    free = need / (ridge + (gain * pace).sum(1)).clamp_min(1e-12)  # tau if nothing is cut off
    stop = torch.where(room.isfinite(), room, 0.0) / pace.clamp_min(1e-12)
    short, long = free.clamp_min(0), torch.maximum(free, stop.amax(1))  # cutting off only ever asks for more
    for _ in range(30):
        tau = (short + long) / 2
        enough = (torch.minimum(tau[:, None] * pace, room) * gain).sum(1) + ridge * tau >= need
        short, long = torch.where(enough, short, tau), torch.where(enough, tau, long)
    step = torch.minimum(long[:, None] * pace, room)
    return torch.where((need > 0)[:, None], step, 0.0)


def _round_away(reach: FeasibleSet, u: Tensor) -> Tensor:
    """Steps on a grid rounded away from x: one step too many keeps the answer, one too few loses it."""
    step = reach.encoding.grid
    ticks = torch.ceil((u - reach.x).abs() / step.clamp_min(1e-12) - 1e-3)
    return torch.where(step > 0, reach.x + torch.sign(u - reach.x) * ticks * step, u)


def tighten(problem: SearchProblem, z: Tensor, norm: int, steps: int) -> Tensor:
    """Trust-region steps from valid rows z; a step counts only if the row stays valid and gets cheaper."""
    reach, x = problem.feasible, problem.x
    weight = reach.encoding.weight
    wide = reach.widths
    gap, grad = problem.gap_and_gradient(z)
    cost = cost_of(z - x, weight, norm)
    size = torch.full_like(gap, 0.2)
    for _ in problem.steps(steps):
        u = reach.project(tangent_step(reach, z, gap, grad, wide * size[:, None], norm, aim=1e-4))
        new_gap, new_grad = problem.gap_and_gradient(u)
        new_cost = cost_of(u - x, weight, norm)
        better = (new_gap > 0) & (new_cost < cost)
        z, grad = torch.where(better[:, None], u, z), torch.where(better[:, None], new_grad, grad)
        gap, cost = torch.where(better, new_gap, gap), torch.where(better, new_cost, cost)
        size = torch.where(better, size * 2, size / 2).clamp(1e-4, 1.0)
    return z


def swap(problem: SearchProblem, z: Tensor, norm: int, steps: int = 8) -> Tensor:
    """Try to do without each changed feature, dearest first, by asking the numbers to make up for it."""
    reach, x = problem.feasible, problem.x
    at = reach.encoding
    price = at.per_feature((z - x).abs() if norm == 1 else (z - x).square())
    order = price.argsort(1, descending=True)
    cost = cost_of(z - x, at.weight, norm)
    for i in range(int((price > 0).sum(1).max()) if len(z) else 0):
        if problem.budget.over():
            break
        chosen = order[:, i : i + 1]
        trying = price.gather(1, chosen) > 0
        without = reach.freeze(trying & (at.owner == chosen))
        u = without.project(z)
        for k in range(steps):
            gap, grad = problem.gap_and_gradient(u)
            better = trying.squeeze(1) & (gap > 0) & (cost_of(u - x, at.weight, norm) < cost)
            z = torch.where(better[:, None], u, z)
            cost = torch.where(better, cost_of(u - x, at.weight, norm), cost)
            u = without.project(tangent_step(without, u, gap, grad, reach.widths * 0.5**k, norm, aim=1e-3))
    return z


def revert(problem: SearchProblem, z: Tensor, norm: int = 2, most: int | None = None) -> Tensor:
    """Give features back their own value, smallest change first, wherever the row stays valid without it.

    Works for any model: it only asks whether rows are valid. `most` limits how many features are tried.
    """
    reach, x = problem.feasible, problem.x
    at = reach.encoding
    size = at.per_feature((z - x).abs() if norm == 1 else (z - x).square())  # (n, features)
    order = torch.where(size > 0, size, torch.inf).argsort(1)
    tries = int((size > 0).sum(1).max()) if len(z) else 0
    for i in range(min(tries, most or tries)):
        if problem.budget.over():
            break
        chosen = order[:, i]
        trying = size.gather(1, chosen[:, None]).squeeze(1) > 0
        back = trying[:, None] & (at.owner == chosen[:, None])
        candidate = reach.project(torch.where(back, x, z))
        valid = trying & problem.met(candidate)
        z = torch.where(valid[:, None], candidate, z)
    return z
