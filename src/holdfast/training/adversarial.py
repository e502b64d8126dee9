"""Adversarial training of one network for many epsilons at once.

Networks that differ in epsilon alone share the initial weights, the order of the rows and the
random starts of the attacks, so any difference between them comes from epsilon. All epsilons and
seeds are one stack.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from holdfast._core.checks import did_you_mean, require_integer, require_number
from holdfast._core.progress import Progress
from holdfast._core.types import Label, Outcomes
from holdfast.errors import SettingError
from holdfast.models.base import Model
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.loop import Variation
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.outcomes import ClassNames
from holdfast.retraining.recipe import RecipeLike
from holdfast.schema.schema import Schema
from holdfast.training._by_seed import NetworksBySeed

EPSILONS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)


@dataclass(frozen=True, eq=False, repr=False)
class AdversarialModels(NetworksBySeed):
    """Networks trained against attacks of growing radius, and the rows they learnt from; made by
    `train_adversarial`.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> recipe = hf.Recipe(hidden=(8,), epochs=3, attack="fgsm")
    >>> models = hf.train_adversarial(recipe, data.X, data.y, data.schema, epsilon=[0, 0.1])
    >>> models.bank.families
    {'epsilon 0': 1, 'epsilon 0.1': 1}
    >>> models.model(0.1).classes
    ('no', 'yes')
    """

    bank: ModelBank  # one family for each epsilon, see `name`
    epsilon: tuple[float, ...]
    X: pd.DataFrame
    y: "pd.Series[Any]"

    @property
    def schema(self) -> Schema:
        return self.bank.schema

    @property
    def varied(self) -> str:
        return f"epsilon in {list(self.epsilon)}"

    @staticmethod
    def name(epsilon: float) -> str:
        """The family in the bank."""
        return f"epsilon {epsilon:g}"

    def model(self, epsilon: float, seed: int = 0) -> Model:
        """The network of one epsilon, and of one of the seeds: 0, 1, .."""
        radii = list(self.epsilon)
        if epsilon not in radii:
            raise SettingError(
                f"no network was trained with epsilon {epsilon:g}; there are {radii}"
            )
        self.check_seed(seed, "epsilon")
        return self.bank.model(self.epsilon.index(epsilon) * self.seeds + seed)

    def wanted_classes(self, X: pd.DataFrame, target: Label | None = None) -> np.ndarray[Any, Any]:
        """(seeds, n) the class that is wanted for each row.

        Args:
            target: a class for all; None is the one that the plain model (of the least epsilon)
                does not give to the row, the same for all models. With more than two classes a
                target is needed.
        """
        names = np.array(self.bank.classes, dtype=object)
        if target is not None:
            classes = self.bank.classes
            if target not in classes:
                raise SettingError(
                    f"the models have no class {target!r}; {did_you_mean(target, classes)}"
                )
            return np.full((self.seeds, len(X)), target, dtype=object)
        if len(names) > 2:
            raise SettingError(f"say which of the classes {list(names)} is wanted: target=...")
        plain = replace(self.bank, groups=self.bank.groups[:1])
        return names[1 - plain.scores(X).argmax(2).numpy()]

    def only(self, seeds: range) -> ModelBank:
        """A bank of some of the seeds, all epsilons."""
        members = slice(seeds.start, seeds.stop)
        return replace(self.bank, groups=tuple(group.part(members) for group in self.bank.groups))


def train_adversarial(
    recipe: RecipeLike,
    X: pd.DataFrame,
    y: Outcomes,
    schema: Schema,
    *,
    epsilon: Sequence[float] = EPSILONS,
    seeds: int = 1,
    classes: ClassNames | None = None,
    seed: int = 0,
    progress: bool = False,
) -> AdversarialModels:
    """Train a network for every epsilon, in one stacked run: min_w mean_i max_{|e| <= epsilon}
    loss(x_i + e).

    Args:
        recipe: a `Recipe` of a network (its `attack`, `attack_steps`, `attack_norm` and
            `attack_box` say how rows are attacked), or a torch module to take one from.
        X, y, schema, classes: as for `Recipe.fit`.
        epsilon: radii of the balls around encoded rows; 0 is plain training.
        seeds: the number of networks for each epsilon, with weights and order of the rows from
            seed, seed + 1, ..
        progress: show a bar on stderr.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> recipe = hf.Recipe(hidden=(8,), epochs=2)
    >>> hf.train_adversarial(recipe, data.X, data.y, data.schema, epsilon=[0, 0.1])
    AdversarialModels(1 networks for each epsilon in [0.0, 0.1])

    Paper: krishna2024 Eq. 1.
    """
    radii = _radii(epsilon)
    require_integer("seeds", seeds)
    run = BaseRun.of(recipe, X, y, schema, classes, seed)
    if run.recipe.estimator is not None:
        raise SettingError(
            "only networks can be trained adversarially; this recipe is an estimator's"
        )
    each = tuple(seed + i for i in range(int(seeds)))
    drawn = each * len(radii)
    variation = Variation(drawn, drawn, epsilon=tuple(e for e in radii for _ in each))
    with Progress(progress, "adversarial training") as bar:
        bar.total(len(variation))
        models = ModelGroup(
            "adversarial", run.train(variation, bar), origins=run.origins(variation)
        )
    parts = [slice(i, i + len(each)) for i in range(0, len(variation), len(each))]
    groups = [
        models.part(part, AdversarialModels.name(e)) for part, e in zip(parts, radii, strict=True)
    ]
    bank = ModelBank(tuple(groups), schema, run.classes, run.recipe, seed)
    return AdversarialModels(bank, radii, X, run.y)


def _radii(epsilon: Sequence[float]) -> tuple[float, ...]:
    if isinstance(epsilon, str) or not hasattr(epsilon, "__iter__") or not len(epsilon):
        raise SettingError(f"epsilon must be a list of radii, like [0, 0.1, 0.2], got {epsilon!r}")
    for e in epsilon:
        require_number("epsilon", e)
    radii = tuple(float(e) for e in epsilon)
    if list(radii) != sorted(set(radii)):
        raise SettingError(f"epsilons must grow, each given once, got {list(radii)}")
    return radii
