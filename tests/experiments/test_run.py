"""Experiments: cells survive a kill, figures are what the definitions say, pages show what the files say."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from experiments.black2022 import experiment as black2022
from experiments.cells import Cells, Job
from experiments.run import run_paper, write_page
from holdfast.errors import SettingError

ROOT = Path(__file__).parents[2]

SLOW_CELLS = """
import sys, time
from pathlib import Path
import numpy as np
from experiments.cells import Cells
cells = Cells(Path(sys.argv[1]), {"a": 1})
for i in range(6):
    def make():
        Path(sys.argv[1], f"made-{i}").open("a").write("x")
        time.sleep(0.05 if i < 3 else 60 * (sys.argv[2] == "slow"))
        return {"value": np.arange(i + 1)}
    cells.arrays(f"cell {i}", make)
"""


def test_kill_9_loses_at_most_the_current_cell(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW_CELLS, str(tmp_path)]
    first = subprocess.Popen([*command, "slow"])
    until((tmp_path / "made-3").exists)  # the fourth cell is being made
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert len(list(tmp_path.glob("*.npz"))) == 3
    subprocess.run([*command, "quick"], check=True)
    made = {i: (tmp_path / f"made-{i}").read_text() for i in range(6)}
    assert made == {0: "x", 1: "x", 2: "x", 3: "xx", 4: "x", 5: "x"}
    again = Cells(tmp_path, {"a": 1}).arrays("cell 2", lambda: pytest.fail("the cell is there"))
    assert again["value"].tolist() == [0, 1, 2]
    assert float(again["seconds"]) >= 0.05


SLOW_WORKERS = """
import os, sys, time
from functools import partial
from pathlib import Path
from experiments.cells import Cells

def make(path):
    path.write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    jobs = [(f"cell {i}", partial(make, Path(sys.argv[1], f"pid-{i}")), None) for i in range(2)]
    Cells(Path(sys.argv[1]), {}).together(jobs, 2)
