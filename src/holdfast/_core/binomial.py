"""Exact statements about a share of which k of n were seen (Clopper and Pearson 1934).

    lower bound    B(tail; k, n - k + 1), the tail quantile of a beta distribution; 0 for k = 0
    upper bound    1 - the lower bound for n - k of n

No normal approximation: they are right for any k and n. That the lower bound with tail 1 - c
reaches a share s is the same as P(X >= k) <= 1 - c for X binomial with n and s: of shares below s,
that is seen in at most 1 - c of all samples.
"""

from numbers import Real
from typing import Any

import numpy as np

from holdfast._core.checks import untyped
from holdfast._core.types import AnyArray
from holdfast.errors import SettingError


def exact_interval(seen: Any, n: int, confidence: float = 0.95) -> tuple[AnyArray, AnyArray]:
    """Two-sided bounds of a share."""
    check_share("confidence", confidence)
    tail = (1 - confidence) / 2
    return _lower(seen, n, tail), 1 - _lower(n - np.asarray(seen), n, tail)


def lower_bound(seen: Any, n: int, confidence: float = 0.95) -> AnyArray:
    """The one-sided bound that the true share exceeds with this confidence."""
    check_share("confidence", confidence)
    return _lower(seen, n, 1 - confidence)


def models_needed(hold: float = 0.95, confidence: float = 0.95) -> int:
    """The smallest n for which n of n give a lower bound of `hold`: hold^n <= 1 -
    confidence."""
    check_share("hold", hold)
    check_share("confidence", confidence)
    n = max(1, int(np.log(1 - confidence) / np.log(hold)) - 1)
    # once or twice; no rounding can contradict the bound
    while float(lower_bound(n, n, confidence)) < hold:
        n += 1
    return n


def check_share(name: str, value: float) -> None:
    """An error unless a share lies between 0 and 1."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise SettingError(f"{name} must be a number between 0 and 1, got {value!r}")
    if not 0 < value < 1:
        raise SettingError(f"{name} must lie between 0 and 1, got {value}")


def _lower(seen: Any, n: int, tail: float) -> AnyArray:
    k = np.asarray(seen, dtype=np.float64)
    bound = untyped("scipy.stats").beta.ppf(tail, np.maximum(k, 1), n - k + 1)
    return np.where(k > 0, bound, 0.0)
