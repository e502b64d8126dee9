"""Prototype-guided search: the elastic net, drawn towards a typical row of another class.

With data rows in place of an encoder, as "Consistent Counterfactuals for Deep Models" (Black et al.
2022) runs it. Data rows belong to the class that the model predicts for them. Steps are those of
EAD (`_fista.py`): accelerated, each followed by the shrinkage S_beta around x, with threshold beta
whatever the step size, and c per row by bisection. The answer is the iterate with the least beta l1
+ l2^2 among those with the wanted outcome.

A class with fewer than k rows gives its farthest one. If no allowed class has a row, theta is 0,
which leaves the elastic net.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast._core.rows import chunks, rows_per_chunk
from holdfast.distances import Distance, l1, squared_l2
from holdfast.errors import SettingError
from holdfast.methods._best import BestSoFar
from holdfast.methods._data import DataMethod
from holdfast.methods._fista import bisected, lead_and_gradient, rounds_of
from holdfast.models.base import Model
from holdfast.problem import SLACK, SearchProblem
from holdfast.target import BoundTarget

CLIP = 1000.0  # gradients are cut off here, per column


@dataclass(eq=False, repr=False)
class Prototype(DataMethod):
    """The elastic net, drawn towards the k-th nearest data row of a wanted class.

        minimise over z    c max(0, kappa - lead(z)) + beta |z - x|_1 + |z - x|_2^2
                           + theta |z - proto|_2^2
        lead = probability of the wanted class minus the next best one
        proto: of each allowed class the k-th nearest data row to x; the nearest of these

    Args:
        k: which neighbour is the prototype.
        theta: how strongly it draws.
        beta: weight of the l1 distance, and threshold of the shrinkage.
        kappa: by how much probability the wanted class should lead.
        c: the first weight of the loss; bisection goes on from there.
        steps, bisections: steps for each weight, and how many weights.
        lr: first step size; it falls with the root of the steps left.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> method = hf.Prototype(k=5, steps=30, bisections=3).fit(model, data.X)
    >>> len(method.explain(model, data.X.head(20), "yes"))
    20

    Reference:
        Van Looveren and Klaise 2021, "Interpretable Counterfactual Explanations Guided by
        Prototypes".

    Paper: black2022 Baseline Looveren.
    """

    title = "elastic net drawn towards a typical row of the wanted class"
    paper = "Van Looveren & Klaise 2021; Black et al. 2022"
    when = "answers should be near typical rows of the wanted class, and change few columns"
    cost = "bisections x steps gradient passes, and as many forward passes"
    needs_grad = True
    advice = "raise steps or bisections, or try NearestNeighbor"

    k: int = 20
    theta: float = 100.0
    beta: float = 0.1
    kappa: float = 0.0
    c: float = 10.0
    steps: int = 100
    bisections: int = 10
    lr: float = 0.01

    def check(self, model: Model) -> None:
        if not self.k >= 1:
            raise SettingError(f"k must be at least 1, got {self.k}")
        if not (self.steps >= 1 and self.bisections >= 1):
            raise SettingError("steps and bisections must be at least 1")
        if not (self.lr > 0 and self.c > 0):
            raise SettingError(f"lr and c must be positive, got {self.lr} and {self.c}")
        theta = self.theta
        beta = self.beta
        if not (theta >= 0 and beta >= 0):
            raise SettingError(f"theta and beta must be 0 or more, got {theta} and {beta}")
        super().check(model)

    def search(self, problem: SearchProblem) -> Tensor:
        x = problem.x
        feasible = problem.feasible
        proto, distance = prototypes(
            x, problem.goal, self.data_.to(x.dtype), self.scores_.argmax(1), self.k
        )
        theta = torch.where(distance.isfinite(), self.theta, 0.0).to(x.dtype)[:, None]
        best = BestSoFar(problem, ElasticNet(self.beta))

        def step(v: Tensor, c: Tensor, k: int) -> tuple[Tensor, Tensor]:
            scores, lead, rise = lead_and_gradient(problem, feasible.project(v))
            # The hinge; a goal with its own margin keeps it on until that is met.
            short = (lead < self.kappa) | ~problem.goal.met(scores, SLACK)
            push = torch.where(short, c, 0.0)[:, None] * rise
            g = (2 * (v - x) + 2 * theta * (v - proto) - push).clamp(-CLIP, CLIP)
            a = self.lr * math.sqrt(1 - k / self.steps)
            new = feasible.clamp(x + l1.prox(v - a * g - x, self.beta))
            return new, best.judge(feasible.project(new))

        bisected(
            x, x.new_full((len(x),), self.c), rounds_of(problem, self.bisections, self.steps), step
        )
        return best.z


@dataclass(frozen=True, repr=False)
class ElasticNet(Distance):
    """beta l1 + l2^2"""

    beta: float
    name = "elastic net"

    def value(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.beta * l1.value(delta, weight) + squared_l2.value(delta, weight)

    def gradient(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.beta * l1.gradient(delta, weight) + squared_l2.gradient(delta, weight)


def prototypes(
    x: Tensor, goal: BoundTarget, data: Tensor, labels: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The prototype of each row (n, d), and its distance (n,); without one, the row itself and
    infinity."""
    proto = x.clone()
    nearest = x.new_full((len(x),), math.inf)
    for label in range(goal.k):
        # reach a class: that one; leave it: all others
        wanted = (goal.label == label) == (goal.sign > 0)
        rows = wanted.nonzero().squeeze(1)
        pool = data[labels == label]
        if not len(pool):
            continue
        for part in chunks(rows, rows_per_chunk(len(pool), 1 << 22)):
            # Not by way of a matrix product, which is inexact for near rows and depends on the
            # batch.
            distance = torch.cdist(x[part], pool, compute_mode="donot_use_mm_for_euclid_dist")
            far, at = distance.kthvalue(min(k, len(pool)), 1)
            closer = far < nearest[part]
            proto[part[closer]] = pool[at[closer]]
            nearest[part[closer]] = far[closer]
    return proto, nearest
