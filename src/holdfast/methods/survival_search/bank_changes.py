"""What every single change of a candidate does to the bound over a bank of tree models, all of them at once.

The cells are those between the thresholds of all models together. Each model knows only its own: a cell of the union
lies in one cell of the model, so its scores after all moves are looked up there and spread over the union.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast._core.rows import chunks
from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves, rounded
from holdfast.methods.tree_search.single_changes import LeafTable, SingleChanges
from holdfast.models.base import Model
from holdfast.models.compiled.tree_leaves import Cells, Leaves
from holdfast.models.scores import Outputs, to_scores
from holdfast.problem import SearchProblem

STATES = 256


MOST_CUTS = 48  # of a feature: beyond, some of them are left out, and answers are pulled back by bisection


def union_cells(models: list[Model], most: int = MOST_CUTS) -> tuple[list[Cells], bool]:
    """The cells of every feature that some model tests, between the thresholds of all of them; and is that all of
    them? Of those between the same two values of a grid one will do; of too many, quantiles."""
    encoding, exact = models[0].schema.encoding(torch.float64), True
    by_feature: dict[int, list[Cells]] = {}
    for model in models:
        trees = model.thresholds
        assert trees is not None
        for cells in trees.cells:
            by_feature.setdefault(cells.feature, []).append(cells)
    out = list[Cells]()
    for feature, parts in sorted(by_feature.items()):
        cuts = [c.cuts for c in parts if c.cuts is not None]
        joined = np.unique(np.concatenate(cuts)) if cuts else None
        if joined is not None:
            tick, origin = (float(v[parts[0].at.start]) for v in (encoding.grid, encoding.origin))
            if tick > 0:
                _, first = np.unique(np.floor((joined + origin) / tick + 1e-9), return_index=True)
                joined = joined[first]
            if len(joined) > most:
                exact = False
                joined = np.unique(np.quantile(joined, (np.arange(most) + 0.5) / most, method="nearest"))
        out.append(Cells(feature, parts[0].at, joined, parts[0].has_gap))
    return out, exact


def place_in(union: Cells, own: Cells) -> Tensor:
    """(cells of the union,) the model's own cell that each lies in."""
    if union.cuts is None or own.cuts is None:
        return torch.arange(union.count)
    last = np.append(union.cuts, np.inf)
    place = np.searchsorted(own.cuts, last)
    return torch.tensor(np.append(place, own.count - 1) if union.has_gap else place)


@dataclass(frozen=True)
class Member:
    """The leaves of one model, and where each move of the union leads in its own cells."""

    leaves: Leaves
    outputs: Outputs
    features: list[tuple[int, int, Tensor]]  # (its own feature, the union's, place of the union's cells)
    fixed: list[int]  # its own features that cannot change

    @staticmethod
    def of(model: Model, moves: CellMoves) -> "Member":
        trees = model.thresholds
        assert trees is not None and trees.leaves is not None
        union = {c.feature: (i, c) for i, c in enumerate(moves.cells)}
        features, fixed = list[tuple[int, int, Tensor]](), list[int]()
        for j, f in enumerate(trees.leaves.features):
            if f.cells.feature in union:
                i, cells = union[f.cells.feature]
                features.append((j, i, place_in(cells, f.cells)))
            else:
                fixed.append(j)
        return Member(trees.leaves, trees.outputs, features, fixed)

    def outside_fixed(self, x: Tensor) -> Tensor:
        out = torch.zeros(len(x), len(self.leaves.tree), dtype=torch.uint8)
        for j in self.fixed:
            f = self.leaves.features[j]
            out += f.outside[f.cells.of(x)]
        return out

    def scores(self, cell: Tensor, outside_fixed: Tensor, spans: list[tuple[int, int]]) -> Tensor:
        """(s, m, k) after each move of the union, for candidates in cells (s, features of the union)."""
        v = outside_fixed.clone()
        own = [place[cell[:, i]] for _, i, place in self.features]
        for (j, _, _), at in zip(self.features, own, strict=True):
            v += self.leaves.features[j].outside[at]
        s, k = len(v), self.leaves.value.shape[1]
        base = (v == 0).double() @ self.leaves.value + self.leaves.start
        out = base[:, None].repeat(1, spans[-1][1], 1)
        everyone = torch.arange(s)
        for (j, i, place), at in zip(self.features, own, strict=True):
            f = self.leaves.features[j]
            free = v.index_select(1, f.tested) == f.outside_tested[at]
            along = (free.double() @ f.weights).view(s, f.cells.count, k)
            along = along + (base - along[everyone, at])[:, None]
            a, b = spans[i]
            out[:, a:b] = along[:, place]
        return out / self.leaves.share


class BankLeafChanges(SingleChanges):
    """min( gap of the model, mean - c sd of the margins of the guide's models )."""

    def __init__(
        self, problem: SearchProblem, personal: PersonalMoves, base: Member, members: list[Member], c: Tensor,
        exact: bool,
    ) -> None:  # fmt: skip
        super().__init__(problem, personal)
        self.exact = exact
        self.base, self.members, self.c = base, members, c
        self.fixed = [m.outside_fixed(problem.x) for m in (base, *members)]

    def gaps(self, person: Tensor, taken: Tensor, tried: Tensor) -> Tensor:
        out = torch.full(tried.shape, -torch.inf, dtype=torch.float64)
        spans, starts = self.personal.moves.spans, self.personal.moves.starts
        for some in chunks(torch.arange(len(taken)), STATES):
            who, cell = person[some], taken[some] - starts
            goal = self.problem.goal[who.repeat_interleave(tried.shape[1])]

            def gap(i: int, member: Member) -> Tensor:
                raw = member.scores(cell, self.fixed[i][who], spans)
                return goal.gap(to_scores(raw.flatten(0, 1), member.outputs)).view(len(who), -1)

            own = gap(0, self.base)
            total, squares = torch.zeros_like(own), torch.zeros_like(own)
            for i, member in enumerate(self.members, 1):
                g = gap(i, member)
                total += g
                squares += g * g
            n = len(self.members)
            mean = total / n
            sd = ((squares - n * mean * mean) / (n - 1)).clamp_min(0).sqrt()
            bound = torch.minimum(own, mean - self.c[who][:, None] * sd)
            out[some] = torch.where(tried[some], rounded(bound), -torch.inf)
        return out
