"""The cheapest change that holds: searched for directly against a bank of retrained models.

Let g_m(z) be the margin of model m for the target at row z, with mean and standard deviation over
the models of a bank, the guide. Then

    S_c(z) = min( g(z), mean_m g_m(z) - c sd_m g_m(z) )

takes the place of the model's own gap in the search for the smallest change: in `MinCost` where all
models have gradients,

    dS = sum_m w_m dg_m,   w_m = 1/M - c (g_m - mean) / ((M - 1) sd),

and in `TreeSearch` for all others, where every single change is weighed for the whole bank at once.

A row for which the bank accepts nothing at c gets the surest answer there is: with gradients the
one that comes nearest, else what holds at a lower c, at last the smallest that the model itself
accepts. It is reported as fragile, with the share of the bank that accepts it.
"""

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor

from holdfast._core.params import Trait
from holdfast._core.rows import chunks, rows_per_chunk, whole_blocks
from holdfast._core.types import Outcomes, Rows
from holdfast.distances import Distance, Norm
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods.min_cost import MinCost
from holdfast.methods.survival_search.bank_search import (
    AskedSearch,
    BankSearch,
    GradientSearch,
    LeafSearch,
)
from holdfast.methods.survival_search.guide import Guide, TreeGuide, guide_of
from holdfast.methods.survival_search.problem import SurvivalProblem, lower_bound
from holdfast.methods.tree_search.search import TreeSearch
from holdfast.models.base import Model
from holdfast.problem import Found, SearchProblem
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.recipe import Recipe
from holdfast.target import BoundTarget

# shares of the safety margin to try for people for whom nothing holds at all of it
RUNGS = (0.75, 0.5, 0.25)


