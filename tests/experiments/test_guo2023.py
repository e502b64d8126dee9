"""The bench of RoCourseNet: its subsets, what it measures, and that a run leaves figures beside the reported ones."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.guo2023 import curves as guo2023_curves
from experiments.guo2023 import experiment as guo2023
from experiments.guo2023 import setup as guo2023_parts
from experiments.guo2023.reported import REPORTED
from experiments.guo2023.setup import AUTHORS, KEPT, OURS, SETTINGS, Task, crossed, figures, harden, prepare
from experiments.run import run_paper, write_page
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema

ROOT = Path(__file__).parents[2]


def bits() -> Task:
    """The unit case: two models, f1 = x[0] and f2 = x[2], answers that flip the column their model looks at."""
    x = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 0.0]])
    schema = Schema(tuple(Feature(name, seen=(0.0, 1.0)) for name in "abc"))
    rows = [torch.arange(4), torch.arange(4, 8)]
    return Task(("1", "2"), x, torch.zeros(8).long(), rows, rows, schema, schema.encoding())


def test_the_validity_matrix_of_two_models_that_look_at_other_columns() -> None:
    looks = torch.tensor([0, 2])

    def answers(i: int, x: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        out[:, looks[i]] = 1 - out[:, looks[i]]
        return out

    cell = crossed(bits(), 1, lambda models, x: x[:, looks[models]].T > 0.5, answers)
    np.testing.assert_allclose(cell["V"][0], [[1, 0.5], [0.75, 1]])
    np.testing.assert_allclose(cell["cost"], [[1, 1]])
    found = figures(cell)
    assert found["validity"] == [1.0, 0.0]
    assert found["robust validity"] == [0.625, 0.125]  # of all values, not of a sample
    assert found["next subset"][0] == 0.5
    assert found["proximity"] == [1.0, 0.0]


def test_an_answer_has_one_level_per_category_and_numbers_in_the_range_of_the_data() -> None:
    schema = Schema(
        (
            Feature("a", seen=(0.0, 1.0)),
            Feature("c", kind="category", levels=("x", "y", "z")),
            Feature("b", seen=(0.0, 1.0)),
        )
    )
    task = replace(bits(), schema=schema, layout=schema.encoding())
    raw = torch.tensor([[1.7, 0.2, 3.0, -1.0, -0.4]])
    assert harden(raw, task).tolist() == [[1.0, 0.0, 1.0, 0.0, 0.0]]
    torch.testing.assert_close(harden(raw, task, clamp=False), torch.tensor([[1.7, 0.0, 1.0, 0.0, -0.4]]))


@pytest.mark.parametrize(
    ("name", "columns", "train", "test"),
    [("german_credit", 19, [750, 750], [250, 250]), ("student", 83, [317, 170], [106, 56])],
)
def test_subsets_are_those_of_the_paper(
    data_dir: Path, name: str, columns: int, train: list[int], test: list[int]
) -> None:
    task = prepare(name)
    assert task.x.shape[1] == columns
    assert [len(rows) for rows in task.train] == train
    assert [len(rows) for rows in task.test] == test
    assert float(task.x.min()) == 0
    assert float(task.x.max()) == 1
    back = task.schema.encode(task.schema.decode(task.x))
    torch.testing.assert_close(back, task.x, atol=1e-6, rtol=0)
    assert not task.layout.fixed.any()


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training that takes no time."""
    for name, setting in SETTINGS.items():
        how = replace(setting.how, epochs=2, encoder=(16, 10))
        changed = replace(setting, how=how, repeats=2, rows=8, rbr_rows=4, vae_samples=2, curve_share=0.2)
        monkeypatch.setitem(SETTINGS, name, changed)
    for name, value in {
        "T_STEPS": (1, 2), "E_STEPS": (0.1,), "TRAIN_T": (1,), "TRAIN_E": (0.1,), "L3": (0.1, 1.0), "LAM": (0.5,),
        "RADII": (0.5,), "SHARES": (0.2,), "FEW": 3, "ATTACKED_ROWS": 130,
    }.items():  # fmt: skip
        monkeypatch.setattr(guo2023_curves, name, value)


def test_a_simulated_shift_is_measured_and_goes_on_where_it_stopped(brief: None, tmp_path: Path) -> None:
    said = list[str]()
    (result,) = run_paper("guo2023", ["covariate_shift"], out=tmp_path, work=tmp_path / "work", said=said.append)
    assert set(result["measured"]) == {
        "CounterNet",
        KEPT,
        AUTHORS,
        "RoCourseNet-Random",
        "CounterNet, trained as ours",
        OURS,
    }
    assert np.array(result["measured"][OURS]["matrix"]).shape == (2, 2)
    assert len(result["measured"][OURS]["robust validity by repeat"]) == 2
    assert result["reported"]["tables"] == REPORTED["covariate_shift"]
    stored = json.loads((tmp_path / "guo2023" / "covariate_shift.json").read_text())
    assert stored["measured"] == result["measured"]
    assert "covariate_shift" in (tmp_path / "guo2023" / "README.md").read_text()
    again = list[str]()
    run_paper("guo2023", ["covariate_shift"], out=tmp_path, work=tmp_path / "work", said=again.append)
    assert said
    assert not again


