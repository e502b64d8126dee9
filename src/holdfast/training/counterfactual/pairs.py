"""What Counterfactual Training sets against each other, and how it is drawn and dealt out to mini-batches."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast._core.rows import chunks
from holdfast.retraining.loop import Variation, derived


@dataclass(frozen=True, eq=False)
class Pairs:
    """Counterfactuals and what they are set against, n for each network."""

    mature: Tensor  # (M, n, d) x'
    positive: Tensor  # (M, n, d) x+
    wish: Tensor  # (M, n) y+
    near: Tensor  # (M, n, d) x~
    label: Tensor  # (M, n) y
    counts: Tensor  # (M, n) is x~ part of the adversarial term?
    matured: Tensor  # (M, n)
    steps: Tensor  # (M,) of all rows together

    def rows(self) -> list[Tensor]:
        """In the order in which a batch has them."""
        return [self.near, self.mature, self.positive]

    def sums(self, raw: Tensor) -> Tensor:
        """(M, 5) divergence, ridge, adversarial loss, matured and steps, by raw outputs (M, 3 n, K) of `rows`."""
        near, mature, positive = raw.chunk(3, 1)
        e, e_plus = (-part.gather(2, self.wish[..., None])[..., 0] for part in (mature, positive))
        loss = -torch.log_softmax(near, 2).gather(2, self.label[..., None])[..., 0] * self.counts
        parts = [e_plus - e, e_plus.square() + e.square(), loss, self.matured]
        return torch.stack([*[part.double().sum(1) for part in parts], self.steps.double()], 1)


@dataclass(frozen=True, eq=False)
class Split:
    """How rows and counterfactuals share mini-batches."""

    parts: list[tuple[slice, slice]]  # the rows and the counterfactuals of each batch
    clf: Tensor  # (n,) 1 / the number of rows in the same batch
    counterfactuals: Tensor  # (c,) the same for these
    place: Tensor  # (n + 3 c,) from one table after the other to one batch after the other
    back: Tensor

    @classmethod
    def of(cls, n: int, batch_size: int, counterfactuals: int, dtype: torch.dtype) -> "Split":
        rows = chunks(torch.arange(n), batch_size)
        groups = torch.arange(counterfactuals).tensor_split(len(rows))  # some are empty if there are too few
        tables = (n, n + counterfactuals, n + 2 * counterfactuals)
        place = torch.cat([torch.cat([r, *[g + start for start in tables]]) for r, g in zip(rows, groups, strict=True)])
        (batches, clf), (shares, each) = (_dealt([len(part) for part in parts], dtype) for parts in (rows, groups))
        return cls(list(zip(batches, shares, strict=True)), clf, each, place, place.argsort())


def _dealt(sizes: Sequence[int], dtype: torch.dtype) -> tuple[list[slice], Tensor]:
    """Consecutive parts of these sizes, and for each member of a part 1 / its size."""
    ends = itertools.accumulate(sizes, initial=0)
    share = torch.cat([torch.full((size,), 1 / max(size, 1), dtype=dtype) for size in sizes])
    return [slice(a, b) for a, b in itertools.pairwise(ends)], share


class Draws:
    """Which rows get counterfactuals, epoch by epoch; drawn once for all networks that share a seed."""

    def __init__(self, plan: Variation, n: int, count: int | None) -> None:
        seeds = tuple(dict.fromkeys(plan.order))
        self.generators = [torch.Generator().manual_seed(derived(seed, 3)) for seed in seeds]
        self.mine = torch.tensor([seeds.index(s) for s in plan.order])
        self.n, self.count = n, n if count is None else min(n, count)

    def next(self) -> tuple[Tensor, Tensor]:
        """(M, c) numbers of rows, each once, and (M, 2, c) random numbers in [0, 1) for what else is drawn."""
        rows = [torch.randperm(self.n, generator=g)[: self.count] for g in self.generators]
        u = [torch.rand(2, self.count, generator=g, dtype=torch.float64) for g in self.generators]
        return torch.stack(rows)[self.mine], torch.stack(u)[self.mine]


@dataclass(frozen=True, eq=False)
class Classes:
    """The rows of each class, and for each class the others that have some: no row can stand for a class without."""

    count: int
    rows: Tensor  # (n,) by class
    start: Tensor  # (K,)
    size: Tensor  # (K,)
    choices: Tensor  # (K, most others)
    many: Tensor  # (K,) how many of these

    @classmethod
    def of(cls, labels: Tensor, count: int) -> "Classes":
        size = torch.bincount(labels, minlength=count)
        there = [k for k in range(count) if size[k]]
        others = [[c for c in there if c != k] for k in range(count)]
        choices = torch.tensor([[*o, *o[:1] * (len(there) - len(o))] for o in others])
        many = torch.tensor([len(o) for o in others])
        return cls(count, labels.argsort(stable=True), size.cumsum(0) - size, size, choices, many)

    def other(self, now: Tensor, u: Tensor) -> Tensor:
        """A class drawn, by numbers u in [0, 1), among those that are not `now`."""
        return self.choices[now, (u * self.many[now]).long()]

    def row(self, label: Tensor, u: Tensor) -> Tensor:
        """A row of each label, drawn by numbers u in [0, 1)."""
        return self.rows[self.start[label] + (u * self.size[label]).long()]
