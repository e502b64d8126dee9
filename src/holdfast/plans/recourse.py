"""From a fitted model to plans that hold, in one call.

    recourse = hf.Recourse(pipeline, X_train, y_train, fixed=["sex"], up=["age"], hold=0.95)
    plans = recourse.plans(X_denied, target="approved")

What happens: the schema is read off the table; the model is retrained many times (`Banks`); some of
these models guide the search for plans of several safety margins (`SurvivalSearch`), others choose
for each person the cheapest of these that will hold (`choose`), and others again, which had no part
in it, say which plans do hold (`audit`). Every part can be given ready-made instead.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from numbers import Real
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from holdfast._core.binomial import check_share
from holdfast._core.checks import require_integer, untyped
from holdfast._core.lock import OwnLock
from holdfast._core.types import Label, Outcomes
from holdfast.auditing import certificates
from holdfast.auditing.audit import Audit, audit, audit_at
from holdfast.auditing.calibration import USUAL
from holdfast.auditing.choice import choose
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods.survival_search.search import SurvivalSearch
from holdfast.models.base import Model
from holdfast.plans.banks import Banks
from holdfast.plans.folder import load as load_folder
from holdfast.plans.folder import save as save_folder
from holdfast.plans.frontier import HOLDS, Frontier
from holdfast.plans.plans import Plans
from holdfast.plans.trained import TrainedBanks
from holdfast.plans.training import Training
from holdfast.retraining.next_training import spread_with_reserve
from holdfast.retraining.recipe import Recipe
from holdfast.retraining.row_facts import RowFacts
from holdfast.retraining.split import BankSplit
from holdfast.schema.infer import InferSettings
from holdfast.schema.schema import Schema
from holdfast.target import Target, TargetLike

# The safety margins of the plans among which a person's is chosen, as multiples of what normal
# margins would take.
FACTORS = (0.75, 0.9, 1.05, 1.2, 1.35, 1.5, 1.8, 2.1, 2.6)
LEAST_MARGIN = 0.5
FRONTIER_MARGINS = tuple(i / 2 for i in range(9))
OF_BANKS = tuple(fact.name for fact in fields(Banks))


class Recourse:
    """Plans that hold when the model is retrained, for any model.

    Nothing but a model given as a `Recipe` is trained before `train`, which `plans` and `frontier`
    call when it is needed.

    Args:
        model: a fitted estimator, pipeline, booster or torch module, a `Model`, or a `Recipe`,
            which is fitted here.
        X, y: the rows and outcomes that the model was trained on.
        schema: what rows are; left out, read off the table with the settings below.
        classes: names of the classes, as for `Model.of`.
        hold: the share of retrained models that is to accept a plan.
        confidence: of the certificates.
        banks: how the model is made again, and where the retrained models are kept; see `Banks`.
        method: a method to search with, ready-made; a `SurvivalSearch` keeps its safety margin.
        seed: of all random numbers.
        progress: show bars with the time that is left, and say what is done, on stderr.
        settings: `fixed`, `up`, `down`, `bounds` and whatever else `Schema.infer` takes.

    >>> import holdfast as hf
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = hf.datasets.overlapping(n=300)
    >>> clerk = LogisticRegression().fit(data.X, data.y)
    >>> recourse = hf.Recourse(clerk, data.X, data.y, hold=0.9)
    >>> plans = recourse.plans(data.X[clerk.predict(data.X) == "no"].head(5), "yes")
    >>> plans.table()["status"].tolist()
    ['found', 'found', 'found', 'found', 'found']
    """

    def __init__(
        self,
        model: Any,
        X: pd.DataFrame | None = None,
        y: Outcomes | None = None,
        *,
        schema: Schema | None = None,
        classes: Sequence[Label] | None = None,
        hold: float = 0.95,
        confidence: float = 0.95,
        banks: Banks | None = None,
        method: Explainer | None = None,
        seed: int = 0,
        progress: bool = False,
        **settings: Unpack[InferSettings],
    ) -> None:
        _check_names(settings)
        check_share("hold", hold)
        check_share("confidence", confidence)
        require_integer("seed", seed, 0)
        banks = Banks() if banks is None else banks
        if isinstance(model, Recipe) and banks.recipe is None:
            banks = replace(banks, recipe=model)
        self.X = X
        self.y = y
        self.hold = hold
        self.confidence = confidence
        self.banks = banks
        self.seed = seed
        self.progress = progress
        self.model = self._model(model, schema, classes, settings)
        banks.counts(self.model, hold, confidence)  # an error where nothing could be certified
        self._method = method
        self._search: SurvivalSearch | None = None
        self._lock = OwnLock()  # what several threads ask for is trained and made once
        self._trained = banks.ready if isinstance(banks.ready, TrainedBanks) else None

    # ---- what it is made of

    @property
    def schema(self) -> Schema:
        """What rows are, and what people can change."""
        return self.model.schema

    @property
    def kind(self) -> str:
        """The family of the judges."""
        return self.banks.kind(self.model) if self._trained is None else self._trained.kind

    @property
    def spread(self) -> float:
        """How many times as far as bootstraps judges lie from the model in use; before training, as
        far as it is known."""
        if self._trained is not None:
            return self._trained.spread
        return self.banks.spread(self.model, self.kind, self.hold, self.confidence)

    @property
    def is_trained(self) -> bool:
        """Are the retrained models there?"""
        return self._trained is not None

    @property
    def trained(self) -> TrainedBanks:
        """The retrained models and what is known of them; an error before `train`."""
        if self._trained is None:
            raise SettingError(
                "no model has been retrained yet: call recourse.train(), which recourse.plans(...) "
                "does when it is needed"
            )
        return self._trained

    @property
    def bank(self) -> BankSplit:
        """The retrained models: those that guide, those that choose, those that audit; an error
        before `train`."""
        return self.trained.split

    @property
    def method(self) -> Explainer:
        """The search: for plans of several safety margins, where it is not ready-made."""
        if self._method is not None:
            return self._method
        with self._lock:
            if self._search is None:
                self._search = self._made_search()
            return self._search

    def _made_search(self) -> SurvivalSearch:
        guide = self.trained.parts.guide
        # Where rows have a time the world is known to change. Models of earlier data guide then,
        # which judges of today know nothing of, so that these do not choose plans of less than the
        # usual margin.
        least = USUAL if "history" in guide.families else 0.0
        search = SurvivalSearch(guide, safety=safety_margins(self.hold, least))
        if not self.model.has_grad and self.X is not None:
            search.fit(self.model, self.schema.as_table(self.X))
        return search

    def _model(
        self,
        given: Any,
        schema: Schema | None,
        classes: Sequence[Label] | None,
        settings: InferSettings,
    ) -> Model:
        """The model in use: as it is, wrapped, or fitted from a recipe."""
        if isinstance(given, Model):
            return given.with_schema(_changed(given.schema, settings)) if settings else given
        if schema is None:
            schema = self._inferred(given, settings)
        elif settings:
            schema = _changed(schema, settings)
        if not isinstance(given, Recipe):
            return Model.of(given, schema, classes=classes)
        if self.X is None or self.y is None:
            raise SettingError(
                "Recourse needs X and y, the rows that the model was trained on, to fit the recipe"
            )
        banks = self.banks
        facts = RowFacts.of(self.X, schema, banks.time, banks.groups, banks.sample_weight)
        return given.fit(
            facts.table,
            self.y,
            schema,
            classes=classes,
            seed=self.seed,
            sample_weight=None if facts.weight is None else facts.weight.numpy(),
            fit_params=banks.fit_params,
        )

    def _inferred(self, given: Any, settings: InferSettings) -> Schema:
        """The schema of the training rows, without columns that only say something about rows."""
        if self.X is None:
            raise SettingError(
                f"a {type(given).__name__} does not say what its columns are; pass X, the rows "
                "that it was trained on, or schema="
            )
        beside = self.banks.columns_beside(getattr(given, "feature_names_in_", None))
        return Schema.infer(self.X.drop(columns=list(beside & set(self.X.columns))), **settings)

    # ---- what it does

    def train(self) -> "Recourse":
        """Retrain the model, once: a second call does nothing. Returns itself."""
        with self._lock:
            if self._trained is None:
                self._trained = self.banks.train(
                    self.model,
                    self.X,
                    self.y,
                    hold=self.hold,
                    confidence=self.confidence,
                    seed=self.seed,
                    progress=self.progress,
                )
        return self

    def plans(self, X: pd.DataFrame, target: TargetLike = None) -> Plans:
        """The cheapest plan that holds for every person; trains what is not trained yet.

        Args:
            X: the people, as rows of the table.
            target: the wanted class, a `Target`, or None for any class but the present one.
        """
        self._check(X, target)
        trained = self.train().trained
        cfs = self.method.explain(self.model, X, target, seed=self.seed, progress=self.progress)
        if self._method is None and len(cfs):
            cfs = cfs[self._chosen(cfs, trained)]
        return Plans.of(
            audit(cfs, trained.parts.audit),
            self.hold,
            self.confidence,
            likeness=trained.likeness,
            warnings=trained.warnings,
        )

    def _chosen(self, cfs: Counterfactuals, trained: TrainedBanks) -> npt.NDArray[np.int64]:
        """Each person's plan among several: by the jury that chooses, and where its models are led
        away from the model in use, by the same one led further."""
        jury = trained.parts.calibration
        further: Audit | None = None
        if trained.kind == "stretch" and jury.around is not None:
            spreads = (trained.spread, spread_with_reserve(trained.spread, self.hold))
            first, further = audit_at(cfs, jury, spreads)
        else:
            first = audit(cfs, jury)
        return choose(
            first,
            len(trained.parts.audit),
            hold=self.hold,
            confidence=self.confidence,
            further=further,
        )

    def more_judges(self, plans: Plans, count: int) -> Plans:
        """The same plans, certified again by so many judges more, without a new search.

        Whoever looks again until a plan is certified will see one certified by luck. So every
        further look is judged at a higher confidence, 1 - (1 - confidence) / 2^looks: all further
        looks together are wrong about a plan as seldom as the first one.

        Args:
            plans: made by this `Recourse`.
            count: how many judges to add.
        """
        trained = self.trained
        made = trained.counts
        first = sum(made.values()) + max(0, len(plans.audit.held) - made["audit"])
        judges = self._training().more_judges(trained, range(first, first + count))
        looks = plans.looks + 1
        return Plans.of(
            plans.audit.joined(audit(plans.cfs, judges)),
            self.hold,
            1 - (1 - self.confidence) / 2**looks,
            likeness=plans.likeness,
            warnings=plans.warnings,
            looks=looks,
        )

    def frontier(
        self, X: pd.DataFrame, target: TargetLike = None, *, holds: Sequence[float] = HOLDS
    ) -> Frontier:
        """What more certainty costs every person; trains what is not trained yet.

        Args:
            X, target: as for `plans`.
            holds: shares of retrained models that are to accept a plan.
        """
        _check_holds(holds)
        self._check(X, target)
        parts = self.train().trained.parts
        search = self.method
        if not isinstance(search, SurvivalSearch):
            raise SettingError(f"a frontier needs a SurvivalSearch, not {search!r}")
        several = search.with_safety(FRONTIER_MARGINS)
        cfs = several.explain(self.model, X, target, seed=self.seed, progress=self.progress)
        return Frontier(
            audit(cfs, parts.calibration), audit(cfs, parts.audit), tuple(sorted(holds))
        )

    def _training(self) -> Training:
        return Training(
            self.banks,
            self.model,
            self.X,
            self.y,
            self.hold,
            self.confidence,
            self.seed,
            self.progress,
        )

    def _check(self, X: pd.DataFrame, target: TargetLike) -> None:
        """An error before the work where the model cannot be asked that about these people."""
        with self.model.eval_mode():
            Target.of(target).bind(self.model, self.model.score_frame(self.schema.as_table(X)))

    def describe(self) -> str:
        """What it is made of, and what was done so far, with the time it took."""
        lines = [
            repr(self.model),
            f"a plan {certificates.level(self.hold, self.confidence, [self.kind])}",
        ]
        if self._trained is None:
            return "\n".join([*lines, "no model has been retrained yet"])
        return "\n".join([*lines, *self._trained.notes])

    def __repr__(self) -> str:
        return f"Recourse({self.model.name}, hold={self.hold:g}, confidence={self.confidence:g})"

    # ---- files

    def save(self, folder: str | Path) -> Path:
        """Write the model and the retrained models to a folder, from which `load` starts at once.
        It runs no code when it is loaded, and holds none of the people. A Recourse that is there is
        replaced; a folder that has anything else is refused."""
        level = {"hold": self.hold, "confidence": self.confidence, "seed": self.seed}
        return save_folder(folder, self.model, self.trained, level)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        X: pd.DataFrame | None = None,
        y: Outcomes | None = None,
        *,
        progress: bool = False,
    ) -> "Recourse":
        """Read a folder written by `save`; with X and y it can add judges. Models that choose and
        audit are read when they are needed."""
        model, trained, content = load_folder(folder)
        banks = Banks(family=cast(Any, trained.kind), models=dict(trained.counts), ready=trained)
        level = {name: content[name] for name in ("hold", "confidence", "seed")}
        return cls(model, X, y, banks=banks, progress=progress, **cast(Any, level))


def safety_margins(hold: float, least: float = 0.0) -> tuple[float, ...]:
    """The safety margins of a person's plans, none of them below the least.

    >>> safety_margins(0.95)[0], safety_margins(0.95)[-1]
    (1.23, 4.28)
    """
    normal = max(LEAST_MARGIN, float(untyped("scipy.stats").norm.ppf(hold)))
    return tuple(sorted({max(least, round(factor * normal, 2)) for factor in FACTORS}))


def _check_holds(holds: Sequence[float]) -> None:
    """An error unless these are different shares, one or more."""
    given = list(holds) if isinstance(holds, Iterable) and not isinstance(holds, str) else []
    if not given or any(not (isinstance(hold, Real) and 0 < hold <= 1) for hold in given):
        raise SettingError(f"holds must be shares between 0 and 1, got {holds!r}")
    if len(set(given)) < len(given):
        raise SettingError(f"holds must be different shares, got {holds!r}")


def _check_names(settings: InferSettings) -> None:
    """An error for an argument that there is not; what says how models are retrained is one of
    `Banks`."""
    for name in settings:
        if name in OF_BANKS:
            raise SettingError(
                f"Recourse takes no {name}=; how models are retrained is said by Banks: pass "
                f"banks=hf.Banks({name}=...)"
            )
        if name not in InferSettings.__annotations__:
            raise SettingError(
                f"Recourse takes no {name}=; it takes its own arguments and "
                f"{', '.join(InferSettings.__annotations__)}, and how models are retrained is "
                "said by banks=hf.Banks(...)"
            )


def _changed(schema: Schema, settings: InferSettings) -> Schema:
    """A schema with other features fixed, or free in one direction only."""
    changed: dict[str, Any] = {}
    for word, names in settings.items():
        if word not in ("fixed", "up", "down"):
            raise SettingError(
                "with a schema of its own only fixed, up and down can be set; give a schema made "
                "by Schema.infer(X, ...) for the others"
            )
        for name in cast(Iterable[str], names):
            changed[name] = {"change": word}
    return schema.change(**changed)
