"""Training models, and generators of answers."""

from holdfast.train.recipe import Recipe, network
from holdfast.train.robustify import robustify
from holdfast.train.shift import Shift

__all__ = ["Recipe", "Shift", "network", "robustify"]
