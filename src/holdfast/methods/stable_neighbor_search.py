"""Stable Neighbor Search: move each answer to a nearby point that retrained models accept too.

x0 is the answer of another method. Steps have length 2 radius / steps whatever the gradient's;
after each, the point returns to the ball and to what the person can reach. A row without an
acceptable move keeps x0.

With a bank the objective is the mean over the model and the bank's models, and a row stops as soon
as each of them gives y the probability `min_probability`: it pays for what the models disagree
about, and no more. Answers found with a bank may not be certified with the same models.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from holdfast._core.params import Trait
from holdfast._core.rows import CACHE_CELLS, ROW_BLOCK, chunks, rows_per_chunk, whole_blocks
from holdfast._core.types import Outcomes, Rows
from holdfast.distances import l2
from holdfast.errors import ModelError, SettingError
from holdfast.explainer import Explainer
from holdfast.methods._data import encoded
from holdfast.methods._path_integral import Path, PathValue, Value, path_value, stack_value
from holdfast.methods.min_cost import MinCost
from holdfast.models.base import Model
from holdfast.problem import SLACK, SearchProblem
from holdfast.retraining.bank import ModelBank
from holdfast.target import Target

EVERY = 10  # steps between looks at which rows are done
# Multiples of the typical distance of data from the boundary: how deep the ball reaches.
DEPTH = 2.0
DEPTH_WITH_BANK = 8.0
# The same in lengths of the data's range, if no data were given to measure that distance.
OF_RANGE = 0.05
OF_RANGE_WITH_BANK = 0.2
SWITCH = 1.5  # a category that takes another level moves by the root of 2; within less, none could


@dataclass(eq=False, repr=False)
class StableNeighborSearch(Explainer):
    """The answers of another method, moved by at most `radius` to where retrained models agree.

        maximise over z   1/P sum_{j=1..P} p_y( b + j/P (z - b) )
        subject to        |z - x0|_2 <= radius,  argmax p(z) = y,  z reachable
        p_y: probability of the answer's class y

    Args:
        start: the method whose answers are moved; None takes MinCost(norm=2).
        radius: how far, in encoded units (l2). "auto" takes twice the typical distance of data from
            the boundary (eight times with a bank, where rows stop on their own) if `fit` was given
            data, else a share of the data's range as the schema knows it.
        bank: retrained models to agree with the model.
        min_probability: with a bank, the probability that each model must give.
        steps, path_points: steps of the ascent, and points on each line.
        step_size: length of a step; None takes 2 radius / steps.
        baseline: where the lines start, in encoded units: one number, or one per encoded column.
        noise: standard deviation of a random shift at the first step (the authors' code: 1e-3).
        keep: the "best" point on the way by the objective, or the "last" acceptable one as in the
            paper.
        endpoint_weight: extra weight of the point itself in the objective; 1 gives the paper's
            Equation 5.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> method = hf.StableNeighborSearch(steps=20).fit(model, data.X)
    >>> cfs = method.explain(model, data.X.head(20), "yes")
    >>> bool((model.predict(cfs.to_frame()) == "yes").all())
    True

    Reference:
        Black, Wang, Fredrikson and Datta 2022, "Consistent Counterfactuals for Deep Models",
        Definition 5.

    Paper: black2022 Definition 5, Eq. 5.
    """

    title = "another method's answers, moved to where retrained models agree"
    paper = "Black et al. 2022"
    when = "a network will be trained again and its answers should still hold"
    cost = (
        "what start takes, and steps x path_points gradient passes through the model and the bank"
    )
    advice = "the method it starts from found none: try another start"
    uses_data = True

    start: Explainer | None = None
    radius: float | Literal["auto"] = "auto"
    bank: ModelBank | None = None
    min_probability: float = 0.75
    steps: int = 200
    path_points: int = 10
    step_size: float | None = None
    baseline: float | tuple[float, ...] = 0.0
    noise: float = 0.0
    keep: Literal["best", "last"] = "best"
    endpoint_weight: float = 0.0

    def __post_init__(self) -> None:
        if hasattr(self.baseline, "tolist"):  # an array or a tensor
            self.baseline = tuple(cast(Any, self.baseline).tolist())

    @property
    def first(self) -> Explainer:
        """The method whose answers are moved."""
        if not isinstance(self.start, Explainer | None):
            raise SettingError(f"start must be a method, got {self.start!r}")
        return MinCost(norm=2) if self.start is None else self.start

    @Trait(False)  # a bool on the class and on instances, as in the base class
    def needs_data(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Only the method it starts from may need data."""
        return self.first.needs_data

    @Trait(1)
    def n_counterfactuals(self) -> int:
        """As many as the method it starts from gives."""
        return self.first.n_counterfactuals

    def check(self, model: Model) -> None:
        is_number = isinstance(self.radius, int | float)
        if self.radius != "auto" and not (is_number and self.radius >= 0):
            raise SettingError(
                f"radius must be 'auto' or a number of at least 0, got {self.radius!r}"
            )
        if not (self.steps >= 0 and self.path_points >= 1):
            raise SettingError("steps must be at least 0 and path_points at least 1")
        if not (self.step_size is None or self.step_size > 0):
            raise SettingError(f"step_size must be positive, got {self.step_size}")
        if not self.noise >= 0:
            raise SettingError(f"noise must be at least 0, got {self.noise}")
        if self.keep not in ("best", "last"):
            raise SettingError(f"keep must be 'best' or 'last', got {self.keep!r}")
        if not 0 < self.min_probability < 1:
            raise SettingError(
                f"min_probability must lie between 0 and 1, got {self.min_probability}"
            )
        # A baseline is one number for all columns, or one for each.
        many = 1 if isinstance(self.baseline, int | float) else len(self.baseline)
        width = model.schema.width
        if many not in (1, width):
            raise SettingError(
                f"baseline must be one number or {width}, one per encoded column, got {many}"
            )
        if self.bank is not None:
            self._check_bank(self.bank, model)
        self.first.check_call(model)

    def _check_bank(self, bank: object, model: Model) -> None:
        """Raise an error unless all models of the bank are networks like the model."""
        if not isinstance(bank, ModelBank):
            raise SettingError(f"bank must be a ModelBank, got {type(bank).__name__}")
        bank.check_fits(model)
        if any(group.networks is None for group in bank.groups):
            raise ModelError(
                "StableNeighborSearch follows gradients; this bank holds estimators, which have "
                "none"
            )

    @property
    def is_fitted(self) -> bool:
        """Only the start may need data; the radius does without."""
        return self.first.is_fitted

    @property
    def guided_by(self) -> frozenset[str]:
        """The models of the bank: they have helped to find the answers and may not certify them."""
        return self.first.guided_by | (
            self.bank.members() if self.bank is not None else frozenset[str]()
        )

    @property
    def signatures(self) -> tuple[tuple[float, ...], ...]:
        of_bank = (
            ()
            if self.bank is None
            else tuple(tuple(float(v) for v in row) for row in self.bank.signatures())
        )
        return (*self.first.signatures, *of_bank)

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Fit the method it starts from, and measure how far data typically lie from the
        boundary."""
        self.first.fit(model, X)
        x = encoded(X, model, "StableNeighborSearch")
        if model.has_grad:
            self.depth_ = typical_distance(model, x)

    def search(self, problem: SearchProblem) -> Tensor:
        m = self.n_counterfactuals
        found = self.first.searched(problem).rows.reshape(len(problem) * m, -1)
        many = problem if m == 1 else problem[torch.arange(len(problem)).repeat_interleave(m)]
        x0 = torch.where(
            found.isfinite().all(1, keepdim=True), many.feasible.project(found), many.x
        )
        rows = many.met(x0).nonzero().squeeze(1)
        out = x0.clone()
        for part in chunks(rows, self._together(problem.model)):
            full = whole_blocks(part)
            out[part] = self._refine(many[full], x0[full], self._radius(problem))[: len(part)]
        return out.reshape(len(problem), m, -1) if m > 1 else out

    def _radius(self, problem: SearchProblem) -> float:
        if self.radius != "auto":
            return float(self.radius)
        guided = self.bank is not None
        encoding = problem.feasible.encoding
        if hasattr(self, "depth_"):
            radius = (DEPTH_WITH_BANK if guided else DEPTH) * self.depth_
        else:
            radius = (OF_RANGE_WITH_BANK if guided else OF_RANGE) * encoding.diagonal
        return max(radius, SWITCH) if encoding.groups.numel() else radius

    def _together(self, model: Model) -> int:
        """How many rows to move at once."""
        engine = model.engine
        width = max((len(w) for w, _ in engine.weights), default=64) if engine else 64
        models = 1 + (len(self.bank) if self.bank is not None else 0)
        return rows_per_chunk(
            models * self.path_points * width, CACHE_CELLS, at_least=4 * ROW_BLOCK, block=ROW_BLOCK
        )

    def _value(self, problem: SearchProblem, y: Tensor, path: Path) -> PathValue:
        """One pass over the model and the bank."""
        base = path_value(problem.model, y, path)
        if self.bank is None:
            return base
        stacks = [
            (group.dtype, group.networks)
            for group in self.bank.groups
            if group.networks is not None
        ]
        others = [
            (dtype, stack_value(nets, y, Path(*[v.to(dtype) for v in path])))
            for dtype, nets in stacks
        ]

        def value(z: Tensor) -> Value:
            out = base(z)
            for dtype, other in others:
                more = Value(*[v.to(z.dtype) for v in other(z.to(dtype))])
                least = torch.minimum(out.least, more.least)
                out = Value(out.total + more.total, least, out.slope + more.slope, out.scores)
            return out

        return value

    def _refine(self, problem: SearchProblem, x0: Tensor, radius: float) -> Tensor:
        """Ascent from answers `x0`; the results are reachable, in the ball, and of the same
        class."""
        size = self.step_size or 2 * radius / max(self.steps, 1)
        baseline = torch.zeros_like(x0[0]) + torch.as_tensor(self.baseline, dtype=x0.dtype)
        path = Path.of(baseline, self.path_points, self.endpoint_weight)
        climb = Climb.start(problem, x0)
        out = x0.clone()
        rows = torch.arange(len(x0))
        value = self._value(problem, climb.y, path)
        for i in range(self.steps + 1):
            p = self._hand_in(climb.problem, climb.z, climb.x0, radius)
            judged = value(p)
            climb = self._kept(climb, p, judged, first=i == 0)
            if i == self.steps or (i and problem.budget.over()):
                break
            movable = climb.problem.feasible.movable
            move = size * direction(judged.slope * movable)
            if self.noise and i == 0:  # only now, so that x0 itself is among the points to keep
                move += self.noise * problem.rng.normal(x0.shape[1], draw=1 << 20, dtype=x0.dtype)
            ahead = climb.x0 + l2.project(climb.z + move - climb.x0, radius)
            climb = replace(climb, z=climb.problem.feasible.clamp(ahead))
            # With a bank, rows finish one by one: go on with the others, in whole blocks.
            if self.bank is not None and i % EVERY == 0 and climb.half_done:
                out[rows] = climb.best
                stay = (~climb.done).nonzero().squeeze(1)
                if not len(stay):
                    return out
                stay = whole_blocks(stay)
                rows = rows[stay]
                climb = climb.of(stay)
                value = self._value(climb.problem, climb.y, path)
        out[rows] = climb.best
        return out

    def _kept(self, climb: "Climb", p: Tensor, judged: Value, *, first: bool) -> "Climb":
        """Keep the points p where they are better than those kept before."""
        best = climb.best
        done = climb.done
        highest = climb.highest
        same_class = judged.scores.argmax(1) == climb.y
        ok = climb.problem.goal.met(judged.scores, SLACK) & same_class & ~done
        if self.bank is not None:
            agreed = ok & (judged.least >= self.min_probability)
            # the first such point is kept
            best = torch.where(agreed[:, None], p, best)
            done = done | agreed
            ok &= ~agreed
        if self.keep == "best":
            # the later of equal ones: the value is rounded to 1 long before the slope is to 0
            ok &= highest <= judged.total
            highest = torch.where(ok, judged.total, highest)
        if not first or self.keep == "best":
            best = torch.where(ok[:, None], p, best)
        return replace(climb, best=best, highest=highest, done=done)

    def _hand_in(self, problem: SearchProblem, z: Tensor, x0: Tensor, radius: float) -> Tensor:
        """The reachable row for z; if rounding leaves the ball, the answer we started from."""
        if problem.feasible.is_box:
            return z
        p = problem.feasible.project(z)
        outside = l2.value(p - x0) > radius * (1 + 1e-6)
        return torch.where(outside[:, None], x0, p)


@dataclass(frozen=True, eq=False)
class Climb:
    """Where the ascent has got to, row by row."""

    problem: SearchProblem
    y: Tensor  # (n,) the class to keep
    x0: Tensor  # (n, d) where it started
    z: Tensor  # (n, d) where it is
    best: Tensor  # (n, d) the point to return
    highest: Tensor  # (n,) its value
    done: Tensor  # (n,) rows whose point the bank agrees on

    @classmethod
    def start(cls, problem: SearchProblem, x0: Tensor) -> "Climb":
        y = problem.model(x0).argmax(1)
        highest = x0.new_full((len(x0),), -torch.inf)
        return cls(problem, y, x0, x0, x0, highest, torch.zeros(len(x0), dtype=torch.bool))

    @property
    def half_done(self) -> bool:
        return int(self.done.sum()) * 2 >= len(self.done)

    def of(self, rows: Tensor) -> "Climb":
        """Some of the rows."""
        return Climb(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def direction(g: Tensor) -> Tensor:
    """Each row at length 1, zero rows as they are; scaled first, since squares of tiny slopes would
    vanish."""
    return l2.ascent(g / g.abs().amax(1, keepdim=True).clamp_min(torch.finfo(g.dtype).tiny))


def typical_distance(model: Model, x: Tensor) -> float:
    """The median over rows of |gap| / |gradient of the gap|: how far they are from the boundary, if
    it were flat."""
    out = list[Tensor]()
    with model.eval_mode():
        for part in chunks(x, 1 << 14):
            goal = Target(None).bind(model, model(part))
            gap, _, pull = model.shortfall(part, goal, 0.0)
            slope = l2.value(pull(torch.ones_like(gap)))
            out.append(gap.squeeze(1).abs() / slope.clamp_min(torch.finfo(x.dtype).tiny))
    distance = torch.cat(out)
    distance = distance[distance.isfinite()]
    if len(distance) <= 0:
        raise SettingError("no data row has a slope to measure; give a radius")
    return float(distance.median())
