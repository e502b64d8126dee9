"""Adversarial training of one network for many epsilons at once.

Networks that differ in epsilon alone share the initial weights, the order of the rows and the random starts of the
attacks, so that what differs between them comes from epsilon. All epsilons and seeds are one stack.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import torch

from holdfast._core.progress import Progress
from holdfast.errors import SettingError, did_you_mean
from holdfast.models.base import Model
from holdfast.nn.stack import ModelStack, stack_of
from holdfast.retraining.bank import ModelBank, ModelGroup, origins_of
from holdfast.retraining.families import BaseRun, RetrainJob
from holdfast.retraining.loop import Variation, check_epsilon
from holdfast.retraining.recipe import Recipe, class_names, class_numbers, outcomes
from holdfast.schema.schema import Schema

EPSILONS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)


@dataclass(frozen=True, eq=False)
class AdversarialModels:
    """Networks trained against attacks of growing size, and the rows they learnt from."""

    bank: ModelBank  # one family for each epsilon, see `name`
    epsilon: tuple[float, ...]
    X: pd.DataFrame
    y: "pd.Series[Any]"

    @property
    def seeds(self) -> int:
        """How many networks there are of each epsilon."""
        return len(self.bank) // len(self.epsilon)

    @property
    def schema(self) -> Schema:
        return self.bank.schema

    @staticmethod
    def name(epsilon: float) -> str:
        """The family in the bank."""
        return f"epsilon {epsilon:g}"

    def model(self, epsilon: float, seed: int = 0) -> Model:
        """The network of one epsilon, and of one of the seeds: 0, 1, .."""
        if epsilon not in self.epsilon:
            raise SettingError(f"no network was trained with epsilon {epsilon:g}; there are {list(self.epsilon)}")
        if not 0 <= seed < self.seeds:
            raise SettingError(f"there are {self.seeds} networks of each epsilon, no number {seed}")
        return self.bank.model(self.epsilon.index(epsilon) * self.seeds + seed)

    def wishes(self, X: pd.DataFrame, target: Any = None) -> np.ndarray[Any, Any]:
        """(seeds, n) the class that is wanted for each row.

        Args:
            target: a class for all; None: the one that the plain model (of the least epsilon) does not give to the row,
                which it then is on all models. With more than two classes a target is needed.
        """
        names = np.array(self.bank.classes, dtype=object)
        if target is not None:
            if target not in self.bank.classes:
                raise SettingError(f"the models have no class {target!r}; {did_you_mean(target, self.bank.classes)}")
            return np.full((self.seeds, len(X)), target, dtype=object)
        if len(names) > 2:
            raise SettingError(f"say which of the classes {list(names)} is wanted: target=...")
        plain = replace(self.bank, groups=self.bank.groups[:1])
        return names[1 - plain.scores(X).argmax(2).numpy()]

    def only(self, seeds: range) -> ModelBank:
        """A bank of some of the seeds, all epsilons."""
        some = torch.arange(self.seeds)[seeds.start : seeds.stop]
        groups = list[ModelGroup]()
        for group in self.bank.groups:
            assert group.networks is not None
            mine = tuple(group.origins[int(i)] for i in some)
            groups.append(replace(group, networks=picked(group.networks, some), origins=mine))
        return replace(self.bank, groups=tuple(groups))

    def __repr__(self) -> str:
        return f"AdversarialModels({self.seeds} networks for each epsilon in {list(self.epsilon)})"


def train_adversarial(
    recipe: Any,
    X: pd.DataFrame,
    y: Any,
    schema: Schema,
    *,
    epsilon: Sequence[float] = EPSILONS,
    seeds: int = 1,
    classes: Sequence[Any] | None = None,
    seed: int = 0,
    progress: bool = False,
) -> AdversarialModels:
    """Train a network for every epsilon, in one stacked run.

    Args:
        recipe: a `Recipe` of a network (its `attack`, `attack_steps`, `attack_norm` and `attack_box` say how rows are
            attacked), or a torch module to take one from.
        X, y, schema, classes: as for `Recipe.fit`.
        epsilon: radii of the balls around encoded rows; 0 is plain training.
        seeds: so many networks for each epsilon, with weights and order of the rows from seed, seed + 1, ..
        progress: show a bar on stderr.
    """
    recipe, y = Recipe.of(recipe), outcomes(X, y)
    if recipe.estimator is not None:
        raise SettingError("only networks can be trained adversarially; this recipe is an estimator's")
    radii = _radii(epsilon)
    if not isinstance(seeds, Integral) or seeds < 1:
        raise SettingError(f"seeds must be a whole number of at least 1, got {seeds!r}")
    names = class_names(X, y, classes)
    recipe.check(schema, names)
    labels, each = class_numbers(y, names), tuple(seed + i for i in range(int(seeds)))
    drawn = each * len(radii)
    plan = Variation(drawn, drawn, epsilon=tuple(e for e in radii for _ in each))
    given = BaseRun(recipe, labels, len(names), seed, torch.arange(0))
    with Progress(progress, "adversarial training") as bar:
        bar.total(len(plan))
        x = schema.encode(X)
        models = recipe.train(x, labels, len(names), plan, bar)
    origins = origins_of(RetrainJob(recipe, plan), given, schema, x)
    groups = list[ModelGroup]()
    for i, e in enumerate(radii):
        mine = torch.arange(i * len(each), (i + 1) * len(each))
        groups.append(
            ModelGroup(AdversarialModels.name(e), picked(models, mine), origins=tuple(origins[int(m)] for m in mine))
        )
    bank = ModelBank(tuple(groups), schema, tuple(names), recipe, seed)
    return AdversarialModels(bank, radii, X, y)


def picked(models: ModelStack, some: torch.Tensor) -> ModelStack:
    """Some of the networks, as a stack of their own."""
    out = stack_of(models.module(0), len(some))
    state = out.state()
    for (name, mine), theirs in zip(state.items(), models.state().values(), strict=True):
        state[name] = mine.copy_(theirs[some])
    return out


def _radii(epsilon: Sequence[float]) -> tuple[float, ...]:
    if isinstance(epsilon, str) or not hasattr(epsilon, "__iter__") or not len(epsilon):
        raise SettingError(f"epsilon must be a list of radii, like [0, 0.1, 0.2], got {epsilon!r}")
    for e in epsilon:
        check_epsilon(e)
    radii = tuple(float(e) for e in epsilon)
    if list(radii) != sorted(set(radii)):
        raise SettingError(f"epsilons must grow, each given once, got {list(radii)}")
    return radii
