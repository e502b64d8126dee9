"""Many candidates per person, weighed at once: made reachable and judged; the cheapest success is
kept.

Candidates are tensors (d, n, m): columns first, then people, then the m candidates of each. What
belongs to a person or to a column is then one number beside m candidates, so every operation runs
along these, however few columns there are, and a model gets all of them as a transposed view. On
rows (n m, d) the same steps cost several times as much as the model.
"""

import math
from collections.abc import Callable, Iterator
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast._core.rows import ROW_BLOCK, rows_per_chunk
from holdfast.distances import Distance, Separable
from holdfast.methods._autoencoder import aligned
from holdfast.methods._candidate_projection import CandidateProjection
from holdfast.nn.relu_network import Engine
from holdfast.problem import SLACK, SearchProblem

# Weighed between two looks at the time; fewer where a layer is so wide that they would leave the
# cache.
CANDIDATES = 1 << 14

# of people, samples: their candidates, into a tensor (d, n, m)
Place = Callable[[slice, slice, Tensor], None]


class Nearest(NamedTuple):
    """Per row the cheapest candidate with the wanted outcome."""

    rows: Tensor  # (n, d), any row where there is none
    cost: Tensor  # (n,) of the change, inf where there is none
    at: Tensor  # (n,) which of the m candidates it is

    @classmethod
    def start(cls, rows: Tensor) -> "Nearest":
        """No success so far, and what to return if it stays so."""
        return cls(
            rows, rows.new_full((len(rows),), torch.inf), torch.zeros(len(rows), dtype=torch.int64)
        )

    def take(self, rows: Tensor, found: "Nearest") -> None:
        """Keep what was found for some of the rows where it is cheaper."""
        better = (found.cost < self.cost[rows]).nonzero().squeeze(1)
        for kept, new in zip(self, found, strict=True):
            kept[rows[better]] = new[better]


