"""RoCourseNet: cells leave figures of the shape that records need, and what the committed ones
say."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from experiments.cell import Cell, Store
from experiments.guo2023 import attack, methods, networks, task
from experiments.guo2023.findings import differences, findings, gained, reached
from experiments.guo2023.measure import CONVENTIONS, IN_RANGE, RAW
from experiments.guo2023.page import brief, by_place, page, pictures
from experiments.guo2023.paper import PAPER
from experiments.guo2023.records import column, records
from experiments.guo2023.reported import REPORTED
from experiments.paper import Found
from experiments.records import FILE, Record, read_records
from holdfast.methods.amortized import counternet
from support.committed import RESULTS

COMMITTED = read_records(RESULTS / "guo2023" / FILE)


@pytest.fixture
def brief_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training that takes no time."""
    monkeypatch.setitem(counternet.ALIKE, "epochs", 2)
    for dataset, printed in counternet.PRINTED.items():
        monkeypatch.setitem(counternet.PRINTED, dataset, printed | {"encoder": (16, 10)})
    monkeypatch.setattr(attack, "T_STEPS", (1, 2))
    monkeypatch.setattr(attack, "E_STEPS", (0.1,))
    monkeypatch.setattr(attack, "ROWS", 130)


def cell(dataset: str, group: str) -> Cell:
    return PAPER.cell(f"guo2023/{dataset}/{group}/0")


def made(one: Cell, folder: Path) -> Any:
    store = Store(folder / "cells")
    assert store.make(one, folder / "work", math.inf)
    found = store.find(one)
    assert found is not None
    return found


@pytest.mark.parametrize("group", ["printed", "cf-model", "roar-lime"])
def test_a_cell_has_both_conventions_and_single_rows(
    data_dir: Path, brief_training: None, tmp_path: Path, group: str
) -> None:
    found = made(cell("student", group), tmp_path)
    figures = found.figures
    assert figures["subsets"] == ["GP", "MS"]
    assert figures["asked"] == 162
    for convention in CONVENTIONS:
        one = figures[convention]
        matrix = np.array(one["matrix"])
        assert matrix.shape == (2, 2)
        assert one["validity"] == pytest.approx(matrix.trace() / 2, abs=1e-6)
        assert one["robust validity"] == pytest.approx((matrix[0, 1] + matrix[1, 0]) / 2, abs=1e-6)
        # of the first rows of each subset: which networks accept, and how far
        assert found.arrays[f"accepted {convention} 1"].shape == (2, 50)
        assert found.arrays[f"far {convention} 0"].shape == (50,)
    # nobody is farther away for being kept in the range of the data
    assert (
        figures[IN_RANGE]["proximity"] <= figures[RAW]["proximity"] + 1e-6 or group == "roar-lime"
    )


def test_networks_that_only_predict_are_shared_by_cells(
    data_dir: Path, brief_training: None, tmp_path: Path
) -> None:
    made(cell("german_credit", "base"), tmp_path)
    there = {p: p.stat().st_mtime_ns for p in (tmp_path / "work").rglob("networks/base*.npz")}
    assert len(there) == 1
    made(cell("german_credit", "lam-0.1-roar-lime"), tmp_path)
    assert there == {
        p: p.stat().st_mtime_ns for p in (tmp_path / "work").rglob("networks/base*.npz")
    }


