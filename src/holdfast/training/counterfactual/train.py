"""Counterfactual Training: networks that learn from their own counterfactuals while they are trained.

    fit = hf.train_counterfactual(hf.Recipe(hidden=(32,)), X, y, schema)
    fit.model, fit.history

In every epoch counterfactuals are searched for with the network as it is. Mature ones are set against real rows of the
class they were to reach, so that explanations of the finished network look like data and lean less on what nobody can
change; nascent ones serve as adversarial examples. The objective is in `counterfactual.objective`, the search in
`holdfast.training.counterfactual.search`. Variants of the objective and several seeds are one stack.

Altmeyer et al., "Counterfactual Training: Teaching Models Plausible and Actionable Explanations", 2025.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor

from holdfast._core.progress import Progress
from holdfast.errors import SettingError, did_you_mean, listed
from holdfast.models.base import Model
from holdfast.retraining.bank import ModelBank, ModelGroup, origins_of
from holdfast.retraining.families import BaseRun, RetrainJob
from holdfast.retraining.loop import Variation, check_epsilon
from holdfast.retraining.recipe import Recipe, class_names, class_numbers, outcomes
from holdfast.schema.schema import Schema
from holdfast.training.adversarial import picked
from holdfast.training.counterfactual.domain import Domain
from holdfast.training.counterfactual.generators import Tutor
from holdfast.training.counterfactual.objective import COLUMNS, Kind, Lesson, Terms, fit_contrast

Objective = Literal["full", "draft", "energy", "adversarial", "plain"]
# Objective -> the weights that it sets to 0.
OFF: dict[str, dict[str, float]] = {
    "full": {},
    "draft": {"reg": 0.0},
    "energy": {"adv": 0.0},
    "adversarial": {"div": 0.0, "reg": 0.0},
    "plain": {"div": 0.0, "reg": 0.0, "adv": 0.0},
}
# What variants may differ in, and where `Terms` has it.
SETTINGS = {"l_clf": "clf", "l_div": "div", "l_reg": "reg", "l_adv": "adv"} | {
    name: name for name in ("lam", "energy", "tau", "lr")
}


@dataclass(frozen=True, eq=False)
class CounterfactualTraining:
    """Networks trained with their own counterfactuals, by variant."""

    bank: ModelBank  # one family for each variant
    history: pd.DataFrame  # one row for each variant, seed and epoch

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(self.bank.families)

    @property
    def seeds(self) -> int:
        """How many networks there are of each variant."""
        return len(self.bank) // len(self.bank.groups)

    @property
    def model(self) -> Model:
        """The network of the first variant and the first seed."""
        return self.member(self.variants[0])

    def member(self, variant: str, seed: int = 0) -> Model:
        """The network of a variant, and of one of the seeds: 0, 1, .."""
        if variant not in self.variants:
            raise SettingError(f"no variant {variant!r} was trained; {did_you_mean(variant, self.variants)}")
        if not 0 <= seed < self.seeds:
            raise SettingError(f"there are {self.seeds} networks of each variant, no number {seed}")
        networks = self.bank.groups[self.variants.index(variant)].networks
        assert networks is not None
        module = self.bank.recipe.as_module(networks, seed)
        return Model.of(module, self.bank.schema, classes=self.bank.classes)

    def __repr__(self) -> str:
        return f"CounterfactualTraining({self.seeds} networks for each of {listed(self.variants)})"


def train_counterfactual(
    recipe: Any,
    X: pd.DataFrame,
    y: Any,
    schema: Schema,
    *,
    generator: Any = None,
    objective: Objective = "full",
    l_clf: float = 1.0,
    l_div: float | None = None,
    l_reg: float | None = None,
    l_adv: float | None = None,
    epsilon: float = 0.3,
    tau: float | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    n_counterfactuals: int | None = 1000,
    burn_in: float = 0.0,
    refresh: Literal["epoch", "batch"] = "epoch",
    spread: float = 2.0,
    respect_categories: bool = False,
    spare_wrong: bool = False,
    validation: tuple[pd.DataFrame, Any] | None = None,
    classes: Sequence[Any] | None = None,
    seeds: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> CounterfactualTraining:
    """Train networks with their own counterfactuals.

    Args:
        recipe: a `Recipe` of a network, or a torch module to take one from, with a logit for each class.
        X, y, classes: as for `Recipe.fit`.
        schema: how rows become numbers; also the limits of counterfactuals, and what may change in them. Columns that
            may not are kept out of the contrast, so that the network leans less on them.
        generator: how counterfactuals are searched for: `ECCCo`, `Descent.generic(...)`, `REVISE` (if everything may
            change) or `Omniscient`; their settings `lam`, `energy`, `tau`, `lr` and `steps` count. None is ECCCo as in
            the paper: lam=0.001, energy=5, tau=0.75, lr=0.1, steps=30. `ECCCo()` has 50 steps, as elsewhere.
        objective: "full"; "energy" has no adversarial term and "adversarial" nothing else; "plain" is the usual
            training; "draft" is the paper's first version.
        l_clf, l_div, l_reg, l_adv: weights of classification, divergence, ridge on energies, and adversarial term;
            None: 0.5, 0.1 and 0.25.
        epsilon: the linf distance, in encoded units, up to which a counterfactual in the making keeps the row's class.
        tau: a counterfactual is mature once the wanted class has this probability; None: the generator's own, or 0.75.
        variants: name -> settings of its own: `objective`, `l_clf`, `l_div`, `l_reg`, `l_adv`, and of the search `lam`,
            `energy`, `tau`, `lr`. Networks that differ in these alone share initial weights, order and all draws.
        n_counterfactuals: in an epoch, from different rows; None: one of every row.
        burn_in: share of the epochs, at the beginning, that are plain.
        refresh: search at the beginning of every epoch, or of every batch.
        spread: where the schema has no limits, counterfactuals stay within mean -+ spread standard deviations of a
            column, or its range if that is wider.
        respect_categories: one level of each category at every step of the search; else their columns are numbers.
        spare_wrong: rows that the network gets wrong have no part in the adversarial term.
        validation: rows and outcomes to measure the accuracy on after every epoch.
        seeds: so many networks of each variant, with weights, order and draws from seed, seed + 1, ..
        progress: show a bar on stderr, and a line for every epoch.
    """
    recipe, y, tutor = Recipe.of(recipe), outcomes(X, y), Tutor.of(generator)
    if recipe.estimator is not None:
        raise SettingError("only networks can learn from counterfactuals; this recipe is an estimator's")
    if recipe.epsilon:
        raise SettingError("a recipe with epsilon > 0 attacks rows of its own; set it 0 to train with counterfactuals")
    _check(epsilon, n_counterfactuals, burn_in, refresh, spread, seeds, tutor.steps)
    usual = tutor.terms if tau is None else replace(tutor.terms, tau=tau)
    weights = {name: w for name, w in {"div": l_div, "reg": l_reg, "adv": l_adv}.items() if w is not None}
    idle = [name for name in weights if variants is None and name in OFF.get(objective, ())]
    if idle:
        raise SettingError(f"l_{idle[0]} is set, which objective={objective!r} has no use for")
    usual = replace(usual, clf=l_clf, **weights)
    wanted = _variants(objective, usual, variants, tutor.omniscient)
    names = class_names(X, y, classes)
    recipe.check(schema, names)
    labels, x = class_numbers(y, names), schema.encode(X)
    held = None if validation is None else (schema.encode(validation[0]), _labels(*validation, names))
    domain = Domain.of(x, schema.encoding(), spread=spread, categories=respect_categories)
    lesson = Lesson(
        domain, steps=tutor.steps, epsilon=float(epsilon), count=n_counterfactuals, burn_in=burn_in, refresh=refresh,
        spare_wrong=spare_wrong, net=tutor.codes(x, schema, domain, progress),
    )  # fmt: skip
    each, module = tuple(seed + i for i in range(int(seeds))), recipe.network(x.shape[1], len(names))
    groups, told = dict[str, ModelGroup](), dict[str, pd.DataFrame]()
    with Progress(progress, "counterfactual training") as bar:
        bar.total(len(wanted) * len(each))
        for kind in dict.fromkeys(kind for kind, _ in wanted.values()):  # each kind is a program of its own
            mine = [name for name in wanted if wanted[name][0] == kind]
            plan, terms = (
                Variation(each * len(mine), each * len(mine)),
                [wanted[name][1] for name in mine for _ in each],
            )
            models, numbers, seconds = fit_contrast(
                module, recipe.start(module), x, labels, len(names), plan, terms, replace(lesson, kind=kind), recipe,
                bar, held, [f"{name}, seed {s}:" for name in mine for s in each],
            )  # fmt: skip
            given = BaseRun(recipe, labels, len(names), seed, torch.arange(0))
            origins = origins_of(RetrainJob(recipe, plan), given, schema, x)
            if kind != "plain":
                how = f"{kind} {generator!r} {schema.fingerprint} {spread} {respect_categories} {lesson.words(len(x))}"
                origins = [_hashed(f"{o} {t} {how}") for o, t in zip(origins, terms, strict=True)]
            for i, name in enumerate(mine):
                place = slice(i * len(each), (i + 1) * len(each))
                own = picked(models, torch.arange(len(plan))[place])
                groups[name] = ModelGroup(name, own, origins=tuple(origins[place]))
                told[name] = _history(name, each, numbers[:, place], seconds)
    bank = ModelBank(tuple(groups[name] for name in wanted), schema, tuple(names), recipe, seed)
    return CounterfactualTraining(bank, pd.concat([told[name] for name in wanted], ignore_index=True))


def _variants(
    objective: str, usual: Terms, variants: Mapping[str, Mapping[str, Any]] | None, omniscient: bool
) -> dict[str, tuple[Kind, Terms]]:
    """Name -> which program trains it, and its terms."""
    if variants is None:
        variants = {str(objective): {}}
    if not isinstance(variants, Mapping) or not variants:
        raise SettingError(f"variants must name at least one, like {{'mine': {{'l_reg': 0.25}}}}, got {variants!r}")
    out, known = dict[str, tuple[Kind, Terms]](), ("objective", *SETTINGS)
    for name, settings in variants.items():
        for key in settings:
            if key not in known:
                raise SettingError(f"variant {name!r} has an unknown setting {key!r}; {did_you_mean(key, known)}")
        goal = settings.get("objective", objective)
        if goal not in OFF:
            raise SettingError(f"unknown objective {goal!r}; {did_you_mean(goal, OFF)}")
        own = {SETTINGS[key]: value for key, value in settings.items() if key != "objective"}
        idle = [key for key in settings if SETTINGS.get(key) in OFF[goal]]
        if idle:
            raise SettingError(f"variant {name!r} sets {idle[0]}, which objective={goal!r} has no use for")
        terms = replace(usual, **(own | OFF[goal]))
        _check_terms(terms)
        kind: Kind = "plain" if goal == "plain" else "draft" if goal == "draft" else "search"
        if omniscient and kind == "draft":
            raise SettingError("objective='draft' needs counterfactuals that are searched for; Omniscient draws rows")
        out[str(name)] = ("omni" if omniscient and kind == "search" else kind), terms
    return out


def _check_terms(terms: Terms) -> None:
    words = {field: word for word, field in SETTINGS.items()}
    for field in fields(terms):
        value: Any = getattr(terms, field.name)
        if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
            raise SettingError(f"{words[field.name]} must be a number and at least 0, got {value!r}")
    if not 0 < terms.tau < 1:
        raise SettingError(f"tau must lie between 0 and 1, got {terms.tau}")


def _check(epsilon: Any, count: Any, burn_in: Any, refresh: Any, spread: Any, seeds: Any, steps: Any) -> None:
    check_epsilon(epsilon)
    if not isinstance(steps, Integral) or steps < 1:
        raise SettingError(f"steps of the generator must be a whole number of at least 1, got {steps!r}")
    if count is not None and (not isinstance(count, Integral) or count < 1):
        raise SettingError(f"n_counterfactuals must be a whole number of at least 1, or None for all, got {count!r}")
    if not isinstance(burn_in, int | float) or not 0 <= burn_in <= 1:
        raise SettingError(f"burn_in must be a share between 0 and 1, got {burn_in!r}")
    if refresh not in ("epoch", "batch"):
        raise SettingError(f"refresh must be 'epoch' or 'batch', got {refresh!r}")
    if not isinstance(spread, Real) or not math.isfinite(spread) or spread < 0:
        raise SettingError(f"spread must be a number and at least 0, got {spread!r}")
    if not isinstance(seeds, Integral) or seeds < 1:
        raise SettingError(f"seeds must be a whole number of at least 1, got {seeds!r}")


def _labels(X: pd.DataFrame, y: Any, names: Sequence[Any]) -> Tensor:
    """The classes of rows held out."""
    column = outcomes(X, y)
    strange = [v for v in column.unique() if v not in names]
    if strange:
        raise SettingError(f"validation has the outcome {strange[0]!r}, which no row to learn from has: {names}")
    class_names(X, column, names)
    return class_numbers(column, names)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _history(variant: str, seeds: Sequence[int], numbers: Tensor, seconds: Sequence[float]) -> pd.DataFrame:
    """One row for each seed and epoch of numbers (epochs, seeds, columns)."""
    epochs = len(numbers)
    out = pd.DataFrame(numbers.transpose(0, 1).flatten(0, 1).numpy(), columns=list(COLUMNS))
    out.insert(0, "variant", variant)
    out.insert(1, "seed", [s for s in seeds for _ in range(epochs)])
    out.insert(2, "epoch", [*range(1, epochs + 1)] * len(seeds))
    return out.assign(seconds=[*seconds] * len(seeds))
