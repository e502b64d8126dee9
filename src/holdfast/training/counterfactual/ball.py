"""Which rows of a search are still near where they began, and where each was near for the last time.

    near    the last x_k with |x_k - x_0|_inf <= epsilon; x_0 is one

A look at all rows costs as much as half a pass through a small network. So rows are not looked at while none can have
left: while the largest distance seen, plus bounds of the steps since, is at most epsilon. And a row is copied when it
leaves, not in every step in which it is inside.
"""

import math

import torch
from torch import Tensor

DISTANCE = torch.ops.aten.smooth_l1_loss.out  # |a - b| in one pass


class Ball:
    """Rows (M, d, n) beside where they began.

    Args:
        x: where they began.
        place: (M, n) their numbers in `near`.
        near: (N, d) room for the last ones inside.
        epsilon: the radius.
    """

    def __init__(self, x: Tensor, place: Tensor, near: Tensor, epsilon: float) -> None:
        self.x, self.place, self.near, self.epsilon = x, place, near, epsilon
        self.inside = torch.ones(place.shape, dtype=torch.bool)
        self.room, self.tiny = torch.empty_like(x), torch.finfo(x.dtype).tiny
        self.most = math.inf  # no row is further away, as far as is known

    def begin(self, p: Tensor) -> None:
        """Rows begin at p, and there will be a bound for every step."""
        self.most = float(self._distance(p).max())

    def see(self, p: Tensor, before: Tensor) -> None:
        """Rows are at p, and were at `before`."""
        if self.most <= self.epsilon:
            return
        far = self._distance(p).amax(1)
        inside = far <= self.epsilon
        self._keep(before, self.inside > inside)
        self.inside = inside
        if self.most < math.inf:  # once a row has left, all are looked at in every step: it may come back
            most = float(far.max())
            self.most = most if most <= self.epsilon else math.inf

    def reach(self, most: float) -> None:
        """No column of any row changes by more than this in the next step."""
        self.most += most

    def only(self, some: Tensor) -> None:
        """Go on with some (M, m) of the rows."""
        self.x, self.place, self.inside = picked(self.x, some), self.place.gather(1, some), self.inside.gather(1, some)
        self.room = torch.empty_like(self.x)

    def close(self, p: Tensor, some: Tensor) -> None:
        """Some (M, m) of the rows, which are at p, go no further."""
        self._keep(p, torch.zeros_like(self.inside).scatter_(1, some, 1) & self.inside)

    def _distance(self, p: Tensor) -> Tensor:
        return DISTANCE(p, self.x, 0, self.tiny, out=self.room)

    def _keep(self, p: Tensor, some: Tensor) -> None:
        """Some (M, n) of the rows, which are at p, were inside for the last time."""
        rows = some.view(-1).nonzero()[:, 0]
        if len(rows):
            flat = p.mT.reshape(-1, p.shape[1])
            self.near.index_copy_(0, self.place.reshape(-1)[rows], flat.index_select(0, rows))


def picked(x: Tensor, some: Tensor) -> Tensor:
    """(M, c, m) some (M, m) of the rows of x (M, c, n), laid out in memory as they are."""
    if x.stride(1) == 1 < x.shape[1]:  # each row is in one piece
        flat = some + x.shape[2] * torch.arange(len(some))[:, None]
        return x.mT.reshape(-1, x.shape[1]).index_select(0, flat.view(-1)).view(*some.shape, -1).mT
    return x.gather(2, some[:, None].expand(-1, x.shape[1], -1))
