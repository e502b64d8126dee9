"""Plans: what the table, the words and the files say."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast.errors import FileError
from support.plans import CALIBRATION, six_plans


def test_the_table_has_a_line_per_person() -> None:
    table = six_plans().table()
    assert table.columns.tolist() == ["plan", "cost", "holds_on", "survival", "bound", "certified", "status"]
    assert table["status"].tolist() == ["found", "found", "fragile", "not found", "impossible", "already met"]
    assert table["plan"]["Ann"] == "Raise money from €100 to €200."
    assert table["plan"]["Eve"] == "No answer: no leaf."
    assert table["cost"][["Ann", "Ben", "Cyd"]].tolist() == [2.0, 6.0, 6.0]
    assert table["survival"][["Ann", "Ben", "Cyd"]].tolist() == [1.0, 0.95, 0.6]
    assert table["survival"][["Dee", "Eve"]].isna().all()
    assert table["holds_on"].tolist() == ["100 of 100", "95 of 100", "60 of 100", "", "", ""]
    assert table["bound"]["Ann"] == pytest.approx(0.05 ** (1 / 100))  # of 100, with none refused
    assert table["certified"].tolist() == [True, False, False, False, False, False]
    assert not six_plans(hold=0.97).certified[1:].any()


def test_the_words_count_people_and_certificates() -> None:
    words = six_plans().words()
    assert words.startswith("6 people: 2 found, 1 fragile, 1 not found, 1 impossible, 1 already met. 1 of 3 plans")
    assert words.endswith("rows drawn again from this table: not training on new data, and not a changed world.")
    assert repr(six_plans()) == f"<Plans {words}>"
    assert six_plans(models=50).words().endswith("or ask for less.")
    described = six_plans().describe()
    assert described.splitlines()[-1] == f"Calibrated: {CALIBRATION.describe()}."


def test_some_of_the_plans() -> None:
    some = six_plans()[[1, 2]]
    assert some.table().index.tolist() == ["Ben", "Cyd"]
    assert some.survival.tolist() == [0.95, 0.6]
    assert six_plans()[six_plans().found].found.all()
    assert len(six_plans()[0]) == 1
    assert some.calibration is CALIBRATION


def test_json_has_everything_but_the_pictures(tmp_path: Path) -> None:
    plans = six_plans()
    text = plans.to_json(tmp_path / "plans.json")
    assert (tmp_path / "plans.json").read_text(encoding="utf-8") == text + "\n"
    told = json.loads(text)
    assert (told["hold"], told["confidence"], told["judges"], told["asked"]) == (0.95, 0.95, 100, "good")
    assert told["calibration"]["c"] == 2.5
    ben = told["people"][1]
    assert ben["person"] == "Ben"
    assert ben["changes"] == [
        {"feature": "money", "before": 100.0, "after": 300.0}, {"feature": "home", "before": "rent", "after": "own"},
    ]  # fmt: skip
    assert told["people"][3]["changes"] == []
    assert told["people"][3]["survival"] is None


def test_people_of_one_name_keep_their_own_changes() -> None:
    six = six_plans()
    same = pd.Index(["x"] * 6)
    cfs = replace(six.cfs, before=six.cfs.before.set_axis(same), after=six.cfs.after.set_axis(same))
    people = json.loads(hf.Plans(replace(six.audit, cfs=cfs)).to_json())["people"]
    assert [len(person["changes"]) for person in people] == [1, 2, 1, 0, 0, 0]


def test_files_by_extension(tmp_path: Path) -> None:
    plans = six_plans()
    for name in ("p.parquet", "p.json", "p.csv", "P.CSV"):
        plans.save(tmp_path / name)
    again = hf.Plans.load(tmp_path / "p.parquet")
    assert again.to_json() == plans.to_json()
    assert np.array_equal(again.audit.held, plans.audit.held)
    assert again.calibration.describe() == CALIBRATION.describe()
    assert pd.read_csv(tmp_path / "p.csv", index_col=0)["plan"].tolist() == plans.table()["plan"].tolist()
    without = six_plans(calibration=None, hold=0.9)
    without.save(tmp_path / "q.parquet")
    assert hf.Plans.load(tmp_path / "q.parquet").calibration is None
    assert hf.Plans.load(tmp_path / "q.parquet").hold == 0.9
    # The same file is one of answers, and one of an audit.
    assert len(hf.Counterfactuals.load(tmp_path / "p.parquet")) == len(hf.Audit.load(tmp_path / "p.parquet").cfs) == 6


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"p\.txt.*one of \.parquet, \.json, \.csv"):
        six_plans().save(tmp_path / "p.txt")
    six_plans().audit.save(tmp_path / "audit.parquet")
    with pytest.raises(FileError, match="holds an audit and no plans"):
        hf.Plans.load(tmp_path / "audit.parquet")
    with pytest.raises(FileError, match="no file at"):
        hf.Plans.load(tmp_path / "none.parquet")
