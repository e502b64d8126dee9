"""Counterfactuals in the making: the search inside Counterfactual Training, for all networks of a
stack at once.

    x_k = P( x_{k-1} - lr g_k ),   k = 1 .. T,   from x_0 = x
    g_k = d/dx { CE(M(x), t) + lam |x - x_0|_1 + energy phi_k (E + 1e-3 E^2) }
          E = -M(x)_t; phi: `methods._energy`

    mature     the first x_k with S_t >= tau, S = softmax(M(x_k)); a row stops there
    nascent    the last x_k, up to there, with |x_k - x_0|_inf <= epsilon; x_0 is one

This is ECCCo with energy > 0 and Generic with energy = 0. P keeps to the domain and to what may
change: a fixed column never moves, a one-way column never turns back. With a VAE (REVISE) the code
z moves, x_k = dec(z), and P keeps to the domain only.

Altmeyer et al., "Counterfactual Training", 2025. The authors' code never reads its setting of the
step size: lr is 0.1.

Rows do not depend on each other, so those that have stopped leave the batch once they are half of
it, and large batches are processed in parts that stay in the cache. Tensors are (networks, columns,
rows), see `nn.stack`; in memory a row of many columns is in one piece.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast._core.types import Pullback
from holdfast.methods._autoencoder import TableAutoencoder
from holdfast.methods._energy import RIDGE, decay
from holdfast.nn.stack import WIDE, ModelStack
from holdfast.training.counterfactual.domain import Domain

CELLS = 5 << 17  # numbers in the rows worked on at once: four such tensors stay in the cache
LEFT = 0.5  # when this share of the rows is still on its way, the others leave the batch
ABS_DIFFERENCE = torch.ops.aten.smooth_l1_loss.out  # |a - b| in one pass
SIGN_OF_DIFFERENCE = torch.ops.aten.smooth_l1_loss_backward.grad_input  # v sign(a - b) in one pass


@dataclass(frozen=True, eq=False)
class SearchSettings:
    """How the rows of M networks move; settings in which networks may differ are tensors (M, 1,
    1)."""

    lam: Tensor
    energy: Tensor
    tau: Tensor
    lr: Tensor
    steps: int
    epsilon: float


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What became of the rows of M networks."""

    last: Tensor  # (M, n, d) where they stopped
    nascent: Tensor  # (M, n, d)
    inside: Tensor  # (M, n) is the last one within epsilon?
    immature: Tensor  # (M, n)
    steps: Tensor  # (M,) how many steps all rows of a network took together

    @classmethod
    def empty(cls, x: Tensor) -> "SearchResult":
        """Memory for rows like x."""
        flags = torch.zeros(x.shape[:2], dtype=torch.bool)
        return cls(
            torch.empty_like(x), torch.empty_like(x), flags, flags.clone(), torch.zeros(len(x))
        )

    def write(
        self, place: Tensor, p: Tensor, inside: Tensor, moving: Tensor, some: Tensor | None = None
    ) -> None:
        """Enter all, or some (M, m), of the rows (M, d, n) at their places (M, n) among all
        rows."""
        immature = moving[:, 0] > 0
        if some is not None:
            p, place, inside, immature = (
                picked(p, some),
                *(v.gather(1, some) for v in (place, inside, immature)),
            )
        to = place.reshape(-1)
        self.last.view(-1, p.shape[1]).index_copy_(0, to, p.mT.reshape(-1, p.shape[1]))
        self.inside.view(-1)[to] = inside.reshape(-1)
        self.immature.view(-1)[to] = immature.reshape(-1)


# ---- where rows are


class RowPosition:
    """Where rows are, and how they move: here, column by column."""

    def __init__(self, x: Tensor, domain: Domain) -> None:
        self.domain = domain
        self.x = domain.step_(x.clone(), x)
        self.before = torch.empty_like(x)

    def rows(self) -> Tensor:
        """(M, d, n) the rows that networks see."""
        return self.domain.shown(self.x)

    def base(self) -> tuple[Tensor | None, Tensor]:
        """(M, d, n) what the next step is added to, None for zero; and memory for the sum."""
        return self.x, self.before

    def move(self, to: Tensor) -> None:
        """Go to base plus step, `to`, as far as is allowed."""
        self.before = self.x
        self.x = self.domain.step_(to, self.x)

    def keep(self, some: Tensor) -> None:
        """Go on with some (M, m) of the rows."""
        self.x = picked(self.x, some)
        self.before = torch.empty_like(self.x)


