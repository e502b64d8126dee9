"""Banks: the model made again many times over, and split into models that guide the search for
plans, models that choose among them, and models that judge them.

What is settled here is how a retrained model is made; how many there have to be follows from what
is to be certified. Nothing is trained before `train` is called.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from numpy.typing import ArrayLike

from holdfast._core.checks import require_integer
from holdfast._core.types import Outcomes
from holdfast.auditing.audit import models_needed
from holdfast.errors import SettingError
from holdfast.models.base import Model
from holdfast.models.torch_model import TorchModel
from holdfast.plans.trained import TrainedBanks
from holdfast.plans.training import Training
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.next_training import (
    ALLOWANCES,
    spread_for,
    spread_of_rows,
)
from holdfast.retraining.recipe import Recipe
from holdfast.retraining.split import BankSplit

# models that guide the search: it finds out what few of them have in common by accident
GUIDES = 160
# Models that choose and models that audit, at least; more where the level needs them.
CHOOSING = 400
AUDITING = 600
NETWORKS = 1000  # of each, of which all are trained at once
SPARE = 1.7  # times as many as a certificate needs if all of them agree: some may not
PARTS = ("guide", "calibration", "audit")
Kind = Literal["auto", "stretch", "fresh", "retrain"]
KINDS: tuple[Kind, ...] = ("auto", "stretch", "fresh", "retrain")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Banks:
    """How the model is made again, how often, and where the retrained models are kept.

    Args:
        recipe: how the model is made again; left out, from the settings of the model itself.
        fit: a function of your own, `fit(X, y, seed)`, that trains the model and returns it, in
            place of a recipe.
        fit_params: what else its `fit` was given; of values of which there is one for each row,
            those of the rows that are drawn.
        sample_weight: how much each row counted when the model was trained: a column of X, or one
            number per row.
        groups: which rows belong together, such as those of one person: a column of X, or one value
            per row. They are drawn together.
        time: how old rows are: a column of X or one value per row. Models of earlier data guide the
            search then, and rows of one time, or of neighbouring times, are drawn together.
        window: on how many of the newest periods the model was trained, see `ModelBank.retrain`.
        family: the judges. "stretch" and "fresh" stand for models of new data of the same kind:
            bootstraps of the table led away from the model in use, and models of fewer rows.
            "retrain" are bootstraps as they are, for the question whether plans hold when the model
            is trained on the same table again. Left out: "stretch", and "fresh" for models that
            give classes and no scores.
        models: how many models guide, choose ("calibration") and audit, such as {"guide": 80}.
        ready: retrained models, ready-made: a `BankSplit`, or a `ModelBank` to be split.
        cache: a folder that keeps the retrained models; None keeps none.
        workers: how many estimators are retrained at once; left out: as many as there are cores.

    >>> import holdfast as hf
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = hf.datasets.overlapping(n=300)
    >>> model = hf.Model.of(LogisticRegression().fit(data.X, data.y), data.schema)
    >>> banks = hf.Banks(models={"guide": 20, "calibration": 60, "audit": 60})
    >>> banks.train(model, data.X, data.y, hold=0.9)
    TrainedBanks(stretch; guide: 20, calibration: 60, audit: 60; spread 2.48)
    """

    recipe: Recipe | None = None
    fit: Callable[..., Any] | None = None
    fit_params: Mapping[str, Any] | None = None
    sample_weight: str | ArrayLike | None = None
    groups: str | ArrayLike | None = None
    time: str | ArrayLike | None = None
    window: int | None = None
    family: Kind = "auto"
    models: Mapping[str, int] | None = None
    ready: BankSplit | ModelBank | TrainedBanks | None = None
    cache: str | Path | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.family not in KINDS:
            raise SettingError(f"family must be one of {', '.join(KINDS)}, got {self.family!r}")
        if self.fit is not None and self.recipe is not None:
            raise SettingError("pass fit=, a function that trains the model, or recipe=, not both")
        if not isinstance(self.models, Mapping | None):
            raise SettingError(
                f"models must say how many by part, such as {{'guide': 100}}, got {self.models!r}"
            )
        unknown = [name for name in self.models or {} if name not in PARTS]
        if unknown:
            raise SettingError(f"models has no part {unknown[0]!r}; there are {list(PARTS)}")
        for name, count in (self.models or {}).items():
            require_integer(f"models[{name!r}]", count, 0)
        if self.workers is not None:
            require_integer("workers", self.workers)
        if self.cache is not None and not isinstance(self.cache, str | Path):
            raise SettingError(f"cache must be the name of a folder, got {self.cache!r}")

    def __repr__(self) -> str:
        given = {fact.name: getattr(self, fact.name) for fact in fields(self)}
        told = [
            f"{name}={value!r}" if isinstance(value, str | int | Mapping) else f"{name}=..."
            for name, value in given.items()
            if value is not None and not (name == "family" and value == "auto")
        ]
        return f"Banks({', '.join(told)})"

    # ---- what follows from the settings

    @property
    def about_rows(self) -> dict[str, Any]:
        """What is known of the rows beside their features, by the arguments of
        `ModelBank.retrain`."""
        names = ("time", "window", "groups", "sample_weight", "fit_params")
        return {name: getattr(self, name) for name in names}

    def kind(self, model: Model) -> Kind:
        """The family of the judges of this model."""
        if self.family != "auto":
            return self.family
        return "fresh" if model.labels_only else "stretch"

    def columns_beside(self, features: Iterable[str] | None) -> set[str]:
        """The columns of X that say something about rows and are not features."""
        named = [
            given
            for given in (self.time, self.groups, self.sample_weight)
            if isinstance(given, str)
        ]
        return set(named) - set(() if features is None else features)

    def is_network(self, model: Model) -> bool:
        """Are networks trained, all of them at once?"""
        if self.fit is not None:
            return False
        if self.recipe is None:
            return isinstance(model, TorchModel)
        return self.recipe.estimator is None

    def counts(self, model: Model, hold: float, confidence: float) -> dict[str, int]:
        """How many models guide, choose and audit; an error where they are too few to certify
        anything."""
        needed = models_needed(hold, confidence)
        least = math.ceil(SPARE * needed)
        network = self.is_network(model)
        usual = {
            "guide": GUIDES,
            "calibration": max(NETWORKS if network else CHOOSING, least),
            "audit": max(NETWORKS if network else AUDITING, least),
        }
        counts = usual | dict(self.models or {})
        for part in ("calibration", "audit"):
            if counts[part] < needed:
                raise SettingError(
                    f"plans that hold on {100 * hold:g}% of models need at least {needed} that "
                    f"choose, and that audit; models={{{part!r}: {counts[part]}}} are too few"
                )
        return counts

    def spread(
        self, model: Model, kind: str, hold: float, confidence: float, from_rows: float = 1.0
    ) -> float:
        """How many times as far as bootstraps judges of a kind lie from the model in use; those of
        fewer rows, by their rows."""
        if kind == "retrain":
            return 1.0
        rule = spread_of_rows if kind == "fresh" else spread_for
        allowance = ALLOWANCES["network" if self.is_network(model) else "other"]
        return rule(hold, confidence, from_rows, allowance)

    # ---- training

    def train(
        self,
        model: Model,
        X: pd.DataFrame | None = None,
        y: Outcomes | None = None,
        *,
        hold: float = 0.95,
        confidence: float = 0.95,
        seed: int = 0,
        progress: bool = False,
    ) -> TrainedBanks:
        """Retrain the model, compare what came out with it, and split it into parts; of models that
        are ready-made, compare and split.

        Args:
            model: the model in use.
            X, y: the rows and outcomes that it was trained on.
            hold: the share of retrained models that is to accept a plan.
            confidence: of the certificates.
            seed: of all random numbers.
            progress: show bars with the time that is left, and say what is done, on stderr.
        """
        if isinstance(self.ready, TrainedBanks):
            return self.ready
        training = Training(self, model, X, y, hold, confidence, seed, progress)
        return training.train() if self.ready is None else training.ready_made(self.ready)