class Candidates:
    """The people of a problem, each with many candidates; the nearest is nearest by `distance`,
    in which columns have the weights (d,), or 1."""

    def __init__(
        self, problem: SearchProblem, distance: Distance, weight: Tensor | None = None
    ) -> None:
        self.problem = problem
        self.distance = distance
        self.weight = weight
        engine = problem.model.engine if problem.goal.k == 2 and problem.goal.is_lead else None
        self.lead = Lead(engine) if engine else None
        widest = max([problem.x.shape[1]] + [len(w) for w, _ in (engine.weights if engine else ())])
        self.at_once = min(CANDIDATES, rows_per_chunk(widest))
        self.memory = Scratch(problem.x)
        # (n, 1) should s_1 lead?
        self.up = (problem.goal.label[:, None] == 1) == (problem.goal.sign > 0)
        self.directions = {v for v in (False, True) if bool((self.up == v).any())}
        self.projection = CandidateProjection(problem.feasible)

    def __len__(self) -> int:
        return len(self.problem)

    def only(self, rows: Tensor) -> "Candidates":
        """Some of the people: finished rows leave."""
        if len(rows) == len(self):
            return self
        part = copy(self)
        part.problem = self.problem[rows]
        part.up = self.up[rows]
        part.projection = self.projection.only(part.problem.feasible, rows)
        return part

    def nearest(self, samples: int, place: Place, *, ordered: bool = False) -> Nearest:
        """The cheapest success among the `samples` candidates that `place` gives each person;
        people it does not get to in time have none. If candidates are `ordered`, nearest first
        before they are made reachable, the first success is taken, which saves measuring
        all."""
        best = Nearest.start(self.problem.x.clone())
        everyone = torch.arange(len(self))
        for batch in _parts(samples, self.at_once):
            found = self._weigh(samples, batch, place, ordered)
            best.take(everyone, found._replace(at=found.at + batch.start))
            if self.problem.budget.over():
                break
        return best

    def _weigh(self, samples: int, some: slice, place: Place, ordered: bool) -> Nearest:
        """The same among some of the samples."""
        x = self.problem.x.T
        found = x.clone()
        at = torch.zeros(len(self), dtype=torch.int64)
        ok = torch.zeros(len(self), dtype=torch.bool)
        for people in _parts(len(self), max(1, self.at_once // samples)):
            if people.start and self.problem.budget.over():
                break
            z = self.memory.tensor(x.shape[0], people.stop - people.start, some.stop - some.start)
            place(people, some, z)
            z = self.projection.project(z, people)
            hit = self.met(z, people)
            best = hit.view(torch.uint8).argmax(1) if ordered else self._cheapest(z, hit, people)
            number = torch.arange(0, hit.numel(), hit.shape[1]) + best
            found[:, people] = z.flatten(1).index_select(1, number)
            ok[people] = hit.flatten()[number]
            at[people] = best
        return Nearest(found.T, self._cost(found - x).masked_fill_(~ok, torch.inf), at)

    def met(self, z: Tensor, people: slice) -> Tensor:
        """(n, m) which reachable candidates get the wanted outcome, with a little to spare?"""
        _, n, m = z.shape
        flat = z.flatten(1)
        if self.lead:
            more = -(n * m) % ROW_BLOCK
            rows = (nn.functional.pad(flat, (0, more)) if more else flat).T
            lead = self.lead(rows)[: n * m].view(n, m)
            level = self.problem.level
            if len(self.directions) > 1:
                lead = torch.where(self.up[people], lead, -lead)
            return lead < -level if self.directions == {False} else lead > level
        goal = self.problem.goal[people][torch.arange(n).repeat_interleave(m)]
        return goal.met(self.problem.model(flat.T.contiguous()), SLACK).view(n, m)

    def _cheapest(self, z: Tensor, hit: Tensor, people: slice) -> Tensor:
        """(n,) which candidate of each person is the cheapest success, if there is any."""
        rows = hit.view(torch.uint8).amax(1).nonzero().squeeze(1)
        x = self.problem.x[people]
        if 2 * len(rows) > len(hit):  # leaving people out would cost more than it saves
            return self._cost(z - x.T[..., None]).masked_fill_(~hit, torch.inf).argmin(1)
        cost = self._cost(z.index_select(1, rows).sub_(x[rows].T[..., None]))
        best = cost.masked_fill_(~hit[rows], torch.inf).argmin(1)
        return torch.zeros(len(hit), dtype=torch.int64).index_copy_(0, rows, best)

    def _cost(self, delta: Tensor) -> Tensor:
        """(d, ...) changes -> (...); overwrites them."""
        if not isinstance(self.distance, Separable):
            return self.distance.value(delta.movedim(0, -1).contiguous(), self.weight)
        delta = self.distance.terms(delta, out=delta)
        return column_sum(
            delta
            if self.weight is None
            else delta.mul_(self.weight.view(-1, *[1] * (delta.ndim - 1)))
        )


class Scratch:
    """Room for one tensor after the other: fresh pages from the system cost as much as writing to
    them."""

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
        self.memory = [Scratch(b) for b, _ in self.net.hidden]

    def __call__(self, rows: Tensor) -> Tensor:
        """(n, 1), for n a multiple of `ROW_BLOCK`."""
        h = rows
        for (b, w), memory in zip(self.net.hidden, self.memory, strict=True):
            h = torch.addmm(b, h, w, out=memory.tensor(len(rows), len(b))).relu_()
        return torch.addmm(self.net.weights[-1][1], h, self.net.transposed[-1])


def column_sum(v: Tensor) -> Tensor:
    """(d, ...) -> (...), overwrites v. The order of the sum depends on d alone, while that of
    torch.sum also depends on the place in memory: a row's answer must not change with its
    neighbours."""
    d = len(v)
    while d > 1:
        half = -(-d // 2)
        v[: d - half] += v[half:d]
        d = half
    return v[0]


def _parts(n: int, size: int) -> Iterator[slice]:
    return (slice(i, min(i + size, n)) for i in range(0, n, size))
