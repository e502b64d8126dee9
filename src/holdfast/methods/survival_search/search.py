"""The cheapest change that holds: searched for directly against a bank of retrained models.

With g_m(z) the margin of model m for the asked target at row z, and mean and standard deviation over the models of a
bank, the guide,

    S_c(z) = min( g(z), mean_m g_m(z) - c sd_m g_m(z) ),

S_c takes the place of the model's own gap in the search for the smallest change: in `MinCost` where all models have
gradients,

    dS = sum_m w_m dg_m,   w_m = 1/M - c (g_m - mean) / ((M - 1) sd),

and in `TreeSearch` for all others, where every single change is weighed for the whole bank at once.

A row for which the bank lets nothing through gets the answer that comes nearest to it and that the model itself
accepts. It is reported as fragile, with the share of the bank that accepts it.
"""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from holdfast._core.params import Trait
from holdfast._core.rows import chunks, rows_per_chunk, whole_blocks
from holdfast.distances import Distance, Norm, distance_of, l0, l1, penalty_of
from holdfast.errors import require
from holdfast.explainer import Explainer
from holdfast.methods.min_cost import MinCost
from holdfast.methods.survival_search.bank_changes import SCREEN, BankChanges, BankLeafChanges, union_cells
from holdfast.methods.survival_search.guide import Guide, TreeGuide, guide_of
from holdfast.methods.survival_search.leaf_stack import LeafStack
from holdfast.methods.survival_search.problem import SurvivalProblem
from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves
from holdfast.methods.tree_search.search import TreeSearch, moves_of
from holdfast.methods.tree_search.single_changes import SingleChanges
from holdfast.models.base import Model
from holdfast.problem import Found, Outcomes, Rows, SearchProblem
from holdfast.retraining.bank import ModelBank
from holdfast.target import BoundTarget

EXACT = 8  # models up to which leaves are summed in double precision


@dataclass(eq=False, repr=False)
class SurvivalSearch(Explainer):
    """The cheapest change that the model and nearly all retrained models accept.

        minimise over z    cost(z, x)
        subject to         min( g(z), mean_m g_m(z) - c sd_m g_m(z) ) > 0,   z reachable from x

    Args:
        bank: the guide: retrained models of the family that is to be certified, best 40 or more. They may not certify
            the answers. Left out, `fit` retrains the model on the data that it is given.
        c: how many standard deviations the mean margin must be ahead; see `calibrate`. Several values give one answer
            for each: what more certainty costs.
        norm: what small means: 1, 2, a name such as "linf", or a `Distance`; of models without gradients 0 or 1.
        models: how many models `fit` makes where there is no bank.
        beam, depth: as in `TreeSearch`, for models without gradients.
        max_nodes: as in `TreeSearch`, to prove that a row has no answer at all.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recipe = hf.Recipe(hidden=(4,), epochs=20, lr=0.05)
    >>> model = recipe.fit(data.X, data.y, data.schema)
    >>> bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families={"retrain": 80})
    >>> guide, _, judges = bank.split(guide=20, calibration=0, audit=60)
    >>> refused = data.X[model.predict(data.X) == "no"].head(10)
    >>> plans = hf.SurvivalSearch(guide).explain(model, refused, "yes")
    >>> bool((hf.audit(plans, judges).survival() > 0.95).all())
    True
    """

    title = "the cheapest change that retrained models accept too"
    paper = "own; compare Black et al. 2022 (SNS), Hamman et al. 2023 (RobX), Stępka et al. 2024 (BetaRCE)"
    when = "a model will be trained again and its answers should still hold: networks, trees, any model"
    cost = "what MinCost or TreeSearch takes, with every pass through all models of the bank"
    needs_grad = False
    uses_data = True
    regression = True
    advice = "the model itself accepts nothing within reach that was tried"

    bank: ModelBank | None = None
    c: float | tuple[float, ...] = 3.0
    norm: Norm | Distance | Literal[0, "l0"] = 1
    models: int = 40
    beam: int = 8
    depth: int = 6
    max_nodes: int = 2000