class LatentPosition:
    """The same where codes move and rows are decoded from them; to first order, a code's step is
    that of its row."""

    def __init__(self, x: Tensor, domain: Domain, autoencoder: TableAutoencoder) -> None:
        self.domain = domain
        self.autoencoder = autoencoder
        self.like = x[:, :, :1]
        self.z = self._stacked(autoencoder.encode(self._flat(x)))
        self.pull: Pullback | None = None

    def rows(self) -> Tensor:
        rows, self.pull = self.autoencoder.decode_vjp(self._flat(self.z))
        return self.domain.clamp_(self._stacked(rows).to(self.like.dtype))

    def base(self) -> tuple[Tensor | None, Tensor]:
        m, d, _ = self.like.shape
        return None, self.like.new_empty(m, d, self.z.shape[2])

    def move(self, to: Tensor) -> None:
        assert self.pull is not None
        self.z = self.z + self._stacked(self.pull(self._flat(to)))

    def keep(self, some: Tensor) -> None:
        self.z = picked(self.z, some)

    def _flat(self, x: Tensor) -> Tensor:
        return x.mT.reshape(-1, x.shape[1])

    def _stacked(self, rows: Tensor) -> Tensor:
        return rows.view(len(self.like), -1, rows.shape[1]).mT.contiguous()


# ---- which rows are still within epsilon


@dataclass(frozen=True)
class StepBound:
    """How far a step may lead."""

    # given the slope by what the first layer sees, a column changes by at most this times its
    # length
    gain: float
    slack: float  # what the objective's distance term, and rounding, may add

    @property
    def known(self) -> bool:
        return math.isfinite(self.gain)

    def is_finite(self, slope: Tensor) -> bool:
        """Is everything computed from a slope sure to be finite?"""
        return self.known and math.isfinite(self.gain * math.sqrt(float(slope.square().sum())))

    def of(self, slope: Tensor) -> float:
        """No column of any row changes by more than this; slopes are (M, h, n)."""
        return 1.001 * self.gain * math.sqrt(float(slope.square().sum(1).max())) + self.slack


class NascentTracker:
    """Which rows (M, d, n) are within epsilon of where they began, x, and where each was when it
    last was.

    A look at all rows costs as much as half a pass through a small network. So rows are not looked
    at while none can have left: while the largest distance seen, plus bounds of the steps since, is
    at most epsilon. And a row is copied when it leaves, not in every step in which it is inside: to
    its place (M, n) in `nascent` (N, d).

    Paper: altmeyer2025 Later: nascent examples.
    """

    def __init__(self, x: Tensor, place: Tensor, nascent: Tensor, epsilon: float) -> None:
        self.x = x
        self.place = place
        self.nascent = nascent
        self.epsilon = epsilon
        self.inside = torch.ones(place.shape, dtype=torch.bool)
        self.buffer = torch.empty_like(x)
        self.tiny = torch.finfo(x.dtype).tiny
        self.farthest = math.inf  # no row is further away, as far as is known

    def begin(self, p: Tensor) -> None:
        """Rows begin at p; every step will have a bound."""
        self.farthest = float(self._distance(p).max())

    @property
    def all_inside(self) -> bool:
        return self.farthest <= self.epsilon

    def look(self, p: Tensor, before: Tensor) -> None:
        """Rows are at p, and were at `before`."""
        if self.all_inside:
            return
        distance = self._distance(p).amax(1)
        inside = distance <= self.epsilon
        self._write(before, self.inside > inside)
        self.inside = inside
        # once a row has left, all are looked at in every step: it may come back
        if self.farthest < math.inf:
            farthest = float(distance.max())
            self.farthest = farthest if farthest <= self.epsilon else math.inf

    def keep(self, some: Tensor) -> None:
        """Go on with some (M, m) of the rows."""
        self.x = picked(self.x, some)
        self.place = self.place.gather(1, some)
        self.inside = self.inside.gather(1, some)
        self.buffer = torch.empty_like(self.x)

    def stop(self, p: Tensor, some: Tensor) -> None:
        """Some (M, m) of the rows, which are at p, stop."""
        self._write(p, torch.zeros_like(self.inside).scatter_(1, some, 1) & self.inside)

    def _distance(self, p: Tensor) -> Tensor:
        return ABS_DIFFERENCE(p, self.x, 0, self.tiny, out=self.buffer)

    def _write(self, p: Tensor, some: Tensor) -> None:
        """Some (M, n) of the rows, which are at p, were inside for the last time."""
        rows = some.view(-1).nonzero()[:, 0]
        if len(rows):
            flat = p.mT.reshape(-1, p.shape[1])
            self.nascent.index_copy_(0, self.place.reshape(-1)[rows], flat.index_select(0, rows))


def picked(x: Tensor, some: Tensor) -> Tensor:
    """(M, c, m) some (M, m) of the rows of x (M, c, n), in the same memory layout."""
    if x.stride(1) == 1 < x.shape[1]:  # each row is in one piece
        flat = some + x.shape[2] * torch.arange(len(some))[:, None]
        return x.mT.reshape(-1, x.shape[1]).index_select(0, flat.view(-1)).view(*some.shape, -1).mT
    return x.gather(2, some[:, None].expand(-1, x.shape[1], -1))


# ---- the search


