"""Training models."""

from holdfast.train.recipe import Recipe, network

__all__ = ["Recipe", "network"]
