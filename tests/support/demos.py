"""The demo with few and small models, as most tests run it."""

import contextlib
from collections.abc import Iterator

import pytest

from holdfast.cli import demo


@contextlib.contextmanager
def small_demo() -> Iterator[None]:
    """A pipeline of few trees, and as few retrained ones as certificates bear."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "TREES", {"max_iter": 10, "max_leaf_nodes": 5, "learning_rate": 0.3})
        patch.setattr(demo, "HOLD", 0.8)
        patch.setattr(demo, "MODELS", {"guide": 20, "calibration": 50, "audit": 60})
        patch.setattr(demo, "FEWER", "guide=10,calibration=20,audit=20")
        yield
