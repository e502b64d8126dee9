"""Walks of many rows at once, by steps against a gradient; see `descent.py`."""

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from holdfast._core.adam import adam_step
from holdfast._core.cheapest_steps import least_squares_step
from holdfast._core.checks import untyped
from holdfast._core.rows import ROW_BLOCK
from holdfast._core.types import Pullback
from holdfast.distances import penalty_of
from holdfast.problem import SearchProblem
from holdfast.schema.feasible import FeasibleSet

if TYPE_CHECKING:
    from holdfast.methods.descent import Descent


class Walk:
    """Where all rows are, and the optimiser's memory of each; `how` has loss, distance and step
    size."""

    def __init__(self, how: "Descent", problem: SearchProblem, lam: float) -> None:
        self.how = how
        self.lam = lam
        self.z = problem.feasible.clamp(problem.x)
        self.level = problem.level
        self.soft = True if how.loss == "cross_entropy" else None
        # The tiny start of the second moment keeps 0 / 0 away, as an epsilon would.
        self.m = torch.zeros_like(self.z)
        self.v = torch.full_like(self.z, 1e-16)
        # number of steps made, as the kernel wants it
        self.counts = torch.arange(1.0, how.steps + 2).unbind()
        self.distance = penalty_of(how.norm)
        self.slope_weight = self.distance.slope_weight(problem.feasible.weights, lam)
        self.update = _compiled() if how.compile else _update

    def only(self, rows: Tensor) -> None:
        """Go on with some of the rows."""
        self.z = self.z[rows]
        self.m = self.m[rows]
        self.v = self.v[rows]
        self.slope_weight = self.slope_weight[rows]

    def row(self, feasible: FeasibleSet) -> Tensor:
        """The reachable rows where the walk is."""
        return self.z if feasible.is_box else feasible.project(self.z)

    def step(self, problem: SearchProblem, p: Tensor, t: int) -> Tensor:
        """Move all rows once by the gradient at p; returns how far p is from the goal (below 0:
        met)."""
        u, v, pull = problem.model.shortfall(p, problem.goal, self.level, self.soft)
        if self.how.optimizer == "newton":
            lr = self._rate(t)
            self.z = problem.feasible.clamp(
                self.z + lr * (self._tangent_optimum(problem, p, v, pull) - p)
            )
            return u
        self._move(self._gradient(problem, p, v, pull), t, problem.feasible.lo, problem.feasible.hi)
        return u

    def _rate(self, t: int) -> float:
        return self.how.lr * (1 - t / self.how.steps) if self.how.decay else self.how.lr

    def _gradient(self, problem: SearchProblem, p: Tensor, v: Tensor, pull: Pullback) -> Tensor:
        """The gradient of loss and distance by p."""
        how = self.how
        if how.loss == "cross_entropy":
            outer = torch.sigmoid(v)
        elif how.loss == "score":
            outer = 2 * (v + (how.score - self.level))
        else:
            outer = (v > 0).to(v.dtype)
        return self.distance.add_slope(pull(outer), p - problem.x, self.slope_weight)

    def _move(self, grad: Tensor, t: int, lo: Tensor, hi: Tensor) -> None:
        """One step of the optimiser, and back between the limits."""
        how = self.how
        lr = self._rate(t)
        if how.optimizer == "adam" and not how.compile:
            z = self.z.clone()
            adam_step([z], [grad], [self.m], [self.v], [self.counts[t]], lr=lr)
            self.z = torch.clamp(z, lo, hi)
            return
        if how.optimizer == "adam":
            lr *= math.sqrt(1 - 0.999 ** (t + 1)) / (1 - 0.9 ** (t + 1))  # both bias corrections
        # a compiled step must not depend on a number
        rate: Any = torch.tensor(lr) if how.compile else lr
        self.z = self.update(self.z, grad, rate, self.m, self.v, lo, hi, how.optimizer)

    def _tangent_optimum(
        self, problem: SearchProblem, p: Tensor, v: Tensor, pull: Pullback
    ) -> Tensor:
        """Gauss-Newton: the best row if the score were the tangent plane at p; bounds are kept
        exactly."""
        x = problem.x
        feasible = problem.feasible
        g = -pull(torch.ones_like(v))
        # what is to be gained, seen from x
        need = self.how.score - (self.level - v.squeeze(1)) + (g * (p - x)).sum(1)
        up = (g * need[:, None]) > 0
        room = torch.where(up, feasible.hi - x, x - feasible.lo)
        move = least_squares_step(
            need.abs(), g.abs(), feasible.weights.clamp_min(1e-6), room, ridge=self.lam
        )
        return x + torch.where(up, move, -move)


