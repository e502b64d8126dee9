"""The methods by the names that the command line uses."""

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from holdfast.errors import SettingError, did_you_mean

if TYPE_CHECKING:
    from holdfast.explainer import Explainer
    from holdfast.image.explainer import ImageExplainer

METHODS = {
    "descent": ("holdfast.search.descent", "Descent"),
    "min-cost": ("holdfast.search.minimal", "MinCost"),
    "min-epsilon-pgd": ("holdfast.search.pgd", "MinEpsilonPGD"),
    "growing-spheres": ("holdfast.search.spheres", "GrowingSpheres"),
    "nearest-neighbor": ("holdfast.search.neighbors", "NearestNeighbor"),
    "tree-search": ("holdfast.search.trees", "TreeSearch"),
    "omniscient": ("holdfast.search.omniscient", "Omniscient"),
    "latent-search": ("holdfast.search.latent", "LatentSearch"),
    "cchvae": ("holdfast.search.cchvae", "CCHVAE"),
    "revise": ("holdfast.search.revise", "REVISE"),
    "eccco": ("holdfast.search.eccco", "ECCCo"),
    "gravitational": ("holdfast.search.external", "Gravitational"),
    "claproar": ("holdfast.search.external", "ClaPROAR"),
    "stable-neighbor-search": ("holdfast.robust.stable", "StableNeighborSearch"),
    "prototype": ("holdfast.search.prototype", "Prototype"),
    "roar": ("holdfast.robust.minmax", "ROAR"),
    "rbr": ("holdfast.robust.bayes", "RBR"),
    "cf-model": ("holdfast.train.generators", "CFModel"),
    "vae-cf": ("holdfast.train.generators", "VAECF"),
    "learned-recourse": ("holdfast.train.learned", "LearnedRecourse"),
}

IMAGE_METHODS = {
    "deduce": ("holdfast.image.deduce", "DeDUCE"),
    "jsma": ("holdfast.image.jsma", "JSMA"),
    "greedy-ensemble": ("holdfast.image.greedy_ensemble", "GreedyEnsemble"),
    "vlk": ("holdfast.image.vlk", "VLK"),
    "revise": ("holdfast.image.revise", "REVISE"),
}


def method(name: str) -> "type[Explainer]":
    """The class behind a name such as 'min-cost'."""
    if name not in METHODS:
        _raise_unknown(name, METHODS, IMAGE_METHODS, "images")
    module, cls = METHODS[name]
    return getattr(importlib.import_module(module), cls)


def image_method(name: str) -> "type[ImageExplainer]":
    """The class behind a name such as 'deduce'."""
    if name not in IMAGE_METHODS:
        _raise_unknown(name, IMAGE_METHODS, METHODS, "tables")
    module, cls = IMAGE_METHODS[name]
    return getattr(importlib.import_module(module), cls)


def _raise_unknown(name: str, known: Iterable[str], others: Iterable[str], kind: str) -> NoReturn:
    if name in others:
        raise SettingError(f"method {name!r} is for {kind}, which the model is not for; use one of {', '.join(known)}")
    raise SettingError(f"unknown method {name!r}; {did_you_mean(name, known)}")


def list_methods(
    *, gradients: bool | None = None, data: bool | None = None, regression: bool | None = None
) -> "dict[str, type[Explainer]]":
    """All methods, or those that need (or do not need) gradients or data, or that work (or do not) on models that
    estimate a number."""
    found = {name: method(name) for name in METHODS}
    return {
        name: cls
        for name, cls in found.items()
        if gradients in (None, cls.needs_grad)
        and data in (None, cls.needs_data)
        and regression in (None, cls.regression)
    }


def list_image_methods() -> "dict[str, type[ImageExplainer]]":
    """All methods for images."""
    return {name: image_method(name) for name in IMAGE_METHODS}


def without_gradients(*, regression: bool = False) -> list[str]:
    """Names of the classes that work on any model, or on any that estimates a number."""
    return [cls.__name__ for cls in list_methods(gradients=False, regression=regression or None).values()]


def for_regression(*, gradients: bool) -> list[str]:
    """Names of the classes that work on models that estimate a number, with or without gradients."""
    return [cls.__name__ for cls in list_methods(gradients=None if gradients else False, regression=True).values()]
