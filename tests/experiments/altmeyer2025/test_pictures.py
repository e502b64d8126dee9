"""What pictures are drawn from survives a file."""

import json

import numpy as np
import torch

from experiments.altmeyer2025.pictures import network, stored
from experiments.altmeyer2025.setup import (
    GUARDED,
    PICTURED,
    SETTINGS,
    judge,
    pictured,
    prepare,
    taught,
)


def test_a_pictured_network_is_the_one_that_was_trained() -> None:
    task = prepare("moons")
    model = taught(task, SETTINGS["moons"], 1, 1, 0).member("full")
    kept = stored(pictured(dict.fromkeys(PICTURED, model), task))
    again = network(kept[GUARDED], task, list(model.classes))
    x = task.schema.encode(task.test_X)
    torch.testing.assert_close(again(x), model(x), rtol=0, atol=1e-3)
    assert judge().tau == 0.95


def test_pixels_survive_a_file() -> None:
    values = np.linspace(-1, 1, 4 * 3 * 784).reshape(4, 3, 784)
    kept = stored(values)
    assert list(kept) == ["rows", *PICTURED]
    assert json.loads(json.dumps(kept)) == kept
