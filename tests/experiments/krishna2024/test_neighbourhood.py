"""Neighbourhoods: the share of points that is granted, and the rows around one of them, on linear
models."""

import numpy as np
import pandas as pd
import pytest
import torch

import holdfast as hf
from experiments.krishna2024.neighbourhood import granted_nearby, nearby_rows
from holdfast.render.charts.tradeoff import neighbourhood_chart
from holdfast.training.adversarial import AdversarialModels

ROWS = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
TABLE = pd.DataFrame(ROWS.numpy().astype(np.float64), columns=list("abcd"))
Y = pd.Series(np.where((ROWS @ torch.tensor([3.0, -2.0, 1.0, 0.2]) > 1.1).numpy(), "yes", "no"))
EPS = (0.0, 0.1, 0.3)


@pytest.fixture(scope="module")
def hardened() -> AdversarialModels:
    schema = hf.Schema.infer(TABLE, scaling="minmax")
    return hf.train_adversarial(
        hf.Recipe(hidden=(), epochs=60, lr=0.05), TABLE, Y, schema, epsilon=EPS, seeds=2
    )


def test_the_rows_around_one_are_drawn_for_every_epsilon(hardened: AdversarialModels) -> None:
    points = nearby_rows(hardened, TABLE, 5, neighbours=40)
    assert len(points) == 41 * len(EPS)
    assert points.groupby("epsilon")["asked"].sum().tolist() == [1, 1, 1]
    assert neighbourhood_chart(points).to_dict()["columns"] == 3


def test_the_share_of_a_neighbourhood_is_that_of_its_points(hardened: AdversarialModels) -> None:
    """Paper: krishna2024 Figure 8."""
    share = granted_nearby(hardened, TABLE.iloc[:5], target="yes", radius=1e-6, samples=7)
    for i, e in enumerate(EPS):
        for s in range(2):
            granted = (hardened.model(e, s).predict(TABLE.iloc[:5]) == "yes").to_numpy()
            assert share[i, s].tolist() == granted.astype(float).tolist()
    wide = granted_nearby(hardened, TABLE.iloc[:40], radius=3.0)
    assert wide.shape == (3, 2, 40)
    assert 0 < wide.mean() < 1
    alone = granted_nearby(hardened, TABLE.iloc[[7]], radius=3.0)
    assert alone[..., 0].tolist() == wide[..., 7].tolist()  # a row does not depend on others
    with pytest.raises(hf.HoldfastError, match="positive radius"):
        granted_nearby(hardened, TABLE, radius=0.0)
    with pytest.raises(hf.HoldfastError, match="no row 999"):
        nearby_rows(hardened, TABLE, 999)
