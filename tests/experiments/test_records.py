"""Records: what follows from a figure, by hand, and the file they lie in."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from experiments.cell import FOLDER
from experiments.records import (
    Record,
    Verdict,
    interval_of,
    read_records,
    verdict_on,
    write_records,
)

PLACE = {"paper": "p", "table": "Table 1", "dataset": "d", "row": "m", "column": "validity"}


def test_the_interval_is_students() -> None:
    low, high = interval_of([1.0, 2.0, 3.0]) or (0.0, 0.0)
    half = 4.302653 / 3**0.5  # t of 2 degrees of freedom, deviation 1, three seeds
    assert low == pytest.approx(2 - half, abs=1e-6)
    assert high == pytest.approx(2 + half, abs=1e-6)
    assert interval_of([1.0]) is None
    assert interval_of([]) is None


@pytest.mark.parametrize(
    ("measured", "interval", "reported", "verdict"),
    [
        (None, None, (0.9, 0.1), "not measured yet"),
        (0.5, None, None, "no published figure"),
        (0.85, None, (0.9, 0.1), "reproduced"),  # within the paper's deviation
        (0.5, (0.3, 0.95), (0.9, None), "reproduced"),  # the paper's lies in our interval
        (0.5, (0.3, 0.7), (0.9, 0.1), "differs"),
        (0.5, None, (0.9, None), "differs"),
    ],
)
def test_a_verdict_follows_from_interval_and_deviation(
    measured: float | None,
    interval: tuple[float, float] | None,
    reported: tuple[float, float | None] | None,
    verdict: str,
) -> None:
    assert verdict_on(measured, interval, reported) == verdict


def test_a_record_is_made_of_seeds() -> None:
    record = Record.of(PLACE, {0: 0.5, 4: 0.7}, [0.6, 0.1], n=10, cells=["p/d/m/0", "p/d/m/4"])
    assert record.measured == pytest.approx(0.6)
    assert record.seeds == (0, 4)
    assert record.spread == (0.5, 0.7)
    assert record.verdict == "reproduced"
    empty = Record.of(PLACE, {}, [])
    assert (empty.measured, empty.reported, empty.spread) == (None, None, None)
    assert empty.verdict == "not measured yet"
    assert Record.of(PLACE, {0: 1.0}, [0.9]).reported == (0.9, None)


def test_records_come_back_from_their_file(tmp_path: Path) -> None:
    records = [
        Record.of(PLACE, {0: 0.5, 1: 0.7}, [0.6, 0.1], n=3, note="a word", cells=["p/d/m/0"]),
        Record.of(PLACE, {}),
    ]
    write_records(tmp_path / "records.jsonl", records)
    assert read_records(tmp_path / "records.jsonl") == records
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 2


# ---- the page that documents both shapes


PAGE = Path(__file__).parents[2] / "docs/reproductions/results.md"


def documented(section: str) -> set[str]:
    """The names in the first column of the first table below a heading."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    table = text.split("\n|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return {
        name for line in table.splitlines() for name in re.findall("`(.*?)`", line.split("|")[1])
    }


def test_the_page_names_every_field_of_a_record_and_every_verdict() -> None:
    assert documented("Records") == {field.name for field in fields(Record)}
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{verdict}` |" in text for verdict in get_args(Verdict))


def test_the_page_names_every_field_of_a_cell() -> None:
    for path in FOLDER.rglob("*.json"):
        assert set(json.loads(path.read_text())) == documented("Cells"), path
