"""Tensors in, tensors out: per-row broadcasting, and parts of a batch that fit into memory."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# numbers worked on at once unless there is a reason for more or fewer: 4 MB in single precision
CELLS = 1 << 20
CACHE_CELLS = 1 << 19  # what stays in a core's cache


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """Give `(n,)` values the trailing axes of `like`, so that they broadcast over each row."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def chunks(rows: Tensor, size: int) -> list[Tensor]:
    """Consecutive parts of at most `size` rows."""
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def rows_per_chunk(
    cells_per_row: int, budget: int = CELLS, *, at_least: int = 1, block: int = 1
) -> int:
    """How many rows to work on at once so that they take at most `budget` numbers.

    Args:
        cells_per_row: numbers that one row takes.
        budget: numbers at once: bounds memory, and up to about `CACHE_CELLS` they stay in a core's
            cache.
        at_least: so many rows in any case; fewer would cost more time than they save memory.
        block: the number of rows is a multiple of it, see `ROW_BLOCK`.
    """
    return block * max(-(-at_least // block), budget // (block * max(cells_per_row, 1)))


@contextmanager
def limited_threads(count: int) -> Generator[None]:
    """Let torch use `count` threads for a while (0: as many as before)."""
    before = torch.get_num_threads()
    if count and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


# How many rows the matrix kernels handle as one: below that, and for the remainder, they may add in
# another order, so the same row could get a score that differs in the last bit with the batch size.
# 8 are too few for wide registers.
ROW_BLOCK = 16
# in products along, or with, other numbers of columns a row's place may decide about the last bit
COLUMN_BLOCK = 8


def pad_rows(x: Tensor) -> Tensor:
    """`x` with zero rows appended up to a multiple of `ROW_BLOCK`: scores then do not depend on
    n."""
    missing = -x.shape[0] % ROW_BLOCK  # len of a tensor takes some time
    return x if missing == 0 else torch.cat([x, x.new_zeros(missing, *x.shape[1:])])


def whole_blocks(rows: Tensor) -> Tensor:
    """Row numbers, the last one repeated up to a multiple of `ROW_BLOCK`: no model has to pad at
    every step then, and the same row gets the same bits in any company."""
    return torch.cat([rows, rows[-1:].repeat(-len(rows) % ROW_BLOCK)])


class RowBlocks(TorchFunctionMode):
    """While it is on, linear layers inside any module get `pad_rows` of what they are given, and
    give back its part: for modules whose other layers are too expensive to be given more rows."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not nn.functional.linear:
            return func(*args, **(kwargs or {}))
        x, *weights = args
        return func(pad_rows(x), *weights, **(kwargs or {}))[: len(x)]
