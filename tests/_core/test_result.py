"""The verbs of results: the same for every type that has them, and they do what they say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from holdfast._core.result import Result, as_json
from support.frontiers import three_people
from support.pages import Reader
from support.plans import six_plans

RESULTS: dict[str, Callable[[], Any]] = {
    "Plans": six_plans,
    "Audit": lambda: six_plans().audit,
    "Frontier": three_people,
}


@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_has_the_verbs_and_they_agree(kind: str, tmp_path: Path) -> None:
    result = RESULTS[kind]()
    assert type(result).__name__ == kind
    assert isinstance(result, Result)
    assert isinstance(result.table(), pd.DataFrame)
    assert len(result.table())
    assert result.summary()
    assert isinstance(result.summary(), str)
    text = result.to_json(tmp_path / "result.json")
    assert json.loads(text, parse_constant=pytest.fail) == result.to_dict()
    assert (tmp_path / "result.json").read_text(encoding="utf-8") == text + "\n"
    result.save(tmp_path / "result.parquet")
    again = type(result).load(tmp_path / "result.parquet")
    assert again.table().equals(result.table())
    assert again.summary() == result.summary()
    assert again.to_json() == text
    assert "layer" in result.plot().to_dict()


@pytest.mark.parametrize("kind", RESULTS)
def test_a_report_is_one_page_that_needs_nothing_else(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "page.html"
    assert RESULTS[kind]().report(str(path)) == path
    text = path.read_text(encoding="utf-8")
    reader = Reader(text)
    assert "default-src 'none'" in text
    assert reader.count("h1") == 1
    assert "<svg" in text
    assert not [a for _, a in reader.tags if {"src", "href", "srcset", "action"} & set(a)]
    ids = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_json_is_written_as_it_is(tmp_path: Path) -> None:
    text = as_json({"name": "Zoë"}, tmp_path / "one.json")
    assert text == '{\n "name": "Zoë"\n}'
    assert (tmp_path / "one.json").read_text(encoding="utf-8") == text + "\n"
