"""`holdfast inspect` says what a file is, and never runs anything of it."""

import io
import json
import pickle
import warnings
import zipfile
from pathlib import Path

import lightgbm
import numpy as np
import onnx
import pandas as pd
import pytest
import skops.io
import xgboost
from onnx import helper, numpy_helper
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import holdfast as hf
from holdfast.cli.main import main
from holdfast.nn.architecture import mlp
from support.tables import seeded

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(60, 3)), columns=["a", "b", "c"])
Y = np.where(TABLE["a"] > 0, "yes", "no")
BLIND = sorted(hf.list_methods(gradients=False))


def inspected(path: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    assert main(["inspect", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def said(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["inspect", str(path)]) == 0
    return capsys.readouterr().out


def test_a_network_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.safetensors"
    hf.Model.of(seeded(mlp(3, (4,), 2)), hf.Schema.infer(TABLE), classes=["no", "yes"]).save(path)
    found = inspected(path, capsys)
    assert found["kind"] == "safetensors"
    assert found["loading"] == "safe"
    assert found["schema"] is True
    assert found["inputs"] == ["a: real", "b: real", "c: real"]
    assert found["classes"] == ["no", "yes"]
    assert found["outputs"] == "logits"
    assert found["details"]["layers"] == ["Linear 3 4", "ReLU", "Linear 4 2"]
    assert "min-cost" in found["methods"]
    assert "learned-recourse" not in found["methods"]
    text = said(path, capsys)
    assert "loading: safe" in text
    assert "schema: in the file" in text
    assert "classes: no, yes" in text


def relu(op: str = "Relu") -> bytes:
    out = helper.make_tensor_value_info("scores", 1, [None, 3])
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["scores"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [None, 3])],
        [out],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()


def test_an_onnx_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(relu())
    found = inspected(path, capsys)
    assert found["kind"] == "onnx"
    assert found["loading"] == "safe"
    assert found["inputs"] == ["x: float (any x 3)"]
    assert found["outputs"] == "scores"
    assert found["details"]["operators"] == ["Relu"]
    assert "descent" in found["methods"]
    assert "pass one with --schema" in said(path, capsys)
    path.write_bytes(relu("Hardmax"))
    found = inspected(path, capsys)
    assert found["loading"] == "refused"
    assert "'Hardmax'" in found["problem"]
    assert found["methods"] == []
    model = onnx.load_from_string(relu())
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.float32), "w"))
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    assert "another file" in inspected(path, capsys)["problem"]


def test_a_skops_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.skops"
    skops.io.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(TABLE, Y), path)
    found = inspected(path, capsys)
    assert found["kind"] == "skops"
    assert found["loading"] == "safe"
    assert found["inputs"] == ["a", "b", "c"]
    assert found["classes"] == ["no", "yes"]
    assert found["details"]["types"] == ["LogisticRegression", "Pipeline", "StandardScaler"]
    assert (found["gradients"], found["outputs"]) == (True, "probabilities")
    assert "min-cost" in found["methods"]
    skops.io.dump(RandomForestClassifier(2, max_depth=2).fit(TABLE, Y), path)
    found = inspected(path, capsys)
    assert (found["gradients"], found["outputs"], sorted(found["methods"])) == (
        False,
        "probabilities",
        BLIND,
    )
    skops.io.dump(LinearSVC().fit(TABLE, Y), path)
    assert inspected(path, capsys)["outputs"] == "scores"
    skops.io.dump(make_pipeline(StandardScaler(), Ridge()).fit(TABLE, TABLE["a"]), path)
    found = inspected(path, capsys)
    assert (found["gradients"], found["outputs"], found["classes"]) == (True, "value", None)
    assert "descent" in found["methods"]


