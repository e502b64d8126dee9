"""Consistent counterfactuals: figures are what the definitions say, and the committed ones keep
what is asked."""

import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from experiments.black2022 import experiment, setup
from experiments.black2022.experiment import EXPERIMENT, measure, on_rows, r_squared, summary
from experiments.black2022.page import means
from experiments.black2022.setup import FAMILIES, SETTINGS, STARTS, Task, clipped_methods
from experiments.experiment import Run
from experiments.parts import Parts
from experiments.run import reproduce
from support.committed import committed_results


class Keys(Parts):
    """Parts that make nothing but note their files."""

    def arrays(self, name: str, make: Any, about: Any = None) -> Any:
        KEYS[name] = self.path(name, about).name
        if name == "accuracy":
            return {"test": np.array(0.5)}
        if name.startswith(("LOO", "RS")):
            return {"seconds": np.array(1.0), **{m: np.ones((1, 1), bool) for m in KEYS}}
        one = np.ones((1, 1))
        return {
            "x": 0 * one,
            "x_cf": one,
            "found": one[0] > 0,
            "took": one[0, 0],
            "seconds": one[0, 0],
        }


KEYS = dict[str, str]()


def keys(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> dict[str, str]:
    """The files that a run of one model would write, with other values in its modules."""
    KEYS.clear()
    nobody = pd.DataFrame(), pd.Series(dtype=int)
    task = Task(*nobody, *nobody, hf.Schema.box(1), None)
    with monkeypatch.context() as patched:
        for name, value in changed.items():
            patched.setattr(
                next(m for m in (experiment, setup, hf) if hasattr(m, name)), name, value
            )
        measure(
            Run(
                "german_credit",
                SETTINGS["german_credit"],
                task,
                1,
                None,
                0,
                Keys(Path(), {"seed": 0}),
            )
        )
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
    assert differs(Recipe=partial(hf.Recipe, lr=0.1)) == everything
    judged = {"LOO-0-1", "RS-0-1"}
    assert differs(Prototype=partial(hf.Prototype, k=3)) == {"Looveren", *judged}

    moved = {label for label in before if "SNS" in label}
    assert len(moved) == 6 + 2
    assert (
        differs(StableNeighborSearch=partial(hf.StableNeighborSearch, steps=300)) == moved | judged
    )


def test_summary_is_worked_out_by_hand() -> None:
    """Paper: black2022 Definition 2, Metric cost, Metric success rate, Metric R2, Table 1,
    Table 3, Table 4."""
    answers = {
        "Min l2": {
            "x": np.zeros((2, 2)),
            "x_cf": np.array([[3.0, 4.0], [0.0, 1.0]]),
            "found": np.array([True, True, False, True])[[0, 1, 2]],
            "took": np.array(1.0),
        }
    }
    kept = {
        "LOO": {"Min l2": np.array([[1, 1], [1, 0]], bool)},
        "RS": {"Min l2": np.array([[0, 0], [1, 0]], bool)},
    }
    found = summary("heloc", answers, kept)["measured"]["Min l2"]
    assert found["success"] == pytest.approx(2 / 3)
    assert found["IV LOO"] == [0.25, 0.25]  # models lose none and one of two
    assert found["IV RS"] == [0.75, 0.25]
    assert found["l2"] == [3.0, 2.0]
    assert found["l1"] == [4.0, 3.0]
    costs = {"a": np.array([0.0, 1, 2])}
    rates = {"a": np.array([0.0, 1, 1])}
    line = np.polyfit(costs["a"], rates["a"], 1)
    left = ((rates["a"] - np.polyval(line, costs["a"])) ** 2).sum() / (
        (rates["a"] - rates["a"].mean()) ** 2
    ).sum()
    assert r_squared(costs, rates, ["a"]) == pytest.approx(1 - left, abs=1e-4)


def test_some_rows_of_a_method_are_worked_out_by_hand() -> None:
    found = np.array([True, False, True, True])
    answers = {
        "found": found,
        "x": np.zeros((3, 2)),
        "x_cf": np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 2.0]]),
    }
    kept = np.array([[1, 0, 1], [0, 0, 1]], bool)  # two models, the three answers
    these = np.array([True, True, False, True])  # the first and the third of them
    assert on_rows(answers, these, {"RS": kept}) == {"IV RS": [0.25, 0.25], "l2": [3.5, 1.5]}


