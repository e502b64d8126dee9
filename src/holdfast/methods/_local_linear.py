"""Local linear models of a black box: for each row x the plane that fits the gap best around x.

    neighbours z_i    numbers      x_j + noise * range_j * N(0, 1), clipped to the range of the data
                      categories   drawn from their shares in the data
    targets    y_i    gap(z_i), clipped to +-log((1 - 1e-6) / 1e-6), as a probability between 1e-6
                      and 1 - 1e-6
    weights    k_i    sqrt(exp(-r_i^2 / kw^2)),   r_i = |z_i - x|_2,   kw = 0.75 sqrt(d)
    plane      w, b = argmin  sum_i k_i (w.z_i + b - y_i)^2 + ridge |w|_2^2
                      b = 0 without an intercept

Ribeiro et al. 2016 (LIME), as "RoCourseNet" (Guo et al. 2023) runs it under ROAR; on columns scaled
to [0, 1] the range is 1. Most of the time goes into the model's scores of the neighbours. The rest
is kept below that: 16 random bits per value, looked up in tables of quantiles, and normal equations
without the products known to be zero, since two levels of one category never meet.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast._core.checks import untyped
from holdfast._core.rows import ROW_BLOCK, chunks, rows_per_chunk
from holdfast.problem import SearchProblem
from holdfast.schema.encoding import Encoding

# start and stop of columns that belong together, and whether they are one category
Block = tuple[int, int, bool]

# numbers in the rows the model gets at once: what stays in the cache is faster
SCORED = 1 << 16
TAIL = 32  # this few columns at the end are multiplied as one block, zeros and all
LIMIT = math.log((1 - 1e-6) / 1e-6)  # the log-odds of a probability of 1 - 1e-6
QUANTILES = 1 << 16


@dataclass(frozen=True)
class Plane:
    """The gap as w.x + b, one plane per row."""

    w: Tensor  # (n, d)
    b: Tensor  # (n,)

    def __getitem__(self, rows: Tensor) -> "Plane":
        return Plane(self.w[rows], self.b[rows])


def shares_of(x: Tensor, encoding: Encoding) -> Tensor:
    """(d,) how often each level occurs in the data `x` (n, d); 0 in columns of numbers."""
    return torch.where(encoding.one_hot, x.double().mean(0), 0.0)


def fit_planes(
    problem: SearchProblem,
    shares: Tensor,
    *,
    samples: int,
    noise: float,
    kernel: float,
    ridge: float,
    intercept: bool,
) -> Plane:
    """The plane of each row. Rows, and if need be their neighbours, come in parts that fit in the
    cache."""
    n, d = problem.x.shape
    neighbors = Neighbors.of(problem.feasible.encoding, shares, noise)
    parts = chunks(torch.arange(n), _together(samples * d))
    w = torch.zeros_like(problem.x)
    b = problem.x.new_zeros(n)
    # fresh memory costs more than what is in it
    room = problem.x.new_empty(len(parts[0]) if parts else 0, samples, d)
    goal = None  # the neighbours' goal; mostly the same from part to part
    for i in problem.steps(len(parts)):
        part = problem[parts[i]]
        z = room[: len(parts[i])]
        r2 = neighbors.draw(part, z)
        k = torch.exp(r2 / (-2 * kernel**2 * d))
        scores = torch.cat(
            [problem.model(rows) for rows in chunks(z.flatten(0, 1), rows_at_once(d))]
        )
        if (
            goal is None
            or len(goal.label) != len(scores)
            or bool((part.goal.label != goal.label[::samples]).any())
        ):
            goal = part.goal[torch.arange(len(part)).repeat_interleave(samples)]
        y = goal.gap(scores).clamp(-LIMIT, LIMIT).reshape(len(part), samples)
        w[parts[i]], b[parts[i]] = weighted_ridge(
            z, y.to(z.dtype), k, neighbors.blocks, ridge, intercept
        )
    return Plane(w, b)


def _together(cells: int) -> int:
    """How many rows of `cells` numbers each to handle at once. Batches are whole blocks, so a power
    of two below a block, or whole blocks, give chunks of one size whatever the batch: the same row,
    the same bits."""
    most = rows_per_chunk(cells)
    return most // ROW_BLOCK * ROW_BLOCK if most >= ROW_BLOCK else 1 << (most.bit_length() - 1)


def rows_at_once(d: int) -> int:
    """How many rows to give to the model at once: whole blocks."""
    return rows_per_chunk(d, SCORED, block=ROW_BLOCK)


@dataclass(frozen=True)
class Neighbors:
    """How neighbours are drawn: tables from 16 random bits to a normal number, or to the column of
    a level."""

    encoding: Encoding
    numbers: Tensor  # (q,) columns of numbers
    normal: Tensor  # (65536,) quantiles of the normal distribution
    spread: Tensor  # (q,) standard deviations
    # (categories * 65536,) columns, as small numbers: the tables have to stay in the cache
    levels: Tensor
    blocks: list[Block]

    @classmethod
    def of(cls, encoding: Encoding, shares: Tensor, noise: float) -> "Neighbors":
        dtype = encoding.center.dtype
        numbers = (~encoding.one_hot).nonzero().squeeze(1)
        middle = (torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES
        normal = (math.sqrt(2) * torch.erfinv(2 * middle - 1)).to(dtype)
        wide = (encoding.seen_high - encoding.seen_low)[numbers]
        spread = noise * torch.where(wide.isfinite(), wide, 1.0)
        # (categories, levels)
        share = torch.cat([shares.double(), shares.new_zeros(1)])[encoding.groups]
        upto = share.cumsum(1) / share.sum(1, keepdim=True)
        upto[:, -1:] = 1.0
        place = torch.searchsorted(upto, middle.expand(len(upto), -1).contiguous())
        levels = (
            encoding.groups.gather(1, place)
            .flatten()
            .to(torch.int16 if len(shares) < 1 << 15 else torch.int32)
        )
        return cls(encoding, numbers, normal, spread, levels, blocks_of(encoding))

    def draw(self, problem: SearchProblem, z: Tensor) -> Tensor:
        """Neighbours into z (n, m, d); returns their squared distances to x (n, m)."""
        x = problem.x
        encoding = self.encoding
        n, m, d = z.shape
        q = len(self.numbers)
        g = len(encoding.groups)
        bits = problem.rng.bits16(q + g, m)
        z.zero_()
        r2 = x.new_zeros(n, m)
        if q:
            step = self.normal.index_select(0, bits[:, :q].flatten()).reshape(n, q, m)
            unchanged = x[:, self.numbers, None]
            value = torch.addcmul(unchanged, step, self.spread[:, None])
            low = encoding.seen_low[self.numbers, None]
            high = encoding.seen_high[self.numbers, None]
            value = torch.minimum(torch.maximum(value, low), high)
            r2 += (value - unchanged).square_().sum(1)
            done = 0
            for start, stop, category in self.blocks:
                if not category:
                    z[:, :, start:stop] = value[:, done : done + stop - start].transpose(1, 2)
                    done += stop - start
        if g:
            bits = (
                bits[:, q:] + torch.arange(0, g * QUANTILES, QUANTILES, dtype=torch.int32)[:, None]
            )
            column = self.levels.index_select(0, bits.flatten()).reshape(n, g, m)
            place = column + torch.arange(0, n * m * d, d).reshape(n, 1, m)
            z.view(-1).index_fill_(0, place.flatten(), 1.0)
            # that each row holds
            level = torch.cat([x, x.new_full((n, 1), -1.0)], 1)[:, encoding.groups].argmax(2)
            unchanged = encoding.groups.expand(n, -1, -1).gather(2, level[..., None])  # (n, g, 1)
            r2 += 2 * (column != unchanged).sum(1)  # another level: two columns change by 1
        return r2


def blocks_of(encoding: Encoding) -> list[Block]:
    """Columns cut into runs of numbers and single categories, in order."""
    owner = [int(i) for i in torch.where(encoding.one_hot, encoding.owner, -1)]
    out = list[Block]()
    start = 0
    for who, run in itertools.groupby(owner):
        stop = start + len([*run])
        out.append((start, stop, who >= 0))
        start = stop
    return out


def weighted_ridge(
    z: Tensor, y: Tensor, k: Tensor, blocks: list[Block], ridge: float, intercept: bool
) -> tuple[Tensor, Tensor]:
    """w (n, d), b (n,) = argmin sum_i k_i (w.z_i + b - y_i)^2 + ridge |w|^2 by normal equations.

    z (n, m, d) is overwritten, y and k are (n, m). The intercept is not shrunk: rows and targets
    are taken from their weighted means.
    """
    root = k.sqrt()
    d = z.shape[2]
    z *= root[..., None]
    zy, z1 = (torch.stack([root * y, root], 1) @ z).unbind(1)  # (n, d): Z'Ky and Z'K1
    gram = z.new_zeros(len(z), d, d)
    for start, stop, first in _products(blocks, d):
        gram[:, start:stop, first:] = z[:, :, start:stop].transpose(1, 2) @ z[:, :, first:]
        if first == stop:  # levels of one category: z_j^2 = z_j, and all other products are 0
            gram.diagonal(dim1=1, dim2=2)[:, start:stop] = z1[:, start:stop]
    total = k.sum(1, keepdim=True)
    mean = z1 / total
    level = (k * y).sum(1, keepdim=True) / total
    if intercept:
        gram -= z1[:, :, None] * mean[:, None]
        zy = zy - z1 * level
    gram.diagonal(dim1=1, dim2=2).add_(ridge)
    # Only the upper triangle is filled in, and only that is read.
    factor: Tensor = untyped("torch").linalg.cholesky_ex(gram, upper=True)[0]
    w = torch.cholesky_solve(zy[..., None], factor, upper=True).squeeze(2)
    b = level - (w * mean).sum(1, keepdim=True) if intercept else torch.zeros_like(level)
    return w, b.squeeze(1)


def _products(blocks: list[Block], d: int) -> Iterator[tuple[int, int, int]]:
    """(start, stop, first): columns start..stop are to be multiplied with columns first..d."""
    for start, stop, category in blocks:
        if d - start <= TAIL:
            yield start, d, start
            return
        yield start, stop, stop if category else start
