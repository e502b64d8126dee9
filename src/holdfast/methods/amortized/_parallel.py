"""Networks that train side by side on tables of different length, in one stack or in a few, each on
its own thread.

In each epoch those that have run out of batches wait. All random numbers of a model come from its
seed, so it is the same, up to rounding, whatever trains beside it.
"""

import itertools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import limited_threads
from holdfast.errors import SettingError
from holdfast.methods.amortized.virtual_shift import Shift
from holdfast.nn.stack_derivatives import Leaky, Parts, Weights
from holdfast.retraining.loop import Loop, check_finite
from holdfast.schema.encoding import Encoding

Schedule = Literal["linear", "static", "log"]
SCHEDULES = ("linear", "static", "log")
ALONE = 2  # at least this many models for each thread
PURPOSES = 16  # independent draws of one step
BATCHES = 1 << 20  # more than an epoch has
HELD = 4  # tensors of each network that one epoch leaves to the next
# draws of the initial weights and of the order of the rows
START = 1 << 60
ORDER = 1 << 61


class NetworkStack(Protocol):
    """M models, each made of a few networks: the networks' architectures, and the parameters of
    each for all M models."""

    @property
    def nets(self) -> Sequence[Leaky]: ...

    @property
    def thetas(self) -> Sequence[Weights]: ...


S = TypeVar("S", bound=NetworkStack)


@dataclass(eq=False)
class Checkpoint:
    """Where a training stands that is made of several stretches of epochs.

    `fit_side_by_side` goes on from here, stops after epoch `until`, and leaves here what the next
    stretch needs. Stretches give the same models as one training, to the last bit.

    Args:
        until: the epoch after which this stretch ends.
        done: how many epochs have been made.
        tensors: of each network of a model its parameters and Adam's two memories, each (M, P), and
            how many steps Adam has made (M,); none before the first stretch.
    """

    until: int
    done: int = 0
    tensors: list[Tensor] = field(default_factory=list[Tensor])


