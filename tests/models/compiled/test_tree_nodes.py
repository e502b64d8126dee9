"""Thresholds over all doubles."""

import numpy as np
import torch

from holdfast.models.compiled.tree_nodes import bisect

torch.set_num_threads(1)


def test_bisection_finds_the_last_double() -> None:
    t = np.array([0.0, -0.0, 1.5, -2.25e-300, 1e300, np.pi])
    assert (bisect(lambda x: x <= t, 6) == t).all()
    below = bisect(lambda x: x < t, 6)
    assert (np.nextafter(below, np.inf) == t).all()
    single = bisect(lambda x: x.astype(np.float32) <= np.float32(0.1), 1)
    assert np.float32(single[0]) == np.float32(0.1)
    assert np.float32(np.nextafter(single[0], 1)) > np.float32(0.1)
    assert bisect(lambda x: x > np.inf, 1)[0] == -np.finfo(float).max
    assert bisect(lambda x: x < np.inf, 1)[0] == np.finfo(float).max
