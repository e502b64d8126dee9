"""Smallest changes by the model's own thresholds: a split value is where the answer of a tree
changes.

Between two neighbouring thresholds of a column no tree sees a difference, so of each such cell only
the value nearest to the person's own is worth trying (`moves.py`), and all single changes of a
candidate are weighed at once (`single_changes.py`).

1. Grow (`grow.py`): from the person's own row one feature at a time, keeping the `beam` candidates
   with the largest gap, or the largest gain of it per cost, until some change succeeds; as long as
   a better one may follow.
2. Exchange: give any one feature back, and make at most one change instead, as long as that is
   better.
3. Where nothing was found: the nearest data row of the wanted class, exchanged likewise, if the
   method was fitted; then branch and bound over boxes of cells (`branch_and_bound.py`), which finds
   an answer, or proves that there is none, or ends with its budget.

Models of which no thresholds are known are asked at `thresholds` places per column (quantiles of
the data, or of the range), and numbers are then pulled back towards the person's own by bisection.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast._core.rows import chunks, rows_per_chunk
from holdfast._core.types import Outcomes, Rows
from holdfast.distances import distance_of, l0, l1
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods._tighten import revert
from holdfast.methods.nearest_neighbor import NearestNeighbor
from holdfast.methods.tree_search.best_moves import BestMoves
from holdfast.methods.tree_search.boxes.prove import improve, usual_boxes
from holdfast.methods.tree_search.branch_and_bound import decide
from holdfast.methods.tree_search.grow import exchange, grow
from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves, repaired
from holdfast.methods.tree_search.places import cells_at_quantiles
from holdfast.methods.tree_search.pull_back import pull_back
from holdfast.methods.tree_search.single_changes import (
    LeafChanges,
    LeafTable,
    ModelChanges,
    SingleChanges,
)
from holdfast.models.base import Model
from holdfast.problem import SLACK, Found, SearchProblem


@dataclass(eq=False, repr=False)
class TreeSearch(Explainer):
    """The fewest or smallest changes, along the thresholds of a tree model.

        minimise over z    (number of changed features, sum_j w_j |z_j - x_j|)   (norm = 0)
                           or the sum                                            (norm = 1)
        subject to         gap(z) > margin,  z reachable from x

    Args:
        norm: 0: as few changed features as possible, and among these the smallest weighted l1; 1:
            the smallest l1.
        beam: candidates kept for each row while changes are grown.
        depth: features changed at most while growing.
        max_nodes: boxes that may be looked at for a row without an answer, to find one or to prove
            that there is none.
        thresholds: places per column at which a model is asked whose thresholds are not known, or
            too many.
        proof_nodes: boxes that may be looked at for a row with an answer, to make it cheaper or to
            prove that nothing is. None: 256 with the `fast` extra, else none, as a box takes some
            hundred times as long without it.

    >>> import holdfast as hf
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> data = hf.datasets.moons(n=200)
    >>> forest = RandomForestClassifier(10, max_depth=4, random_state=0).fit(data.X, data.y)
    >>> model = hf.Model.of(forest, data.schema)
    >>> cfs = hf.TreeSearch().explain(model, data.X.head(20), "yes")
    >>> bool((model.predict(cfs.to_frame()) == "yes").all())
    True

    Reference:
        Compare Tolomei et al. 2017, "Interpretable Predictions of Tree-based Ensembles via
        Actionable Feature Tweaking"; Parmentier and Vidal 2021, "Optimal Counterfactual
        Explanations in Tree Ensembles" (OCEAN).
    """

    title = "fewest or smallest changes, along the thresholds of trees; any model"
    paper = "compare Tolomei et al. 2017 (feature tweaking); Parmentier & Vidal 2021 (OCEAN)"
    when = "trees: random forests, XGBoost, LightGBM; it also proves that a row has no answer"
    cost = (
        "beam x depth looks at all single changes, each like a few forward passes of a tree model"
    )
    needs_grad = False
    uses_data = True
    regression = True
    advice = "not ruled out within the budget: raise beam, depth or max_nodes, or fit it on data"

    norm: Literal[0, 1, "l0", "l1"] = 0
    beam: int = 16
    depth: int = 6
    max_nodes: int = 2000
    thresholds: int = 16
    proof_nodes: int | None = None

    def check(self, model: Model) -> None:
        distance_of(self.norm, (l0, l1))
        if not (self.beam >= 1 and self.depth >= 1):
            raise SettingError("beam and depth must be at least 1")
        if not self.max_nodes >= 0:
            raise SettingError(f"max_nodes must be 0 or more, got {self.max_nodes}")
        if self.proof_nodes is not None and not self.proof_nodes >= 0:
            raise SettingError(f"proof_nodes must be 0 or more, got {self.proof_nodes}")
        if not self.thresholds >= 2:
            raise SettingError(f"thresholds must be at least 2, got {self.thresholds}")

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Remember the data: where rows of the wanted class lie, and where to ask a model without
        thresholds."""
        self.neighbor_: NearestNeighbor = NearestNeighbor().fit(model, X)

    def search(self, problem: SearchProblem) -> Found:
        moves, table = self._prepare(problem.model)
        out = problem.feasible.project(problem.x)
        if not len(moves):  # there is but one row to reach
            return Found(out, ~problem.goal.met(problem.model(out), -SLACK))
        infeasible = torch.zeros(len(problem), dtype=torch.bool)
        least = torch.full((len(problem),), torch.nan, dtype=torch.float64)
        for rows in chunks(
            torch.arange(len(problem)), rows_per_chunk(self.beam * len(moves), at_least=8)
        ):
            part = problem[rows]
            personal = PersonalMoves.of(moves, part.feasible)
            changes = LeafChanges(part, personal, table) if table else ModelChanges(part, personal)
            out[rows], infeasible[rows], least[rows] = self._answer(changes)
            if problem.budget.over():
                break
        return Found(out, infeasible, least if table else None)

    def _prepare(self, model: Model) -> tuple[CellMoves, LeafTable | None]:
        """The moves, and the leaves if the model has any."""
        trees = model.thresholds
        if trees and trees.leaves:
            moves = CellMoves.of(trees.cells, model.schema, model.dtype)
            return moves, LeafTable(trees.leaves, moves, trees.outputs)
        return self.places(model), None

    def places(self, model: Model) -> CellMoves:
        """Moves to `thresholds` places per column, at quantiles."""
        data = self.neighbor_.data_.double().numpy() if self.is_fitted else None
        cells = model.thresholds.cells if model.thresholds else None
        places = cells_at_quantiles(model, cells, data, self.thresholds)
        return CellMoves.of(places, model.schema, model.dtype)

    def _answer(self, changes: SingleChanges) -> tuple[Tensor, Tensor, Tensor]:
        """(n, d) answers, or the nearest misses, which rows have been proved to have none, and what
        any answer costs at least, NaN where that is not known."""
        problem = changes.problem
        best = BestMoves(changes.personal, fewest=distance_of(self.norm) == l0)
        grow(changes, best, self.beam, self.depth)
        exchange(changes, best, best.found)
        without = (~best.found).nonzero().squeeze(1)
        nearest = self._offer_nearest(changes, best, without)
        infeasible = self._decide(changes, best)
        late = torch.zeros(len(problem), dtype=torch.bool).index_fill_(0, without, True)
        exchange(changes, best, late & best.found)
        least = self._improve(changes, best)
        z = self._settled(changes, best, without, nearest)
        if isinstance(changes, LeafChanges) and changes.ties and changes.table.ties.known:
            lost = (best.found & ~problem.met_exactly(z)).nonzero().squeeze(1)
            if len(lost):  # ties that the model, asked itself, does not count
                part = problem[lost]
                personal = PersonalMoves.of(changes.personal.moves, part.feasible)
                untied = LeafChanges(part, personal, changes.table, ties=False)
                z[lost], infeasible[lost], least[lost] = self._answer(untied)
        return z, infeasible, least

    def _offer_nearest(self, changes: SingleChanges, best: BestMoves, rows: Tensor) -> Tensor:
        """Offer each of these rows the nearest data row of the wanted class; returns these, none if
        there are no data."""
        problem = changes.problem
        if not len(rows) or not self.is_fitted or problem.budget.over():
            return problem.x[:0]
        part = problem[rows]
        nearest = self.neighbor_.search(part)[:, 0]
        holds = part.feasible.contains(nearest) & part.met(nearest)
        best.offer(rows, changes.personal.moves.within(nearest), holds)
        return nearest

    def _decide(self, changes: SingleChanges, best: BestMoves) -> Tensor:
        """(n,) rows proved to have no answer, by branch and bound, which may also find one."""
        infeasible = torch.zeros(len(changes.problem), dtype=torch.bool)
        rows = (~best.found).nonzero().squeeze(1)
        if not len(rows) or not self.max_nodes or changes.problem.budget.over():
            return infeasible
        if isinstance(changes, LeafChanges):
            found, taken, proved = decide(changes, rows, self.max_nodes)
            best.offer(rows, taken, found)
            infeasible[rows[proved]] = True
        return infeasible

    def _improve(self, changes: SingleChanges, best: BestMoves) -> Tensor:
        """Make what was found cheaper, if that can be; (n,) what any answer costs at least."""
        least = torch.full((len(changes.problem),), torch.nan, dtype=torch.float64)
        found = best.found.nonzero().squeeze(1)
        boxes = usual_boxes() if self.proof_nodes is None else self.proof_nodes
        if not len(found) or not boxes or changes.problem.budget.over():
            return least
        if isinstance(changes, LeafChanges):
            count, price = improve(changes, best, found, boxes)
            fewest = count == best.count[found] if best.fewest else torch.ones_like(found > 0)
            least[found] = torch.where(fewest, price, torch.nan)
        return least

    def _settled(
        self, changes: SingleChanges, best: BestMoves, rows: Tensor, nearest: Tensor
    ) -> Tensor:
        """The rows that the moves lead to; where these do not hold, but the data row of those
        `rows` did, that one."""
        problem = changes.problem
        personal = changes.personal
        z = repaired(problem.feasible, personal.rows(torch.arange(len(personal)), best.taken))
        if len(nearest):
            part = problem[rows]
            holds = part.met_exactly(z[rows]) & part.feasible.contains(z[rows])
            instead = part.met(nearest) & ~holds
            z[rows] = torch.where(instead[:, None], revert(part, nearest, l1), z[rows])
        ok = problem.met(z).nonzero().squeeze(1)
        if len(ok) and not changes.exact:
            z[ok] = pull_back(problem[ok], z[ok])
        return z
