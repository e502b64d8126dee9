"""What a schema promises, checked on the tables themselves."""

import numpy as np
import pandas as pd

import holdfast as hf
from holdfast.schema.rule import Rule
from holdfast.schema.verify import blocked, violations


def test_blocked_says_why() -> None:
    features = (
        hf.Feature("age", "integer", "fixed", bounds=(18, 65)),
        hf.Feature("debt", "real", "up", bounds=(0, 10)),
        hf.Feature("home", "category", "fixed", levels=("rent", "own"), allowed=("own",)),
        hf.Feature("low", "real", "fixed"),
        hf.Feature("top", "real", bounds=(0, 5)),
    )
    schema = hf.Schema(features, (Rule.parse("low <= top"),))
    people = pd.DataFrame(
        [
            (30, 1.0, "own", 1.0, 2.0),
            (70, 1.0, "own", 1.0, 2.0),
            (30, 11.0, "own", 1.0, 2.0),
            (30, 1.0, "rent", 1.0, 2.0),
            (30, 1.0, "own", 9.0, 2.0),
        ],
        columns=schema.names,
    )
    reasons = blocked(schema, schema.read(people))
    assert reasons[0] == ""
    assert "age is 70" in reasons[1]
    assert "fixed" in reasons[1]
    assert "debt is 11.0" in reasons[2]
    assert "may only rise" in reasons[2]
    assert "home is rent" in reasons[3]
    assert "rule 'low <= top' cannot be kept" in reasons[4]
    few = hf.Schema((hf.Feature("a", bounds=(0, 1)), hf.Feature("b", bounds=(0, 1))), max_changes=1)
    assert "at most 1 change" in blocked(few, np.array([[2.0, 2.0]]))[0]


def test_violations_are_found_one_by_one() -> None:
    features = (
        hf.Feature("n", "integer", bounds=(0, 9)),
        hf.Feature("u", "real", "up"),
        hf.Feature("d", "real", "down"),
        hf.Feature("f", "real", "fixed"),
        hf.Feature("c", "category", levels=("a", "b"), allowed=("a",), missing=True),
        hf.Feature("s", "real", step=0.5),
    )
    schema = hf.Schema(features, (Rule.parse("u <= d"),), 2)
    was = np.array([[5.0, 1, 4, 3, 0, 1.0]])
    for change, words in {
        (0, 12.0): "outside 0 to 9",
        (0, 5.5): "between steps",
        (1, 0.0): "only rise",
        (2, 5.0): "only fall",
        (3, 2.0): "fixed",
        (4, 1.0): "not allowed",
        (4, 2.0): "became missing",
        (5, 1.2): "between steps",
        (1, 4.5): "rule 'u <= d'",
    }.items():
        now = was.copy()
        now[0, change[0]] = change[1]
        assert words in violations(schema, was, now)[0], change
    many = was + np.array([[1, 1, -1, 0, 0, 0.5]])
    assert "more than 2 changes" in violations(schema, was, many)[0]
    assert violations(schema, was, was)[0] == ""
