"""The smallest change: elastic net, then trust-region linear programs that close in on the boundary.

    minimise over z    sum_j w_j |z_j - x_j|   (norm = 1)   or   sum_j w_j (z_j - x_j)^2   (norm = 2)
    subject to         gap(z) >= margin,  z reachable from x

Three stages, each batched over all rows.

1. Elastic net (EAD; Chen et al. 2018, as "Consistent Counterfactuals for Deep Models" uses it): accelerated
   proximal steps on c * max(0, kappa - gap) + distance, with c found per row by bisection.
2. Linearise: replace the gap by its tangent plane. What is left has an exact solution, for norm 1 a
   continuous knapsack (fill the columns with most gain per cost), for norm 2 a shift along the gradient cut
   off at the limits.
3. Tighten: the same step inside a trust region per row, kept only where the row stays valid and gets cheaper;
   features whose change turns out to be needless go back.

`legacy=True` is the elastic net alone as the paper's authors ran it, for comparison with its tables: a box of
[0, 1] inside the shrinkage whatever the data, a threshold of beta instead of lr * beta, probabilities in
place of logits with kappa = 0.5, and no distance gradient once the margin exceeds kappa.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.errors import require
from holdfast.explainer import Explainer
from holdfast.methods._tighten import cost_of, revert, swap, tangent_step, tighten
from holdfast.models.base import Model
from holdfast.problem import SLACK, SearchProblem


@dataclass(eq=False, repr=False)
class MinCost(Explainer):
    """The smallest change that gets the wanted outcome.

    Args:
        norm: 1 or 2: what small means.
        steps, bisections: steps of the elastic net, and bisections on its weight c.
        lr: its step size in units of the columns' ranges.
        kappa: by how much it aims beyond the goal.
        linearise, polish: steps of stage 2 and 3.
        legacy: the elastic net alone, as the authors of the paper ran it.
        beta: threshold of the legacy shrinkage.
    """

    title: ClassVar[str] = "smallest change: elastic net, tightened by linear programs"
    paper: ClassVar[str] = "Chen et al. 2018 (EAD); Black et al. 2022 (Min-cost l1, l2)"
    regression: ClassVar[bool] = True
    advice: ClassVar[str] = "raise steps or bisections, or try NearestNeighbor"

    norm: Literal[1, 2] = 1
    steps: int = 60
    bisections: int = 5
    lr: float = 0.02
    kappa: float = 0.0
    linearise: int = 20
    polish: int = 30
    legacy: bool = False
    beta: float = 1.0

    def check(self, model: Model) -> None:
        require(
            not (self.legacy and model.is_regression),
            "legacy=True is about classes; leave it out for a regression model",
        )
        require(self.norm in (1, 2), f"norm must be 1 or 2, got {self.norm!r}")
        require(self.steps >= 1 and self.bisections >= 1, "steps and bisections must be at least 1")
        require(self.linearise >= 0 and self.polish >= 0, "linearise and polish must be 0 or more")
        require(self.lr > 0, f"lr must be positive, got {self.lr}")

    def search(self, problem: SearchProblem) -> Tensor:
        if self.legacy:
            return legacy_elastic_net(problem, self.norm, self.bisections, self.steps, self.lr, self.beta)
        best = Best(problem, self.norm)
        linearised(problem, best, self.linearise)
        elastic_net(problem, best, self.bisections, self.steps, self.lr, self.kappa)
        ok = best.found.nonzero().squeeze(1)
        if len(ok) and self.polish:
            part, z = problem[ok], best.z[ok]
            z = tighten(part, revert(part, z, self.norm), self.norm, self.polish)
            best.z[ok] = z if problem.feasible.is_box else swap(part, z, self.norm)
        return best.z


class Best:
    """The cheapest valid row so far for each person; the nearest miss where there is none."""

    def __init__(self, problem: SearchProblem, norm: int) -> None:
        self.x, self.norm, self.weight = problem.x, norm, problem.feasible.encoding.weight
        self.z = problem.feasible.project(problem.x)
        self.cost = problem.x.new_full((len(problem),), math.inf)
        self.miss = problem.x.new_full((len(problem),), -math.inf)

    @property
    def found(self) -> Tensor:
        return self.cost < math.inf

    def price(self, delta: Tensor) -> Tensor:
        """(n, d) changes -> (n,) what they cost."""
        return cost_of(delta, self.weight, self.norm)

    def take(self, other: "Best", rows: Tensor) -> None:
        """Keep what another search found for `rows` of it, where that is better."""
        cost, miss = other.cost[rows], other.miss[rows]
        better = torch.where(other.found[rows], cost < self.cost, ~self.found & (miss > self.miss))
        self.z = torch.where(better[:, None], other.z[rows], self.z)
        self.cost, self.miss = torch.minimum(self.cost, cost), torch.maximum(self.miss, miss)

    def offer(self, p: Tensor, gap: Tensor) -> Tensor:
        """Keep rows p where they are valid and cheaper, or the nearest miss; returns which are valid."""
        met = gap > 0
        cost = torch.where(met, self.price(p - self.x), math.inf)
        take = torch.where(met, cost < self.cost, ~self.found & (gap > self.miss))
        self.z = torch.where(take[:, None], p, self.z)
        self.cost = torch.minimum(self.cost, cost)
        self.miss = torch.maximum(self.miss, gap)
        return met


def linearised(problem: SearchProblem, best: Best, steps: int) -> None:
    """Jump to the optimum of the tangent problem again and again, in ever smaller steps.

    The tangent problem leaves categories and missing numbers as they are, so it also starts once from each single
    switch of a category, to the level that the gradient favours, and from each number filled in.
    """
    starts = switches(problem, best.z)  # (n, s, d)
    n, s, d = starts.shape
    many = problem[torch.arange(n).repeat_interleave(s)]
    tried = Best(many, best.norm)
    reach, u = many.feasible, starts.reshape(n * s, d)
    wide = reach.widths
    for k in problem.steps(steps):
        p = reach.project(u)
        gap, grad = many.gap_and_gradient(p)
        tried.offer(p, gap)
        u = tangent_step(reach, p, gap, grad, wide * 0.003 ** (k / steps), best.norm, aim=1e-3)
    tried.offer(*scored(many, reach.project(u)))
    for i in range(s):
        best.take(tried, torch.arange(n) * s + i)


def switches(problem: SearchProblem, z: Tensor) -> Tensor:
    """(n, 1 + gaps + categories, d): the rows z, z with one missing number filled in by what stands for it, and z with
    one category moved to the level the gradient favours."""
    at = problem.feasible.encoding
    groups, says = at.groups, at.gaps[1]
    starts = z[:, None].repeat(1, 1 + len(says), 1)
    starts[:, torch.arange(1, 1 + len(says)), says] = problem.feasible.lo[:, says]
    if not groups.numel():
        return starts
    _, grad = problem.gap_and_gradient(z)
    other = torch.where((problem.feasible.hi > 0) & (z == 0), grad, -torch.inf)
    other = torch.cat([other, other.new_full((len(z), 1), -torch.inf)], 1)[:, groups]  # (n, G, L)
    top, level = other.max(2)
    column = groups.expand(len(z), -1, -1).gather(2, level[..., None])  # (n, G, 1)
    mine = torch.zeros(len(groups), at.center.shape[0] + 1, dtype=torch.bool).scatter_(1, groups, True)[:, :-1]
    moved = z[:, None].repeat(1, len(groups), 1).masked_fill(mine, 0.0).scatter(2, column, 1.0)
    moved = torch.where(top.isfinite()[..., None], moved, z[:, None])
    return torch.cat([starts, moved], 1)


def scored(problem: SearchProblem, p: Tensor) -> tuple[Tensor, Tensor]:
    """Rows p, and by how much they exceed the goal: what `Best.offer` takes."""
    return p, problem.goal.gap(problem.model(p)) - problem.goal.margin - SLACK


Step = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


def bisected(problem: SearchProblem, c: Tensor, rounds: int, steps: int, step: Step) -> None:
    """Accelerated proximal steps from x (FISTA), again and again, with a weight c per row found by bisection.

    `step(v, c, k)` gives the next point from the extrapolated one, and which rows have an answer at this step.
    A row that had one tries a smaller weight in the next round, the others a larger one.
    """
    x = problem.x
    low, high = x.new_zeros(len(x)), x.new_full((len(x),), math.inf)
    for r in range(rounds):
        if r and problem.budget.over():
            return
        old = v = x
        hit = torch.zeros(len(x), dtype=torch.bool)
        for k in problem.steps(steps):
            new, met = step(v, c, k)
            hit |= met
            v = new + k / (k + 3) * (new - old)
            old = new
        high = torch.where(hit, torch.minimum(high, c), high)
        low = torch.where(hit, low, torch.maximum(low, c))
        c = torch.where(high < math.inf, (low + high) / 2, c * 10)


def shrink(moved: Tensor, threshold: Tensor | float) -> Tensor:
    """Changes made smaller by the threshold, and none where they are below it."""
    return torch.sign(moved) * (moved.abs() - threshold).clamp_min(0)


def elastic_net(problem: SearchProblem, best: Best, rounds: int, steps: int, lr: float, kappa: float) -> None:
    """EAD with the real box, a hinge that switches off only its own term, and logits."""
    x, reach = problem.x, problem.feasible
    weight = reach.encoding.weight
    wide = reach.widths
    rate = lr * wide  # each column in units of its own range
    _, grad = problem.gap_and_gradient(reach.project(x))
    # The weight at which the strongest column just outweighs its own cost: below it nothing moves at all.
    c = 2 / ((grad.abs() * wide) / (weight * wide).clamp_min(1e-6)).amax(1).clamp_min(1e-6)

    def step(v: Tensor, c: Tensor, k: int) -> tuple[Tensor, Tensor]:
        p = reach.project(v)
        gap, grad = problem.gap_and_gradient(p)
        met = best.offer(p, gap)
        a = rate * math.sqrt(1 - k / steps)
        push = torch.where(gap < kappa + 1e-3, c, 0.0)[:, None] * grad
        moved = v + a * push - x
        new = x + shrink(moved, a * weight) if best.norm == 1 else moved / (1 + 2 * a * weight) + x
        return reach.clamp(new), met

    bisected(problem, c, rounds, steps, step)


def lead_and_gradient(problem: SearchProblem, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (n, k) of rows v, the lead of the wanted outcome in probability (n,), and its gradient (n, d)."""
    scores, pull = problem.model.vjp(v)
    u = torch.softmax(scores, 1)
    lead, slope = problem.goal.lead_and_slope(u, soft=False)
    return scores, lead, pull(u * (slope - (u * slope).sum(1, keepdim=True)))


