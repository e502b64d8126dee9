"""How far a change is: one type for every distance, with all that searches, attacks and metrics
need.

    value       D(u), u = z - x: changes (.., d) -> (..)
    gradient    of D by u; the slope of |u| at u = 0 is taken as 0: every search starts there
    prox        argmin_v  sum_j (v_j - u_j)^2 / (2 step_j) + D(v)
    project     argmin_v  |v - u|_2   with D(v) <= radius
    ascent      argmax_v  g.v         with D(v) <= 1: the steepest way up

    l0     number of columns that change         l1     sum_j w_j |u_j|
    l2     sqrt(sum_j w_j u_j^2)                 linf   max_j w_j |u_j|
    squared_l2    sum_j w_j u_j^2                mse    the mean of the same over the columns

    weighted(distance, weights)   the same with a weight for each column, besides those of the
                                  schema
    mad(data)                     l1 with the weights 1 / MAD_j (Wachter, Mittelstadt and Russell
                                  2018)

A new distance is a subclass with a `name`, `value` and `gradient`, and goes wherever a setting is
called `norm`: `hf.MinCost(norm=MyDistance())`, `cfs.cost(MyDistance())`. Anything further, such as
an exact `prox`, makes searches better, not different.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from holdfast._core.cheapest_steps import cheapest_squares, water_level
from holdfast.errors import SettingError

Norm = Literal[1, 2, "l1", "l2", "linf", "mse"]  # of a search
BallNorm = Literal["linf", "l2"]  # of an attack


def _times(values: Tensor | float, weight: Tensor | None) -> Any:
    return values if weight is None else values * weight


class Distance(ABC):
    """How far a change is. Changes are (.., d), weights of the columns are (d,) or like the
    changes."""

    name: str
    number: ClassVar[float | None] = None  # p of an l_p norm
    # does it count features, so that a change of category counts once?
    per_feature: ClassVar[bool] = False
    is_sparse: ClassVar[bool] = False  # do its cheapest changes move few columns?
    ball_is_box: ClassVar[bool] = False  # is projecting onto its ball clamping each column?

    @abstractmethod
    def value(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        """(.., d) changes -> (..)."""

    @abstractmethod
    def gradient(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        """(.., d) of `value`, by the changes."""

    @property
    def penalty(self) -> "Distance":
        """The distance in the form in which a search adds it to a loss: the same order, and a slope
        that fades at 0."""
        return self

    def terms(self, delta: Tensor, out: Tensor | None = None) -> Tensor:
        """(.., d) how much each column counts by itself: what ranks single changes."""
        return torch.abs(delta, out=out)

    def prox(self, delta: Tensor, step: Tensor | float, weight: Tensor | None = None) -> Tensor:
        """The proximal step; where a distance has none of its own, a plain gradient step of the
        same size."""
        return delta - step * self.gradient(delta, weight)

    def least_step(
        self, need: Tensor, gain: Tensor, weight: Tensor, room: Tensor, begun: Tensor | None = None
    ) -> Tensor:
        """(n, d) the least changes u with 0 <= u <= room and u.gain >= need (n,), or all of `room`
        if none gains that much: the cheapest way to the other side of a plane, for columns that
        have changed by `begun` (n, d) so far. Unless a distance knows better, by least squares."""
        return cheapest_squares(
            need, gain, weight, room, torch.zeros_like(room) if begun is None else begun
        )

    def slope_weight(self, weight: Tensor, lam: float) -> Tensor:
        """lam * weight, and the constant factor of the slope: made once for a search, for
        `add_slope`."""
        return weight * lam

    def add_slope(self, grad: Tensor, delta: Tensor, slope_weight: Tensor) -> Tensor:
        """grad + lam * gradient, in as few passes over the rows as can be."""
        return grad + self.gradient(delta, slope_weight)

    def project(self, delta: Tensor, radius: Tensor | float) -> Tensor:
        """The nearest changes in the ball; `radius` is one number, or (.., 1)."""
        raise SettingError(
            f"the distance {self.name!r} has no ball to project onto; use 'l1', 'l2' or 'linf'"
        )

    def ascent(self, grad: Tensor) -> Tensor:
        """The step in the unit ball along which a function with this gradient rises most."""
        raise SettingError(
            f"the distance {self.name!r} has no steepest direction; use 'l1', 'l2' or 'linf'"
        )

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """(n, d) and (m, d) rows -> (n, m) distances."""
        return (
            self.value(a[:, None] - b) if self.number is None else torch.cdist(a, b, p=self.number)
        )

    def __repr__(self) -> str:
        return self.name


class Separable(Distance):
    """A sum over columns: sum_j w_j terms(u)_j."""

    @abstractmethod
    def slopes(self, delta: Tensor) -> Tensor:
        """(.., d) of the terms, each by its own column."""

    def value(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        terms = self.terms(delta)
        if weight is None:
            return terms.sum(-1)
        return terms @ weight if weight.ndim == 1 else (terms * weight).sum(-1)

    def gradient(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        return _times(self.slopes(delta), weight)


@dataclass(frozen=True, repr=False)
class L0(Separable):
    name = "l0"
    number = 0.0
    per_feature = True

    @property
    def penalty(self) -> Distance:
        raise SettingError(
            "norm 'l0' counts changes, so a search has no slope to follow; use 'l1', or TreeSearch"
        )

    def terms(self, delta: Tensor, out: Tensor | None = None) -> Tensor:
        counts = (delta != 0).to(delta.dtype)
        return counts if out is None else out.copy_(counts)

    def slopes(self, delta: Tensor) -> Tensor:
        return torch.zeros_like(delta)

    def prox(self, delta: Tensor, step: Tensor | float, weight: Tensor | None = None) -> Tensor:
        return torch.where(delta.square() > 2 * _times(step, weight), delta, 0.0)


@dataclass(frozen=True, repr=False)
class L1(Separable):
    name = "l1"
    number = 1.0
    is_sparse = True

    def slopes(self, delta: Tensor) -> Tensor:
        return torch.sign(delta)

    def prox(self, delta: Tensor, step: Tensor | float, weight: Tensor | None = None) -> Tensor:
        """Changes made smaller by step * weight, and none where they are below it."""
        return torch.sign(delta) * (delta.abs() - _times(step, weight)).clamp_min(0)

    def least_step(
        self, need: Tensor, gain: Tensor, weight: Tensor, room: Tensor, begun: Tensor | None = None
    ) -> Tensor:
        """A continuous knapsack: columns are filled in the order of gain per cost until the need is
        met."""
        order = (gain / weight).argsort(1, descending=True)
        all_of_it = (room * gain).gather(1, order)
        before = all_of_it.cumsum(1) - all_of_it
        share = ((need[:, None] - before) / all_of_it.clamp_min(1e-12)).clamp(0, 1)
        return torch.zeros_like(share).scatter_(1, order, share) * room

    def add_slope(self, grad: Tensor, delta: Tensor, slope_weight: Tensor) -> Tensor:
        return torch.addcmul(grad, torch.sign(delta), slope_weight)

    def project(self, delta: Tensor, radius: Tensor | float) -> Tensor:
        size = delta.abs()
        return delta.sign() * (size - water_level(size, torch.ones_like(size), radius)).clamp_min(0)

    def ascent(self, grad: Tensor) -> Tensor:
        """All of it along the steepest column."""
        top = grad.abs().argmax(-1, keepdim=True)
        return torch.zeros_like(grad).scatter_(-1, top, grad.gather(-1, top).sign())


@dataclass(frozen=True, repr=False)
class SquaredL2(Separable):
    name = "squared l2"

    def terms(self, delta: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.square(delta, out=out)

    def slopes(self, delta: Tensor) -> Tensor:
        return 2 * delta

    def prox(self, delta: Tensor, step: Tensor | float, weight: Tensor | None = None) -> Tensor:
        return delta / (1 + 2 * _times(step, weight))

    def slope_weight(self, weight: Tensor, lam: float) -> Tensor:
        return weight * (2 * lam)

    def add_slope(self, grad: Tensor, delta: Tensor, slope_weight: Tensor) -> Tensor:
        return torch.addcmul(grad, delta, slope_weight)


@dataclass(frozen=True, repr=False)
class MeanSquare(SquaredL2):
    name = "mse"

    def value(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        d = delta.shape[-1]
        return super().value(delta) / d if weight is None else super().value(delta, weight / d)

    def gradient(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        d = delta.shape[-1]
        return (
            super().gradient(delta) / d if weight is None else super().gradient(delta, weight / d)
        )

    def prox(self, delta: Tensor, step: Tensor | float, weight: Tensor | None = None) -> Tensor:
        return super().prox(delta, step / delta.shape[-1], weight)

    def slope_weight(self, weight: Tensor, lam: float) -> Tensor:
        return weight * (2 * lam / weight.shape[-1])


@dataclass(frozen=True, repr=False)
class L2(Distance):
    name = "l2"
    number = 2.0

    @property
    def penalty(self) -> Distance:
        return squared_l2

    def value(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        return squared_l2.value(delta, weight).sqrt()

    def gradient(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        length = self.value(delta, weight)[..., None].clamp_min(torch.finfo(delta.dtype).tiny)
        return _times(delta, weight) / length

    def project(self, delta: Tensor, radius: Tensor | float) -> Tensor:
        length = self.value(delta)[..., None].clamp_min(torch.finfo(delta.dtype).tiny)
        return delta * (radius / length).clamp_max(1.0)

    def ascent(self, grad: Tensor) -> Tensor:
        return self.gradient(grad)


@dataclass(frozen=True, repr=False)
class LInf(Distance):
    name = "linf"
    number = math.inf
    ball_is_box = True

    def value(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        return _times(delta.abs(), weight).amax(-1)

    def gradient(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        size = _times(delta.abs(), weight)
        top = (size == size.amax(-1, keepdim=True)).to(delta.dtype)
        # shared by the columns that are equally far
        slope = delta.sign() * top / top.sum(-1, keepdim=True)
        return _times(slope, weight)

    def prox(self, delta: Tensor, step: Tensor | float, weight: Tensor | None = None) -> Tensor:
        """All columns cut off at one level t of w_j |u_j|, with sum_j (|u_j| - t / w_j)_+ / (step_j
        w_j) = 1."""
        w = torch.ones_like(delta) if weight is None else weight.expand_as(delta)
        level = water_level(delta.abs() * w, 1 / (step * w.square()), 1.0)
        return delta.sign() * torch.minimum(delta.abs(), level / w)

    def project(self, delta: Tensor, radius: Tensor | float) -> Tensor:
        return torch.clamp(delta, *cast(tuple[float, float], (-radius, radius)))

    def ascent(self, grad: Tensor) -> Tensor:
        return torch.sign(grad)


@dataclass(frozen=True, eq=False, repr=False)
class Weighted(Distance):
    """Another distance with a weight for each column (d,), besides those that it is asked with."""

    distance: Distance
    weights: Tensor
    name: str

    @property
    def penalty(self) -> Distance:
        return Weighted(self.distance.penalty, self.weights, self.name)

    def value(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.distance.value(delta, self._times(delta, weight))

    def gradient(self, delta: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.distance.gradient(delta, self._times(delta, weight))

    def terms(self, delta: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.mul(self.distance.terms(delta), self.weights.to(delta.dtype), out=out)

    def prox(self, delta: Tensor, step: Tensor | float, weight: Tensor | None = None) -> Tensor:
        return self.distance.prox(delta, step, self._times(delta, weight))

    def least_step(
        self, need: Tensor, gain: Tensor, weight: Tensor, room: Tensor, begun: Tensor | None = None
    ) -> Tensor:
        return self.distance.least_step(need, gain, self._times(gain, weight), room, begun)

    def _times(self, delta: Tensor, weight: Tensor | None) -> Tensor:
        n = len(self.weights)
        d = delta.shape[-1]
        if n != d:
            raise SettingError(f"{self.name!r} has {n} weights, one per column, for changes of {d}")
        return _times(self.weights.to(delta.dtype).expand_as(delta), weight)


l0 = L0()
l1 = L1()
l2 = L2()
linf = LInf()
squared_l2 = SquaredL2()
mse = MeanSquare()
DISTANCES: tuple[Distance, ...] = (l0, l1, l2, linf, squared_l2, mse)


def weighted(distance: Distance, weights: Tensor, name: str = "") -> Distance:
    """A distance with a weight for each encoded column.

    Args:
        distance: `l1`, `l2`, `linf` or one of your own.
        weights: (d,), none of them negative.
        name: what it is called in settings and reports.

    >>> import torch, holdfast as hf
    >>> price = hf.distances.weighted(hf.distances.l1, torch.tensor([1.0, 10.0]))
    >>> price.value(torch.tensor([[2.0, 1.0]])).tolist()
    [12.0]
    """
    good = weights.ndim == 1 and bool((weights.isfinite() & (weights >= 0)).all())
    if not good:
        raise SettingError(
            "weights must be finite numbers of at least 0, one for each encoded column (d,)"
        )
    return Weighted(distance, weights.detach().clone(), name or f"weighted {distance.name}")


def mad(data: Tensor) -> Distance:
    """l1 in units of the median absolute deviation: sum_j |u_j| / MAD_j, MAD_j = median_i |x_ij -
    median_i x_ij|.

    Columns in which more than half of the rows are equal have no such unit; they keep the weight 1.

    Args:
        data: (n, d) encoded rows, `schema.encode(X)`.

    >>> import torch, holdfast as hf
    >>> distance = hf.distances.mad(torch.tensor([[0.0], [2.0], [4.0], [8.0], [9.0]]))
    >>> distance.value(torch.tensor([[2.0]])).tolist()
    [0.5]
    """
    spread = (data - data.median(0).values).abs().median(0).values
    return weighted(l1, torch.where(spread > 0, 1 / spread, 1.0), "mad")


def distance_of(
    norm: object, among: tuple[Distance, ...] = DISTANCES, setting: str = "norm"
) -> Distance:
    """The distance behind a setting: 0, 1, 2, inf, a name such as 'linf', or a `Distance`.

    Args:
        norm: the value of the setting.
        among: the names that are allowed; a `Distance` always is.
        setting: its name, for the error.

    >>> import holdfast as hf
    >>> hf.distances.distance_of(2) is hf.distances.l2
    True
    """
    if isinstance(norm, Distance):
        return norm
    for distance in among if not isinstance(norm, bool) else ():
        if norm == distance.name or (isinstance(norm, int | float) and norm == distance.number):
            return distance
    names = [repr(distance.name) for distance in among]
    *most, last = names
    raise SettingError(f"{setting} must be {', '.join(most)} or {last}, got {norm!r}")


def penalty_of(norm: object) -> Distance:
    """The same in the form that a search adds to a loss: of l2 the square."""
    return distance_of(norm, DISTANCES[1:]).penalty
