"""Min-epsilon PGD: the smallest of a series of l2 balls in which projected gradient ascent finds an
answer.

The series is that of "Consistent Counterfactuals for Deep Models", with its absolute step (the
released code takes it for a relative one). By construction, the cost comes in multiples of
radius / radii.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast.distances import l2
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.problem import SearchProblem


@dataclass(eq=False, repr=False)
class MinEpsilonPGD(Explainer):
    """Projected gradient ascent in growing l2 balls.

        for e_i = radius * i / radii, i = 1 .. radii:
            z <- P_ball(x, e_i)( z + 2 e_i / steps * g / |g|_2 )

    Args:
        radius: the largest ball; None takes half the diagonal of the data's range.
        radii: how many balls.
        steps: steps per ball.
        start: from the row itself, or from a random point of the ball.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> bool(hf.MinEpsilonPGD(steps=20).explain(model, data.X.head(20), "yes").found.any())
    True

    Reference:
        Madry et al. 2018, "Towards Deep Learning Models Resistant to Adversarial Attacks"; Black et
        al. 2022, "Consistent Counterfactuals for Deep Models".

    Paper: black2022 Baseline Min-Cost eps-PGD.
    """

    title = "smallest l2 ball in which gradient ascent succeeds"
    paper = "Madry et al. 2018; Black et al. 2022"
    when = "you want the attack of the robustness literature, or a start that many columns share"
    cost = (
        "up to radii x steps gradient passes; rows leave with the first ball that holds an answer"
    )
    regression = True
    advice = "raise radius or steps"

    radius: float | None = None
    radii: int = 10
    steps: int = 100
    start: Literal["row", "random"] = "row"

    def check(self, model: object) -> None:
        if not (self.radius is None or self.radius > 0):
            raise SettingError(f"radius must be positive, got {self.radius}")
        if not (self.radii >= 1 and self.steps >= 1):
            raise SettingError("radii and steps must be at least 1")
        if self.start not in ("row", "random"):
            raise SettingError(f"start must be 'row' or 'random', got {self.start!r}")

    def search(self, problem: SearchProblem) -> Tensor:
        radius = self.radius or 0.5 * problem.feasible.encoding.diagonal
        answer = problem.feasible.project(problem.x)
        rows = torch.arange(len(problem))
        for i in problem.steps(self.radii):
            z = self._ascend(problem, radius * (i + 1) / self.radii, draw=i)
            answer[rows] = z
            stay = (~problem.met(z)).nonzero().squeeze(1)
            rows = rows[stay]
            problem = problem[stay]
            if not len(rows):
                break
        return answer

    def _ascend(self, problem: SearchProblem, radius: float, draw: int) -> Tensor:
        """The last point of ascent inside the ball, as a reachable row."""
        x = problem.x
        feasible = problem.feasible
        z = x
        if self.start == "random":
            d = x.shape[1]
            length = radius * problem.rng.uniform(draw=2 * draw, dtype=x.dtype) ** (1 / d)
            z = feasible.clamp(
                x
                + length[:, None]
                * l2.ascent(problem.rng.normal(d, draw=2 * draw + 1, dtype=x.dtype))
            )
        for _ in range(self.steps):
            scores, pull = problem.model.vjp(self._inside(problem, z, radius))
            slope = problem.goal.gap_and_slope(scores, soft=True)[1]
            step = 2 * radius / self.steps * l2.ascent(pull(slope))
            z = feasible.clamp(x + l2.project(z + step - x, radius))
        return self._inside(problem, z, radius)

    def _inside(self, problem: SearchProblem, z: Tensor, radius: float) -> Tensor:
        """The reachable row for z; if rounding leaves the ball, the row itself."""
        if problem.feasible.is_box:
            return z
        p = problem.feasible.project(z)
        outside = (p - problem.x).square().sum(1) > radius**2 * (1 + 1e-6)
        return torch.where(outside[:, None], problem.feasible.project(problem.x), p)
