"""Gradient descent on a loss plus a distance: Wachter, SCFE, Generic and VanillaCF are settings of
one search.

    loss      cross_entropy   softplus(margin - gap)                  Generic, Wachter, VanillaCF
              score           (gap - score)^2                         SCFE
              hinge           max(0, margin - gap)
    distance  norm = 1        sum_j w_j |z_j - x_j|
              norm = 2        sum_j w_j (z_j - x_j)^2
              norm = "mse"    the mean of the same

On a linear score w.x + b with norm = 2 SCFE ends at x + m w / (lam + |w|^2), m = score - gap(x);
the form printed in "Trade-offs between Adversarial Robustness and Actionable Explanations" has a
factor lam too many.

relax = "round": gradients are taken at the reachable row nearest to z and applied to z (straight
through), so integers and categories change as soon as enough has added up.

relax = "softmax": the minimum over z goes through N(z), a softmax over the levels of each category
and numbers as they are, so the gradient has the factor dN/dz; the row is rounded afterwards.
VanillaCF of "RoCourseNet" (Guo et al. 2023):

    minimise over z    softplus(-gap(N(z))) + 0.5 * mean_j (N(z)_j - x_j)^2        from z = x

Either way, every row judged or kept is one that a person can hand in.
"""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from holdfast._core.checks import require_positive, require_weight
from holdfast._core.params import preset
from holdfast.distances import Distance, Norm, penalty_of, squared_l2
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods._best import BestOfWalk
from holdfast.methods._walk import SoftWalk, Walk, until_met
from holdfast.problem import SearchProblem

Loss = Literal["cross_entropy", "score", "hinge"]


