"""Stable Neighbor Search: move each answer to a nearby point that retrained models accept too.

Black, Wang, Fredrikson and Datta, "Consistent Counterfactuals for Deep Models", ICLR 2022, Definition 5:

    maximise over z   1/P sum_{j=1..P} p_y( b + j/P (z - b) )        p_y: probability of the answer's class y
    subject to        |z - x0| <= radius,  argmax p(z) = y,  z reachable

x0 is the answer of another method. Steps have the length 2 radius / steps whatever the gradient's; after each
the point returns to the ball and to what the person can reach. A row with no acceptable move keeps x0.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import pandas as pd
import torch
from torch import Tensor

from holdfast.explainer import SLACK, Explainer, Query, need
from holdfast.geometry import ROW_BLOCK, chunks, clip_norm, row_norm
from holdfast.model import Model
from holdfast.robust.path import path_value
from holdfast.search.minimal import MinCost

ROWS = 256  # rows refined at once: the points of their paths stay in a core's cache
AUTO = 0.25  # of the typical spread of the data, see `auto_radius`


class OfStart:
    """A trait that a wrapper takes from the method it wraps."""

    def __init__(self, name: str, alone: Any) -> None:
        self.name, self.alone = name, alone

    def __get__(self, wrapper: Any, kind: type) -> Any:
        return self.alone if wrapper is None else getattr(wrapper.start, self.name)


@dataclass(eq=False, repr=False)
class StableNeighborSearch(Explainer):
    """The answers of another method, moved by at most `radius` to where retrained models agree.

    Args:
        start: the method whose answers are moved.
        radius: how far, in encoded units (l2); "auto" takes it from the range of the data, see `auto_radius`.
        steps, points: steps of the ascent, and points on each line.
        step_size: length of a step; None takes 2 radius / steps.
        baseline: where the lines start, in encoded units: one number, or one per encoded column.
        noise: standard deviation of a random shift before the first step (the authors' code: 1e-3).
        keep: the "best" point on the way by the objective, or the "last" acceptable one as in the paper.
        end: extra weight of the point itself in the objective; 1 gives the paper's Equation 5.
    """

    title: ClassVar[str] = "another method's answers, moved to where retrained models agree"
    paper: ClassVar[str] = "Black et al. 2022"
    advice: ClassVar[str] = "the method it starts from found none: try another start"
    needs_data: ClassVar[Any] = OfStart("needs_data", False)
    answers: ClassVar[Any] = OfStart("answers", 1)

    start: Explainer = field(default_factory=lambda: MinCost(norm=2))
    radius: float | Literal["auto"] = "auto"
    steps: int = 200
    points: int = 10
    step_size: float | None = None
    baseline: float | tuple[float, ...] = 0.0
    noise: float = 0.0
    keep: Literal["best", "last"] = "best"
    end: float = 0.0

    def check(self, model: Model) -> None:
        given = self.radius == "auto" or (not isinstance(self.radius, str) and self.radius >= 0)
        need(given, f"radius must be 'auto' or a number of at least 0, got {self.radius!r}")
        need(self.steps >= 0 and self.points >= 1, "steps must be at least 0 and points at least 1")
        need(self.step_size is None or self.step_size > 0, f"step_size must be positive, got {self.step_size}")
        need(self.noise >= 0, f"noise must be at least 0, got {self.noise}")
        need(self.keep in ("best", "last"), f"keep must be 'best' or 'last', got {self.keep!r}")
        need(isinstance(self.start, Explainer), f"start must be a method, got {self.start!r}")
        many = 1 if isinstance(self.baseline, int | float) else len(self.baseline)
        width = model.schema.width
        need(many in (1, width), f"baseline must be one number or {width}, one per encoded column, got {many}")
        self.start.check_call(model)

    def fit(self, X: pd.DataFrame | Tensor, model: Model) -> Self:
        """Fit the method it starts from."""
        self.start.fit(X, model)
        return self

    def search(self, query: Query) -> Tensor:
        m = self.answers
        found = self.start.search(query).reshape(len(query) * m, -1)
        many = query if m == 1 else query[torch.arange(len(query)).repeat_interleave(m)]
        x0 = torch.where(found.isfinite().all(1, keepdim=True), many.reach.project(found), many.x)
        radius = auto_radius(query) if self.radius == "auto" else float(self.radius)
        rows = many.met(x0).nonzero().squeeze(1)
        out = x0.clone()
        for part in chunks(rows, ROWS):
            # Filled up with copies of the last row: the same row then gets the same bits in any company.
            full = torch.cat([part, part[-1:].repeat(-len(part) % ROW_BLOCK)])
            out[part] = self._refine(many[full], x0[full], radius)[: len(part)]
        return out.reshape(len(query), m, -1) if m > 1 else out

    def _refine(self, query: Query, x0: Tensor, radius: float) -> Tensor:
        """Ascent from answers `x0`; what comes back is reachable, in the ball, and of the same class."""
        reach, size = query.reach, self.step_size or 2 * radius / max(self.steps, 1)
        y = query.model(x0).argmax(1)
        baseline = torch.zeros_like(x0[0]) + torch.as_tensor(self.baseline, dtype=x0.dtype)
        value = path_value(query.model, y, baseline, self.points, self.end)
        free = reach.movable.to(x0.dtype)
        z, best = x0, x0
        if self.noise:
            shift = self.noise * free * query.random.normal(x0.shape[1], draw=1 << 20, dtype=x0.dtype)
            z = reach.clamp(x0 + clip_norm(shift, radius))
        highest = x0.new_full((len(x0),), -torch.inf)
        for i in range(self.steps + 1):
            p = self._hand_in(query, z, x0, radius)
            J, scores, g = value(p)
            ok = query.goal.met(scores, SLACK) & (scores.argmax(1) == y)
            if self.keep == "best":
                ok &= highest < J
                highest = torch.where(ok, J, highest)
            if i or self.keep == "best":
                best = torch.where(ok[:, None], p, best)
            if i == self.steps or (i and query.clock.over()):
                break
            z = reach.clamp(x0 + clip_norm(z + size * direction(g * free) - x0, radius))
        return best

    def _hand_in(self, query: Query, z: Tensor, x0: Tensor, radius: float) -> Tensor:
        """The reachable row for z; where whole values do not fit into the ball, the answer we started from."""
        if query.reach.is_box:
            return z
        p = query.reach.project(z)
        outside = row_norm(p - x0, 2) > radius * (1 + 1e-6)
        return torch.where(outside[:, None], x0, p)


def direction(g: Tensor) -> Tensor:
    """Each row at length 1, zero rows as they are; scaled first, as squares of tiny slopes would vanish."""
    tiny = torch.finfo(g.dtype).tiny
    g = g / g.abs().amax(1, keepdim=True).clamp_min(tiny)
    return g / row_norm(g, 2).clamp_min(tiny)[:, None]


def auto_radius(query: Query) -> float:
    """A radius from the range of the data alone."""
    return AUTO * query.reach.layout.diagonal