def test_a_long_training_is_made_of_stretches(
    data_dir: Path, brief_training: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = made(cell("student", "printed"), tmp_path / "whole")
    monkeypatch.setattr(networks.Where, "ends", lambda *_, **__: [1, 2])
    parts = made(cell("student", "printed"), tmp_path / "parts")
    assert len(list((tmp_path / "parts/work").rglob("printed_to_epoch_*.npz"))) == 2
    for convention in CONVENTIONS:
        assert parts.figures[convention] == whole.figures[convention]


def test_stretches_of_the_loans_are_minutes_and_end_with_the_last_epoch() -> None:
    where = networks.Where("sba_loan", 0)
    assert where.ends(50, attacked=True) == [*range(2, 51, 2)]
    assert where.ends(50, attacked=False) == [10, 20, 30, 40, 50]
    assert where.ends(7, attacked=True) == [2, 4, 6, 7]
    assert networks.Where("student", 0).ends(50, attacked=True) == [50]


def test_an_attack_has_every_kind_and_way(
    data_dir: Path, brief_training: None, tmp_path: Path
) -> None:
    figures = made(cell("student", "attack-printed"), tmp_path).figures
    kinds = {f"{k}; {way}" for k in attack.KINDS for way in (attack.PRINTED, attack.AUTHORS)}
    assert set(figures) == kinds
    assert set(figures["T; printed"]) == {"1", "2"}
    assert all(0 <= mean <= 1 for by in figures.values() for mean, _ in by.values())


def test_rows_are_what_they_are_called() -> None:
    for dataset in task.DATASETS:
        rows = methods.networks(dataset)
        printed = rows["printed"]
        assert printed.get_params() == hf.RoCourseNet.paper(dataset).get_params()
        assert rows["defaults"].get_params() == hf.RoCourseNet().get_params()
        assert rows["counternet"].get_params() == replace(printed, shift=None).get_params()
        # everything that is compared has the same epochs
        assert {how.epochs for how in rows.values()} == {50}
        assert rows["adam"].shift == replace(printed.shift, optimizer="adam", categories="none")
        assert rows["softmax"].shift == replace(rows["adam"].shift, categories="softmax")
        assert rows["random"].shift == replace(printed.shift, ascend=False)
    assert methods.searches()["rbr"]().relaxed


def test_no_figure_of_the_paper_stands_beside_another_method() -> None:
    for one in COMMITTED:
        if one.reported is not None and one.table in ("Table 2", "Table 3", "Table 8", "Table 9"):
            (row,) = [row for row in methods.ROWS if row.title == one.row]
            figure = one.column.split(",")[0]
            assert list(one.reported) == REPORTED[one.dataset][row.reported][figure]
            assert one.column == column(figure, RAW)


# ---- what follows


def record(group: str, values: dict[int, float], reported: Any = None) -> dict[Any, Record]:
    place = {"paper": "guo2023", "table": "Table 2", "dataset": "student"}
    title = methods.TITLES[group]
    name = column("robust validity", RAW)
    one = Record.of({**place, "row": title, "column": name}, values, reported)
    return {("student", title, name): one}


def test_what_follows_is_decided_by_intervals_over_seeds() -> None:
    low = record("printed", {0: 0.8, 1: 0.82, 2: 0.81}, [0.96, 0.01])
    plain = record("counternet", {0: 0.7, 1: 0.73, 2: 0.71, 3: 0.2}, [0.7, 0.1])
    assert reached(low, "student")[1] == "**not reproduced**"
    assert "0 of them reach it" in reached(low, "student")[2]
    assert gained(low | plain, "student")[1] == "**not reproduced**"
    (one, other) = (next(iter(held.values())) for held in (low, plain))
    assert differences(one, other) == pytest.approx([0.1, 0.09, 0.1])  # of common seeds alone
    high = record("printed", {0: 0.95, 1: 0.97, 2: 0.96}, [0.96, 0.01])
    assert reached(high, "student")[1] == "reproduced"
    assert "2 of them reach it" in reached(high, "student")[2]
    alike = record("counternet", {0: 0.69, 1: 0.71, 2: 0.70}, [0.7, 0.1])
    assert gained(high | alike, "student")[1] == "reproduced"


def test_a_page_of_nothing_says_so(tmp_path: Path) -> None:
    nothing = Found.of(PAPER.cells(), Store(tmp_path))
    assert all(
        verdict == "not measured yet" for _, verdict, _ in findings(by_place(records(nothing)))
    )
    assert "cells are not measured yet" in "\n".join(page(nothing))
    assert not pictures(nothing)
    shown = brief(records(nothing), ("sba_loan",))
    assert {row[1] for row in shown} == {"not measured yet"}


def test_the_algorithm_is_run_by_its_name_in_three_lines() -> None:
    notes = (Path(attack.__file__).parent / "notes.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", notes, re.DOTALL)
    names = dict[str, Any]()
    exec(code, names)
    assert len(names["answers"]) == 5
    assert names["net"].shift == hf.RoCourseNet.paper("german_credit").shift


# ---- the committed results


def test_the_committed_records_are_of_the_committed_cells() -> None:
    made = records(Found.of(PAPER.cells(), Store()))
    assert made == COMMITTED


@pytest.mark.parametrize("dataset", ["german_credit", "student"])
def test_the_printed_algorithm_is_measured_with_20_seeds(dataset: str) -> None:
    tables = by_place(COMMITTED)
    one = tables[dataset, methods.TITLES["printed"], column("robust validity", RAW)]
    assert one.seeds == tuple(range(20))
    assert one.verdict == "differs"
    assert reached(tables, dataset)[1] == "**not reproduced**"


@pytest.mark.parametrize("dataset", task.SIMULATED)
def test_simulated_shifts_break_nearly_nothing(dataset: str) -> None:
    tables = by_place(COMMITTED)
    for name in ("validity", "robust validity"):
        one = tables[dataset, methods.TITLES["printed"], column(name, RAW)]
        assert one.measured is not None
        assert one.measured >= 0.98
