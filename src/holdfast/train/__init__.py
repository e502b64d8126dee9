"""Training models, and generators of answers."""

from holdfast.train.harden import Hardened, adversarial
from holdfast.train.ntk import ntk
from holdfast.train.recipe import Recipe, network
from holdfast.train.robustify import robustify
from holdfast.train.shift import Shift
from holdfast.train.teach import Taught, counterfactual

__all__ = [
    "Hardened",
    "Recipe",
    "Shift",
    "Taught",
    "adversarial",
    "counterfactual",
    "network",
    "ntk",
    "robustify",
]
