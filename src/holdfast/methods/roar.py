"""ROAR: answers for the worst model near the present one.

The model's own weights if it is one Linear layer, else a plane fitted around each row by LIME
(`_local_linear.py`). The loss falls with the gap, so the inner maximum has a closed form: D against
the steepest direction of (z, 1),

    norm = "linf"    dw = -D sign(z),                       db = -D
    norm = "l2"      dw = -D z / sqrt(|z|_2^2 + 1),         db = -D / sqrt(|z|_2^2 + 1)
                     for |w|_2 = 1

Without an intercept there is no b to shift. By the envelope theorem the outer gradient is the
loss's with (dw, db) held fixed; both are found anew at every step, always from the original w and
b.

`ROAR.lime()` is ROAR-LIME as "RoCourseNet" (Guo et al. 2023) runs it, with the exact inner maximum
in place of one random sign step, and without letting the shifts of all steps add up.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from holdfast._core.checks import require_positive, require_weight
from holdfast._core.params import preset
from holdfast._core.types import Outcomes, Rows
from holdfast.distances import BallNorm, Distance, distance_of, l1, l2, linf, mse
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods._data import check_columns, encoded
from holdfast.methods._local_linear import Plane, fit_planes, shares_of
from holdfast.models.base import Model
from holdfast.problem import SearchProblem

Optimizer = Literal["adam", "rmsprop", "sgd"]


@dataclass(eq=False, repr=False)
class ROAR(Explainer):
    """Gradient descent against the worst shift of a linear score's weights.

        minimise over z    max_{|dw| <= D, |db| <= D}  BCE(sigmoid((w + dw).z + b + db), 1)
                           +  lam * distance(z, x)

    w.z + b is the gap, the lead of the wanted class: for two classes the log-odds, with the
    opposite sign if class 0 is wanted.

    Args:
        delta: D, how far each weight may shift (norm="l2": how far all of them together, with |w|_2
            = 1).
        lam: weight of the distance.
        norm: "linf" or "l2": the ball of the shifts.
        distance: 1, "mse" (the mean square), or a `Distance`: what pulls back.
        linear: "auto" uses the weights of a model that is one Linear layer, and planes by LIME for
            all others; "lime" uses planes for every model.
        relax: "box" moves each level of a category freely between 0 and 1, "softmax" keeps their
            sum at 1.
        optimizer: "adam", "rmsprop" or "sgd"; the state belongs to each row alone.
        lr, steps, tolerance: step size, most steps, and the change of the loss below which a row
            stops.
        restarts: rows without an answer start again with `lam` halved, this many times in all.
        samples, noise, kernel, ridge, intercept: of the planes: neighbours per row, their spread as
            a part of the range of the data, the kernel's width over sqrt(d), the ridge, and whether
            a plane has an intercept.

    >>> import holdfast as hf
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.Model.of(LogisticRegression().fit(data.X, data.y), data.schema)
    >>> method = hf.ROAR(delta=0.02, steps=100, samples=500).fit(model, data.X)
    >>> len(method.explain(model, data.X.head(20), "yes"))
    20

    Reference:
        Upadhyay, Joshi and Lakkaraju 2021, "Towards Robust and Reliable Algorithmic Recourse".

    Paper: krishna2024 Baseline ROAR.
    """

    title = "descent against the worst shift of a linear score's weights, any model"
    paper = "Upadhyay et al. 2021 (ROAR); Guo et al. 2023 (ROAR-LIME)"
    when = "the weights of a linear model, or of its local likeness, may shift by a known amount"
    cost = (
        "samples forward passes for each row's plane, none on a linear model; the steps take no "
        "more"
    )
    needs_grad = False
    needs_data = True
    advice = "lower delta or lam, raise restarts or noise, or try NearestNeighbor"

    delta: float = 0.1
    lam: float = 0.1
    norm: BallNorm | Distance = "linf"
    distance: Literal[1, "mse"] | Distance = 1
    linear: Literal["auto", "lime"] = "auto"
    relax: Literal["box", "softmax"] = "box"
    optimizer: Optimizer = "adam"
    lr: float = 0.05
    steps: int = 500
    tolerance: float = 1e-4
    restarts: int = 5
    _: KW_ONLY
    samples: int = 5000
    noise: float = 0.1
    kernel: float = 0.75
    ridge: float = 1.0
    intercept: bool = True

    @classmethod
    def lime(cls, **settings: Any) -> "ROAR":
        """ROAR-LIME: planes without intercept, cross-entropy and half the mean square, 50 steps of
        RMSprop.

        Paper: guo2023 Baseline ROAR-LIME.
        """
        how = preset(
            settings, linear="lime", intercept=False, relax="softmax", distance="mse", lam=0.5
        )
        return cls(**preset(how, optimizer="rmsprop", lr=0.1, steps=50, tolerance=0.0, restarts=1))

    def check(self, model: Model) -> None:
        if not self.delta >= 0:
            raise SettingError(f"delta must be 0 or more, got {self.delta}")
        require_weight("lam", self.lam, "distance")
        distance_of(self.norm, (linf, l2))
        distance_of(self.distance, (l1, mse), "distance")
        if self.linear not in ("auto", "lime"):
            raise SettingError(f"linear must be 'auto' or 'lime', got {self.linear!r}")
        if self.relax not in ("box", "softmax"):
            raise SettingError(f"relax must be 'box' or 'softmax', got {self.relax!r}")
        if self.optimizer not in ("adam", "rmsprop", "sgd"):
            raise SettingError(f"unknown optimizer {self.optimizer!r}; try 'adam'")
        require_positive("lr", self.lr)
        if not self.tolerance >= 0:
            raise SettingError(f"tolerance must be 0 or more, got {self.tolerance}")
        if not (self.steps >= 1 and self.restarts >= 1):
            raise SettingError("steps and restarts must be at least 1")
        if not self.samples >= 1:
            raise SettingError(f"samples must be at least 1, got {self.samples}")
        if not (self.noise > 0 and self.kernel > 0 and self.ridge > 0):
            raise SettingError("noise, kernel and ridge must be positive")
        check_columns(len(self.shares_), model)

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Count how often each level of each category occurs."""
        self.shares_: Tensor = shares_of(
            encoded(X, model, "ROAR"), model.schema.encoding(model.dtype)
        )

    def search(self, problem: SearchProblem) -> Tensor:
        score = self._score(problem)
        answer = self._descend(problem, score, self.lam)
        for r in range(1, self.restarts):
            rest = (~problem.met(answer)).nonzero().squeeze(1)
            if not len(rest) or problem.budget.over():
                break
            answer[rest] = self._descend(problem[rest], score[rest], self.lam / 2**r)
        return answer

    def _score(self, problem: SearchProblem) -> "Score":
        """The gap as a linear function: exactly where the model is one, else by planes around each
        row."""
        exact = exact_weights(problem.model) if self.linear == "auto" else None
        if exact is not None:
            return Score(None, *exact, shifts_b=True)
        plane = fit_planes(
            problem,
            self.shares_,
            samples=self.samples,
            noise=self.noise,
            kernel=self.kernel,
            ridge=self.ridge,
            intercept=self.intercept,
        )
        return Score(plane, None, None, shifts_b=self.intercept)

    def _descend(self, problem: SearchProblem, score: "Score", lam: float) -> Tensor:
        """One run for all rows; a row whose loss has settled stays where it is."""
        z = problem.feasible.clamp(problem.x)
        relax = Relax(problem, self.relax == "softmax")
        state = OptimizerState(z, self.optimizer, self.lr)
        last = z.new_full((len(z), 1), math.inf)
        on = torch.ones(len(z), 1, dtype=torch.bool)
        for _ in problem.steps(self.steps):
            p = relax(z)
            loss, grad = self.worst_loss(problem, score, p, lam)
            on &= (last - loss).abs() >= self.tolerance
            if not on.any():
                break
            z = torch.where(on, relax.clamp(state.step(z, relax.pull(p, grad))), z)
            last = loss
        return problem.feasible.project(relax(z))

    def worst_loss(
        self, problem: SearchProblem, score: "Score", z: Tensor, lam: float
    ) -> tuple[Tensor, Tensor]:
        """The loss of rows z (n, 1) at the worst shift of the weights, and its gradient (n, d)."""
        plane = score.at(problem, z)
        ball = distance_of(self.norm)
        w = plane.w
        b = plane.b[:, None]
        # the weights share one allowance, so it is measured in units of all of them
        if not ball.ball_is_box:
            size = ball.value(w)[:, None].clamp_min(torch.finfo(w.dtype).tiny)
            w = w / size
            b = b / size
        dw, db = worst_shift(z, self.delta, ball, shifts_b=score.shifts_b)
        short = problem.level - ((w + dw) * z).sum(1, keepdim=True) - b - db
        away = z - problem.x
        weight = problem.feasible.weights * lam
        distance = distance_of(self.distance)
        loss = torch.nn.functional.softplus(short) + distance.value(away, weight)[:, None]
        return loss, distance.gradient(away, weight) - torch.sigmoid(short) * (w + dw)


