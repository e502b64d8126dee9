"""The usual metrics in one report, and its intervals."""

import json

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast import evaluate as shortcut
from holdfast.evaluation.report import Report, evaluate, interval
from support.four_answers import four_answers


def test_report_means_intervals_and_forms() -> None:
    report = evaluate(four_answers())
    assert shortcut is evaluate
    table = report.table()
    assert table.loc["validity", "mean"] == pytest.approx(2 / 3)
    assert table.loc["cost l1", "mean"] == pytest.approx(3.5)
    assert table.loc["cost l1", "rows"] == 2
    assert table.loc["cost l1", "low"] == 3
    assert table.loc["cost l1", "high"] == 4
    assert report.values.shape == (4, 9)
    assert "| cost l1 | 3.5 | 3 to 4 | 2 |" in report.to_markdown()
    assert "<table" in report.to_html()
    content = json.loads(report.to_json())
    assert content["metrics"]["cost l1"] == {"mean": 3.5, "low": 3.0, "high": 4.0, "rows": 2}
    assert content["about"]["method"] == "Test()"
    groups = report.table(by=["a", "a", "b", "b"])
    assert groups.loc[("b", "validity"), "mean"] == 0
    assert "cost l1" in repr(report)


def test_bootstrap_interval_covers_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for i in range(200):
        low, high = interval(rng.normal(5, 2, 60), 0.9, seed=i)
        inside += low <= 5 <= high
    # 90 % of 200 is 180; four standard errors are 17.
    assert 163 <= inside <= 197
    assert all(np.isnan(interval(np.zeros(0), 0.95)))


def test_report_of_nothing() -> None:
    empty = Report(pd.DataFrame({"cost": pd.Series(dtype=float)}))
    assert json.loads(empty.to_json())["metrics"]["cost"] == {
        "mean": None,
        "low": None,
        "high": None,
        "rows": 0,
    }


def test_evaluate_refuses_outcomes_that_are_no_classes_and_half_of_the_data() -> None:
    X = pd.DataFrame({"money": [200.0, 100.0], "years": [4, 4], "home": ["own", "own"]})
    good = evaluate(four_answers(), X, ["yes", "no"])
    assert good.table().loc["distance to data", "rows"] == 2
    for wrong in (["Yes", "no"], [1, 0]):
        with pytest.raises(hf.HoldfastError, match="the model has no class"):
            evaluate(four_answers(), X, wrong)
    for half in ({"X": X}, {"y": ["yes", "no"]}):
        with pytest.raises(hf.HoldfastError, match="pass both X and y"):
            evaluate(four_answers(), **half)
