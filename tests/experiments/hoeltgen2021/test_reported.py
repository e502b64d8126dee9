"""What is copied from the paper fits together."""

import numpy as np
import pytest

from experiments.hoeltgen2021 import reported
from experiments.hoeltgen2021.reported import METHODS
from experiments.hoeltgen2021.setup import ABLATION


def test_figures_of_the_sets_give_the_first_table() -> None:
    """Paper: hoeltgen2021 Table 1."""
    for name, values in reported.BY_SET.items():
        mean, sd = reported.TABLE_1["DeDUCE"][name]
        assert np.mean(values) == pytest.approx(mean, abs=0.01)
        assert np.std(values, ddof=1) == pytest.approx(sd, abs=0.01)


def test_what_is_reported_fits_together() -> None:
    assert set(reported.TABLE_1) == set(reported.TABLE_2) == set(reported.TABLE_3) == set(METHODS)
    assert set(reported.TABLE_4) == set(ABLATION)
    # every class is wanted about as often as any other, so the mean over classes is that over pairs
    assert np.mean(reported.BY_TARGET) == pytest.approx(reported.ALL_PAIRS["L0"][0], abs=0.1)
    assert sum(reported.COMMON) / 4500 == pytest.approx(0.72, abs=0.005)
    failed = 100 * (1 - reported.BOTH_PAIRS / 4500)  # of JSMA, since DeDUCE never fails
    assert failed == pytest.approx(reported.TABLE_1["JSMA"]["failure %"][0], abs=0.01)
    for values in reported.ALL_PAIRS.values():
        assert list(values[2:]) == sorted(values[2:])
    for name in ("L0", "L1"):  # the easy pairs are those that all four solve
        assert (
            reported.TABLE_1["DeDUCE"][name][0]
            < reported.BOTH["DeDUCE"][name]
            < reported.ALL_PAIRS[name][0]
        )
    assert {step for _, step in reported.TABLE_5} == set(reported.STEP_LIMITS)
    best = min(reported.TABLE_4, key=lambda label: reported.TABLE_4[label][0])
    assert best == "momentum 0.6"
    for cells in reported.TABLE_3.values():
        assert len(cells) == len(reported.PAIRS_3)