def test_files_of_trees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    y = (Y == "yes").astype(int)
    grown = xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(TABLE, y)
    for name in ("m.json", "m.ubj"):
        grown.save_model(tmp_path / name)
        found = inspected(tmp_path / name, capsys)
        assert found["kind"] == f"xgboost-{name[2:]}"
        assert found["inputs"] == ["a", "b", "c"]
        assert found["details"]["trees"] == 2
        assert sorted(found["methods"]) == BLIND
    other = lightgbm.LGBMClassifier(n_estimators=2, num_leaves=3, verbose=-1, n_jobs=1).fit(
        TABLE, y
    )
    other.booster_.save_model(tmp_path / "m.txt")
    found = inspected(tmp_path / "m.txt", capsys)
    assert found["kind"] == "lightgbm"
    assert found["classes"] == [0, 1]
    assert "gradients: no" in said(tmp_path / "m.txt", capsys)


def test_files_of_trees_that_estimate_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = 100 * TABLE["a"] + 10 * TABLE["b"]
    xgboost.XGBRegressor(n_estimators=20, max_depth=2, n_jobs=1).fit(TABLE, value).save_model(
        tmp_path / "m.json"
    )
    light = lightgbm.LGBMRegressor(
        n_estimators=20, num_leaves=4, min_child_samples=5, verbose=-1, n_jobs=1
    )
    light.fit(TABLE, value).booster_.save_model(tmp_path / "m.txt")
    hf.Schema.infer(TABLE).save(tmp_path / "schema.toml")
    TABLE[value < 0].head(4).to_csv(tmp_path / "people.csv", index=False)
    for name, objective in (("m.json", "reg:squarederror"), ("m.txt", "regression")):
        found = inspected(tmp_path / name, capsys)
        assert (found["loading"], found["outputs"], found["classes"]) == ("safe", "value", None)
        assert found["details"]["objective"] == objective
        assert found["methods"]
        assert set(found["methods"]) <= set(hf.list_methods(gradients=False, regression=True))
        text = said(tmp_path / name, capsys)
        assert "outputs: value" in text
        assert "classes" not in text
        words = [
            "explain",
            str(tmp_path / "people.csv"),
            "--model",
            str(tmp_path / name),
            "--target",
            "50..80",
        ]
        words += [
            "--schema",
            str(tmp_path / "schema.toml"),
            "--method",
            "growing-spheres",
            "--quiet",
        ]
        assert main(words) == 0
        rows = json.loads(capsys.readouterr().out)
        assert {row["status"] for row in rows} == {"found"}
        assert all(50 <= row["estimate"] <= 80 for row in rows)


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.write_text, (self.marker, "boom")


def test_files_that_run_code_are_only_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marker = tmp_path / "boom"
    path = tmp_path / "m.skops"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as new:
        new.writestr("m/archive_format", "pt2")
        new.writestr("m/data.pkl", pickle.dumps(Bomb(marker)))
    for content, kind in ((pickle.dumps(Bomb(marker)), "pickle"), (archive.getvalue(), "pt2")):
        path.write_bytes(content)
        found = inspected(path, capsys)
        assert found["kind"] == kind
        assert found["loading"] == "runs code"
        assert "trust-model-code" in found["problem"]
        assert "REFUSED, it can run code" in said(path, capsys)
    assert not marker.exists()


def test_damaged_files_are_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = tmp_path / "whole"
    hf.Model.of(seeded(mlp(3, (4,), 2)), hf.Schema.infer(TABLE)).save(whole)
    cut = tmp_path / "cut"
    cut.write_bytes(whole.read_bytes()[:-7])
    assert "cut off" in inspected(cut, capsys)["problem"]
    cut.write_bytes(relu()[:-7])
    assert inspected(cut, capsys)["loading"] == "refused"
    cut.write_bytes(b"nothing known")
    assert inspected(cut, capsys)["kind"] == "unknown"
    assert "problem: no reader" in said(cut, capsys)


def test_a_file_that_is_not_there_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(tmp_path / "none")]) == 2
    assert "no model file" in capsys.readouterr().err


