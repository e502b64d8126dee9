"""Every type that a skops file may hold: it loads and predicts the same, and crafted ones are
refused."""

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from holdfast.errors import FileError, UnsafeFileError
from holdfast.models.formats.skops import reader as own
from support.model_files import LOGISTIC, RNG, SCHEMA, TABLE, TWO, silent, skops_bytes
from support.skops_files import ZOO, crafted, saved


@pytest.mark.parametrize("name", ZOO)
def test_every_type_on_the_list_loads_and_predicts_the_same(
    name: str, tmp_path: Path, no_child: None
) -> None:
    estimator, data = saved(name)
    _, table, _ = ZOO[name]
    (tmp_path / "m.skops").write_bytes(data)
    model = hf.Model.load(tmp_path / "m.skops", hf.Schema.infer(table))
    assert model.predict(table).tolist() == estimator.predict(table).tolist()
    described = own.describe(data)
    assert described.gradients == model.has_grad, model.conversion
    assert described.outputs == {"logits": "scores"}.get(model.outputs, model.outputs)
    assert described.classes == (list(model.classes) or None)


def test_files_of_the_first_protocol_are_refused() -> None:
    data = crafted(saved("LogisticRegression()")[1], lambda schema, _: schema.update(protocol=0))
    with pytest.raises(FileError, match="protocol 0"):
        own.check_file(data)


def test_numbers_of_objects_that_only_look_different_are_refused() -> None:
    """1, 1.0 and true are one key of a dict, so skops would take one object for another."""
    data = saved("LogisticRegression()")[1]
    for number in (1.0, True, "1"):
        with pytest.raises(FileError, match="not an integer"):
            own.check_file(
                crafted(data, lambda schema, _, number=number: schema.update(__id__=number))
            )


# ---- crafted files


def entries(schema: object) -> list[dict]:
    return list(own._entries(schema))


