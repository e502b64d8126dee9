"""DeDUCE: a small run end to end, and what was committed."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from experiments.hoeltgen2021 import reported, setup, study
from experiments.hoeltgen2021.experiment import EXPERIMENT
from experiments.hoeltgen2021.outcomes import LOOSE, findings
from experiments.hoeltgen2021.pictures import pictures
from experiments.hoeltgen2021.reported import METHODS
from experiments.hoeltgen2021.setup import ABLATION, SETTINGS, questions
from experiments.run import reproduce
from holdfast.errors import HoldfastError
from support.committed import committed_results

ALONE = replace(EXPERIMENT, workers=1)


@pytest.fixture
def brief_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few images, small networks, hardly any training."""
    short = {"epochs": 2, "width": 4, "batch_size": 64}
    small = replace(
        SETTINGS["digits"],
        images=4,
        common=(1, 3),
        again=3,
        alone=2,
        ablation=1,
        tuning=1,
        limits=(5, 5, 5),
        spectral=short | {"coefficient": 4.0},
        plain=short,
        autoencoder={"epochs": 1},
        vae={"epochs": 1, "latent": 4},
        gan={"updates": 3, "width": 4, "latent": 4},
        vlk={"steps": 5, "bisections": 2},
        judged=4,
        compared=20,
        revise={"lam": 1.0, "optimizer": "adam", "step": 0.1, "max_iter": 5},
        anogan={"steps": 3, "restarts": 2},
    )
    monkeypatch.setitem(SETTINGS, "digits", small)
    for method in ("DeDUCE", "JSMA"):
        monkeypatch.setattr(hf.images, method, partial(getattr(hf.images, method), max_iter=20))


def test_a_small_run_end_to_end(brief_run: None, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"out": tmp_path / "out", "work": tmp_path / "work", "models": 2}
    (found,) = reproduce(ALONE, ["digits"], **settings)
    assert found["pairs"] == {
        "all": 72,
        "common": 36,
        "sets": 2,
        "images": 4,
        "common images": [1, 3, 5, 7],
    }
    for what in ("same", "mixed"):
        assert list(found["table 1"][what]["common pairs"]["conditioned"]) == list(METHODS)
        assert list(found["table 1"][what]["all pairs"]["unconditioned"]) == ["DeDUCE", "JSMA"]
        assert [i for i, _, _ in found["table 3"][what]["pairs"]] == [1, 3]
    rows = found["table 1"]["same"]["common pairs"]["unconditioned"]
    assert {"AGAN", "L0", LOOSE, "L1", "failure %", "pairs"} <= set(rows["VLK"])
    assert list(found["table 4"]["unconditioned"]) == list(ABLATION)
    assert len(found["table 5"]["unconditioned"]) == len(reported.TABLE_5)
    assert {len(values) for values in found["by target"].values()} == {10}
    assert set(found["auroc"]) == {"anogan", "reconstruction", "log_density"}
    assert not any(n for counts in found["promises"].values() for n in counts.values())
    assert len(found["promises"]) == 2 * 3 + len(ABLATION) + 7
    assert found["findings"] == findings(found)
    written = tmp_path / "out/hoeltgen2021"
    assert json.loads((written / "digits.json").read_text(), parse_constant=pytest.fail) == found
    page = (written / "README.md").read_text()
    assert all(line["finding"] in page for line in found["findings"])
    assert {p.name for p in written.glob("*.svg")} == set(pictures([found]))
    assert len(pictures([found])) == 3
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}
    assert len(stamps) == 5 + 2 + len(questions(SETTINGS["digits"], 2, 4)) + 1 + 7 + 9
    (again_,) = reproduce(ALONE, ["digits"], **settings)  # everything is there
    assert {k: v for k, v in again_.items() if k != "seconds"} == {
        k: v for k, v in found.items() if k != "seconds"
    }
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}


def test_a_broken_promise_ends_the_run(
    brief_run: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(study, "promises", lambda *_: {"bounds": 2})
    monkeypatch.setattr(setup, "in_other_company", no_repeats)
    with pytest.raises(HoldfastError, match=r"DeDUCE spectral 0: bounds \(2\)"):
        reproduce(ALONE, ["digits"], out=tmp_path / "out", work=tmp_path / "work", models=1, rows=2)
    assert not (tmp_path / "out").exists()


def no_repeats(*_: Any) -> Any:
    return {"names": np.zeros(0, str), "counts": np.zeros(0), "took": np.zeros(1)}


# ---- the committed results


def test_the_committed_findings_are_those_of_the_figures() -> None:
    for found in committed_results("hoeltgen2021").values():
        assert found["findings"] == findings(found)
        assert found["models"] == EXPERIMENT.models
        assert found["pairs"]["all"] == 4500
        assert found["pairs"]["common"] == 270
        assert not any(n for counts in found["promises"].values() for n in counts.values())
