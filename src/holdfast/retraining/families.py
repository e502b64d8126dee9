"""Families of retrained models: in what a model may differ from the one in use when it is made again.

Each family is a function from what there is (recipe, labels, seed) and the numbers of the models wanted to groups
of models that share an architecture. Model i of a family is made in the same way whatever others are asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.errors import SettingError, did_you_mean
from holdfast.retraining.loop import Variation, derived
from holdfast.retraining.recipe import Recipe


@dataclass(frozen=True)
class BaseRun:
    """What the model in use was made from."""

    recipe: Recipe
    labels: Tensor  # (n,)
    classes: int
    seed: int
    pool: Tensor  # rows that may be left out, in the order in which they are

    @property
    def n(self) -> int:
        return len(self.labels)

    def generator(self, purpose: int, i: int) -> torch.Generator:
        """Random numbers of model i, whatever the number of models."""
        return torch.Generator().manual_seed(derived(derived(self.seed, purpose), i + 2))

    def same(self, models: range) -> tuple[int, ...]:
        return (self.seed,) * len(models)

    def others(self, models: range) -> tuple[int, ...]:
        return tuple(self.seed + 1 + i for i in models)


@dataclass(frozen=True)
class RetrainJob:
    """Models of one architecture, trained together. `last_layer`: only that is trained, on the base's features."""

    recipe: Recipe
    plan: Variation
    last_layer: bool = False


def new_seed(given: BaseRun, models: range) -> list[RetrainJob]:
    """Other initial weights, everything else the same."""
    return [RetrainJob(given.recipe, Variation(given.others(models), given.same(models)))]


def new_seed_and_order(given: BaseRun, models: range) -> list[RetrainJob]:
    """Other initial weights and another order of the rows."""
    return [RetrainJob(given.recipe, Variation(given.others(models), given.others(models)))]


def leave_one_out(given: BaseRun, models: range) -> list[RetrainJob]:
    """The same weights and order; model i lacks the i-th row of the pool."""
    if models.stop > len(given.pool):
        raise SettingError(f"leave_one_out up to {models.stop} needs as many rows; there are {len(given.pool)}")
    kept = torch.ones(len(models), given.n, dtype=torch.bool)
    kept[torch.arange(len(models)), given.pool[models.start : models.stop]] = False
    return [RetrainJob(given.recipe, Variation(given.same(models), given.same(models), kept=kept))]


def leave_share_out(given: BaseRun, models: range, share: float = 0.1) -> list[RetrainJob]:
    """The same weights and order; every model lacks a random tenth of the rows."""
    gone = max(1, round(share * given.n))
    kept = torch.ones(len(models), given.n, dtype=torch.bool)
    for at, i in enumerate(models):
        kept[at, torch.randperm(given.n, generator=given.generator(1, i))[:gone]] = False
    return [RetrainJob(given.recipe, Variation(given.same(models), given.same(models), kept=kept))]


def bootstrap(given: BaseRun, models: range) -> list[RetrainJob]:
    """The same weights and order; every row counts as often as it was drawn, with replacement."""
    drawn = [torch.randint(given.n, (given.n,), generator=given.generator(2, i)) for i in models]
    times = torch.stack([torch.bincount(rows, minlength=given.n) for rows in drawn]).float()
    return [RetrainJob(given.recipe, Variation(given.same(models), given.same(models), emphasis=times))]


def last_layer(given: BaseRun, models: range) -> list[RetrainJob]:
    """The features stay; the last layer is drawn and trained anew, with another order of the rows."""
    return [RetrainJob(given.recipe, Variation(given.others(models), given.others(models)), last_layer=True)]


def epochs(given: BaseRun, models: range) -> list[RetrainJob]:
    """The same weights and order; training lasts from half to one and a half times as long."""
    # Multiples of the golden ratio spread evenly however many there are.
    factors = [0.5 + (i + 1) * 0.6180339887498949 % 1 for i in models]
    lengths = tuple(max(1, round(f * given.recipe.epochs)) for f in factors)
    return [RetrainJob(given.recipe, Variation(given.same(models), given.same(models), epochs=lengths))]


def width(given: BaseRun, models: range) -> list[RetrainJob]:
    """Hidden layers half, three quarters, one and a half times and twice as wide, with new weights; listed by width."""
    factors = (0.5, 1.5, 0.75, 2.0)
    groups = list[RetrainJob]()
    for at, factor in enumerate(factors):
        seeds = tuple(given.seed + 1 + i for i in models if i % len(factors) == at)
        if seeds:
            groups.append(RetrainJob(given.recipe.widened(factor), Variation(seeds, (given.seed,) * len(seeds))))
    return groups


def label_noise(given: BaseRun, models: range, share: float = 0.02) -> list[RetrainJob]:
    """The same weights and order; two in a hundred labels are replaced by another class."""
    wrong = max(1, round(share * given.n))
    labels = given.labels.repeat(len(models), 1)
    for at, i in enumerate(models):
        g = given.generator(3, i)
        rows = torch.randperm(given.n, generator=g)[:wrong]
        step = torch.randint(1, given.classes, (wrong,), generator=g)
        labels[at, rows] = (labels[at, rows] + step) % given.classes
    return [RetrainJob(given.recipe, Variation(given.same(models), given.same(models), labels=labels))]


Family = Callable[[BaseRun, range], list[RetrainJob]]
FAMILIES: dict[str, Family] = {
    "seed": new_seed,
    "seed_and_order": new_seed_and_order,
    "leave_one_out": leave_one_out,
    "leave_share_out": leave_share_out,
    "bootstrap": bootstrap,
    "last_layer": last_layer,
    "epochs": epochs,
    "width": width,
    "label_noise": label_noise,
}
# What an estimator, which trains itself, can be given: other rows, row weights, labels or seeds.
FOR_ESTIMATORS = ("seed", "leave_one_out", "leave_share_out", "bootstrap", "label_noise")


def family(name: str) -> Family:
    if name not in FAMILIES:
        raise SettingError(f"unknown family {name!r}; {did_you_mean(name, FAMILIES)}")
    return FAMILIES[name]


def parsed_families(text: str, what: str = "families") -> dict[str, int]:
    """'seed=100,leave_one_out=20' -> how many models of each family; `what` names the setting in errors."""
    out = dict[str, int]()
    for part in text.split(","):
        name, equals, count = (word.strip() for word in part.partition("="))
        if not equals or not count.isdigit():
            raise SettingError(f"{what} takes NAME=COUNT,NAME=COUNT, got {part.strip()!r}")
        if name in out:
            raise SettingError(f"{what} names {name!r} twice; give each family one count")
        out[name] = int(count)
    return out
