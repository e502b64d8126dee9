"""The demo with few models, as most tests run it."""

import contextlib
from collections.abc import Iterator

import pytest

from holdfast.cli import demo


@contextlib.contextmanager
def small_demo() -> Iterator[None]:
    """As few retrained models as certificates bear."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "HOLD", 0.8)
        patch.setattr(demo, "MODELS", {"guide": 20, "calibration": 50, "audit": 60})
        patch.setattr(demo, "FEWER", "guide=10,calibration=20,audit=20")
        yield
