"""The smallest change: elastic net, then trust-region linear programs that close in on the
boundary.

Four stages, each batched over all rows.

1. Elastic net (EAD; Chen et al. 2018, as "Consistent Counterfactuals for Deep Models" uses it):
   accelerated proximal steps on c * max(0, kappa - gap) + distance, with c found per row by
   bisection.
2. Linearise: replace the gap by its tangent plane. What is left has an exact solution, for l1 a
   continuous knapsack (fill the columns with most gain per cost), for l2 a shift along the gradient
   cut off at the limits.
3. From afar: a network may have another slope elsewhere, and a nearer boundary where the gradient
   does not point. So single changes to the end of a range or to another level, and a few places
   spread over the ranges, are tried; the most promising are brought close to the boundary by
   bisection, and linearised there.
4. Tighten: the same step inside a trust region per row, kept only if the row stays valid and
   gets cheaper; features whose change turns out to be needless go back.

`legacy=True` is the elastic net alone as the paper's authors ran it, for comparison with its
tables: a box of [0, 1] inside the shrinkage whatever the data, a threshold of beta instead of lr *
beta, probabilities in place of logits with kappa = 0.5, and no distance gradient once the margin
exceeds kappa.
"""

import math
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from holdfast._core.checks import require_positive
from holdfast._core.rows import whole_blocks
from holdfast.distances import Distance, Norm, distance_of, l1, l2, penalty_of
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods._best import BestOfWalk, BestSoFar
from holdfast.methods._fista import bisected, lead_and_gradient, rounds_of
from holdfast.methods._tighten import revert, swap, tangent_step, tighten
from holdfast.models.base import Model
from holdfast.problem import SearchProblem
from holdfast.schema.feasible import FeasibleSet

LEGACY_KAPPA = 0.5
# Afar: the most single changes tried, the places spread over the ranges, how many of each are
# followed, and how often their way to the boundary is halved.
SINGLES = 64
SPREAD = 8
FOLLOWED = 4
HALVINGS = 4
CATCH_UP = 1.5  # what costs more than this many times the best so far is no longer tightened


