"""Rows are encoded as in the paper."""

from pathlib import Path

import numpy as np
import pytest

from experiments.black2022.setup import SETTINGS, prepare


@pytest.mark.data
@pytest.mark.parametrize("name", SETTINGS)
def test_tasks_are_encoded_as_in_the_paper(name: str, data_dir: Path) -> None:
    """Paper: black2022 Datasets."""
    setting = SETTINGS[name]
    task = prepare(name, 0).first(50)
    columns = {"german_credit": 61, "seizure": 178, "ctg": 21, "heloc": 39, "taiwan_credit": 32}
    assert len(task.test_X) == len(task.test_y) == 50
    assert len(task.X.columns) == columns.get(name, len(task.X.columns))
    values = task.X.to_numpy()
    if setting.scaling == "standard":
        assert np.abs(values.mean(0)).max() < 1e-9
        assert np.abs(values.std(0) - 1).max() < 1e-9
    if setting.scaling == "minmax":
        assert values.min() == 0
        assert values.max() == 1
    assert task.pool == list(range(len(task.X) - 100, len(task.X)))
