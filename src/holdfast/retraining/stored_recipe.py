"""Recipes in a bank's file: words and, for an estimator that words cannot describe, bytes in its
library's format."""

import warnings
from collections.abc import Callable
from typing import Any, cast
from zipfile import ZIP_DEFLATED

import numpy as np
import torch
from torch import Tensor

from holdfast._core.checks import optional, untyped
from holdfast.errors import FileError, SettingError
from holdfast.models.compiled.preprocessing import type_name
from holdfast.models.formats.sandbox import Format
from holdfast.models.formats.skops import reader as skops
from holdfast.retraining.estimators import BOOSTERS, is_plain
from holdfast.retraining.outcomes import plain
from holdfast.retraining.recipe import Recipe

Parts = dict[Format, bytes]


def steps_before(pipeline: Any) -> bytes:
    """The steps of a pipeline before the last one, which is replaced by a stand-in that
    scikit-learn knows."""
    stand_in = untyped("sklearn.dummy").DummyClassifier().fit(np.zeros((2, 1)), [0, 1])
    steps = [*pipeline.steps[:-1], (pipeline.steps[-1][0], stand_in)]
    return optional("skops.io", "files").dumps(
        untyped("sklearn.pipeline").Pipeline(steps), compression=ZIP_DEFLATED
    )


def as_tensors(parts: Parts) -> dict[str, Tensor]:
    return {
        name: torch.frombuffer(bytearray(data), dtype=torch.uint8) for name, data in parts.items()
    }


def recipe_entry(recipe: Recipe | None) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
    """A recipe in words and, for an estimator that words cannot describe, in bytes."""
    if recipe is None:
        return None, {}
    try:
        return recipe.to_dict(), {}
    except SettingError as error:
        why = error
    try:
        estimator = untyped("sklearn.base").clone(recipe.estimator)
        last = estimator.steps[-1][1] if type_name(estimator) == "sklearn.Pipeline" else estimator
        words: dict[str, Any] = {"inputs": recipe.inputs}
        if type(last).__name__ not in BOOSTERS:
            parts: Parts = {
                "skops": optional("skops.io", "files").dumps(estimator, compression=ZIP_DEFLATED)
            }
        else:
            words |= {"booster": type(last).__name__, "settings": _settings(last)}
            parts = Parts() if last is estimator else {"skops": steps_before(estimator)}
        for data in parts.values():
            skops.made(skops.checked(data))
        return {"written": words | {"parts": list(parts)}}, as_tensors(parts)
    except Exception:
        what = f"the file holds the models, but not the recipe, by which more could be made: {why}"
        warnings.warn(what, stacklevel=4)
        return None, {}


def _settings(estimator: Any) -> dict[str, Any]:
    """The settings that were changed, all of them plain values."""
    given = estimator.get_params(deep=False)
    usual = type(estimator)().get_params(deep=False)
    out = {
        name: v
        for name, v in given.items()
        if v is not usual.get(name) and not (v != v or v == usual.get(name))
    }
    odd = [name for name, value in out.items() if not is_plain(value)]
    if odd:
        raise SettingError(f"cannot write down {odd[:1]}")
    return {name: plain(value) for name, value in out.items()}


def read_recipe(
    content: dict[str, Any] | None, tensors: dict[str, Tensor]
) -> tuple[Callable[[], Recipe | None], list[tuple[Format, bytes]]]:
    """What makes the recipe, and what to try before."""
    if content is None:
        return (lambda: None), []
    if "written" not in content:
        return (lambda: Recipe.from_dict(content)), []
    words = content["written"]
    if set(tensors) != set(words["parts"]):
        raise FileError("a part of the recipe is missing")
    data = skops.checked(tensors["skops"].numpy().tobytes()) if "skops" in tensors else None

    def made() -> Recipe:
        estimator = None if data is None else skops.made(data)
        if "booster" in words:
            name = words["booster"]
            settings = words["settings"]
            if not (name in BOOSTERS and all(map(is_plain, settings.values()))):
                raise FileError("its recipe is of an unknown kind")
            library = optional("xgboost" if name.startswith("XGB") else "lightgbm", "trees")
            last = getattr(library, name)(**settings)
            if estimator is not None:
                estimator.steps[-1] = (estimator.steps[-1][0], last)
            estimator = last if estimator is None else estimator
        return Recipe(estimator=cast(Any, estimator), inputs=words["inputs"])

    return made, [] if data is None else [("skops", data)]
