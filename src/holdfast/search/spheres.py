"""Growing Spheres: sample in a ball that shrinks while it holds enemies, then in rings that grow until one does.

    eta <- eta / 2   while some sample of the ball B(x, eta) has the wanted class
    rings            [eta, 2 eta], [2 eta, 3 eta], ...  until one sample has it; the nearest such sample is taken
    sparsify         give back the smallest changes while the class stays

Laugel et al. 2018. No gradients: any model will do. `variant="carla"` neither shrinks nor sparsifies and uses
rings of fixed width, as that benchmark does. Directions are uniform on the sphere, radii uniform in the ring.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.explainer import Explainer, Query, need
from holdfast.geometry import chunks, row_norm, unit
from holdfast.search.tighten import revert

CANDIDATES = 1 << 17  # rows scored at once: bounds the memory whatever n and samples are


@dataclass(eq=False, repr=False)
class GrowingSpheres(Explainer):
    """Random search in growing rings.

    Args:
        samples: points per ball or ring.
        radius: first ball; None takes a quarter of the diagonal of the data's range.
        rings: how many rings at most.
        variant: "original", or "carla" (rings of `width`, no shrinking, no sparsifying).
        width: width of a ring in the "carla" variant.
    """

    title: ClassVar[str] = "random search in growing rings, any model"
    paper: ClassVar[str] = "Laugel et al. 2018"
    needs_grad: ClassVar[bool] = False
    advice: ClassVar[str] = "raise samples or rings, or try NearestNeighbor"

    samples: int = 200
    radius: float | None = None
    rings: int = 50
    variant: Literal["original", "carla"] = "original"
    width: float = 0.2

    def check(self, model: object) -> None:
        need(self.samples >= 1 and self.rings >= 1, "samples and rings must be at least 1")
        need(self.radius is None or self.radius > 0, f"radius must be positive, got {self.radius}")
        need(self.width > 0, f"width must be positive, got {self.width}")
        need(self.variant in ("original", "carla"), f"variant must be 'original' or 'carla', got {self.variant!r}")

    def search(self, query: Query) -> Tensor:
        x = query.x
        eta = x.new_full((len(x),), self.radius or 0.25 * query.reach.layout.diagonal)
        if self.variant == "carla":
            answer, found = self._grow(query, torch.zeros_like(eta), torch.full_like(eta, self.width))
            return answer
        answer, found, eta = self._shrink(query, eta)
        ring, hit = self._grow(query, eta, eta)
        nearer = hit & (~found | (row_norm(ring - x, 2) < row_norm(answer - x, 2)))
        answer = torch.where(nearer[:, None] | ~(found | hit)[:, None], ring, answer)
        ok = (found | hit).nonzero().squeeze(1)
        if len(ok):
            answer[ok] = revert(query[ok], answer[ok])
        return answer

    def _shrink(self, query: Query, eta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Halve the ball until no sample of it succeeds; also the nearest success on the way."""
        answer, best = query.reach.project(query.x), torch.full_like(eta, torch.inf)
        eta, rows = eta.clone(), torch.arange(len(query))
        for draw in range(30):
            near, distance = self._nearest(query[rows], torch.zeros_like(eta[rows]), eta[rows], draw)
            hit = distance.isfinite()
            better = distance < best[rows]
            answer[rows[better]], best[rows[better]] = near[better], distance[better]
            rows = rows[hit]
            eta[rows] /= 2
            if not len(rows) or query.clock.over():
                break
        return answer, best.isfinite(), eta

    def _grow(self, query: Query, start: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        """Rings until one holds a success; finished rows leave the batch."""
        answer, found = query.reach.project(query.x), torch.zeros(len(query), dtype=torch.bool)
        rows = torch.arange(len(query))
        for i in query.steps(self.rings):
            low = start[rows] + i * width[rows]
            near, distance = self._nearest(query[rows], low, low + width[rows], 1000 + i)
            hit = distance.isfinite()
            answer[rows], found[rows] = near, hit
            rows = rows[~hit]
            if not len(rows):
                break
        return answer, found

    def _nearest(self, query: Query, low: Tensor, high: Tensor, draw: int) -> tuple[Tensor, Tensor]:
        """Per row the nearest successful sample of its ring and its distance (inf, and a sample, if none)."""
        near, far = torch.empty_like(query.x), query.x.new_empty(len(query))
        for rows in chunks(torch.arange(len(query)), max(1, CANDIDATES // self.samples)):
            near[rows], far[rows] = self._sample(query[rows], low[rows], high[rows], draw)
        return near, far

    def _sample(self, query: Query, low: Tensor, high: Tensor, draw: int) -> tuple[Tensor, Tensor]:
        n, d, m = *query.x.shape, self.samples
        dtype = query.x.dtype
        way = unit(query.random.normal(m, d, draw=2 * draw, dtype=dtype).reshape(n * m, d))
        length = low[:, None] + (high - low)[:, None] * query.random.uniform(m, draw=2 * draw + 1, dtype=dtype)
        many = query[torch.arange(n).repeat_interleave(m)]
        z = many.reach.project(many.x + length.reshape(-1, 1) * way)  # (n m, d)
        distance = torch.where(many.met(z), row_norm(z - many.x, 2), torch.inf).reshape(n, m)
        best, at = distance.min(1)
        return z.reshape(n, m, d)[torch.arange(n), at], best
