"""What people can reach, for many candidates each."""

from abc import ABC, abstractmethod
from copy import copy
from itertools import groupby
from typing import ClassVar, Self

import torch
from torch import Tensor

from holdfast.schema.feasible import FeasibleSet, stays_missing


class CandidateProjection:
    """What people can reach, for many candidates each: `FeasibleSet.project`, columns first as in
    `_candidates`.

    It finds the same rows, up to rounding: steps along a grid are counted from the person's own
    value, if that is on the grid, and not from the grid's origin, which saves comparing the two.
    """

    def __init__(self, feasible: FeasibleSet) -> None:
        self.feasible = feasible
        encoding = feasible.encoding
        one_hot = encoding.one_hot
        grid = encoding.grid
        kinds = [2 if one_hot[j] else int(grid[j] > 0) for j in range(len(grid))]
        runs = [[j for j, _ in run] for _, run in groupby(enumerate(kinds), lambda pair: pair[1])]
        numbers = [(slice(run[0], run[-1] + 1), kinds[run[0]]) for run in runs if kinds[run[0]] < 2]
        self.parts: list[tuple[slice, Part]] = [
            (c, (Steps if k else Interval)(feasible, c)) for c, k in numbers
        ]
        self.parts += [(c, Levels(feasible, c)) for c in (slice(a, b) for a, b in encoding.spans)]

    def only(self, feasible: FeasibleSet, rows: Tensor) -> "CandidateProjection":
        """The projection for some of the people."""
        chosen = copy(self)
        chosen.feasible = feasible
        chosen.parts = [(columns, part.only(rows)) for columns, part in self.parts]
        return chosen

    def project(self, z: Tensor, people: slice) -> Tensor:
        """Nearest reachable candidates to `z` (d, n, m), which is overwritten."""
        encoding = self.feasible.encoding
        if encoding.max_changes:  # weighs all columns of a row against each other
            return self._row_by_row(z, people, torch.arange(z[0].numel())).reshape(z.shape)
        wanted = z.clone() if len(encoding.rules) else z
        value, missing = encoding.gaps
        u, w = (z[value], z[missing]) if missing.numel() else (z, z)
        for columns, into in self.parts:
            into(z[columns], people)
        if missing.numel():
            reach = self.feasible[people]
            x = reach.x.T[value, :, None]
            lo = reach.lo.T[missing, :, None]
            hi = reach.hi.T[missing, :, None]
            stays = stays_missing(u, w, x, z[value], lo, hi)
            z[value], z[missing] = torch.where(stays, x, z[value]), stays.to(z.dtype)
        if len(encoding.rules):
            broken = (encoding.excess(z.flatten(1).T.contiguous()) > 0).any(1).nonzero().squeeze(1)
            if len(broken):
                z.view(len(z), -1)[:, broken] = self._row_by_row(wanted, people, broken)
        return z

    @property
    def by_column(self) -> bool:
        """Can each column, and each category, be brought within reach by itself, whatever the
        others hold?"""
        return not (self.feasible.encoding.max_changes or len(self.feasible.encoding.rules))

    def _row_by_row(self, z: Tensor, people: slice, some: Tensor) -> Tensor:
        """(d, some) the candidates with these numbers, each as a row of its own."""
        feasible = self.feasible[people][some // z.shape[2]]
        return feasible.project(z.flatten(1)[:, some].T.contiguous()).T


class Part(ABC):
    """Some columns: moves people's candidates (columns, n, m) to values they may take, in
    place."""

    # names of the tensors (columns, n, 1) that have an entry for each person
    personal: ClassVar[tuple[str, ...]]

    @abstractmethod
    def __call__(self, z: Tensor, people: slice) -> None: ...

    def only(self, rows: Tensor) -> Self:
        part = copy(self)
        for name in self.personal:
            setattr(part, name, getattr(self, name)[:, rows])
        return part


def _columns_first(v: Tensor, columns: slice) -> Tensor:
    return v.T[columns, :, None]


class Interval(Part):
    """Any number between limits."""

    personal = ("lo", "hi")

    def __init__(self, feasible: FeasibleSet, columns: slice) -> None:
        self.lo = _columns_first(feasible.lo, columns)
        self.hi = _columns_first(feasible.hi, columns)

    def __call__(self, z: Tensor, people: slice) -> None:
        torch.maximum(z, self.lo[:, people], out=z)
        torch.minimum(z, self.hi[:, people], out=z)


class Steps(Interval):
    """The nearest value on a grid, or the person's own where that is nearer."""

    personal = ("lo", "hi", "own", "off", "base")

    def __init__(self, feasible: FeasibleSet, columns: slice) -> None:
        super().__init__(feasible, columns)
        self.tick = feasible.encoding.grid[columns, None, None]
        origin = feasible.encoding.origin[columns, None, None]
        self.per_unit = 1 / self.tick
        self.own = torch.clamp(_columns_first(feasible.x, columns), self.lo, self.hi)
        near = torch.round((self.own + origin) / self.tick) * self.tick - origin
        self.off = (self.own - near).abs() > 1e-5 * self.tick  # own values between the steps
        self.base = torch.where(self.off, near, self.own)
        self.any_off = bool(self.off.any())

    def __call__(self, z: Tensor, people: slice) -> None:
        base = self.base[:, people]
        wanted = self._inside(z, people) if self.any_off else z
        super().__call__(
            z.sub_(base).mul_(self.per_unit).round_().mul_(self.tick).add_(base), people
        )
        if self.any_off:
            unchanged = self.own[:, people]
            room = torch.where(self.off[:, people], 1e-5 * self.tick, -torch.inf)
            z.copy_(
                torch.where((wanted - unchanged).abs() <= (wanted - z).abs() + room, unchanged, z)
            )

    def _inside(self, z: Tensor, people: slice) -> Tensor:
        return torch.clamp(z, self.lo[:, people], self.hi[:, people])


class Levels(Part):
    """The strongest level of a category that the person may take."""

    personal = ("shut",)

    def __init__(self, feasible: FeasibleSet, columns: slice) -> None:
        hi = _columns_first(feasible.hi, columns)
        self.shut = torch.where(hi <= 0, -torch.inf, torch.zeros_like(hi))
        self.any_shut = bool(self.shut.any())

    def __call__(self, z: Tensor, people: slice) -> None:
        if self.any_shut:
            z += self.shut[:, people]
        torch.eq(z, z.amax(0), out=z)
        # the first of two equally strong ones; argmax is far slower than all of this
        if int(z.sum()) != z[0].numel():
            z.copy_(torch.zeros_like(z).scatter_(0, z.argmax(0, keepdim=True), 1.0))
