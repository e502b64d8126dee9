import numpy as np
import pytest

import holdfast as hf
from holdfast.datasets import CATALOGUE
from holdfast.errors import SettingError


@pytest.mark.parametrize(
    "name", [n for n, about in CATALOGUE.items() if about.source == "generated"]
)
def test_generated_tables_come_from_their_seed(name: str) -> None:
    first = hf.datasets.load(name, n=101, seed=1)
    again = hf.datasets.load(name, n=101, seed=1)
    other = hf.datasets.load(name, n=101, seed=2)
    assert first.X.equals(again.X)
    assert not first.X.equals(other.X)
    assert len(first) == (202 if name.endswith("shift") else 101)
    with pytest.raises(SettingError, match="n must be"):
        hf.datasets.load(name, n=1)


def test_blobs_and_circles_are_as_separable_as_they_should_be() -> None:
    for name, low, high in (("linearly_separable", 1.0, 1.0), ("overlapping", 0.9, 0.94)):
        data = hf.datasets.load(name)
        right = ((data.X.sum(axis=1) > 0) == (data.y == "yes")).mean()
        assert low <= right <= high
    data = hf.datasets.load("circles")
    radius = np.hypot(data.X["x1"], data.X["x2"])
    assert ((radius < 0.5) == (data.y == "yes")).mean() > 0.98


def test_the_shifts_move_what_they_say() -> None:
    """Paper: guo2023 Simulated covariate shift, Simulated label shift."""
    inputs = hf.datasets.load("covariate_shift", n=20000)
    before = inputs.part("before")
    after = inputs.part("after")
    assert before.X.mean().tolist() == pytest.approx([0.5, 0], abs=0.02)
    assert after.X.mean().tolist() == pytest.approx([0, 0.5], abs=0.02)
    assert before.X.std().tolist() == pytest.approx([0.5, 0.3], abs=0.02)
    outcomes = hf.datasets.load("label_shift", n=20000)
    shares = [float((outcomes.part(side).y == "yes").mean()) for side in ("before", "after")]
    assert shares == pytest.approx([0.6, 0.3], abs=0.02)
