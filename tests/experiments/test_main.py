"""`python -m experiments` from the outside."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from experiments import PAPERS
from experiments.paper import load_paper
from experiments.runner import Ran
from support.terminal import reproduce

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("--models", "20"), "partial"),
        (("--rows", "5"), "partial"),
        (("--seed", "1"), "partial"),
        (("--dataset", "heloc"), "partial"),
        (("--quick",), "quick"),
        (("--quick", "--seed", "1", "--models", "3"), "quick"),
    ],
)
def test_a_part_has_a_place_of_its_own(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], place: str
) -> None:
    places = list[Path]()

    def noted(*_: Any, out: Path, **__: Any) -> list[Any]:
        places.append(out)
        return []

    monkeypatch.setattr("experiments.run.reproduce", noted)
    assert reproduce("black2022", "--out", "results", *words).code == 0
    assert places == [Path("results") / place]


def test_a_whole_paper_is_made_of_its_cells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = list[str]()

    def noted(cells: Any, *_: Any, **__: Any) -> None:
        asked.extend(cell.paper for cell in cells)

    monkeypatch.setattr("experiments.runner.run", noted)
    ran = reproduce("krishna2024", "--out", tmp_path)
    assert ran.code == 0, ran
    assert set(asked) == {"krishna2024"}
    assert (tmp_path / "krishna2024/README.md").read_text() in ran.out


def test_the_list_says_what_there_is_and_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.runner.run", lambda *_: pytest.fail("something was made"))
    ran = reproduce("run", "--list", "--paper", "krishna2024")
    assert ran.code == 0, ran
    there, *_, last = ran.out.splitlines()
    assert there.startswith("there    krishna2024/german_credit/check/0  20")
    assert "cells are there" in last


def test_a_cell_that_fails_is_named_and_so_is_what_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paper = load_paper("krishna2024")
    one, two, *rest = paper.cells()
    ran = Ran([], [one], [(two, "ValueError: no")], rest)
    monkeypatch.setattr("experiments.runner.run", lambda *_, **__: ran)
    said = reproduce("run", "--minutes", "1")
    assert said.code == 1
    assert f"{two.name} failed: ValueError: no" in said.err
    assert f"{one.name} is begun" in said.err
    assert f"0 cells were made; {len(rest)} wait" in said.out


@pytest.mark.parametrize("found", [[], ["krishna2024/german_credit/check/0: x was 1, is 2"]])
def test_the_check_fails_where_digits_differ(
    monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    monkeypatch.setattr("experiments.runner.differences", lambda *_: found)
    ran = reproduce("check", "--paper", "krishna2024")
    assert ran.code == len(found)
    assert ran.err.splitlines() == found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("black2023",), "Did you mean 'black2022'"),
        (("black2022", "--dataset", "helock"), "did you mean 'heloc'"),
        (("black2022", "--models", "0"), "--models"),
        (("black2022", "--models", "101"), "models must be 1 to 100"),
    ],
)
def test_bad_input_is_one_sentence(words: tuple[str, ...], message: str) -> None:
    ran = reproduce(*words)
    assert ran.code == 2, ran
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_help_lists_the_papers_at_once() -> None:
    """Nothing heavy is imported for it."""
    code = (
        "import sys; from experiments.__main__ import app, run_app; run_app(app, 'x', ['--help'])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}; sys.exit('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    words = " ".join(ran.stdout.split())
    for paper in PAPERS:
        assert paper in words
        assert str(import_module(f"experiments.{paper}").__doc__).split(",")[0] in words


def test_a_quick_run_has_the_papers_quick_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[Any, ...]]()

    def noted(experiment: Any, datasets: Any, *, models: Any, rows: Any, **_: Any) -> list[Any]:
        asked.append((experiment.name, datasets, models, rows))
        return []

    monkeypatch.setattr("experiments.run.reproduce", noted)
    reproduce("altmeyer2025", "--quick")
    reproduce("black2022", "--quick", "--models", "30", "--rows", "7", "--dataset", "heloc")
    assert asked == [("altmeyer2025", ["moons"], 1, 200), ("black2022", ["heloc"], 20, 7)]
