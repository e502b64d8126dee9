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

Gradients are taken at the nearest reachable row of z and applied to z (straight through), so that whole
numbers and categories change as soon as enough has been gathered, and every row that is kept is one a person
can hand in.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from holdfast.explainer import SLACK, Explainer, Query, need
from holdfast.search.tighten import shift

Loss = Literal["cross_entropy", "score", "hinge"]
_TO_THE_END: dict[str, Any] = {"decay": True, "rounds": 1, "keep": "last"}


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
        rounds: rows without an answer start again with `lam` halved, this many times in all.
        keep: "cheapest" answer on the way, "first" (a row then leaves the batch), or the "last" point.
        compile: let torch.compile fuse the steps; the first call then takes long.
    """

    title: ClassVar[str] = "gradient descent on a loss plus a distance"
    paper: ClassVar[str] = "Wachter et al. 2018; Pawelczyk et al. 2022 (SCFE)"
    advice: ClassVar[str] = "raise steps or rounds, lower lam, or try NearestNeighbor"

    loss: Loss = "cross_entropy"
    norm: Literal[1, 2, "mse"] = 1
    lam: float = 0.1
    score: float = 1.0
    optimizer: Literal["adam", "rmsprop", "sgd", "newton"] = "adam"
    lr: float = 0.05
    steps: int = 500
    decay: bool = False
    rounds: int = 5
    keep: Literal["cheapest", "first", "last"] = "cheapest"
    compile: bool = False

    @classmethod
    def wachter(cls, **settings: Any) -> "Descent":
        """Wachter et al.: the first point across the boundary, weight of the distance halved until found."""
        base = {"norm": 1, "lam": 0.1, "lr": 0.01, "steps": 1000, "rounds": 10, "keep": "first"}
        return cls(**(base | settings))

    @classmethod
    def scfe(cls, **settings: Any) -> "Descent":
        """Squared score loss and squared distance, run to the end."""
        base = _TO_THE_END | {"loss": "score", "norm": 2, "optimizer": "newton", "lr": 1.0, "steps": 100}
        return cls(**(base | settings))

    @classmethod
    def generic(cls, **settings: Any) -> "Descent":
        """Cross-entropy and l1 by plain gradient descent until the class changes."""
        base = {"optimizer": "sgd", "lam": 0.001, "lr": 0.1, "steps": 1000, "rounds": 1, "keep": "first"}
        return cls(**(base | settings))

    @classmethod
    def vanilla(cls, **settings: Any) -> "Descent":
        """VanillaCF: cross-entropy and half the mean square, RMSprop, the last point."""
        base = {"norm": "mse", "lam": 0.5, "optimizer": "rmsprop", "lr": 0.001, "steps": 1000, "decay": False}
        base = _TO_THE_END | base
        return cls(**(base | settings))

    def check(self, model: object) -> None:
        need(self.loss in ("cross_entropy", "score", "hinge"), f"unknown loss {self.loss!r}")
        need(self.norm in (1, 2, "mse"), f"norm must be 1, 2 or 'mse', got {self.norm!r}")
        need(self.keep in ("cheapest", "first", "last"), f"unknown keep {self.keep!r}")
        need(self.optimizer in _OPTIMIZERS, f"unknown optimizer {self.optimizer!r}")
        newton = self.optimizer != "newton" or (self.loss == "score" and self.norm == 2)
        need(newton, "optimizer='newton' is for loss='score' with norm=2")
        need(self.lam >= 0, f"lam must be 0 or more (below 0 it rewards distance), got {self.lam}")
        need(self.lr > 0, f"lr must be positive, got {self.lr}")
        need(self.steps >= 1 and self.rounds >= 1, "steps and rounds must be at least 1")

    def search(self, query: Query) -> Tensor:
        answer, found = self._descend(query, self.lam)
        for r in range(1, self.rounds):
            rest = (~found).nonzero().squeeze(1)
            if not len(rest) or query.clock.over():
                break
            answer[rest], found[rest] = self._descend(query[rest], self.lam / 2**r)
        return answer

    def _descend(self, query: Query, lam: float) -> tuple[Tensor, Tensor]:
        """One run for all rows -> what is kept of each, and whether it has the wanted outcome."""
        kept = query.x.clone()
        best = query.x.new_full((len(query),), math.inf)  # price of what is kept
        rows = torch.arange(len(query))  # with keep="first", those still searching
        z, p, state = query.x.clone(), query.x, list[Tensor]()
        gradient = torch.compile(self._gradient) if self.compile else self._gradient
        step, box, level = _OPTIMIZERS[self.optimizer], query.reach.is_box, query.goal.margin + SLACK
        for t in query.steps(self.steps + 1):
            p = z if box and t else query.reach.project(z)
            gap, grad, delta = gradient(query, p, lam)
            if self.keep == "cheapest":
                price = torch.where(gap > level, _distance(delta, query.reach.layout.weight, self.norm), math.inf)
                kept = torch.where((price < best)[:, None], p, kept)
                best = torch.minimum(best, price)
            elif self.keep == "first":
                met = gap > level
                if met.any():
                    kept[rows[met]], best[rows[met]] = p[met], 0.0
                    on = (~met).nonzero().squeeze(1)
                    rows, query, z, p, grad = rows[on], query[on], z[on], p[on], grad[on]
                    state = [s[on] for s in state]
                    if not len(rows):
                        return kept, best < math.inf
            if t < self.steps:
                z = step(z, grad, self.lr * (1 - t / self.steps) if self.decay else self.lr, t + 1, state)
                z = query.reach.clamp(z)
        if self.keep == "last":
            return p, query.met(p)
        if self.keep == "first":
            kept[rows] = p
            return kept, best < math.inf
        found = best < math.inf
        return torch.where(found[:, None], kept, p), found  # a row without an answer shows its last attempt

    def _gradient(self, query: Query, p: Tensor, lam: float) -> tuple[Tensor, Tensor, Tensor]:
        """Gap, gradient of the objective, and the change so far, at reachable rows p."""
        goal, weight = query.goal, query.reach.weights
        scores, pull = query.model.vjp(p)
        gap, slope = goal.gap_and_slope(scores, soft=True if self.loss == "cross_entropy" else None)
        if self.optimizer == "newton":
            g, delta = pull(slope), p - query.x
            miss = self.score - gap + (g * delta).sum(1)  # what is left to gain at x, by the tangent plane at p
            up = (g * miss[:, None]) > 0
            room = torch.where(up, query.reach.hi - query.x, query.x - query.reach.lo)
            step = shift(miss.abs(), g.abs(), weight.clamp_min(1e-6), room, ridge=lam)
            return gap, delta - torch.where(up, step, -step), delta  # from p straight to that optimum
        if self.loss == "cross_entropy":
            outer = torch.sigmoid(gap - goal.margin).sub_(1)
        elif self.loss == "score":
            outer = 2 * (gap - self.score)
        else:
            outer = -(gap < goal.margin + SLACK).to(gap.dtype)
        if goal.k > 2 and self.loss == "cross_entropy" and not goal.soft:
            gap = goal.gap(scores)  # the verdict is about the best rival, the loss about all of them
        grad = pull(outer[:, None] * slope)
        delta = p - query.x
        if self.norm == 1:
            # The slope of |u| at u = 0 is taken as 0: every search starts there.
            return gap, torch.addcmul(grad, torch.sign(delta), weight, value=lam), delta
        scale = 2 * lam if self.norm == 2 else 2 * lam / p.shape[1]
        return gap, torch.addcmul(grad, delta, weight, value=scale), delta


def _distance(delta: Tensor, weight: Tensor, norm: object) -> Tensor:
    return delta.abs() @ weight if norm == 1 else delta.square() @ weight


# Optimisers: the step leaves z alone and returns the new point; moments live in `state`, one row each.


def _adam(z: Tensor, g: Tensor, lr: float, t: int, state: list[Tensor]) -> Tensor:
    if not state:
        state += [torch.zeros_like(z), torch.zeros_like(z)]
    m, v = state
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    root = math.sqrt(1 - 0.999**t)  # both bias corrections go into the step size and epsilon
    return torch.addcdiv(z, m, v.sqrt().add_(1e-8 * root), value=-lr * root / (1 - 0.9**t))


def _rmsprop(z: Tensor, g: Tensor, lr: float, t: int, state: list[Tensor]) -> Tensor:
    if not state:
        state.append(torch.zeros_like(z))
    state[0].mul_(0.99).addcmul_(g, g, value=0.01)
    return torch.addcdiv(z, g, state[0].sqrt().add_(1e-8), value=-lr)


def _sgd(z: Tensor, g: Tensor, lr: float, t: int, state: list[Tensor]) -> Tensor:
    return torch.sub(z, g, alpha=lr)


_OPTIMIZERS = {"adam": _adam, "rmsprop": _rmsprop, "sgd": _sgd, "newton": _sgd}
