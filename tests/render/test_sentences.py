"""Sentences, word by word."""

import numpy as np
import pandas as pd
import pytest

from holdfast.counterfactuals import Counterfactuals
from holdfast.render.sentences import Moves, headings, moves, sentences
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema
from holdfast.target import Status
from support.answers import made


def said(feature: Feature, before: object, after: object) -> str:
    """The sentence about one change."""
    dtype = "float64" if feature.kind == "real" else object if feature.levels else None
    old = pd.DataFrame({feature.name: pd.Series([before], dtype=dtype)})
    new = pd.DataFrame({feature.name: pd.Series([after], dtype=dtype)})
    return sentences(made(Schema((feature,)), old, new)).item()


@pytest.fixture
def loans() -> Counterfactuals:
    schema = Schema(
        (
            Feature("savings", "integer", scale=500.0, seen=(0, 20_000)),
            Feature(
                "duration",
                "integer",
                scale=12.0,
                label="the loan",
                unit="months",
                verbs=("lengthen", "shorten"),
            ),
            Feature("housing", "category", levels=("rent", "own", "for free"), missing=True),
            Feature("has_telephone", "boolean"),
            Feature("job_grade", "ordered", levels=("low", "middle", "high"), scale=2.0),
        )
    )
    before = pd.DataFrame(
        {
            "savings": [200, 200, 5000, 1, 300],
            "duration": [36, 36, 12, 6, 24],
            "housing": ["rent", "rent", None, "own", "own"],
            "has_telephone": [False, False, True, True, True],
            "job_grade": ["low", "low", "high", "low", "middle"],
        },
        index=["ann", "bob", "cem", "dee", "eve"],
    )
    after = before.copy()
    after.loc["ann", ["savings", "duration"]] = [1150, 24]  # 1.9 and 1 encoded units
    after.loc["bob", "duration"] = 42
    after.loc["bob", "housing"] = "own"
    after.loc["bob", "has_telephone"] = True
    after.loc["cem", "housing"] = "for free"
    after.loc["cem", "job_grade"] = "middle"
    after.loc["eve", "savings"] = 900  # the best attempt of a row without an answer is not advice
    codes = [Status.FOUND, Status.FOUND, Status.FOUND, Status.ALREADY_MET, Status.NOT_FOUND]
    reasons = [
        "",
        "",
        "",
        "the model gives the wanted outcome already",
        "no reachable row found; try more steps",
    ]
    return made(schema, before, after, codes=codes, reasons=reasons)


def test_sentences_word_by_word(loans: Counterfactuals) -> None:
    got = sentences(loans)
    assert got.index.equals(loans.after.index)
    assert got.to_dict() == {
        "ann": "Raise savings from 200 to 1,150 and shorten the loan from 36 to 24 months.",
        "bob": "Change housing from rent to own, change has telephone from no to yes "
        "and lengthen the loan from 36 to 42 months.",
        "cem": "Change housing from missing to “for free” and lower job grade from high to middle.",
        "dee": "Nothing to change: the model gives the wanted outcome already.",
        "eve": "No answer: no reachable row found; try more steps.",
    }


def test_sentences_tell_the_same_changes_as_the_table(loans: Counterfactuals) -> None:
    count = sum(len(m.rows) for m in moves(loans, loans.found))
    assert count == len(loans.changes()) == 7


def test_no_rows_no_sentences(loans: Counterfactuals) -> None:
    empty = loans.before.iloc[:0]
    got = sentences(made(loans.schema, empty, empty))
    assert got.empty
    assert got.index.equals(empty.index)