@pytest.mark.parametrize(
    ("cost", "rate"),
    [
        ([], []),
        ([1.0], [0.5]),
        ([1.0, 1.0, 1.0], [0.0, 0.5, 1.0]),
        ([1.0, 2.0], [0.1, 0.1]),
        ([0.1] * 3, [0.1] * 3),
    ],
)
def test_a_cloud_without_spread_has_no_line(cost: list[float], rate: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert r_squared({"a": np.array(cost)}, {"a": np.array(rate)}, ["a"]) == 0.0


def test_a_method_without_answers_has_figures_that_json_knows() -> None:
    nothing = {
        "x": np.zeros((0, 2)),
        "x_cf": np.zeros((0, 2)),
        "found": np.array([False]),
        "took": np.array(1.0),
    }
    kept = {short: {"Min l2": np.zeros((3, 0), bool)} for short in FAMILIES}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = summary("heloc", {"Min l2": nothing}, kept)
        assert list(means([result])) == ["reported, + SNS"]
    json.dumps(result, allow_nan=False)
    found = result["measured"]["Min l2"]
    assert (found["success"], found["IV LOO"], found["IV RS"], found["l2"]) == (0.0, [], [], [])


@pytest.mark.data
def test_one_row_and_one_model_are_valid_json(data_dir: Path, tmp_path: Path) -> None:
    settings = {"out": tmp_path / "out", "work": tmp_path / "work", "models": 1, "rows": 1}
    (result,) = reproduce(EXPERIMENT, ["german_credit"], **settings)
    text = (tmp_path / "out/black2022/german_credit.json").read_text()
    assert (
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in the file")) == result
    )


@pytest.mark.data
def test_a_small_run_end_to_end(data_dir: Path, tmp_path: Path) -> None:
    settings = {"out": tmp_path / "out", "work": tmp_path / "work", "models": 3, "rows": 24}
    (result,) = reproduce(EXPERIMENT, ["german_credit"], **settings)
    assert len(result["measured"]) == 11
    for start in STARTS:
        for family in ("IV LOO", "IV RS"):
            before = result["measured"][start][family][0]
            after = result["measured"][f"{start} + SNS"][family][0]
            assert after < before
    stored = json.loads((tmp_path / "out/black2022/german_credit.json").read_text())
    assert stored == result
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}
    (again,) = reproduce(EXPERIMENT, ["german_credit"], **settings)  # everything is there
    assert again["measured"] == result["measured"]
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}
    page = (tmp_path / "out/black2022/README.md").read_text()
    assert f"{result['measured']['Min l2']['l2'][0]:.2f}" in page
    assert (tmp_path / "out/black2022/german_credit.svg").read_text().startswith("<svg")


def test_the_authors_own_start_explains_which_rows_are_answered() -> None:
    """What the page says of it, by the figures."""
    clipped = [name for name, setting in SETTINGS.items() if setting.clipped]
    assert clipped == ["german_credit", "seizure"]
    for name in clipped:
        r = committed_results("black2022")[name]
        found = r["clipped"]["measured"]
        same = r["clipped"]["ours, same rows"]
        assert list(found) == list(clipped_methods(SETTINGS[name]))
        assert found["Min l1, clipped"]["success"] == pytest.approx(
            r["reported"]["Min l1"]["success"], abs=0.02
        )
        lost = found["Min l2, clipped + SNS"]["IV RS"][0]
        assert lost == pytest.approx(r["reported"]["Min l2 + SNS"]["IV RS"][0], abs=0.03)
        for label, row in same.items():  # rows that it answers are those whose answers hold better
            everywhere = r["clipped"]["ours, all rows"][label]
            assert row["IV RS"][0] < everywhere["IV RS"][0]
            assert row["l2"][0] < everywhere["l2"][0]


def test_the_committed_results_keep_what_the_issue_asks() -> None:
    results = list(committed_results("black2022").values())
    for r in results:
        assert r["models"] == {"LOO": 100, "RS": 100}
        for start in STARTS:
            for moved in (f"{start} + SNS", f"{start} + SNS with a bank"):
                for family in ("IV LOO", "IV RS"):
                    assert r["measured"][moved][family][0] < r["measured"][start][family][0], (
                        r["dataset"],
                        moved,
                    )
    measured = means(results)["measured, + SNS with a bank"]
    reported = means(results)["reported, + SNS"]
    assert measured["LOO"] <= 0.02
    assert measured["RS"] <= 0.08
    assert measured["rise"] <= reported["rise"]
    assert measured["times"] <= reported["times"]
    assert sum(r["seconds"]["this call"] for r in results) <= 3600
