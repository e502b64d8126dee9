"""Simple pages of results: the table is there, and nothing gets in."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast.render.result_page import audit_page, result_page, written
from support.frontiers import three_people
from support.pages import EVIL, Reader
from support.plans import six_plans


def test_an_audit_says_what_is_certified_and_shows_the_bound_and_no_interval(
    tmp_path: Path,
) -> None:
    audit = six_plans().audit
    text = audit_page(audit, tmp_path / "audit.html", hold=0.95, confidence=0.95).read_text()
    assert "1 of 3 answers are certified: each holds for at least 95% of models" in text
    rows = Reader(text).rows
    assert rows[0][1:] == ["status", "survival", "models", "bound", "certified"]
    assert rows[1] == ["Ann", "found", "1", "100", "0.9705", "yes"]
    assert rows[5][:3] == ["Eve", "impossible", ""]
    few = six_plans(judges=50).audit.report(tmp_path / "few.html").read_text()
    assert "No certificates: " in few
    none = six_plans()[[3, 4]].audit.report(tmp_path / "none.html").read_text()
    assert "There is nothing to draw." in none


def test_a_frontier_says_what_each_share_costs(tmp_path: Path) -> None:
    text = three_people().report(tmp_path / "frontier.html").read_text()
    assert "median cost, reached by 2 of 3" in text
    assert Reader(text).rows[1] == [
        "Ann",
        "0.8",
        "Raise money from 0 to 1.",
        "1",
        "0.7",
        "0.6158",
    ]
    nobody = three_people(holds=(1.0,))
    nobody.chosen_by.held[:] = np.array(False)
    text = nobody.report(tmp_path / "nobody.html").read_text()
    assert "There is nothing to draw." in text
    assert "median cost, reached by 0 of 3" in text


def test_names_from_the_data_stay_text(tmp_path: Path) -> None:
    table = pd.DataFrame({EVIL: [EVIL]}, index=[EVIL])
    path = tmp_path / "evil.html"
    text = result_page(path, title=EVIL, headline=EVIL, table=table, facts=[(EVIL, EVIL)])
    assert EVIL not in text.read_text()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (np.nan, ""),
        (pd.NaT, ""),
        (True, "yes"),
        (np.bool_(False), "no"),
        (0.123456, "0.1235"),
        (7, "7"),
        ("a", "a"),
    ],
)
def test_cells(value: object, expected: str) -> None:
    assert written(value) == expected
