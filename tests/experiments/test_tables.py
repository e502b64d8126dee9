"""Numbers for files and cells for pages, by hand."""

import numpy as np
import pytest

from experiments.tables import cell, known, mean_sd, plain, section, table, verdict


def test_numbers_that_json_has() -> None:
    assert [known(v) for v in (1 / 3, np.nan, -np.inf)] == [0.3333, None, None]
    assert known(np.float32(2.5), 0) == 2.0
    assert plain(np.array([[1.23456, np.nan], [2, 3]]), 2) == [[1.23, None], [2.0, 3.0]]
    assert plain([]) == []


def test_mean_and_standard_deviation() -> None:
    assert mean_sd([1.0, 3.0]) == [2.0, 1.0]
    assert mean_sd(np.array([[1.0], [3.0]]), sample=True) == [2.0, 1.4142]
    assert mean_sd([2.0]) == [2.0, 0.0]
    assert mean_sd([2.0], sample=True) == [2.0, None]
    assert mean_sd(np.zeros(0)) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.414, "0.41"),
        ([0.414, 0.1], "0.41 ± 0.10"),
        ((2, None), "2.00"),
        (0.0, "0.00"),
        (None, "-"),
        ([], "-"),
        ([None, None], "-"),
    ],
)
def test_a_cell_is_a_number_or_a_mean_with_its_deviation(value: object, text: str) -> None:
    assert cell(value) == text
    assert cell(value, [1.0, 0.5]) == f"{text} (1.00 ± 0.50)"


def test_tables_and_sections() -> None:
    assert cell(0.12345, 2, digits=3) == "0.123 (2.000)"
    assert [verdict(holds) for holds in (True, False, None)] == ["yes", "**no**", "open"]
    lines = table(["a", 1], [("x", 2.5), ["y", "-"]])
    assert lines == ["| a | 1 |", "|---|---|", "| x | 2.5 |", "| y | - |"]
    assert section("## T", "words", lines) == ["## T", "", "words", "", *lines, ""]
