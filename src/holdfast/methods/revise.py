"""REVISE: gradient descent in the latent space of a VAE, so that answers look like data.

Steps are Adam's; gradients go through model and decoder by hand. The VAE is given the columns that
cannot change. Categories are mixtures of levels while z moves; the row that is judged, and kept if
it is the cheapest success so far, is the nearest one that a person can hand in.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast._core.checks import require_positive, require_weight
from holdfast.distances import Distance, Norm, penalty_of
from holdfast.errors import SettingError
from holdfast.methods._autoencoder import TableAutoencoder
from holdfast.methods._best import BestOfWalk
from holdfast.methods._latent import LatentMethod
from holdfast.methods._walk import Walk
from holdfast.methods.descent import Descent
from holdfast.models.base import Model
from holdfast.problem import SearchProblem

# the most numbers that exp and the like handle as one; the remainder may differ in the last bit
LANES = 32


@dataclass(eq=False, repr=False)
class REVISE(LatentMethod):
    """Gradient descent on a loss plus a distance, over latent codes.

        minimise over z    softplus(margin - gap(dec(z))) + lam * distance(dec(z), x)
                           from z = enc(x)

    Args:
        lam: weight of the distance.
        norm: 1, 2 (squared), a name such as "linf", or a `Distance`: what pulls back.
        lr, steps: step size and number of steps.
        kind, hidden, latent, epochs, beta, seed, autoencoder: see `LatentMethod`.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> method = hf.REVISE(steps=50, hidden=(16,), latent=2, epochs=5).fit(model, data.X)
    >>> len(method.explain(model, data.X.head(20), "yes"))
    20

    Reference:
        Joshi et al. 2019, "Towards Realistic Individual Recourse and Actionable Explanations in
        Black-Box Decision Making Systems".

    Paper: altmeyer2025 Generator REVISE.
    """

    title = "gradient descent over the row's code in a conditional VAE"
    paper = "Joshi et al. 2019 (REVISE)"
    when = "answers should look like data, and both model and data can be differentiated through"
    cost = "steps gradient passes through model and decoder, after training a VAE once"
    needs_grad = True
    advice = "raise steps, lower lam, or try NearestNeighbor"

    lam: float = 0.1
    norm: Norm | Distance = 1
    lr: float = 0.05
    steps: int = 500

    def check(self, model: Model) -> None:
        super().check(model)
        penalty_of(self.norm)
        require_weight("lam", self.lam, "distance")
        require_positive("lr", self.lr)
        if not self.steps >= 1:
            raise SettingError(f"steps must be at least 1, got {self.steps}")

    def search(self, problem: SearchProblem) -> Tensor:
        n = len(problem)
        how = Descent(norm=self.norm, lam=self.lam, lr=self.lr, steps=self.steps)
        problem = problem[torch.arange(n + -n % LANES).clamp_max(n - 1)]
        walk = LatentWalk(how, problem, self.autoencoder_)
        p = problem.x
        best = BestOfWalk(problem, walk.distance)
        for t in problem.steps(self.steps + 1):
            p, u = walk.advance(problem, t)
            best.see(p, u)
        return best.done(p)[0][:n]


class LatentWalk(Walk):
    """The walk of `Descent`, over codes."""

    def __init__(self, how: Descent, problem: SearchProblem, net: TableAutoencoder) -> None:
        super().__init__(how, problem, how.lam)
        self.net = net
        self.z = net.encode(problem.x).contiguous()
        self.m = torch.zeros_like(self.z)
        self.v = torch.full_like(self.z, 1e-16)
        self.far = self.z.new_tensor(torch.inf)

    def advance(self, problem: SearchProblem, t: int) -> tuple[Tensor, Tensor]:
        """Move all codes once; returns the reachable rows they stood for, and how far these are
        from the goal (below 0: met).

        The gradient is taken at the decoded rows, which need not be reachable.
        """
        y, to_code = self.net.decode_vjp(self.z, problem.x)
        y = y.to(problem.x.dtype)
        p = problem.feasible.project(y)
        u, _, _ = problem.model.shortfall(p, problem.goal, self.level, self.soft)
        _, v, pull = problem.model.shortfall(y, problem.goal, self.level, self.soft)
        self._move(
            to_code(self._gradient(problem, y, v, pull)).contiguous(), t, -self.far, self.far
        )
        return p, u