def search_counterfactuals(
    models: ModelStack,
    x: Tensor,
    wanted: Tensor,
    how: SearchSettings,
    domain: Domain,
    *,
    shape: Sequence[int] = (),
    autoencoder: TableAutoencoder | None = None,
    out: SearchResult | None = None,
) -> SearchResult:
    """Search for counterfactuals of rows x (M, n, d) to which networks give the classes `wanted`
    (M, n), in the codes of an autoencoder if there is one. `shape` is a row's, if not flat; `out`
    is memory for the result."""
    m, n, d = x.shape
    out = out or SearchResult.empty(x)
    wide = d >= WIDE and autoencoder is None
    out.steps.zero_()
    slack = float((how.lr * how.lam).max()) + 4 * torch.finfo(x.dtype).eps * domain.size
    bound = StepBound(models.input_gain(), slack)
    rows = torch.arange(m * n).view(m, n)
    parts = max(1, -(-x.numel() // CELLS))
    for place in rows.tensor_split(parts, 1) if n else ():
        worked_on = slice(int(place[0, 0]), int(place[0, -1]) + 1)
        part = x[:, worked_on].mT if wide else x[:, worked_on].mT.contiguous()
        position = (
            RowPosition(part, domain)
            if autoencoder is None
            else LatentPosition(part, domain, autoencoder)
        )
        tracker = NascentTracker(part, place, out.nascent.view(-1, d), how.epsilon)
        # rounding to one level is not a small step
        if wide and bound.known and domain.encoding is None:
            tracker.begin(position.rows())
        _search(
            models,
            part,
            wanted[:, None, worked_on],
            place,
            how,
            tracker,
            position,
            bound,
            shape,
            out,
        )
    return out


def _search(
    models: ModelStack,
    x: Tensor,
    t: Tensor,
    place: Tensor,
    how: SearchSettings,
    tracker: NascentTracker,
    position: RowPosition | LatentPosition,
    bound: StepBound,
    shape: Sequence[int],
    out: SearchResult,
) -> None:
    """The same for rows (M, d, n) that are worked on together; t is (M, 1, n)."""
    w = how.energy * decay(how.steps).to(x.dtype)[:, None, None, None]  # (T, M, 1, 1)
    constant = (-1 - w).unbind()
    linear = (2 * RIDGE * w).unbind()
    rate = -how.lr
    back = -how.lr * how.lam
    tiny = torch.finfo(x.dtype).tiny
    moving = torch.ones(len(x), 1, x.shape[2], dtype=x.dtype)  # 0 for rows that have stopped
    asked = moving
    before = x
    speed = moving
    drag = moving
    counts = list[float]()
    steps = list[list[float]]()
    for k in range(how.steps + 1):
        p = position.rows()
        z, pullback = models.vjp(p, shape)  # (M, K, n)
        s = torch.softmax(z, 1)
        tracker.look(p, before)
        moving.addcmul_(moving, s.gather(1, t).ge_(how.tau), value=-1)
        now = [float(count) for count in moving.sum((1, 2))]
        most = int(max(now))
        if k == how.steps or not most:
            tracker.stop(p, torch.arange(moving.shape[2]).expand(len(moving), -1))
            out.write(place, p, tracker.inside, moving)
            break
        steps.append(now)
        if now != counts:
            counts = now
            speed = moving * rate
            drag = moving * back
        asked = asked if k else torch.zeros_like(z).scatter_(1, t, 1.0)  # e_t
        # The derivative by the scores: S - e_t of the cross-entropy, w (-1 + 2e-3 M_t) e_t of the
        # energy. Rows that have stopped stay where they are.
        v = torch.addcmul(s, asked, torch.addcmul(constant[k], linear[k], z)).mul_(speed)
        base, to = position.base()
        SIGN_OF_DIFFERENCE(drag, p, x, 0, tiny, grad_input=to)
        slope = pullback.slope(v)
        pullback.onto(slope, to if base is None else to.add_(base))
        if not bound.is_finite(slope) and math.isnan(float(to.sum())):
            to = torch.where(to.isnan(), 0.0 if base is None else base, to)
        if tracker.all_inside:
            tracker.farthest += bound.of(slope)
        position.move(to)
        before = p
        # go on with the others, and some more, to have as many for every network
        if most <= LEFT * moving.shape[2]:
            going_on, stopped = (
                moving[:, 0].argsort(dim=1, descending=True, stable=True).tensor_split([most], 1)
            )
            tracker.stop(p, stopped)
            out.write(place, p, tracker.inside, moving, stopped)
            x = picked(x, going_on)
            t = picked(t, going_on)
            moving = picked(moving, going_on)
            asked = picked(asked, going_on)
            before = picked(before, going_on)
            place = place.gather(1, going_on)
            counts = []
            tracker.keep(going_on)
            position.keep(going_on)
    if steps:
        out.steps.add_(torch.tensor(steps).sum(0))
