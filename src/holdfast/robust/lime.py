"""Local linear models of a black box: for each row x the plane that fits the gap best around x.

    neighbours z_i    numbers      x_j + noise * range_j * N(0, 1), clipped to the range of the data
                      categories   drawn from their shares in the data
    targets    y_i    gap(z_i), clipped to +-log((1 - 1e-6) / 1e-6), as a probability between 1e-6 and 1 - 1e-6
    weights    k_i    sqrt(exp(-r_i^2 / kw^2)),   r_i = |z_i - x|_2,   kw = 0.75 sqrt(d)
    plane      w, b = argmin  sum_i k_i (w.z_i + b - y_i)^2 + ridge |w|_2^2          b = 0 without an intercept

Ribeiro et al. 2016 (LIME), as "RoCourseNet" (Guo et al. 2023) runs it under ROAR; on columns scaled to [0, 1]
the range is 1. Most of the time goes into the model's scores of the neighbours. The rest is kept below that:
16 random bits per value, looked up in tables of quantiles, and normal equations that leave out the products
known to be zero, as two levels of one category never meet.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.errors import untyped
from holdfast.explainer import Query
from holdfast.geometry import ROW_BLOCK, chunks
from holdfast.reach import Layout

Block = tuple[int, int, bool]  # start and stop of columns that belong together, and whether they are one category

CELLS = 1 << 17  # numbers in neighbours at once: what stays in the cache is faster, scores by the model not least
TAIL = 32  # so few columns at the end are multiplied as one block, zeros and all
LIMIT = math.log((1 - 1e-6) / 1e-6)  # the log-odds of a probability of 1 - 1e-6
QUANTILES = 1 << 16


@dataclass(frozen=True)
class Plane:
    """The gap as w.x + b, one plane per row."""

    w: Tensor  # (n, d)
    b: Tensor  # (n,)

    def __getitem__(self, rows: Tensor) -> "Plane":
        return Plane(self.w[rows], self.b[rows])


def shares_of(x: Tensor, layout: Layout) -> Tensor:
    """(d,) how often the data `x` (n, d) take each level; 0 in columns of numbers."""
    return torch.where(layout.one_hot, x.double().mean(0), 0.0)


def fit_planes(
    query: Query, shares: Tensor, *, samples: int, noise: float, kernel: float, ridge: float, intercept: bool
) -> Plane:
    """The plane of each row. Rows, and if need be their neighbours, come in parts that fit into the cache."""
    n, d = query.x.shape
    neighbors = Neighbors.of(query.reach.layout, shares, samples, noise)
    parts = chunks(torch.arange(n), _together(samples * d))
    w, b = torch.zeros_like(query.x), query.x.new_zeros(n)
    for i in query.steps(len(parts)):
        some, sums = query[parts[i]], None
        for piece, m in enumerate(neighbors.pieces):
            z, r2 = neighbors.draw(some, piece)
            k = torch.exp(r2 / (-2 * kernel**2 * d))
            goal = some.goal[torch.arange(len(some)).repeat_interleave(m)]
            y = goal.gap(query.model(z.flatten(0, 1))).clamp(-LIMIT, LIMIT).reshape(len(some), m)
            more = Sums.of(z, y.to(z.dtype), k, neighbors.blocks)
            sums = more if sums is None else sums + more
        assert sums
        w[parts[i]], b[parts[i]] = sums.ridge(ridge, intercept)
    return Plane(w, b)


def _together(cells: int) -> int:
    """How many rows of `cells` numbers each to handle at once. Batches are whole blocks, so with a power of two
    below a block, or whole blocks, a chunk has the same size whatever the batch: the same row, the same bits."""
    most = max(1, CELLS // cells)
    return most // ROW_BLOCK * ROW_BLOCK if most >= ROW_BLOCK else 1 << (most.bit_length() - 1)


def _pieces(samples: int, d: int) -> list[int]:
    """The neighbours of one row in pieces of about the same size."""
    count = -(-samples * d // CELLS)
    size = -(-samples // count)
    return [min(size, samples - start) for start in range(0, samples, size)]


@dataclass(frozen=True)
class Neighbors:
    """How neighbours are drawn: tables from 16 random bits to a normal number, or to the column of a level."""

    layout: Layout
    numbers: Tensor  # (q,) columns of numbers
    normal: Tensor  # (65536,) quantiles of the normal distribution
    spread: Tensor  # (q,) standard deviations
    levels: Tensor  # (categories * 65536,) columns
    blocks: list[Block]
    pieces: list[int]  # how many neighbours of a row to draw at once

    @classmethod
    def of(cls, layout: Layout, shares: Tensor, samples: int, noise: float) -> "Neighbors":
        dtype = layout.center.dtype
        numbers = (~layout.one_hot).nonzero().squeeze(1)
        middle = (torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES
        normal = (math.sqrt(2) * torch.erfinv(2 * middle - 1)).to(dtype)
        wide = (layout.seen_high - layout.seen_low)[numbers]
        spread = noise * torch.where(wide.isfinite(), wide, 1.0)
        share = torch.cat([shares.double(), shares.new_zeros(1)])[layout.groups]  # (categories, levels)
        upto = share.cumsum(1) / share.sum(1, keepdim=True)
        upto[:, -1:] = 1.0
        place = torch.searchsorted(upto, middle.expand(len(upto), -1).contiguous())
        levels = layout.groups.gather(1, place).flatten()
        pieces = _pieces(samples, len(layout.center))
        return cls(layout, numbers, normal, spread, levels, blocks_of(layout), pieces)

    def draw(self, query: Query, piece: int = 0) -> tuple[Tensor, Tensor]:
        """A piece of the neighbours (n, m, d), and their squared distances to x (n, m)."""
        x, at, m = query.x, self.layout, self.pieces[piece]
        n, d = x.shape
        z, r2 = x.new_zeros(n, m, d), x.new_zeros(n, m)
        if len(self.numbers):
            q, own = len(self.numbers), x[:, None, self.numbers]
            bits = query.random.bits16(m, q, draw=2 * piece)
            step = self.normal.index_select(0, bits.flatten()).reshape(n, m, q)
            value = torch.addcmul(own, step, self.spread)
            value = torch.clamp(value, at.seen_low[self.numbers], at.seen_high[self.numbers])
            r2 += (value - own).square_() @ x.new_ones(q)
            at_number = 0
            for start, stop, category in self.blocks:
                if not category:
                    z[:, :, start:stop] = value[:, :, at_number : at_number + stop - start]
                    at_number += stop - start
        if len(at.groups):
            g = len(at.groups)
            bits = query.random.bits16(m, g, draw=2 * piece + 1) + torch.arange(g) * QUANTILES
            column = self.levels.index_select(0, bits.flatten())
            place = torch.arange(0, n * m * d, d)[:, None] + column.reshape(-1, g)
            z.view(-1).index_fill_(0, place.flatten(), 1.0)
            mine = at.groups.expand(n, -1, -1).gather(2, _level(x, at)[..., None]).squeeze(2)  # (n, g)
            other = column.reshape(n, m, g) != mine[:, None]
            r2 += 2 * (other.to(x.dtype) @ x.new_ones(g))  # another level: two columns change by 1
        return z, r2


def _level(x: Tensor, at: Layout) -> Tensor:
    """(n, categories) the level that each row holds."""
    return torch.cat([x, x.new_full((len(x), 1), -1.0)], 1)[:, at.groups].argmax(2)


def blocks_of(layout: Layout) -> list[Block]:
    """Columns cut into runs of numbers and single categories, in order."""
    owner = [int(i) for i in torch.where(layout.one_hot, layout.owner, -1)]
    out, start = list[Block](), 0
    for who, run in itertools.groupby(owner):
        stop = start + len([*run])
        out.append((start, stop, who >= 0))
        start = stop
    return out


class Sums(NamedTuple):
    """The sums over neighbours that a plane follows from; those of several pieces add up."""

    zz: Tensor  # (n, d, d) sum_i k_i z_i z_i', the upper triangle
    zy: Tensor  # (n, d) sum_i k_i y_i z_i
    z1: Tensor  # (n, d) sum_i k_i z_i
    y1: Tensor  # (n, 1) sum_i k_i y_i
    total: Tensor  # (n, 1) sum_i k_i

    @classmethod
    def of(cls, z: Tensor, y: Tensor, k: Tensor, blocks: list[Block]) -> "Sums":
        """From z (n, m, d), which is overwritten, and y, k (n, m)."""
        root, d = k.sqrt(), z.shape[2]
        z *= root[..., None]
        zy, z1 = (z.transpose(1, 2) @ torch.stack([root * y, root], 2)).unbind(2)
        zz = z.new_zeros(len(z), d, d)
        for start, stop, first in _products(blocks, d):
            zz[:, start:stop, first:] = z[:, :, start:stop].transpose(1, 2) @ z[:, :, first:]
            if first == stop:  # levels of one category: z_j^2 = z_j, and all other products are 0
                zz.diagonal(dim1=1, dim2=2)[:, start:stop] = z1[:, start:stop]
        return cls(zz, zy, z1, (k * y).sum(1, keepdim=True), k.sum(1, keepdim=True))

    def __add__(self, other: "Sums") -> "Sums":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Sums(*[a.add_(b) for a, b in zip(self, other, strict=True)])

    def ridge(self, ridge: float, intercept: bool) -> tuple[Tensor, Tensor]:
        """w (n, d), b (n,) of the plane; the intercept is not shrunk, as all is taken from the weighted means."""
        zz, zy, b = self.zz.clone(), self.zy, torch.zeros_like(self.total)
        mean, level = self.z1 / self.total, self.y1 / self.total
        if intercept:
            zz -= self.z1[:, :, None] * mean[:, None]
            zy = zy - self.z1 * level
        zz.diagonal(dim1=1, dim2=2).add_(ridge)
        # Only the upper triangle is filled in, and only that is read.
        factor: Tensor = untyped("torch").linalg.cholesky_ex(zz, upper=True)[0]
        w = torch.cholesky_solve(zy[..., None], factor, upper=True).squeeze(2)
        b = level - (w * mean).sum(1, keepdim=True) if intercept else b
        return w, b.squeeze(1)


def _products(blocks: list[Block], d: int) -> Iterator[tuple[int, int, int]]:
    """(start, stop, first): columns start..stop are to be multiplied with columns first..d."""
    for start, stop, category in blocks:
        if d - start <= TAIL:
            yield start, d, start
            return
        yield start, stop, stop if category else start
