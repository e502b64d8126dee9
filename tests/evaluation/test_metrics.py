"""Each metric against a number worked out by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.counterfactuals import Counterfactuals
from holdfast.evaluation.metrics import (
    cost,
    distance_to_data,
    outlier_factor,
    probability,
    sparsity,
    validity,
)
from support.four_answers import AFTER, BEFORE, SCHEMA, four_answers


def values(series: "pd.Series[float]") -> list[float | None]:
    return [None if pd.isna(v) else round(float(v), 6) for v in series]


def test_costs_by_hand() -> None:
    """Paper: krishna2024 Metric cost."""
    cfs = four_answers()
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
    with pytest.raises(hf.HoldfastError, match="norm must be 'l0', 'l1'"):
        cfs.cost("l11")
    with pytest.raises(hf.HoldfastError, match="units"):
        cfs.cost("l1", units="miles")


def test_validity_sparsity_probability_by_hand() -> None:
    """Paper: krishna2024 Metric validity."""
    cfs = four_answers()
    assert values(validity(cfs)) == [1, 1, 0, None]
    assert values(sparsity(cfs)) == [round(1 / 3, 6), round(2 / 3, 6), None, None]
    assert values(probability(cfs)) == [
        round(1 / (1 + np.exp(-2)), 6),
        round(1 / (1 + np.exp(-1)), 6),
        None,
        None,
    ]


def test_distance_to_data_by_hand() -> None:
    cfs = four_answers()
    X = pd.DataFrame(
        {"money": [200.0, 100.0, 200.0], "years": [4, 4, 10], "home": ["own", "own", "own"]}
    )
    y = pd.Series(["yes", "yes", "yes"])
    # Row 0 (2, 2, own): distances 0, 2, 3. Row 1 (2, 4, own): 2, 4, 1.
    assert values(distance_to_data(cfs, X, y)) == [0, 1, None, None]
    assert values(distance_to_data(cfs, X, y, nearest=2)) == [1, 1.5, None, None]
    assert values(distance_to_data(cfs, X, y, nearest=None)) == [
        round(5 / 3, 6),
        round(7 / 3, 6),
        None,
        None,
    ]
    assert values(distance_to_data(cfs, X, pd.Series(["no"] * 3))) == [None] * 4
    with pytest.raises(hf.HoldfastError, match="as many outcomes as rows, got 2 for 3"):
        distance_to_data(cfs, X, y[:2])


def test_outlier_factor_knows_inside_from_outside() -> None:
    cfs = four_answers()
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"money": rng.normal(200, 5, 200), "years": rng.integers(3, 6, 200), "home": ["own"] * 200}
    )
    lof = outlier_factor(cfs, X, pd.Series(["yes"] * 200))
    assert 0.8 < lof[0] < 1.3
    assert lof[1] > 3


def test_outcomes_that_are_no_classes_are_refused() -> None:
    X = pd.DataFrame({"money": [200.0, 100.0], "years": [4, 4], "home": ["own", "own"]})
    for metric in (distance_to_data, outlier_factor):
        with pytest.raises(
            hf.HoldfastError, match="the model has no class 'Yes'; did you mean 'yes'"
        ):
            metric(four_answers(), X, ["Yes", "no"])
        with pytest.raises(hf.HoldfastError, match="the model has no class nan"):
            metric(four_answers(), X, pd.Series([None, "no"]))
        # any column of outcomes will do
        assert len(metric(four_answers(), X, np.array(["yes", "no"]))) == 4


def test_the_module_shows_metrics_and_nothing_else() -> None:
    for module in (hf.metrics, hf.plausibility):
        assert dir(module) == sorted(module.__all__)
        for name in dir(module):
            assert callable(getattr(module, name))
            assert getattr(module, name).__doc__
    names = "cost distance_to_data estimate outlier_factor probability sparsity validity"
    assert " ".join(dir(hf.metrics)) == names


# ---- the result itself


def test_changes_are_tidy_and_in_order() -> None:
    cfs = replace(
        four_answers(), after=AFTER.set_axis(list("abcd")), before=BEFORE.set_axis(list("abcd"))
    )
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