class SoftWalk(Walk):
    """The same through a softmax over the levels of each category.

    Levels that a person may not take are left out, so what is fixed stays as it is. The logits have
    no limits, as the softmax keeps their levels between 0 and 1; numbers stay in their intervals.
    """

    def __init__(self, how: "Descent", problem: SearchProblem, lam: float) -> None:
        super().__init__(how, problem, lam)
        one_hot = problem.feasible.encoding.one_hot
        feasible = problem.feasible
        self.lo = torch.where(one_hot, -math.inf, feasible.lo)
        self.hi = torch.where(one_hot, math.inf, feasible.hi)
        shut = one_hot & (feasible.hi <= 0)
        self.open = torch.where(shut, 0.0, torch.ones_like(self.z)) if shut.any() else None

    def only(self, rows: Tensor) -> None:
        super().only(rows)
        self.lo = self.lo[rows]
        self.hi = self.hi[rows]
        self.open = None if self.open is None else self.open[rows]

    def row(self, feasible: FeasibleSet) -> Tensor:
        return feasible.project(feasible.encoding.softmax(self.z, self.open))

    def step(self, problem: SearchProblem, p: Tensor, t: int) -> Tensor:
        """Move all rows once by the gradient at the softmax; the verdict is on p."""
        u, _, _ = problem.model.shortfall(p, problem.goal, self.level, self.soft)
        self.descend(problem, t)
        return u

    def descend(self, problem: SearchProblem, t: int) -> None:
        """Move all rows once, without a verdict."""
        self._move(self.slope(problem), t, self.lo, self.hi)

    def slope(self, problem: SearchProblem) -> Tensor:
        """The gradient of loss and distance at N(z), by z."""
        encoding = problem.feasible.encoding
        p = encoding.softmax(self.z, self.open)
        _, v, pull = problem.model.shortfall(p, problem.goal, self.level, self.soft)
        return encoding.softmax_pull(p, self._gradient(problem, p, v, pull))


def until_met(problem: SearchProblem, walk: Walk, steps: int) -> tuple[Tensor, Tensor]:
    """The first point of each row's walk that has arrived (`step` below 0), else the last one, and
    whether it has.

    Rows that have stopped walk on unseen until they are half of the batch: taking them out one by
    one would cost as much as the steps themselves.
    """
    answer = problem.x.clone()
    found = torch.zeros(len(problem), dtype=torch.bool)
    rows = torch.arange(len(problem))
    on = torch.ones(len(problem), dtype=torch.bool)
    p = problem.x
    for t in problem.steps(steps + 1):
        p = walk.row(problem.feasible)
        stop = (on & (walk.step(problem, p, t).squeeze(1) < 0)).nonzero().squeeze(1)
        if not len(stop):
            continue
        answer[rows[stop]] = p[stop]
        found[rows[stop]] = True
        on[stop] = False
        left = int(on.sum())
        if not left:
            break
        if 2 * left <= len(on) and len(on) > ROW_BLOCK:
            # A few that have stopped stay, so that no model has to pad at every step.
            stay = on.logical_not().argsort(stable=True)[: left + -left % ROW_BLOCK]
            rows = rows[stay]
            on = on[stay]
            problem = problem[stay]
            p = p[stay]
            walk.only(stay)
    answer[rows[on]] = p[on]
    return answer, found


def _update(
    z: Tensor, g: Tensor, lr: Any, m: Tensor, v: Tensor, lo: Tensor, hi: Tensor, optimizer: str
) -> Tensor:
    """The optimiser's step (moments m and v in place), and back into the limits."""
    if optimizer == "adam":
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        g = m / v.sqrt()
    elif optimizer == "rmsprop":
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        g = g / v.sqrt()
    return torch.clamp(z - lr * g, lo, hi)


@cache
def _compiled() -> Any:
    return untyped("torch").compile(_update, dynamic=True)
