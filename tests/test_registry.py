"""Methods by name, and settings as the field's type says."""

from typing import Any, Literal

import pytest

import holdfast as hf
from holdfast.registry import METHODS, configured, describe, parsed


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3", int, 3),
        ("-1e3", float, -1000.0),
        ("none", float | None, None),
        ("None", float | None, None),
        ("2", float | None, 2.0),
        ("none", str | None, None),
        ("none", str, "none"),
        ("TRUE", bool, True),
        ("no", bool, False),
        ("0", bool, False),
        ("2", Literal[1, 2, "mse"], 2),
        ("mse", Literal[1, 2, "mse"], "mse"),
        ("", str, ""),
    ],
)
def test_settings_are_read_as_their_type_says(text: str, kind: Any, value: object) -> None:
    assert parsed(text, kind) == value
    assert type(parsed(text, kind)) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("x", int, "a whole number"),
        ("1.5", int, "a whole number"),
        ("", float, "a number"),
        ("maybe", bool, "true or false"),
        ("3", Literal[1, 2], "one of 1, 2"),
        ("x", float | None, "none or a number"),
        ("x", dict, "a value that only Python code can give"),
    ],
)
def test_settings_of_another_type_are_refused(text: str, kind: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parsed(text, kind)


@pytest.mark.parametrize("name", METHODS)
def test_every_default_can_be_written_as_a_setting(name: str) -> None:
    kind = hf.list_methods()[name]
    defaults = describe(name, kind)["settings"]
    written = configured(name, [f"{key}={value}" for key, value in defaults.items()])
    assert written.get_params() == kind().get_params()
