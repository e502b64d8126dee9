"""Each metric against a number worked out by hand."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast import evaluate as shortcut
from holdfast.counterfactuals import Counterfactuals, Run
from holdfast.evaluation.metrics import confidence, cost, distance_to_data, evaluate, outlier_factor, sparsity, validity
from holdfast.evaluation.report import Report, interval
from holdfast.target import BoundTarget, Status

SCHEMA = hf.Schema(
    (
        hf.Feature("money", center=100.0, scale=50.0, weight=2.0),
        hf.Feature("years", "integer", scale=2.0),
        hf.Feature("home", "category", levels=("rent", "own"), weight=3.0),
    )
)
BEFORE = pd.DataFrame(
    {"money": [100.0, 200.0, 50.0, 80.0], "years": [4, 2, 6, 1], "home": ["rent", "own", "rent", "own"]}
)
AFTER = pd.DataFrame(
    {"money": [200.0, 200.0, 50.0, 80.0], "years": [4, 8, 6, 1], "home": ["own", "own", "rent", "own"]}
)


def made() -> Counterfactuals:
    """Row 0: money +2 encoded and another home; row 1: years +3 encoded; row 2 not found; row 3 already met."""
    scores = torch.tensor([[0.0, 2.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]])
    run = Run("Test", "Test()", "yes", 0, 0.5, "m", "s", "0", "now")
    codes = np.array([Status.FOUND, Status.FOUND, Status.NOT_FOUND, Status.ALREADY_MET])
    goal = BoundTarget(torch.ones(4, dtype=torch.int64), 1.0, 0.0, False, 2)
    x, z = SCHEMA.encode(BEFORE), SCHEMA.encode(AFTER)
    return Counterfactuals(
        BEFORE, AFTER, x, z, scores, goal, codes, ["", "", "no", "met"], np.arange(4), SCHEMA, ("no", "yes"), run
    )


def values(series: "pd.Series[float]") -> list[float | None]:
    return [None if pd.isna(v) else round(float(v), 6) for v in series]


def test_costs_by_hand() -> None:
    cfs = made()
    # Row 0: delta = (2, 0, -1, +1); row 1: delta = (0, 3, 0, 0).
    assert values(cost(cfs, "l0")) == [2, 1, None, None]
    assert values(cost(cfs, "l1")) == [4, 3, None, None]
    assert values(cost(cfs, "l2")) == [round(6**0.5, 6), 3, None, None]
    assert values(cost(cfs, "linf")) == [2, 3, None, None]
    assert values(cost(cfs, "weighted")) == [2 * 2 + 3 * 2, 3, None, None]
    # In the user's units: 100 more money and another home (1); 6 more years.
    assert values(cost(cfs, "l1", units="raw")) == [101, 6, None, None]
    assert values(cost(cfs, "linf", units="raw")) == [100, 6, None, None]
    assert values(cfs.cost("l1")) == [4, 3, None, 0]
    with pytest.raises(hf.HoldfastError, match="did you mean 'l1'"):
        cfs.cost("l11")
    with pytest.raises(hf.HoldfastError, match="units"):
        cfs.cost("l1", units="miles")


def test_validity_sparsity_confidence_by_hand() -> None:
    cfs = made()
    assert values(validity(cfs)) == [1, 1, 0, None]
    assert values(sparsity(cfs)) == [round(1 / 3, 6), round(2 / 3, 6), None, None]
    assert values(confidence(cfs)) == [round(1 / (1 + np.exp(-2)), 6), round(1 / (1 + np.exp(-1)), 6), None, None]


def test_distance_to_data_by_hand() -> None:
    cfs = made()
    X = pd.DataFrame({"money": [200.0, 100.0, 200.0], "years": [4, 4, 10], "home": ["own", "own", "own"]})
    y = pd.Series(["yes", "yes", "yes"])
    # Row 0 (2, 2, own): distances 0, 2, 3. Row 1 (2, 4, own): 2, 4, 1.
    assert values(distance_to_data(cfs, X, y)) == [0, 1, None, None]
    assert values(distance_to_data(cfs, X, y, nearest=2)) == [1, 1.5, None, None]
    assert values(distance_to_data(cfs, X, y, nearest=None)) == [round(5 / 3, 6), round(7 / 3, 6), None, None]
    assert values(distance_to_data(cfs, X, pd.Series(["no"] * 3))) == [None] * 4
    with pytest.raises(hf.HoldfastError, match="one outcome per data row"):
        distance_to_data(cfs, X, y[:2])


def test_outlier_factor_knows_inside_from_outside() -> None:
    cfs = made()
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"money": rng.normal(200, 5, 200), "years": rng.integers(3, 6, 200), "home": ["own"] * 200})
    lof = outlier_factor(cfs, X, pd.Series(["yes"] * 200))
    assert 0.8 < lof[0] < 1.3
    assert lof[1] > 3


def test_report_means_intervals_and_forms() -> None:
    report = evaluate(made())
    assert shortcut is evaluate
    table = report.table()
    assert table.loc["validity", "mean"] == pytest.approx(2 / 3)
    assert table.loc["cost l1", "mean"] == pytest.approx(3.5)
    assert table.loc["cost l1", "rows"] == 2
    assert table.loc["cost l1", "low"] == 3
    assert table.loc["cost l1", "high"] == 4
    assert report.to_frame().shape == (4, 9)
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
    assert json.loads(empty.to_json())["metrics"]["cost"] == {"mean": None, "low": None, "high": None, "rows": 0}


# ---- the result itself


def test_changes_are_tidy_and_in_order() -> None:
    cfs = replace(made(), after=AFTER.set_axis(list("abcd")), before=BEFORE.set_axis(list("abcd")))
    assert cfs.changes().to_dict("records") == [
        {"row": "a", "feature": "money", "before": 100.0, "after": 200.0},
        {"row": "a", "feature": "home", "before": "rent", "after": "own"},
        {"row": "b", "feature": "years", "before": 2, "after": 8},
    ]
    assert cfs.status.loc["c"].tolist() == ["not found", "no"]
    assert cfs.status.loc["d", "status"] == "already met"
    assert "4 rows: 2 found, 1 already met, 1 not found" in repr(cfs)


def test_save_and_load_keep_everything(tmp_path: object) -> None:
    net = nn.Sequential(nn.Linear(4, 2))
    model = hf.Model.of(net, SCHEMA, classes=["no", "yes"])
    frame = BEFORE.astype({"years": "int8", "home": "category"}).set_axis(["p", "q", "r", "s"])
    cfs = hf.MinCost().explain(model, frame, hf.Target("yes", margin=0.2), seed=4)
    path = f"{tmp_path}/r.parquet"
    cfs.save(path)
    again = Counterfactuals.load(path)
    pd.testing.assert_frame_equal(again.after, cfs.after)
    pd.testing.assert_frame_equal(again.before, cfs.before)
    pd.testing.assert_frame_equal(again.status, cfs.status)
    assert torch.equal(again.x_cf, cfs.x_cf)
    assert torch.equal(again.scores, cfs.scores)
    assert again.run == cfs.run
    assert again.run.seed == 4
    assert again.run.version == hf.__version__
    assert again.run.model == model.fingerprint()
    assert again.schema == SCHEMA
    assert again.classes == cfs.classes
    assert values(again.cost()) == values(cfs.cost())
    assert list(again.sentences()) == list(cfs.sentences())


def test_loading_other_files_is_an_error(tmp_path: object) -> None:
    BEFORE.to_parquet(f"{tmp_path}/x.parquet")
    with pytest.raises(hf.HoldfastError, match="not written by"):
        Counterfactuals.load(f"{tmp_path}/x.parquet")
    with pytest.raises(hf.HoldfastError, match="no file"):
        Counterfactuals.load(f"{tmp_path}/y.parquet")
    (tmp_path / "z.parquet").write_text("junk")
    with pytest.raises(hf.HoldfastError, match="cannot read"):
        Counterfactuals.load(f"{tmp_path}/z.parquet")
