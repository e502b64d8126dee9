"""Cells are made in order, for as long as there is time, and the rest is told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments import order, runner
from experiments.cell import Cell, Outcome, Store
from experiments.parts import Parts
from holdfast.errors import SettingError

MADE = list[str]()


def make(name: str, parts: Parts) -> Outcome:
    MADE.append(name)
    if name == "fails":
        raise ValueError("no such thing")
    parts.arrays("only", lambda: {"n": np.array(1)})
    return Outcome({"n": len(name), "threads": torch.get_num_threads()}, {"rows": name})


def cell(group: str, seed: int = 0, minutes: float = 1.0, **more: Any) -> Cell:
    return Cell("p", "d", group, seed, lambda parts: make(group, parts), {}, minutes, **more)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    MADE.clear()
    monkeypatch.setattr(order, "ORDER", ("p/d/first/*", "p/d/*/0", "*"))
    return Store(tmp_path / "cells")


def test_the_most_important_come_first_and_once(store: Store, tmp_path: Path) -> None:
    cells = [cell("other", 1), cell("slow", 0, 2.0), cell("quick"), cell("first", 1)]
    reported = list[str]()
    ran = runner.run(cells, store, work=tmp_path, report=reported.append)
    assert MADE == ["first", "quick", "slow", "other"]
    assert reported == [one.name for one in ran.made]
    again = runner.run(cells, store, work=tmp_path)
    assert again.made == []
    assert len(MADE) == 4


def test_one_thread_makes_them_and_the_callers_number_comes_back(
    store: Store, tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        runner.run([cell("quick")], store, work=tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    found = store.find(cell("quick"))
    assert found is not None
    assert found.figures["threads"] == found.head["threads"] == 1


def test_what_does_not_fit_is_left_and_something_shorter_made(store: Store, tmp_path: Path) -> None:
    long = cell("first", minutes=10.0)
    short = cell("quick", minutes=0.5)
    begun = cell("parts", minutes=10.0, longest=0.5)
    ran = runner.run([long, short, begun], store, minutes=1.0, work=tmp_path)
    assert ran.left == [long]
    assert ran.made == [short, begun]


def test_a_run_without_time_makes_nothing(store: Store, tmp_path: Path) -> None:
    ran = runner.run([cell("quick")], store, minutes=0.0, work=tmp_path)
    assert ran.left
    assert not MADE


def test_one_that_fails_does_not_stop_the_others(store: Store, tmp_path: Path) -> None:
    ran = runner.run([cell("fails"), cell("quick", 1)], store, work=tmp_path)
    assert [(one.group, words) for one, words in ran.failed] == [
        ("fails", "ValueError: no such thing")
    ]
    assert [one.group for one in ran.made] == ["quick"]


def test_cells_take_as_long_as_those_of_other_seeds_took(store: Store, tmp_path: Path) -> None:
    one = cell("quick", 0, 5.0)
    runner.run([one], store, work=tmp_path)
    expected = runner.Expectation([one], store)
    found = store.find(one)
    assert found is not None
    assert expected.of(replace(one, seed=1)) == found.minutes
    assert expected.of(cell("other", minutes=5.0)) == 5.0
    assert expected.of_a_part(cell("other", minutes=5.0)) == 5.0
    assert expected.of_a_part(cell("other", minutes=5.0, longest=2.0)) == 2.0


def test_the_list_says_what_is_there_and_how_long_the_rest_takes(
    store: Store, tmp_path: Path
) -> None:
    cells = [cell("quick"), cell("other", 0, 90.0)]
    runner.run(cells[:1], store, work=tmp_path)
    there, missing, last = runner.listing(cells, store).splitlines()
    assert there.startswith("there    p/d/quick/0  20")
    assert missing == "missing  p/d/other/0  about 90.0 min"
    assert last == "1 of 2 cells are there; the others take about 1.5 hours on one core."


def test_a_cell_made_again_is_compared_digit_by_digit(store: Store, tmp_path: Path) -> None:
    one = cell("quick")
    (missing,) = runner.differences(one, store, tmp_path)
    assert "is missing" in missing
    runner.run([one], store, work=tmp_path)
    assert runner.differences(one, store, tmp_path / "1") == []
    changed = Outcome({"n": 6, "threads": 1, "new": 1.0}, {"rows": "others"})
    found = runner.differences(replace(one, make=lambda _: changed), store, tmp_path / "2")
    assert found == [
        "p/d/quick/0: n was 5, is 6",
        "p/d/quick/0: new was None, is 1.0",
        "p/d/quick/0: the rows were {'rows': 'quick'}, are {'rows': 'others'}",
    ]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (0.12344, 0.12341, True),
        (0.1234, 0.1235, False),
        ([1.0, {"a": 2e-9}], [1.0, {"a": 2.00001e-9}], True),
        ([1.0, {"a": 2e-9}], [1.0, {"a": 3e-9}], False),
        ("word", "other", False),
    ],
)
def test_digits_are_four(a: object, b: object, same: bool) -> None:
    assert (runner.digits(a) == runner.digits(b)) == same


def test_a_cell_without_a_place_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "ORDER", ("q/*",))
    with pytest.raises(SettingError, match="p/d/quick/0 has no place"):
        order.place(cell("quick"))
