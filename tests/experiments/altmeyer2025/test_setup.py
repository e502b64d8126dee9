"""Data as the paper has them, and networks that do not depend on what is trained beside them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.altmeyer2025.setup import PLANES, SETTINGS, prepare, taught, weights


@pytest.mark.parametrize("name", PLANES)
def test_planes(name: str) -> None:
    """Paper: altmeyer2025 Later: datasets."""
    task = prepare(name)
    assert (len(task.X), len(task.test_X), task.width) == (3000, 600, 2)
    assert task.protected == ("x1",)
    x = task.schema.encode(task.X, torch.float64).numpy()
    assert np.allclose(x, task.X.to_numpy())  # in units of their own
    for feature in task.schema.features:
        values = task.X[feature.name]
        low, high = feature.seen
        assert low == pytest.approx(min(values.mean() - 2 * values.std(), values.min()))
        assert high == pytest.approx(max(values.mean() + 2 * values.std(), values.max()))
    assert set(task.X.index).isdisjoint(task.test_X.index)


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in PLANES])
def test_tables_and_images(name: str, data_dir: Path) -> None:
    """Paper: altmeyer2025 Later: datasets."""
    task = prepare(name)
    setting = SETTINGS[name]
    assert (len(task.X), len(task.test_X)) == (setting.train, setting.test)
    assert set(task.X.index).isdisjoint(task.test_X.index)
    assert set(task.test_y) <= set(task.y)
    held = task.guarded.encoding().fixed
    assert int(held.sum()) == (2 * 5 * 28 if name == "mnist" else 1)
    x = task.schema.encode(task.X, torch.float64)
    if name == "mnist":
        assert (float(x.min()), float(x.max())) == (-1.0, 1.0)
    else:
        numbers = ~task.schema.encoding().one_hot
        assert torch.allclose(
            x[:, numbers].mean(0), torch.zeros(int(numbers.sum())).double(), atol=1e-6
        )
        assert task.y.map({v: i for i, v in enumerate(sorted(set(task.y)))}).mean() > 0.2


def test_housing_has_eight_numbers_and_the_age_is_the_second(data_dir: Path) -> None:
    task = prepare("california_housing")
    assert list(task.X.columns).index("housing_median_age") == 1
    assert task.width == task.schema.width == 8
    assert task.X["people"].median() == pytest.approx(2.8, abs=0.2)  # in a household


def test_seeds_trained_apart_are_those_trained_together() -> None:
    task = prepare("moons")
    setting = SETTINGS["moons"]
    both = taught(task, setting, 1, 2, 5)
    second = taught(task, setting, 1, 1, 6)
    for (w, b), (w1, b1) in zip(
        weights(both.member("full", 1)), weights(second.member("full")), strict=True
    ):
        torch.testing.assert_close(w, w1, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(b, b1, rtol=1e-4, atol=1e-5)
