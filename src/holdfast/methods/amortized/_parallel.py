"""Models of tables of different length that train side by side, in one stack or in a few on threads of their own.

In each epoch those that have run out of batches wait. All random numbers of a model come from its seed, so that it is
the same, up to rounding, whatever trains beside it.
"""

import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from holdfast._core.row_random import RowRandom
from holdfast.errors import SettingError
from holdfast.nn.stack_derivatives import Leaky, Parts, Weights

T = TypeVar("T")
Schedule = Literal["linear", "static", "log"]
SCHEDULES = ("linear", "static", "log")
ALONE = 2  # so many models at least for each thread
PURPOSES = 16  # independent draws of one step
BATCHES = 1 << 20  # more than an epoch has
START, ORDER = 1 << 60, 1 << 61  # draws of the initial weights and of the order of the rows


def share_of(schedule: Schedule, epoch: int, epochs: int) -> float:
    """How much of epsilon there is in epoch 1, 2, .. of so many."""
    if schedule not in SCHEDULES:
        raise SettingError(f"schedule must be {', '.join(SCHEDULES)}, got {schedule!r}")
    log = math.log(epoch) / math.log(epochs) if epochs > 1 else 1.0
    return {"linear": epoch / epochs, "static": 1.0, "log": log}[schedule]


def tables_of(x: Tensor, tables: Sequence[Tensor] | None, seeds: Sequence[int]) -> list[Tensor]:
    """The rows each model learns from: all, unless tables are given."""
    rows = [torch.arange(len(x))] * len(seeds) if tables is None else list(tables)
    if len(rows) != len(seeds) or any(not len(r) for r in rows):
        raise SettingError(f"need one table with at least one row for each seed, got {len(rows)} for {len(seeds)}")
    return rows


def by_seed(seeds: Sequence[int]) -> RowRandom:
    """Random numbers that belong to a model."""
    return RowRandom.of(0, torch.tensor([[float(seed)] for seed in seeds], dtype=torch.float64))


def side_by_side(rows: list[Tensor], workers: int | None, run: Callable[[list[int]], T]) -> tuple[list[T], Tensor]:
    """What `run` makes of parts of the models, longest table first, and where each model is in all of it."""
    parts = _balanced([len(r) for r in rows], workers or min(os.cpu_count() or 1, -(-len(rows) // ALONE)))
    back = torch.tensor([i for part in parts for i in part]).argsort()
    if len(parts) == 1:
        return [run(parts[0])], back
    # Threads, not processes: the tensors are shared, and torch lets go of the interpreter while it computes.
    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(run, parts)), back


def _balanced(sizes: list[int], parts: int) -> list[list[int]]:
    """Models divided so that each part has about as many rows; in a part, longest first."""
    out, loads = [list[int]() for _ in range(parts)], [0] * parts
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        least = loads.index(min(loads))
        out[least].append(i)
        loads[least] += sizes[i]
    return [part for part in out if part]


class Batches:
    """The rows of M models, batch by batch, each model's in an order of its own; longest table first."""

    def __init__(self, x: Tensor, y: Tensor, rows: list[Tensor], size: int, random: RowRandom) -> None:
        self.x, self.y = x, y.to(x.dtype)
        self.sizes, self.size, self.random = [len(r) for r in rows], size, random
        self.rows = nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (M, longest)
        self.beyond = torch.arange(self.rows.shape[1]) >= torch.tensor(self.sizes)[:, None]

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows (m, b, d) of the first m models, those that have any left, with their classes and weights (m, b, 1): a
        mean over what there is, where the last batch is not full."""
        key = self.random.uniform(self.rows.shape[1], draw=ORDER + epoch, dtype=torch.float64)
        order = self.rows.gather(1, key.masked_fill_(self.beyond, math.inf).argsort(dim=1, stable=True))
        for at in range(0, self.sizes[0], self.size):
            left = [min(self.size, n - at) for n in self.sizes if n > at]
            there = slice(len(left)), slice(at, at + self.size)
            share = torch.tensor([1 / n for n in left], dtype=torch.float64)[:, None]
            rows, w = order[there], ~self.beyond[there] * share
            flat = rows.reshape(-1)
            x, y = self.x.index_select(0, flat), self.y.index_select(0, flat)
            yield x.view(*rows.shape, -1), y.view(*rows.shape, 1), w[..., None].to(x.dtype)


def start_weights(net: Leaky, theta: Weights, random: RowRandom, part: int) -> None:
    """Weights and biases uniform between -1 and 1 over the root of a layer's inputs; parts draw apart."""
    parts = Parts()
    for i, (a, b) in enumerate(itertools.pairwise(net.sizes)):
        draw = START + 100 * part + i
        u = random.uniform(a + 1, b, draw=draw, dtype=theta.flat.dtype).mul_(2).sub_(1).div_(math.sqrt(a))
        parts.append((u[:, :a], u[:, a:]))
    net.load(theta, parts)


def other(z: Tensor) -> Tensor:
    """(m, n, 1) the class that outputs of two classes do not predict."""
    return ((z if z.shape[2] == 1 else z[..., 1:] - z[..., :1]) <= 0).to(z.dtype)


def wish(z: Tensor, random: RowRandom, draw: int) -> Tensor:
    """(m, n, 1) the class each answer has to get: the other one, or one drawn among the others."""
    k = z.shape[2]
    if k <= 2:
        return other(z)
    u = random[torch.arange(len(z))].uniform(z.shape[1], 1, draw=draw, dtype=z.dtype)
    return (z.argmax(2, keepdim=True) + 1 + (u * (k - 1)).long()) % k


def dropout_masks(net: Leaky, p: float, x: Tensor, random: RowRandom, draw: int) -> list[Tensor]:
    """Dropout: units of each hidden layer are 0 with probability p, else scaled up."""
    widths = net.room[1:-1]
    if not p:
        return []
    keep = random[torch.arange(len(x))].coins(1 - p, x.shape[1], sum(widths), draw=draw)
    return list(torch.split(keep.to(x.dtype).mul_(1 / (1 - p)), list(widths), 2))
