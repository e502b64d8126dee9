"""Curves: who counts in a neighbourhood."""

from pathlib import Path

import pytest
import torch

from experiments.krishna2024.curves import nearby
from experiments.krishna2024.setup import hardened, prepare


def test_neighbourhoods_of_people_who_are_refused_and_of_all(data_dir: Path) -> None:
    task = prepare("compas")
    models = hardened(task, (), 2, 2, 0, epsilon=(0.0, 0.3))
    asked = task.test_X.iloc[:40]
    refused, everyone = nearby(models, asked)
    assert refused.shape == everyone.shape == (2,)
    with torch.no_grad():
        for group in models.bank.groups[1:]:
            assert group.networks is not None
            _, b = group.networks.layers[0]  # a model that gives one class to all
            b[:, :, 1] = 1e6
    # those who are refused by it want class 0, which it never gives; those who want class 1 all
    # have it
    refused, everyone = nearby(models, asked)
    assert refused[1] == 0.0
    assert everyone[1] == pytest.approx((models.wanted_classes(asked) == 1).mean())
