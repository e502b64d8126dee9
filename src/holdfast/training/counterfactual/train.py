"""Counterfactual Training: networks that learn from their own counterfactuals during
training.

In every epoch counterfactuals are searched for with the network as it is. Mature ones are
contrasted with real rows of the class they were to reach, so explanations of the finished network
look like data and lean less on what nobody can change; nascent ones serve as adversarial examples.
The objective and its paper are in `objective.py`, the search in `search.py`. Variants of the
objective and several seeds are one stack.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from torch import Tensor

from holdfast._core.checks import did_you_mean, listed, require_integer
from holdfast._core.progress import Progress
from holdfast._core.types import Outcomes
from holdfast.errors import SettingError
from holdfast.models.base import Model
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.loop import Variation
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.outcomes import ClassNames, class_names, class_numbers, outcomes
from holdfast.retraining.recipe import RecipeLike
from holdfast.schema.schema import Schema
from holdfast.training._by_seed import NetworksBySeed
from holdfast.training.counterfactual.domain import Domain
from holdfast.training.counterfactual.generators import GeneratorSettings
from holdfast.training.counterfactual.objective import (
    COLUMNS,
    Contrast,
    SharedSettings,
    Variant,
    fit_contrast,
)
from holdfast.training.counterfactual.settings import (
    CounterfactualObjective,
    CounterfactualSearch,
    ObjectiveName,
    Variants,
    variants_of,
)


@dataclass(frozen=True, eq=False, repr=False)
class CounterfactualTraining(NetworksBySeed):
    """Networks trained with their own counterfactuals, by variant; made by `train_counterfactual`.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> recipe = hf.Recipe(hidden=(8,), epochs=2)
    >>> variants = {"plain": {"objective": "plain"}, "full": {}}
    >>> fit = hf.train_counterfactual(recipe, data.X, data.y, data.schema, variants=variants)
    >>> fit
    CounterfactualTraining(1 networks for each of 'plain', 'full')
    >>> fit.member("full").classes
    ('no', 'yes')
    >>> fit.history.groupby("variant").epoch.max().to_dict()
    {'full': 2, 'plain': 2}
    """

    bank: ModelBank  # one family for each variant
    history: pd.DataFrame  # one row for each variant, seed and epoch

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(self.bank.families)

    @property
    def varied(self) -> str:
        return f"of {listed(self.variants)}"

    @property
    def model(self) -> Model:
        """The network of the first variant and the first seed."""
        return self.member(self.variants[0])

    def member(self, variant: str, seed: int = 0) -> Model:
        """The network of a variant, and of one of the seeds: 0, 1, .."""
        if variant not in self.variants:
            raise SettingError(
                f"no variant {variant!r} was trained; {did_you_mean(variant, self.variants)}"
            )
        self.check_seed(seed, "variant")
        networks = self.bank.groups[self.variants.index(variant)].networks
        recipe = self.bank.recipe
        assert networks is not None
        assert recipe is not None
        module = recipe.as_module(networks, seed)
        return Model.of(module, self.bank.schema, classes=self.bank.classes)


def train_counterfactual(
    recipe: RecipeLike,
    X: pd.DataFrame,
    y: Outcomes,
    schema: Schema,
    *,
    objective: CounterfactualObjective | ObjectiveName = "full",
    search: CounterfactualSearch | None = None,
    variants: Variants | None = None,
    validation: tuple[pd.DataFrame, Outcomes] | None = None,
    classes: ClassNames | None = None,
    seeds: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> CounterfactualTraining:
    """Train networks with their own counterfactuals.

    Args:
        recipe: a `Recipe` of a network, or a torch module to take one from, with a logit for each
            class.
        X, y, classes: as for `Recipe.fit`.
        schema: how rows become numbers; also the limits of counterfactuals and what may change in
            them. Columns that may not are kept out of the contrast, so the network leans less on
            them.
        objective: what is minimised: a `CounterfactualObjective`, or the name of one with the
            paper's weights.
        search: how counterfactuals are found; None: as in the paper.
        variants: name -> settings of its own: `objective`, `l_clf`, `l_div`, `l_reg`, `l_adv`, and
            of the search `lam`, `energy`, `tau`, `lr`. Networks that differ in these alone share
            initial weights, order and all draws.
        validation: rows and outcomes to measure the accuracy on after every epoch.
        seeds: the number of networks of each variant, with weights, order and draws from seed,
            seed + 1, ..
        progress: show a bar on stderr, and a line for every epoch.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> search = hf.CounterfactualSearch(hf.ECCCo(steps=10), n_counterfactuals=50)
    >>> recipe = hf.Recipe(hidden=(8,), epochs=3)
    >>> fit = hf.train_counterfactual(recipe, data.X, data.y, data.schema, search=search)
    >>> fit.model.classes, len(fit.history)
    (('no', 'yes'), 3)
    """
    if not isinstance(objective, CounterfactualObjective):
        objective = CounterfactualObjective(objective)
    search = search or CounterfactualSearch()
    run = _base_run(recipe, X, y, schema, classes, seed)
    require_integer("seeds", seeds)
    wanted = variants_of(objective, search, variants)
    held_out = None
    if validation is not None:
        held_out = schema.encode(validation[0]), _labels(*validation, run.classes)
    shared = _shared_settings(objective, search, run.x, schema, progress)
    each = tuple(seed + i for i in range(int(seeds)))
    groups = dict[str, ModelGroup]()
    history = dict[str, pd.DataFrame]()
    with Progress(progress, "counterfactual training") as bar:
        bar.total(len(wanted) * len(each))
        # each kind is a program of its own
        for kind in dict.fromkeys(kind for kind, _ in wanted.values()):
            chosen = {name: variant for name, (of, variant) in wanted.items() if of == kind}
            of_kind = replace(shared, kind=kind)
            whole, numbers, seconds = _train_kind(run, chosen, each, of_kind, search, bar, held_out)
            for i, name in enumerate(chosen):
                part = slice(i * len(each), (i + 1) * len(each))
                groups[name] = whole.part(part, name)
                history[name] = _history(name, each, numbers[:, part], seconds)
    bank = ModelBank(tuple(groups[name] for name in wanted), schema, run.classes, run.recipe, seed)
    return CounterfactualTraining(
        bank, pd.concat([history[name] for name in wanted], ignore_index=True)
    )


def _base_run(
    recipe: RecipeLike,
    X: pd.DataFrame,
    y: Outcomes,
    schema: Schema,
    classes: ClassNames | None,
    seed: int,
) -> BaseRun:
    """The rows and the recipe, which must be of a network that is not attacked."""
    run = BaseRun.of(recipe, X, y, schema, classes, seed)
    if run.recipe.estimator is not None:
        raise SettingError(
            "only networks can learn from counterfactuals; this recipe is an estimator's"
        )
    if run.recipe.epsilon:
        raise SettingError(
            "a recipe with epsilon > 0 attacks rows of its own; set it 0 to train with "
            "counterfactuals"
        )
    return run


def _shared_settings(
    objective: CounterfactualObjective,
    search: CounterfactualSearch,
    x: Tensor,
    schema: Schema,
    progress: bool,
) -> SharedSettings:
    """What all networks share."""
    generator = GeneratorSettings.of(search.generator)
    domain = Domain.of(
        x, schema.encoding(), spread=search.spread, categories=search.respect_categories
    )
    return SharedSettings(
        domain,
        steps=generator.steps,
        epsilon=float(search.epsilon),
        count=search.n_counterfactuals,
        burn_in=objective.burn_in,
        refresh=search.refresh,
        spare_wrong=objective.spare_wrong,
        autoencoder=generator.autoencoder(x, schema, domain, progress),
    )


def _train_kind(
    run: BaseRun,
    variants: dict[str, Variant],
    seeds: tuple[int, ...],
    shared: SharedSettings,
    search: CounterfactualSearch,
    bar: Progress,
    held_out: tuple[Tensor, Tensor] | None,
) -> tuple[ModelGroup, Tensor, list[float]]:
    """The networks of all variants of one kind, each with every seed; their numbers, and the
    seconds of the epochs."""
    module = run.recipe.network(run.x.shape[1], len(run.classes))
    variation = Variation(seeds * len(variants), seeds * len(variants))
    settings = [variant for variant in variants.values() for _ in seeds]
    classes = len(run.classes)
    contrast = Contrast(run.x, run.labels, classes, variation, settings, shared, run.recipe)
    models, numbers, seconds = fit_contrast(
        module,
        run.recipe.start(module),
        contrast,
        bar,
        held_out,
        [f"{name}, seed {seed}:" for name in variants for seed in seeds],
    )
    origins = run.origins(variation)
    if shared.kind != "plain":
        # These settings, which a plain network does not use, make another network of the same seed.
        searched = (
            shared.kind,
            search.generator,
            run.schema.fingerprint,
            search.spread,
            search.respect_categories,
        )
        words = shared.words(len(run.x))
        origins = tuple(
            hashlib.sha256(f"{origin} {variant} {searched} {words}".encode()).hexdigest()[:16]
            for origin, variant in zip(origins, settings, strict=True)
        )
    return ModelGroup(shared.kind, models, origins=origins), numbers, seconds


def _labels(X: pd.DataFrame, y: Outcomes, names: Sequence[Any]) -> Tensor:
    """The classes of rows held out."""
    column = outcomes(X, y)
    unknown = [v for v in column.unique() if v not in names]
    if unknown:
        raise SettingError(
            f"validation has the outcome {unknown[0]!r}, which no row to learn from has: "
            f"{list(names)}"
        )
    return class_numbers(column, class_names(X, column, [*names]))


def _history(
    variant: str, seeds: Sequence[int], numbers: Tensor, seconds: Sequence[float]
) -> pd.DataFrame:
    """One row for each seed and epoch of numbers (epochs, seeds, columns)."""
    epochs = len(numbers)
    out = pd.DataFrame(numbers.transpose(0, 1).flatten(0, 1).numpy(), columns=list(COLUMNS))
    out.insert(0, "variant", variant)
    out.insert(1, "seed", [s for s in seeds for _ in range(epochs)])
    out.insert(2, "epoch", [*range(1, epochs + 1)] * len(seeds))
    return out.assign(seconds=[*seconds] * len(seeds))
