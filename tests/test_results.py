"""All results have the same verbs, and these mean the same: table, summary, to_dict, to_json, save,
load, plot and report."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast._core.result import Result
from holdfast.render.svg import Svg
from support.four_answers import four_answers
from support.images import pairs_by_hand
from support.pages import Reader


def report() -> hf.Report:
    return hf.evaluate(four_answers())


def crossed() -> hf.CrossValidity:
    matrix = np.array([[1 / 3, 0.1], [0.7, 2 / 3]])
    return hf.CrossValidity(("2007", "2008"), matrix, np.array([0.1, 2.0]), (3, 4), (1, 2))


def study() -> hf.Tradeoff:
    data = hf.datasets.overlapping(n=120)
    recipe = hf.Recipe(hidden=[], epochs=5)
    hardened = hf.train_adversarial(
        recipe, data.X, data.y, data.schema, epsilon=[0.0, 0.2], seeds=2
    )
    return hf.tradeoff(hardened, data.X.head(20), [hf.NearestNeighbor()], target="yes")


# name -> how one is made, and the extension of a file that holds all of it
RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "Counterfactuals": (four_answers, ".parquet"),
    "ImageCounterfactuals": (pairs_by_hand, ".parquet"),
    "Report": (report, ".parquet"),
    "CrossValidity": (crossed, ".json"),
    "Tradeoff": (study, ".parquet"),
}


@cache
def made(name: str) -> Any:
    result = RESULTS[name][0]()
    assert type(result).__name__ == name
    assert isinstance(result, Result)
    return result


@pytest.fixture(params=list(RESULTS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_table_is_a_frame_and_a_summary_is_text(name: str) -> None:
    table = made(name).table()
    assert isinstance(table, pd.DataFrame)
    assert len(table)
    assert len(set(table.columns)) == table.shape[1]
    summary = made(name).summary()
    assert isinstance(summary, str)
    assert summary == summary.strip() != ""


def test_json_says_what_the_dict_says(name: str, tmp_path: Path) -> None:
    result = made(name)
    content = result.to_dict()
    assert isinstance(content, dict)
    text = result.to_json()
    parsed = json.loads(text, parse_constant=pytest.fail)  # neither NaN nor Infinity
    assert list(parsed) == list(content)
    assert parsed == json.loads(json.dumps(content, default=str))
    file = tmp_path / "result.json"
    assert result.to_json(file) == text
    assert json.loads(file.read_text(encoding="utf-8")) == parsed
    with pytest.raises(hf.HoldfastError, match="cannot write"):
        result.to_json(tmp_path)  # a folder


def test_what_is_saved_loads_again(name: str, tmp_path: Path) -> None:
    result = made(name)
    file = tmp_path / f"result{RESULTS[name][1]}"
    result.save(file)
    again = type(result).load(file)
    assert type(again) is type(result)
    pd.testing.assert_frame_equal(again.table(), result.table())
    assert again.summary() == result.summary()
    assert again.to_json() == result.to_json()
    assert again.to_dict() == result.to_dict()
    again.save(tmp_path / f"again{RESULTS[name][1]}")  # what was loaded can be saved
    with pytest.raises(hf.HoldfastError, match="cannot write"):
        result.save(tmp_path / "result.unknown")
    with pytest.raises(hf.HoldfastError, match="no file at"):
        type(result).load(tmp_path / f"nothing{RESULTS[name][1]}")


def test_a_damaged_file_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"result{RESULTS[name][1]}"
    file.write_bytes(b"{} and nothing else")
    with pytest.raises(hf.HoldfastError, match=re.escape(repr(str(file)))):
        type(made(name)).load(file)


def test_a_plot_can_be_drawn(name: str, tmp_path: Path) -> None:
    picture = made(name).plot()
    if isinstance(picture, Svg):
        picture.save(tmp_path / "picture.png")
    else:
        assert picture.to_dict()["description"]
        hf_save(picture, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def hf_save(chart: Any, path: Path) -> None:
    from holdfast.render.charts.theme import save

    save(chart, path)


def test_a_report_is_one_page_that_asks_for_nothing(name: str, tmp_path: Path) -> None:
    path = made(name).report(tmp_path / "page.html")
    assert path == tmp_path / "page.html"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    text = path.read_text(encoding="utf-8")
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert not re.search(r"https?://|//\w+\.\w+/|url\((?!#)|@import", without_names)
    page = Reader(text)
    assert page.count("html") == page.count("h1") == 1
    assert page.count("table") >= 1
    assert page.count("svg") + page.count("img") >= 1


def test_a_page_shows_the_summary_and_every_line_of_the_table(tmp_path: Path) -> None:
    for name in ("Report", "CrossValidity", "Tradeoff"):
        result = made(name)
        text = result.report(tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert result.summary() in text
        rows = Reader(text).rows
        assert len(rows) == 1 + len(result.table())
        shown = {cell for row in rows for cell in row}
        largest = result.table().select_dtypes("number").max(axis=None)
        assert f"{largest:.4g}" in shown
