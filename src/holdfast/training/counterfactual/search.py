"""Counterfactuals in the making: the search inside Counterfactual Training, for all networks of a stack at once.

    x_k = P( x_{k-1} - lr g_k ),   k = 1 .. T,   from x_0 = x
    g_k = d/dx { CE(M(x), t) + lam |x - x_0|_1 + energy phi_k (E + 1e-3 E^2) },   E = -M(x)_t; phi: `methods._energy`

    mature     the first x_k with S_t >= tau, S = softmax(M(x_k)); a row stops there
    nascent    the last x_k, up to there, with |x_k - x_0|_inf <= epsilon; x_0 is one

This is ECCCo with energy > 0 and Generic with energy = 0. P keeps to the domain and to what may change: a fixed column
never moves, a one-way column never turns back. With a VAE (REVISE) the code z moves, x_k = dec(z), and the domain is
all that is kept to.

Altmeyer et al., "Counterfactual Training", 2025. The step size setting of the authors' code is never read: lr is 0.1.

Rows do not depend on each other, so those that have stopped leave the batch once they are half of it, and large
batches are worked off in parts that stay in the cache. Tensors are (networks, columns, rows), see `nn.stack`; in
memory a row of many columns is in one piece.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from holdfast.methods._autoencoder import TableAutoencoder
from holdfast.methods._energy import RIDGE, decay
from holdfast.nn.relu_network import Pullback
from holdfast.nn.stack import WIDE, ModelStack
from holdfast.training.counterfactual.ball import Ball, picked
from holdfast.training.counterfactual.domain import Domain

CELLS = 5 << 17  # numbers in the rows worked on at once: four such tensors stay in the cache
LEFT = 0.5  # share of the rows still on their way at which the others leave the batch
SIGN = torch.ops.aten.smooth_l1_loss_backward.grad_input  # v sign(a - b) in one pass


@dataclass(frozen=True, eq=False)
class Search:
    """How the rows of M networks move; a tensor (M, 1, 1) for what networks may differ in."""

    lam: Tensor
    energy: Tensor
    tau: Tensor
    lr: Tensor
    steps: int
    epsilon: float


@dataclass(frozen=True)
class Pace:
    """How far a step may lead."""

    steep: float  # for a slope by what the first layer sees, a column changes by this times its length at most
    slip: float  # what the distance in the objective, and rounding, may add

    @property
    def known(self) -> bool:
        return math.isfinite(self.steep)

    def sound(self, slope: Tensor) -> bool:
        """Is all that comes of a slope sure to be a number?"""
        return self.known and math.isfinite(self.steep * math.sqrt(float(slope.square().sum())))

    def bound(self, slope: Tensor) -> float:
        """No column of any row changes by more than this; slopes are (M, h, n)."""
        return 1.001 * self.steep * math.sqrt(float(slope.square().sum(1).max())) + self.slip


class Walk(Protocol):
    """Where rows are, and how they get elsewhere."""

    def rows(self) -> Tensor:
        """(M, d, n) the rows that networks see."""
        ...

    def base(self) -> tuple[Tensor | None, Tensor]:
        """(M, d, n) what the next step is added to, None for zero; and room for the sum."""
        ...

    def move(self, to: Tensor) -> None:
        """Go to base plus step, `to`, as far as that may be."""
        ...

    def only(self, some: Tensor) -> None:
        """Go on with some (M, m) of the rows."""
        ...


class Free:
    """Columns move as they are."""

    def __init__(self, x: Tensor, domain: Domain) -> None:
        self.domain, self.x, self.last = domain, domain.step_(x.clone(), x), torch.empty_like(x)

    def rows(self) -> Tensor:
        return self.domain.shown(self.x)

    def base(self) -> tuple[Tensor | None, Tensor]:
        return self.x, self.last

    def move(self, to: Tensor) -> None:
        self.x, self.last = self.domain.step_(to, self.x), self.x

    def only(self, some: Tensor) -> None:
        self.x = picked(self.x, some)
        self.last = torch.empty_like(self.x)


class Coded:
    """Codes move, rows are decoded from them; the step of a code is that of its row, to first order."""

    def __init__(self, x: Tensor, domain: Domain, net: TableAutoencoder) -> None:
        self.domain, self.net, self.like = domain, net, x[:, :, :1]
        self.z = self._stacked(net.encode(self._flat(x)))
        self.back: Pullback | None = None

    def rows(self) -> Tensor:
        rows, self.back = self.net.decode_vjp(self._flat(self.z))
        return self.domain.clamp_(self._stacked(rows).to(self.like.dtype))

    def base(self) -> tuple[Tensor | None, Tensor]:
        m, d, _ = self.like.shape
        return None, self.like.new_empty(m, d, self.z.shape[2])

    def move(self, to: Tensor) -> None:
        assert self.back is not None
        self.z = self.z + self._stacked(self.back(self._flat(to)))

    def only(self, some: Tensor) -> None:
        self.z = picked(self.z, some)

    def _flat(self, x: Tensor) -> Tensor:
        return x.mT.reshape(-1, x.shape[1])

    def _stacked(self, rows: Tensor) -> Tensor:
        return rows.view(len(self.like), -1, rows.shape[1]).mT.contiguous()


@dataclass(frozen=True, eq=False)
class Grown:
    """What became of the rows of M networks."""

    end: Tensor  # (M, n, d) where they stopped
    near: Tensor  # (M, n, d) the nascent ones
    inside: Tensor  # (M, n) is the end one of these?
    open: Tensor  # (M, n) not mature
    steps: Tensor  # (M,) how many all rows of a network took together

    @classmethod
    def room(cls, x: Tensor) -> "Grown":
        """Room for rows x."""
        flags = torch.zeros(x.shape[:2], dtype=torch.bool)
        return cls(torch.empty_like(x), torch.empty_like(x), flags, flags.clone(), torch.zeros(len(x)))

    def write(self, place: Tensor, p: Tensor, ball: Ball, on: Tensor, some: Tensor | None = None) -> None:
        """Enter all, or some (M, m), of the rows (M, d, n) at their places (M, n) among all rows."""
        inside, open_ = ball.inside, on[:, 0] > 0
        if some is not None:
            p, place, inside, open_ = picked(p, some), *(v.gather(1, some) for v in (place, inside, open_))
        to = place.reshape(-1)
        self.end.view(-1, p.shape[1]).index_copy_(0, to, p.mT.reshape(-1, p.shape[1]))
        self.inside.view(-1)[to], self.open.view(-1)[to] = inside.reshape(-1), open_.reshape(-1)


def grow(
    models: ModelStack, x: Tensor, wanted: Tensor, how: Search, domain: Domain, *,
    shape: Sequence[int] = (), net: TableAutoencoder | None = None, out: Grown | None = None,
) -> Grown:  # fmt: skip
    """Search for counterfactuals of rows x (M, n, d), to which networks give the classes `wanted` (M, n).

    Args:
        shape: of a row, if it is not flat.
        net: an autoencoder to search in the codes of.
        out: room for what becomes of them.
    """
    m, n, d = x.shape
    out, wide = out or Grown.room(x), d >= WIDE and net is None
    out.steps.zero_()
    pace = Pace(models.steep(), float((how.lr * how.lam).max()) + 4 * torch.finfo(x.dtype).eps * domain.size)
    all_, count = torch.arange(m * n).view(m, n), max(1, -(-x.numel() // CELLS))
    for place in all_.tensor_split(count, 1) if n else ():
        at = slice(int(place[0, 0]), int(place[0, -1]) + 1)
        part = x[:, at].mT if wide else x[:, at].mT.contiguous()
        walk = Free(part, domain) if net is None else Coded(part, domain, net)
        ball = Ball(part, place, out.near.view(-1, d), how.epsilon)
        if wide and pace.known and domain.layout is None:  # rounding to one level is no small step
            ball.begin(walk.rows())
        _grow(models, part, wanted[:, None, at], place, how, walk, ball, pace, shape, out)
    return out


def _grow(
    models: ModelStack, x: Tensor, t: Tensor, place: Tensor, how: Search, walk: Walk, ball: Ball, pace: Pace,
    shape: Sequence[int], out: Grown,
) -> None:  # fmt: skip
    """The same for rows (M, d, n) that are worked on together; t is (M, 1, n)."""
    w = how.energy * decay(how.steps).to(x.dtype)[:, None, None, None]  # (T, M, 1, 1)
    constant, linear = (-1 - w).unbind(), (2 * RIDGE * w).unbind()
    rate, back, tiny = -how.lr, -how.lr * how.lam, torch.finfo(x.dtype).tiny
    on = torch.ones(len(x), 1, x.shape[2], dtype=x.dtype)  # 1 for rows that walk on, 0 for those that have stopped
    own, before, speed, drag, left, steps = on, x, on, on, list[float](), list[list[float]]()
    for k in range(how.steps + 1):
        p = walk.rows()
        z, way = models.vjp(p, shape)  # (M, K, n)
        s = torch.softmax(z, 1)
        ball.see(p, before)
        on.addcmul_(on, s.gather(1, t).ge_(how.tau), value=-1)
        now = [float(count) for count in on.sum((1, 2))]
        most = int(max(now))
        if k == how.steps or not most:
            ball.close(p, torch.arange(on.shape[2]).expand(len(on), -1))
            out.write(place, p, ball, on)
            break
        steps.append(now)
        if now != left:
            left, speed, drag = now, on * rate, on * back
        own = own if k else torch.zeros_like(z).scatter_(1, t, 1.0)  # e_t
        # The derivative by the scores: S - e_t of the cross-entropy, w (-1 + 2e-3 M_t) e_t of the energy. Rows that
        # have stopped stay where they are.
        v = torch.addcmul(s, own, torch.addcmul(constant[k], linear[k], z)).mul_(speed)
        base, to = walk.base()
        SIGN(drag, p, x, 0, tiny, grad_input=to)
        slope = way.slope(v)
        way.onto(slope, to if base is None else to.add_(base))
        if not pace.sound(slope) and math.isnan(float(to.sum())):
            to = torch.where(to.isnan(), 0.0 if base is None else base, to)
        if ball.most <= how.epsilon:
            ball.reach(pace.bound(slope))
        walk.move(to)
        before = p
        if most <= LEFT * on.shape[2]:  # go on with the others, and some more: as many for all networks
            some, gone = on[:, 0].argsort(dim=1, descending=True, stable=True).tensor_split([most], 1)
            ball.close(p, gone)
            out.write(place, p, ball, on, gone)
            x, t, on, own, before = (picked(v, some) for v in (x, t, on, own, before))
            place, left = place.gather(1, some), []
            ball.only(some)
            walk.only(some)
    if steps:
        out.steps.add_(torch.tensor(steps).sum(0))
