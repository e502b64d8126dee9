"""Gradient descent on a loss plus a distance: Wachter, SCFE, Generic and VanillaCF are settings of one search.

    minimise over z    loss(gap(z)) + lam * distance(z, x)        z reachable from x

    loss      cross_entropy   softplus(margin - gap)                  Generic, Wachter, VanillaCF
              score           (gap - score)^2                         SCFE
              hinge           max(0, margin - gap)
    distance  norm = 1        sum_j w_j |z_j - x_j|
              norm = 2        sum_j w_j (z_j - x_j)^2
              norm = "mse"    the mean of the same

Wachter, Mittelstadt and Russell 2018; Pawelczyk et al. 2022 (SCFE). On a linear score w.x + b with norm = 2
SCFE ends at x + m w / (lam + |w|^2), m = score - gap(x); the form printed in "Trade-offs between Adversarial
Robustness and Actionable Explanations" has a factor lam too many.

relax = "round": gradients are taken at the nearest reachable row of z and applied to z (straight through), so that
whole numbers and categories change as soon as enough has been gathered.

relax = "softmax": z is minimised over through N(z), a softmax over the levels of each category and numbers as they are,
so the gradient has the factor dN/dz; the row is rounded afterwards. VanillaCF of "RoCourseNet" (Guo et al. 2023):

    minimise over z    softplus(-gap(N(z))) + 0.5 * mean_j (N(z)_j - x_j)^2        from z = x

Either way every row that is judged or kept is one a person can hand in.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from holdfast._core.adam import adam_step
from holdfast._core.rows import ROW_BLOCK
from holdfast.errors import require, untyped
from holdfast.explainer import Explainer
from holdfast.methods._tighten import shift
from holdfast.nn.relu_network import Pullback
from holdfast.problem import SearchProblem
from holdfast.schema.feasible import FeasibleSet

Loss = Literal["cross_entropy", "score", "hinge"]
_TO_THE_END: dict[str, Any] = {"decay": True, "restarts": 1, "keep": "last"}


@dataclass(eq=False, repr=False)
class Descent(Explainer):
    """Gradient descent on a loss plus a distance.

    Args:
        loss: what pulls towards the wanted class.
        norm: 1, 2 (squared) or "mse": what pulls back.
        lam: weight of the distance.
        score: the gap that `loss="score"` aims at.
        optimizer: "adam", "rmsprop", "sgd", or "newton" (Gauss-Newton, for loss="score" with norm=2: each step
            goes to the optimum for the tangent plane); the state belongs to each row alone.
        lr, steps: step size and number of steps.
        decay: the step size falls to zero over the steps.
        restarts: rows without an answer start again with `lam` halved, this many times in all.
        keep: "cheapest" answer on the way, "first" (a row then leaves the batch), or the "last" point.
        compile: let torch.compile fuse the elementwise part of a step; the first call then takes long.
        relax: "round" takes gradients at the nearest reachable row, "softmax" at mixtures of the levels a person may
            take. With the latter, judging rows on the way (any keep but "last") costs a second pass per step.
    """

    title: ClassVar[str] = "gradient descent on a loss plus a distance"
    paper: ClassVar[str] = "Wachter et al. 2018; Pawelczyk et al. 2022 (SCFE)"
    regression: ClassVar[bool] = True
    advice: ClassVar[str] = "raise steps or restarts, lower lam, or try NearestNeighbor"

    loss: Loss = "cross_entropy"
    norm: Literal[1, 2, "mse"] = 1
    lam: float = 0.1
    score: float = 1.0
    optimizer: Literal["adam", "rmsprop", "sgd", "newton"] = "adam"
    lr: float = 0.05
    steps: int = 500
    decay: bool = False
    restarts: int = 5
    keep: Literal["cheapest", "first", "last"] = "cheapest"
    compile: bool = False
    relax: Literal["round", "softmax"] = "round"

    @classmethod
    def wachter(cls, **settings: Any) -> "Descent":
        """Wachter et al.: the first point across the boundary, weight of the distance halved until found."""
        base: dict[str, Any] = {"norm": 1, "lam": 0.1, "lr": 0.01, "steps": 1000, "restarts": 10, "keep": "first"}
        return cls(**(base | settings))

    @classmethod
    def scfe(cls, **settings: Any) -> "Descent":
        """Squared score loss and squared distance, run to the end."""
        base: dict[str, Any] = _TO_THE_END | {
            "loss": "score",
            "norm": 2,
            "optimizer": "newton",
            "lr": 1.0,
            "steps": 100,
        }
        return cls(**(base | settings))

    @classmethod
    def generic(cls, **settings: Any) -> "Descent":
        """Cross-entropy and l1 by plain gradient descent until the class changes."""
        base: dict[str, Any] = {
            "optimizer": "sgd",
            "lam": 0.001,
            "lr": 0.1,
            "steps": 1000,
            "restarts": 1,
            "keep": "first",
        }
        return cls(**(base | settings))

    @classmethod
    def vanilla(cls, **settings: Any) -> "Descent":
        """VanillaCF: cross-entropy and half the mean square of a softmaxed row, RMSprop, the last point."""
        base: dict[str, Any] = {"norm": "mse", "lam": 0.5, "optimizer": "rmsprop", "lr": 0.001, "steps": 1000}
        base = _TO_THE_END | base | {"decay": False, "relax": "softmax"}
        return cls(**(base | settings))

    def check(self, model: object) -> None:
        require(self.loss in ("cross_entropy", "score", "hinge"), f"unknown loss {self.loss!r}")
        require(self.norm in (1, 2, "mse"), f"norm must be 1, 2 or 'mse', got {self.norm!r}")
        require(self.keep in ("cheapest", "first", "last"), f"unknown keep {self.keep!r}")
        require(self.optimizer in ("adam", "rmsprop", "sgd", "newton"), f"unknown optimizer {self.optimizer!r}")
        newton = self.optimizer != "newton" or (self.loss == "score" and self.norm == 2)
        require(newton, "optimizer='newton' is for loss='score' with norm=2")
        require(self.relax in ("round", "softmax"), f"relax must be 'round' or 'softmax', got {self.relax!r}")
        require(
            self.relax == "round" or self.optimizer != "newton",
            "relax='softmax' needs a gradient step: 'adam', 'rmsprop' or 'sgd'",
        )
        require(self.lam >= 0, f"lam must be 0 or more (below 0 it rewards distance), got {self.lam}")
        require(self.lr > 0, f"lr must be positive, got {self.lr}")
        require(self.steps >= 1 and self.restarts >= 1, "steps and restarts must be at least 1")

    def search(self, problem: SearchProblem) -> Tensor:
        answer, found = self._descend(problem, self.lam)
        for r in range(1, self.restarts):
            rest = (~found).nonzero().squeeze(1)
            if not len(rest) or problem.budget.over():
                break
            answer[rest], found[rest] = self._descend(problem[rest], self.lam / 2**r)
        return answer

    def _descend(self, problem: SearchProblem, lam: float) -> tuple[Tensor, Tensor]:
        """One run for all rows -> what is kept of each, and whether it has the wanted outcome."""
        if self.keep == "first":
            return until_met(problem, self._walk(problem, lam), self.steps)
        if self.keep == "last" and self.relax == "softmax":
            return self._unjudged(problem, lam)
        reach, walk = problem.feasible, self._walk(problem, lam)
        best = Cheapest(problem, self.norm) if self.keep == "cheapest" else None
        p = walk.z
        for t in problem.steps(self.steps + 1):
            p = walk.row(reach)
            u = walk.step(problem, p, t)
            if best:
                best.see(p, u)
        return best.done(p) if best else (p, problem.met(p))

    def _walk(self, problem: SearchProblem, lam: float) -> "Walk":
        return Walk(self, problem, lam) if self.relax == "round" else SoftWalk(self, problem, lam)

    def _unjudged(self, problem: SearchProblem, lam: float) -> tuple[Tensor, Tensor]:
        """Only the end is rounded: nothing on the way needs a reachable row."""
        walk = SoftWalk(self, problem, lam)
        for t in problem.steps(self.steps):
            walk.descend(problem, t)
        p = walk.row(problem.feasible)
        return p, problem.met(p)


def until_met(problem: SearchProblem, walk: "Walk", steps: int) -> tuple[Tensor, Tensor]:
    """The first point of each row's walk that is there (`step` below 0), the last one if none is, and whether it is.

    Rows that have stopped walk on unseen until they are half of the batch: to let them leave it one by one would cost
    as much as the steps themselves.
    """
    answer, found = problem.x.clone(), torch.zeros(len(problem), dtype=torch.bool)
    rows, on, p = torch.arange(len(problem)), torch.ones(len(problem), dtype=torch.bool), problem.x
    for t in problem.steps(steps + 1):
        p = walk.row(problem.feasible)
        stop = (on & (walk.step(problem, p, t).squeeze(1) < 0)).nonzero().squeeze(1)
        if not len(stop):
            continue
        answer[rows[stop]], found[rows[stop]], on[stop] = p[stop], True, False
        left = int(on.sum())
        if not left:
            break
        if 2 * left <= len(on) and len(on) > ROW_BLOCK:
            # A few that have stopped stay, so that no model has to pad at every step.
            stay = on.logical_not().argsort(stable=True)[: left + -left % ROW_BLOCK]
            rows, on, problem, p = rows[stay], on[stay], problem[stay], p[stay]
            walk.only(stay)
    answer[rows[on]] = p[on]
    return answer, found


class Walk:
    """Where all rows are, and the memory of the optimiser, one row each."""

    def __init__(self, how: Descent, problem: SearchProblem, lam: float) -> None:
        self.how, self.lam, self.z = how, lam, problem.feasible.clamp(problem.x)
        self.level, self.soft = problem.level, True if how.loss == "cross_entropy" else None
        # The tiny start of the second moment keeps 0 / 0 away, as an epsilon would.
        self.m, self.v = torch.zeros_like(self.z), torch.full_like(self.z, 1e-16)
        self.counts = torch.arange(1.0, how.steps + 2).unbind()  # of steps made, as the kernel wants them
        self.back = problem.feasible.weights * (
            lam if how.norm == 1 else 2 * lam if how.norm == 2 else 2 * lam / self.z.shape[1]
        )
        self.update = _compiled() if how.compile else _update

    def only(self, rows: Tensor) -> None:
        self.z, self.m, self.v, self.back = self.z[rows], self.m[rows], self.v[rows], self.back[rows]

    def row(self, reach: FeasibleSet) -> Tensor:
        """The reachable rows where the walk is."""
        return self.z if reach.is_box else reach.project(self.z)

    def step(self, problem: SearchProblem, p: Tensor, t: int) -> Tensor:
        """Move all rows once by the gradient at p; returns how far p is from the goal (below 0: met)."""
        u, v, pull = problem.model.shortfall(p, problem.goal, self.level, self.soft)
        if self.how.optimizer == "newton":
            lr = self._rate(t)
            self.z = problem.feasible.clamp(self.z + lr * (self._tangent_optimum(problem, p, v, pull) - p))
            return u
        self._move(self._gradient(problem, p, v, pull), t, problem.feasible.lo, problem.feasible.hi)
        return u

    def _rate(self, t: int) -> float:
        return self.how.lr * (1 - t / self.how.steps) if self.how.decay else self.how.lr

    def _gradient(self, problem: SearchProblem, p: Tensor, v: Tensor, pull: Pullback) -> Tensor:
        """Of loss and distance, by p."""
        how = self.how
        if how.loss == "cross_entropy":
            outer = torch.sigmoid(v)
        elif how.loss == "score":
            outer = 2 * (v + (how.score - self.level))
        else:
            outer = (v > 0).to(v.dtype)
        delta = p - problem.x
        # The slope of |u| at u = 0 is taken as 0: every search starts there.
        return torch.addcmul(pull(outer), torch.sign(delta) if how.norm == 1 else delta, self.back)

    def _move(self, grad: Tensor, t: int, lo: Tensor, hi: Tensor) -> None:
        """One step of the optimiser, and back between the limits."""
        how, lr = self.how, self._rate(t)
        if how.optimizer == "adam" and not how.compile:
            z = self.z.clone()
            adam_step([z], [grad], [self.m], [self.v], [self.counts[t]], lr=lr)
            self.z = torch.clamp(z, lo, hi)
            return
        if how.optimizer == "adam":
            lr *= math.sqrt(1 - 0.999 ** (t + 1)) / (1 - 0.9 ** (t + 1))  # both bias corrections
        rate: Any = torch.tensor(lr) if how.compile else lr  # a compiled step must not depend on a number
        self.z = self.update(self.z, grad, rate, self.m, self.v, lo, hi, how.optimizer)

    def _tangent_optimum(self, problem: SearchProblem, p: Tensor, v: Tensor, pull: Pullback) -> Tensor:
        """Gauss-Newton: the best row if the score were the tangent plane at p; bounds are kept exactly."""
        x, reach = problem.x, problem.feasible
        g = -pull(torch.ones_like(v))
        miss = self.how.score - (self.level - v.squeeze(1)) + (g * (p - x)).sum(1)  # what is to be gained from x
        up = (g * miss[:, None]) > 0
        room = torch.where(up, reach.hi - x, x - reach.lo)
        move = shift(miss.abs(), g.abs(), reach.weights.clamp_min(1e-6), room, ridge=self.lam)
        return x + torch.where(up, move, -move)


class SoftWalk(Walk):
    """The same through a softmax over the levels of each category.

    Levels that a person may not take have no part in it: what is fixed stays as it is. The logits have no limits, the
    softmax keeps their levels between 0 and 1; numbers stay in their intervals.
    """

    def __init__(self, how: Descent, problem: SearchProblem, lam: float) -> None:
        super().__init__(how, problem, lam)
        reach, at = problem.feasible, problem.feasible.encoding
        self.lo = torch.where(at.one_hot, -math.inf, reach.lo)
        self.hi = torch.where(at.one_hot, math.inf, reach.hi)
        shut = at.one_hot & (reach.hi <= 0)
        self.open = torch.where(shut, 0.0, torch.ones_like(self.z)) if shut.any() else None

    def only(self, rows: Tensor) -> None:
        super().only(rows)
        self.lo, self.hi = self.lo[rows], self.hi[rows]
        self.open = None if self.open is None else self.open[rows]

    def row(self, reach: FeasibleSet) -> Tensor:
        return reach.project(reach.encoding.softmax(self.z, self.open))

    def step(self, problem: SearchProblem, p: Tensor, t: int) -> Tensor:
        """Move all rows once by the gradient at the softmax; the verdict is that on p."""
        u, _, _ = problem.model.shortfall(p, problem.goal, self.level, self.soft)
        self.descend(problem, t)
        return u

    def descend(self, problem: SearchProblem, t: int) -> None:
        self._move(self.slope(problem), t, self.lo, self.hi)

    def slope(self, problem: SearchProblem) -> Tensor:
        """The gradient of loss and distance at N(z), by z."""
        at = problem.feasible.encoding
        p = at.softmax(self.z, self.open)
        _, v, pull = problem.model.shortfall(p, problem.goal, self.level, self.soft)
        return at.softmax_pull(p, self._gradient(problem, p, v, pull))


def _update(z: Tensor, g: Tensor, lr: Any, m: Tensor, v: Tensor, lo: Tensor, hi: Tensor, optimizer: str) -> Tensor:
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


class Cheapest:
    """The cheapest point with the wanted outcome that each row has passed.

    On small batches points are gathered and compared in blocks: comparing each one would cost as much as the
    step itself. On large ones the gathering would.
    """

    def __init__(self, problem: SearchProblem, norm: object) -> None:
        self.x, self.weight, self.norm = problem.x, problem.feasible.encoding.weight, norm
        self.kept, self.price = problem.x.clone(), problem.x.new_full((len(problem),), math.inf)
        self.points, self.shorts = list[Tensor](), list[Tensor]()
        self.block = 64 if problem.x.numel() < 4096 else 1

    def see(self, p: Tensor, u: Tensor) -> None:
        self.points.append(p)
        self.shorts.append(u)
        if len(self.points) == self.block:
            self._compare()

    def _compare(self) -> None:
        p, u = self.points[0], self.shorts[0]
        many = len(self.points) > 1
        if many:
            p, u = torch.stack(self.points), torch.stack(self.shorts)  # (block, n, d), (block, n, 1)
        delta = p - self.x
        price = (delta.abs_() if self.norm == 1 else delta.square_()) @ self.weight
        price.masked_fill_(u.squeeze(-1) >= 0, math.inf)
        if many:
            price, at = price.min(0)
            p = p[at, torch.arange(len(at))]
        rows = (price < self.price).nonzero().squeeze(1)
        self.kept.index_copy_(0, rows, p.index_select(0, rows))
        self.price = torch.minimum(price, self.price)
        self.points.clear()
        self.shorts.clear()

    def done(self, last: Tensor) -> tuple[Tensor, Tensor]:
        """What is kept of each row (the last attempt where nothing was found), and whether it was found."""
        if self.points:
            self._compare()
        found = self.price < math.inf
        return torch.where(found[:, None], self.kept, last), found
