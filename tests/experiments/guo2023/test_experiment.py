"""RoCourseNet: a run leaves figures beside the reported ones, and what the committed results
say."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.guo2023 import curves
from experiments.guo2023.experiment import EXPERIMENT
from experiments.guo2023.reported import REPORTED
from experiments.guo2023.setup import AUTHORS, KEPT, OURS, SETTINGS, SIMULATED, UNATTACKED
from experiments.run import reproduce
from support.committed import committed_results


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training that takes no time."""
    for name, setting in SETTINGS.items():
        how = replace(setting.how, epochs=2, encoder=(16, 10))
        changed = replace(
            setting, how=how, repeats=2, rows=8, rbr_rows=4, vae_samples=2, curve_share=0.2
        )
        monkeypatch.setitem(SETTINGS, name, changed)
    for name, value in {
        "T_STEPS": (1, 2),
        "E_STEPS": (0.1,),
        "TRAIN_T": (1,),
        "TRAIN_E": (0.1,),
        "L3": (0.1, 1.0),
        "LAM": (0.5,),
        "RADII": (0.5,),
        "SHARES": (0.2,),
        "FEW": 3,
        "ATTACKED_ROWS": 130,
    }.items():
        monkeypatch.setattr(curves, name, value)


def test_a_simulated_shift_is_measured_and_goes_on_where_it_stopped(
    brief: None, tmp_path: Path
) -> None:
    first = list[str]()
    again = list[str]()
    where = {"out": tmp_path, "work": tmp_path / "work"}
    (result,) = reproduce(EXPERIMENT, ["covariate_shift"], **where, report=first.append)
    assert set(result["measured"]) == {
        "CounterNet",
        KEPT,
        AUTHORS,
        "RoCourseNet-Random",
        UNATTACKED,
        OURS,
    }
    assert np.array(result["measured"][OURS]["matrix"]).shape == (2, 2)
    assert len(result["measured"][OURS]["robust validity by repeat"]) == 2
    assert result["reported"]["tables"] == REPORTED["covariate_shift"]
    stored = json.loads((tmp_path / "guo2023" / "covariate_shift.json").read_text())
    assert stored["measured"] == result["measured"]
    assert "covariate_shift" in (tmp_path / "guo2023" / "README.md").read_text()
    reproduce(EXPERIMENT, ["covariate_shift"], **where, report=again.append)
    assert "covariate_shift/CounterNet" in first
    assert not again


def test_a_dataset_has_every_method_and_every_curve(
    data_dir: Path, brief: None, tmp_path: Path
) -> None:
    (result,) = reproduce(
        EXPERIMENT, ["german_credit"], out=tmp_path, work=tmp_path / "work", models=1
    )
    assert set(REPORTED["sba_loan"]) <= set(result["measured"])
    for row in result["measured"].values():
        assert 0 <= row["robust validity"][0] <= 1
        assert np.isfinite(row["proximity"]).all()
    assert set(result["prediction"]) >= {"base", "CounterNet", OURS}
    assert set(result["curves"]) == {"attack", "training", "trade-off", "data size"}
    assert {p["kind"] for p in result["curves"]["attack"]} == {"T", "E", "T, l2 ball"}
    assert {p["method"] for p in result["curves"]["trade-off"]} == {
        "CounterNet",
        OURS,
        "ROAR-LIME",
        "RBR",
    }
    page = (tmp_path / "guo2023" / "README.md").read_text()
    assert "Curves: german_credit" in page
    assert (tmp_path / "guo2023" / "german_credit-trade-off.svg").is_file()


# ---- the committed results


RESULTS = committed_results("guo2023")


@pytest.mark.parametrize(
    ("name", "least"), [("sba_loan", 0.96), ("german_credit", 0.96), ("student", 0.99)]
)
def test_recourse_learnt_with_the_model_holds_best_on_the_models_of_other_subsets(
    name: str, least: float
) -> None:
    measured = RESULTS[name]["measured"]
    ours = measured[OURS]["numbers not clamped"]
    assert ours["robust validity"][0] >= least
    assert ours["validity"][0] >= 0.97
    for label, row in measured.items():
        if label not in (OURS, UNATTACKED):  # the same training without the attack is ours as well
            assert row["numbers not clamped"]["robust validity"][0] <= ours["robust validity"][0], (
                label
            )
    right = RESULTS[name]["prediction"]
    assert abs(right[OURS]["accuracy"][0] - right["base"]["accuracy"][0]) <= 0.01


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_shifts_break_nothing(name: str) -> None:
    for row in (
        RESULTS[name]["measured"][OURS],
        RESULTS[name]["measured"][OURS]["numbers not clamped"],
    ):
        assert row["validity"][0] >= 0.995
        assert row["robust validity"][0] >= 0.995


def test_both_ways_with_categories_were_run_and_no_figure_is_missing() -> None:
    for name, result in RESULTS.items():
        for label in (KEPT, AUTHORS, OURS, "CounterNet", "RoCourseNet-Random"):
            assert np.isfinite(result["measured"][label]["matrix"]).all(), (name, label)