@dataclass(eq=False, repr=False)
class MinCost(Explainer):
    """The smallest change that gets the wanted outcome.

        minimise over z    sum_j w_j |z_j - x_j|     (norm = 1)   or
                           sum_j w_j (z_j - x_j)^2   (norm = 2)
        subject to         gap(z) >= margin,  z reachable from x

    Args:
        norm: 1, 2, a name such as "linf", or a `Distance`: what small means.
        steps, bisections: steps of the elastic net, and bisections on its weight c.
        lr: its step size in units of the columns' ranges.
        kappa: how far it aims beyond the goal.
        linearise, polish: steps of stage 2 (a fifth of them for each place of stage 3) and 4.
        legacy: the elastic net alone, as the authors of the paper ran it.
        beta: threshold of the legacy shrinkage.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> cfs = hf.MinCost().explain(model, data.X.head(20), "yes")
    >>> bool((model.predict(cfs.to_frame()) == "yes").all())
    True

    Reference:
        Chen et al. 2018, "EAD: Elastic-Net Attacks to Deep Neural Networks"; Black et al. 2022,
        "Consistent Counterfactuals for Deep Models" (Min-cost l1 and l2).

    Paper: black2022 Definition 1, Baseline Min-Cost l1 / l2.
    """

    title = "smallest change: elastic net, tightened by linear programs"
    paper = "Chen et al. 2018 (EAD); Black et al. 2022 (Min-cost l1, l2)"
    when = (
        "the model has gradients and the change should be as small as can be: the method to try "
        "first"
    )
    cost = (
        "bisections x steps + polish gradient passes, and linearise more for the row itself and "
        "each category; some "
        "hundred forward passes from afar, and about as many as features change"
    )
    regression = True
    advice = "raise steps or bisections, or try NearestNeighbor"

    norm: Norm | Distance = 1
    steps: int = 60
    bisections: int = 5
    _: KW_ONLY
    lr: float = 0.02
    kappa: float = 0.0
    linearise: int = 20
    polish: int = 30
    legacy: bool = False
    beta: float = 1.0

    def check(self, model: Model) -> None:
        classes = not (self.legacy and model.is_regression)
        if not classes:
            raise SettingError("legacy=True is about classes; leave it out for a regression model")
        penalty_of(self.norm)
        if self.legacy:
            distance_of(self.norm, (l1, l2))
        if not (self.steps >= 1 and self.bisections >= 1):
            raise SettingError("steps and bisections must be at least 1")
        if not (self.linearise >= 0 and self.polish >= 0):
            raise SettingError("linearise and polish must be 0 or more")
        require_positive("lr", self.lr)

    def search(self, problem: SearchProblem) -> Tensor:
        return self._legacy_elastic_net(problem) if self.legacy else self.search_from(problem, None)

    def search_from(self, problem: SearchProblem, start: Tensor | None) -> Tensor:
        """The same, from rows (n, d) that may already have the wanted outcome: a warm start skips
        stage 1."""
        distance = penalty_of(self.norm)
        best = BestSoFar(problem, distance)
        if start is not None:
            best.judge(start)
        linearised(problem, best, self.linearise)
        if start is None:
            self._elastic_net(problem, best)
        elif len(rows := (~best.found).nonzero().squeeze(1)):
            full = whole_blocks(rows)
            alone = BestSoFar(problem[full], distance)
            self._elastic_net(alone.problem, alone)
            best.put(rows, alone)
        afar = BestSoFar(problem, distance)
        if start is None and self.linearise and not problem.budget.over():
            from_afar(problem, afar, -(-self.linearise // 5))
        self._polish(problem, best, afar)
        return best.z

    def _polish(self, problem: SearchProblem, best: BestSoFar, afar: BestSoFar) -> None:
        """Stage 4, also of what was found afar where that may still become cheaper; `best` then has
        the better one."""
        near = best.found.nonzero().squeeze(1)
        far = (afar.cost < CATCH_UP * best.cost).nonzero().squeeze(1)
        rows = torch.cat([near, far])
        if len(rows) and self.polish:
            part = problem[rows]
            distance = best.distance
            z = revert(part, torch.cat([best.z[near], afar.z[far]]), distance)
            z = tighten(part, z, distance, self.polish)
            z = z if problem.feasible.is_box else swap(part, z, distance)
            cost = distance.value(z - part.x, best.weight)
            best.z[near] = z[: len(near)]
            best.cost[near] = cost[: len(near)]
            afar.z[far] = z[len(near) :]
            afar.cost[far] = cost[len(near) :]
        best.take(afar, torch.arange(len(problem)))

    def _elastic_net(self, problem: SearchProblem, best: BestSoFar) -> None:
        """EAD with the real box, a hinge that switches off only its own term, and logits."""
        x = problem.x
        feasible = problem.feasible
        weight = feasible.encoding.weight
        widths = feasible.widths
        rate = self.lr * widths  # each column in units of its own range
        _, grad = problem.gap_and_gradient(feasible.project(x))
        # The weight at which the strongest column just outweighs its own cost: below it nothing
        # moves at all.
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
        """The elastic net as the library behind the paper's tables runs it; see the top of the
        file."""
        x = problem.x
        distance = penalty_of(self.norm)
        beta = self.beta if distance == l1 else 0.0
        best = BestOfWalk(problem, distance, torch.ones_like(x[0]))
        p = x

        def step(v: Tensor, c: Tensor, k: int) -> tuple[Tensor, Tensor]:
            nonlocal p
            _, lead, push = lead_and_gradient(problem, v)
            grad = -c[:, None] * push + 2 * (v - x)
            grad = torch.where((lead < LEGACY_KAPPA)[:, None], grad, 0.0)
            z = v - self.lr * (1 - k / self.steps) ** 2 * grad
            raised = (z - beta).clamp_max(1)
            lowered = (z + beta).clamp_min(0)
            new = torch.where(z - x > beta, raised, torch.where(z - x < -beta, lowered, x))
            p = problem.feasible.project(new)
            met = problem.met(p)
            best.see(p, torch.where(met, -1.0, 1.0)[:, None])
            return new, met

        bisected(
            x, x.new_full((len(x),), 1e-3), rounds_of(problem, self.bisections, self.steps), step
        )
        return best.done(p)[0]


def linearised(problem: SearchProblem, best: BestSoFar, steps: int) -> None:
    """Jump to the optimum of the tangent problem again and again, in ever smaller steps.

    The tangent problem leaves categories and missing numbers as they are, so it also starts once
    from each single switch of a category, to the level that the gradient favours, and from each
    number filled in.
    """
    _follow(problem, best, switches(problem, best.z), steps, widest=1.0, ratio=0.003)


def from_afar(problem: SearchProblem, best: BestSoFar, steps: int) -> None:
    """The same from places further off, in smaller steps: those of `single_changes` and `spread`
    that seem nearest to the goal, by the secant from the person's own row. Places beyond it are
    brought close to it first."""
    x = problem.x
    weight = best.weight
    everyone = torch.arange(len(problem))
    now = problem.gap(x)[:, None]
    starts = list[Tensor]()
    for places in (single_changes(problem), spread(problem)):  # (n, s, d)
        gap = problem[everyone.repeat_interleave(places.shape[1])].gap(places.flatten(0, 1))
        delta = places - x[:, None]
        gap = gap.view(len(x), -1)
        share = -now / (gap - now)  # of the way, to where the secant meets the goal
        cost = best.distance.value(share[..., None] * delta, weight)
        cost = torch.where((gap > now) & (delta != 0).any(2), cost, torch.inf)
        first = cost.sort(dim=1, stable=True).indices[:, :FOLLOWED]
        places = places.gather(1, first[..., None].expand(-1, -1, x.shape[1]))
        gap = gap.gather(1, first)
        starts.append(_close(problem, places, gap > 0))
    _follow(problem, best, torch.cat(starts, 1), steps, widest=0.1, ratio=0.1, whole=True)


def single_changes(problem: SearchProblem) -> Tensor:
    """(n, s, d) the rows with one number at an end of its range, or one category at another level;
    if there are too many, those the tangent favours."""
    x = problem.x
    encoding = problem.feasible.encoding
    feasible = problem.feasible
    lo, hi = _ends(feasible)
    number = encoding.numbers[~(encoding.missing | encoding.fixed)[encoding.numbers]]
    level = (encoding.one_hot & ~encoding.missing & ~encoding.fixed).nonzero().squeeze(1)
    column = torch.cat([number, number, level]).expand(len(x), -1)
    value = torch.cat([lo[:, number], hi[:, number], torch.ones_like(x[:, level])], 1)
    if column.shape[1] > SINGLES:
        _, grad = problem.gap_and_gradient(x)
        promise = grad.gather(1, column) * (value - x.gather(1, column))
        best = promise.sort(dim=1, descending=True, stable=True).indices[:, :SINGLES]
        column = column.gather(1, best)
        value = value.gather(1, best)
    # the other levels of a category
    same = (encoding.owner[column][..., None] == encoding.owner) & encoding.one_hot
    places = torch.where(same, 0.0, x[:, None]).scatter(2, column[..., None], value[..., None])
    return _reachable(problem, places)


def spread(problem: SearchProblem) -> Tensor:
    """(n, SPREAD, d) the rows with their numbers spread evenly over what can be reached."""
    encoding = problem.feasible.encoding
    lo, hi = _ends(problem.feasible)
    number = encoding.numbers[~(encoding.missing | encoding.fixed)[encoding.numbers]]
    if not len(number):
        return problem.x[:, None][:, :0]
    places = problem.x[:, None].repeat(1, SPREAD, 1)
    # the first is 0
    share = torch.quasirandom.SobolEngine(len(number)).draw(SPREAD + 1)[1:].to(lo.dtype)
    places[:, :, number] = lo[:, None, number] + share * (hi - lo)[:, None, number]
    return _reachable(problem, places)


def _ends(feasible: FeasibleSet) -> tuple[Tensor, Tensor]:
    """(n, d) the lowest and the highest value of each column; an open range goes as far as counts
    as its width."""
    x = feasible.x
    half = feasible.widths / 2
    lo = feasible.lo
    hi = feasible.hi
    return torch.where(lo.isfinite(), lo, x - half), torch.where(hi.isfinite(), hi, x + half)


def _reachable(problem: SearchProblem, places: Tensor) -> Tensor:
    """The nearest reachable places to (n, s, d)."""
    feasible = problem.feasible.repeat(places.shape[1])
    return feasible.project(places.flatten(0, 1)).view(places.shape)


def _close(problem: SearchProblem, places: Tensor, met: Tensor) -> Tensor:
    """Places (n, s, d), and those that are beyond the goal (n, s) brought close to it, on the way
    from the row."""
    many = problem[torch.arange(len(problem)).repeat_interleave(places.shape[1])]
    near = many.x
    far = places.flatten(0, 1)
    beyond = met.flatten()
    for _ in range(HALVINGS):
        middle = many.feasible.project((near + far) / 2)
        over = many.gap(middle) > 0
        near = torch.where((beyond & ~over)[:, None], middle, near)
        far = torch.where((beyond & over)[:, None], middle, far)
    return far.view(places.shape)


def _follow(
    problem: SearchProblem,
    best: BestSoFar,
    starts: Tensor,
    steps: int,
    *,
    widest: float,
    ratio: float,
    whole: bool = False,
) -> None:
    """Tangent steps from places (n, s, d), within radii that shrink from `widest` by `ratio`, in
    units of the columns' ranges."""
    n, s, d = starts.shape
    many = problem[torch.arange(n).repeat_interleave(s)]
    tried = BestSoFar(many, best.distance)
    feasible = many.feasible
    u = starts.reshape(n * s, d)
    for k in problem.steps(steps):
        p = feasible.project(u)
        gap, grad = many.gap_and_gradient(p)
        tried.offer(p, gap)
        radius = feasible.widths * (widest * ratio ** (k / steps))
        u = tangent_step(feasible, p, gap, grad, radius, best.distance, aim=1e-3, whole=whole)
    tried.judge(feasible.project(u))
    for i in range(s):
        best.take(tried, torch.arange(n) * s + i)


def switches(problem: SearchProblem, z: Tensor) -> Tensor:
    """(n, 1 + gaps + categories, d): the rows z, z with one missing number filled in by what stands
    for it, and z with one category moved to the level the gradient favours."""
    encoding = problem.feasible.encoding
    groups = encoding.groups
    missing = encoding.gaps[1]
    starts = z[:, None].repeat(1, 1 + len(missing), 1)
    starts[:, torch.arange(1, 1 + len(missing)), missing] = problem.feasible.lo[:, missing]
    if not groups.numel():
        return starts
    _, grad = problem.gap_and_gradient(z)
    other = torch.where((problem.feasible.hi > 0) & (z == 0), grad, -torch.inf)
    other = torch.cat([other, other.new_full((len(z), 1), -torch.inf)], 1)[:, groups]  # (n, G, L)
    top, level = other.max(2)
    column = groups.expand(len(z), -1, -1).gather(2, level[..., None])  # (n, G, 1)
    in_group = torch.zeros(len(groups), encoding.center.shape[0] + 1, dtype=torch.bool).scatter_(
        1, groups, True
    )
    moved = (
        z[:, None]
        .repeat(1, len(groups), 1)
        .masked_fill(in_group[:, :-1], 0.0)
        .scatter(2, column, 1.0)
    )
    moved = torch.where(top.isfinite()[..., None], moved, z[:, None])
    return torch.cat([starts, moved], 1)
