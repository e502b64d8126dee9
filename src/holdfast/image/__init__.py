"""Counterfactuals for image classifiers: networks, methods that change few pixels, and how real the answers look."""

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "AnoGAN": "holdfast.image.anogan",
    "ConvAutoencoder": "holdfast.image.autoencoders",
    "ConvVAE": "holdfast.image.autoencoders",
    "DeDUCE": "holdfast.image.deduce",
    "Ensemble": "holdfast.image.ensemble",
    "GreedyEnsemble": "holdfast.image.greedy_ensemble",
    "GreedyPixels": "holdfast.image.greedy",
    "ImageCounterfactuals": "holdfast.image.result",
    "ImageExplainer": "holdfast.image.explainer",
    "ImageModel": "holdfast.image.model",
    "ImageQuery": "holdfast.image.explainer",
    "JSMA": "holdfast.image.jsma",
    "PlainResNet": "holdfast.image.classifier",
    "REVISE": "holdfast.image.revise",
    "SpectralResNet": "holdfast.image.classifier",
    "VLK": "holdfast.image.vlk",
    "WGAN": "holdfast.image.gan",
    "anogan_score": "holdfast.image.anogan",
    "auroc": "holdfast.image.realism",
    "lipschitz": "holdfast.image.jacobian",
    "operator_norm": "holdfast.image.spectral",
}
_MODULES = ("realism",)

__all__ = [*_PUBLIC, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from holdfast.image import realism as realism
    from holdfast.image.anogan import AnoGAN as AnoGAN
    from holdfast.image.anogan import anogan_score as anogan_score
    from holdfast.image.autoencoders import ConvAutoencoder as ConvAutoencoder
    from holdfast.image.autoencoders import ConvVAE as ConvVAE
    from holdfast.image.classifier import PlainResNet as PlainResNet
    from holdfast.image.classifier import SpectralResNet as SpectralResNet
    from holdfast.image.deduce import DeDUCE as DeDUCE
    from holdfast.image.ensemble import Ensemble as Ensemble
    from holdfast.image.explainer import ImageExplainer as ImageExplainer
    from holdfast.image.explainer import ImageQuery as ImageQuery
    from holdfast.image.gan import WGAN as WGAN
    from holdfast.image.greedy import GreedyPixels as GreedyPixels
    from holdfast.image.greedy_ensemble import GreedyEnsemble as GreedyEnsemble
    from holdfast.image.jacobian import lipschitz as lipschitz
    from holdfast.image.jsma import JSMA as JSMA
    from holdfast.image.model import ImageModel as ImageModel
    from holdfast.image.realism import auroc as auroc
    from holdfast.image.result import ImageCounterfactuals as ImageCounterfactuals
    from holdfast.image.revise import REVISE as REVISE
    from holdfast.image.spectral import operator_norm as operator_norm
    from holdfast.image.vlk import VLK as VLK


def __getattr__(name: str) -> Any:
    """Names load what they need when first used, as those of `holdfast` do."""
    if name in _MODULES:
        return importlib.import_module(f"holdfast.image.{name}")
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'holdfast.image' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
