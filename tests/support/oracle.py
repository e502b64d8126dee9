"""Exact nearest counterfactual (weighted L1) of a small Linear/ReLU network, by mixed-integer
programming.

The search grows a ball around x. Inside a small ball most neurons are stable, so each program has
few binaries and small big-M constants; and the best point inside a ball is the best point of all,
because everything outside is farther. The last ball holds the whole box, so nothing is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

Array = np.ndarray
Layers = list[tuple[Array, Array]]
Ranges = list[tuple[Array, Array]]  # lowest and highest pre-activations, by hidden layer
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Question:
    """The nearest z to x in the box lo <= z <= hi, by weighted L1, whose every gap is at least the
    margin."""

    weights: Layers
    x: Array
    wanted: int
    lo: Array
    hi: Array
    margin: float
    cost: Array

    def within(self, radius: float) -> Question:
        """The same in the smallest box that has all points at most radius away."""
        reach = radius / self.cost
        return replace(
            self, lo=np.maximum(self.lo, self.x - reach), hi=np.minimum(self.hi, self.x + reach)
        )


def gaps(weights: Layers, z: np.ndarray, wanted: int) -> np.ndarray:
    """logit[wanted] - logit[other] at z, for every other class, by a plain float64 forward pass."""
    for W, b in weights[:-1]:
        z = np.maximum(W @ z + b, 0.0)
    out = weights[-1][0] @ z + weights[-1][1]
    return np.delete(out[wanted] - out, wanted)


def nearest_l1(
    weights: Layers,
    x: np.ndarray,
    wanted: int,
    lo: np.ndarray,
    hi: np.ndarray,
    margin: float = 0.0,
    cost: np.ndarray | None = None,
) -> tuple[float, np.ndarray]:
    """Least sum_j cost_j |z_j - x_j| over lo <= z <= hi with every gap >= margin: (distance, z).

    Raises ValueError when no such z exists, AssertionError when the answer fails its own check.
    """
    weights = [(np.asarray(W, float), np.asarray(b, float)) for W, b in weights]
    x = np.asarray(x, float)
    lo = np.asarray(lo, float)
    hi = np.asarray(hi, float)
    cost = np.ones_like(x) if cost is None else np.asarray(cost, float)
    if not (np.isfinite([x, lo, hi, cost]).all() and (lo <= hi).all() and (cost > 0).all()):
        raise ValueError("x, lo, hi and cost must be finite, with lo <= hi and cost > 0")

    asked = Question(weights, x, wanted, lo, hi, margin, cost)
    farthest = float(cost @ np.maximum(abs(lo - x), abs(hi - x)))
    for radius in farthest * 0.5 ** np.arange(6, -1, -1):
        near = asked.within(radius)
        if (near.lo > near.hi).any():  # x lies outside the box, by more than this radius
            continue
        found = _within(near, radius)
        if found is not None:
            bound, on = found
            z = np.clip(_polish(asked, on), lo, hi)
            distance = float(cost @ abs(z - x))
            short = margin - gaps(weights, z, wanted).min()
            # The bound is proven by the solver, the distance measured on z: if they meet, z is
            # optimal.
            if not (short <= TOLERANCE and abs(distance - bound) <= TOLERANCE * max(1.0, distance)):
                raise AssertionError(
                    f"{distance=} {bound=} {short=} {radius=} {wanted=} {margin=} {z=}"
                )
            return distance, z
    raise ValueError(f"no point of the box gives class {wanted} with margin {margin}")


def _ranges(
    weights: Layers, x: np.ndarray, lo: np.ndarray, hi: np.ndarray, reach: np.ndarray
) -> Ranges:
    """Interval bounds; on the first layer also met with x's own value +- reach, what the radius can
    buy."""
    ranges: Ranges = []
    for W, b in weights[:-1]:
        up = np.maximum(W, 0)
        down = np.minimum(W, 0)
        low = up @ lo + down @ hi + b
        high = up @ hi + down @ lo + b
        if not ranges:
            low = np.maximum(low, W @ x + b - reach)
            high = np.minimum(high, W @ x + b + reach)
        # rounding must not cut off a point
        low = low - 1e-9
        high = high + 1e-9
        ranges.append((low, high))
        lo = np.maximum(low, 0)
        hi = np.maximum(high, 0)
    return ranges


def _within(asked: Question, radius: float) -> tuple[float, list[np.ndarray]] | None:
    """Best point at most radius away: (proven lower bound, which neurons are on), or None if there
    is none.

    Columns: z, then up and down (z - x = up - down), then for each hidden layer its outputs h and
    switches s.
    """
    weights = asked.weights
    x = asked.x
    wanted = asked.wanted
    reach = radius * (abs(weights[0][0]) / asked.cost).max(axis=1)
    ranges = _ranges(weights, x, asked.lo, asked.hi, reach)
    n = x.size
    width = 3 * x.size + 2 * sum(low.size for low, _ in ranges)
    eye = np.eye(width)
    c = np.concatenate([np.zeros(n), asked.cost, asked.cost, np.zeros(width - 3 * n)])
    lb = np.zeros(width)
    ub = np.full(width, np.inf)
    binary = np.zeros(width)
    lb[:n] = asked.lo
    ub[:n] = asked.hi
    rows = [(eye[:n] - eye[n : 2 * n] + eye[2 * n : 3 * n], x, x), (c[None], -np.inf, radius)]
    h = eye[:n]
    at = 3 * n
    switches = []
    for (W, b), (low, high) in zip(weights[:-1], ranges, strict=False):
        m = b.size
        s_at = slice(at + m, at + 2 * m)
        pre = W @ h
        h = eye[at : at + m]
        s = eye[s_at]
        low = np.minimum(low, 0)
        high = np.maximum(high, 0)
        # A stable neuron (always on: low = 0, always off: high = 0) has a fixed switch, and needs
        # no binary.
        lb[s_at] = low == 0
        ub[s_at] = high > 0
        binary[s_at] = (low < 0) & (high > 0)
        rows.append((h - pre, b, np.inf))  # h >= pre
        rows.append((h - pre - low[:, None] * s, -np.inf, b - low))  # h <= pre - low (1 - s)
        rows.append((h - high[:, None] * s, -np.inf, 0.0))  # h <= high s
        switches.append(s_at)
        at += 2 * m
    W, b = weights[-1]
    rows.append(
        (
            np.delete(W[wanted] - W, wanted, 0) @ h,
            asked.margin - np.delete(b[wanted] - b, wanted),
            np.inf,
        )
    )
    # HiGHS stops at an absolute gap of 1e-6 that milp cannot change; a scaled objective makes it
    # 1e-9.
    found = milp(
        1e3 * c,
        integrality=binary,
        bounds=Bounds(lb, ub),
        options={"mip_rel_gap": 1e-7},
        constraints=[LinearConstraint(*row) for row in rows],
    )
    if found.status == 2:
        return None
    if found.status != 0:
        raise AssertionError(f"HiGHS stopped with status {found.status}: {found.message}")
    bound = found.mip_dual_bound if binary.any() else found.fun
    return bound / 1e3, [found.x[s_at] > 0.5 for s_at in switches]


def _polish(asked: Question, on: list[Array]) -> Array:
    """The best point with these neurons on: a plain LP, without big-M.

    Solved again because milp takes no tolerance, and a switch 1e-6 away from whole lets a big-M row
    leak.
    """
    weights = asked.weights
    x = asked.x
    wanted = asked.wanted
    # z = A [up, down] + a
    A = np.hstack([np.eye(x.size), -np.eye(x.size)])
    a = x
    rows = [A, -A]
    sides = [asked.hi - a, a - asked.lo]
    for (W, b), active in zip(weights[:-1], on, strict=False):
        A = W @ A
        a = W @ a + b
        # an active neuron has pre >= 0, an inactive one pre <= 0
        sign = np.where(active, -1.0, 1.0)
        rows.append(sign[:, None] * A)
        sides.append(-sign * a)
        A = active[:, None] * A
        a = active * a
    W, b = weights[-1]
    D = np.delete(W[wanted] - W, wanted, 0)
    d = np.delete(b[wanted] - b, wanted)
    rows.append(-D @ A)
    sides.append(D @ a + d - asked.margin)
    best = linprog(
        np.tile(asked.cost, 2),
        np.concatenate(rows),
        np.concatenate(sides),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    )
    if best.status != 0:
        raise AssertionError(f"the LP of the found activation pattern failed: {best.message}")
    return x + best.x[: x.size] - best.x[x.size :]