def edited(data: bytes, change: Callable[[str, bytes], bytes]) -> bytes:
    """A skops file with other entries."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return file.getvalue()


def with_arrays(data: bytes, field: str, change: Callable[[np.ndarray], None]) -> bytes:
    """A skops file whose tables with this column are changed."""

    def one(name: str, content: bytes) -> bytes:
        if not name.endswith(".npy"):
            return content
        array = np.load(io.BytesIO(content))
        if field not in (array.dtype.names or ()):
            return content
        change(array)
        out = io.BytesIO()
        np.save(out, array)
        return out.getvalue()

    return edited(data, one)


def with_schema(data: bytes, change: Callable[[dict], None]) -> bytes:
    def one(name: str, content: bytes) -> bytes:
        if name != "schema.json":
            return content
        schema = json.loads(content)
        change(schema)
        return json.dumps(schema).encode()

    return edited(data, one)


FOREST = RandomForestClassifier(2, max_depth=3, random_state=0).fit(TABLE, TWO)
TREE = skops_bytes(DecisionTreeClassifier(max_depth=3).fit(TABLE, TWO))
BOOSTED = skops_bytes(GradientBoostingClassifier(n_estimators=2).fit(TABLE, TWO))
HISTOGRAM = skops_bytes(HistGradientBoostingClassifier(max_iter=2).fit(TABLE, TWO))


def test_skops_files_load_through_a_child_process(tmp_path: Path) -> None:
    table = TABLE.assign(job=pd.Categorical(RNG.choice(["x", "y"], len(TABLE))))
    hot = make_column_transformer((StandardScaler(), ["a", "b", "c"]), (OneHotEncoder(), ["job"]))
    pipeline = make_pipeline(hot, RandomForestClassifier(2, max_depth=3, random_state=0)).fit(
        table, TWO
    )
    skops.io.dump(pipeline, tmp_path / "m.skops")
    model = hf.Model.load(tmp_path / "m.skops", hf.Schema.infer(table))
    assert model.classes == (0, 1)
    assert (model.predict(table) == pipeline.predict(table)).all()
    with pytest.raises(FileError, match="schema"):
        hf.Model.load(tmp_path / "m.skops")


@pytest.mark.parametrize(
    "data", [LOGISTIC, TREE, BOOSTED, HISTOGRAM], ids=["logistic", "tree", "boosted", "histogram"]
)
def test_good_estimators_pass_all_checks(data: bytes) -> None:
    own.check_file(data)
    own.exercise(own.made(data))


def test_skops_files_with_other_types_are_refused_before_anything_is_imported(
    tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "canary_module.py").write_text(
        f"open({str(canary)!r}, 'w').close()\nclass Thing: pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "m.skops"

    def foreign(module: str, name: str, loader: str) -> bytes:
        entry = {
            "__module__": module,
            "__class__": name,
            "__loader__": loader,
            "__id__": 77,
            "content": {},
        }
        return with_schema(LOGISTIC, lambda schema: schema["content"]["content"].update(C=entry))

    for data in (
        foreign("canary_module", "Thing", "ObjectNode"),
        foreign("canary_module", "Thing", "TypeNode"),
        foreign("os", "system", "FunctionNode"),
        foreign("builtins", "eval", "FunctionNode"),
        foreign("builtins", "str", "MethodNode"),
        foreign("sklearn.linear_model._logistic", "LogisticRegression", "OperatorFuncNode"),
        foreign("functools", "partial", "ObjectNode"),
        skops_bytes(KNeighborsClassifier().fit(TABLE, TWO)),
    ):
        path.write_bytes(data)
        with pytest.raises(UnsafeFileError, match="not on the list of types"):
            hf.Model.load(path, SCHEMA)
    silent(canary)


def wild(array: np.ndarray, field: str, value: int) -> None:
    array[field][0] = value


@pytest.mark.parametrize(
    ("data", "field", "value", "words"),
    [
        (TREE, "left_child", 10**6, "child"),
        (TREE, "right_child", -7, "child"),
        (TREE, "left_child", 0, "child"),
        (TREE, "feature", 10**6, "column"),
        (TREE, "feature", -3, "column"),
        (BOOSTED, "left_child", 10**6, "child"),
        (BOOSTED, "right_child", 1, "two others"),
        (HISTOGRAM, "left", 10**6, "child"),
        (HISTOGRAM, "right", 0, "child"),
        (HISTOGRAM, "feature_idx", 10**6, "column"),
    ],
)
def test_wild_indices_in_trees_are_refused(data: bytes, field: str, value: int, words: str) -> None:
    crafted = with_arrays(data, field, lambda array: wild(array, field, value))
    with pytest.raises(FileError, match=words):
        own.made(crafted)


def test_a_wild_tree_is_refused_by_the_child(tmp_path: Path) -> None:
    crafted = with_arrays(
        skops_bytes(FOREST), "left_child", lambda array: wild(array, "left_child", 2**40)
    )
    (tmp_path / "m.skops").write_bytes(crafted)
    with pytest.raises(FileError, match="a child is 1099511627776"):
        hf.Model.load(tmp_path / "m.skops", SCHEMA)


def test_sizes_of_trees_are_checked_before_they_are_made() -> None:
    def count(schema: dict) -> None:
        for entry in entries(schema):
            if "node_count" in entry:
                entry["node_count"] = {**entry["node_count"], "content": "1000000", "__id__": 5}

    def outputs(schema: dict) -> None:
        for entry in entries(schema):
            if entry.get("__loader__") == "TreeNode":
                last = entry["__reduce__"]["args"]["content"][2]
                entry["__reduce__"]["args"]["content"][2] = {
                    **last,
                    "content": "100000000",
                    "__id__": 6,
                }

    for change in (count, outputs):
        with pytest.raises(FileError, match="sizes that do not fit"):
            own.check_file(with_schema(TREE, change))


def test_one_number_for_two_objects_is_refused() -> None:
    def twins(schema: dict) -> None:
        numbers = [e for e in entries(schema) if e.get("__loader__") == "JsonNode"]
        numbers[0]["__id__"] = numbers[1]["__id__"]
        numbers[0]["content"] = "12345"

    with pytest.raises(FileError, match="two different objects"):
        own.check_file(with_schema(TREE, twins))


@given(st.floats(0, 1), st.integers(0, 255), st.booleans())
@settings(max_examples=60, deadline=None)
def test_damaged_skops_files_are_refused_or_load(place: float, byte: int, inside: bool) -> None:
    def damage(raw: bytes) -> bytes:
        at = int(place * (len(raw) - 1))
        return raw[:at] + bytes([byte]) + raw[at + 1 :]

    data = edited(LOGISTIC, lambda name, raw: damage(raw)) if inside else damage(LOGISTIC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            own.check_file(data)
            own.made(data)
        except FileError:
            return