def test_a_dataset_has_every_method_and_every_curve(data_dir: Path, brief: None, tmp_path: Path) -> None:
    (result,) = run_paper("guo2023", ["german_credit"], out=tmp_path, work=tmp_path / "work", models=1)
    assert set(REPORTED["sba_loan"]) <= set(result["measured"])
    for row in result["measured"].values():
        assert 0 <= row["robust validity"][0] <= 1
        assert np.isfinite(row["proximity"]).all()
    assert set(result["prediction"]) >= {"base", "CounterNet", OURS}
    assert set(result["curves"]) == {"attack", "training", "trade-off", "data size"}
    assert {p["kind"] for p in result["curves"]["attack"]} == {"T", "E", "T, l2 ball"}
    assert {p["method"] for p in result["curves"]["trade-off"]} == {"CounterNet", OURS, "ROAR-LIME", "RBR"}
    page = (tmp_path / "guo2023" / "README.md").read_text()
    assert "Curves: german_credit" in page
    assert (tmp_path / "guo2023" / "german_credit-trade-off.svg").is_file()


def test_training_is_the_papers_where_it_is_said_to_be() -> None:
    methods = guo2023_parts.joint_methods(SETTINGS["sba_loan"])
    assert methods["CounterNet"].shift is None
    kept, softmax, ours = methods[KEPT], methods[AUTHORS], methods[OURS]
    assert (kept.encoder, kept.predictor, kept.generator) == ((200, 10), (10,), (10,))
    assert (softmax.lr, softmax.batch_size, softmax.epochs, softmax.dropout) == (0.003, 128, 50, 0.3)
    assert (kept.l1, kept.l2, kept.l3) == (1.0, 0.2, 0.1)
    assert kept.shift is not None
    assert softmax == replace(kept, epochs=50, shift=replace(kept.shift, categories="softmax"))
    assert (kept.shift.outer, kept.shift.inner, kept.shift.epsilon, kept.shift.eta) == (7, 2, 0.1, 0.03)
    assert not kept.condition_on_target
    assert not kept.clip_to_data
    assert not kept.hard_categories
    assert ours.condition_on_target
    assert ours.clip_to_data
    assert ours.hard_categories
    assert guo2023.QUICK in SETTINGS


# ---- the committed results


RESULTS = {path.stem: json.loads(path.read_text()) for path in (ROOT / "experiments/results/guo2023").glob("*.json")}
ABLATION = "CounterNet, trained as ours"


def test_the_committed_page_is_what_the_results_say(tmp_path: Path) -> None:
    assert set(RESULTS) == set(SETTINGS)
    (tmp_path / "guo2023").mkdir()
    for name, result in RESULTS.items():
        (tmp_path / "guo2023" / f"{name}.json").write_text(json.dumps(result))
    page = write_page("guo2023", tmp_path).read_text()
    assert page == (ROOT / "experiments/results/guo2023/README.md").read_text()


@pytest.mark.parametrize(("name", "least"), [("sba_loan", 0.96), ("german_credit", 0.96), ("student", 0.99)])
def test_recourse_learnt_with_the_model_holds_best_on_the_models_of_other_subsets(name: str, least: float) -> None:
    measured = RESULTS[name]["measured"]
    ours = measured[OURS]["numbers not clamped"]
    assert ours["robust validity"][0] >= least
    assert ours["validity"][0] >= 0.97
    for label, row in measured.items():
        if label not in (OURS, ABLATION):  # the same training without the attack is ours as well
            assert row["numbers not clamped"]["robust validity"][0] <= ours["robust validity"][0], label
    right = RESULTS[name]["prediction"]
    assert abs(right[OURS]["accuracy"][0] - right["base"]["accuracy"][0]) <= 0.01


@pytest.mark.parametrize("name", guo2023_parts.SIMULATED)
def test_simulated_shifts_break_nothing(name: str) -> None:
    for row in (RESULTS[name]["measured"][OURS], RESULTS[name]["measured"][OURS]["numbers not clamped"]):
        assert row["validity"][0] >= 0.995
        assert row["robust validity"][0] >= 0.995


def test_both_ways_with_categories_were_run_and_no_figure_is_missing() -> None:
    for name, result in RESULTS.items():
        for label in (KEPT, AUTHORS, OURS, "CounterNet", "RoCourseNet-Random"):
            assert np.isfinite(result["measured"][label]["matrix"]).all(), (name, label)
