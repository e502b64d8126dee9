"""`python -m experiments` from the outside."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from experiments import PAPERS
from support.terminal import reproduce

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ((), "."),
        (("--models", "100", "--seed", "0", "--dataset", "heloc"), "."),
        (("--models", "20"), "partial"),
        (("--rows", "5"), "partial"),
        (("--seed", "1"), "partial"),
        (("--quick",), "quick"),
        (("--quick", "--seed", "1", "--models", "3"), "quick"),
    ],
)
def test_a_part_does_not_overwrite_full_results(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], place: str
) -> None:
    places = list[Path]()

    def noted(*_: Any, out: Path, **__: Any) -> list[Any]:
        places.append(out)
        return []

    monkeypatch.setattr("experiments.run.reproduce", noted)
    assert reproduce("black2022", "--out", "results", *words).code == 0
    assert places == [Path("results") / place]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("black2023",), "did you mean 'black2022'"),
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
        assert f"{paper}: {import_module(f'experiments.{paper}').__doc__}" in words


def test_a_quick_run_has_the_papers_quick_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[Any, ...]]()

    def noted(experiment: Any, datasets: Any, *, models: Any, rows: Any, **_: Any) -> list[Any]:
        asked.append((experiment.name, datasets, models, rows))
        return []

    monkeypatch.setattr("experiments.run.reproduce", noted)
    reproduce("altmeyer2025", "--quick")
    reproduce("black2022", "--quick", "--models", "30", "--rows", "7", "--dataset", "heloc")
    assert asked == [("altmeyer2025", ["moons"], 1, 200), ("black2022", ["heloc"], 20, 7)]