def legacy_elastic_net(problem: SearchProblem, norm: int, rounds: int, steps: int, lr: float, beta: float) -> Tensor:
    """The elastic net as the library behind the paper's tables runs it; see the top of the file."""
    x = problem.x
    beta, kappa = (beta, 0.5) if norm == 1 else (0.0, 0.5)
    c, low, high = x.new_full((len(x),), 1e-3), x.new_zeros(len(x)), x.new_full((len(x),), 1e11)
    answer, best = problem.feasible.project(x), x.new_full((len(x),), math.inf)
    for _ in range(rounds):
        old = v = x
        hit = torch.zeros(len(x), dtype=torch.bool)
        for k in problem.steps(steps):
            _, lead, push = lead_and_gradient(problem, v)
            grad = -c[:, None] * push + 2 * (v - x)
            grad = torch.where((lead < kappa)[:, None], grad, 0.0)
            z = v - lr * (1 - k / steps) ** 2 * grad
            raised, lowered = (z - beta).clamp_max(1), (z + beta).clamp_min(0)
            new = torch.where(z - x > beta, raised, torch.where(z - x < -beta, lowered, x))
            v = new + k / (k + 3) * (new - old)
            old = new
            p = problem.feasible.project(new)
            cost = cost_of(p - x, torch.ones_like(x[0]), norm)
            met = problem.met(p)
            better = met & (cost < best)
            answer = torch.where(better[:, None] | (~met & (best == math.inf))[:, None], p, answer)
            best, hit = torch.where(better, cost, best), hit | met
        high = torch.where(hit, torch.minimum(high, c), high)
        low = torch.where(hit, low, torch.maximum(low, c))
        c = torch.where(high < 1e9, (low + high) / 2, c * 10)
    return answer