def worst_shift(
    z: Tensor, delta: float, ball: Distance, *, shifts_b: bool = True, target: int = 1
) -> tuple[Tensor, Tensor]:
    """The shift dw (n, d), db (n, 1) of a linear score that hurts most at rows z, if class `target`
    is wanted."""
    one = torch.ones_like(z[:, :1]) if shifts_b else torch.zeros_like(z[:, :1])
    shift = (-delta if target == 1 else delta) * ball.ascent(torch.cat([z, one], 1))
    return shift[:, :-1], shift[:, -1:]


def exact_weights(model: Model) -> tuple[Tensor, Tensor] | None:
    """Weights (k, d) and biases (k,) of the scores, if the model is a single Linear layer."""
    engine = model.engine
    if engine is None or len(engine.weights) > 1:
        return None
    w, b = engine.weights[0]
    return (
        (torch.cat([torch.zeros_like(w), w]), torch.cat([torch.zeros_like(b), b]))
        if len(w) == 1
        else (w, b)
    )


@dataclass(frozen=True)
class Score:
    """The gap as a linear function: one plane per row, or the weights of all classes."""

    plane: Plane | None
    weights: Tensor | None  # (k, d) of a linear model, and
    biases: Tensor | None  # (k,)
    shifts_b: bool  # does the worst case shift b too?

    def __getitem__(self, rows: Tensor) -> "Score":
        return Score(
            self.plane[rows] if self.plane else None, self.weights, self.biases, self.shifts_b
        )

    def at(self, problem: SearchProblem, z: Tensor) -> Plane:
        """The plane at rows z; with more than two classes it depends on which class is next best
        there."""
        if self.plane is not None:
            return self.plane
        assert self.weights is not None
        assert self.biases is not None
        scores = problem.model(z)
        gap, slope = problem.goal.gap_and_slope(scores)  # (n,), (n, k)
        # Not as a matrix product: that may add in another order in another batch.
        w = (slope[..., None] * self.weights).sum(1)
        b = (slope * self.biases).sum(1)
        return Plane(w, b if problem.goal.is_lead else b + gap - (slope * scores).sum(1))


