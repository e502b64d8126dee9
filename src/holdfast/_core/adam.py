"""Adam (Kingma and Ba 2015): one step of many tensors at once, and the optimiser of a stack of
models.

    m <- b1 m + (1 - b1) g
    v <- b2 v + (1 - b2) g^2
    p <- p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

torch's fused kernel, which `torch.optim.Adam(fused=True)` calls, makes a step in one pass over
memory. It is private, so where torch has none, plain tensor operations do the same up to rounding.
The optimiser itself, over one tensor for each model, gives the same bits in 1.8 to 4.5 times the
time: it gathers its lists of tensors anew in every step.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

BETAS = 0.9, 0.999
EPS = 1e-8
FUSED_ADAM: Any = getattr(torch, "_fused_adam_", None)


def adam_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    counts: Sequence[Tensor],
    *,
    lr: float,
    eps: float = EPS,
    weight_decay: float = 0.0,
) -> None:
    """One step of each tensor, in place.

    Args:
        parameters, gradients: p and g, alike in shape; gradients stay as they are.
        means, squares: m and v, in place too.
        counts: t of each tensor, a number in a float32 tensor; 1 in the first step.
        weight_decay: adds weight_decay p to g.
    """
    b1, b2 = BETAS
    if FUSED_ADAM is not None:
        FUSED_ADAM(
            parameters,
            gradients,
            means,
            squares,
            [],
            counts,
            lr=lr,
            beta1=b1,
            beta2=b2,
            weight_decay=weight_decay,
            eps=eps,
            amsgrad=False,
            maximize=False,
        )
        return
    for p, g, m, v, count in zip(parameters, gradients, means, squares, counts, strict=True):
        t = float(count)
        g = g + weight_decay * p if weight_decay else g
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        root = (v / (1 - b2**t)).sqrt_().add_(eps)
        p.addcdiv_(m, root, value=-lr / (1 - b1**t))


class Adam:
    """Adam on the parameters of M models, in place; each has a count of steps, as some make fewer
    than others.

    Args:
        theta: (M, P) one row for each model, or (P,): one vector with one count.
        lr, eps, weight_decay: as in `adam_step`.
    """

    def __init__(
        self, theta: Tensor, *, lr: float, eps: float = EPS, weight_decay: float = 0.0
    ) -> None:
        self.theta = theta
        self.lr = lr
        self.eps = eps
        self.weight_decay = weight_decay
        self.m = torch.zeros_like(theta)
        self.v = torch.zeros_like(theta)
        self.counts = torch.zeros(len(theta) if theta.ndim == 2 else 1)
        self.rows = [list(held.unbind()) if held.ndim == 2 else [held] for held in self.held]
        self.count_of = list(self.counts.unbind())

    @property
    def held(self) -> list[Tensor]:
        """All that a step changes, number by number."""
        return [self.theta, self.m, self.v]

    def step(self, g: Tensor) -> None:
        """A step by gradients g: of the first models, as many as it has rows, or of the one
        vector."""
        gradients = list(g.unbind()) if g.ndim == 2 else [g]
        n = len(gradients)
        self.counts[:n] += 1
        theta, m, v = (rows[:n] for rows in self.rows)
        settings = {"lr": self.lr, "eps": self.eps, "weight_decay": self.weight_decay}
        adam_step(theta, gradients, m, v, self.count_of[:n], **settings)
