"""Linear rules, read from text."""

import math

import pytest

from holdfast.errors import SchemaError
from holdfast.schema.rule import Rule


@pytest.mark.parametrize(
    ("text", "weights", "bound"),
    [
        ("open <= total", {"open": 1, "total": -1}, 0),
        ("open >= total", {"open": -1, "total": 1}, 0),
        ("  a<=5 ", {"a": 1}, 5),
        ("3 <= a", {"a": -1}, -3),
        ("a >= -3", {"a": -1}, 3),
        ("-a <= .5", {"a": -1}, 0.5),
        ("+ a <= 5.", {"a": 1}, 5),
        ("2 * a - `b c` >= -3", {"a": -2, "b c": 1}, 3),
        ("a * 2 <= b", {"a": 2, "b": -1}, 0),
        ("2 * 3 * a * 0.5 <= b", {"a": 3, "b": -1}, 0),
        ("a - 2 <= b + 3", {"a": 1, "b": -1}, 5),
        ("1 + a + 2 <= 10 - b - 3", {"a": 1, "b": 1}, 4),
        ("a + a <= 4 - a", {"a": 3}, 4),
        ("a + b - b <= 1", {"a": 1}, 1),
        ("1.5e3 * a <= 2E-2", {"a": 1500}, 0.02),
        ("a >= b + 1e+3", {"a": -1, "b": 1}, -1000),
        ("`x <= y` <= `-3`", {"x <= y": 1, "-3": -1}, 0),
        ("größe_2 <= _b", {"größe_2": 1, "_b": -1}, 0),
        ("`2nd floor` <= 3", {"2nd floor": 1}, 3),
    ],
)
def test_rules_are_read(text: str, weights: dict[str, float], bound: float) -> None:
    rule = Rule.parse(text)
    assert rule.weights == weights
    assert rule.bound == bound
    assert math.copysign(1, rule.bound) == 1 or rule.bound < 0  # no minus zero
    assert Rule.parse(rule.text) == rule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "one comparison"),
        ("a", "one comparison"),
        ("a + b", "one comparison"),
        ("a < b", "one comparison"),
        ("a == b", "one comparison"),
        ("a <= b <= c", "one comparison"),
        ("`a <= 3`", "one comparison"),
        ("a <=", "one side is empty"),
        ("<= a", "one side is empty"),
        ("`a <= 3", "cannot read '`a'"),
        ("a b <= 3", "cannot read 'b'"),
        ("2 a <= 3", "cannot read 'a'"),
        ("2 3 <= a", "cannot read '3'"),
        ("5a <= 3", "cannot read '5a'"),
        ("a <= 2 *", "cannot read '*'"),
        ("* a <= 2", "cannot read '* a'"),
        ("a + <= 2", "cannot read '+'"),
        ("a - - b <= 2", "cannot read '- - b'"),
        ("2 * -3 * a <= 2", "cannot read '* -3 * a'"),
        ("a / 2 <= 1", "cannot read '/ 2'"),
        ("(a + b) <= 1", "cannot read '(a + b)'"),
        ("a.b <= 1", "cannot read '.b'"),
        ("1.2.3 * a <= 1", "cannot read '1.2.3 * a'"),
        ("a * b <= 1", "multiplies two columns"),
        ("3 <= 4", "needs at least one column"),
        ("a <= a", "needs at least one column"),
        ("0 * a <= 4", "needs at least one column"),
        ("1e999 * a <= 4", "too large"),
        ("a <= 1e999", "too large"),
    ],
)
def test_rules_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(SchemaError) as error:
        Rule.parse(text)
    assert why in str(error.value)
    assert repr(text) in str(error.value)
    assert "write it like 'open_accounts <= total_accounts'" in str(error.value)


@pytest.mark.parametrize(
    ("text", "weights", "bound"),
    [
        ("a <= b", {"a": 1, "b": -1}, 0),
        ("a >= b", {"a": -1, "b": 1}, 0),
        ("2 * a - `b c` >= -3", {"a": -2, "b c": 1}, 3),
        ("a + 1 <= 3 + b", {"a": 1, "b": -1}, 2),
        ("1e2 * a <= 0.5", {"a": 100}, 0.5),
        ("-a + b <= 2", {"a": -1, "b": 1}, 2),
        ("a + a <= 4", {"a": 2}, 4),
    ],
)
def test_rules_with_one_or_two_columns_are_read(
    text: str, weights: dict[str, float], bound: float
) -> None:
    rule = Rule.parse(text)
    assert dict(rule.weights) == weights
    assert rule.bound == bound


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a < b",
        "a <= b <= c",
        "a == b",
        "a * b <= 1",
        "1 <= 2",
        "a <= ",
        "a ** 2 <= 1",
        "a <= b c",
    ],
)
def test_what_is_not_a_rule_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="rule"):
        Rule.parse(text)
