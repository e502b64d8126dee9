"""Exact nearest rows of a network with one hidden layer of ReLUs: it is linear where the same units
are on, so the nearest row of each such region is a linear program (l1) or a projection (l2), and
the nearest of all is among them."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.optimize import linprog, nnls
from torch import nn

Array = np.ndarray


def least_norm(G: Array, h: Array) -> Array | None:
    """argmin |y|_2 with G y >= h, or None if there is none (Lawson and Hanson 1974, LDP)."""
    E = np.vstack([G.T, h])
    f = np.append(np.zeros(G.shape[1]), 1.0)
    r = E @ nnls(E, f)[0] - f
    if abs(r[-1]) < 1e-10:
        return None
    y = -r[:-1] / r[-1]
    return y if (G @ y >= h - 1e-7).all() else None


def nearest(
    net: nn.Sequential, x: Array, low: float, high: float, margin: float
) -> tuple[float, float]:
    """Least l1 and l2 distance from x to a row in [low, high]^d with logit[1] - logit[0] >= margin;
    inf if none is."""
    (W, b), (V, c) = (
        (layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in (net[0], net[2])
    )
    v = V[1] - V[0]
    c = c[1] - c[0]
    d = len(x)
    regions = list[tuple[float, Array, Array]]()
    for on in product((0.0, 1.0), repeat=len(b)):
        p = np.array(on)
        side = 2 * np.array(on) - 1
        slope = (v * p) @ W
        G = np.vstack([side[:, None] * W, np.eye(d), -np.eye(d), slope])
        h = np.concatenate(
            [-side * (W @ x + b), low - x, x - high, [margin - c - (v * p) @ (W @ x + b)]]
        )
        y = least_norm(G, h)
        if y is not None:
            regions.append((float(np.linalg.norm(y)), G, h))
    l1 = np.inf
    for l2, G, h in sorted(regions, key=lambda region: region[0]):
        if l2 >= l1:  # no l1 is below l2
            break
        lp = linprog(np.ones(2 * d), -np.hstack([G, -G]), -h, method="highs")
        l1 = min(l1, lp.fun) if lp.status == 0 else l1
    return l1, min((l2 for l2, _, _ in regions), default=np.inf)
