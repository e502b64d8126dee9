"""Accelerated proximal steps (FISTA), with the weight of the loss found by bisection: what elastic
nets share.

    for each weight c:   v_0 = z_0 = x
        z_{k+1} = step(v_k)             a gradient step on c * loss, then a proximal one
        v_{k+1} = z_{k+1} + k / (k + 3) (z_{k+1} - z_k)

A row that had an answer on the way tries a smaller c next, half-way to the largest without one.
Others try one 10 times as large, or half-way to the smallest with one. Beck and Teboulle 2009;
Carlini and Wagner 2017 (bisection).
"""

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from holdfast.problem import SearchProblem

Step = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


def bisected(x: Tensor, c: Tensor, rounds: Iterable[Iterable[int]], step: Step) -> None:
    """Steps from rows or images x (n, ...), again and again with another weight, at first c (n,).

    Each of `rounds` has the numbers k of the steps with one weight; step(v, c, k) gives the next
    point from the extrapolated one, and which rows (n,) have an answer there.
    """
    low = x.new_zeros(len(x))
    high = x.new_full((len(x),), math.inf)
    for steps in rounds:
        z = x
        v = z
        hit = torch.zeros(len(x), dtype=torch.bool)
        for k in steps:
            new, met = step(v, c, k)
            hit |= met
            v = new + k / (k + 3) * (new - z)
            z = new
        high = torch.where(hit, torch.minimum(high, c), high)
        low = torch.where(hit, low, torch.maximum(low, c))
        c = torch.where(high < math.inf, (low + high) / 2, c * 10)


def rounds_of(problem: SearchProblem, bisections: int, steps: int) -> Iterator[Iterable[int]]:
    """This many weights with steps 0 .. steps - 1 each, within the time budget."""
    for i in range(bisections):
        if i and problem.budget.over():
            return
        yield problem.steps(steps)


def lead_and_gradient(problem: SearchProblem, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (n, k) of rows v, the lead of the wanted outcome in probability (n,), and its gradient
    (n, d)."""
    scores, pull = problem.model.vjp(v)
    u = torch.softmax(scores, 1)
    lead, slope = problem.goal.lead_and_slope(u, soft=False)
    return scores, lead, pull(u * (slope - (u * slope).sum(1, keepdim=True)))
