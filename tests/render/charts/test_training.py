"""The picture of how training went: what it is made of, and that it can be drawn."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast.render.charts.theme import to_svg
from holdfast.render.charts.training import training_curves


def datasets(chart: Any) -> list[pd.DataFrame]:
    """The tables that a chart holds."""
    return [pd.DataFrame(rows) for rows in chart.to_dict()["datasets"].values()]


HISTORY = pd.DataFrame(
    {
        "variant": ["plain"] * 4 + ["taught"] * 4,
        "seed": [0, 0, 1, 1] * 2,
        "epoch": [1, 2] * 4,
        "accuracy": [0.5, 0.7, 0.7, 0.9, 0.4, 0.6, 0.6, 0.8],
        "divergence": [np.nan] * 4 + [-1.0, -2.0, -3.0, -4.0],
        "ridge": [np.nan] * 8,
        "matured": [np.nan] * 4 + [0.1, 0.2, 0.3, 0.4],
    }
)


def test_training_curves_average_over_seeds() -> None:
    chart = training_curves(HISTORY)
    tables = datasets(chart)
    assert len(tables) == 3  # the ridge has no figures, and there is no adversarial column
    accuracy = next(t for t in tables if set(t["variant"]) == {"plain", "taught"})
    assert accuracy["value"].tolist() == pytest.approx([0.6, 0.8, 0.5, 0.7])
    for t in tables:
        if set(t["variant"]) == {"taught"}:
            assert t["value"].tolist() in (pytest.approx([-2.0, -3.0]), pytest.approx([0.2, 0.3]))
    assert "Counterfactuals that mature" in to_svg(chart)
    alone = training_curves(HISTORY.drop(columns=["variant", "seed", "divergence"]))
    assert datasets(alone)[0]["value"].tolist() == pytest.approx([0.55, 0.75])
    with pytest.raises(
        hf.HoldfastError, match=r"a column 'epoch' and some of 'accuracy'.* got \['step'\]"
    ):
        training_curves(pd.DataFrame({"step": [1]}))
