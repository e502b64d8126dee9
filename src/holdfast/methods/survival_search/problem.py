"""The search problem whose gap is a bound on what retrained models give."""

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.methods.survival_search.guide import Guide
from holdfast.nn.relu_network import Pullback
from holdfast.problem import SLACK, SearchProblem

TINY = 1e-6


@dataclass(frozen=True)
class SurvivalProblem(SearchProblem):
    """S_c(z) = min( g(z), mean_m g_m(z) - c sd_m g_m(z) ), over the models m of a guide.

    Args:
        guides: the models, by architecture.
        c: (n,) how many standard deviations each row asks for.
    """

    guides: tuple[Guide, ...]
    c: Tensor

    @staticmethod
    def of(problem: SearchProblem, guides: tuple[Guide, ...], c: Tensor) -> "SurvivalProblem":
        return SurvivalProblem(
            problem.model, problem.x, problem.goal, problem.feasible, problem.rng, problem.budget, guides, c
        )

    def __getitem__(self, rows: Tensor) -> "SurvivalProblem":
        return SurvivalProblem.of(super().__getitem__(rows), self.guides, self.c[rows])

    def margins(self, z: Tensor) -> Tensor:
        """(M, n)"""
        return torch.cat([guide.margins(z, self.goal) for guide in self.guides])

    def gap(self, z: Tensor) -> Tensor:
        g = self.margins(z)
        sd, mean = torch.std_mean(g, 0)
        return torch.minimum(super().gap(z), mean - self.c * sd - SLACK)

    def met(self, z: Tensor) -> Tensor:
        return self.gap(z) > 0

    def gap_and_gradient(self, z: Tensor) -> tuple[Tensor, Tensor]:
        u, v, own_pull = super().shortfall(z)
        own, grad = -u.squeeze(1), own_pull(torch.full_like(v, -1.0))
        parts = [guide.margins_and_pull(z, self.goal) for guide in self.guides]
        g = torch.cat([margins for margins, _ in parts])  # (M, n)
        m = len(g)
        sd, mean = torch.std_mean(g, 0)
        bound = mean - self.c * sd - SLACK
        weights = 1 / m - self.c * (g - mean) / ((m - 1) * sd.clamp_min(TINY))
        total = torch.zeros_like(grad)
        first = 0
        for guide, (_, pull) in zip(self.guides, parts, strict=True):
            total += pull(weights[first : first + guide.count]).to(grad.dtype)
            first += guide.count
        own_binds = own < bound
        return torch.minimum(own, bound), torch.where(own_binds[:, None], grad, total)

    def shortfall(self, z: Tensor, *, soft: bool | None = None) -> tuple[Tensor, Tensor, Pullback]:
        gap, grad = self.gap_and_gradient(z)
        u = -gap[:, None]
        return u, u, lambda outer: outer * -grad
