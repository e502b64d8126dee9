"""RBR: robust Bayesian recourse, by the odds that samples around the boundary would give under the
worst kernel.

    F_op(c) = min over v >= 0, |v| <= e_op  of
              log(v_2 + s) + (c - v_1)^2 / (2 (v_2 + s)^2) + (p - 1) log s
    F_pe(c) = min over u >= 0, |u| <= e_pe / sqrt(p)  of
              -log(u_2 + s) - (c + sqrt(p) u_1)^2 / (2 (u_2 + s)^2)
              - (p - 1) log(sqrt((1e-6 + e_pe^2 - p u_1^2 - u_2^2) / (p - 1)) + s)

exp(-F_op) is the most, exp(F_pe) the least that a normal kernel of width s gives a sample at
distance c, over all normal laws near it. With e_op = e_pe = 0, J is the log-odds of two kernel
density estimates.

Both F depend on one number c only. So they are solved once for a grid of c and read off between the
nodes by cubic pieces through values and slopes; by the envelope theorem the slopes are exact.
Nguyen et al. 2022 solve both by projected gradient at every step, and for every sample.

Here a data row is taken as far as the person can reach it, z also stays within the person's limits,
and the boundary lies between rows a person can hand in; `relaxed` makes it the model's own.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cache

import torch
from torch import Tensor

from holdfast._core.checks import require_positive
from holdfast._core.rows import ROW_BLOCK, chunks, rows_per_chunk, whole_blocks
from holdfast.distances import l1, l2
from holdfast.errors import SettingError
from holdfast.methods._data import DataMethod
from holdfast.models.base import Model
from holdfast.problem import SearchProblem

# nodes of c at sigma (exp(k / 64) - 1): dense near 0, and up to millions of sigma
NODES = 1024
DENSITY = 64
# of the inner problems: values per axis at first, then later, and how many times
COARSE = 25
FINE = 9
ZOOMS = 10
# a row stops after this many steps without this much improvement
PATIENCE = 10
GAIN = 1e-10
AT_ONCE = 4  # points of each segment tried at once


@dataclass(eq=False, repr=False)
class RBR(DataMethod):
    """Projected gradient on the worst-case posterior odds of samples around the boundary.

        x_b    the point of the boundary nearest to x on the way to one of the nearest data rows
               with the wanted outcome
        x_i    samples, uniform in the l2 ball around x_b, split by the model into wanted (pos) and
               not (neg)

        minimise over |z - x|_1 <= |x_b - x|_1 + delta_plus
        J(z) = log sum_neg exp(-F_op(c_i)) - log sum_pos exp(F_pe(c_j))
        c_i = |z - x_i|_2,   p = d,   s = sigma

    Args:
        e_op: how far the kernels of samples without the wanted outcome may move towards the answer.
        e_pe: how far those of samples with it may move away.
        delta_plus: how much farther than the boundary, in l1, the answer may be.
        sigma: width of the kernels.
        samples: how many points are drawn around the boundary.
        neighbors: how many data rows show the way to the boundary.
        scan: points tried on the way to each of them.
        radius: of the ball around the boundary that samples are drawn from.
        steps: of projected gradient, at most; each has length 1 / sqrt(1000) times the gradient.
        relaxed: look for the boundary between the levels of categories too, as the paper does. Such
            a point may be rounded back to the levels it came from; otherwise only rows that a
            person can hand in are tried.

    >>> import holdfast as hf
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.Model.of(LogisticRegression().fit(data.X, data.y), data.schema)
    >>> method = hf.RBR(samples=50, scan=20, steps=50).fit(model, data.X)
    >>> bool(method.explain(model, data.X.head(20), "yes").found.any())
    True

    Reference:
        Nguyen, Bui, Nguyen, Yue and Nguyen 2022, "Robust Bayesian Recourse".

    Paper: guo2023 Baseline RBR.
    """

    title = "worst-case posterior odds of samples around the boundary, any model"
    paper = "Nguyen et al. 2022 (RBR); Guo et al. 2023"
    when = "the model is a black box and its answers should outlast a change of the data"
    cost = (
        "up to neighbors x scan forward passes to find the boundary, and samples more; none per "
        "step"
    )
    keeps_repeats = False
    advice = "raise delta_plus, give more data, or try NearestNeighbor"

    e_op: float = 0.5
    e_pe: float = 0.5
    delta_plus: float = 0.2
    sigma: float = 1.0
    samples: int = 200
    _: KW_ONLY
    neighbors: int = 1000
    scan: int = 100
    radius: float = 0.2
    steps: int = 500
    relaxed: bool = False

    def check(self, model: Model) -> None:
        if not (self.e_op >= 0 and self.e_pe >= 0):
            raise SettingError(f"e_op and e_pe must be 0 or more, got {self.e_op} and {self.e_pe}")
        if not self.delta_plus >= 0:
            raise SettingError(f"delta_plus must be 0 or more, got {self.delta_plus}")
        require_positive("sigma", self.sigma)
        require_positive("radius", self.radius)
        if not (self.samples >= 1 and self.neighbors >= 1):
            raise SettingError("samples and neighbors must be at least 1")
        if not (self.scan >= 1 and self.steps >= 1):
            raise SettingError("scan and steps must be at least 1")
        super().check(model)

    def search(self, problem: SearchProblem) -> Tensor:
        edge = self._boundary(problem)
        answer = problem.feasible.project(problem.x)
        rows = edge.isfinite().all(1).nonzero().squeeze(1)
        for part in chunks(
            rows, rows_per_chunk(self.samples * problem.x.shape[1], block=ROW_BLOCK)
        ):
            full = whole_blocks(part)
            asked = problem[full]
            answer[part] = asked.feasible.project(self._minimise(asked, edge[full]))[: len(part)]
        return answer

    # ---- (1) the boundary

    def _boundary(self, problem: SearchProblem) -> Tensor:
        """x_b (n, d); NaN in rows to which no data row shows the way."""
        edge = torch.full_like(problem.x, math.nan)
        for people, data in self.data_by_label(problem):
            m = min(self.neighbors, len(data))
            for part in chunks(people, rows_per_chunk(max(m * AT_ONCE * data.shape[1], len(data)))):
                if problem.budget.over():
                    return edge
                asked = problem[part]
                near = l1.between(asked.x, data).topk(m, 1, largest=False, sorted=True).indices
                # as far as each person can reach
                guides = asked.feasible.repeat(m).project(data[near].flatten(0, 1))
                edge[part] = self._nearest_flip(asked, guides.reshape(len(part), m, -1))
        return edge

    def _nearest_flip(self, problem: SearchProblem, guides: Tensor) -> Tensor:
        """The point nearest to x (l1), among `scan` on the way to each guide, that has the wanted
        outcome.

        Nearest before numbers are rounded; categories change half-way.
        """
        n = len(problem)
        way = guides - problem.x[:, None]
        cut = problem.feasible.encoding.one_hot & (not self.relaxed)
        # (n, m, 1)
        smooth = (way.abs() * ~cut).sum(2, keepdim=True)
        jump = (way.abs() * cut).sum(2, keepdim=True)
        best = problem.x.new_full((n,), math.inf)
        edge = torch.full_like(problem.x, math.nan)
        for t in chunks(_coarse_to_fine(self.scan).to(way.dtype) / self.scan, AT_ONCE):
            far = smooth * t + jump * (t > 0.5)  # (n, m, k)
            # What lies beyond the best so far is never asked for.
            row, guide, at = (far < best[:, None, None]).nonzero(as_tuple=True)
            if not len(row):
                continue
            crossing = problem[row]
            z = crossing.x + t[at, None] * way[row, guide]
            z = z if self.relaxed else crossing.feasible.project(z)
            met = crossing.met(z)
            if not met.any():
                continue
            z = z[met]
            far = far[row, guide, at][met]
            row = row[met]
            best = best.scatter_reduce(0, row, far, "amin")
            hit = (far == best[row]).nonzero().squeeze(1)
            # the last of equal ones
            last = torch.full((n,), -1).scatter_reduce(0, row[hit], hit, "amax")
            new = (last >= 0).nonzero().squeeze(1)
            edge[new] = z[last[new]]
        return edge

    # ---- (2) samples, and (3) projected gradient

    def _minimise(self, problem: SearchProblem, edge: Tensor) -> Tensor:
        """Projected gradient from the boundary points."""
        x = problem.x
        points = around(problem, edge, self.radius, self.samples)
        many = problem[torch.arange(len(x)).repeat_interleave(self.samples)]
        pos = many.met(points.flatten(0, 1)).reshape(len(x), -1)
        room = l1.value(edge - x) + self.delta_plus
        kernel = kernels(float(self.e_op), float(self.e_pe), float(self.sigma), x.shape[1], x.dtype)
        walk = Descending.start(problem, edge, points, pos, room)
        rows = torch.arange(len(x))
        out = edge.clone()
        for _ in problem.steps(self.steps):
            walk = walk.after_step(kernel)
            # Rows that have stopped are dropped together, once they are more than the others.
            if int(walk.done.sum()) * 2 > len(walk.done):
                out[rows] = walk.best
                on = (~walk.done).nonzero().squeeze(1)
                if not len(on):
                    return out
                rows = rows[on]
                walk = walk.of(on)
        out[rows] = walk.best
        return out


@dataclass(frozen=True, eq=False)
class Descending:
    """Where projected gradient has got to, row by row."""

    problem: SearchProblem
    points: Tensor  # (n, samples, d)
    pos: Tensor  # (n, samples) which of them have the wanted outcome
    room: Tensor  # (n,) how far a row may go, in l1
    z: Tensor
    best: Tensor
    lowest: Tensor  # (n,) J at `best`
    stale: Tensor  # (n,) steps since it was found
    done: Tensor  # (n,)

    @classmethod
    def start(
        cls, problem: SearchProblem, z: Tensor, points: Tensor, pos: Tensor, room: Tensor
    ) -> "Descending":
        lowest = z.new_full((len(z),), math.inf)
        stale = torch.zeros(len(z), dtype=torch.int64)
        done = torch.zeros(len(z), dtype=torch.bool)
        return cls(problem, points, pos, room, z, z, lowest, stale, done)

    def after_step(self, kernel: "Kernels") -> "Descending":
        """Judge z, and move on."""
        x = self.problem.x
        J, g = odds(self.z, self.points, self.pos, kernel)
        # a row that has stopped stays, whatever the others do
        better = (self.lowest - GAIN > J) & ~self.done
        stale = torch.where(better, 0, self.stale + 1)
        z = x + l1.project(self.z - g / math.sqrt(1000) - x, self.room[:, None])
        return replace(
            self,
            z=self.problem.feasible.clamp(z),  # towards x in every column, so it stays in the ball
            best=torch.where(better[:, None], self.z, self.best),
            lowest=torch.where(better, J, self.lowest),
            stale=stale,
            done=self.done | (stale >= PATIENCE),
        )

    def of(self, rows: Tensor) -> "Descending":
        """Some of the rows."""
        return Descending(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def _coarse_to_fine(scan: int) -> Tensor:
    """1 .. scan, numbers that many powers of two divide first: a few far apart soon give a good
    bound."""
    return torch.tensor(sorted(range(1, scan + 1), key=lambda i: (-min(i & -i, scan // 8), i)))


def around(problem: SearchProblem, center: Tensor, radius: float, samples: int) -> Tensor:
    """(n, samples, d) uniform in the l2 ball: r = radius * u^(1/d) along a direction uniform on the
    sphere."""
    n, d = center.shape
    way = l2.ascent(problem.rng.normal(samples, d, dtype=center.dtype).flatten(0, 1)).reshape(
        n, samples, d
    )
    r = radius * problem.rng.uniform(samples, draw=1, dtype=center.dtype) ** (1 / d)
    return center[:, None] + r[..., None] * way


def odds(z: Tensor, points: Tensor, pos: Tensor, kernel: "Kernels") -> tuple[Tensor, Tensor]:
    """J (n,) at rows z (n, d), and its gradient (n, d)."""
    way = z[:, None] - points  # (n, m, d)
    c = way.square().sum(2).sqrt()
    (op, op_slope), (pe, pe_slope) = (curve(c) for curve in kernel)
    neg_log = (-op).masked_fill(pos, -math.inf)
    pos_log = pe.masked_fill(~pos, -math.inf)
    # Without samples of one kind there are no odds; the other kind alone still says where to go.
    some_neg = (~pos).any(1)
    some_pos = pos.any(1)
    top = torch.where(some_neg, torch.logsumexp(neg_log, 1), 0.0)
    bottom = torch.where(some_pos, torch.logsumexp(pos_log, 1), 0.0)
    share_neg = torch.where(some_neg[:, None], torch.softmax(neg_log, 1), 0.0)
    share_pos = torch.where(some_pos[:, None], torch.softmax(pos_log, 1), 0.0)
    pull = -(share_neg * op_slope + share_pos * pe_slope) / c.clamp_min(torch.finfo(z.dtype).tiny)
    return top - bottom, (pull[..., None] * way).sum(1)


# ---- the inner problems


def f_op(c: Tensor, v1: Tensor, v2: Tensor, s: float, p: int) -> Tensor:
    """What F_op minimises."""
    return torch.log(v2 + s) + (c - v1).square() / (2 * (v2 + s).square()) + (p - 1) * math.log(s)


def f_pe(c: Tensor, u1: Tensor, u2: Tensor, s: float, p: int, e: float) -> Tensor:
    """What F_pe minimises."""
    rest = (1e-6 + e * e - p * u1.square() - u2.square()).clamp_min(0)
    others = (p - 1) * torch.log(torch.sqrt(rest / max(p - 1, 1)) + s)
    return -torch.log(u2 + s) - (c + math.sqrt(p) * u1).square() / (2 * (u2 + s).square()) - others


def minimised(f: Callable[[Tensor], Tensor], n: int, most: Tensor, first: int) -> Tensor:
    """(n, k) where f, over points (n, m, k) of the box from 0 to `most` (k,), is least: by grids
    that zoom in."""
    low = most.new_zeros(n, len(most))
    high = most.expand(n, -1)
    best = most
    for size in (first, *[FINE] * (ZOOMS - 1)):
        line = torch.linspace(0, 1, size, dtype=most.dtype)
        grid = low[:, None] + (high - low)[:, None] * torch.cartesian_prod(
            *[line] * len(most)
        ).view(-1, len(most))
        best = grid[torch.arange(n), f(grid).argmin(1)]
        step = (high - low) / (size - 1)
        low = (best - step).clamp_min(0)
        high = torch.minimum(best + step, most)
    return best


def optimistic(c: Tensor, e: float, s: float, p: int) -> tuple[Tensor, Tensor]:
    """F_op at c and its slope: for given v_2 the best v_1 is min(c, sqrt(e^2 - v_2^2)); then a
    search over v_2."""

    def at(v2: Tensor) -> tuple[Tensor, Tensor]:
        v1 = torch.minimum(c[:, None], (e * e - v2.square()).clamp_min(0).sqrt())
        return f_op(c[:, None], v1, v2, s, p), v1

    v2 = minimised(lambda v: at(v[..., 0])[0], len(c), c.new_tensor([e]), 8 * COARSE).squeeze(1)
    value, v1 = at(v2[:, None])
    return value.squeeze(1), (c - v1.squeeze(1)) / (v2 + s).square()


def pessimistic(c: Tensor, e: float, s: float, p: int) -> tuple[Tensor, Tensor]:
    """F_pe at c and its slope: a search over the length r and the angle t of u = r (cos t, sin
    t)."""

    def at(c: Tensor, r: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u1 = r * t.cos()
        u2 = r * t.sin()
        return f_pe(c, u1, u2, s, p, e), u1, u2

    most = c.new_tensor([e / math.sqrt(p), math.pi / 2])
    best = minimised(lambda u: at(c[:, None], *u.unbind(2))[0], len(c), most, COARSE)
    value, u1, u2 = at(c, *best.unbind(1))
    return value, -(c + math.sqrt(p) * u1) / (u2 + s).square()


@dataclass(frozen=True)
class Curve:
    """A function of c, given by its values and slopes at nodes of c."""

    sigma: float
    nodes: Tensor
    values: Tensor
    slopes: Tensor

    def __call__(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """Value and slope at c, by the cubic piece between the two nodes around it."""
        i = (torch.log1p(c / self.sigma) * DENSITY).to(torch.int64).clamp(0, NODES - 2)
        start = self.nodes[i]
        h = self.nodes[i + 1] - start
        t = (c - start) / h
        f0 = self.values[i]
        g0 = self.slopes[i] * h
        g1 = self.slopes[i + 1] * h
        rise = self.values[i + 1] - f0
        a = g0 - rise
        b = rise - g1
        bend = a * (1 - t) + b * t
        value = f0 + t * rise + t * (1 - t) * bend
        slope = rise + (1 - 2 * t) * bend + t * (1 - t) * (b - a)
        return value, slope / h


Kernels = tuple[Curve, Curve]  # F_op and F_pe for all c


@cache
def kernels(e_op: float, e_pe: float, sigma: float, p: int, dtype: torch.dtype) -> Kernels:
    """Both inner problems solved at the nodes."""
    c = sigma * torch.expm1(torch.arange(NODES, dtype=torch.float64) / DENSITY)

    def curve(solve: Callable[..., tuple[Tensor, Tensor]], e: float) -> Curve:
        found = [solve(part, e, sigma, p) for part in chunks(c, 256)]
        return Curve(sigma, *(torch.cat(v).to(dtype) for v in ([c], *zip(*found, strict=True))))

    return curve(optimistic, e_op), curve(pessimistic, e_pe)
