"""ClaPROAR: gradient descent that also pays the loss that a model retrained on the answer would have there."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from holdfast.errors import require
from holdfast.methods._guided import GuidedMethod, GuidedWalk
from holdfast.models.base import Model
from holdfast.problem import SearchProblem


@dataclass(eq=False, repr=False, kw_only=True)
class ClaPROAR(GuidedMethod):
    """Gradient descent that also pays the loss that a model retrained on the answer would have there.

    Args:
        external: weight of that loss.
        lam, tau, lr, steps: see `GuidedMethod`.
    """

    title: ClassVar[str] = "gradient descent that also pays the loss of the model's next training"
    paper: ClassVar[str] = "Altmeyer et al. 2023 (ClaPROAR)"

    lam: float = 0.1
    external: float = 0.5

    def check(self, model: Model) -> None:
        super().check(model)
        require(self.external >= 0, f"external must be 0 or more (below 0 it rewards the loss), got {self.external}")

    def walk(self, problem: SearchProblem) -> "LossWalk":
        return LossWalk(self, problem)


class LossWalk(GuidedWalk):
    """The walk with a second, weighted cross-entropy."""

    def __init__(self, how: ClaPROAR, problem: SearchProblem) -> None:
        super().__init__(how, problem)
        self.weight = 1 + how.external

    def by_scores(self, scores: Tensor, s: Tensor, t: int) -> Tensor:
        return self.weight * (s - self.own)
