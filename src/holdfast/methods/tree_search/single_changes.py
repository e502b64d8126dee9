"""What every single change of a candidate does to the lead of the wanted outcome, all of them at once.

`ByLeaves` knows the leaves of a tree model (see `models.compiled.tree_leaves`). Let v_l be in how many features the
candidate is outside the box of leaf l. Along feature j, all else as it is, the model is

    sum over leaves l with v_l = [outside in j]  of  value_l * inside_j[l, cell],

so one matrix product gives the scores of all cells of j: some hundred changes for the price of a few evaluations.
`ByModel` asks any model about each change.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from holdfast._core.rows import chunks, pad_rows
from holdfast.methods.tree_search.moves import Moves, Offers, whole
from holdfast.models.base import Outputs, to_scores
from holdfast.models.compiled.tree_leaves import Cells, Leaves
from holdfast.problem import SearchProblem

STATES = 256  # candidates at once: their tables stay in the cache
ROWS = 1 << 15  # rows a model is asked about at once


class Profile(ABC):
    """The gaps of candidates of the people of a problem after each single change."""

    exact: ClassVar[bool]  # is the answer the same all over a cell?

    def __init__(self, problem: SearchProblem, offers: Offers) -> None:
        self.problem, self.offers = problem, offers

    @abstractmethod
    def gaps(self, person: Tensor, at: Tensor, tried: Tensor) -> Tensor:
        """(s, m) for the candidates `at` (s, features) of people (s,); -inf where a move is not `tried` (s, m)."""


class Table:
    """The leaves of a model, sorted by the features that may change: what `ByLeaves` looks things up in."""

    def __init__(self, leaves: Leaves, chosen: list[int], outputs: Outputs) -> None:
        """`chosen`: the features of the leaves that have moves."""
        self.outputs: Outputs = outputs
        self.leaves, self.k = leaves, leaves.value.shape[1]
        self.fixed = [f for i, f in enumerate(leaves.features) if i not in chosen]
        free = [leaves.features[i] for i in chosen]
        self.outside, self.asks = [f.outside for f in free], [f.tested for f in free]
        self.here, self.weights = [f.outside_tested for f in free], [f.weights for f in free]

    def shut(self, x: Tensor) -> Tensor:
        """(n, d) -> (n, leaves) in how many of the features that cannot change a person is outside each box."""
        out = torch.zeros(len(x), len(self.leaves.tree), dtype=torch.uint8)
        for f in self.fixed:
            out += f.outside[f.cells.of(x)]
        return out


class ByLeaves(Profile):
    """Of a tree model."""

    exact = True

    def __init__(self, problem: SearchProblem, offers: Offers, table: Table) -> None:
        super().__init__(problem, offers)
        self.table, self.shut = table, table.shut(problem.x)
        one = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
        straight = problem.goal.k == 2 and problem.goal.is_lead
        self.sign = problem.goal.gap(one.expand(len(problem), 2)) if straight else None  # of a single output

    def gaps(self, person: Tensor, at: Tensor, tried: Tensor) -> Tensor:
        out = torch.full(tried.shape, -torch.inf, dtype=torch.float64)
        for some in chunks(torch.arange(len(at)), STATES):
            who, moves = person[some], tried.shape[1]
            raw = self._raw(at[some], self.shut[who])  # (s, m, k)
            if self.sign is not None and self.table.k == 1 and self.table.outputs == "logits":
                gap = raw.squeeze(2) * self.sign[who, None]
            else:
                scores = to_scores(raw.flatten(0, 1), self.table.outputs)
                gap = self.problem.goal[who.repeat_interleave(moves)].gap(scores).view(-1, moves)
            out[some] = torch.where(tried[some], whole(gap), -torch.inf)
        return out

    def _raw(self, at: Tensor, shut: Tensor) -> Tensor:
        """(s, m, k) the model's outputs after each move."""
        table, s = self.table, len(at)
        spans = self.offers.moves.spans
        cell = pad_rows(at - self.offers.moves.starts)
        v = pad_rows(shut).clone()
        for i, outside in enumerate(table.outside):
            v += outside[cell[:, i]]
        base = (v == 0).double() @ table.leaves.value + table.leaves.start  # (s, k)
        out = torch.empty(len(v), spans[-1][1] if spans else 0, table.k, dtype=torch.float64)
        everyone = torch.arange(len(v))
        for i, (a, b) in enumerate(spans):
            free = v.index_select(1, table.asks[i]) == table.here[i][cell[:, i]]
            along = (free.double() @ table.weights[i]).view(len(v), b - a, table.k)
            out[:, a:b] = along + (base - along[everyone, cell[:, i]])[:, None]
        return out[:s] / table.leaves.share


class ByModel(Profile):
    """Of any model."""

    exact = False

    def gaps(self, person: Tensor, at: Tensor, tried: Tensor) -> Tensor:
        out = torch.full(tried.shape, -torch.inf, dtype=torch.float64)
        state, move = tried.nonzero(as_tuple=True)
        z = self.offers.rows(person, at)
        for some in chunks(torch.arange(len(state)), ROWS):
            who, to = person[state[some]], move[some]
            rows = self.offers.after(z[state[some]], who, to)
            out[state[some], to] = whole(self.problem.goal[who].gap(self.problem.model(rows)).double())
        return out


def table_moves(cells: list[Cells], moves: Moves) -> list[int]:
    """Places in `cells` that the moves, made of some of them, are about."""
    columns = {int(moves.column[a]) for a, _ in moves.spans}
    return [i for i, c in enumerate(cells) if c.at.start in columns]
