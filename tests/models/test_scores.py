"""Scores and the predicted class."""

import numpy as np
import pytest
import torch

from holdfast.models.scores import decided, probabilities


def test_the_predicted_class_is_put_just_ahead() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 0.0], [5.0, 1.0, 0.0]], dtype=torch.float64)
    right = decided(scores, torch.tensor([0, 1, 0]))
    assert right.argmax(1).tolist() == [0, 1, 0]
    assert torch.equal(right[2], scores[2])
    assert (right - scores).abs().sum(1)[1] < 1e-3
    p = probabilities(torch.tensor([[0.0, 3.0]]), (0.0, 2.0))
    assert p[0, 1] == pytest.approx(1 / (1 + np.exp(-1)))
