"""The neural tangent kernel of an infinitely wide two-layer ReLU network, and the model it makes.

    K(x, x') = x.x' (pi - acos u) / (2 pi),    u = x.x' / (|x| |x'|)
             = x.x' Pr(g.x > 0 and g.x' > 0),  g ~ N(0, I)          only the first layer is trained
    f(x)     = sum_j w_j K(x, x_j)
    grad f   = sum_j (C_j + S_j) x_j  -  (sum_j S_j u_j |x_j|) x / |x|
               C_j = w_j (pi - acos u_j) / (2 pi),    S_j = w_j u_j / (2 pi sqrt(1 - u_j^2))

Cho and Saul 2009; Du et al. 2019. K has kinks at x = 0 and where x is parallel to x_j, and there f
has no gradient. The mean of the slopes on the two sides is returned instead: u_j = 0 in the first
case, no S_j in the second.

f(c x) = c f(x) for c > 0, so f(0) = 0: there is no intercept. `append_one` gives every row a
further column of 1.
"""

import math
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from holdfast._core.rows import COLUMN_BLOCK, ROW_BLOCK, chunks, rows_per_chunk
from holdfast.errors import ModelError

KERNEL_CELLS = 1 << 18  # numbers of the kernel matrix held at a time: 2 MB
PARALLEL = 1e-14  # where 1 - u^2 is less than this, it may be rounding alone


class Cosines:
    """Rows x (n, d) against rows X (N, d): the products, the angles, and what follows from them."""

    def __init__(self, x: Tensor, X: Tensor, append_one: bool) -> None:
        one = float(append_one)
        tiny = torch.finfo(x.dtype).tiny
        self.x = x
        self.X = X
        self.dot = x @ X.T + one
        self.size = (x.square().sum(1) + one).sqrt()
        self.others = (X.square().sum(1) + one).sqrt()
        u = self.dot / (self.size[:, None] * self.others).clamp_min(tiny)  # 0 for a row of zeros
        room = (1 - u) * (1 + u)
        kink = room < PARALLEL
        self.u = torch.where(kink, u.sign(), u)
        # on a kink any value will do: the two terms of S_j cancel
        self.sine = torch.where(kink, 1.0, room).sqrt()
        # of directions g with g.x > 0 and g.x' > 0
        self.share = (math.pi - self.u.acos()) / (2 * math.pi)

    def kernel(self) -> Tensor:
        """(n, N)"""
        return self.dot * self.share

    def scores(self, w: Tensor) -> Tensor:
        """(n,) f; not as a matrix product, which may add in another order in another batch."""
        return (self.kernel() * w).sum(1)

    def gradient(self, w: Tensor) -> Tensor:
        """(n, d) grad f."""
        s = w * self.u / (2 * math.pi * self.sine)
        along = (s * self.u * self.others).sum(1) / self.size.clamp_min(torch.finfo(w.dtype).tiny)
        return (w * self.share + s) @ self.X - along[:, None] * self.x


def cosines(x: Tensor, X: Tensor, append_one: bool) -> Iterator[Cosines]:
    """The rows x part by part, to bound memory; zeros are appended to x and X, see
    `padded_to_blocks`."""
    if x.shape[1] != X.shape[1]:
        raise ModelError(f"rows of {x.shape[1]} columns do not fit training rows of {X.shape[1]}")
    x = padded_to_blocks(x)
    others = padded_to_blocks(X)
    block = rows_per_chunk(len(others), KERNEL_CELLS, block=ROW_BLOCK)
    return (Cosines(part, others, append_one) for part in chunks(x, block) or [x])


def padded_to_blocks(x: Tensor) -> Tensor:
    """A copy of x (n, d) with zeros appended to both axes, up to whole blocks of rows and of
    columns.

    Matrix products in float64 add in an order that also depends on where a row begins in memory.
    Rows of whole blocks all begin alike, so a row's score depends neither on its place nor on n.
    """
    n, d = x.shape
    return nn.functional.pad(x, (0, -d % COLUMN_BLOCK, 0, -n % ROW_BLOCK))


