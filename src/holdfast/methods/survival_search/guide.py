"""Margins of many retrained models at once, and the way back from weights on them to gradients by the rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from holdfast.models.scores import to_scores
from holdfast.nn.stack import ModelStack, Stack
from holdfast.retraining.bank import ModelBank
from holdfast.target import BoundTarget

Pull = Callable[[Tensor], Tensor]  # weights (M, n) on the margins -> gradients (n, d)


class Guide(ABC):
    """Some of the models of a bank."""

    count: int

    @abstractmethod
    def margins(self, z: Tensor, goal: BoundTarget) -> Tensor:
        """(M, n) by how much each model exceeds the goal at rows z (n, d)."""

    def margins_and_pull(self, z: Tensor, goal: BoundTarget) -> tuple[Tensor, Pull]:
        """The same, and the pullback, of models with gradients."""
        raise NotImplementedError


def margins_of(scores: Tensor, goal: BoundTarget) -> Tensor:
    """(M, n, k) scores -> (M, n)."""
    m, n = scores.shape[:2]
    rows = torch.arange(n).repeat(m)
    return (goal[rows].gap(scores.flatten(0, 1)) - goal.margin).view(m, n)


class ReluGuide(Guide):
    """Linear and ReLU networks of one architecture: the first layer of all of them is one product."""

    def __init__(self, models: Stack) -> None:
        self.count, self.layers = models.count, models.layers
        (w, b), d = models.layers[0], models.sizes[0]
        self.width = w.shape[2]
        self.first = w.permute(1, 0, 2).reshape(d, -1).contiguous()  # (d, M h)
        self.first_bias = b.reshape(1, -1)
        self.back = self.first.T.contiguous()

    def _forward(self, z: Tensor) -> tuple[Tensor, list[Tensor]]:
        n = len(z)
        h = torch.addmm(self.first_bias, z.to(self.first.dtype), self.first)  # (n, M h)
        if len(self.layers) == 1:
            return h.view(n, self.count, -1).transpose(0, 1), []
        h = h.relu_().view(n, self.count, self.width).transpose(0, 1)  # (M, n, h)
        hidden = [h]
        for w, b in self.layers[1:-1]:
            h = torch.baddbmm(b, h, w).relu_()
            hidden.append(h)
        w, b = self.layers[-1]
        return torch.baddbmm(b, h, w), hidden

    def margins(self, z: Tensor, goal: BoundTarget) -> Tensor:
        raw, _ = self._forward(z)
        return margins_of(_scores(raw), goal)

    def margins_and_pull(self, z: Tensor, goal: BoundTarget) -> tuple[Tensor, Pull]:
        raw, hidden = self._forward(z)
        m, n, k = raw.shape
        rows = torch.arange(n).repeat(m)
        gap, slope = goal[rows].gap_and_slope(_scores(raw).flatten(0, 1))
        slope = slope.view(m, n, -1)
        if k == 1:
            slope = slope[..., 1:] - slope[..., :1] if slope.shape[2] == 2 else slope

        def pull(weights: Tensor) -> Tensor:
            g = weights[..., None] * slope  # (M, n, k)
            for (w, _), h in zip(reversed(self.layers[1:]), reversed(hidden), strict=True):
                g = torch.bmm(g, w.transpose(1, 2))
                g *= h > 0
            return g.transpose(0, 1).reshape(n, -1) @ self.back

        return (gap - goal.margin).view(m, n), pull


def _scores(raw: Tensor) -> Tensor:
    m, n = raw.shape[:2]
    return to_scores(raw.flatten(0, 1), "logits").view(m, n, -1)
