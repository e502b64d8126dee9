"""How near to the cheapest an answer is proved to be."""

import math

import torch
from torch import Tensor

# An answer may be dearer by such a share, or by so much, and still be called the cheapest: digits
# are lost where numbers are written into a table, and prices are rounded while plans are weighed.
SHARE = 1e-6
DIGITS = 1e-7


def proved_gap(cost: Tensor, least: Tensor | None, found: Tensor) -> Tensor:
    """(n,) by which share of it each answer may be dearer than the cheapest, at most; NaN where
    nothing is proved.

    Args:
        cost: (n,) of the answers.
        least: (n,) what any answer costs at least, NaN where that is not known.
        found: (n,) which of them are answers.
    """
    unknown = torch.full_like(cost, torch.nan)
    if least is None:
        return unknown
    gap = torch.where(least > 0, cost / least - 1, torch.where(cost <= 0, 0.0, unknown))
    gap = torch.where(cost - least <= (SHARE * least).clamp_min(DIGITS), 0.0, gap)
    return torch.where(found & least.isfinite(), gap, unknown)


def in_words(gap: float) -> str:
    """0.031 -> 'within 4 % of the cheapest'"""
    if math.isnan(gap):
        return ""
    return "cheapest, proved" if gap == 0 else f"within {math.ceil(100 * gap)} % of the cheapest"
