"""Adversarial training and recourse: a small run end to end, and what the committed results say."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.krishna2024 import bounds, claims, curves, experiment, setup
from experiments.krishna2024.claims import CLAIMS, ONLY, tally, verdicts
from experiments.krishna2024.experiment import EXPERIMENT, ROWS
from experiments.krishna2024.page import pictures
from experiments.krishna2024.setup import KINDS, SETTINGS, methods
from experiments.run import reproduce
from holdfast.methods._autoencoder_training import autoencoder
from support.committed import committed_results

RESULTS = committed_results("krishna2024")
CASES = {(c, k) for c in CLAIMS for k in KINDS if ONLY.get(c, k) == k}


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few epochs, shapes and draws."""
    for name, setting in SETTINGS.items():
        monkeypatch.setitem(SETTINGS, name, replace(setting, epochs=3))
    for module, few in {
        curves: {"DRAWS": 5, "NEIGHBOURS": 10},
        bounds: {"NTK_ROWS": 60, "GD_STEPS": 20},
        setup: {"SCFE_STEPS": 5, "autoencoder": partial(autoencoder, batch_size=1000, patience=1)},
    }.items():
        for name, value in few.items():
            monkeypatch.setattr(module, name, value)
    for module in (experiment, claims, curves):
        monkeypatch.setattr(module, "EPSILONS", (0.0, 0.1, 0.3))
    for module in (claims, curves):
        monkeypatch.setattr(module, "DEPTHS", (1, 2))
        monkeypatch.setattr(module, "WIDTHS", (1,))


def test_a_small_run_end_to_end(data_dir: Path, brief: None, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "out": tmp_path / "out",
        "work": tmp_path / "work",
        "models": 1,
        "rows": 4,
    }
    alone = replace(EXPERIMENT, workers=1)
    (found,) = reproduce(alone, ["compas"], **settings)
    shape = (len(methods()), 3)
    for kind in KINDS:
        for key in (
            "validity",
            "cost",
            "extra cost",
            "survives",
            "noise",
            "validity, twice the budget",
        ):
            assert np.array(found["curves"][kind][key], dtype=float).shape == shape, key
        curve = found["curves"][kind]
        assert np.array(curve["attacked by seed"]).shape == (3, 1)
        assert np.array(curve["extra cost by seed"], dtype=float).shape == (*shape, 1)
        judged = np.array(curve["judged"])
        assert judged.shape == (3, 1, 3)
        assert (judged[..., 0] >= judged[..., 1]).all()
        assert judged[0].sum() == 0  # the plain model is not compared with itself
    assert [len(marks) for marks in found["granted"]] == [11] * 3
    assert {(line["claim"], line["model"]) for line in verdicts(found)} == CASES
    page = (tmp_path / "out/krishna2024/README.md").read_text()
    assert all(f"{number}. {text}" in page for number, text in CLAIMS.items())
    assert {path.name for path in (tmp_path / "out/krishna2024").glob("*.svg")} == set(
        pictures([found])
    )
    assert len(pictures([found])) == 5
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}
    assert len(stamps) == 7
    (again,) = reproduce(alone, ["compas"], **settings)
    assert verdicts(again) == verdicts(found)
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}


# ---- the committed results


def test_every_claim_has_a_verdict_on_every_dataset_and_kind_of_model() -> None:
    for found in RESULTS.values():
        assert found["models"] == EXPERIMENT.models
        assert found["rows"]["asked"] == ROWS
        assert {(line["claim"], line["model"]) for line in verdicts(found)} == CASES


def test_drifts_lie_below_their_lemmas() -> None:
    for found in RESULTS.values():
        for line in found["linear bounds"]:
            assert line["drift"] <= line["Lemma 1"]
        for line in found["ntk bounds"]:
            assert line["drift"] <= line["Lemma 2"]


def test_theorem_4_is_about_linear_models_and_holds_on_all_four_data_sets() -> None:
    assert tally([*RESULTS.values()])[f"5. {CLAIMS['5']}"] == "4 of 4 cases"


def test_a_full_run_took_at_most_45_minutes() -> None:
    assert sum(found["seconds"]["this call"] for found in RESULTS.values()) <= 45 * 60
