"""The record of one person's plan, from which tables, pages and JSON are made."""

import json
import time
from dataclasses import FrozenInstanceError, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast.plans.plan import plain
from holdfast.plans.plans import Plans
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema
from support.answers import made
from support.plans import REASONS, six_plans


def test_a_plan_says_all_that_is_known_of_a_person() -> None:
    plans = six_plans()
    ann, ben, _, dee, *_ = list(plans)
    assert (ann.subject, ann.status, ann.reason) == ("Ann", "found", "")
    assert (ann.cost, ann.accepted, ann.judges, ann.survival) == (2.0, 100, 100, 1.0)
    assert ann.bound == pytest.approx(0.05 ** (1 / 100))
    assert (ann.certified, ben.certified) == (True, False)
    assert ann.before == {"money": 100.0, "home": "rent", "still": 0.5}
    assert ann.after == {"money": 200.0, "home": "rent", "still": 0.5}
    assert [(one.feature, one.before, one.after) for one in ben.changes] == [
        ("money", 100.0, 300.0),
        ("home", "rent", "own"),
    ]
    assert [(one.was, one.becomes, one.way) for one in ben.changes] == [
        ("€100", "€300", "raised"),
        ("rent", "own", "switched"),
    ]
    assert (ann.holds_on, ann.bound_in_words, ann.verdict) == (
        "100 of 100",
        "at least 97%",
        "certified",
    )
    assert (ann.model, ann.bank) == (plans.cfs.run.model, plans.audit.bank)
    assert (dee.cost, dee.accepted, dee.survival, dee.bound, dee.changes) == (None,) * 4 + ((),)
    assert (dee.holds_on, dee.bound_in_words, dee.verdict, dee.reason) == ("", "", "", REASONS[3])
    with pytest.raises(FrozenInstanceError):
        ann.cost = 0.0  # pyright: ignore[reportAttributeAccessIssue]


def test_records_and_the_table_say_the_same() -> None:
    for plans in (six_plans(), six_plans(judges=50), six_plans(hold=0.8)):
        table = plans.table()
        assert table["certified"].tolist() == [plan.certified for plan in plans]
        for (name, line), plan in zip(table.iterrows(), plans, strict=True):
            assert (name, line["plan"], line["status"]) == (
                plan.subject,
                plan.sentence,
                plan.status,
            )
            assert line["holds_on"] == plan.holds_on
            numbers = {"cost": plan.cost, "survival": plan.survival, "bound": plan.bound}
            for column, value in numbers.items():
                assert np.isnan(line[column]) if value is None else line[column] == value


def test_too_few_judges_leave_certificates_open() -> None:
    assert {plan.certified for plan in six_plans(judges=50)} == {None}
    assert {plan.verdict for plan in six_plans(judges=50)} == {""}


def test_the_subject_is_the_key_of_the_table() -> None:
    six = six_plans()
    for keys in ([3, 1, 4, 15, 9, 2], pd.MultiIndex.from_product([["a", "b"], [1, 2, 3]])):
        index = pd.Index(keys)
        cfs = replace(
            six.cfs, before=six.cfs.before.set_axis(index), after=six.cfs.after.set_axis(index)
        )
        plans = Plans(replace(six.audit, cfs=cfs))
        for key, plan in zip(index, plans, strict=True):
            assert plan.subject == key
            assert type(plan.subject) is type(index.tolist()[0])
            assert cfs.after.loc[[plan.subject]]["money"].tolist() == [plan.after["money"]]
        assert next(iter(plans)).name == ("3" if isinstance(keys, list) else "a, 1")
        people = json.loads(plans.to_json())["people"]
        assert people[0]["subject"] == (3 if isinstance(keys, list) else ["a", 1])


def test_an_id_is_of_the_plan_and_not_of_who_judges_it(tmp_path: Path) -> None:
    plans = six_plans()
    ids = [plan.id for plan in plans]
    assert len(set(ids)) == 6
    assert [plan.id for plan in six_plans(judges=60, hold=0.8)] == ids
    assert [plan.id for plan in plans[[4, 1]]] == [ids[4], ids[1]]
    plans.save(tmp_path / "plans.parquet")
    assert [plan.id for plan in hf.Plans.load(tmp_path / "plans.parquet")] == ids
    for name, value in (("model", "another model"), ("target", "better")):
        run = replace(plans.cfs.run, **{name: value})
        other = Plans(replace(plans.audit, cfs=replace(plans.cfs, run=run)))
        assert not set(ids) & {plan.id for plan in other}
    dearer = plans.cfs.after.assign(money=plans.cfs.after["money"] + 1)
    other = Plans(replace(plans.audit, cfs=replace(plans.cfs, after=dearer)))
    assert not set(ids) & {plan.id for plan in other}


def test_plans_are_some_and_iterating_gives_records() -> None:
    plans = six_plans()
    assert isinstance(plans[0], hf.Plans)
    assert [len(part) for part in (plans[:2], plans[[1]])] == [2, 1]
    assert all(isinstance(plan, hf.Plan) for plan in plans)
    several = replace(plans.cfs, source=np.array([0, 0, 1, 2, 3, 4]))
    places = [plan.place for plan in Plans(replace(plans.audit, cfs=several))]
    assert places == ["1 of 2", "2 of 2", "", "", "", ""]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (float("nan"), None),
        (float("inf"), None),
        (None, None),
        (pd.NaT, None),
        (pd.NA, None),
        (pd.Timestamp("2024-03-01"), "2024-03-01T00:00:00"),
        (datetime(2024, 3, 1), "2024-03-01T00:00:00"),
        (("a", np.int64(1)), ["a", 1]),
    ],
)
def test_values_are_those_of_json(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found, allow_nan=False)


def many(people: int) -> hf.Plans:
    schema = Schema(
        (Feature("money", seen=(0, 10)), Feature("home", "category", levels=("a", "b")))
    )
    before = pd.DataFrame({"money": np.zeros(people), "home": "a"})
    after = before.assign(money=1 + np.arange(people) % 7, home="b")
    cfs = made(schema, before, after)
    held = np.arange(100)[:, None] < np.full(people, 99)
    return hf.Plans.of(hf.Audit(cfs, held, np.array(["retrain"] * 100), "a bank"), 0.9, 0.9)


def test_tables_of_many_people_are_made_column_by_column() -> None:
    """20,000 people: the table takes a second or two, records are made as they are asked for."""
    plans = many(20_000)
    start = time.perf_counter()
    assert len(plans.table()) == 20_000
    whole = time.perf_counter() - start
    start = time.perf_counter()
    assert next(iter(plans)).subject == 0
    assert time.perf_counter() - start < max(1.0, whole)
    assert whole < 20
