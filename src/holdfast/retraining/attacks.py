"""Attacks inside a ball: the rows near x that a model gets most wrong.

    z_0     = x + epsilon u,   u in the unit ball           or x itself
    z_{t+1} = P( z_t + a epsilon dir(grad_z loss(z_t)) )    P: into the ball around x and the box

    linf    dir(g) = sign(g)      |z - x|_inf <= epsilon
    l2      dir(g) = g / |g|_2    |z - x|_2   <= epsilon

FGSM (Goodfellow et al. 2015) is one step with a = 1 from x; PGD (Madry et al. 2018) has several
shorter ones. For two classes and a linear score, FGSM in the linf ball is the exact maximum, box or
no box.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.distances import BallNorm, Distance, distance_of, l2, linf
from holdfast.errors import SettingError

# rows (.., n, d) -> for each row a positive multiple of the loss's gradient
Rise = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Adversary:
    """How an attack moves.

    Paper: krishna2024 Eq. 1, Eq. 14 to 16.
    """

    steps: int = 10
    norm: BallNorm | Distance = "linf"  # the ball
    size: float | None = None  # length of a step as a share of epsilon; None takes 2.5 / steps
    start: bool = True  # from a random point of the ball, or from the row itself

    def __post_init__(self) -> None:
        if not self.steps >= 1:
            raise SettingError(f"steps must be at least 1, got {self.steps}")
        distance_of(self.norm, (linf, l2))
        if not (self.size is None or self.size > 0):
            raise SettingError(f"size must be positive, got {self.size}")

    @classmethod
    def fgsm(cls, norm: BallNorm | Distance = "linf") -> "Adversary":
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
        # every ball lies inside these as well
        lo = x - radius
        hi = x + radius
        if box is not None:
            lo = torch.minimum(torch.maximum(lo, box[0]), x)
            hi = torch.maximum(torch.minimum(hi, box[1]), x)
        step = (self.size or 2.5 / self.steps) * radius
        z = x
        ball = distance_of(self.norm)
        if self.start and noise is not None:
            z = self._inside(x + radius * noise, x, epsilon, lo, hi)
        for _ in range(self.steps):
            g = rise(z)
            direction = ball.ascent(g if free is None else g * free)
            z = self._inside(torch.addcmul(z, direction, step), x, epsilon, lo, hi)
        return z

    def _inside(self, z: Tensor, x: Tensor, epsilon: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        ball = distance_of(self.norm)
        return torch.clamp(z if ball.ball_is_box else x + ball.project(z - x, epsilon), lo, hi)