@dataclass(eq=False, repr=False)
class SurvivalSearch(Explainer):
    """The cheapest change that the model and nearly all retrained models accept.

        minimise over z    cost(z, x)
        subject to         min( g(z), mean_m g_m(z) - c sd_m g_m(z) ) > 0,   z reachable from x

    Args:
        bank: the guide: retrained models, ideally 40 or more, of the family that the certificate
            will be about. The guide may not judge the answers it led to. Default: `fit` retrains
            the model on the data it is given.
        safety: c, how many standard deviations the mean margin must be ahead; see `calibrate`.
            Several values give one answer each: what more certainty costs.
        norm: what "small" means: 1, 2, a name such as "linf", or a `Distance`; for models without
            gradients, 0 or 1.
        models: how many models `fit` makes if there is no bank.
        steps, bisections: as in `MinCost`, for models with gradients.
        beam, depth, thresholds: as in `TreeSearch`, for models without gradients; people without an
            answer at that depth may change three times as many features.
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
    paper = (
        "own; compare Black et al. 2022 (SNS), Hamman et al. 2023 (RobX), Stępka et al. 2024 "
        "(BetaRCE)"
    )
    when = (
        "a model will be trained again and its answers should still hold: networks, trees, any "
        "model"
    )
    cost = "what MinCost or TreeSearch takes, with every pass through all models of the bank"
    needs_grad = False
    uses_data = True
    regression = True
    advice = "the model itself accepts nothing within reach that was tried"

    problem_type: ClassVar[type[SurvivalProblem]] = SurvivalProblem  # what the bank is asked for

    # What was made ready, and for what; not settings, so without annotations.
    _asked = cast("tuple[ModelBank, Guide] | None", None)
    _searched = cast("tuple[Guide, Model, BankSearch] | None", None)

    bank: ModelBank | None = None
    safety: float | tuple[float, ...] = 3.0
    norm: Norm | Distance | Literal[0, "l0"] = 1
    models: int = 40
    steps: int = 40
    bisections: int = 5
    beam: int = 4
    depth: int = 6
    max_nodes: int = 2000
    thresholds: int = 16

    @Trait(False)  # a bool on the class and on instances, as in the base class
    def needs_data(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Only to make a bank if none was given."""
        return self.bank is None

    @Trait(1)
    def n_counterfactuals(self) -> int:
        """One for each safety margin."""
        return len(self.margins)

    @property
    def margins(self) -> tuple[float, ...]:
        """All safety margins."""
        safety = self.safety
        return tuple(safety) if isinstance(safety, list | tuple) else (cast(float, safety),)

    def with_safety(self, safety: float | tuple[float, ...]) -> Self:
        """The same search with all it has learnt, and another safety margin, or several."""
        other = copy(self)
        other.safety = safety
        return other

    @property
    def guide(self) -> ModelBank | None:
        """The bank that was given or made."""
        return self.bank if self.bank is not None else getattr(self, "bank_", None)

    @property
    def guided_by(self) -> frozenset[str]:
        """The models of the bank: they have helped to find the answers and may not certify them."""
        return frozenset[str]() if self.guide is None else self.guide.members()

    @property
    def signatures(self) -> tuple[tuple[float, ...], ...]:
        if self.guide is None:
            return ()
        return tuple(tuple(float(v) for v in row) for row in self.guide.signatures())

    def check(self, model: Model) -> None:
        bank = self.guide
        if not isinstance(bank, ModelBank):
            raise SettingError(f"bank must be a ModelBank, got {type(bank).__name__}")
        assert bank is not None
        if len(bank) < 2:
            raise SettingError(
                f"the guide needs at least 2 models to see how they differ, and has {len(bank)}"
            )
        bank.check_fits(model)
        numbers = all(isinstance(margin, int | float) and margin >= 0 for margin in self.margins)
        if not self.margins or not numbers:
            raise SettingError(
                f"safety must be 0 or more, or several such numbers, got {self.safety!r}"
            )
        if model.has_grad and self._guide().has_grad:
            self._min_cost().check(model)
        else:
            self._tree_search().check(model)

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Retrain the model if there is no bank; remember the data for models that are asked place
        by place."""
        table = model.schema.decode(X) if isinstance(X, Tensor) else X
        if self.bank is None:
            outcomes: Outcomes = model.predict(table) if y is None else y
            self.bank_ = ModelBank.retrain(
                Recipe.of(model),
                table,
                outcomes,
                model.schema,
                families={"retrain": self.models},
                classes=model.classes or None,
            )
        if not model.has_grad:
            self.near_ = self._tree_search().fit(model, X)

    def search(self, problem: SearchProblem) -> Found:
        n = len(problem)
        guided = self._guided(problem.model)
        rows = problem.x[:, None].repeat(1, len(self.margins), 1)
        fallback = Fallback(guided, problem)
        start: Tensor | None = None
        # What holds at a higher margin holds at a lower one too, so each search starts from the one
        # before it.
        for place in sorted(range(len(self.margins)), key=lambda i: -self.margins[i]):
            c = torch.full((n,), float(self.margins[place]), dtype=torch.float64)
            survival = self.problem_type.of(problem, guided.guide, c)
            z = guided.search(survival, start)
            holds = survival.met(z)
            start = torch.where(holds[:, None], z, problem.x)
            rows[:, place] = fallback.where(~holds, z, survival)
        return Found(rows.squeeze(1) if len(self.margins) == 1 else rows, fallback.infeasible)

    def fragile(self, model: Model, goal: BoundTarget, x: Tensor) -> Tensor:
        guide = self._guide()
        each = torch.tensor(self.margins, dtype=torch.float64)
        out = torch.full((len(x),), torch.nan, dtype=torch.float64)
        for some in chunks(torch.arange(len(x)), rows_per_chunk(guide.count * x.shape[1])):
            own = goal[some].gap(model(x[some])) - goal.margin
            judged = guide.judged(guide.margins(x[some], goal[some]), own)
            holds = lower_bound(judged, each[some % len(each)]) > 0
            out[some] = torch.where(holds, torch.nan, (judged > 0).double().mean(0))
        return out

    # ---- how the bank is asked

    def _min_cost(self) -> MinCost:
        return MinCost(norm=cast(Any, self.norm), steps=self.steps, bisections=self.bisections)

    def _tree_search(self) -> TreeSearch:
        shared = {
            name: getattr(self, name)
            for name in ("norm", "beam", "depth", "max_nodes", "thresholds")
        }
        return TreeSearch(**shared)

    def _guide(self) -> Guide:
        """The models of the bank, made ready once."""
        bank = self.guide
        assert bank is not None
        if self._asked is None or self._asked[0] is not bank:
            self._asked = bank, guide_of(bank)
        return self._asked[1]

    def _guided(self, model: Model) -> BankSearch:
        """The search that fits the model and the bank, made ready once."""
        guide = self._guide()
        if model.has_grad and guide.has_grad:
            return GradientSearch(guide, self._min_cost())
        made = self._searched
        if made is None or made[0] is not guide or made[1] is not model:
            plain = getattr(self, "near_", None) or self._tree_search()
            with_leaves = isinstance(guide, TreeGuide) and guide.has_leaves(model)
            kind = LeafSearch if with_leaves else AskedSearch
            made = guide, model, kind(cast(Any, guide), plain, model)
            self._searched = made
        return made[2]


class Fallback:
    """The surest rows that the model itself accepts, for people for whom the bank accepts
    nothing."""

    def __init__(self, guided: BankSearch, problem: SearchProblem) -> None:
        self.guided = guided
        self.problem = problem
        n = len(problem)
        self.known = torch.zeros(n, dtype=torch.bool)
        self.infeasible = torch.zeros(n, dtype=torch.bool)
        self.rows = problem.x.clone()

    def where(self, chosen: Tensor, z: Tensor, survival: SurvivalProblem) -> Tensor:
        """Rows z; where chosen (n,) and not accepted by the model, what it does accept in their
        place."""
        if not bool(chosen.any()):
            return z
        chosen = chosen & ~self.problem.met(z)
        new = (chosen & ~self.known).nonzero().squeeze(1)
        self.known[new] = True
        for rung in RUNGS:
            if not len(new):
                break
            full = whole_blocks(new)
            lower = replace(survival[full], c=survival.c[full] * rung)
            found = self.guided.search(lower, None)
            ok = lower.met(found)[: len(new)]
            self.rows[new[ok]] = found[: len(new)][ok]
            new = new[~ok]
        if len(new):
            searched = self.guided.plain.searched(self.problem[whole_blocks(new)])
            self.rows[new] = searched.rows[: len(new)]
            self.infeasible[new] = searched.infeasible[: len(new)]
        return torch.where(chosen[:, None], self.rows, z)
