"""The search for one value of c: by gradients, along the thresholds of trees, or by asking."""

from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor

from holdfast._core.rows import chunks, rows_per_chunk
from holdfast.distances import distance_of, l0, l1
from holdfast.explainer import Explainer
from holdfast.methods.min_cost import MinCost
from holdfast.methods.survival_search.bank_changes import (
    SCREEN,
    BankChanges,
    BankLeafChanges,
    union_cells,
)
from holdfast.methods.survival_search.donors import offer_donors
from holdfast.methods.survival_search.guide import Guide, TreeGuide
from holdfast.methods.survival_search.leaf_stack import LeafStack
from holdfast.methods.survival_search.problem import SurvivalProblem
from holdfast.methods.tree_search.best_moves import BestMoves
from holdfast.methods.tree_search.grow import exchange, grow
from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves, repaired
from holdfast.methods.tree_search.pull_back import pull_back
from holdfast.methods.tree_search.search import TreeSearch
from holdfast.methods.tree_search.single_changes import SingleChanges
from holdfast.models.base import Model

EXACT = 8  # models up to which leaves are summed in double precision
HALVINGS = 6  # of a change, if its feature has more thresholds than are tried


class BankSearch(ABC):
    """A search with S_c in place of the model's gap, and the same search without."""

    guide: Guide
    plain: Explainer

    @abstractmethod
    def search(self, problem: SurvivalProblem, start: Tensor | None) -> Tensor:
        """(n, d) rows with S_c > 0 where some were found; rows of `start` may be such rows
        already."""


class GradientSearch(BankSearch):
    """`MinCost`, of models with gradients."""

    def __init__(self, guide: Guide, min_cost: MinCost) -> None:
        self.guide = guide
        self.plain = min_cost
        self.min_cost = min_cost

    def search(self, problem: SurvivalProblem, start: Tensor | None) -> Tensor:
        return self.min_cost.search_from(problem, start)


class ChangeSearch(BankSearch):
    """`TreeSearch`, of models without."""

    def __init__(self, guide: Guide, tree_search: TreeSearch) -> None:
        self.guide = guide
        self.plain = tree_search
        self.tree_search = tree_search

    @abstractmethod
    def changes(self, problem: SurvivalProblem) -> SingleChanges:
        """What single changes do."""

    def search(self, problem: SurvivalProblem, start: Tensor | None) -> Tensor:
        out = problem.feasible.project(problem.x)
        for rows in chunks(
            torch.arange(len(problem)), rows_per_chunk(self.tree_search.beam * 1024, at_least=16)
        ):
            changes = self.changes(problem[rows])
            if len(changes.personal.moves):
                out[rows] = self._answer(changes, None if start is None else start[rows])
            if problem.budget.over():
                break
        return out

    def _answer(self, changes: SingleChanges, start: Tensor | None) -> Tensor:
        problem = cast(SurvivalProblem, changes.problem)
        personal = changes.personal
        best = BestMoves(personal, fewest=distance_of(self.tree_search.norm, (l0, l1)) == l0)
        everyone = torch.arange(len(problem))
        if start is not None:
            taken = personal.moves.within(start)
            z = personal.rows(everyone, taken)
            best.offer(everyone, taken, problem.feasible.contains(z) & problem.met(z))
        depth = self.tree_search.depth
        grow(changes, best, self.tree_search.beam, depth, further=2 * depth)
        if self.tree_search.is_fitted and not problem.budget.over():
            offer_donors(problem, personal, best, self.tree_search.neighbor_)
        exchange(changes, best, best.found)
        z = repaired(problem.feasible, personal.rows(everyone, best.taken))
        ok = problem.met(z).nonzero().squeeze(1)
        if len(ok) and not changes.exact:
            z[ok] = pull_back(problem[ok], z[ok], HALVINGS)
        return z


class LeafSearch(ChangeSearch):
    """Along the thresholds of all models together."""

    def __init__(self, guide: TreeGuide, tree_search: TreeSearch, model: Model) -> None:
        super().__init__(guide, tree_search)
        models = [model, *guide.models]
        cells, self.exact = union_cells(models)
        self.moves = CellMoves.of(cells, model.schema, model.dtype)
        dtype = torch.float64 if len(models) <= EXACT else torch.float32
        self.stack = LeafStack([m.thresholds for m in models if m.thresholds is not None], dtype)

    def changes(self, problem: SurvivalProblem) -> SingleChanges:
        personal = PersonalMoves.of(self.moves, problem.feasible)
        return BankLeafChanges(problem, personal, self.stack, exact=self.exact)


class AskedSearch(ChangeSearch):
    """By asking the models about places of the data's range."""

    def __init__(self, guide: Guide, tree_search: TreeSearch, model: Model) -> None:
        super().__init__(guide, tree_search)
        self.moves = tree_search.places(model)
        self.screen = guide.some(SCREEN)

    def changes(self, problem: SurvivalProblem) -> SingleChanges:
        return BankChanges(problem, PersonalMoves.of(self.moves, problem.feasible), self.screen)