def fit_side_by_side(
    loop: Loop,
    x: Tensor,
    labels: Tensor,
    tables: Sequence[Tensor] | None,
    seeds: Sequence[int],
    make: Callable[[int], S],
    training: Callable[[S, list[int], "Batches"], "StackTraining"],
    bar: Progress | None,
    workers: int | None,
    checkpoint: Checkpoint | None = None,
) -> S:
    """Train one model for each seed; up to rounding it is the same whatever trains beside it.

    Args:
        x, labels: all rows (n, d) and the numbers of their classes (n,).
        tables: for each model the rows it learns from; None gives all rows to each.
        seeds: weights, order and whatever else is drawn for a model come from its seed, and from
            nothing else.
        make: so many models with all weights 0.
        training: one run for some of the models, longest table first, on their batches.
        workers: threads that train a part of the models each; None takes as many as pay.
        checkpoint: where to go on and when to stop; None trains all epochs.
    """
    begun = Checkpoint(loop.epochs) if checkpoint is None else checkpoint
    if not begun.done <= begun.until <= loop.epochs:
        raise SettingError(
            f"a stretch must end between epochs {begun.done} and {loop.epochs}, got {begun.until}"
        )
    rows = [torch.arange(len(x))] * len(seeds) if tables is None else list(tables)
    if len(rows) != len(seeds) or not all(len(r) for r in rows):
        raise SettingError(
            f"need one table with at least one row for each seed, got {len(rows)} for {len(seeds)}"
        )

    def run(models: list[int]) -> list[Tensor]:
        with torch.inference_mode(False), torch.no_grad(), limited_threads(1):
            stack = make(len(models))
            random = by_seed([seeds[i] for i in models])
            one = training(
                stack,
                models,
                Batches(x, labels, [rows[i] for i in models], loop.batch_size, random),
            )
            if begun.tensors:
                for held, kept in zip(one.held, begun.tensors, strict=True):
                    held.copy_(kept[models])
            for epoch in range(begun.done + 1, begun.until + 1):
                one.epoch(epoch)
                if bar is not None:
                    bar.step(len(models) / loop.epochs)
        return one.held

    with torch.inference_mode(False), torch.no_grad():
        parts = _balanced(
            [len(r) for r in rows], workers or min(os.cpu_count() or 1, -(-len(rows) // ALONE))
        )
        if len(parts) == 1:
            ends = [run(parts[0])]
        # threads, not processes: the tensors are shared, and torch lets go of the interpreter while
        # it computes
        else:
            with ThreadPoolExecutor(len(parts)) as pool:
                ends = list(pool.map(run, parts))
        back = torch.tensor([i for part in parts for i in part]).argsort()
        tensors = [torch.cat(held)[back] for held in zip(*ends, strict=True)]
        out = make(len(rows))
        for theta, learnt in zip(out.thetas, tensors[::HELD], strict=True):
            theta.flat[:] = learnt
    check_finite(theta.flat for theta in out.thetas)
    if checkpoint is not None:
        checkpoint.done = begun.until
        checkpoint.tensors = tensors
    return out


def _balanced(sizes: list[int], parts: int) -> list[list[int]]:
    """Models divided into parts with about the same number of rows; in a part, longest first."""
    out = [list[int]() for _ in range(parts)]
    loads = [0] * parts
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        least = loads.index(min(loads))
        out[least].append(i)
        loads[least] += sizes[i]
    return [part for part in out if part]


class StackTraining(ABC):
    """One run of training, batch by batch; models are in the order of their tables, longest
    first."""

    def __init__(
        self,
        loop: Loop,
        stack: NetworkStack,
        batches: "Batches",
        encoding: Encoding,
        shift: Shift | None,
        schedule: Schedule,
    ) -> None:
        self.loop = loop
        self.batches = batches
        self.encoding = encoding
        self.random = batches.random
        self.shift: Shift | None = shift
        self.schedule: Schedule = schedule
        # an unknown schedule is an error now, not while training
        epsilon_in(shift, schedule, 1, loop.epochs)
        self.grads = [theta.empty() for theta in stack.thetas]
        self.adams = [loop.adam(theta.flat) for theta in stack.thetas]
        self.fixed = encoding.fixed if bool(encoding.fixed.any()) else None
        self.steps = 0
        for part, (net, theta) in enumerate(zip(stack.nets, stack.thetas, strict=True)):
            start_weights(net, theta, self.random, part)

    @property
    def held(self) -> list[Tensor]:
        """All that one epoch leaves to the next: of each network its parameters, and what Adam
        remembers."""
        return [tensor for adam in self.adams for tensor in (*adam.held, adam.counts)]

    def epoch(self, epoch: int) -> None:
        """One pass of every model over its rows; epochs are counted from 1."""
        epsilon = epsilon_in(self.shift, self.schedule, epoch, self.loop.epochs)
        self.steps = epoch * BATCHES  # not a running count: that would depend on the longest table
        for x, y, w in self.batches.epoch(epoch):
            self.step(x, y, w, epsilon)

    @abstractmethod
    def step(self, x: Tensor, y: Tensor, w: Tensor, epsilon: float) -> None:
        """One step on rows (m, n, d) of the first m models, with their classes y and weights w (m,
        n, 1)."""

    def next_draw(self) -> int:
        """The number of a step's first draw."""
        draw = self.steps * PURPOSES
        self.steps = self.steps + 1
        return draw

    def keep_fixed(self, x_cf: Tensor, x: Tensor) -> Tensor:
        """The answers, with what may not change as it is in x."""
        return x_cf if self.fixed is None else torch.where(self.fixed, x, x_cf)


def epsilon_in(shift: Shift | None, schedule: Schedule, epoch: int, epochs: int) -> float:
    """The attack's epsilon in epochs e = 1, 2, .. N: "linear" E e / N, "static" E, "log" E log e /
    log N."""
    if schedule not in SCHEDULES:
        raise SettingError(f"schedule must be {', '.join(SCHEDULES)}, got {schedule!r}")
    log = math.log(epoch) / math.log(epochs) if epochs > 1 else 1.0
    share = {"linear": epoch / epochs, "static": 1.0, "log": log}[schedule]
    return 0.0 if shift is None else shift.epsilon * share


def by_seed(seeds: Sequence[int]) -> RowRandom:
    """Random numbers that belong to a model."""
    return RowRandom.of(0, torch.tensor([[float(seed)] for seed in seeds], dtype=torch.float64))


class Batches:
    """The rows of M models, batch by batch, in an order of each model's own; longest table
    first."""

    def __init__(
        self, x: Tensor, y: Tensor, rows: list[Tensor], size: int, random: RowRandom
    ) -> None:
        self.x = x
        self.y = y.to(x.dtype)
        self.sizes = [len(r) for r in rows]
        self.size = size
        self.random = random
        self.rows = nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (M, longest)
        self.beyond = torch.arange(self.rows.shape[1]) >= torch.tensor(self.sizes)[:, None]

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows (m, b, d) of the first m models, those that have any left, with their classes and
        weights (m, b, 1): a mean over the rows there are, even if the last batch is not full."""
        key = self.random.uniform(self.rows.shape[1], draw=ORDER + epoch, dtype=torch.float64)
        order = self.rows.gather(
            1, key.masked_fill_(self.beyond, math.inf).argsort(dim=1, stable=True)
        )
        for first in range(0, self.sizes[0], self.size):
            counts = [min(self.size, n - first) for n in self.sizes if n > first]
            part = slice(len(counts)), slice(first, first + self.size)
            share = torch.tensor([1 / n for n in counts], dtype=torch.float64)[:, None]
            rows = order[part]
            w = ~self.beyond[part] * share
            flat = rows.reshape(-1)
            x = self.x.index_select(0, flat)
            y = self.y.index_select(0, flat)
            yield x.view(*rows.shape, -1), y.view(*rows.shape, 1), w[..., None].to(x.dtype)


def start_weights(net: Leaky, theta: Weights, random: RowRandom, part: int) -> None:
    """Weights and biases uniform between -1 and 1 over the root of a layer's inputs; each part
    draws its own."""
    parts = Parts()
    for i, (a, b) in enumerate(itertools.pairwise(net.sizes)):
        draw = START + 100 * part + i
        u = (
            random.uniform(a + 1, b, draw=draw, dtype=theta.flat.dtype)
            .mul_(2)
            .sub_(1)
            .div_(math.sqrt(a))
        )
        parts.append((u[:, :a], u[:, a:]))
    net.load(theta, parts)


def other_class(z: Tensor) -> Tensor:
    """(m, n, 1) the class that outputs of two classes do not predict."""
    return ((z if z.shape[2] == 1 else z[..., 1:] - z[..., :1]) <= 0).to(z.dtype)


def wanted_class(z: Tensor, random: RowRandom, draw: int) -> Tensor:
    """(m, n, 1) the class each answer has to get: the other one, or one drawn among the others.

    Paper: guo2023 Eq. 6.
    """
    k = z.shape[2]
    if k <= 2:
        return other_class(z)
    u = random[torch.arange(len(z))].uniform(z.shape[1], 1, draw=draw, dtype=z.dtype)
    return (z.argmax(2, keepdim=True) + 1 + (u * (k - 1)).long()) % k


def dropout_masks(net: Leaky, p: float, x: Tensor, random: RowRandom, draw: int) -> list[Tensor]:
    """Dropout: each hidden unit is 0 with probability p, else scaled up."""
    widths = net.padded_sizes[1:-1]
    if not p:
        return []
    keep = random[torch.arange(len(x))].coins(1 - p, x.shape[1], sum(widths), draw=draw)
    return list(torch.split(keep.to(x.dtype).mul_(1 / (1 - p)), list(widths), 2))
