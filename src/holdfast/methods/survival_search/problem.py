"""The search problem whose gap is a bound on what retrained models give."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from holdfast._core.types import Pullback
from holdfast.methods.survival_search.guide import Guide
from holdfast.problem import SLACK, SearchProblem
from holdfast.retraining.stretch import stretched_weights

TINY = 1e-6


@dataclass(frozen=True)
class SurvivalProblem(SearchProblem):
    """S_c(z) = min( g(z), mean_m g_m(z) - c sd_m g_m(z) ), over the models m of a guide.

    Args:
        guide: the models.
        c: (n,) how many standard deviations each row asks for.
    """

    guide: Guide
    c: Tensor

    @classmethod
    def of(cls, problem: SearchProblem, guide: Guide, c: Tensor) -> Self:
        """The problem with a guide, and c (n,)."""
        return cls(
            problem.model,
            problem.x,
            problem.goal,
            problem.feasible,
            problem.rng,
            problem.budget,
            guide,
            c,
        )

    def __getitem__(self, rows: Tensor) -> Self:
        return self.of(super().__getitem__(rows), self.guide, self.c[rows])

    def bound(self, z: Tensor) -> Tensor:
        """(n,) mean - c sd of the guide's margins."""
        return self.bound_of(self.guide.margins(z, self.goal), self.own_margin(z))

    def bound_of(self, margins: Tensor, own: Tensor, who: Tensor | None = None) -> Tensor:
        """The same from known margins (M, n, ..) and those of the model in use (n, ..), for all
        rows or for some, (n,)."""
        c = self.c if who is None else self.c[who]
        return lower_bound(self.guide.judged(margins, own), c.view(-1, *[1] * (margins.ndim - 2)))

    def weights_of(self, margins: Tensor) -> Tensor:
        """(M, n) the derivative of the bound by the margins of judges."""
        sd, mean = torch.std_mean(margins, 0)
        m = len(margins)
        c = self.c.to(margins.dtype)
        return 1 / m - c * (margins - mean) / ((m - 1) * sd.clamp_min(TINY))

    def own_margin(self, z: Tensor) -> Tensor:
        """(n,) the margin of the model in use, in the guide's units."""
        return super().gap(z) + SLACK

    def own_gap(self, z: Tensor) -> Tensor:
        """(n,) how far the model itself exceeds the goal."""
        return self.guide.squashed(super().gap(z))

    def gap(self, z: Tensor) -> Tensor:
        exceeds = super().gap(z)
        margins = self.guide.margins(z, self.goal)
        bound = self.bound_of(margins, exceeds + SLACK) - SLACK
        own = self.guide.squashed(exceeds)
        return torch.minimum(own, bound.to(own.dtype))

    def met(self, z: Tensor) -> Tensor:
        return self.gap(z) > 0

    def gap_and_gradient(self, z: Tensor) -> tuple[Tensor, Tensor]:
        u, v, own_pull = super().shortfall(z)
        own = -u.squeeze(1)
        grad = own_pull(torch.full_like(v, -1.0))
        margins, pull = self.guide.margins_and_pull(z, self.goal)  # (M, n)
        judged = self.guide.judged(margins, own + SLACK)
        bound = (lower_bound(judged, self.c) - SLACK).to(own.dtype)
        weights = self.weights_of(judged)
        if self.guide.spread is None:
            slope = pull(weights).to(grad.dtype)
        else:
            of_models, of_own = stretched_weights(own + SLACK, margins, self.guide.spread, weights)
            slope = pull(of_models).to(grad.dtype) + of_own[:, None].to(grad.dtype) * grad
        return torch.minimum(own, bound), torch.where((own < bound)[:, None], grad, slope)

    def shortfall(self, z: Tensor, *, soft: bool | None = None) -> tuple[Tensor, Tensor, Pullback]:
        gap, grad = self.gap_and_gradient(z)
        return -gap[:, None], -gap[:, None], lambda outer: outer * -grad


def lower_bound(margins: Tensor, c: Tensor) -> Tensor:
    """mean - c sd over the first axis; with a single model, its own margin."""
    if len(margins) == 1:
        return margins[0]
    sd, mean = torch.std_mean(margins, 0)
    return mean - c.to(margins.dtype) * sd
