"""Tables in the plane, generated: nothing to download, as many rows as wanted.

Blobs, moons and circles have the spreads of the counterfactual training paper (P. Altmeyer et al.,
2025). It gives neither the centres of the blobs nor the noise of the moons; with centres (-2, -2)
and (2, 2) the best possible accuracy on the overlapping blobs is the 0.92 it reports. The two
shifts are those of RoCourseNet (H. Guo et al., 2023).
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast._core.types import Array
from holdfast.datasets.catalogue import About, dataset
from holdfast.datasets.dataset import Dataset
from holdfast.errors import SettingError


def _table(
    about: About, x: Array, y: NDArray[Any], parts: "pd.Series[Any] | None" = None
) -> Dataset:
    return about.dataset(
        pd.DataFrame(x, columns=["x1", "x2"]), pd.Series(np.where(y, "yes", "no")), parts=parts
    )


def _shuffled(about: About, no: Array, yes: Array, rng: np.random.Generator) -> Dataset:
    order = rng.permutation(len(no) + len(yes))
    return _table(about, np.concatenate([no, yes])[order], (order >= len(no)))


def _halves(n: int) -> tuple[int, int]:
    if not n >= 2:
        raise SettingError(f"n must be 2 or more, got {n}")
    return n // 2, n - n // 2


def _blobs(about: About, n: int, seed: int, spread: float) -> Dataset:
    rng = np.random.default_rng(seed)
    fewer, more = _halves(n)
    no = rng.normal(-2, spread, (fewer, 2))
    yes = rng.normal(2, spread, (more, 2))
    return _shuffled(about, no, yes, rng)


@dataset
def linearly_separable(about: About, n: int = 4200, seed: int = 0) -> Dataset:
    """Two Gaussian blobs far apart: standard deviation 0.5."""
    return _blobs(about, n, seed, 0.5)


@dataset
def overlapping(about: About, n: int = 4200, seed: int = 0) -> Dataset:
    """Two Gaussian blobs that overlap: standard deviation 2."""
    return _blobs(about, n, seed, 2.0)


@dataset
def moons(about: About, n: int = 4200, seed: int = 0, noise: float = 0.1) -> Dataset:
    """Two half circles that reach into each other."""
    rng = np.random.default_rng(seed)
    fewer, more = _halves(n)
    first = np.linspace(0, np.pi, fewer)
    second = np.linspace(0, np.pi, more)
    no = np.stack([np.cos(first), np.sin(first)], axis=1)
    yes = np.stack([1 - np.cos(second), 0.5 - np.sin(second)], axis=1)
    no = no + rng.normal(0, noise, no.shape)
    yes = yes + rng.normal(0, noise, yes.shape)
    return _shuffled(about, no, yes, rng)


def _circle(n: int) -> Array:
    """(n, 2) points of the unit circle, evenly around it."""
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


@dataset
def circles(
    about: About, n: int = 4200, seed: int = 0, noise: float = 0.15, factor: float = 0.01
) -> Dataset:
    """A circle of radius `factor` within one of radius 1."""
    rng = np.random.default_rng(seed)
    fewer, more = _halves(n)
    outer = _circle(fewer)
    inner = _circle(more) * factor
    no = outer + rng.normal(0, noise, outer.shape)
    yes = inner + rng.normal(0, noise, inner.shape)
    return _shuffled(about, no, yes, rng)


def _before_and_after(n: int) -> "pd.Series[Any]":
    return pd.Series(np.repeat(np.array(["before", "after"], dtype=object), n))


@dataset
def covariate_shift(about: About, n: int = 1000, seed: int = 0) -> Dataset:
    """n rows before and n after the inputs move: y = 1[x1^3 - x2 + e > 0], e from N(-0.1, 0.1).

    Paper: guo2023 Simulated covariate shift.
    """
    _halves(n)
    rng = np.random.default_rng(seed)
    moments = [(0.5, 0.5, 0.0, 0.3), (0.0, 0.3, 0.5, 0.5)]  # mean and spread of x1, then of x2
    x = np.concatenate(
        [np.stack([rng.normal(*m[:2], n), rng.normal(*m[2:], n)], axis=1) for m in moments]
    )
    y = x[:, 0] ** 3 - x[:, 1] + rng.normal(-0.1, 0.1, 2 * n) > 0
    return _table(about, x, y, _before_and_after(n))


@dataset
def label_shift(about: About, n: int = 1000, seed: int = 0) -> Dataset:
    """n rows before and n after the outcomes move: y from Bern(0.6), then from Bern(0.3), and x
    made from y.

    Paper: guo2023 Simulated label shift.
    """
    _halves(n)
    rng = np.random.default_rng(seed)
    y = np.concatenate([rng.random(n) < p for p in (0.6, 0.3)])
    z = 2 * y - 1 + rng.normal(0.1, 0.1, 2 * n)
    x1 = -z + z**3 + rng.normal(0, 0.3, 2 * n)
    x2 = z + z**3 - 3 * y + rng.normal(0, 0.3, 2 * n)
    return _table(about, np.stack([x1, x2], axis=1), y, _before_and_after(n))
