"""Random numbers that belong to a row: a function of the seed and the contents of the row, and of
nothing else."""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 2^64 / golden ratio as int64: spreads counters over all bits
_MASK34 = (1 << 34) - 1
_MASK37 = (1 << 37) - 1
_MASK33 = (1 << 33) - 1


def _scramble(z: Tensor) -> Tensor:
    """The splitmix64 finaliser on int64 (products wrap, shifts are made logical by a mask)."""
    z = (z ^ ((z >> 30) & _MASK34)) * -4658895280553007687
    z = (z ^ ((z >> 27) & _MASK37)) * -7723592293110705685
    return z ^ ((z >> 31) & _MASK33)


@dataclass(frozen=True)
class RowRandom:
    """Random numbers that are a function of (seed, contents of the row, draw) and nothing else.

    A row therefore gets the same numbers alone, in any batch, and on any worker; the caller's
    global generators are never touched. `draw` numbers the independent draws of one search.

    The `common_` numbers are a function of (seed, draw) alone: drawn once and shared by all rows,
    for searches that would otherwise spend most of their time on drawing, and for comparing models
    on the same draws.
    """

    keys: Tensor  # (n,) int64
    seed: int = 0

    @classmethod
    def of(cls, seed: int, x: Tensor) -> "RowRandom":
        words = x.detach().flatten(1).double().view(torch.int64)  # (n, d) the bits of every value
        place = _scramble(torch.arange(1, words.shape[1] + 1, device=x.device))
        mixed = _scramble(words + place).sum(1)
        return cls(_scramble(mixed ^ _scramble(torch.tensor(seed, device=x.device))), seed)

    def __getitem__(self, rows: Tensor) -> "RowRandom":
        return RowRandom(self.keys[rows], self.seed)

    def common_uniform(
        self, *shape: int, draw: int = 0, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """`shape` numbers in [0, 1), the same for all rows."""
        return torch.rand(shape, generator=self._common(draw), dtype=dtype)

    def common_normal(
        self, *shape: int, draw: int = 0, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """`shape` standard normal numbers, the same for all rows."""
        return torch.randn(shape, generator=self._common(draw), dtype=dtype)

    def _common(self, draw: int) -> torch.Generator:
        words = hashlib.blake2b(f"{self.seed} {draw}".encode(), digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(words, "little"))

    def _words(self, count: int, draw: int) -> Tensor:
        """(n, count) random int64."""
        counter = torch.arange(1, count + 1, device=self.keys.device)
        start = _scramble(self.keys ^ _scramble(torch.tensor(draw + 1, device=self.keys.device)))
        return _scramble(start[:, None] + counter * _GOLDEN)

    def _quarters(self, count: int, draw: int) -> Tensor:
        """(n, count) random int16, four from each word."""
        return self._words(-(-count // 4), draw).view(torch.int16)[:, :count]

    def uniform(self, *shape: int, draw: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        """`(n, *shape)` numbers in [0, 1)."""
        # 24 bits are what a float32 can hold
        top = (self._words(math.prod(shape), draw) >> 40) & ((1 << 24) - 1)
        return (top.to(dtype) / (1 << 24)).reshape(-1, *shape)

    def bits16(self, *shape: int, draw: int = 0) -> Tensor:
        """`(n, *shape)` integers in [0, 65536), four from each word: for those who draw
        millions."""
        return (self._quarters(math.prod(shape), draw).to(torch.int32) & 0xFFFF).reshape(-1, *shape)

    def coins(self, p: float, *shape: int, draw: int = 0) -> Tensor:
        """`(n, *shape)` booleans, true with probability p (to the nearest 1/65536)."""
        parts = self._quarters(math.prod(shape), draw)
        below = round(p * 65536) - 32768
        # 32768 is not an int16
        coins = parts < below if below < 32768 else torch.ones_like(parts, dtype=torch.bool)
        return coins.reshape(-1, *shape)

    def normal(self, *shape: int, draw: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        """`(n, *shape)` standard normal numbers (Box and Muller)."""
        half = -(-math.prod(shape) // 2)
        u = self.uniform(2, half, draw=draw, dtype=dtype)
        radius = torch.sqrt(-2 * torch.log1p(-u[:, 0]))
        angle = 2 * math.pi * u[:, 1]
        pair = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)
        return pair[:, : math.prod(shape)].reshape(-1, *shape)
