"""`holdfast methods` lists what there is; for datasets see tests/datasets."""

import json

import pytest

import holdfast as hf
from holdfast.registry import METHODS
from support.terminal import run


def test_methods_lists_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ran = run("methods")
    assert ran.code == 0
    for name, (_, cls) in METHODS.items():
        assert name in ran.out
        assert cls in ran.out
        assert hf.list_methods()[name].title in ran.out
    assert "steps=60" in ran.out


def test_methods_as_json() -> None:
    about = [m for m in json.loads(run("methods", "--json").out) if m["for"] == "tables"]
    assert [(m["name"], m["class"]) for m in about] == [
        (name, cls) for name, (_, cls) in METHODS.items()
    ]
    for m in about:
        kind = hf.list_methods()[m["name"]]
        assert (m["needs_gradients"], m["needs_data"], m["paper"]) == (
            kind.needs_grad,
            kind.needs_data,
            kind.paper,
        )
        assert m["settings"].keys() == kind().get_params(deep=False).keys()