def test_explain_takes_these_files_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hf.Schema.infer(TABLE).save(tmp_path / "schema.toml")
    TABLE.head(3).to_csv(tmp_path / "people.csv", index=False)
    TABLE.to_csv(tmp_path / "train.csv", index=False)
    other = lightgbm.LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1, n_jobs=1).fit(
        TABLE, (Y == "yes").astype(int)
    )
    other.booster_.save_model(tmp_path / "m.txt")
    words = [
        "explain",
        str(tmp_path / "people.csv"),
        "--model",
        str(tmp_path / "m.txt"),
        "--any-other",
        "--quiet",
    ]
    words += [
        "--schema",
        str(tmp_path / "schema.toml"),
        "--method",
        "nearest-neighbor",
        "--data",
        str(tmp_path / "train.csv"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(words) == 0
    assert {row["status"] for row in json.loads(capsys.readouterr().out)} == {"found"}
    (tmp_path / "m.txt").write_bytes(pickle.dumps(Bomb(tmp_path / "boom")))
    assert main(words) == 2
    assert "--trust-model-code" in capsys.readouterr().err
    assert not (tmp_path / "boom").exists()


def lightgbm_file(path: Path, table: pd.DataFrame, y: np.ndarray) -> lightgbm.LGBMClassifier:
    grown = lightgbm.LGBMClassifier(
        n_estimators=9, num_leaves=4, min_child_samples=3, verbose=-1, n_jobs=1
    )
    grown.fit(table, y).booster_.save_model(path)
    return grown


def test_models_without_gradients_get_a_tree_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = lightgbm_file(tmp_path / "m.txt", TABLE, (Y == "yes").astype(int))
    hf.Schema.infer(TABLE).save(tmp_path / "schema.toml")
    refused = TABLE[model.predict(TABLE) == 0]
    refused.to_csv(tmp_path / "people.csv", index=False)
    words = ["explain", str(tmp_path / "people.csv"), "--model", str(tmp_path / "m.txt")]
    assert main([*words, "--target", "1"]) == 2
    assert "--schema FILE" in capsys.readouterr().err
    words += ["--schema", str(tmp_path / "schema.toml")]
    assert main([*words, "--target", "yes"]) == 2
    assert "--classes LIST" in capsys.readouterr().err
    assert main([*words, "--target", "yes", "--classes", "no,yes"]) == 0
    ran = capsys.readouterr()
    assert f"{len(refused)} found (TreeSearch()" in ran.err
    assert {row["status"] for row in json.loads(ran.out)} == {"found"}
    assert main([*words, "--target", "yes", "--classes", "no,maybe,yes"]) == 2
    assert "3 names were given" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["m.txt", "m.json"])
@pytest.mark.parametrize("file", ["people.csv", "people.json"])
def test_models_with_categories_of_their_own_take_tables_of_texts(
    name: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = TABLE.assign(
        job=RNG.choice(["x", "y", "z"], len(TABLE)), floor=RNG.choice([1, 2, 10], len(TABLE))
    )
    levels = ["job", "floor"] if name == "m.txt" else ["job"]
    table = texts.astype(dict.fromkeys(levels, "category"))
    y = (texts["job"] == "y").to_numpy().astype(int)
    if name == "m.txt":
        model = lightgbm_file(tmp_path / name, table, y)
    else:
        model = xgboost.XGBClassifier(
            n_estimators=9, max_depth=2, n_jobs=1, enable_categorical=True
        ).fit(table, y)
        model.save_model(tmp_path / name)
    schema = hf.Schema.infer(table)
    schema.save(tmp_path / "schema.toml")
    refused = texts[y == 0].reset_index(drop=True)
    hf.datasets.write_table(refused, tmp_path / file)
    read = hf.datasets.read_table(tmp_path / file, schema)
    pd.testing.assert_frame_equal(read, table[y == 0].reset_index(drop=True))
    words = ["explain", str(tmp_path / file), "--model", str(tmp_path / name), "--target", "1"]
    assert main([*words, "--schema", str(tmp_path / "schema.toml"), "--quiet"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["status"] for row in rows} == {"found"}
    assert {row["job"] for row in rows} == {"y"}
    # In Python too, whatever the table holds them as.
    judge = hf.Model.load(tmp_path / name, schema)
    for other in (refused, refused.astype({"job": "category"}), refused.astype({"job": object})):
        assert judge.predict(other).tolist() == model.predict(read).tolist()
    hf.datasets.write_table(refused.assign(job="w"), tmp_path / file)
    assert main([*words, "--schema", str(tmp_path / "schema.toml")]) == 2
    assert "unknown level(s): 'w'" in capsys.readouterr().err
