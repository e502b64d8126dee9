"""Model files of every kind: told by content, checked before they are loaded, and nothing run that was not trusted."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import re
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import joblib
import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import holdfast as hf
from holdfast.errors import FileError, UnsafeFileError
from holdfast.models.compiled.from_boosters import PLAIN
from holdfast.models.formats import lightgbm as own_lightgbm
from holdfast.models.formats import limits as bounded
from holdfast.models.formats import ubjson
from holdfast.models.formats import xgboost as own_xgboost
from holdfast.models.formats.detect import kind_of
from holdfast.models.formats.sandbox import try_in_child
from holdfast.models.formats.skops import reader as own_skops
from holdfast.nn.architecture import mlp
from support.tables import seeded

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(80, 3)), columns=["a", "b", "c"])
TWO, THREE = (TABLE["a"] + TABLE["b"] ** 2 > 0.5).astype(int), np.digitize(TABLE["a"], [-0.5, 0.5])
SCHEMA = hf.Schema.infer(TABLE)


class Bomb:
    """Leaves two marks when it is unpickled: a file and an environment variable."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        code = f"import os; os.environ['HOLDFAST_CANARY'] = 'sung'; open({str(self.marker)!r}, 'w').close()"
        return exec, (code,)


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the bomb would leave its mark; looked at when the test is over."""
    monkeypatch.delenv("HOLDFAST_CANARY", raising=False)
    return tmp_path / "canary"


def silent(marker: Path) -> None:
    assert not marker.exists()
    assert "HOLDFAST_CANARY" not in os.environ


def test_the_canary_sings_when_it_is_unpickled(canary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CANARY", "")
    pickle.loads(pickle.dumps(Bomb(canary)))
    assert canary.exists()
    assert os.environ["HOLDFAST_CANARY"] == "sung"


# ---- files that run code


def zipped(**entries: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name.replace("__", "/").replace("_DOT_", "."), content)
    return file.getvalue()


def torch_saved(thing: object) -> bytes:
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


def joblib_dumped(thing: object, **how: object) -> bytes:
    file = io.BytesIO()
    joblib.dump(thing, file, **how)
    return file.getvalue()


DANGEROUS: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "pickle 0": ("pickle", lambda m: pickle.dumps(Bomb(m), 0)),
    "pickle 1": ("pickle", lambda m: pickle.dumps(Bomb(m), 1)),
    "pickle 5": ("pickle", lambda m: pickle.dumps(Bomb(m), 5)),
    "joblib": ("joblib", lambda m: joblib_dumped((Bomb(m), np.ones(3)))),
    "joblib zlib": ("compressed", lambda m: joblib_dumped(Bomb(m), compress=("zlib", 3))),
    "gzip": ("compressed", lambda m: gzip.compress(pickle.dumps(Bomb(m)))),
    "bz2": ("compressed", lambda m: bz2.compress(pickle.dumps(Bomb(m)))),
    "xz": ("compressed", lambda m: lzma.compress(pickle.dumps(Bomb(m)))),
    "zlib": ("compressed", lambda m: zlib.compress(pickle.dumps(Bomb(m)))),
    "cloudpickle": ("cloudpickle", lambda m: cloudpickle.dumps((lambda: m, Bomb(m)))),
    "dill": ("dill", lambda m: pickle.dumps(("dill._dill", Bomb(m)))),
    "torch": ("torch", lambda m: torch_saved(Bomb(m))),
    "torch, old": ("torch", lambda m: b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + pickle.dumps(Bomb(m))),
    "torchscript": (
        "torchscript",
        lambda m: zipped(
            m__data_DOT_pkl=pickle.dumps(Bomb(m)), m__constants_DOT_pkl=pickle.dumps(Bomb(m)), m__code__a_DOT_py=b"1"
        ),
    ),
    "pt2": (
        "pt2",
        lambda m: zipped(m__archive_format=b"pt2", m__data__weights__payload_DOT_pkl=pickle.dumps(Bomb(m))),
    ),
}
NAMES = ["model.pkl", "model.safetensors", "model.onnx", "model.skops", "model.json", "model.txt", "model"]


@pytest.mark.parametrize("what", DANGEROUS)
def test_files_that_run_code_are_refused_and_not_run(what: str, tmp_path: Path, canary: Path) -> None:
    kind, make = DANGEROUS[what]
    for name in NAMES:
        path = tmp_path / name
        path.write_bytes(make(canary))
        assert kind_of(path).name == kind, name
        with pytest.raises(UnsafeFileError, match=r"can run any code.*trust=True"):
            hf.Model.load(path, SCHEMA)
    silent(canary)


@pytest.mark.parametrize("what", ["pickle 5", "joblib zlib", "torch", "cloudpickle"])
def test_the_same_files_do_run_code_when_trusted(what: str, tmp_path: Path, canary: Path) -> None:
    """Else the tests above would prove nothing."""
    path = tmp_path / "model"
    path.write_bytes(DANGEROUS[what][1](canary))
    with pytest.raises(hf.HoldfastError):  # what it unpickles to is no model
        hf.Model.load(path, SCHEMA, trust=True)
    assert canary.exists()
    os.environ.pop("HOLDFAST_CANARY")


def test_trusted_files_load(tmp_path: Path) -> None:
    net = seeded(mlp(3, (4,), 2))
    x = SCHEMA.encode(TABLE)
    torch.save(net, tmp_path / "m.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(net, x), tmp_path / "script.pt")
        torch.export.save(
            torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("n")},)), tmp_path / "m.pt2"
        )
        assert [kind_of(tmp_path / n).name for n in ("m.pt", "script.pt", "m.pt2")] == ["torch", "torchscript", "pt2"]
        for name in ("m.pt", "script.pt", "m.pt2"):
            with pytest.raises(UnsafeFileError):
                hf.Model.load(tmp_path / name, SCHEMA)
            model = hf.Model.load(tmp_path / name, SCHEMA, trust=True, classes=["no", "yes"])
            with model.eval_mode():
                assert torch.allclose(model(x), net(x), atol=1e-6)
                assert model.vjp(x[:5])[1](torch.ones(5, 2)).shape == (5, 3)
    with pytest.raises(FileError, match="schema"):
        hf.Model.load(tmp_path / "m.pt", trust=True)


def test_a_safetensors_file_is_known_whatever_it_is_called(tmp_path: Path) -> None:
    model = hf.Model.of(seeded(mlp(3, (4,), 2)), SCHEMA)
    model.save(tmp_path / "m.safetensors")
    for name in ("m.pkl", "m.onnx", "m"):
        (tmp_path / name).write_bytes((tmp_path / "m.safetensors").read_bytes())
        assert hf.Model.load(tmp_path / name).classes == (0, 1)


def test_other_files_are_told_what_they_are(tmp_path: Path) -> None:
    for content, kind in (
        (b"", "empty"),
        (b"hello there", "unknown"),
        (b"\x89HDF\r\n\x1a\n" + bytes(64), "keras"),
        (b"CBM1" + bytes(64), "catboost"),
        (zipped(a_DOT_txt=b"a"), "zip"),
        (bytes(100), "unknown"),
        (b"{}", "unknown"),
        (b'{"a": 1}', "unknown"),
    ):
        (tmp_path / "m").write_bytes(content)
        assert kind_of(tmp_path / "m").name == kind
        with pytest.raises(FileError, match="models are read from"):
            hf.Model.load(tmp_path / "m", SCHEMA)
    with pytest.raises(FileError, match="no model file"):
        hf.Model.load(tmp_path, SCHEMA)


# ---- zip bombs and the like


def test_zip_bombs_are_refused(tmp_path: Path) -> None:
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b"[" * 1000)
        archive.writestr("big", bytes(bounded.FREE_BYTES + 1))
    path = tmp_path / "bomb.skops"
    path.write_bytes(zeros.getvalue())
    with pytest.raises(FileError, match="zip bomb"):
        hf.Model.load(path, SCHEMA)
    # The same, but claiming to be small: the directory at the end and the header of the entry both lie.
    lying = zeros.getvalue().replace(struct.pack("<I", bounded.FREE_BYTES + 1), struct.pack("<I", 10))
    with pytest.raises(FileError, match="zip"):
        bounded.unzip(lying, "it")


def test_zip_files_of_many_or_strange_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MOST_ENTRIES", 3)
    with pytest.raises(FileError, match="4 entries"):
        bounded.unzip(zipped(a=b"", b=b"", c=b"", d=b""), "it")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")
    with pytest.raises(FileError, match="same name"):
        bounded.unzip(file.getvalue(), "it")
    with pytest.raises(FileError, match="damaged zip"):
        bounded.unzip(zipped(a=bytes(100))[:90], "it")
    monkeypatch.setattr(bounded, "MOST_BYTES", 3)
    with pytest.raises(FileError, match="more than the 3"):
        bounded.read_bytes(Path(__file__))


def test_json_is_read_strictly() -> None:
    for text in (b"[" * 100_000, b'{"a": 1, "a": 2}', b"NaN", b"\xff", b"{", b"1" * 5000):
        with pytest.raises(FileError):
            bounded.parse_json(text, "it")


# ---- skops


def skops_bytes(estimator: object) -> bytes:
    return skops.io.dumps(estimator)


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


def entries(schema: object) -> list[dict]:
    return list(own_skops._entries(schema))


LOGISTIC = skops_bytes(LogisticRegression().fit(TABLE, TWO))
FOREST = RandomForestClassifier(2, max_depth=3, random_state=0).fit(TABLE, TWO)
TREE = skops_bytes(DecisionTreeClassifier(max_depth=3).fit(TABLE, TWO))
BOOSTED = skops_bytes(GradientBoostingClassifier(n_estimators=2).fit(TABLE, TWO))
HISTOGRAM = skops_bytes(HistGradientBoostingClassifier(max_iter=2).fit(TABLE, TWO))


def test_skops_files_load_through_a_child_process(tmp_path: Path) -> None:
    table = TABLE.assign(job=pd.Categorical(RNG.choice(["x", "y"], len(TABLE))))
    hot = make_column_transformer((StandardScaler(), ["a", "b", "c"]), (OneHotEncoder(), ["job"]))
    pipeline = make_pipeline(hot, RandomForestClassifier(2, max_depth=3, random_state=0)).fit(table, TWO)
    skops.io.dump(pipeline, tmp_path / "m.skops")
    model = hf.Model.load(tmp_path / "m.skops", hf.Schema.infer(table))
    assert model.classes == (0, 1)
    assert (model.predict(table) == pipeline.predict(table)).all()
    with pytest.raises(FileError, match="schema"):
        hf.Model.load(tmp_path / "m.skops")


@pytest.mark.parametrize("data", [LOGISTIC, TREE, BOOSTED, HISTOGRAM], ids=["logistic", "tree", "boosted", "histogram"])
def test_good_estimators_pass_all_checks(data: bytes) -> None:
    own_skops.check_file(data)
    own_skops.exercise(own_skops.made(data))


def test_skops_files_with_other_types_are_refused_before_anything_is_imported(
    tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "canary_module.py").write_text(f"open({str(canary)!r}, 'w').close()\nclass Thing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "m.skops"

    def foreign(module: str, name: str, loader: str) -> bytes:
        entry = {"__module__": module, "__class__": name, "__loader__": loader, "__id__": 77, "content": {}}
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
        own_skops.made(crafted)


def test_a_wild_tree_is_refused_by_the_child(tmp_path: Path) -> None:
    crafted = with_arrays(skops_bytes(FOREST), "left_child", lambda array: wild(array, "left_child", 2**40))
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
                entry["__reduce__"]["args"]["content"][2] = {**last, "content": "100000000", "__id__": 6}

    for change in (count, outputs):
        with pytest.raises(FileError, match="sizes that do not fit"):
            own_skops.check_file(with_schema(TREE, change))


def test_one_number_for_two_objects_is_refused() -> None:
    def twins(schema: dict) -> None:
        numbers = [e for e in entries(schema) if e.get("__loader__") == "JsonNode"]
        numbers[0]["__id__"], numbers[0]["content"] = numbers[1]["__id__"], "12345"

    with pytest.raises(FileError, match="two different objects"):
        own_skops.check_file(with_schema(TREE, twins))


def test_what_a_child_process_does_wrong_is_a_refusal() -> None:
    for program, words in (
        ("import os; os.abort()", "crashed a child process .SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("raise MemoryError('too much')", "MemoryError"),
        ("import sys; print('wild'); sys.exit(3)", "wild"),
    ):
        with pytest.raises(FileError, match=words):
            try_in_child(b"", program)
    with pytest.raises(FileError, match=r"more than 0\.2 s"):
        try_in_child(b"", "import time; time.sleep(30)", patience=0.2)
    try_in_child(b"abc", "import sys; assert sys.stdin.buffer.read() == b'abc'")


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
            own_skops.check_file(data)
            own_skops.made(data)
        except FileError:
            return


# ---- XGBoost


def xgboost_bytes(kind: str = "json", y: object = TWO, table: pd.DataFrame = TABLE, **more: object) -> bytes:
    settings = {"n_estimators": 2, "n_jobs": 1, **more}
    if more.get("booster") != "gblinear":
        settings["max_depth"] = 2
    return bytes(xgboost.XGBClassifier(**settings).fit(table, y).get_booster().save_raw(kind))


CATEGORIES = TABLE.assign(job=pd.Categorical(RNG.choice(list("uvwxyz"), len(TABLE))))
BY_JOB = CATEGORIES["job"].isin(["u", "x", "z"]).astype(int)
X_JSON, X_UBJ = xgboost_bytes(), xgboost_bytes("ubj")


@pytest.mark.parametrize("kind", ["json", "ubj"])
def test_xgboost_files_predict_the_same_to_the_bit(kind: str, tmp_path: Path) -> None:
    for y, table, more in (
        (TWO, TABLE, {}),
        (THREE, TABLE, {}),
        (TWO, TABLE, {"booster": "dart"}),
        (TWO, TABLE, {"booster": "gblinear"}),
        (TWO, TABLE, {"gamma": 1.0}),
        (BY_JOB, CATEGORIES, {"enable_categorical": True, "max_cat_to_onehot": 1}),
    ):
        path = tmp_path / f"m.{kind}"
        path.write_bytes(xgboost_bytes(kind, y, table, **more))
        assert kind_of(path).name == f"xgboost-{kind}"
        original = xgboost.XGBClassifier()
        original.load_model(path)
        model = hf.Model.load(path, hf.Schema.infer(table))
        assert np.array_equal(model.wrapped.predict_proba(table), original.predict_proba(table)), more
        assert model.classes == tuple(range(max(2, len(set(y)))))


def trees(model: dict) -> list[dict]:
    return model["learner"]["gradient_booster"]["model"]["trees"]


def put(key: str, value: object) -> Callable[[dict], None]:
    def change(model: dict) -> None:
        tree = trees(model)[0]
        tree[key] = [value, *tree[key][1:]] if isinstance(tree[key], list) else value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("left_children", 10**6), "child"),
        (put("right_children", -5), "child"),
        (put("left_children", 0), "child"),
        (put("left_children", 2), "two others"),
        (put("left_children", -1), "one child"),
        (put("split_indices", 10**6), "column"),
        (put("split_indices", -1), "column"),
        (put("split_indices", 1.5), "whole numbers"),
        (put("split_conditions", float("nan")), "no number"),
        (put("split_type", 1), "sets of categories"),
        (lambda m: trees(m)[0]["left_children"].pop(), "nodes"),
        (lambda m: trees(m)[0]["tree_param"].update(num_nodes="9999999"), "9999999 nodes"),
        (lambda m: trees(m)[0]["tree_param"].update(size_leaf_vector="50"), "at most 1"),
        (lambda m: trees(m).pop(), "trees, and says"),
        (lambda m: m["learner"]["gradient_booster"]["model"].update(tree_info=[0, 99]), "output of a tree"),
        (lambda m: m["learner"]["gradient_booster"]["model"].update(iteration_indptr=[0, 50]), "steps"),
        (lambda m: m["learner"]["learner_model_param"].update(num_feature="1"), "column|names"),
        (lambda m: m["learner"]["learner_model_param"].update(num_class="-4"), "num_class"),
        (lambda m: m["learner"]["learner_model_param"].update(base_score="[1,2,3,4]"), "base scores"),
        (lambda m: m["learner"]["learner_model_param"].update(base_score="lots"), "base score"),
        (lambda m: m["learner"]["objective"].update(name="rank:ndcg"), "neither gives probabilities .* 'rank:ndcg'"),
        (lambda m: m["learner"]["objective"].update(name="survival:cox"), "nor estimates a number"),
        (lambda m: m["learner"]["objective"].update(evil="1"), "unknown parameter 'evil' of its objective 'binary:log"),
        (lambda m: m["learner"]["objective"]["reg_loss_param"].update(evil="1"), "unknown parameter 'evil'"),
        (lambda m: m["learner"]["objective"]["reg_loss_param"].update(scale_pos_weight="1e999"), "expected a number"),
        (lambda m: m["learner"]["objective"]["reg_loss_param"].update(scale_pos_weight="[1,2]"), "expected a number"),
        (lambda m: m["learner"]["objective"].update(reg_loss_param=[]), "no 'reg_loss_param'"),
        (lambda m: m["learner"]["gradient_booster"].update(name="evil"), "unknown booster"),
        (lambda m: m["learner"].pop("objective"), "no 'objective'"),
        (lambda m: m.update(learner=[]), "no 'learner'"),
    ],
)
def test_wild_numbers_in_xgboost_files_are_refused(
    change: Callable[[dict], object], words: str, tmp_path: Path
) -> None:
    model = json.loads(X_JSON)
    change(model)
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(FileError, match=words):
        hf.Model.load(tmp_path / "m.json", SCHEMA)


def test_wild_categories_in_xgboost_files_are_refused() -> None:
    data = json.loads(xgboost_bytes("json", BY_JOB, CATEGORIES, enable_categorical=True, max_cat_to_onehot=1))
    tree = next(t for t in trees(data) if t["categories"])
    for key, value in (
        ("categories", 1 << 40),
        ("categories_sizes", 999),
        ("categories_segments", -1),
        ("categories_nodes", 99),
    ):
        old, tree[key] = tree[key], [value, *tree[key][1:]]
        with pytest.raises(FileError, match="categor"):
            own_xgboost.parse(json.dumps(data).encode())
        tree[key] = old
    cats = data["learner"]["gradient_booster"]["model"]["cats"]
    for key, value in (("sorted_idx", 99), ("feature_segments", 5)):
        old, cats[key] = cats[key], [value, *cats[key][1:]]
        with pytest.raises(FileError, match="categories"):
            own_xgboost.parse(json.dumps(data).encode())
        cats[key] = old


def test_a_schema_of_other_columns_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(X_JSON)
    with pytest.raises(FileError, match="takes 3 columns, but the schema has 2"):
        hf.Model.load(tmp_path / "m.json", hf.Schema.box(2))
    with pytest.raises(FileError, match="takes a column 'a'"):
        hf.Model.load(tmp_path / "m.json", hf.Schema.box(3))


def test_ubjson_is_read_within_bounds() -> None:
    assert ubjson.read(b"{i\x01a[$i#i\x03\x01\x02\xffi\x01b[TFZSi\x02hi]}") == {
        "a": [1, 2, -1],
        "b": [True, False, None, "hi"],
    }
    for data in (
        b"", b"{", b"[", b"[" * 5000, b"[$d#L\x7f\xff\xff\xff\xff\xff\xff\xff", b"Si\xffabc", b"q", b"[$T#i\x05",
        b"i\x01i\x01", b"{i\x01aTi\x01aT}", b"Si\x02\xff\xff", b"[#l\x7f\xff\xff\xff", b"SSi\x01a",
    ):  # fmt: skip
        with pytest.raises(FileError):
            ubjson.read(data)


# ---- LightGBM


def lightgbm_text(y: object = TWO, table: pd.DataFrame = TABLE, **more: object) -> str:
    settings = {"n_estimators": 2, "num_leaves": 4, "min_child_samples": 5, "verbose": -1, "n_jobs": 1, **more}
    return lightgbm.LGBMClassifier(**settings).fit(table, y).booster_.model_to_string()


L_TEXT = lightgbm_text()


def test_lightgbm_files_predict_the_same_to_the_bit(tmp_path: Path) -> None:
    for y, table, more in (
        (TWO, TABLE, {}),
        (THREE, TABLE, {}),
        (THREE, TABLE, {"objective": "multiclassova"}),
        (TWO, TABLE, {"objective": "cross_entropy"}),
        (TWO, TABLE, {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
        (BY_JOB, CATEGORIES, {"min_data_per_group": 1, "cat_smooth": 0}),
        (TWO, TABLE, {"min_child_samples": 80}),  # trees of one leaf
    ):
        path = tmp_path / "m.txt"
        path.write_text(lightgbm_text(y, table, **more))
        assert kind_of(path).name == "lightgbm"
        expected = lightgbm.Booster(model_file=path).predict(table, raw_score=True)
        model = hf.Model.load(path, hf.Schema.infer(table))
        own = model.wrapped.decision_function(table[table.columns[::-1]])
        if more.get("objective") == "multiclassova":  # whose probabilities are the shares of sigmoids
            expected = -np.logaddexp(0, -expected)
        assert np.array_equal(own, expected), more
        assert model.classes == tuple(range(max(2, len(set(y)))))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r"left_child=-?\d+", "left_child=999", "child"),
        (r"left_child=-?\d+", "left_child=-999", "child"),
        (r"right_child=-?\d+", "right_child=0", "child"),
        (r"split_feature=\d+", "split_feature=99", "column"),
        (r"split_feature=\d+", "split_feature=-1", "column"),
        (r"split_feature=\d+", "split_feature=x", "no number"),
        (r"decision_type=\d+", "decision_type=99", "decision type"),
        (r"decision_type=\d+", "decision_type=3", "splits by category"),
        (r"num_leaves=\d+", "num_leaves=99", "expected 98|numbers in"),
        (r"num_leaves=\d+", "num_leaves=99999999999", "num_leaves"),
        (r"num_cat=0", "num_cat=2", "splits by category"),
        (r"leaf_value=\S+", "leaf_value=nan", "finite"),
        (r"is_linear=0", "is_linear=1", "linear leaves"),
        (r"shrinkage=1", "shrinkage=1\nleaf_coeff=1", "not supported"),
        (r"shrinkage=1", "shrinkage=1\nnum_cat=0", "twice"),
        (r"max_feature_idx=\d+", "max_feature_idx=99", "names"),
        (r"num_class=1", "num_class=7000000", "num_class"),
        (r"num_tree_per_iteration=1", "num_tree_per_iteration=2", "trees in a step"),
        (r"objective=binary", "objective=lambdarank", "neither classifies nor estimates a number.*'lambdarank'"),
        (r"objective=binary.*\n", "", "its objective is 'none'"),
        (r"objective=binary", "objective=binary evil:1", "unknown parameter 'evil' of its objective 'binary'"),
        (r"objective=binary", "objective=binary sqrt", "unknown parameter 'sqrt'"),
        (r"objective=binary.*", "objective=quantile alpha:nan", "alpha = 'nan', expected a positive number"),
        (r"objective=binary.*", "objective=regression num_class:3", "'regression num_class:3' for 1 classes"),
        (r"feature_infos=\S+", "feature_infos=[evil]", "strange range"),
        (r"version=v4", "version=v4\nevil=1", "unknown line"),
        (r"Tree=1", "Tree=7", "is called"),
        (r"end of trees", "", "cut off"),
        (r"pandas_categorical:\S+", "pandas_categorical:[1]", "pandas categories"),
    ],
)
def test_wild_numbers_in_lightgbm_files_are_refused(old: str, new: str, words: str, tmp_path: Path) -> None:
    crafted = re.sub(old, new, L_TEXT, count=1)
    assert crafted != L_TEXT
    (tmp_path / "m.txt").write_text(crafted)
    with pytest.raises(FileError, match=words):
        hf.Model.load(tmp_path / "m.txt", SCHEMA)


def test_sizes_in_a_lightgbm_file_are_counted_anew() -> None:
    crafted = re.sub(r"tree_sizes=.*", "tree_sizes=99999999 -5", L_TEXT)
    again = own_lightgbm.written(own_lightgbm.parse(crafted.encode()))
    start = again.index("Tree=0")
    sizes = [int(s) for s in re.findall(r"tree_sizes=(.*)", again)[0].split()]
    assert again[start + sizes[0] :].startswith("Tree=1")
    assert again[start + sum(sizes) :].startswith("end of trees")


# ---- what both libraries' files give

POSITIVE = np.exp(TABLE["a"] / 2) + 0.1
X_NUMBER = bytes(
    xgboost.XGBRegressor(n_estimators=2, max_depth=2, objective="reg:tweedie")
    .fit(TABLE, POSITIVE)
    .get_booster()
    .save_raw()
)
L_NUMBER = (
    lightgbm.LGBMRegressor(n_estimators=2, reg_sqrt=True, num_leaves=4, min_child_samples=5, verbose=-1)
    .fit(TABLE, POSITIVE)
    .booster_.model_to_string()
)
XGBOOST_NUMBERS: dict[str, dict[str, object]] = {
    "reg:squarederror": {},
    "reg:squaredlogerror": {},
    "reg:absoluteerror": {},
    "reg:logistic": {},
    "reg:gamma": {},
    "reg:pseudohubererror": {"huber_slope": 0.7},
    "reg:quantileerror": {"quantile_alpha": 0.3},
    "reg:tweedie": {"tweedie_variance_power": 1.2},
    "count:poisson": {"max_delta_step": 0.5},
}
LIGHTGBM_NUMBERS: dict[str, dict[str, object]] = {
    "regression": {},
    "regression_l1": {},
    "huber": {"alpha": 0.7},
    "fair": {"fair_c": 0.5},
    "poisson": {},
    "quantile": {"alpha": 0.3},
    "mape": {},
    "gamma": {},
    "tweedie": {"tweedie_variance_power": 1.2},
}


def test_all_objectives_that_estimate_are_tried() -> None:
    assert set(XGBOOST_NUMBERS) == set(own_xgboost.NUMBERS)
    assert set(LIGHTGBM_NUMBERS) == set(own_lightgbm.NUMBERS)


def check_estimates(path: Path, theirs: Callable[[pd.DataFrame], np.ndarray], *, copied: bool) -> None:
    """The file is a model that estimates, to the bit what the library does, and a search gets answers from it."""
    model = hf.Model.load(path, SCHEMA)
    assert model.is_regression
    assert model.classes == ()
    assert np.array_equal(model.predict(TABLE), theirs(TABLE))
    assert bool(model.conversion) == copied, model.conversion.text
    x = SCHEMA.encode(TABLE, torch.float64)
    assert torch.allclose(model(x), torch.tensor(theirs(TABLE)[:, None]).double(), rtol=1e-6)
    wish = float(theirs(TABLE).min() + theirs(TABLE).max()) / 2
    cfs = hf.GrowingSpheres(samples=50).explain(
        model, TABLE[theirs(TABLE) < wish].head(), hf.Target.between(wish, None)
    )
    assert cfs.found.any()
    assert (theirs(cfs.after)[cfs.found] >= wish).all()


@pytest.mark.parametrize("objective", XGBOOST_NUMBERS)
@pytest.mark.parametrize("booster", ["gbtree", "dart", "gblinear"])
def test_xgboost_files_that_estimate_a_number(objective: str, booster: str, tmp_path: Path) -> None:
    settings = {"n_estimators": 4, "n_jobs": 1, "booster": booster, **XGBOOST_NUMBERS[objective]}
    fitted = xgboost.XGBRegressor(objective=objective, **settings).fit(TABLE, POSITIVE / POSITIVE.max())
    for name in ("m.json", "m.ubj"):
        fitted.save_model(tmp_path / name)
        check_estimates(tmp_path / name, fitted.predict, copied=objective in PLAIN and booster == "gbtree")


@pytest.mark.parametrize("objective", LIGHTGBM_NUMBERS)
@pytest.mark.parametrize("more", [{}, {"reg_sqrt": True}], ids=["", "sqrt"])
def test_lightgbm_files_that_estimate_a_number(objective: str, more: dict[str, bool], tmp_path: Path) -> None:
    settings = {"objective": objective, "verbose": -1, "num_threads": 1, "num_leaves": 4, "min_data_in_leaf": 5}
    grown = lightgbm.train({**settings, **LIGHTGBM_NUMBERS[objective], **more}, lightgbm.Dataset(TABLE, POSITIVE), 4)
    grown.save_model(tmp_path / "m.txt")
    roots = "sqrt" in (tmp_path / "m.txt").read_text().partition("objective=")[2].partition("\n")[0]
    check_estimates(tmp_path / "m.txt", grown.predict, copied=objective in PLAIN and not roots)


def test_parameters_of_objectives_are_read_and_checked(tmp_path: Path) -> None:
    grown = lightgbm.train({"objective": "quantile", "verbose": -1}, lightgbm.Dataset(TABLE, POSITIVE), 2)
    text = grown.model_to_string()
    (tmp_path / "m.txt").write_text(text.replace("objective=quantile", "objective=quantile sqrt alpha:0.3"))
    rooted = lightgbm.Booster(model_file=tmp_path / "m.txt").predict(TABLE)
    assert not np.allclose(rooted, grown.predict(TABLE))
    assert np.array_equal(hf.Model.load(tmp_path / "m.txt", SCHEMA).predict(TABLE), rooted)
    fitted = xgboost.XGBRegressor(objective="reg:quantileerror", quantile_alpha=0.3, n_estimators=2).fit(
        TABLE, POSITIVE
    )
    content = json.loads(bytes(fitted.get_booster().save_raw("json")))
    for alpha, words in (("[0.3,0.4]", "expected a number"), ("lots", "expected a number"), ("7", "cannot read")):
        content["learner"]["objective"]["quantile_loss_param"]["quantile_alpha"] = alpha
        (tmp_path / "m.json").write_text(json.dumps(content))
        with pytest.raises(FileError, match=words):
            hf.Model.load(tmp_path / "m.json", SCHEMA)
    both = xgboost.XGBRegressor(objective="reg:quantileerror", quantile_alpha=[0.3, 0.6], n_estimators=2)
    both.fit(TABLE, POSITIVE).save_model(tmp_path / "m.json")
    with pytest.raises(FileError, match="num_target = '2'"):
        hf.Model.load(tmp_path / "m.json", SCHEMA)


def holes(table: pd.DataFrame) -> pd.DataFrame:
    """The same with numbers missing here and there."""
    rng = np.random.default_rng(4)
    return table.assign(**{c: table[c].mask(rng.random(len(table)) < 0.2) for c in ("a", "b")})


MADE: dict[str, Callable[[], object]] = {
    "xgboost": lambda: xgboost.XGBClassifier(**DEEP),
    "xgboost forest": lambda: xgboost.XGBRFClassifier(**DEEP),
    "xgboost number": lambda: xgboost.XGBRegressor(**DEEP),
    "xgboost number forest": lambda: xgboost.XGBRFRegressor(**DEEP),
    "xgboost linear": lambda: xgboost.XGBClassifier(booster="gblinear", n_estimators=4, n_jobs=1),
    "lightgbm": lambda: lightgbm.LGBMClassifier(**LIGHT),
    "lightgbm number": lambda: lightgbm.LGBMRegressor(**LIGHT),
}
DEEP = {"n_estimators": 4, "max_depth": 3, "n_jobs": 1, "enable_categorical": True, "max_cat_to_onehot": 1}
LIGHT = {"n_estimators": 4, "num_leaves": 6, "min_child_samples": 5, "verbose": -1, "n_jobs": 1, "cat_smooth": 0}
TABLES = {
    "numbers": TABLE,
    "gaps": holes(TABLE),
    "categories": CATEGORIES,
    "two lists": CATEGORIES.assign(place=pd.Categorical(RNG.choice(["n", "s", "w"], len(TABLE)))),
    "whole numbers as categories": TABLE.assign(job=pd.Categorical(RNG.choice([1, 2, 10, -4], len(TABLE)))),
    "all": holes(CATEGORIES),
    "array": TABLE,
}
# A linear booster takes plain numbers only.
TAKEN = [(m, t) for m in MADE for t in TABLES if m != "xgboost linear" or t in ("numbers", "array")]


@pytest.mark.parametrize(("name", "what"), TAKEN)
@pytest.mark.parametrize("turned", [False, True], ids=["same order", "another order"])
def test_files_of_trees_get_exact_copies(name: str, what: str, turned: bool, tmp_path: Path) -> None:
    table, path = TABLES[what], tmp_path / "m.ubj"
    y = THREE if name in ("xgboost", "lightgbm") else BY_JOB if "job" in table else TWO
    fitted = MADE[name]().fit(table.to_numpy() if what == "array" else table, y)
    getattr(fitted, "booster_", fitted).save_model(path)
    seen = table[table.columns[::-1]] if turned and what != "array" else table
    schema = hf.Schema.infer(seen)
    model = hf.Model.load(path, schema)
    assert bool(model.conversion) == (name != "xgboost linear"), model.conversion.text
    assert not model.rejects_missing
    raw = {"raw_score": True} if "lightgbm" in name else {"output_margin": True}
    theirs = np.asarray(fitted.predict(table.to_numpy() if what == "array" else table, **raw), dtype=float)
    x = schema.encode(seen, torch.float64)
    with model.eval_mode():
        for mine in (model(x), model.score_frame(seen)):
            if model.is_regression:
                assert np.allclose(mine.squeeze(1), theirs, atol=1e-6)
                continue
            wanted = torch.tensor(theirs if theirs.ndim == 2 else np.stack([0 * theirs, theirs], 1))
            assert torch.allclose(torch.softmax(mine, 1), torch.softmax(wanted, 1), atol=1e-6)
    assert len(set(model.predict(seen))) > 1


def test_columns_of_the_library_s_own_names_are_taken_in_order(tmp_path: Path) -> None:
    grown = xgboost.train({"max_depth": 2}, xgboost.DMatrix(TABLE.set_axis(["f0", "f1", "f2"], axis=1), TWO), 2)
    grown.save_model(tmp_path / "m.json")
    theirs = grown.predict(xgboost.DMatrix(TABLE.set_axis(["f0", "f1", "f2"], axis=1)))
    assert np.array_equal(hf.Model.load(tmp_path / "m.json", SCHEMA).predict(TABLE), theirs)


# ---- files cut off or damaged


def good_files(tmp_path: Path) -> dict[str, bytes]:
    hf.Model.of(seeded(mlp(3, (4,), 2)), SCHEMA).save(tmp_path / "good")
    return {
        "safetensors": (tmp_path / "good").read_bytes(),
        "skops": LOGISTIC,
        "json": X_JSON,
        "ubj": X_UBJ,
        "txt": L_TEXT.encode(),
    }


def test_files_cut_off_anywhere_are_refused(tmp_path: Path) -> None:
    for suffix, data in good_files(tmp_path).items():
        path = tmp_path / f"cut.{suffix}"
        for share in (0.0, 0.001, 0.01, 0.3, 0.6, 0.9):
            path.write_bytes(data[: int(share * len(data))])
            with pytest.raises(FileError):
                hf.Model.load(path, SCHEMA)


@given(
    st.sampled_from([X_JSON, X_UBJ, X_NUMBER, L_TEXT.encode(), L_NUMBER.encode()]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=3),
    st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_damaged_files_of_trees_are_refused_or_load(data: bytes, edits: list[tuple[float, int]], insert: bool) -> None:
    raw = bytearray(data)
    for place, byte in edits:
        at = int(place * (len(raw) - 1))
        raw[at : at if insert else at + 1] = bytes([byte])
    reader = own_lightgbm if data[:4] == b"tree" else own_xgboost
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = reader.load(bytes(raw), SCHEMA)
        except hf.HoldfastError:
            return
        scores = found.model.predict(TABLE)
    assert scores.shape[0] == len(TABLE)
    assert isinstance(found.model, xgboost.XGBClassifier | xgboost.XGBRegressor | lightgbm.Booster)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_some_kind(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m"
        path.write_bytes(data)
        assert kind_of(path).title
        with pytest.raises(FileError):
            hf.Model.load(path, SCHEMA)


def test_a_state_dict_is_no_model(tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "m.pt")
    with pytest.raises(UnsafeFileError):
        hf.Model.load(tmp_path / "m.pt", SCHEMA)
    with pytest.raises(hf.HoldfastError, match="cannot use a"):
        hf.Model.load(tmp_path / "m.pt", SCHEMA, trust=True)