"""


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW_WORKERS)
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    files = [tmp_path / f"pid-{i}" for i in range(2)]
    until(lambda: all(f.exists() and f.read_text() for f in files))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    workers = [int(f.read_text()) for f in files]
    until(lambda: not any(running(pid) for pid in workers))
    assert not any(running(pid) for pid in workers)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return " Z " not in Path(f"/proc/{pid}/stat").read_text() if Path(f"/proc/{pid}/stat").exists() else False


def until(done: Callable[[], bool]) -> None:
    for _ in range(600):
        if done():
            return
        time.sleep(0.1)


def test_other_settings_are_other_cells_and_half_a_file_is_none(tmp_path: Path) -> None:
    def fail() -> dict[str, np.ndarray]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Cells(tmp_path, {}).arrays("x", fail)
    assert not list(tmp_path.iterdir())
    one, two = (Cells(tmp_path, {"rows": n}).arrays("x", lambda n=n: {"n": np.array(n)}) for n in (1, 2))
    assert (int(one["n"]), int(two["n"])) == (1, 2)
    assert len(list(tmp_path.glob("*.npz"))) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_cells_can_be_made_in_processes_of_their_own(workers: int, tmp_path: Path) -> None:
    said = list[str]()
    cells = Cells(tmp_path, {}, said.append)
    jobs: list[Job] = [(f"cell {i}", partial(dict, n=np.array(i)), None) for i in range(3)]
    assert [int(cell["n"]) for cell in cells.together(jobs, workers)] == [0, 1, 2]
    assert sorted(said) == ["cell 0", "cell 1", "cell 2"]
    again: list[Job] = [(name, partial(pytest.fail, "the cell is there"), None) for name, _, _ in jobs]
    assert [int(cell["n"]) for cell in cells.together(again, workers)] == [0, 1, 2]


def test_what_a_cell_is_about_makes_it_another(tmp_path: Path) -> None:
    cells = Cells(tmp_path, {"a": 1})
    one, two = (cells.arrays("x", lambda n=n: {"n": np.array(n)}, {"steps": n}) for n in (1, 2))
    assert (int(one["n"]), int(two["n"])) == (1, 2)
    again = cells.arrays("x", lambda: pytest.fail("the cell is there"), {"steps": 1})
    assert int(again["n"]) == 1


class Keys(Cells):
    """Cells that make nothing but note their files."""

    def arrays(self, name: str, make: Any, about: Any = None) -> Any:
        label = name.partition("/")[2]
        KEYS[label] = self.path(name, about).name
        if label == "accuracy":
            return {"test": np.array(0.5)}
        if label.startswith(("LOO", "RS")):
            return {"seconds": np.array(1.0), **{m: np.ones((1, 1), bool) for m in KEYS}}
        one = np.ones((1, 1))
        return {"x": 0 * one, "x_cf": one, "found": one[0] > 0, "took": one[0, 0], "seconds": one[0, 0]}


KEYS = dict[str, str]()


def keys(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> dict[str, str]:
    """The files that a run of one model would write, with other values in its module."""
    KEYS.clear()
    task = SimpleNamespace(schema=SimpleNamespace(features=()), train=(), test=())
    with monkeypatch.context() as patched:
        patched.setattr(black2022, "prepare", lambda *_: task)
        for name, value in changed.items():
            patched.setattr(black2022, name, value)
        black2022.run("german_credit", Keys(Path(), {}), models=1)
    return dict(KEYS)


def test_a_key_holds_all_that_went_into_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys(monkeypatch)
    assert len(before) == 11 + 4 + 1 + 2
    assert keys(monkeypatch) == before

    def differs(**changed: Any) -> set[str]:
        after = keys(monkeypatch, **changed)
        return {label for label in before if after[label] != before[label]}

    everything = set(before)
    assert differs(SEARCH_MODELS=11) == everything
    assert differs(SEARCH_SEED=1) == everything
    assert differs(POOL=99) == everything
    assert differs(Recipe=lambda **settings: hf.Recipe(**{**settings, "lr": 0.1})) == everything
    judged = {"LOO-0-1", "RS-0-1"}
    assert differs(Prototype=lambda: hf.Prototype(k=3)) == {"Looveren", *judged}

    def patient(**settings: Any) -> Any:
        return hf.StableNeighborSearch(**settings, steps=300)

    moved = {label for label in before if "SNS" in label}
    assert len(moved) == 6 + 2
    assert differs(StableNeighborSearch=patient) == moved | judged


def test_what_the_paper_reports_is_complete() -> None:
    for name in black2022.SETTINGS:
        reported = black2022.REPORTED[name]
        for label in ("Min l2", "Min l2 + SNS", "Min eps PGD", "Min eps PGD + SNS", "Looveren", "Pawelczyk"):
            assert {"IV LOO", "IV RS", "l2"} <= set(reported[label]), (name, label)
        for figures in reported.values():
            shares = [v for k, v in figures.items() if k.startswith("IV")]
            assert all(0 <= mean <= 1 and 0 <= sd <= 1 for mean, sd in shares)
    assert black2022.REPORTED["heloc"]["Min l2 + SNS"]["l2"] == [1.71, 0.11]
    assert "Min l1" not in black2022.REPORTED["seizure"] or "l2" not in black2022.REPORTED["seizure"]["Min l1"]


def test_summary_is_worked_out_by_hand() -> None:
    answers = {
        "Min l2": {
            "x": np.zeros((2, 2)),
            "x_cf": np.array([[3.0, 4.0], [0.0, 1.0]]),
            "found": np.array([True, True, False, True])[[0, 1, 2]],
            "took": np.array(1.0),
        }
    }
    kept = {"LOO": {"Min l2": np.array([[1, 1], [1, 0]], bool)}, "RS": {"Min l2": np.array([[0, 0], [1, 0]], bool)}}
    found = black2022.summary("heloc", answers, kept)["measured"]["Min l2"]
    assert found["success"] == pytest.approx(2 / 3)
    assert found["IV LOO"] == [0.25, 0.25]  # models lose none and one of two
    assert found["IV RS"] == [0.75, 0.25]
    assert found["l2"] == [3.0, 2.0]
    assert found["l1"] == [4.0, 3.0]
    costs, rates = {"a": np.array([0.0, 1, 2])}, {"a": np.array([0.0, 1, 1])}
    line = np.polyfit(costs["a"], rates["a"], 1)
    left = ((rates["a"] - np.polyval(line, costs["a"])) ** 2).sum() / ((rates["a"] - rates["a"].mean()) ** 2).sum()
    assert black2022.r_squared(costs, rates, ["a"]) == pytest.approx(1 - left, abs=1e-4)


def test_some_rows_of_a_method_are_worked_out_by_hand() -> None:
    found = np.array([True, False, True, True])
    answers = {"found": found, "x": np.zeros((3, 2)), "x_cf": np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 2.0]])}
    kept = np.array([[1, 0, 1], [0, 0, 1]], bool)  # two models, the three answers
    these = np.array([True, True, False, True])  # the first and the third of them
    assert black2022.on_rows(answers, these, {"RS": kept}) == {"IV RS": [0.25, 0.25], "l2": [3.5, 1.5]}


@pytest.mark.parametrize(
    ("cost", "rate"),
    [([], []), ([1.0], [0.5]), ([1.0, 1.0, 1.0], [0.0, 0.5, 1.0]), ([1.0, 2.0], [0.1, 0.1]), ([0.1] * 3, [0.1] * 3)],
)
def test_a_cloud_without_spread_has_no_line(cost: list[float], rate: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert black2022.r_squared({"a": np.array(cost)}, {"a": np.array(rate)}, ["a"]) == 0.0


def test_a_method_without_answers_has_figures_that_json_knows() -> None:
    nothing = {"x": np.zeros((0, 2)), "x_cf": np.zeros((0, 2)), "found": np.array([False]), "took": np.array(1.0)}
    kept = {short: {"Min l2": np.zeros((3, 0), bool)} for short in black2022.FAMILIES}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = black2022.summary("heloc", {"Min l2": nothing}, kept)
        assert list(black2022.means([result])) == ["reported, + SNS"]
    json.dumps(result, allow_nan=False)
    found = result["measured"]["Min l2"]
    assert (found["success"], found["IV LOO"], found["IV RS"], found["l2"]) == (0.0, [], [], [])


@pytest.mark.data
def test_one_row_and_one_model_are_valid_json(data_dir: Path, tmp_path: Path) -> None:
    settings = {"out": tmp_path / "out", "work": tmp_path / "work", "models": 1, "rows": 1}
    (result,) = run_paper("black2022", ["german_credit"], **settings)
    text = (tmp_path / "out/black2022/german_credit.json").read_text()
    assert json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in the file")) == result


@pytest.mark.parametrize("models", [0, 101])
def test_models_are_checked_before_the_start(models: int, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=f"models must be 1 to 100.*got {models}"):
        run_paper("black2022", [], out=tmp_path / "out", work=tmp_path / "work", models=models)
    assert not list(tmp_path.iterdir())


@pytest.mark.data
@pytest.mark.parametrize("name", black2022.SETTINGS)
def test_tasks_are_encoded_as_in_the_paper(name: str, data_dir: Path) -> None:
    setting = black2022.SETTINGS[name]
    task = black2022.prepare(setting, 50, 0)
    columns = {"german_credit": 61, "seizure": 178, "ctg": 21, "heloc": 39, "taiwan_credit": 32}
    assert len(task.test) == 50
    assert len(task.train.columns) == columns.get(name, len(task.train.columns))
    values = task.train.to_numpy()
    if setting.scaling == "standard":
        assert np.abs(values.mean(0)).max() < 1e-9
        assert np.abs(values.std(0) - 1).max() < 1e-9
    if setting.scaling == "minmax":
        assert values.min() == 0
        assert values.max() == 1
    assert task.pool == list(range(len(task.train) - 100, len(task.train)))


@pytest.mark.data
def test_a_small_run_end_to_end(data_dir: Path, tmp_path: Path) -> None:
    settings = {"out": tmp_path / "out", "work": tmp_path / "work", "models": 3, "rows": 24}
    (result,) = run_paper("black2022", ["german_credit"], **settings)
    assert len(result["measured"]) == 11
    for start in black2022.STARTS:
        for family in ("IV LOO", "IV RS"):
            before, after = result["measured"][start][family][0], result["measured"][f"{start} + SNS"][family][0]
            assert after < before
    stored = json.loads((tmp_path / "out/black2022/german_credit.json").read_text())
    assert stored == result
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}
    (again,) = run_paper("black2022", ["german_credit"], **settings)  # everything is there
    assert again["measured"] == result["measured"]
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}
    page = (tmp_path / "out/black2022/README.md").read_text()
    assert f"{result['measured']['Min l2']['l2'][0]:.2f}" in page
    assert (tmp_path / "out/black2022/german_credit.svg").read_text().startswith("<svg")


def test_unknown_papers_and_datasets_are_named(tmp_path: Path) -> None:
    with pytest.raises(hf.HoldfastError, match="did you mean 'black2022'"):
        run_paper("black2023", [], out=tmp_path, work=tmp_path)
    with pytest.raises(hf.HoldfastError, match="did you mean 'heloc'"):
        run_paper("black2022", ["helock"], out=tmp_path, work=tmp_path)


def test_the_committed_page_is_what_the_results_say(tmp_path: Path) -> None:
    source = ROOT / "experiments/results/black2022"
    (tmp_path / "black2022").mkdir()
    for path in source.glob("*.json"):
        (tmp_path / "black2022" / path.name).write_text(path.read_text())
    assert len(list(source.glob("*.json"))) == len(black2022.SETTINGS)
    assert write_page("black2022", tmp_path).read_text() == (source / "README.md").read_text()


def test_the_authors_own_start_explains_which_rows_are_answered() -> None:
    """What the page says of it, by the figures."""
    for name in black2022.CLIPPED:
        r = json.loads((ROOT / f"experiments/results/black2022/{name}.json").read_text())
        found, same = r["clipped"]["measured"], r["clipped"]["ours, same rows"]
        assert list(found) == list(black2022.clipped_methods(name))
        assert found["Min l1, clipped"]["success"] == pytest.approx(r["reported"]["Min l1"]["success"], abs=0.02)
        lost = found["Min l2, clipped + SNS"]["IV RS"][0]
        assert lost == pytest.approx(r["reported"]["Min l2 + SNS"]["IV RS"][0], abs=0.03)
        for label, row in same.items():  # rows that it answers are those whose answers hold better
            everywhere = r["clipped"]["ours, all rows"][label]
            assert row["IV RS"][0] < everywhere["IV RS"][0]
            assert row["l2"][0] < everywhere["l2"][0]


def test_the_committed_results_keep_what_the_issue_asks() -> None:
    results = [json.loads(path.read_text()) for path in sorted((ROOT / "experiments/results/black2022").glob("*.json"))]
    for r in results:
        assert r["models"] == {"LOO": 100, "RS": 100}
        for start in black2022.STARTS:
            for moved in (f"{start} + SNS", f"{start} + SNS with a bank"):
                for family in ("IV LOO", "IV RS"):
                    assert r["measured"][moved][family][0] < r["measured"][start][family][0], (r["dataset"], moved)
    means = black2022.means(results)
    ours, theirs = means["measured, + SNS with a bank"], means["reported, + SNS"]
    assert ours["LOO"] <= 0.02
    assert ours["RS"] <= 0.08
    assert ours["rise"] <= theirs["rise"]
    assert ours["times"] <= theirs["times"]
    assert sum(r["seconds"]["this call"] for r in results) <= 3600
