"""C-CHVAE: rings around the code of a row, in the latent space of a VAE that is given what cannot
change.

As the CARLA benchmark runs it: p = 1, the answer nearest in l1. Decoded rows are made reachable
before they are judged and compared. Directions and lengths are drawn once and shared by all rows:
what a row is tried with depends on the seed alone, so two models are compared on the same draws.

Any two answers for one row are dec(z') and dec(z'') with z', z'' in the balls of the rings they
were found in, hence

    |dec(z') - dec(z'')| <= L (r' + r'')
    L the Lipschitz constant of dec,   r', r'' the upper ends of the rings

before they are made reachable (Theorem 3 of Krishna, Agarwal and Lakkaraju; radii in l1 are at
least those in l2). `trace` and `retrace` give the radii.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from holdfast._core.checks import require_positive
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import limited_threads
from holdfast.counterfactuals import Counterfactuals
from holdfast.distances import Distance, Norm, distance_of, l1, l2, penalty_of
from holdfast.errors import SettingError
from holdfast.methods._candidates import Candidates, Nearest, Place
from holdfast.methods._latent import LatentMethod
from holdfast.models.base import Model
from holdfast.problem import SearchProblem, TimeBudget


class Trace(NamedTuple):
    """Where answers came from."""

    rows: Tensor  # (n, d) the answers; rows without one are as they were
    start: Tensor  # (n, latent) the codes of the rows
    # (n, latent) the points that were decoded; the codes themselves where there is no answer
    z: Tensor
    radius: Tensor  # (n,) upper end of the ring; inf where there is no answer


@dataclass(eq=False, repr=False)
class CCHVAE(LatentMethod):
    """Random search in growing rings around the latent code of each row.

        z = enc(x)
        ring k = 1 .. rings:   z_i = z + l_i u_i / |u_i|_p
                               u_i ~ N(0, I),   l_i ~ U((k - 1) step, k step)
        answer = argmin |dec(z_i, x_given) - x|   over the i with the wanted outcome, in the first
                                                  ring that has one

    Args:
        step: width of a ring.
        rings: how many rings at most.
        samples: points per ring.
        p: 1 or 2, the norm that radii are measured in.
        norm: 1, 2, a name such as "linf", or a `Distance`: the distance that decides which is
        nearest.
        kind, hidden, latent, epochs, beta, seed, autoencoder: see `LatentMethod`.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> method = hf.CCHVAE(rings=20, samples=20, hidden=(16,), latent=2, epochs=5)
    >>> method = method.fit(model, data.X)
    >>> len(method.explain(model, data.X.head(20), "yes"))
    20

    Reference:
        Pawelczyk, Broelemann and Kasneci 2020, "Learning Model-Agnostic
        Counterfactual Explanations for Tabular Data".

    Paper: krishna2024 Eq. 3.
    """

    title = "random search in growing rings around the row's code in a conditional VAE, any model"
    paper = "Pawelczyk et al. 2020 (C-CHVAE)"
    when = (
        "answers should look like data, for any model; two models are tried with the same "
        "candidates"
    )
    cost = "up to rings x samples forward passes for each row, after training a VAE once"
    advice = "raise rings, step or samples, or try NearestNeighbor"

    step: float = 0.1
    rings: int = 100
    samples: int = 100
    p: Literal[1, 2] = 1
    norm: Norm | Distance = 1

    def check(self, model: Model) -> None:
        super().check(model)
        require_positive("step", self.step)
        if not (self.rings >= 1 and self.samples >= 1):
            raise SettingError("rings and samples must be at least 1")
        distance_of(self.p, (l1, l2), "p")
        penalty_of(self.norm)

    def search(self, problem: SearchProblem) -> Tensor:
        return self.trace(problem).rows

    def trace(self, problem: SearchProblem) -> Trace:
        """The search, and which latent points its answers were decoded from."""
        candidates = Candidates(problem, penalty_of(self.norm), problem.feasible.encoding.weight)
        start = self.autoencoder_.encode(problem.x)
        best = Nearest.start(problem.feasible.project(problem.x))
        z = start.clone()
        radius = start.new_full((len(problem),), torch.inf)
        rows = torch.arange(len(problem))
        for i in problem.steps(self.rings):
            moves = self._moves(problem.rng, i, start)
            found = candidates.nearest(self.samples, self._place(candidates, start[rows], moves))
            best.take(rows, found)
            hit = found.cost.isfinite()
            z[rows[hit]] += moves[found.at[hit]]
            radius[rows[hit]] = (i + 1) * self.step
            stay = (~hit).nonzero().squeeze(1)
            rows = rows[stay]
            candidates = candidates.only(stay)
            if not len(rows):
                break
        return Trace(best.rows, start, z, radius)

    def _moves(self, rng: RowRandom, ring: int, like: Tensor) -> Tensor:
        """(samples, latent) steps from the codes into a ring, the same for all rows."""
        u = rng.common_normal(self.samples, like.shape[1], draw=2 * ring, dtype=like.dtype)
        length = self.step * (
            ring + rng.common_uniform(self.samples, draw=2 * ring + 1, dtype=like.dtype)
        )
        return (
            u
            * (length / distance_of(self.p).value(u).clamp_min(torch.finfo(u.dtype).tiny))[:, None]
        )

    def _place(self, candidates: Candidates, start: Tensor, moves: Tensor) -> Place:
        net = self.autoencoder_
        x = candidates.problem.x
        # else only the strongest level counts, which the logits tell too
        soft = not candidates.projection.by_column

        def place(people: slice, some: slice, z: Tensor) -> None:
            d, n, m = z.shape
            points = (start[people, None] + moves[some]).flatten(0, 1)  # (n m, latent)
            net.decode_columns(points, x[people], z.view(d, n * m), soft=soft)

        return place


def retrace(method: CCHVAE, model: Model, cfs: Counterfactuals) -> Trace:
    """Where the answers `cfs`, given by `method` on `model`, came from.

    The search is a function of rows, goal and seed, all held by `cfs`, so it is run again rather
    than stored. For rows without an answer z is their own code, and the radius is inf.
    """
    rows = torch.tensor(cfs.found).nonzero().squeeze(1)
    x = cfs.x[rows]
    with model.eval_mode(), limited_threads(1):
        feasible = model.schema.feasible(x)
        rng = RowRandom.of(cfs.run.seed, x)
        budget = TimeBudget(None, Progress(False, ""))
        part = method.trace(SearchProblem(model, x, cfs.goal[rows], feasible, rng, budget))
        start = method.autoencoder_.encode(cfs.x)
    radius = start.new_full((len(cfs),), torch.inf)
    found = cfs.x.clone()
    z = start.clone()
    found[rows] = part.rows
    z[rows] = part.z
    radius[rows] = part.radius
    return Trace(found, start, z, radius)