@dataclass(eq=False, repr=False)
class Descent(Explainer):
    """Gradient descent on a loss plus a distance.

        minimise over z    loss(gap(z)) + lam * distance(z, x)        z reachable from x

    Args:
        loss: what pulls towards the wanted class.
        norm: 1, 2 (squared), "mse", another name such as "linf", or a `Distance`: what pulls back.
        lam: weight of the distance.
        score: the gap that `loss="score"` aims at.
        optimizer: "adam", "rmsprop", "sgd", or "newton" (Gauss-Newton, for loss="score" with
            norm=2: each step goes to the optimum for the tangent plane); the state belongs to each
            row alone.
        lr, steps: step size and number of steps.
        decay: the step size falls to zero over the steps.
        restarts: rows without an answer start again with `lam` halved, this many times in all.
        keep: "cheapest" answer on the way, "first" (a row then leaves the batch), or the "last"
            point.
        compile: let torch.compile fuse the elementwise part of a step; the first call then takes
            long.
        relax: "round" takes gradients at the nearest reachable row, "softmax" at mixtures of the
            levels a person may take. With "softmax", judging rows on the way (any keep but "last")
            costs a second pass per step.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> bool(hf.Descent.wachter().explain(model, data.X.head(20), "yes").found.any())
    True

    Reference:
        Wachter, Mittelstadt and Russell 2018, "Counterfactual Explanations without Opening
        the Black Box"; Pawelczyk et al. 2022 (SCFE).
    """

    title = "gradient descent on a loss plus a distance"
    paper = "Wachter et al. 2018; Pawelczyk et al. 2022 (SCFE)"
    when = (
        "you want the classic search of a paper (Wachter, SCFE, Generic, VanillaCF), or a loss "
        "of your own"
    )
    cost = "steps gradient passes, up to restarts times for rows without an answer"
    regression = True
    advice = "raise steps or restarts, lower lam, or try NearestNeighbor"

    loss: Loss = "cross_entropy"
    norm: Norm | Distance = 1
    lam: float = 0.1
    score: float = 1.0
    optimizer: Literal["adam", "rmsprop", "sgd", "newton"] = "adam"
    lr: float = 0.05
    steps: int = 500
    decay: bool = False
    restarts: int = 5
    keep: Literal["cheapest", "first", "last"] = "cheapest"
    compile: bool = False
    relax: Literal["round", "softmax"] = "round"

    @classmethod
    def wachter(cls, **settings: Any) -> "Descent":
        """Wachter et al.: the first point across the boundary, weight of the distance halved until
        found.

        Paper: hoeltgen2021 Eq. 1.
        """
        return cls(
            **preset(settings, norm=1, lam=0.1, lr=0.01, steps=1000, restarts=10, keep="first")
        )

    @classmethod
    def scfe(cls, **settings: Any) -> "Descent":
        """Squared score loss and squared distance, run to the end.

        Paper: krishna2024 Eq. 2.
        """
        how = preset(settings, loss="score", norm=2, optimizer="newton", lr=1.0, steps=100)
        return cls(**preset(how, decay=True, restarts=1, keep="last"))

    @classmethod
    def generic(cls, **settings: Any) -> "Descent":
        """Cross-entropy and l1 by plain gradient descent until the class changes.

        Paper: altmeyer2025 Generator Generic.
        """
        return cls(
            **preset(
                settings, optimizer="sgd", lam=0.001, lr=0.1, steps=1000, restarts=1, keep="first"
            )
        )

    @classmethod
    def vanilla(cls, **settings: Any) -> "Descent":
        """VanillaCF: cross-entropy and half the mean square of a softmaxed row, RMSprop, the last
        point.

        Paper: guo2023 Baseline VanillaCF.
        """
        how = preset(settings, norm="mse", lam=0.5, optimizer="rmsprop", lr=0.001, steps=1000)
        return cls(**preset(how, restarts=1, keep="last", relax="softmax"))

    def check(self, model: object) -> None:
        if self.loss not in ("cross_entropy", "score", "hinge"):
            raise SettingError(f"unknown loss {self.loss!r}")
        distance = penalty_of(self.norm)
        if self.keep not in ("cheapest", "first", "last"):
            raise SettingError(f"unknown keep {self.keep!r}")
        if self.optimizer not in ("adam", "rmsprop", "sgd", "newton"):
            raise SettingError(f"unknown optimizer {self.optimizer!r}")
        newton = self.optimizer != "newton" or (self.loss == "score" and distance == squared_l2)
        if not newton:
            raise SettingError("optimizer='newton' is for loss='score' with norm=2")
        if self.relax not in ("round", "softmax"):
            raise SettingError(f"relax must be 'round' or 'softmax', got {self.relax!r}")
        gradient = self.relax == "round" or self.optimizer != "newton"
        if not gradient:
            raise SettingError("relax='softmax' needs a gradient step: 'adam', 'rmsprop' or 'sgd'")
        require_weight("lam", self.lam, "distance")
        require_positive("lr", self.lr)
        if not (self.steps >= 1 and self.restarts >= 1):
            raise SettingError("steps and restarts must be at least 1")

    def search(self, problem: SearchProblem) -> Tensor:
        answer, found = self._descend(problem, self.lam)
        for r in range(1, self.restarts):
            rest = (~found).nonzero().squeeze(1)
            if not len(rest) or problem.budget.over():
                break
            answer[rest], found[rest] = self._descend(problem[rest], self.lam / 2**r)
        return answer

    def _descend(self, problem: SearchProblem, lam: float) -> tuple[Tensor, Tensor]:
        """One run for all rows -> what is kept of each, and whether it has the wanted outcome."""
        walk = Walk(self, problem, lam) if self.relax == "round" else SoftWalk(self, problem, lam)
        if self.keep == "first":
            return until_met(problem, walk, self.steps)
        if self.keep == "last" and isinstance(walk, SoftWalk):
            # only the end is rounded: nothing on the way needs a reachable row
            for t in problem.steps(self.steps):
                walk.descend(problem, t)
            p = walk.row(problem.feasible)
            return p, problem.met(p)
        best = BestOfWalk(problem, penalty_of(self.norm)) if self.keep == "cheapest" else None
        p = walk.z
        for t in problem.steps(self.steps + 1):
            p = walk.row(problem.feasible)
            u = walk.step(problem, p, t)
            if best:
                best.see(p, u)
        return best.done(p) if best else (p, problem.met(p))
