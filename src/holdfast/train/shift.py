"""Virtual Data Shift: the retrained model that a worst small shift of the data would lead to.

Guo, Jia, Chen, Yadav and Xiao, "RoCourseNet", CIKM 2023:

    delta* = argmax_{|delta_i| <= eps}  sum_i L( f(x_cf_i; theta'(delta)), t_i )
    theta'(delta) = training on (x + delta, y) from theta

T times: K steps of training on the shifted rows, then a step of delta along the gradient of the answers' loss
through these K steps (truncated there; theta' carries on). The answers x_cf and their wanted classes t are those of
the model that is attacked and stay fixed. A step has the length 2.5 eps / T, so that T of them reach any corner.

All of it works on a stack of models at once; rows of one model are coupled through its theta', models are not.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast.errors import SettingError
from holdfast.geometry import clip_norm, unit
from holdfast.train.second import Parameters, Pass, gradient, mixed

B1, B2, ADAM_EPS = 0.9, 0.999, 1e-8
ROOT = 1e-12  # inside Adam's root: where a gradient is 0, its derivative would else be 0 times infinity


@dataclass(frozen=True)
class State:
    """Adam's memory."""

    m: Tensor
    v: Tensor
    count: int

    @classmethod
    def of(cls, theta: Parameters) -> "State":
        return cls(torch.zeros_like(theta.flat), torch.zeros_like(theta.flat), 0)

    def root(self) -> Tensor:
        """What Adam divides by, but for the last small number."""
        return (self.v / (1 - B2**self.count)).add_(ROOT).sqrt_()


@dataclass(frozen=True)
class Shift:
    """How the data may shift, and how the model follows.

    Args:
        epsilon: the largest shift of a number column, in encoded units.
        outer, inner: T steps of the shift, and K steps of training before each.
        eta: step size of training.
        optimizer: "adam" with its state carried along, or plain "sgd" as printed in the paper.
        norm: "linf", or "l2" for the length of each row's shift.
        categories: "none" leaves one-hot columns as they are; "clamp" shifts them like numbers; "softmax" also
            passes them through a softmax, as the authors' code does even where there is no shift.
        ascend: follow the gradient; False draws the shift anew each time (the paper's random ablation).
    """

    epsilon: float = 0.1
    outer: int = 7
    inner: int = 2
    eta: float = 0.03
    optimizer: Literal["adam", "sgd"] = "adam"
    norm: Literal["linf", "l2"] = "linf"
    categories: Literal["none", "clamp", "softmax"] = "none"
    ascend: bool = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise SettingError(f"epsilon must be at least 0, got {self.epsilon}")
        if self.outer < 0 or self.inner < 0:
            raise SettingError(f"outer and inner must be at least 0, got {self.outer} and {self.inner}")
        if not (math.isfinite(self.eta) and self.eta > 0):
            raise SettingError(f"eta must be positive, got {self.eta}")
        for name, known in (
            ("optimizer", ("adam", "sgd")),
            ("norm", ("linf", "l2")),
            ("categories", ("none", "clamp", "softmax")),
        ):
            if getattr(self, name) not in known:
                raise SettingError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Columns:
    """Which encoded columns are numbers, and which belong to which category."""

    one_hot: Tensor  # (d,) bool
    groups: Tensor  # (categories, most levels) column numbers, padded with d

    def softmax(self, x: Tensor) -> Tensor:
        """A softmax over the levels of each category; number columns as they are."""
        if not self.groups.numel():
            return x
        padded = torch.cat([x, x.new_full((*x.shape[:-1], 1), -math.inf)], -1)
        soft = torch.softmax(padded[..., self.groups], -1)
        out = torch.cat([x, x.new_zeros(*x.shape[:-1], 1)], -1)
        out[..., self.groups] = soft
        return out[..., :-1].contiguous()

    def softmax_pull(self, soft: Tensor, g: Tensor) -> Tensor:
        """Gradient by the columns, from the gradient by what `softmax` made of them."""
        if not self.groups.numel():
            return g
        zero = g.new_zeros(*g.shape[:-1], 1)
        p, up = (torch.cat([v, zero], -1)[..., self.groups] for v in (soft, g))
        out = torch.cat([g, zero], -1)
        out[..., self.groups] = p * (up - (p * up).sum(-1, keepdim=True))
        return out[..., :-1].contiguous()


