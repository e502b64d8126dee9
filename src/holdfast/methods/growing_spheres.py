"""Growing Spheres: sample in a ball that shrinks until it holds no row of the wanted outcome, then
in rings that grow until one does.

Any model will do, as no gradients are needed. `variant="carla"` neither shrinks nor sparsifies,
uses rings of fixed width, and draws yes-or-no columns and categories anew rather than moving them,
as that benchmark does.

Directions are uniform on the sphere of the columns that are not fixed, radii uniform in the ring.
Both are drawn once and shared by all rows: the directions tried depend on the seed alone, not even
on the model.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from holdfast._core.checks import require_positive
from holdfast._core.params import preset
from holdfast.distances import squared_l2
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods._candidates import Candidates, Nearest
from holdfast.methods._tighten import revert
from holdfast.problem import SearchProblem
from holdfast.schema.encoding import Encoding

HALVINGS = 30  # of the first ball, at most


@dataclass(eq=False, repr=False)
class GrowingSpheres(Explainer):
    """Random search in growing rings.

        eta <- eta / 2   while some sample of the ball B(x, eta) has the wanted class
        rings            [eta, 2 eta], [2 eta, 3 eta], ...  until one sample has it; the nearest
                         such sample is taken
        sparsify         give back the smallest changes while the class stays

    Args:
        samples: points per ball or ring.
        radius: first ball; None takes a quarter of the diagonal of the data's range.
        rings: how many rings at most.
        variant: "original", or "carla" (rings of `width`, no shrinking, no sparsifying, categories
            drawn anew).
        width: width of a ring in the "carla" variant.

    >>> import holdfast as hf
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> data = hf.datasets.moons(n=200)
    >>> forest = RandomForestClassifier(10, random_state=0).fit(data.X, data.y)
    >>> model = hf.Model.of(forest, data.schema)
    >>> cfs = hf.GrowingSpheres().explain(model, data.X.head(20), "yes")
    >>> bool((model.predict(cfs.to_frame()) == "yes").all())
    True

    Reference:
        Laugel et al. 2018, "Comparison-Based Inverse Classification for Interpretability in
        Machine Learning".

    Paper: krishna2024 Eq. 4.
    """

    title = "random search in growing rings, any model"
    paper = "Laugel et al. 2018"
    when = "the model is a black box and there are no data at hand"
    cost = "samples forward passes per ball (at most 30) and ring, then one per changed feature"
    regression = True
    needs_grad = False
    advice = "raise samples or rings, or try NearestNeighbor"

    samples: int = 200
    radius: float | None = None
    rings: int = 50
    variant: Literal["original", "carla"] = "original"
    width: float = 0.2

    @classmethod
    def carla(cls, **settings: Any) -> "GrowingSpheres":
        """The CARLA benchmark's variant, with its numbers of samples and rings."""
        return cls(**preset(settings, variant="carla", samples=1000, rings=1000, width=0.2))

    def check(self, model: object) -> None:
        if not (self.samples >= 1 and self.rings >= 1):
            raise SettingError("samples and rings must be at least 1")
        if not (self.radius is None or self.radius > 0):
            raise SettingError(f"radius must be positive, got {self.radius}")
        require_positive("width", self.width)
        if self.variant not in ("original", "carla"):
            raise SettingError(f"variant must be 'original' or 'carla', got {self.variant!r}")

    def search(self, problem: SearchProblem) -> Tensor:
        candidates = Candidates(problem, squared_l2)
        if self.variant == "carla":
            return self._grow(
                candidates, problem.x.new_full((len(problem),), self.width), first=0
            ).rows
        ball, eta = self._shrink(candidates)
        ring = self._grow(candidates, eta, first=1)
        answer = torch.where((ball.cost < ring.cost)[:, None], ball.rows, ring.rows)
        ok = torch.minimum(ball.cost, ring.cost).isfinite().nonzero().squeeze(1)
        if len(ok):
            answer[ok] = revert(problem[ok], answer[ok])
        return answer

    def _shrink(self, candidates: Candidates) -> tuple[Nearest, Tensor]:
        """Halve the ball until no sample of it succeeds: the nearest success on the way, and the
        last radius."""
        problem = candidates.problem
        rows = torch.arange(len(candidates))
        best = Nearest.start(problem.feasible.project(problem.x))
        eta = problem.x.new_full(
            (len(problem),), self.radius or 0.25 * problem.feasible.encoding.diagonal
        )
        for draw in range(HALVINGS):
            found = self._sample(candidates, eta[rows], 0, draw)
            best.take(rows, found)
            hit = found.cost.isfinite().nonzero().squeeze(1)
            rows = rows[hit]
            candidates = candidates.only(hit)
            eta[rows] /= 2
            if not len(rows) or problem.budget.over():
                break
        return best, eta

    def _grow(self, candidates: Candidates, width: Tensor, first: int) -> Nearest:
        """Rings of each row's own width, from number `first` on; a row leaves once its ring holds a
        success."""
        problem = candidates.problem
        rows = torch.arange(len(candidates))
        best = Nearest.start(problem.feasible.project(problem.x))
        for i in problem.steps(self.rings):
            found = self._sample(candidates, width[rows], first + i, HALVINGS + i)
            best.take(rows, found)
            stay = (~found.cost.isfinite()).nonzero().squeeze(1)
            rows = rows[stay]
            candidates = candidates.only(stay)
            if not len(rows):
                break
        return best

    def _sample(self, candidates: Candidates, width: Tensor, ring: int, draw: int) -> Nearest:
        """The nearest success in the ring from ring * width to (ring + 1) * width around each
        row."""
        feasible = candidates.problem.feasible
        rng = candidates.problem.rng
        dtype = candidates.problem.x.dtype
        d = candidates.problem.x.shape[1]
        m = self.samples
        fixed = feasible.encoding.fixed
        anew = (
            _few_values(feasible.encoding) if self.variant == "carla" else torch.zeros_like(fixed)
        )
        way = rng.common_normal(d, m, draw=3 * draw, dtype=dtype)
        way[fixed | anew] = 0.0
        way /= way.square().sum(0).sqrt().clamp_min(torch.finfo(dtype).tiny)
        # nearest first
        way *= ring + rng.common_uniform(m, draw=3 * draw + 1, dtype=dtype).sort().values
        columns = anew.nonzero().squeeze(1)
        lots = rng.common_uniform(len(columns), m, draw=3 * draw + 2, dtype=dtype)
        # (d, n, 1)
        x = feasible.x.T[..., None]
        lo = feasible.lo.T[columns, :, None]
        room = feasible.hi.T[columns, :, None] - lo

        def place(people: slice, some: slice, z: Tensor) -> None:
            torch.mul(way[:, None, some], width[people, None], out=z).add_(x[:, people])
            if len(columns):
                z.index_copy_(
                    0, columns, (lots[:, None, some] * room[:, people]).add_(lo[:, people])
                )

        return candidates.nearest(m, place, ordered=ring == 0 and self.variant == "original")


def _few_values(encoding: Encoding) -> Tensor:
    """(d,) the columns of categories, and of numbers with two values: a uniform number between the
    limits, made reachable, is a fair choice between the two, or between the levels."""
    two_values = (encoding.grid > 0) & (
        encoding.seen_high - encoding.seen_low < 1.5 * encoding.grid
    )
    return encoding.one_hot | two_values
