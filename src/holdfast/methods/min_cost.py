"""The smallest change: elastic net, then trust-region linear programs that close in on the boundary.

Three stages, each batched over all rows.

1. Elastic net (EAD; Chen et al. 2018, as "Consistent Counterfactuals for Deep Models" uses it): accelerated
   proximal steps on c * max(0, kappa - gap) + distance, with c found per row by bisection.
2. Linearise: replace the gap by its tangent plane. What is left has an exact solution, for l1 a
   continuous knapsack (fill the columns with most gain per cost), for l2 a shift along the gradient cut
   off at the limits.
3. Tighten: the same step inside a trust region per row, kept only where the row stays valid and gets cheaper;
   features whose change turns out to be needless go back.

`legacy=True` is the elastic net alone as the paper's authors ran it, for comparison with its tables: a box of
[0, 1] inside the shrinkage whatever the data, a threshold of beta instead of lr * beta, probabilities in
place of logits with kappa = 0.5, and no distance gradient once the margin exceeds kappa.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.distances import Distance, Norm, distance_of, l1, l2, penalty_of
from holdfast.errors import require
from holdfast.explainer import Explainer
from holdfast.methods._best import BestOfWalk, BestSoFar
from holdfast.methods._fista import bisected, lead_and_gradient, rounds_of
from holdfast.methods._tighten import revert, swap, tangent_step, tighten
from holdfast.models.base import Model
from holdfast.problem import SearchProblem

LEGACY_KAPPA = 0.5


@dataclass(eq=False, repr=False)
class MinCost(Explainer):
    """The smallest change that gets the wanted outcome.

        minimise over z    sum_j w_j |z_j - x_j|   (norm = 1)   or   sum_j w_j (z_j - x_j)^2   (norm = 2)
        subject to         gap(z) >= margin,  z reachable from x

    Args:
        norm: 1, 2, a name such as "linf", or a `Distance`: what small means.
        steps, bisections: steps of the elastic net, and bisections on its weight c.
        lr: its step size in units of the columns' ranges.
        kappa: by how much it aims beyond the goal.
        linearise, polish: steps of stage 2 and 3.
        legacy: the elastic net alone, as the authors of the paper ran it.
        beta: threshold of the legacy shrinkage.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> cfs = hf.MinCost().explain(model, data.X.head(20), "yes")
    >>> bool((model.predict(cfs.to_frame()) == "yes").all())
    True

    Reference:
        Chen et al. 2018, "EAD: Elastic-Net Attacks to Deep Neural Networks"; Black et al. 2022, "Consistent
        Counterfactuals for Deep Models" (Min-cost l1 and l2).
    """

    title = "smallest change: elastic net, tightened by linear programs"
    paper = "Chen et al. 2018 (EAD); Black et al. 2022 (Min-cost l1, l2)"
    when = "the model has gradients and the change should be as small as can be: the method to try first"
    cost = (
        "bisections x steps + polish gradient passes, and linearise more for the row itself and each category; about "
        "as many forward passes as features change"
    )
    regression = True
    advice = "raise steps or bisections, or try NearestNeighbor"

    norm: Norm | Distance = 1
    steps: int = 60
    bisections: int = 5
    lr: float = 0.02
    kappa: float = 0.0
    linearise: int = 20
    polish: int = 30
    legacy: bool = False
    beta: float = 1.0

    def check(self, model: Model) -> None:
        classes = not (self.legacy and model.is_regression)
        require(classes, "legacy=True is about classes; leave it out for a regression model")
        penalty_of(self.norm)
        if self.legacy:
            distance_of(self.norm, (l1, l2))
        require(self.steps >= 1 and self.bisections >= 1, "steps and bisections must be at least 1")
        require(self.linearise >= 0 and self.polish >= 0, "linearise and polish must be 0 or more")
        require(self.lr > 0, f"lr must be positive, got {self.lr}")

    def search(self, problem: SearchProblem) -> Tensor:
        return self._legacy_elastic_net(problem) if self.legacy else self.search_from(problem, None)

    def search_from(self, problem: SearchProblem, start: Tensor | None) -> Tensor:
        """The same, from rows (n, d) that may have the wanted outcome already: a warm start does without stage 1."""
        distance = penalty_of(self.norm)
        best = BestSoFar(problem, distance)
        if start is not None:
            best.judge(start)
        linearised(problem, best, self.linearise)
        if start is None or not bool(best.found.all()):
            self._elastic_net(problem, best)
        ok = best.found.nonzero().squeeze(1)
        if len(ok) and self.polish:
            part, z = problem[ok], best.z[ok]
            z = tighten(part, revert(part, z, distance), distance, self.polish)
            best.z[ok] = z if problem.feasible.is_box else swap(part, z, distance)
        return best.z

    def _elastic_net(self, problem: SearchProblem, best: BestSoFar) -> None:
        """EAD with the real box, a hinge that switches off only its own term, and logits."""
        x, feasible = problem.x, problem.feasible
        weight, widths = feasible.encoding.weight, feasible.widths
        rate = self.lr * widths  # each column in units of its own range
        _, grad = problem.gap_and_gradient(feasible.project(x))
        # The weight at which the strongest column just outweighs its own cost: below it nothing moves at all.
        c = 2 / ((grad.abs() * widths) / (weight * widths).clamp_min(1e-6)).amax(1).clamp_min(1e-6)

        def step(v: Tensor, c: Tensor, k: int) -> tuple[Tensor, Tensor]:
            p = feasible.project(v)
            gap, grad = problem.gap_and_gradient(p)
            met = best.offer(p, gap)
            a = rate * math.sqrt(1 - k / self.steps)
            push = torch.where(gap < self.kappa + 1e-3, c, 0.0)[:, None] * grad
            return feasible.clamp(x + best.distance.prox(v + a * push - x, a, weight)), met

        bisected(x, c, rounds_of(problem, self.bisections, self.steps), step)

    def _legacy_elastic_net(self, problem: SearchProblem) -> Tensor:
        """The elastic net as the library behind the paper's tables runs it; see the top of the file."""
        x, distance = problem.x, penalty_of(self.norm)
        beta = self.beta if distance == l1 else 0.0
        best, p = BestOfWalk(problem, distance, torch.ones_like(x[0])), x

        def step(v: Tensor, c: Tensor, k: int) -> tuple[Tensor, Tensor]:
            nonlocal p
            _, lead, push = lead_and_gradient(problem, v)
            grad = -c[:, None] * push + 2 * (v - x)
            grad = torch.where((lead < LEGACY_KAPPA)[:, None], grad, 0.0)
            z = v - self.lr * (1 - k / self.steps) ** 2 * grad
            raised, lowered = (z - beta).clamp_max(1), (z + beta).clamp_min(0)
            new = torch.where(z - x > beta, raised, torch.where(z - x < -beta, lowered, x))
            p = problem.feasible.project(new)
            met = problem.met(p)
            best.see(p, torch.where(met, -1.0, 1.0)[:, None])
            return new, met

        bisected(x, x.new_full((len(x),), 1e-3), rounds_of(problem, self.bisections, self.steps), step)
        return best.done(p)[0]


