"""Checks of settings: the name, the value, and why."""

import math

import pytest

from holdfast._core.checks import require_positive, require_weight
from holdfast.errors import SettingError


@pytest.mark.parametrize("value", [0, -1.5, math.nan])
def test_what_is_not_positive_is_refused(value: float) -> None:
    with pytest.raises(SettingError, match=f"^lr must be positive, got {value}$"):
        require_positive("lr", value)


@pytest.mark.parametrize("value", [-0.5, math.nan])
def test_a_weight_below_0_is_refused(value: float) -> None:
    with pytest.raises(SettingError) as raised:
        require_weight("lam", value, "distance")
    assert str(raised.value) == (
        f"lam must be 0 or more (below 0 it rewards distance), got {value}"
    )


def test_others_pass() -> None:
    require_positive("lr", 1e-9)
    require_weight("lam", 0.0, "distance")
