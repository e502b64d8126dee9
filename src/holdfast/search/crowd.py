"""Many candidates per person, weighed at once: made reachable, judged, and the cheapest that succeeds kept.

Candidates are tensors (d, n, m): columns first, then people, then the m candidates of each. What belongs to a person
or to a column is then one number beside m candidates, so every operation runs along these, however few columns there
are, and a model gets the lot as a transposed view. On rows (n m, d) the same steps cost several times the model.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from itertools import groupby
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from holdfast.explainer import SLACK, Query
from holdfast.geometry import ROW_BLOCK
from holdfast.linear import excess
from holdfast.network import Engine
from holdfast.reach import Reach
from holdfast.train.generative import aligned

CANDIDATES = 1 << 14  # weighed at once, and fewer where a layer is so wide that these would leave the cache
CELLS = 1 << 20  # numbers in the widest layer

Place = Callable[[slice, slice, Tensor], None]  # of people, samples: their candidates, into a tensor (d, n, m)


class Nearest(NamedTuple):
    """Per row the cheapest candidate with the wanted outcome."""

    rows: Tensor  # (n, d), any row where there is none
    cost: Tensor  # (n,) of the change, inf where there is none
    at: Tensor  # (n,) which of the m candidates it is

    @classmethod
    def none(cls, rows: Tensor) -> "Nearest":
        """No success so far, and what to return if it stays so."""
        return cls(rows, rows.new_full((len(rows),), torch.inf), torch.zeros(len(rows), dtype=torch.int64))

    def take(self, rows: Tensor, found: "Nearest") -> None:
        """Keep what was found for some of the rows where it is cheaper."""
        better = (found.cost < self.cost[rows]).nonzero().squeeze(1)
        for mine, new in zip(self, found, strict=True):
            mine[rows[better]] = new[better]


class Crowd:
    """The people of a query, who may each be given many candidates.

    Args:
        query: the people.
        norm: 1, or 2 (squared): what the nearest is nearest by.
        weight: (d,) of the columns in that distance; None for 1.
        at_once: how many candidates to weigh at most before the time is looked at.
    """

    def __init__(
        self, query: Query, norm: Literal[1, 2], weight: Tensor | None = None, *, at_once: int = CANDIDATES
    ) -> None:
        self.query, self.norm, self.weight = query, norm, weight
        engine = query.model.engine if query.goal.k == 2 else None
        self.lead = Lead(engine) if engine else None
        widest = max([query.x.shape[1]] + [len(w) for w, _ in (engine.weights if engine else ())])
        self.at_once = min(at_once, max(1, CELLS // widest))
        self.memory = Memory(query.x)
        self.up = (query.goal.label[:, None] == 1) == (query.goal.sign > 0)  # (n, 1) is it s_1 that should lead?
        self.ways = {v for v in (False, True) if bool((self.up == v).any())}
        self.space = Space(query.reach)

    def __len__(self) -> int:
        return len(self.query)

    def only(self, rows: Tensor) -> "Crowd":
        """Some of the people: how finished rows leave."""
        if len(rows) == len(self):
            return self
        part = copy(self)
        part.query, part.up = self.query[rows], self.up[rows]
        part.space = self.space.only(part.query.reach, rows)
        return part

    def nearest(self, samples: int, place: Place, *, ordered: bool = False) -> Nearest:
        """The cheapest success among the `samples` candidates that `place` gives each person; people it does not come
        to in time have none.

        Args:
            ordered: the candidates come nearest first, up to what making them reachable does: the first success is
                taken, which saves measuring all.
        """
        best, everyone = Nearest.none(self.query.x.clone()), torch.arange(len(self))
        for some in _parts(samples, self.at_once):
            found = self._weigh(samples, some, place, ordered)
            best.take(everyone, found._replace(at=found.at + some.start))
            if self.query.clock.over():
                break
        return best

    def _weigh(self, samples: int, some: slice, place: Place, ordered: bool) -> Nearest:
        """The same among some of the samples."""
        x = self.query.x.T
        found, at = x.clone(), torch.zeros(len(self), dtype=torch.int64)
        ok = torch.zeros(len(self), dtype=torch.bool)
        for people in _parts(len(self), max(1, self.at_once // samples)):
            if people.start and self.query.clock.over():
                break
            z = self.memory.tensor(x.shape[0], people.stop - people.start, some.stop - some.start)
            place(people, some, z)
            z = self.space.project(z, people)
            hit = self.met(z, people)
            best = hit.view(torch.uint8).argmax(1) if ordered else self._cheapest(z, hit, people)
            number = torch.arange(0, hit.numel(), hit.shape[1]) + best
            found[:, people] = z.flatten(1).index_select(1, number)
            ok[people], at[people] = hit.flatten()[number], best
        return Nearest(found.T, self._cost(found - x).masked_fill_(~ok, torch.inf), at)

    def met(self, z: Tensor, people: slice) -> Tensor:
        """(n, m) do reachable candidates get the wanted outcome, with a little to spare?"""
        (_, n, m), flat = z.shape, z.flatten(1)
        if self.lead:
            more = -(n * m) % ROW_BLOCK
            rows = (nn.functional.pad(flat, (0, more)) if more else flat).T
            lead, level = self.lead(rows)[: n * m].view(n, m), self.query.level
            if len(self.ways) > 1:
                lead = torch.where(self.up[people], lead, -lead)
            return lead < -level if self.ways == {False} else lead > level
        goal = self.query.goal[people][torch.arange(n).repeat_interleave(m)]
        return goal.met(self.query.model(flat.T.contiguous()), SLACK).view(n, m)

    def _cheapest(self, z: Tensor, hit: Tensor, people: slice) -> Tensor:
        """(n,) which candidate of each person is the cheapest success, if there is any."""
        rows = hit.view(torch.uint8).amax(1).nonzero().squeeze(1)
        x = self.query.x[people]
        if 2 * len(rows) > len(hit):  # leaving people out would cost more than it saves
            return self._cost(z - x.T[..., None]).masked_fill_(~hit, torch.inf).argmin(1)
        cost = self._cost(z.index_select(1, rows).sub_(x[rows].T[..., None]))
        best = cost.masked_fill_(~hit[rows], torch.inf).argmin(1)
        return torch.zeros(len(hit), dtype=torch.int64).index_copy_(0, rows, best)

    def _cost(self, delta: Tensor) -> Tensor:
        """(d, ...) changes -> (...); overwrites them."""
        delta = delta.abs_() if self.norm == 1 else delta.square_()
        return column_sum(delta if self.weight is None else delta.mul_(self.weight.view(-1, *[1] * (delta.ndim - 1))))


class Memory:
    """Room for one tensor after the other: pages fresh from the system cost as much as what is written to them."""

    def __init__(self, like: Tensor) -> None:
        self.room = like.new_empty(0)

    def tensor(self, *shape: int) -> Tensor:
        size = math.prod(shape)
        if size > len(self.room):
            self.room = self.room.new_empty(size)
        return self.room[:size].view(shape)


class Lead:
    """s_1 - s_0 of a network with two classes. One output takes half the time of two."""

    def __init__(self, engine: Engine) -> None:
        self.net = aligned(engine.against(-1.0, 0.0), outputs=False)
        self.memory = [Memory(b) for b, _ in self.net.hidden]

    def __call__(self, rows: Tensor) -> Tensor:
        """(n, 1), for n a multiple of `ROW_BLOCK`."""
        h = rows
        for (b, w), memory in zip(self.net.hidden, self.memory, strict=True):
            h = torch.addmm(b, h, w, out=memory.tensor(len(rows), len(b))).relu_()
        return torch.addmm(self.net.weights[-1][1], h, self.net.transposed[-1])


def column_sum(v: Tensor) -> Tensor:
    """(d, ...) -> (...), overwrites v. The order of the sum depends on d alone, not, as that of torch.sum, on the place
    in memory too: a row's answer must not change with its neighbours."""
    d = len(v)
    while d > 1:
        half = -(-d // 2)
        v[: d - half] += v[half:d]
        d = half
    return v[0]


def _parts(n: int, size: int) -> Iterator[slice]:
    return (slice(i, min(i + size, n)) for i in range(0, n, size))


# ---- what can be reached


class Space:
    """What people can reach, for many candidates each: `Reach.project`, columns first.

    It finds the same rows, up to rounding: steps along a grid are counted from the person's own value, where that is
    on the grid, and not from its origin, which saves comparing the two.
    """

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        at = reach.layout
        kinds = [2 if at.one_hot[j] else int(at.grid[j] > 0) for j in range(len(at.grid))]
        runs = [[j for j, _ in run] for _, run in groupby(enumerate(kinds), lambda pair: pair[1])]
        numbers = [(slice(run[0], run[-1] + 1), kinds[run[0]]) for run in runs if kinds[run[0]] < 2]
        self.parts: list[tuple[slice, Part]] = [(c, Steps(reach, c) if k else Interval(reach, c)) for c, k in numbers]
        self.parts += [(c, Levels(reach, c)) for c in (slice(a, b) for a, b in at.spans)]

    def only(self, reach: Reach, rows: Tensor) -> "Space":
        """That of some of the people, whose reach is given."""
        space = copy(self)
        space.reach, space.parts = reach, [(columns, part.only(rows)) for columns, part in self.parts]
        return space

    def project(self, z: Tensor, people: slice) -> Tensor:
        """Nearest reachable candidates to `z` (d, n, m), which is overwritten."""
        at = self.reach.layout
        if at.max_changes:  # weighs all columns of a row against each other
            return self._row_by_row(z, people, torch.arange(z[0].numel())).reshape(z.shape)
        wanted = z.clone() if len(at.rules) else z
        for columns, into in self.parts:
            into(z[columns], people)
        if len(at.rules):
            broken = (excess(z.flatten(1).T.contiguous(), at.parts) > 0).any(1).nonzero().squeeze(1)
            if len(broken):
                z.view(len(z), -1)[:, broken] = self._row_by_row(wanted, people, broken)
        return z

    @property
    def by_column(self) -> bool:
        """Is each column, and each category, brought within reach by itself, whatever the others hold?"""
        return not (self.reach.layout.max_changes or len(self.reach.layout.rules))

    def _row_by_row(self, z: Tensor, people: slice, some: Tensor) -> Tensor:
        """(d, some) the candidates with these numbers, each as a row of its own."""
        reach = self.reach[people][some // z.shape[2]]
        return reach.project(z.flatten(1)[:, some].T.contiguous()).T


class Part(ABC):
    """Some columns: brings candidates (columns, n, m) of people to values they may take, in place."""

    personal: ClassVar[tuple[str, ...]]  # names of the tensors (columns, n, 1) that have an entry for each person

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

    def __init__(self, reach: Reach, columns: slice) -> None:
        self.lo, self.hi = (_columns_first(v, columns) for v in (reach.lo, reach.hi))

    def __call__(self, z: Tensor, people: slice) -> None:
        torch.maximum(z, self.lo[:, people], out=z)
        torch.minimum(z, self.hi[:, people], out=z)


class Steps(Interval):
    """The nearest value on a grid, or the person's own where that is nearer."""

    personal = ("lo", "hi", "own", "off", "base")

    def __init__(self, reach: Reach, columns: slice) -> None:
        super().__init__(reach, columns)
        self.tick, origin = (v[columns, None, None] for v in (reach.layout.grid, reach.layout.origin))
        self.per_unit = 1 / self.tick
        self.own = torch.clamp(_columns_first(reach.x, columns), self.lo, self.hi)
        near = torch.round((self.own + origin) / self.tick) * self.tick - origin
        self.off = (self.own - near).abs() > 1e-5 * self.tick  # own values between the steps
        self.base = torch.where(self.off, near, self.own)
        self.any_off = bool(self.off.any())

    def __call__(self, z: Tensor, people: slice) -> None:
        base, wanted = self.base[:, people], self._inside(z, people) if self.any_off else z
        super().__call__(z.sub_(base).mul_(self.per_unit).round_().mul_(self.tick).add_(base), people)
        if self.any_off:
            own, room = self.own[:, people], torch.where(self.off[:, people], 1e-5 * self.tick, -torch.inf)
            z.copy_(torch.where((wanted - own).abs() <= (wanted - z).abs() + room, own, z))

    def _inside(self, z: Tensor, people: slice) -> Tensor:
        return torch.clamp(z, self.lo[:, people], self.hi[:, people])


class Levels(Part):
    """The strongest level of a category that the person may take."""

    personal = ("shut",)

    def __init__(self, reach: Reach, columns: slice) -> None:
        hi = _columns_first(reach.hi, columns)
        self.shut = torch.where(hi <= 0, -torch.inf, torch.zeros_like(hi))
        self.any_shut = bool(self.shut.any())

    def __call__(self, z: Tensor, people: slice) -> None:
        if self.any_shut:
            z += self.shut[:, people]
        torch.eq(z, z.amax(0), out=z)
        if int(z.sum()) != z[0].numel():  # two are equally strong: the first; argmax is far slower than all of this
            z.copy_(torch.zeros_like(z).scatter_(0, z.argmax(0, keepdim=True), 1.0))
