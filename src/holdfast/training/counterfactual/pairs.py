"""The pairs that Counterfactual Training contrasts, and how they are drawn and dealt out to
mini-batches."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast._core.rows import chunks
from holdfast.retraining.loop import SharedDraws, Variation


@dataclass(frozen=True, eq=False)
class ContrastPairs:
    """Counterfactuals and the real rows they are set against, n for each network."""

    mature: Tensor  # (M, n, d) x'
    positive: Tensor  # (M, n, d) x+
    wanted: Tensor  # (M, n) y+
    nascent: Tensor  # (M, n, d) x~
    label: Tensor  # (M, n) y
    attacks: Tensor  # (M, n) is x~ part of the adversarial term?
    matured: Tensor  # (M, n)
    steps: Tensor  # (M,) of all rows together

    def rows(self) -> list[Tensor]:
        """The rows in the order in which a batch has them."""
        return [self.nascent, self.mature, self.positive]

    def sums(self, raw: Tensor) -> Tensor:
        """(M, 5) divergence, ridge, adversarial loss, matured and steps, by raw outputs (M, 3 n, K)
        of `rows`.

        Paper: altmeyer2025 Eq. 2, Eq. 3, Later: ridge.
        """
        nascent, mature, positive = raw.chunk(3, 1)
        e = -mature.gather(2, self.wanted[..., None])[..., 0]
        e_plus = -positive.gather(2, self.wanted[..., None])[..., 0]
        loss = (
            -torch.log_softmax(nascent, 2).gather(2, self.label[..., None])[..., 0] * self.attacks
        )
        parts = [e_plus - e, e_plus.square() + e.square(), loss, self.matured]
        return torch.stack([*[part.double().sum(1) for part in parts], self.steps.double()], 1)


@dataclass(frozen=True, eq=False)
class BatchSplit:
    """How rows and counterfactuals share mini-batches."""

    parts: list[tuple[slice, slice]]  # the rows and the counterfactuals of each batch
    row_share: Tensor  # (n,) 1 / the number of rows in the same batch
    counterfactual_share: Tensor  # (c,) the same for these
    place: Tensor  # (n + 3 c,) from one table after the other to one batch after the other
    back: Tensor

    @classmethod
    def of(cls, n: int, batch_size: int, counterfactuals: int, dtype: torch.dtype) -> "BatchSplit":
        rows = chunks(torch.arange(n), batch_size)
        # if there are too few, some are empty
        groups = torch.arange(counterfactuals).tensor_split(len(rows))
        tables = (n, n + counterfactuals, n + 2 * counterfactuals)
        place = torch.cat(
            [
                torch.cat([r, *[g + start for start in tables]])
                for r, g in zip(rows, groups, strict=True)
            ]
        )
        batches, a = _consecutive([len(part) for part in rows], dtype)
        shares, b = _consecutive([len(part) for part in groups], dtype)
        return cls(list(zip(batches, shares, strict=True)), a, b, place, place.argsort())


def _consecutive(sizes: Sequence[int], dtype: torch.dtype) -> tuple[list[slice], Tensor]:
    """Consecutive parts of these sizes, and for each member of a part 1 / its size."""
    ends = itertools.accumulate(sizes, initial=0)
    share = torch.cat([torch.full((size,), 1 / max(size, 1), dtype=dtype) for size in sizes])
    return [slice(a, b) for a, b in itertools.pairwise(ends)], share


class RowDraws:
    """Which rows get counterfactuals, epoch by epoch; drawn once for all networks that share a
    seed."""

    def __init__(self, variation: Variation, n: int, count: int | None) -> None:
        self.draws = SharedDraws(variation.order, 3)
        self.n = n
        self.count = n if count is None else min(n, count)

    def next(self) -> tuple[Tensor, Tensor]:
        """(M, c) numbers of rows, each once, and (M, 2, c) random numbers in [0, 1) for what else
        is drawn."""
        rows = self.draws.draw(lambda g: torch.randperm(self.n, generator=g)[: self.count])
        u = self.draws.draw(lambda g: torch.rand(2, self.count, generator=g, dtype=torch.float64))
        return rows[self.draws.place], u[self.draws.place]


@dataclass(frozen=True, eq=False)
class ClassRows:
    """The rows of each class, and for each class the others that have rows: no row can stand for a
    class without rows."""

    count: int
    rows: Tensor  # (n,) by class
    start: Tensor  # (K,)
    size: Tensor  # (K,)
    choices: Tensor  # (K, the most others)
    many: Tensor  # (K,) how many of these

    @classmethod
    def of(cls, labels: Tensor, count: int) -> "ClassRows":
        size = torch.bincount(labels, minlength=count)
        present = [k for k in range(count) if size[k]]
        others = [[c for c in present if c != k] for k in range(count)]
        choices = torch.tensor([[*o, *o[:1] * (len(present) - len(o))] for o in others])
        many = torch.tensor([len(o) for o in others])
        return cls(count, labels.argsort(stable=True), size.cumsum(0) - size, size, choices, many)

    def other(self, now: Tensor, u: Tensor) -> Tensor:
        """A class drawn, by numbers u in [0, 1), among those that are not `now`."""
        return self.choices[now, (u * self.many[now]).long()]

    def row(self, label: Tensor, u: Tensor) -> Tensor:
        """A row of each label, drawn by numbers u in [0, 1)."""
        return self.rows[self.start[label] + (u * self.size[label]).long()]
