"""Counterfactuals in the making: the search inside Counterfactual Training, for all networks of a stack at once.

    x_k = P( x_{k-1} - lr g_k ),   k = 1 .. T,   from x_0 = x
    g_k = d/dx { CE(M(x), t) + lam |x - x_0|_1 + energy phi_k (E + 1e-3 E^2) },   E = -M(x)_t
    phi_k = a (b + k)^-0.9,   b = round(T / 25),   a = b / 10

    mature     the first x_k with S_t >= tau, S = softmax(M(x_k)); a row stops there
    nascent    the last x_k, up to there, with |x_k - x_0|_inf <= epsilon; x_0 is one

This is ECCCo with energy > 0 and Generic with energy = 0. P keeps to the domain and to what may change: a fixed column
never moves, a one-way column never turns back. With a VAE (REVISE) the code z moves, x_k = dec(z), and the domain is
all that is kept to.

Altmeyer et al., "Counterfactual Training", 2025; phi and the 1e-3 are in the authors' code only, and without phi the
energy would weigh 20 to 200 times as much. phi is 0 for T <= 12. Their step size setting is never read: lr is 0.1.

Rows do not depend on each other, so those that have stopped leave the batch once they are half of it, and large
batches are worked off in parts that stay in the cache. Tensors are (networks, columns, rows), see `holdfast.stack`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from holdfast.network import Pullback
from holdfast.stack import Members
from holdfast.train.domain import Domain
from holdfast.train.generative import Autoencoder

RIDGE = 1e-3  # weight of E^2 beside E
CELLS = 1 << 18  # numbers in the rows worked on at once: a few such tensors stay in the cache


def decay(steps: int) -> Tensor:
    """(steps,) phi_1 .. phi_T, in double precision."""
    b = round(steps / 25)
    return b / 10 * (b + torch.arange(1, steps + 1, dtype=torch.float64)) ** -0.9


@dataclass(frozen=True, eq=False)
class Search:
    """How the rows of M networks move; a tensor (M, 1, 1) for what networks may differ in."""

    lam: Tensor
    energy: Tensor
    tau: Tensor
    lr: Tensor
    steps: int
    epsilon: float


class Walk(Protocol):
    """Where rows are, and how they get elsewhere."""

    def rows(self) -> Tensor:
        """(M, d, n) the rows that networks see."""
        ...

    def base(self) -> tuple[Tensor, Tensor | None]:
        """(M, d, n) what the next step is added to, and room for the sum."""
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

    def base(self) -> tuple[Tensor, Tensor | None]:
        return self.x, self.last

    def move(self, to: Tensor) -> None:
        self.x, self.last = self.domain.step_(to, self.x), self.x

    def only(self, some: Tensor) -> None:
        self.x, self.last = picked(self.x, some), picked(self.last, some)


class Coded:
    """Codes move, rows are decoded from them; the step of a code is that of its row, to first order."""

    def __init__(self, x: Tensor, domain: Domain, net: Autoencoder) -> None:
        self.domain, self.net, self.like = domain, net, x[:, :, :1]
        self.z = self._stacked(net.encode(self._flat(x)))
        self.back: Pullback | None = None

    def rows(self) -> Tensor:
        rows, self.back = self.net.decode_vjp(self._flat(self.z))
        return self.domain.clamp_(self._stacked(rows).to(self.like.dtype))

    def base(self) -> tuple[Tensor, Tensor | None]:
        return torch.zeros_like(self.like).expand(-1, -1, self.z.shape[2]), None

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

    def write(self, place: Tensor, p: Tensor, near: Tensor, inside: Tensor, on: Tensor) -> None:
        """Enter rows (M, d, m) and flags (M, 1, m) at the places (M, m) of all rows."""
        found = p, near, inside > 0, on > 0
        for room, part in zip((self.end, self.near, self.inside, self.open), found, strict=True):
            room.view(-1, part.shape[1]).index_copy_(0, place.reshape(-1), part.mT.reshape(-1, part.shape[1]))


def grow(
    models: Members, x: Tensor, wanted: Tensor, how: Search, domain: Domain, *,
    shape: Sequence[int] = (), net: Autoencoder | None = None,
) -> Grown:  # fmt: skip
    """Search for counterfactuals of rows x (M, n, d), to which networks give the classes `wanted` (M, n).

    Args:
        shape: of a row, if it is not flat.
        net: an autoencoder to search in the codes of.
    """
    m, n, d = x.shape
    out, all_, count = Grown.room(x), torch.arange(m * n).view(m, n), max(1, -(-x.numel() // CELLS))
    for place in all_.tensor_split(count, 1) if n else ():
        part = x.reshape(-1, d)[place].mT.contiguous()
        walk = Free(part, domain) if net is None else Coded(part, domain, net)
        _grow(models, part, wanted.reshape(-1)[place][:, None], place, how, walk, shape, out)
    return out


def _grow(
    models: Members, x: Tensor, t: Tensor, place: Tensor, how: Search, walk: Walk, shape: Sequence[int], out: Grown
) -> None:
    """The same for rows (M, d, n) that are worked on together; t is (M, 1, n)."""
    w = how.energy * decay(how.steps).to(x.dtype)[:, None, None, None]  # (T, M, 1, 1)
    constant, linear = (-1 - w).unbind(), (2 * RIDGE * w).unbind()
    rate, back = -how.lr, -how.lr * how.lam
    near, on = x.clone(), torch.ones_like(x[:, :1])  # 1 for rows that walk on, 0 for those that have stopped
    own, moves, room = torch.empty(0), list[Tensor](), (torch.empty_like(x), torch.empty_like(x))
    for k in range(how.steps + 1):
        p = walk.rows()
        z, pull = models.vjp(p, shape)  # (M, K, n)
        s, delta = torch.softmax(z, 1), torch.sub(p, x, out=room[0])
        inside = torch.abs(delta, out=room[1]).amax(1, keepdim=True).le_(how.epsilon)  # 1 or 0
        near.lerp_(p, inside)  # by 1 or 0 it is exact
        on.addcmul_(on, s.gather(1, t).ge_(how.tau), value=-1)
        left = on.sum(2)  # (M, 1)
        most = int(left.max())
        if k == how.steps or not most:
            out.write(place, p, near, inside, on)
            break
        moves.append(left)
        own = own if k else torch.zeros_like(z).scatter_(1, t, 1.0)  # e_t
        # The derivative by the scores: S - e_t of the cross-entropy, w (-1 + 2e-3 M_t) e_t of the energy. Rows that
        # have stopped stay where they are.
        v = torch.addcmul(s, own, torch.addcmul(constant[k], linear[k], z)).mul_(on * rate)
        base, free = walk.base()
        to = pull(v, base, free).addcmul_(delta.sign_(), on * back)
        if math.isnan(float(to.sum())):
            to = torch.where(to.isnan(), base, to)
        walk.move(to)
        if 2 * most <= on.shape[2]:  # go on with those that are not there yet, and some more: as many for all networks
            out.write(place, p, near, inside, on)
            some = on[:, 0].argsort(dim=1, descending=True, stable=True)[:, :most]
            x, t, near, on, own = (picked(v, some) for v in (x, t, near, on, own))
            place, room = place.gather(1, some), (torch.empty_like(x), torch.empty_like(x))
            walk.only(some)
    if moves:
        out.steps.add_(torch.stack(moves).sum((0, 2)))


def picked(x: Tensor, some: Tensor) -> Tensor:
    """(M, c, m) some (M, m) of the rows of x (M, c, n)."""
    return x.gather(2, some[:, None].expand(-1, x.shape[1], -1))
