"""The bench of counterfactual training: its data, its statements, and what the committed results say."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.altmeyer2025 import experiment as altmeyer2025
from experiments.altmeyer2025 import grid as altmeyer2025_grid
from experiments.altmeyer2025 import setup as altmeyer2025_parts
from experiments.altmeyer2025.experiment import LABELS
from experiments.altmeyer2025.findings import checked
from experiments.altmeyer2025.pictures import names, network, stored
from experiments.altmeyer2025.reported import ACCURACY, EARLIER, LATER
from experiments.altmeyer2025.setup import (
    CURVE,
    GUARDED,
    PICTURED,
    PLANES,
    SETTINGS,
    UNHARMED,
    Task,
    judge,
    main_table,
    prepare,
    taught,
    weights,
)
from experiments.run import run_paper, write_page
from holdfast.evaluation.attacks import attacked_accuracy
from holdfast.evaluation.compare import ATTACKS
from holdfast.models.base import Model

ROOT = Path(__file__).parents[2]
RESULTS = {p.stem: json.loads(p.read_text()) for p in (ROOT / "experiments/results/altmeyer2025").glob("*.json")}


# ---- what is reported


def test_the_tables_are_copied_right() -> None:
    """Their means over the nine datasets are printed too."""
    assert set(LATER) == set(EARLIER) == set(ACCURACY) == set(SETTINGS)
    for table, printed in ((LATER, (15.64, 25.29, 18.49)), (EARLIER, (17.83, 38.35, 19.07))):
        for i, mean in enumerate(printed):
            assert np.mean([line[i][0] for line in table.values()]) == pytest.approx(mean, abs=0.01)


# ---- data


@pytest.mark.parametrize("name", PLANES)
def test_planes(name: str) -> None:
    task = prepare(name)
    assert (len(task.X), len(task.test_X), task.width) == (3000, 600, 2)
    assert task.protected == ("x1",)
    x = task.schema.encode(task.X, torch.float64).numpy()
    assert np.allclose(x, task.X.to_numpy())  # in units of their own
    for feature in task.schema.features:
        values = task.X[feature.name]
        low, high = feature.seen
        assert low == pytest.approx(min(values.mean() - 2 * values.std(), values.min()))
        assert high == pytest.approx(max(values.mean() + 2 * values.std(), values.max()))
    assert set(task.X.index).isdisjoint(task.test_X.index)


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in PLANES])
def test_tables_and_images(name: str, data_dir: Path) -> None:
    task, setting = prepare(name), SETTINGS[name]
    assert (len(task.X), len(task.test_X)) == (setting.train, setting.test)
    assert set(task.X.index).isdisjoint(task.test_X.index)
    assert set(task.test_y) <= set(task.y)
    held = task.guarded.encoding().fixed
    assert int(held.sum()) == (2 * 5 * 28 if name == "mnist" else 1)
    x = task.schema.encode(task.X, torch.float64)
    if name == "mnist":
        assert (float(x.min()), float(x.max())) == (-1.0, 1.0)
    else:
        numbers = ~task.schema.encoding().one_hot
        assert torch.allclose(x[:, numbers].mean(0), torch.zeros(int(numbers.sum())).double(), atol=1e-6)
        assert task.y.map({v: i for i, v in enumerate(sorted(set(task.y)))}).mean() > 0.2


def test_housing_has_eight_numbers_and_the_age_is_the_second(data_dir: Path) -> None:
    task = prepare("california_housing")
    assert list(task.X.columns).index("housing_median_age") == 1
    assert task.width == task.schema.width == 8
    assert task.X["people"].median() == pytest.approx(2.8, abs=0.2)  # in a household


# ---- statements


def result(**changes: Any) -> dict[str, Any]:
    """Moons, where every statement holds."""
    line = {"of means": 20.0, "reduction": 19.0, "significant": True}
    generators = [
        {"generator": kind, "steps": steps, "energy": 5.0, "reduction": best + steps / 10}
        for kind, best in (("ECCCo", 20.0), ("Generic", 15.0), ("REVISE", 5.0))
        for steps in altmeyer2025_grid.ITERATIONS
    ]
    settings = [{"setting": "l_reg", "value": v, "size": 1e4 if v == 0 else 3.0} for v in (0.0, 0.25)]
    found = {
        "dataset": "moons",
        "measured": {"implausibility": line, "cost, protected": line},
        "accuracy": {"plain": 1.0, "full": 0.995},
        "l_reg": 0.25,
        "grid": {"generators": generators, "settings": settings, "burn-in": {"reduction": 4.0}},
        "theory": {"plain": [1.0, 1.1], "protected": [0.5, 0.6]},
    }
    return found | changes


def figure(percent: float, sure: bool) -> dict[str, Any]:
    return {"of means": percent, "reduction": 1.0, "significant": sure}


def failed(found: dict[str, Any]) -> list[str]:
    return [line["statement"] for line in checked(found) if not line["holds"]]


def test_what_holds_is_said_to_hold() -> None:
    lines = checked(result())
    assert len(lines) == 8
    assert failed(result()) == []


@pytest.mark.parametrize(
    ("change", "statement"),
    [
        ({"measured": {"implausibility": figure(31.0, True)}}, "Implausibility"),
        ({"measured": {"implausibility": figure(20.0, False)}}, "Implausibility"),
        ({"measured": {"cost, protected": figure(-1.0, True)}}, "Cost"),
        ({"accuracy": {"plain": 1.0, "full": 0.98}}, "Accuracy"),
        ({"theory": {"plain": [1.0, 0.4], "protected": [0.5, 0.6]}}, "Linear"),
    ],
)
def test_what_fails_is_said_to_fail(change: dict[str, Any], statement: str) -> None:
    found = result()
    for key, value in change.items():
        found[key] = found[key] | value
    (only,) = failed(found)
    assert only.startswith(statement)


def test_grids_that_say_otherwise() -> None:
    found = result()
    for line in found["grid"]["generators"]:
        line["reduction"] *= -1
    assert set(failed(found)) == {"ECCCo beats Generic beats REVISE as a generator", "More iterations help"}
    found = result()
    found["grid"]["settings"][0]["size"] = 8.0  # not three times as large
    found["grid"]["burn-in"]["reduction"] = -0.1
    told = failed(found)
    assert told[0] == "Without a ridge energies diverge"
    assert told[1].startswith("Half of the epochs")


# ---- a small run


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (altmeyer2025, altmeyer2025_grid):
        monkeypatch.setattr(module, "EPOCHS", 2)
        monkeypatch.setattr(module, "ROUNDS", 2)
    monkeypatch.setattr(altmeyer2025, "WORKERS", 1)
    monkeypatch.setattr(altmeyer2025_parts, "LEANS", {"repeats": 2, "points": 3})
    monkeypatch.setattr(altmeyer2025_grid, "LINEAR_EPOCHS", 2)


def test_a_small_run_end_to_end(brief: None, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"out": tmp_path / "out", "work": tmp_path / "work", "models": 1, "rows": 8}
    blobs, found = run_paper("altmeyer2025", ["linearly_separable", "overlapping"], **settings)
    assert list(found["accuracy"]) == LABELS
    assert len(found["grid"]["generators"]) == 3 * 5 + 2 * 3
    assert len(found["grid"]["settings"]) == 15
    assert len(blobs["placements"]) == len(altmeyer2025_grid.MOVED)
    assert [len(found["theory"][key]) for key in ("plain", "protected")] == [10, 10]
    page = (tmp_path / "out/altmeyer2025/README.md").read_text()
    assert all(line["statement"] in page for line in found["statements"])
    assert {p.stem for p in (tmp_path / "out/altmeyer2025").glob("*.svg")} == set(names([blobs, found]))
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}
    (again,) = run_paper("altmeyer2025", ["overlapping"], **settings)
    assert again["statements"] == found["statements"]
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}


def fgsm_by_hand(model: Model, task: Task, epsilon: float) -> float:
    """Accuracy on test rows moved by epsilon along the sign of the gradient of the cross-entropy."""
    x = task.schema.encode(task.test_X).requires_grad_()
    y = torch.tensor([list(model.classes).index(label) for label in task.test_y])
    torch.nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
    assert x.grad is not None
    said = model(x.detach() + epsilon * x.grad.sign()).argmax(1)
    return float((said == y).double().mean())


def test_attacked_accuracies_stand_under_their_own_epsilon(brief: None) -> None:
    """Every label of the curves, attacked again epsilon by epsilon; and the column of the page."""
    name = "overlapping"
    task, setting = prepare(name), replace(SETTINGS[name], asked=4)
    cell = main_table(task, setting, 1, 1, 1, 0)
    told = altmeyer2025.attacked(cell["curves"].mean(0))
    assert list(told) == LABELS
    free, held = (taught(task, setting, 1, 1, 0, guarded=guarded) for guarded in (False, True))
    for label in LABELS:
        model = (held if label == GUARDED else free).member(label)
        unharmed = float((model.predict(task.test_X) == task.test_y).mean())
        assert cell["curves"][0, LABELS.index(label), CURVE.index(UNHARMED)] == pytest.approx(unharmed)
        fgsm = [fgsm_by_hand(model, task, epsilon) for epsilon in ATTACKS]
        pgd = [
            float(attacked_accuracy(model, task.test_X, task.test_y, epsilon=e, steps=40, step_size=0.01 / e, box=False))
            for e in ATTACKS[1:]
        ]
        assert len(set(fgsm)) >= 5  # else any order would do
        assert told[label]["FGSM"] == pytest.approx(fgsm, abs=1e-4)
        assert told[label]["PGD"] == pytest.approx([unharmed, *pgd], abs=1e-4)


def test_seeds_trained_apart_are_those_trained_together() -> None:
    task, setting = prepare("moons"), SETTINGS["moons"]
    both = taught(task, setting, 1, 2, 5)
    second = taught(task, setting, 1, 1, 6)
    for (w, b), (w1, b1) in zip(weights(both.member("full", 1)), weights(second.member("full")), strict=True):
        torch.testing.assert_close(w, w1, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(b, b1, rtol=1e-4, atol=1e-5)


def test_a_pictured_network_is_the_one_that_was_trained() -> None:
    task = prepare("moons")
    model = taught(task, SETTINGS["moons"], 1, 1, 0).member("full")
    kept = stored(altmeyer2025_parts.pictured(dict.fromkeys(PICTURED, model), task))
    again = network(kept[GUARDED], task, list(model.classes))
    x = task.schema.encode(task.test_X)
    torch.testing.assert_close(again(x), model(x), rtol=0, atol=1e-3)
    assert judge().tau == 0.95


def test_pixels_survive_a_file() -> None:
    values = np.linspace(-1, 1, 4 * 3 * 784).reshape(4, 3, 784)
    kept = stored(values)
    assert list(kept) == ["rows", *PICTURED]
    assert json.loads(json.dumps(kept)) == kept


# ---- the committed results


def test_the_committed_page_is_what_the_results_say(tmp_path: Path) -> None:
    assert set(RESULTS) == set(SETTINGS)
    (tmp_path / "altmeyer2025").mkdir()
    for name, found in RESULTS.items():
        (tmp_path / "altmeyer2025" / f"{name}.json").write_text(json.dumps(found))
    page = write_page("altmeyer2025", tmp_path).read_text()
    assert page == (ROOT / "experiments/results/altmeyer2025/README.md").read_text()


def test_the_committed_accuracies_fall_as_attacks_grow() -> None:
    """A curve in another order would rise somewhere; and the page has the accuracy of the epsilon that it names."""
    page = (ROOT / "experiments/results/altmeyer2025/README.md").read_text()
    table = page[page.index("## Networks") :]
    assert "FGSM 0.033, plain" in table
    for found in RESULTS.values():
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
    for found in RESULTS.values():
        assert found["models"] >= 5
        assert found["epochs"] == altmeyer2025.EPOCHS
        assert found["statements"] == checked(found)