class Relax:
    """Categories between their levels: as they are ("box"), or as the softmax over levels the
    person may take."""

    def __init__(self, problem: SearchProblem, softmax: bool) -> None:
        self.softmax = softmax
        self.encoding = problem.feasible.encoding
        feasible = problem.feasible
        free = self.encoding.one_hot & softmax
        self.open = (feasible.hi > 0).to(problem.x.dtype)
        # A softmax takes any numbers.
        self.lo = feasible.lo.masked_fill(free, -math.inf)
        self.hi = feasible.hi.masked_fill(free, math.inf)

    def __call__(self, z: Tensor) -> Tensor:
        return self.encoding.softmax(z, self.open) if self.softmax else z

    def clamp(self, z: Tensor) -> Tensor:
        return torch.clamp(z, self.lo, self.hi)

    def pull(self, p: Tensor, grad: Tensor) -> Tensor:
        """The gradient by z from that by p = relax(z)."""
        return self.encoding.softmax_pull(p, grad) if self.softmax else grad


class OptimizerState:
    """The moments of an optimiser, one row each."""

    def __init__(self, z: Tensor, optimizer: Optimizer, lr: float) -> None:
        self.optimizer = optimizer
        self.lr = lr
        self.count = 0
        self.m = torch.zeros_like(z)
        self.v = torch.zeros_like(z)

    def step(self, z: Tensor, g: Tensor) -> Tensor:
        self.count += 1
        if self.optimizer == "sgd":
            return z - self.lr * g
        if self.optimizer == "rmsprop":
            self.v.mul_(0.99).addcmul_(g, g, value=0.01)
            return z - self.lr * g / (self.v.sqrt() + 1e-8)
        self.m.lerp_(g, 0.1)
        self.v.mul_(0.999).addcmul_(g, g, value=0.001)
        m = self.m / (1 - 0.9**self.count)
        v = self.v / (1 - 0.999**self.count)
        return z - self.lr * m / (v.sqrt() + 1e-8)
