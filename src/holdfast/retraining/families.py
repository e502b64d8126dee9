"""Families of retrained models: how a model may differ from the one in use when it is made
again.

Each family is a function from the run that made that model, and the numbers of the models wanted,
to variations of the run, one for each architecture. Model i of a family is made in the same way
whatever others are asked for.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from holdfast._core.checks import did_you_mean, listed
from holdfast.errors import SettingError
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.estimators import settings_of
from holdfast.retraining.loop import Variation
from holdfast.retraining.next_training import class_counts, fresh_rows, same_steps

MOST_DRAWS = 1000  # of rows until there is one of every class
GOLDEN = 0.6180339887498949  # its multiples spread evenly, however many there are


def retrain(run: BaseRun, models: range) -> list[Variation]:
    """What a real retraining does: other initial weights, another order, and rows drawn with
    replacement."""
    seeds = run.own_seeds(4, models)
    return [Variation(seeds, seeds, emphasis=_times_drawn(run, 5, models))]


def fresh(run: BaseRun, models: range) -> list[Variation]:
    """As far from the model in use as models of new data: other initial weights, another order, and
    fewer rows drawn with replacement, on which a network makes as many steps. See
    `next_training`."""
    n = len(run.labels)
    count = fresh_rows(n, run.spread, class_counts(run.labels, len(run.classes)))
    seeds = run.own_seeds(8, models)
    rows = torch.stack([_drawn(run, 9, i, torch.arange(n), count) for i in models])
    variation = Variation(seeds, seeds, rows=rows)
    recipe = run.recipe
    if recipe.estimator is not None:
        return [variation]
    epochs = same_steps(recipe.epochs, recipe.batch_size, n, count)
    return [replace(variation, epochs=(epochs,) * len(models))]


def seed(run: BaseRun, models: range) -> list[Variation]:
    """Other initial weights, everything else the same.

    Paper: black2022 Retraining RS.
    """
    return [Variation(run.new_seeds(models), run.same_seed(models))]


def seed_and_order(run: BaseRun, models: range) -> list[Variation]:
    """Other initial weights and another order of the rows."""
    return [Variation(run.new_seeds(models), run.new_seeds(models))]


def leave_one_out(run: BaseRun, models: range) -> list[Variation]:
    """The same weights and order; model i lacks the i-th row of the pool.

    Paper: black2022 Retraining LOO.
    """
    rows = len(run.left_out)
    if not models.stop <= rows:
        raise SettingError(
            f"leave_one_out up to {models.stop} needs as many rows; there are {rows}"
        )
    kept = torch.ones(len(models), len(run.labels), dtype=torch.bool)
    kept[torch.arange(len(models)), run.left_out[models.start : models.stop]] = False
    return [Variation(run.same_seed(models), run.same_seed(models), kept=kept)]


def leave_share_out(run: BaseRun, models: range, share: float = 0.1) -> list[Variation]:
    """The same weights and order; every model lacks a random tenth of the rows."""
    n = len(run.labels)
    kept = torch.ones(len(models), n, dtype=torch.bool)
    count = max(1, round(share * n))
    for row, i in enumerate(models):
        kept[row, torch.randperm(n, generator=run.generator(1, i))[:count]] = False
    return [Variation(run.same_seed(models), run.same_seed(models), kept=kept)]


def bootstrap(run: BaseRun, models: range) -> list[Variation]:
    """The same weights and order; every row counts as often as it was drawn, with replacement."""
    return [
        Variation(
            run.same_seed(models), run.same_seed(models), emphasis=_times_drawn(run, 2, models)
        )
    ]


def history(run: BaseRun, models: range) -> list[Variation]:
    """As `retrain`, on older rows: those up to 1, 2 and 3 periods before the newest one, in turn,
    over as many periods as the model in use has learnt from (if from all, from the first one on).
    Listed by age."""
    windows = run.earlier()
    out = list[Variation]()
    for ago, kept in enumerate(windows):
        own = [i for i in models if i % len(windows) == ago]
        if own:
            seeds = run.own_seeds(6, own)
            times = _times_drawn(run, 7, own, kept.nonzero().squeeze(1))
            out.append(Variation(seeds, seeds, kept=kept.expand(len(own), -1), emphasis=times))
    return out


def _times_drawn(
    run: BaseRun, purpose: int, models: Iterable[int], of: Tensor | None = None
) -> Tensor:
    """(M, n) how often each row is drawn, with replacement, of all or of some."""
    n = len(run.labels)
    of = torch.arange(n) if of is None else of
    times = [torch.bincount(_drawn(run, purpose, i, of), minlength=n) for i in models]
    return torch.stack(times).float()


def _drawn(run: BaseRun, purpose: int, i: int, of: Tensor, count: int | None = None) -> Tensor:
    """Positions of rows, drawn with replacement from some for model i, and drawn again if a class
    is left without any.

    Rows that belong together are drawn together: as many blocks as there are, or this many rows.
    """
    k = len(run.classes)
    g = run.generator(purpose, i)
    there = run.labels[of].bincount(minlength=k) if k else torch.zeros(0)
    for _ in range(MOST_DRAWS):
        rows = (
            _rows_drawn(of, count, g)
            if run.blocks is None
            else _blocks_drawn(of, run.blocks[of], count, g)
        )
        if not k or bool((run.labels[rows].bincount(minlength=k)[there > 0] > 0).all()):
            return rows
    rare = run.classes[int(there.where(there > 0, len(run.labels)).argmin())]
    few = f"{rare!r} has {int(there[there > 0].min())} of {len(of)} rows"
    raise SettingError(f"rows drawn with replacement keep leaving out a class: {few}")


def _rows_drawn(of: Tensor, count: int | None, g: torch.Generator) -> Tensor:
    return of[torch.randint(len(of), (len(of) if count is None else count,), generator=g)]


def _blocks_drawn(of: Tensor, block: Tensor, count: int | None, g: torch.Generator) -> Tensor:
    """Whole blocks, as many as there are; or until there are this many rows, with the last block
    cut."""
    order = block.argsort(stable=True)
    sizes = [int(size) for size in block.bincount() if size]
    members: tuple[Tensor, ...] = torch.split(of[order], sizes)
    if count is None:
        chosen = torch.randint(len(members), (len(members),), generator=g)
        return torch.cat([members[int(j)] for j in chosen])
    rows = list[Tensor]()
    drawn = 0
    while drawn < count:
        rows.append(members[int(torch.randint(len(members), (1,), generator=g))])
        drawn += len(rows[-1])
    return torch.cat(rows)[:count]


def last_layer(run: BaseRun, models: range) -> list[Variation]:
    """The features stay; the last layer is drawn and trained anew, with another order of the
    rows."""
    return [Variation(run.new_seeds(models), run.new_seeds(models), last_layer=True)]


def epochs(run: BaseRun, models: range) -> list[Variation]:
    """The same weights and order; training lasts from half to one and a half times as long."""
    lengths = tuple(max(1, round(f * run.recipe.epochs)) for f in _factors(models))
    return [Variation(run.same_seed(models), run.same_seed(models), epochs=lengths)]


def _factors(models: Iterable[int]) -> list[float]:
    """From a half to one and a half."""
    return [0.5 + (i + 1) * GOLDEN % 1 for i in models]


def trees(run: BaseRun, models: range) -> list[Variation]:
    """The same rows and seed; half to one and a half times as many trees."""
    same = Variation(run.same_seed(models), run.same_seed(models))
    return [
        _scaled(run, models, same, "trees", ("n_estimators", "iterations", "max_iter"), least=1)
    ]


def depth(run: BaseRun, models: range) -> list[Variation]:
    """The same rows with new seeds; trees half to one and a half times as deep, or with as many
    leaves."""
    new = Variation(run.new_seeds(models), run.same_seed(models))
    return [
        _scaled(
            run,
            models,
            new,
            "depth",
            ("max_depth", "num_leaves", "max_leaf_nodes", "max_leaves"),
            least=1,
        )
    ]


def learning_rate(run: BaseRun, models: range) -> list[Variation]:
    """The same rows and seed; half to one and a half times the learning rate."""
    same = Variation(run.same_seed(models), run.same_seed(models))
    return [
        _scaled(
            run, models, same, "learning_rate", ("learning_rate", "learning_rate_init"), least=None
        )
    ]


def _scaled(
    run: BaseRun,
    models: range,
    variation: Variation,
    name: str,
    settings: Sequence[str],
    *,
    least: int | None,
) -> Variation:
    """A variation whose estimators have other values of some settings: integers of at least
    `least`, if given."""
    known = settings_of(run.recipe.estimator, settings)
    if not known:
        raise SettingError(
            f"family {name!r}: the estimator has none of {listed(settings)} with a number that "
            "limits it; set one, or leave the family out"
        )

    def scaled(setting: str, value: Any, factor: float) -> Any:
        if least is None:
            return value * factor
        return max(2 if "leaves" in setting or "leaf" in setting else least, round(value * factor))

    each = [
        {key: scaled(key, value, factor) for key, value in known.items()}
        for factor in _factors(models)
    ]
    return replace(variation, settings=tuple(each))


def width(run: BaseRun, models: range) -> list[Variation]:
    """Hidden layers half, three quarters, one and a half times and twice as wide, with new weights;
    listed by width."""
    factors = 0.5, 1.5, 0.75, 2.0
    out = list[Variation]()
    for turn, factor in enumerate(factors):
        seeds = tuple(run.seed + 1 + i for i in models if i % len(factors) == turn)
        if seeds:
            out.append(Variation(seeds, (run.seed,) * len(seeds), width=factor))
    return out


def label_noise(run: BaseRun, models: range, share: float = 0.02) -> list[Variation]:
    """The same weights and order; two in a hundred labels are replaced by another class, numbers by
    each other."""
    n = len(run.labels)
    k = len(run.classes)
    labels = run.labels.repeat(len(models), 1)
    count = max(1 if k else 2, round(share * n))
    for row, i in enumerate(models):
        g = run.generator(3, i)
        rows = torch.randperm(n, generator=g)[:count]
        if not k:
            labels[row, rows] = run.labels[rows.roll(1)]
            continue
        step = torch.randint(1, k, (count,), generator=g)
        labels[row, rows] = (labels[row, rows] + step) % k
    return [Variation(run.same_seed(models), run.same_seed(models), labels=labels)]


Family = Callable[[BaseRun, range], list[Variation]]
_FOR_BOTH = (
    retrain,
    fresh,
    history,
    seed,
    seed_and_order,
    leave_one_out,
    leave_share_out,
    bootstrap,
    label_noise,
)
_NETWORKS = (last_layer, epochs, width)
_ESTIMATORS = (trees, depth, learning_rate)
FAMILIES: dict[str, Family] = {
    make.__name__: make for make in (*_FOR_BOTH, *_NETWORKS, *_ESTIMATORS)
}
FOR_NETWORKS = tuple(make.__name__ for make in (*_FOR_BOTH, *_NETWORKS))
FOR_ESTIMATORS = tuple(make.__name__ for make in (*_FOR_BOTH, *_ESTIMATORS))


def family(name: str) -> Family:
    if name not in FAMILIES:
        raise SettingError(f"unknown family {name!r}; {did_you_mean(name, FAMILIES)}")
    return FAMILIES[name]


def parsed_families(text: str, what: str = "families") -> dict[str, int]:
    """'seed=100,leave_one_out=20' -> how many models of each family; `what` names the setting in
    errors."""
    out = dict[str, int]()
    for part in text.split(","):
        name, equals, count = (word.strip() for word in part.partition("="))
        if not (bool(equals) and count.isdigit()):
            raise SettingError(f"{what} takes NAME=COUNT,NAME=COUNT, got {part.strip()!r}")
        if name in out:
            raise SettingError(f"{what} names {name!r} twice; give each family one count")
        out[name] = int(count)
    return out