def kernel(a: Tensor, b: Tensor, *, append_one: bool = False) -> Tensor:
    """K(a_i, b_j) for rows a (n, d) and b (m, d): (n, m).

    Paper: krishna2024 Definition 2, Eq. 8.
    """
    out = a.new_empty(len(a), len(b))
    start = 0
    for c in cosines(a, b, append_one):
        part = c.kernel()[: len(a) - start, : len(b)]
        out[start : start + len(part)] = part
        start += len(part)
    return out


def scores(x: Tensor, X: Tensor, w: Tensor, *, append_one: bool = False) -> Tensor:
    """(n,) f of rows x (n, d), for training rows X (N, d) with weights w (N,)."""
    w = nn.functional.pad(w, (0, -len(w) % ROW_BLOCK))
    return torch.cat([c.scores(w) for c in cosines(x, X, append_one)])[: len(x)]


def scores_and_gradient(
    x: Tensor, X: Tensor, w: Tensor, *, append_one: bool = False
) -> tuple[Tensor, Tensor]:
    """f (n,) and grad f (n, d) at once."""
    w = nn.functional.pad(w, (0, -len(w) % ROW_BLOCK))
    n, d = x.shape
    pairs = [(c.scores(w), c.gradient(w)) for c in cosines(x, X, append_one)]
    f, slope = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    return f[:n], slope[:n, :d]


once: Any = once_differentiable


class _Score(torch.autograd.Function):
    """f with the gradient above, found on the way forward, part by part, so that no kernel matrix
    is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, X: Tensor, w: Tensor, append_one: bool) -> Tensor:
        f, slope = scores_and_gradient(x, X, w, append_one=append_one)
        ctx.save_for_backward(slope)
        return f

    @staticmethod
    @once
    def backward(ctx: Any, *outer: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        return outer[0][:, None] * slope, None, None, None


class NTK(nn.Module):
    """Encoded rows (n, d) -> one logit (n, 1), in float64. `holdfast.training.ntk` fits one.

    Args:
        rows, columns: N and d of the training rows.
        append_one: whether every row gets a further column of 1.
    """

    def __init__(self, rows: int, columns: int, append_one: bool = True) -> None:
        super().__init__()
        if not isinstance(append_one, bool):
            raise ModelError(f"append_one must be true or false, got {append_one!r}")
        if rows < 1 or columns < 1:
            raise ModelError(
                f"an NTK needs at least one training row and column, got {rows} and {columns}"
            )
        self.rows = rows
        self.columns = columns
        self.append_one = append_one
        self.X = nn.Parameter(torch.empty(rows, columns, dtype=torch.float64), requires_grad=False)
        self.w = nn.Parameter(torch.empty(rows, dtype=torch.float64), requires_grad=False)

    @classmethod
    def of(cls, X: Tensor, w: Tensor, append_one: bool = True) -> "NTK":
        """The model with training rows X (N, d) and their weights w (N,)."""
        out = cls(len(X), X.shape[1], append_one)
        with torch.no_grad():
            out.X.copy_(X)
            out.w.copy_(w)
        return out.eval()

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.X.dtype)
        X = self.X.detach()
        w = self.w.detach()
        if torch.is_grad_enabled() and x.requires_grad:
            f: Tensor = cast(Any, _Score).apply(x, X, w, self.append_one)
        else:
            f = scores(x, X, w, append_one=self.append_one)
        return f[:, None]

    def gradient(self, x: Tensor) -> Tensor:
        """(n, d) the gradient of the logit by the rows."""
        x = x.to(self.X.dtype)
        X = self.X.detach()
        w = self.w.detach()
        return scores_and_gradient(x, X, w, append_one=self.append_one)[1]

    def reset_parameters(self) -> None:
        raise ModelError(
            "an NTK model is solved for, not trained from initial weights; call hf.train_ntk again"
        )

    def extra_repr(self) -> str:
        return f"rows={self.rows}, columns={self.columns}, append_one={self.append_one}"
