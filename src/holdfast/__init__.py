"""Counterfactual explanations and recourse that hold when the model changes."""

import importlib
from typing import TYPE_CHECKING, Any

from holdfast.version import __version__

_PUBLIC = {
    "Audit": "holdfast.survival",
    "CCHVAE": "holdfast.search.cchvae",
    "ClaPROAR": "holdfast.search.external",
    "CounterNet": "holdfast.train.counternet",
    "CFModel": "holdfast.train.generators",
    "Comparison": "holdfast.comparison",
    "Counterfactuals": "holdfast.result",
    "Crossing": "holdfast.crossing",
    "DeDUCE": "holdfast.image.deduce",
    "Descent": "holdfast.search.descent",
    "ECCCo": "holdfast.search.eccco",
    "Explainer": "holdfast.explainer",
    "Feature": "holdfast.feature",
    "FeatureDensity": "holdfast.density",
    "Gravitational": "holdfast.search.external",
    "GreedyEnsemble": "holdfast.image.greedy_ensemble",
    "GrowingSpheres": "holdfast.search.spheres",
    "HoldfastError": "holdfast.errors",
    "JSMA": "holdfast.image.jsma",
    "LatentSearch": "holdfast.search.latent",
    "LearnedRecourse": "holdfast.train.learned",
    "MinCost": "holdfast.search.minimal",
    "MinEpsilonPGD": "holdfast.search.pgd",
    "Model": "holdfast.model",
    "ModelBank": "holdfast.train.bank",
    "NearestNeighbor": "holdfast.search.neighbors",
    "Omniscient": "holdfast.search.omniscient",
    "Prototype": "holdfast.search.prototype",
    "Query": "holdfast.explainer",
    "RBR": "holdfast.robust.bayes",
    "REVISE": "holdfast.search.revise",
    "ROAR": "holdfast.robust.minmax",
    "Recipe": "holdfast.train.recipe",
    "Report": "holdfast.report",
    "RoCourseNet": "holdfast.train.counternet",
    "Rule": "holdfast.feature",
    "Schema": "holdfast.schema",
    "StableNeighborSearch": "holdfast.robust.stable",
    "Status": "holdfast.status",
    "Target": "holdfast.target",
    "Tradeoff": "holdfast.tradeoffs",
    "TreeSearch": "holdfast.search.trees",
    "VAECF": "holdfast.train.generators",
    "VLK": "holdfast.image.vlk",
    "attack_by_shift": "holdfast.robust.attack",
    "attack_rows": "holdfast.robust.evasion",
    "attacked_accuracy": "holdfast.robust.evasion",
    "audit": "holdfast.survival",
    "compare": "holdfast.comparison",
    "cross_validity": "holdfast.crossing",
    "evaluate": "holdfast.metrics",
    "list_methods": "holdfast.methods",
    "tradeoff": "holdfast.tradeoffs",
}
_MODULES = ("data", "image", "metrics", "plausibility", "train")

__all__ = [*_PUBLIC, *_MODULES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from holdfast import data as data
    from holdfast import image as image
    from holdfast import metrics as metrics
    from holdfast import plausibility as plausibility
    from holdfast import train as train
    from holdfast.comparison import Comparison as Comparison
    from holdfast.comparison import compare as compare
    from holdfast.crossing import Crossing as Crossing
    from holdfast.crossing import cross_validity as cross_validity
    from holdfast.density import FeatureDensity as FeatureDensity
    from holdfast.errors import HoldfastError as HoldfastError
    from holdfast.explainer import Explainer as Explainer
    from holdfast.explainer import Query as Query
    from holdfast.feature import Feature as Feature
    from holdfast.feature import Rule as Rule
    from holdfast.image.deduce import DeDUCE as DeDUCE
    from holdfast.image.greedy_ensemble import GreedyEnsemble as GreedyEnsemble
    from holdfast.image.jsma import JSMA as JSMA
    from holdfast.image.vlk import VLK as VLK
    from holdfast.methods import list_methods as list_methods
    from holdfast.metrics import evaluate as evaluate
    from holdfast.model import Model as Model
    from holdfast.report import Report as Report
    from holdfast.result import Counterfactuals as Counterfactuals
    from holdfast.robust.attack import attack_by_shift as attack_by_shift
    from holdfast.robust.bayes import RBR as RBR
    from holdfast.robust.evasion import attack_rows as attack_rows
    from holdfast.robust.evasion import attacked_accuracy as attacked_accuracy
    from holdfast.robust.minmax import ROAR as ROAR
    from holdfast.robust.stable import StableNeighborSearch as StableNeighborSearch
    from holdfast.schema import Schema as Schema
    from holdfast.search.cchvae import CCHVAE as CCHVAE
    from holdfast.search.descent import Descent as Descent
    from holdfast.search.eccco import ECCCo as ECCCo
    from holdfast.search.external import ClaPROAR as ClaPROAR
    from holdfast.search.external import Gravitational as Gravitational
    from holdfast.search.latent import LatentSearch as LatentSearch
    from holdfast.search.minimal import MinCost as MinCost
    from holdfast.search.neighbors import NearestNeighbor as NearestNeighbor
    from holdfast.search.omniscient import Omniscient as Omniscient
    from holdfast.search.pgd import MinEpsilonPGD as MinEpsilonPGD
    from holdfast.search.prototype import Prototype as Prototype
    from holdfast.search.revise import REVISE as REVISE
    from holdfast.search.spheres import GrowingSpheres as GrowingSpheres
    from holdfast.search.trees import TreeSearch as TreeSearch
    from holdfast.status import Status as Status
    from holdfast.survival import Audit as Audit
    from holdfast.survival import audit as audit
    from holdfast.target import Target as Target
    from holdfast.tradeoffs import Tradeoff as Tradeoff
    from holdfast.tradeoffs import tradeoff as tradeoff
    from holdfast.train.bank import ModelBank as ModelBank
    from holdfast.train.counternet import CounterNet as CounterNet
    from holdfast.train.counternet import RoCourseNet as RoCourseNet
    from holdfast.train.generators import VAECF as VAECF
    from holdfast.train.generators import CFModel as CFModel
    from holdfast.train.learned import LearnedRecourse as LearnedRecourse
    from holdfast.train.recipe import Recipe as Recipe


def __getattr__(name: str) -> Any:
    """Names load what they need when first used, so that `import holdfast` itself stays light."""
    if name in _MODULES:
        return importlib.import_module(f"holdfast.{name}")
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
