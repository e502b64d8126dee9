"""Exact binomial statements, against scipy and in closed form."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from holdfast._core.binomial import exact_interval, lower_bound, models_needed
from holdfast.errors import SettingError


@pytest.mark.parametrize("models", [1, 2, 7, 59, 200])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_intervals_are_those_of_clopper_and_pearson(models: int, confidence: float) -> None:
    kept = np.unique(np.linspace(0, models, 12).astype(int))
    low, high = exact_interval(kept, models, confidence)
    sure = lower_bound(kept, models, confidence)
    for i, k in enumerate(kept.tolist()):
        known = binomtest(k, models).proportion_ci(confidence, method="exact")
        assert (low[i], high[i]) == pytest.approx((known.low, known.high), abs=1e-10)
        one_sided = binomtest(k, models, alternative="greater").proportion_ci(
            confidence, method="exact"
        )
        assert sure[i] == pytest.approx(one_sided.low, abs=1e-10)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("share", [0.3, 0.8, 0.9, 0.95, 0.99])
def test_the_bound_reaches_a_share_exactly_where_the_tail_is_small(
    share: float, confidence: float
) -> None:
    for n in (1, 5, 22, 59, 93, 300):
        k = np.arange(n + 1)
        tail = binom.sf(k - 1, n, share)  # P(X >= k)
        assert np.abs(tail - (1 - confidence)).min() > 1e-9  # none of these is a tie
        assert ((lower_bound(k, n, confidence) >= share) == (tail <= 1 - confidence)).all()


@pytest.mark.parametrize(
    ("hold", "confidence", "n"), [(0.95, 0.95, 59), (0.99, 0.95, 299), (0.9, 0.99, 44)]
)
def test_smallest_number_that_can_tell(hold: float, confidence: float, n: int) -> None:
    assert models_needed(hold, confidence) == n
    assert hold**n <= 1 - confidence < hold ** (n - 1)


def test_the_smallest_number_never_contradicts_the_bound() -> None:
    """Not even where hold^n is 1 - confidence but for rounding."""
    for hold in (0.3, 0.5, 0.7, 0.9, 0.95, 0.999):
        for n in (1, 2, 3, 10, 100):
            for confidence in (1 - hold**n, 1 - hold**n - 1e-9, 1 - hold**n + 1e-9):
                if hold**n > 1e-6 and 0 < confidence < 1:
                    needed = models_needed(hold, confidence)
                    assert lower_bound(needed, needed, confidence) >= hold
                    assert needed == 1 or lower_bound(needed - 1, needed - 1, confidence) < hold
                    assert abs(needed - n) <= 1


def test_shares_lie_between_0_and_1() -> None:
    for bad in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(SettingError, match="hold must lie between 0 and 1"):
            models_needed(bad, 0.5)
        with pytest.raises(SettingError, match="confidence must lie between 0 and 1"):
            exact_interval(1, 2, bad)