def virtual_shift(
    theta: Parameters,
    x: Tensor,
    y: Tensor,
    x_cf: Tensor,
    t: Tensor,
    shift: Shift,
    columns: Columns,
    generator: torch.Generator,
) -> tuple[Parameters, Tensor]:
    """theta' and delta.

    Args:
        theta: M models, see `second`.
        x, y: rows (M, n, d) and their classes (M, n), 0 or 1.
        x_cf, t: answers (M, n, d) and the classes they are meant to get (M, n).
        generator: where the first shift comes from.
    """
    delta = _drawn(x, shift, columns, generator)
    state = State.of(theta)
    for _ in range(shift.outer if shift.inner else 0):
        tape = Tape(theta, state)
        rows = _shifted(x, delta, shift, columns)
        for _ in range(shift.inner):
            tape.step(rows, y, shift)
        theta, state = tape.theta, tape.state
        if shift.ascend:
            g = tape.by_rows(x_cf, t, shift)
            if shift.categories == "softmax":
                g = columns.softmax_pull(rows, g)
            delta = _climbed(delta, g, shift, columns)
        else:
            delta = _drawn(x, shift, columns, generator)
    return theta, delta


def _drawn(x: Tensor, shift: Shift, columns: Columns, generator: torch.Generator) -> Tensor:
    delta = (2 * torch.rand(x.shape, generator=generator, dtype=x.dtype) - 1) * shift.epsilon
    return _projected(delta, shift, columns)


def _projected(delta: Tensor, shift: Shift, columns: Columns) -> Tensor:
    free = delta.masked_fill(columns.one_hot, 0.0) if shift.categories == "none" else delta
    if shift.norm == "l2":
        return clip_norm(free.flatten(0, -2), shift.epsilon).view_as(free)
    inside = free.clamp(-shift.epsilon, shift.epsilon)
    # The authors' map leaves shifts of categories where they are.
    return torch.where(columns.one_hot, free, inside) if shift.categories == "softmax" else inside


def _climbed(delta: Tensor, g: Tensor, shift: Shift, columns: Columns) -> Tensor:
    size = 2.5 * shift.epsilon / shift.outer
    way = torch.sign(g) if shift.norm == "linf" else unit(g.flatten(0, -2)).view_as(g)
    return _projected(delta + size * way, shift, columns)


def _shifted(x: Tensor, delta: Tensor, shift: Shift, columns: Columns) -> Tensor:
    return columns.softmax(x + delta) if shift.categories == "softmax" else x + delta


class Tape:
    """Steps of training, kept so that the gradient of what follows can go back through them."""

    def __init__(self, theta: Parameters, state: State) -> None:
        self.theta, self.state = theta, state
        self.done = list[tuple[Parameters, Pass, Parameters, State]]()

    def step(self, rows: Tensor, y: Tensor, shift: Shift) -> None:
        g, at = gradient(self.theta, rows, y)
        before = self.theta
        if shift.optimizer == "sgd":
            self.theta = before.like(torch.sub(before.flat, g.flat, alpha=shift.eta))
        else:
            m, v, count = torch.lerp(self.state.m, g.flat, 1 - B1), self.state.v * B2, self.state.count + 1
            self.state = State(m, v.addcmul_(g.flat, g.flat, value=1 - B2), count)
            size = shift.eta / (1 - B1**count)
            self.theta = before.like(torch.addcdiv(before.flat, m, self.state.root().add_(ADAM_EPS), value=-size))
        self.done.append((before, at, g, self.state))

    def by_rows(self, x_cf: Tensor, t: Tensor, shift: Shift) -> Tensor:
        """(M, n, d) the gradient of the answers' loss at theta' by the rows it was trained on."""
        last, _ = gradient(self.theta, x_cf, t)
        up, by_m, by_v = last.flat, torch.zeros_like(last.flat), torch.zeros_like(last.flat)
        total: Tensor | None = None
        for i in range(len(self.done) - 1, -1, -1):
            theta, at, g, state = self.done[i]
            if shift.optimizer == "adam":
                size, root = shift.eta / (1 - B1**state.count), state.root()
                whole = root + ADAM_EPS
                base = (up / whole).mul_(size)
                by_m.sub_(base)
                by_v.add_(base.mul_(state.m).div_(whole.mul_(root)), alpha=0.5 / (1 - B2**state.count))
                p = torch.addcmul((1 - B1) * by_m, g.flat, by_v, value=2 * (1 - B2))
                by_m.mul_(B1)
                by_v.mul_(B2)
            else:
                p = -shift.eta * up
            by_x, curved = mixed(theta, theta.like(p), at, hessian=i > 0)
            total = by_x if total is None else total.add_(by_x)
            if curved is not None:
                up = up + curved.flat
        assert total is not None
        return total
