"""Latent search: random points around the code of a row, decoded; the nearest that succeeds is the answer.

    z = enc(x);  if dec(z) has the wanted outcome it is the answer, else
    z_i = z + r_i u_i,   u_i uniform on the unit sphere,   r_i ~ U(0, radius),   i = 1 .. samples
    answer = argmin |dec(z_i) - x|_2   over the i with the wanted outcome

Pawelczyk et al. 2020 (C-CHVAE), as "Consistent Counterfactuals for Deep Models" (Black et al. 2022) runs it
with a deterministic autoencoder. Decoded rows are projected to what the person can reach before they are
judged and compared. The released code divides all directions by one common norm, which makes the radii
smaller by the root of `samples`; here each direction has norm 1. A row without a hit has no answer.
"""

from dataclasses import KW_ONLY, dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from holdfast._core.rows import chunks, unit
from holdfast.errors import require
from holdfast.explainer import Explainer
from holdfast.methods._autoencoder import HIDDEN, Kind, TableAutoencoder, autoencoder
from holdfast.methods._tighten import cost_of
from holdfast.models.base import Model
from holdfast.problem import Outcomes, Rows, SearchProblem

CELLS = 1 << 17  # numbers in drawn points or rows at once: what stays in the cache is faster


@dataclass(eq=False, repr=False, kw_only=True)
class LatentMethod(Explainer):
    """A method that searches in the latent space of an autoencoder of the data: its settings, and its training.

    Args:
        kind: "autoencoder", or "vae".
        hidden: widths of the autoencoder's layers before the latent one.
        latent, epochs, seed: its latent numbers, longest training and seed.
        beta: weight of a VAE's divergence; the smaller, the closer rows are to what their codes decode to.
        autoencoder: a ready `TableAutoencoder` (see `holdfast.methods._autoencoder`) in place of training one.
    """

    needs_data: ClassVar[bool] = True
    conditioned: ClassVar[bool] = True  # is the autoencoder given the columns that cannot change?

    kind: Kind = "vae"
    hidden: tuple[int, ...] = (512, 256)  # this and the latent numbers as in the CARLA benchmark
    latent: int = 8
    epochs: int = 200
    beta: float = 0.05
    seed: int = 0
    autoencoder: TableAutoencoder | None = None

    def __repr__(self) -> str:
        """As for every method, with what it adds to these settings first: stored answers are known by it."""
        shared = [f.name for f in fields(LatentMethod)]
        ordered = sorted(fields(self), key=lambda f: f.name in shared)
        changed = [f"{f.name}={getattr(self, f.name)!r}" for f in ordered if getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def check(self, model: Model) -> None:
        columns, width = self.autoencoder_.width, model.schema.width
        require(columns == width, f"the autoencoder is for rows of {columns} columns, the model takes {width}")

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Train the autoencoder, unless one was given."""
        given = model.schema.encoding().fixed.nonzero().squeeze(1) if self.conditioned else None
        self.autoencoder_ = self.autoencoder or autoencoder(
            X, model.schema, kind=self.kind, hidden=self.hidden, latent=self.latent, epochs=self.epochs,
            beta=self.beta, seed=self.seed, given=given,
        )  # fmt: skip


@dataclass(eq=False, repr=False)
class LatentSearch(LatentMethod):
    """Random search around the latent code of each row, in an autoencoder of the data.

    Args:
        radius: how far from the code of the row points are drawn.
        samples: points per draw.
        repeats: how often to draw at most, for rows without a hit.
        kind, hidden, latent, epochs, beta, seed, autoencoder: see `LatentMethod`.
    """

    title: ClassVar[str] = "random search around the row's code in an autoencoder, any model"
    paper: ClassVar[str] = "Pawelczyk et al. 2020 (C-CHVAE); Black et al. 2022"
    regression: ClassVar[bool] = True
    needs_grad: ClassVar[bool] = False
    conditioned: ClassVar[bool] = False
    advice: ClassVar[str] = "raise radius, samples or repeats, or try NearestNeighbor"

    radius: float = 1.0
    samples: int = 1280
    repeats: int = 1
    _: KW_ONLY
    kind: Kind = "autoencoder"
    hidden: tuple[int, ...] = HIDDEN
    latent: int = 32

    def check(self, model: Model) -> None:
        super().check(model)
        require(self.radius > 0, f"radius must be positive, got {self.radius}")
        require(self.samples >= 1 and self.repeats >= 1, "samples and repeats must be at least 1")

    def search(self, problem: SearchProblem) -> Tensor:
        net = self.autoencoder_
        z = net.encode(problem.x)
        answer, again = (
            problem.feasible.project(problem.x),
            problem.feasible.project(net.decode(z, problem.x).to(problem.x.dtype)),
        )
        met = problem.met(again)
        answer[met] = again[met]
        size = max(1, CELLS // (max(net.latent, net.width) * self.samples))
        parts = chunks((~met).nonzero().squeeze(1), size)
        for i in problem.steps(len(parts)):
            answer[parts[i]] = self._around(problem[parts[i]], z[parts[i]])
        return answer

    def _around(self, problem: SearchProblem, z: Tensor) -> Tensor:
        """The nearest hit of the first draw that has one; the row itself where none has."""
        answer, rows = problem.feasible.project(problem.x), torch.arange(len(problem))
        for draw in range(self.repeats):
            near, cost = self._nearest(problem, z, draw)
            hit = cost.isfinite()
            answer[rows[hit]] = near[hit]
            stay = (~hit).nonzero().squeeze(1)
            rows, problem, z = rows[stay], problem[stay], z[stay]
            if not len(rows) or problem.budget.over():
                break
        return answer

    def _nearest(self, problem: SearchProblem, z: Tensor, draw: int) -> tuple[Tensor, Tensor]:
        """Per row the nearest hit of one draw and its squared distance (inf, and any point, if there is none)."""
        n, m = len(problem), self.samples
        drawn = around(problem, z, self.radius, m, draw).flatten(0, 1)  # (n m, latent)
        many = problem[torch.arange(n).repeat_interleave(m)]
        p = many.feasible.project(self.autoencoder_.decode(drawn, many.x).to(problem.x.dtype))  # (n m, d)
        cost = cost_of(p - many.x, many.feasible.encoding.weight, 2)
        best, at = torch.where(many.met(p), cost, torch.inf).reshape(n, m).min(1)
        return p.reshape(n, m, -1)[torch.arange(n), at], best


def around(problem: SearchProblem, z: Tensor, radius: float, samples: int, draw: int) -> Tensor:
    """(n, samples, latent): z + r u with u uniform on the unit sphere and r uniform in [0, radius)."""
    u = unit(problem.rng.normal(samples, z.shape[1], draw=2 * draw, dtype=z.dtype).flatten(0, 1))
    r = radius * problem.rng.uniform(samples, draw=2 * draw + 1, dtype=z.dtype)
    return z[:, None] + r[..., None] * u.reshape(len(z), samples, -1)
