"""How much the energy of the wanted class counts in step k of a search of T steps.

    phi_k (E + 1e-3 E^2),   phi_k = a (b + k)^-0.9,   b = round(T / 25),   a = b / 10

E = -M(x)_t is a logit. Neither the ECCCo paper nor the Counterfactual Training paper has phi or
the 1e-3: they are in the authors' code, and without phi the energy would weigh 20 to 200 times as
much. phi is 0 for T <= 12.
"""

from functools import cache

import torch
from torch import Tensor

RIDGE = 1e-3  # weight of E^2 beside E


@cache
def decay(steps: int) -> Tensor:
    """(steps,) phi_1 .. phi_T, in double precision."""
    b = round(steps / 25)
    return b / 10 * (b + torch.arange(1, steps + 1, dtype=torch.float64)) ** -0.9
