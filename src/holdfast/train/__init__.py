"""Training models."""

from holdfast.train.fit import network

__all__ = ["network"]
