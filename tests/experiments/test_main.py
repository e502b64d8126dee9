"""`python -m experiments` from the outside."""

from pathlib import Path
from typing import Any

import pytest

from support.terminal import reproduce


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

    def run_paper(*_: Any, out: Path, **__: Any) -> list[Any]:
        places.append(out)
        return []

    monkeypatch.setattr("experiments.run.run_paper", run_paper)
    assert reproduce("black2022", "--out", "results", *words).code == 0
    assert places == [Path("results") / place]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("black2023",), "did you mean 'black2022'"),
        (("black2022", "--dataset", "helock"), "did you mean 'heloc'"),
        (("black2022", "--models", "0"), "--models"),
        (("black2022", "--models", "101"), "models must be 1 to 100"),
    ],
)
def test_bad_input_is_one_sentence(words: tuple[str, ...], told: str) -> None:
    ran = reproduce(*words)
    assert ran.code == 2, ran
    assert told in ran.err
    assert "Traceback" not in ran.err
