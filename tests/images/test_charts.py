"""Histograms count the answers."""

from typing import Any

import numpy as np
import pandas as pd

from holdfast.images.charts import pixels_chart, probability_chart


def test_histograms_count_the_answers() -> None:
    def counts(chart: Any) -> pd.DataFrame:
        return pd.DataFrame(next(iter(chart.to_dict()["datasets"].values())))

    few = counts(pixels_chart(np.array([3.0, 5.0, 5.0])))
    assert few[["left", "right", "answers"]].to_numpy().tolist() == [
        [2.5, 3.5, 1],
        [3.5, 4.5, 0],
        [4.5, 5.5, 2],
    ]
    assert few["words"][2] == "5 pixels: 2 answers"
    many = counts(pixels_chart(np.arange(1.0, 101.0)))
    assert len(many) <= 24
    assert many["answers"].sum() == 100
    sure = counts(probability_chart(np.array([0.5, 0.52, 0.53, 0.99, 1.0])))
    assert sure["answers"].sum() == 5
    assert sure["left"][0] == 0.5
    assert sure["right"].iat[-1] == 1.0
    assert sure["answers"].tolist()[:2] == [2, 1]
    assert counts(probability_chart(np.array([1.0])))["answers"].sum() == 1
