"""Methods by name, and settings as the field's type says."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast.errors import SettingError
from holdfast.registry import (
    METHODS,
    build_image_method,
    build_method,
    default_method,
    describe,
    parse_value,
)


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
    assert parse_value(text, kind) == value
    assert type(parse_value(text, kind)) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("x", int, "an integer"),
        ("1.5", int, "an integer"),
        ("", float, "a number"),
        ("maybe", bool, "true or false"),
        ("3", Literal[1, 2], "one of 1, 2"),
        ("x", float | None, "none or a number"),
        ("x", dict, "a value that only Python code can give"),
    ],
)
def test_settings_of_another_type_are_refused(text: str, kind: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_value(text, kind)


@pytest.mark.parametrize("name", METHODS)
def test_every_default_can_be_written_as_a_setting(name: str) -> None:
    kind = hf.list_methods()[name]
    defaults = describe(name, kind)["settings"]
    written = build_method(name, [f"{key}={value}" for key, value in defaults.items()])
    assert written.get_params() == kind().get_params()


def test_the_default_method_suits_the_model(tmp_path: Path) -> None:
    X = pd.DataFrame({"a": np.linspace(-1, 1, 40), "b": np.tile([0.0, 1.0], 20)})
    y = np.where(X["a"] > 0, "yes", "no")
    schema = hf.Schema.infer(X)
    network = hf.train_network(X, y, schema, hidden=(4,), epochs=2)
    assert default_method(network) == "min-cost"
    assert (
        default_method(hf.Model.of(lambda X: (X["a"] > 0).to_numpy().astype(float), schema))
        == "tree-search"
    )
    network.save(tmp_path / "network.safetensors")
    assert default_method(network, tmp_path / "network.safetensors") == "min-cost"
    both = hf.CounterNet(encoder=(4,), predictor=(4,), generator=(4,), epochs=1).fit(X, y, schema)
    both.save(tmp_path / "both.safetensors")
    assert default_method(both.model_, tmp_path / "both.safetensors") == "learned-recourse"
    assert default_method(both.model_) == "min-cost"


def test_methods_are_built_from_strings() -> None:
    assert repr(build_method("min-cost", ["steps=200", "norm=2"])) == "MinCost(norm=2, steps=200)"
    moved = build_method("stable-neighbor-search", ["start=prototype", "start__k=5"])
    assert moved.get_params()["start__k"] == 5
    assert build_image_method("jsma", ["max_iter=3"]).get_params()["max_iter"] == 3
    for settings, words in (
        (["steps"], "a setting is written KEY=VALUE, got 'steps'"),
        (["stepps=3"], "min-cost has no setting 'stepps'; did you mean 'steps'"),
        (["steps=many"], "steps=many: expected an integer"),
    ):
        with pytest.raises(SettingError, match=words):
            build_method("min-cost", settings)
    with pytest.raises(SettingError, match="unknown method 'min_cost'; did you mean 'min-cost'"):
        build_method("min_cost")
    with pytest.raises(SettingError, match="method 'deduce' is for images"):
        build_method("deduce")
    with pytest.raises(SettingError, match="method 'min-cost' is for tables"):
        build_image_method("min-cost")