@pytest.mark.parametrize(
    ("feature", "before", "after", "numbers"),
    [
        (Feature("x", seen=(0, 20_000)), 12_579.0, 9_900.0, "12,579 to 9,900"),
        (Feature("x", seen=(0, 1)), 0.1, 0.1 + 0.2, "0.1 to 0.3"),  # no float dust
        # whole numbers would look the same
        (Feature("x", seen=(0, 20_000)), 100.0, 100.25, "100 to 100.25"),
        (Feature("x", seen=(0, 1)), 0.5, 0.500_003_2, "0.5 to 0.5000032"),
        # as many decimals as the step
        (Feature("x", step=0.05, seen=(0, 1000)), 3.0, 3.15, "3 to 3.15"),
        (Feature("x", step=50.0), 1_169.37, 1_200.0, "1,169 to 1,200"),
        (Feature("x", "integer"), 1_000_000, 0, "1,000,000 to 0"),
        (Feature("x", seen=(-5, 5)), -0.001, -2.5, "0 to -2.5"),
        (Feature("x"), 1e20, 2e20, "1e+20 to 2e+20"),
        (Feature("x"), 0.0, 1e-30, "0.0 to 1e-30"),
        (Feature("x", unit="€", seen=(-1000, 9000)), -250.0, 1_150.0, "-€250 to €1,150"),
        (Feature("x", unit="%", seen=(0, 100)), 3.0, 4.0, "3% to 4%"),
        (Feature("x", unit="km", seen=(0, 100)), 3.0, 4.0, "3 to 4 km"),
    ],
)
def test_numbers_for_people(feature: Feature, before: float, after: float, numbers: str) -> None:
    verb = "Raise" if after > before else "Lower"
    assert said(feature, before, after) == f"{verb} x from {numbers}."


def test_the_number_to_reach_is_rounded_away_from_the_old_one_but_not_out_of_bounds() -> None:
    assert said(Feature("x", seen=(0, 1000)), 10.0, 20.2) == "Raise x from 10 to 21."
    assert said(Feature("x", seen=(0, 1000)), 80.0, 20.8) == "Lower x from 80 to 20."
    assert (
        said(Feature("x", seen=(0, 1000), bounds=(0, 20.5)), 10.0, 20.2) == "Raise x from 10 to 20."
    )


def test_float32_columns_are_not_rounded_a_step_too_far() -> None:
    old = pd.DataFrame({"x": np.array([0.9], dtype=np.float32)})
    new = pd.DataFrame({"x": np.array([0.7], dtype=np.float32)})
    cfs = made(Schema((Feature("x", seen=(0, 1)),)), old, new)
    assert sentences(cfs).item() == "Lower x from 0.9 to 0.7."


def test_before_and_after_never_look_the_same() -> None:
    rng = np.random.default_rng(0)
    was = rng.uniform(-1e4, 1e4, 2000) * 10.0 ** rng.integers(-6, 3, 2000)
    now = was + rng.choice([-1, 1], 2000) * 10.0 ** rng.uniform(-9, 4, 2000)
    for bounds in ((-np.inf, np.inf), (now.min(), now.max())):
        schema = Schema((Feature("x", seen=(-1e4, 1e4), bounds=bounds),))
        cfs = made(schema, pd.DataFrame({"x": was}), pd.DataFrame({"x": now}))
        (told,) = moves(cfs, cfs.found)
        assert len(told.rows) == 2000
        assert all(a != b for a, b in zip(told.before, told.after, strict=True))


def test_levels_that_would_run_into_the_sentence_are_quoted() -> None:
    phone = Feature(
        "phone", "category", levels=("none", "yes, on the customer's name", "", 2.0, True)
    )
    assert said(phone, "none", "yes, on the customer's name") == (
        "Change phone from “none” to “yes, on the customer's name”."
    )
    assert said(phone, "none", "") == "Change phone from none to (empty)."
    assert said(phone, 2.0, True) == "Change phone from 2 to yes."


def test_headings_tell_features_apart() -> None:
    features = [
        Feature("a", label="the loan"),
        Feature("b", label="loan"),
        Feature("credit_amount"),
    ]
    assert headings(features) == ["loan (a)", "loan (b)", "credit amount"]


def test_moves_know_their_way(loans: Counterfactuals) -> None:
    ways = {
        m.feature.name: dict(zip(m.rows.tolist(), m.way.tolist(), strict=True))
        for m in moves(loans, loans.found)
    }
    assert ways == {
        "savings": {0: 1},
        "duration": {0: -1, 1: 1},
        "housing": {1: 0, 2: 0},
        "has_telephone": {1: 0},
        "job_grade": {2: -1},
    }
    assert all(isinstance(m, Moves) for m in moves(loans, loans.found))
