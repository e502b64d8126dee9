"""Attacks inside a ball: rows near x that a model gets most wrong.

    z_0     = x + epsilon u,   u in the unit ball               or x itself
    z_{t+1} = P( z_t + a epsilon dir(grad_z loss(z_t)) )        P: into the ball around x, and into the box

    linf    dir(g) = sign(g)      |z - x|_inf <= epsilon
    l2      dir(g) = g / |g|_2    |z - x|_2   <= epsilon

FGSM (Goodfellow et al. 2015) is one step with a = 1 from x; PGD (Madry et al. 2018) has several shorter ones. For two
classes and a linear score, FGSM in the linf ball is the exact maximum, box or no box.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast.errors import SettingError

Ball = Literal["linf", "l2"]
Rise = Callable[[Tensor], Tensor]  # rows (.., n, d) -> a positive multiple, for each row, of the loss's gradient


@dataclass(frozen=True)
class Adversary:
    """How an attack moves.

    Args:
        steps: how many steps.
        norm: the ball: "linf" or "l2".
        size: length of a step as a share of epsilon; None takes 2.5 / steps.
        start: from a random point of the ball, or from the row itself.
    """

    steps: int = 10
    norm: Ball = "linf"
    size: float | None = None
    start: bool = True

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise SettingError(f"steps must be at least 1, got {self.steps}")
        if self.norm not in ("linf", "l2"):
            raise SettingError(f"norm must be 'linf' or 'l2', got {self.norm!r}")
        if self.size is not None and not self.size > 0:
            raise SettingError(f"size must be positive, got {self.size}")

    @classmethod
    def fgsm(cls, norm: Ball = "linf") -> "Adversary":
        """One step to the rim of the ball."""
        return cls(1, norm, 1.0, start=False)

    def attack(
        self,
        rise: Rise,
        x: Tensor,
        epsilon: Tensor | float,
        *,
        noise: Tensor | None = None,
        box: tuple[Tensor, Tensor] | None = None,
        free: Tensor | None = None,
    ) -> Tensor:
        """Rows like x (.., n, d), each in its ball.

        Args:
            rise: which way the loss rises.
            epsilon: the radius, one for all or anything that broadcasts against the rows.
            noise: numbers between -1 and 1 for the random start, like x.
            box: lowest and highest values; columns of x outside stay where they are.
            free: (d,) which columns may move.
        """
        epsilon = torch.as_tensor(epsilon, dtype=x.dtype)
        radius = epsilon if free is None else epsilon * free.to(x.dtype)
        lo, hi = x - radius, x + radius  # the l2 ball is inside these as well
        if box is not None:
            lo = torch.minimum(torch.maximum(lo, box[0]), x)
            hi = torch.maximum(torch.minimum(hi, box[1]), x)
        step, z = (self.size or 2.5 / self.steps) * radius, x
        if self.start and noise is not None:
            z = self._inside(x + radius * noise, x, epsilon, lo, hi)
        for _ in range(self.steps):
            g = rise(z)
            if self.norm == "l2" and free is not None:
                g = g * free
            direction = torch.sign(g) if self.norm == "linf" else g / length(g).clamp_min(torch.finfo(g.dtype).tiny)
            z = self._inside(torch.addcmul(z, direction, step), x, epsilon, lo, hi)
        return z

    def _inside(self, z: Tensor, x: Tensor, epsilon: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        if self.norm == "l2":
            delta = z - x
            z = x + delta * (epsilon / length(delta).clamp_min(torch.finfo(z.dtype).tiny)).clamp_max(1.0)
        return torch.clamp(z, lo, hi)


def length(rows: Tensor) -> Tensor:
    """(.., n, 1) the l2 norm of each row."""
    return rows.square().sum(-1, keepdim=True).sqrt()
