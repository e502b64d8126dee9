"""Latent search: random points around the code of a row, decoded; the nearest success is the
answer.

As "Consistent Counterfactuals for Deep Models" (Black et al. 2022) runs C-CHVAE, with a
deterministic autoencoder. Decoded rows are projected to what the person can reach before they are
judged and compared. The released code divides all directions by one common norm, which makes the
radii smaller by the root of `samples`; here each direction has norm 1. A row without a hit has no
answer.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from holdfast._core.checks import require_positive
from holdfast._core.rows import chunks, rows_per_chunk
from holdfast.distances import l2, squared_l2
from holdfast.errors import SettingError
from holdfast.methods._autoencoder import Kind
from holdfast.methods._autoencoder_training import HIDDEN
from holdfast.methods._latent import LatentMethod
from holdfast.models.base import Model
from holdfast.problem import SearchProblem


@dataclass(eq=False, repr=False)
class LatentSearch(LatentMethod):
    """Random search around the latent code of each row, in an autoencoder of the data.

        z = enc(x);  if dec(z) has the wanted outcome it is the answer, else
        z_i = z + r_i u_i,   u_i uniform on the unit sphere,   r_i ~ U(0, radius)
        i = 1 .. samples
        answer = argmin |dec(z_i) - x|_2   over the i with the wanted outcome

    Args:
        radius: how far from the row's code points are drawn.
        samples: points per draw.
        repeats: how often to draw at most, for rows without a hit.
        kind, hidden, latent, epochs, beta, seed, autoencoder: see `LatentMethod`.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> method = hf.LatentSearch(radius=3.0, samples=50, hidden=(16,), latent=2, epochs=5)
    >>> cfs = method.fit(model, data.X).explain(model, data.X.head(20), "yes")
    >>> bool(cfs.found.any())
    True

    Reference:
        Pawelczyk et al. 2020 (C-CHVAE); Black et al. 2022, "Consistent Counterfactuals for
        Deep Models".

    Paper: black2022 Baseline Pawelczyk.
    """

    title = "random search around the row's code in an autoencoder, any model"
    paper = "Pawelczyk et al. 2020 (C-CHVAE); Black et al. 2022"
    when = "answers should look like data, for any model, and most columns may change"
    cost = "up to repeats x samples forward passes, after training an autoencoder once"
    conditioned = False
    advice = "raise radius, samples or repeats, or try NearestNeighbor"

    radius: float = 1.0
    samples: int = 1280
    repeats: int = 1
    _: KW_ONLY
    kind: Kind = "autoencoder"
    hidden: tuple[int, ...] = HIDDEN
    latent: int = 32

    def check(self, model: Model) -> None:
        super().check(model)
        require_positive("radius", self.radius)
        if not (self.samples >= 1 and self.repeats >= 1):
            raise SettingError("samples and repeats must be at least 1")

    def search(self, problem: SearchProblem) -> Tensor:
        net = self.autoencoder_
        z = net.encode(problem.x)
        answer = problem.feasible.project(problem.x)
        decoded = problem.feasible.project(net.decode(z, problem.x).to(problem.x.dtype))
        met = problem.met(decoded)
        answer[met] = decoded[met]
        together = rows_per_chunk(max(net.latent, net.width) * self.samples, budget=1 << 17)
        parts = chunks((~met).nonzero().squeeze(1), together)
        for i in problem.steps(len(parts)):
            answer[parts[i]] = self._around(problem[parts[i]], z[parts[i]])
        return answer

    def _around(self, problem: SearchProblem, z: Tensor) -> Tensor:
        """The nearest hit of the first draw that has one; the row itself where none has."""
        answer = problem.feasible.project(problem.x)
        rows = torch.arange(len(problem))
        for draw in range(self.repeats):
            near, cost = self._nearest(problem, z, draw)
            hit = cost.isfinite()
            answer[rows[hit]] = near[hit]
            stay = (~hit).nonzero().squeeze(1)
            rows = rows[stay]
            problem = problem[stay]
            z = z[stay]
            if not len(rows) or problem.budget.over():
                break
        return answer

    def _nearest(self, problem: SearchProblem, z: Tensor, draw: int) -> tuple[Tensor, Tensor]:
        """Per row the nearest hit of one draw and its squared distance (inf, and any point, if
        there is none)."""
        n = len(problem)
        m = self.samples
        drawn = around(problem, z, self.radius, m, draw).flatten(0, 1)  # (n m, latent)
        many = problem[torch.arange(n).repeat_interleave(m)]
        # (n m, d)
        p = many.feasible.project(self.autoencoder_.decode(drawn, many.x).to(problem.x.dtype))
        cost = squared_l2.value(p - many.x, many.feasible.encoding.weight)
        best, at = torch.where(many.met(p), cost, torch.inf).reshape(n, m).min(1)
        return p.reshape(n, m, -1)[torch.arange(n), at], best


def around(problem: SearchProblem, z: Tensor, radius: float, samples: int, draw: int) -> Tensor:
    """(n, samples, latent): z + r u with u uniform on the unit sphere and r uniform in [0,
    radius)."""
    u = l2.ascent(
        problem.rng.normal(samples, z.shape[1], draw=2 * draw, dtype=z.dtype).flatten(0, 1)
    )
    r = radius * problem.rng.uniform(samples, draw=2 * draw + 1, dtype=z.dtype)
    return z[:, None] + r[..., None] * u.reshape(len(z), samples, -1)