def linearised(problem: SearchProblem, best: BestSoFar, steps: int) -> None:
    """Jump to the optimum of the tangent problem again and again, in ever smaller steps.

    The tangent problem leaves categories and missing numbers as they are, so it also starts once from each single
    switch of a category, to the level that the gradient favours, and from each number filled in.
    """
    starts = switches(problem, best.z)  # (n, s, d)
    n, s, d = starts.shape
    many = problem[torch.arange(n).repeat_interleave(s)]
    tried = BestSoFar(many, best.distance)
    feasible, u = many.feasible, starts.reshape(n * s, d)
    for k in problem.steps(steps):
        p = feasible.project(u)
        gap, grad = many.gap_and_gradient(p)
        tried.offer(p, gap)
        u = tangent_step(feasible, p, gap, grad, feasible.widths * 0.003 ** (k / steps), best.distance, aim=1e-3)
    tried.judge(feasible.project(u))
    for i in range(s):
        best.take(tried, torch.arange(n) * s + i)


def switches(problem: SearchProblem, z: Tensor) -> Tensor:
    """(n, 1 + gaps + categories, d): the rows z, z with one missing number filled in by what stands for it, and z with
    one category moved to the level the gradient favours."""
    encoding = problem.feasible.encoding
    groups, missing = encoding.groups, encoding.gaps[1]
    starts = z[:, None].repeat(1, 1 + len(missing), 1)
    starts[:, torch.arange(1, 1 + len(missing)), missing] = problem.feasible.lo[:, missing]
    if not groups.numel():
        return starts
    _, grad = problem.gap_and_gradient(z)
    other = torch.where((problem.feasible.hi > 0) & (z == 0), grad, -torch.inf)
    other = torch.cat([other, other.new_full((len(z), 1), -torch.inf)], 1)[:, groups]  # (n, G, L)
    top, level = other.max(2)
    column = groups.expand(len(z), -1, -1).gather(2, level[..., None])  # (n, G, 1)
    in_group = torch.zeros(len(groups), encoding.center.shape[0] + 1, dtype=torch.bool).scatter_(1, groups, True)
    moved = z[:, None].repeat(1, len(groups), 1).masked_fill(in_group[:, :-1], 0.0).scatter(2, column, 1.0)
    moved = torch.where(top.isfinite()[..., None], moved, z[:, None])
    return torch.cat([starts, moved], 1)
