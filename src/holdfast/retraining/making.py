"""Making the models of a bank: family after family, from one run, by training or from a cache."""

import os
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

from holdfast._core.checks import listed
from holdfast._core.progress import Progress
from holdfast.errors import SettingError
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.families import FOR_ESTIMATORS, FOR_NETWORKS, family
from holdfast.retraining.loop import Variation
from holdfast.retraining.model_group import ModelGroup

MODELS = 100  # of a family that is not asked for by number


def wanted_models(families: Any, *, has_time: bool) -> dict[str, range]:
    """The numbers of the models of each family; by default the usual ones."""
    if families is None:
        families = {"retrain": MODELS}
        if has_time:
            families["history"] = MODELS
    if not isinstance(families, Mapping) or not families:
        raise SettingError(
            f"a bank needs at least one family of models, like {{'retrain': 100}}; got {families!r}"
        )
    given: dict[str, Any] = dict(families)  # pyright: ignore[reportUnknownArgumentType]
    return {name: _numbers(name, models) for name, models in given.items()}


def made_groups(
    whole: BaseRun,
    wanted: Mapping[str, range],
    *,
    workers: int | None,
    progress: bool,
    cache: str | Path | None,
) -> tuple[ModelGroup, ...]:
    """The models of all families, made or read.

    Args:
        whole: the run on all rows: families of earlier data are made from it, the others from the
            run of the model in use.
        wanted: the numbers of the models of each family.
        workers, progress, cache: as for `ModelBank.retrain`.
    """
    from holdfast.retraining.cache import cached  # which reads and writes banks

    network = whole.recipe.estimator is None
    _check_kind(wanted, network=network)
    run = whole.in_use()
    at_once = workers or os.cpu_count() or 1
    made = list[ModelGroup]()
    with Progress(progress, "retraining") as bar:
        bar.total(sum(len(models) for models in wanted.values()))
        for name, models in wanted.items():
            made_from = whole if name == "history" else run

            def make(
                variation: Variation, name: str = name, made_from: BaseRun = made_from
            ) -> ModelGroup:
                origins = made_from.origins(variation)
                if network:
                    return ModelGroup(name, made_from.train(variation, bar), origins=origins)
                fitted = made_from.fit_estimators(variation, at_once, bar)
                return ModelGroup(name, None, fitted, origins)

            for variation in family(name)(made_from, models):
                if cache is None:
                    made.append(make(variation))
                else:
                    made.append(cached(cache, made_from, variation, make, bar))
    return tuple(made)


def _check_kind(wanted: Mapping[str, range], *, network: bool) -> None:
    """An error for a family that this kind of model does not have."""
    known = FOR_NETWORKS if network else FOR_ESTIMATORS
    unfit = [name for name in wanted if name not in known]
    if unfit:
        raise SettingError(
            f"family {listed(unfit[:1])} needs {'an estimator' if network else 'a network'}; for "
            f"{'networks' if network else 'estimators'} there are {listed(known, len(known))}"
        )


def _numbers(name: str, models: Any) -> range:
    """The numbers of the models asked for."""
    family(name)
    if not isinstance(models, range | Integral):
        raise SettingError(f"family {name!r} needs a number or a range of models, got {models!r}")
    wanted = models if isinstance(models, range) else range(int(models))
    if not len(wanted) or wanted.start < 0 or wanted.step != 1:
        raise SettingError(f"family {name!r} needs at least one model, got {models!r}")
    return wanted
