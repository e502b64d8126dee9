"""What every single change of a candidate does to the lead of the wanted outcome, all of them at
once.

`LeafChanges` knows the leaves of a tree model (see `models.compiled.tree_leaves`). Let v_l be in
how many features the candidate is outside the box of leaf l. Along feature j, all else as it is,
the model is

    sum over leaves l with v_l = [outside in j]  of  value_l * inside_j[l, cell],

so one matrix product gives the scores of all cells of j: some hundred changes for the price of a
few evaluations. `ModelChanges` asks any model about each change.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast._core.rows import chunks, pad_rows
from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves, rounded
from holdfast.methods.tree_search.ties import Ties
from holdfast.models.compiled.tree_leaves import Leaves
from holdfast.models.scores import Outputs, to_scores
from holdfast.problem import SLACK, SearchProblem

STATES = 256  # candidates at once: their tables stay in the cache
ROWS = 1 << 15  # rows a model is asked about at once


class Tried(NamedTuple):
    """Single changes (s, m) of candidates: those of row i come before those of row i + 1, as many
    of each."""

    person: Tensor  # (s,)
    taken: Tensor  # (s, features) the moves that a candidate has taken so far
    gap: Tensor  # (s, m)
    hit: Tensor  # (s, m) which changes succeed
    changed: Tensor  # (s, m) how many features
    price: Tensor  # (s, m)


class SingleChanges(ABC):
    """The gaps of candidates of the people of a problem after each single change."""

    exact: bool  # is the answer the same all over a cell?

    def __init__(self, problem: SearchProblem, personal: PersonalMoves) -> None:
        self.problem = problem
        self.personal = personal

    @abstractmethod
    def gaps(self, person: Tensor, taken: Tensor, tried: Tensor) -> Tensor:
        """(s, m) for the candidates `taken` (s, features) of people (s,); -inf where a move is not
        `tried` (s, m)."""

    def confirmed(self, rows: Tensor, tried: Tried, *, fewest: bool) -> Tried:
        """What was tried for some rows, with successes of which there is no doubt: gaps may be
        estimates."""
        return tried


class LeafTable:
    """The leaves of a model, sorted by the features that may change: what `LeafChanges` looks
    things up in."""

    def __init__(self, leaves: Leaves, moves: CellMoves, outputs: Outputs) -> None:
        self.outputs: Outputs = outputs
        self.ties = Ties()
        self.leaves = leaves
        self.k = leaves.value.shape[1]
        columns = {int(moves.column[first]) for first, _ in moves.spans}
        # those that have moves
        self.features = [f for f in leaves.features if f.cells.at.start in columns]
        self.fixed = [f for f in leaves.features if f.cells.at.start not in columns]

    def outside_fixed(self, x: Tensor) -> Tensor:
        """(n, d) -> (n, leaves) in how many of the features that cannot change a person is outside
        each box."""
        out = torch.zeros(len(x), len(self.leaves.tree), dtype=torch.uint8)
        for f in self.fixed:
            out += f.outside[f.cells.of(x)]
        return out


class LeafChanges(SingleChanges):
    """Of a tree model."""

    exact = True

    def __init__(
        self,
        problem: SearchProblem,
        personal: PersonalMoves,
        table: LeafTable,
        *,
        ties: bool = True,
    ) -> None:
        super().__init__(problem, personal)
        self.ties = ties  # may a tie be enough?
        self.table = table
        self.outside_fixed = table.outside_fixed(problem.x)
        one = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
        straight = problem.goal.k == 2 and problem.goal.is_lead
        # of a single output
        self.sign = problem.goal.gap(one.expand(len(problem), 2)) if straight else None

    def gaps(self, person: Tensor, taken: Tensor, tried: Tensor) -> Tensor:
        out = torch.full(tried.shape, -torch.inf, dtype=torch.float64)
        for part in chunks(torch.arange(len(taken)), STATES):
            who = person[part]
            moves = tried.shape[1]
            raw = self._outputs(taken[part], self.outside_fixed[who])  # (s, m, k)
            if self.sign is not None and self.table.k == 1 and self.table.outputs == "logits":
                gap = raw.squeeze(2) * self.sign[who, None]
            else:
                scores = to_scores(raw.flatten(0, 1), self.table.outputs)
                gap = self.problem.goal[who.repeat_interleave(moves)].gap(scores).view(-1, moves)
            gap = torch.where(tried[part], rounded(gap), -torch.inf)
            out[part] = self._decided(gap, raw, who, taken[part]) if self.ties else gap
        return out

    def tie_wins(self, label: int) -> bool:
        """Is a tie of two classes always enough for those who want this one? False: not always, or
        nobody knows."""
        goal = self.problem.goal
        if not self.ties or goal.k != 2 or goal.soft or goal.margin:
            return False
        if self.table.outputs != "probabilities":  # sums of many digits: hardly ever level
            return False
        wins, open_ = self.table.ties.of(
            self.problem, torch.tensor([label]), torch.zeros(1, 2, dtype=torch.float64)
        )
        return bool(wins) and not bool(open_)

    def _decided(self, gap: Tensor, raw: Tensor, person: Tensor, taken: Tensor) -> Tensor:
        """Gaps (s, m) of the outputs (s, m, k), with those that are level put where `predict` puts
        them."""
        problem = self.problem
        state, move = ((gap - problem.goal.margin).abs() <= SLACK).nonzero(as_tuple=True)
        if not len(state):
            return gap
        who = person[state]
        scores = to_scores(raw[state, move], self.table.outputs)
        wins, open_ = self.table.ties.of(problem, problem.goal.label[who], scores)
        for part in chunks(open_.nonzero().squeeze(1), ROWS):
            z = self.personal.after(
                self.personal.rows(who[part], taken[state[part]]), who[part], move[part]
            )
            wins[part] = problem[who[part]].judged(z)
        gap[state, move] = problem.goal.margin + torch.where(wins, 2 * SLACK, 0.0).double()
        return gap

    def _outputs(self, taken: Tensor, outside_fixed: Tensor) -> Tensor:
        """(s, m, k) the model's outputs after each move."""
        table = self.table
        s = len(taken)
        spans = self.personal.moves.spans
        cell = pad_rows(taken - self.personal.moves.starts)
        v = pad_rows(outside_fixed).clone()
        for i, feature in enumerate(table.features):
            v += feature.outside[cell[:, i]]
        base = (v == 0).double() @ table.leaves.value + table.leaves.start  # (s, k)
        out = torch.empty(len(v), spans[-1][1] if spans else 0, table.k, dtype=torch.float64)
        everyone = torch.arange(len(v))
        for i, (feature, (a, b)) in enumerate(zip(table.features, spans, strict=True)):
            free = v.index_select(1, feature.tested) == feature.outside_tested[cell[:, i]]
            along = (free.double() @ feature.weights).view(len(v), b - a, table.k)
            out[:, a:b] = along + (base - along[everyone, cell[:, i]])[:, None]
        return out[:s] / table.leaves.share


class ModelChanges(SingleChanges):
    """Of any model."""

    exact = False

    def gaps(self, person: Tensor, taken: Tensor, tried: Tensor) -> Tensor:
        out = torch.full(tried.shape, -torch.inf, dtype=torch.float64)
        state, move = tried.nonzero(as_tuple=True)
        z = self.personal.rows(person, taken)
        for part in chunks(torch.arange(len(state)), ROWS):
            who = person[state[part]]
            to = move[part]
            rows = self.personal.after(z[state[part]], who, to)
            out[state[part], to] = rounded(
                self.problem.goal[who].gap(self.problem.model(rows)).double()
            )
        return out
