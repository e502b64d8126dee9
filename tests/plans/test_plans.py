"""Plans: what the table, the words and the files say."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast.errors import FileError
from support.plans import ALIKE, CODES, REASONS, UNLIKE, six_plans


def test_the_table_has_a_line_per_person() -> None:
    table = six_plans().table()
    assert table.columns.tolist() == [
        "plan",
        "cost",
        "holds_on",
        "survival",
        "bound",
        "certified",
        "status",
    ]
    assert table["status"].tolist() == [
        "found",
        "fragile",
        "fragile",
        "not found",
        "impossible",
        "already met",
    ]
    assert table["plan"]["Ann"] == "Raise money from €100 to €200."
    assert table["plan"]["Eve"] == "No answer: no leaf."
    assert table["cost"][["Ann", "Ben", "Cyd"]].tolist() == [2.0, 6.0, 6.0]
    assert table["survival"][["Ann", "Ben", "Cyd"]].tolist() == [1.0, 0.95, 0.6]
    assert table["survival"][["Dee", "Eve"]].isna().all()
    assert table["holds_on"].tolist() == ["100 of 100", "95 of 100", "60 of 100", "", "", ""]
    assert table["bound"]["Ann"] == pytest.approx(0.05 ** (1 / 100))  # of 100, with none refused
    assert table["certified"].tolist() == [True, False, False, False, False, False]
    assert not six_plans(hold=0.97).certified.iloc[1:].any()


def test_what_the_judges_certify_is_found_and_what_they_do_not_is_fragile_with_the_count() -> None:
    plans = six_plans()
    assert plans.cfs.status["status"].tolist()[:3] == ["found", "fragile", "fragile"]
    assert plans.cfs.reasons[:3] == [
        "",
        "it holds on 95 of 100 judges, too few for a certificate",
        "it holds on 60 of 100 judges, too few for a certificate",
    ]
    assert plans.cfs.reasons[3:] == REASONS[3:]
    assert (plans.found == plans.certified.to_numpy()).all()
    assert plans.cfs.sentences()["Cyd"].endswith(
        "€400, but it holds on 60 of 100 judges, too few for a certificate."
    )


@pytest.mark.parametrize(("hold", "found"), [(0.5, [True, True, True]), (0.8, [True, True, False])])
def test_a_plan_of_which_the_guide_was_not_sure_is_found_where_the_judges_certify_it(
    hold: float, found: list[bool]
) -> None:
    plans = six_plans(hold=hold)
    assert plans.found.tolist() == [*found, False, False, False]
    assert plans.cfs.reasons[:2] == ["", ""]
    assert (plans.cfs.reasons[2] == "") == found[2]


@pytest.mark.parametrize(
    "unsure", [{"judges": 50}, {"likeness": UNLIKE}], ids=["too few judges", "another model"]
)
def test_where_nothing_can_be_certified_plans_stay_as_the_search_left_them(
    unsure: dict[str, Any],
) -> None:
    plans = six_plans(**unsure)
    assert plans.cfs.status_codes.tolist() == CODES
    assert plans.cfs.reasons == REASONS
    assert "No certificates: " in plans.summary()
    assert plans.table()["certified"].tolist() == [None if "judges" in unsure else False] * 6


def test_plans_that_are_judged_again_say_what_the_last_judges_say() -> None:
    plans = six_plans()
    assert hf.Plans.of(plans.audit, 0.95, 0.95).to_json() == plans.to_json()
    lenient = six_plans(hold=0.8)
    assert lenient.cfs.status["status"]["Ben"] == "found"
    assert hf.Plans.of(lenient.audit, 0.95, 0.95).to_json() == plans.to_json()
    assert hf.Plans.of(plans.audit, 0.8, 0.95).to_json() == lenient.to_json()


def test_the_words_count_people_and_certificates() -> None:
    words = six_plans().summary()
    assert words.startswith(
        "6 people: 2 fragile, 1 found, 1 not found, 1 impossible, 1 already met. 1 of 3 plans"
    )
    assert words.endswith(
        "rows drawn again from this table: not training on new data, and not a changed world."
    )
    assert repr(six_plans()) == f"<Plans {words}>"
    few = six_plans(judges=50).summary()
    assert few.startswith(
        "6 people: 2 found, 1 fragile, 1 not found, 1 impossible, 1 already met. No certificates: "
    )
    assert few.endswith("or ask for less.")
    assert six_plans().describe().splitlines()[-1] == words


def test_retrained_models_of_another_kind_certify_nothing_and_that_comes_first() -> None:
    plans = six_plans(likeness=UNLIKE)
    assert not plans.certified.any()
    assert plans.summary().startswith(
        "No certificates: the retrained models were not made as the model in use was: "
    )
    assert "Other settings may be the reason. 6 people: 2 found, 1 fragile" in plans.summary()
    assert np.isnan(plans.together())
    assert six_plans(likeness=ALIKE).summary() == six_plans().summary()


def test_warnings_about_the_rows_are_said_last() -> None:
    assert (
        six_plans(warnings=("Many rows are equal.",)).summary()
        == f"{six_plans().summary()} Many rows are equal."
    )


def test_some_of_the_plans() -> None:
    some = six_plans()[[1, 2]]
    assert some.table().index.tolist() == ["Ben", "Cyd"]
    assert some.survival.tolist() == [0.95, 0.6]
    assert six_plans()[six_plans().found].found.all()
    assert len(six_plans()[0]) == 1
    assert some.cfs.status["status"].tolist() == ["fragile", "fragile"]
    assert six_plans(likeness=ALIKE, looks=2)[[1, 2]].likeness is ALIKE


def test_json_has_everything_but_the_pictures(tmp_path: Path) -> None:
    plans = six_plans()
    text = plans.to_json(tmp_path / "plans.json")
    assert (tmp_path / "plans.json").read_text(encoding="utf-8") == text + "\n"
    told = json.loads(text)
    assert (told["hold"], told["confidence"], told["judges"], told["asked"]) == (
        0.95,
        0.95,
        100,
        "good",
    )
    assert "calibration" not in told
    assert [person["status"] for person in told["people"][:3]] == ["found", "fragile", "fragile"]
    assert told["likeness"] is None
    assert json.loads(six_plans(likeness=ALIKE).to_json())["likeness"] == ALIKE.to_dict()
    ben = told["people"][1]
    assert ben["subject"] == "Ben"
    assert ben["changes"] == [
        {"feature": "money", "before": 100.0, "after": 300.0},
        {"feature": "home", "before": "rent", "after": "own"},
    ]
    assert told["people"][3]["changes"] == []
    assert told["people"][3]["survival"] is None


def test_people_of_one_name_keep_their_own_changes() -> None:
    six = six_plans()
    same = pd.Index(["x"] * 6)
    cfs = replace(six.cfs, before=six.cfs.before.set_axis(same), after=six.cfs.after.set_axis(same))
    people = json.loads(hf.Plans(replace(six.audit, cfs=cfs)).to_json())["people"]
    assert [len(person["changes"]) for person in people] == [1, 2, 1, 0, 0, 0]


def test_files_by_extension(tmp_path: Path) -> None:
    plans = six_plans(likeness=ALIKE, warnings=("Many rows are equal.",), looks=1)
    for name in ("p.parquet", "p.json", "p.csv", "P.CSV"):
        plans.save(tmp_path / name)
    again = hf.Plans.load(tmp_path / "p.parquet")
    assert again.to_json() == plans.to_json()
    assert np.array_equal(again.audit.held, plans.audit.held)
    assert again.likeness == ALIKE
    assert again.warnings == ("Many rows are equal.",)
    assert again.looks == 1
    assert again.cfs.reasons == plans.cfs.reasons
    assert again.cfs.status_codes.tolist() == plans.cfs.status_codes.tolist()
    assert (
        pd.read_csv(tmp_path / "p.csv", index_col=0)["plan"].tolist()
        == plans.table()["plan"].tolist()
    )
    six_plans(hold=0.9).save(tmp_path / "q.parquet")
    assert hf.Plans.load(tmp_path / "q.parquet").likeness is None
    assert hf.Plans.load(tmp_path / "q.parquet").hold == 0.9
    # The same file is one of answers, and one of an audit.
    assert (
        len(hf.Counterfactuals.load(tmp_path / "p.parquet"))
        == len(hf.Audit.load(tmp_path / "p.parquet").cfs)
        == 6
    )


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"p\.txt.*one of \.parquet, \.json, \.csv"):
        six_plans().save(tmp_path / "p.txt")
    six_plans().audit.save(tmp_path / "audit.parquet")
    with pytest.raises(FileError, match="holds an audit and no plans"):
        hf.Plans.load(tmp_path / "audit.parquet")
    with pytest.raises(FileError, match="no file at"):
        hf.Plans.load(tmp_path / "none.parquet")
