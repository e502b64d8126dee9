"""Counterfactual training: a small run end to end, and what the committed results say."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.altmeyer2025 import experiment, grid, setup
from experiments.altmeyer2025.compare import ATTACKS
from experiments.altmeyer2025.experiment import attacked
from experiments.altmeyer2025.findings import checked
from experiments.altmeyer2025.pictures import pictures
from experiments.altmeyer2025.setup import (
    CURVE,
    EPOCHS,
    GUARDED,
    LABELS,
    SETTINGS,
    UNHARMED,
    Task,
    main_table,
    prepare,
    taught,
)
from experiments.run import reproduce
from holdfast.evaluation.attacks import attacked_accuracy
from holdfast.models.base import Model
from support.committed import RESULTS, committed_results


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "EPOCHS", 2)
    for module in (experiment, grid):
        monkeypatch.setattr(module, "ROUNDS", 2)
    monkeypatch.setattr(setup, "LEANS", {"repeats": 2, "points": 3})
    monkeypatch.setattr(grid, "LINEAR_EPOCHS", 2)


def test_a_small_run_end_to_end(brief: None, tmp_path: Path) -> None:
    """Paper: altmeyer2025 Later: ablation."""
    settings: dict[str, Any] = {
        "out": tmp_path / "out",
        "work": tmp_path / "work",
        "models": 1,
        "rows": 8,
    }
    alone = replace(experiment.EXPERIMENT, workers=1)
    blobs, found = reproduce(alone, ["linearly_separable", "overlapping"], **settings)
    assert list(found["accuracy"]) == LABELS
    assert len(found["grid"]["generators"]) == 3 * 5 + 2 * 3
    assert len(found["grid"]["settings"]) == 15
    assert len(blobs["placements"]) == len(grid.MOVED)
    assert [len(found["theory"][key]) for key in ("plain", "protected")] == [10, 10]
    page = (tmp_path / "out/altmeyer2025/README.md").read_text()
    assert all(line["statement"] in page for line in found["statements"])
    assert {p.name for p in (tmp_path / "out/altmeyer2025").glob("*.svg")} == set(
        pictures([blobs, found])
    )
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}
    (again,) = reproduce(alone, ["overlapping"], **settings)
    assert again["statements"] == found["statements"]
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}


def fgsm_by_hand(model: Model, task: Task, epsilon: float) -> float:
    """Accuracy on test rows moved by epsilon along the sign of the gradient of the
    cross-entropy."""
    x = task.schema.encode(task.test_X).requires_grad_()
    y = torch.tensor([list(model.classes).index(label) for label in task.test_y])
    torch.nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
    assert x.grad is not None
    predicted = model(x.detach() + epsilon * x.grad.sign()).argmax(1)
    return float((predicted == y).double().mean())


def test_attacked_accuracies_stand_under_their_own_epsilon(brief: None) -> None:
    """Every label of the curves, attacked again epsilon by epsilon; and the column of the page."""
    name = "overlapping"
    task = prepare(name)
    setting = replace(SETTINGS[name], rows=4)
    cell = main_table(task, setting, 1, 1, 1, 0)
    accuracies = attacked(cell["curves"].mean(0))
    assert list(accuracies) == LABELS
    free = taught(task, setting, 1, 1, 0, guarded=False)
    held = taught(task, setting, 1, 1, 0, guarded=True)
    for label in LABELS:
        model = (held if label == GUARDED else free).member(label)
        unharmed = float((model.predict(task.test_X) == task.test_y).mean())
        assert cell["curves"][0, LABELS.index(label), CURVE.index(UNHARMED)] == pytest.approx(
            unharmed
        )
        fgsm = [fgsm_by_hand(model, task, epsilon) for epsilon in ATTACKS]
        by_pgd = partial(attacked_accuracy, model, task.test_X, task.test_y, steps=40, box=False)
        pgd = [float(by_pgd(epsilon=e, step_size=0.01 / e)) for e in ATTACKS[1:]]
        assert len(set(fgsm)) >= 5  # else any order would do
        assert accuracies[label]["FGSM"] == pytest.approx(fgsm, abs=1e-4)
        assert accuracies[label]["PGD"] == pytest.approx([unharmed, *pgd], abs=1e-4)


# ---- the committed results


def test_the_committed_accuracies_fall_as_attacks_grow() -> None:
    """A curve in another order would rise somewhere; and the page has the accuracy of the epsilon
    that it names."""
    page = (RESULTS / "altmeyer2025/README.md").read_text()
    table = page[page.index("## Networks") :]
    assert "FGSM 0.033, plain" in table
    for found in committed_results("altmeyer2025").values():
        assert found["attacks"] == pytest.approx(ATTACKS, abs=1e-4)
        for label, curves in found["attacked"].items():
            for values in curves.values():
                assert values[0] == found["accuracy"][label]
                assert max(np.diff(values)) < 0.005
        third = [found["attacked"][label]["FGSM"][3] for label in ("plain", "full")]  # 3 / 90
        assert f"| {third[0]:.3f} | {third[1]:.3f} |" in next(
            line for line in table.splitlines() if line.startswith(f"| {found['title']} |")
        )


def test_the_committed_statements_are_those_of_the_figures() -> None:
    for found in committed_results("altmeyer2025").values():
        assert found["models"] >= 5
        assert found["epochs"] == EPOCHS
        assert found["statements"] == checked(found)
