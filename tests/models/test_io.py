"""Models to files and back."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression
from torch import nn

import holdfast as hf
from holdfast.errors import FileError, ModelError, UnsafeFileError
from holdfast.nn.architecture import build, describe, mlp
from support.tables import seeded
from support.torch_models import SCHEMA, TABLE, Odd


def test_save_and_load(tmp_path: Path) -> None:
    net = nn.Sequential(
        nn.Linear(SCHEMA.width, 6),
        nn.BatchNorm1d(6),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.1),
        nn.Linear(6, 3, bias=False),
    )
    model = hf.Model.of(seeded(net), SCHEMA, classes=["a", "b", "c"])
    model.save(tmp_path / "m.safetensors")
    again = hf.Model.load(tmp_path / "m.safetensors")
    assert again.classes == model.classes
    assert again.schema == SCHEMA
    with model.eval_mode(), again.eval_mode():
        assert torch.equal(again.score_frame(TABLE), model.score_frame(TABLE))
    assert describe(again.module) == describe(net)
    double = hf.Model.of(seeded(mlp(SCHEMA.width, (3,), 2).double()), SCHEMA)
    double.save(tmp_path / "d.safetensors")
    assert hf.Model.load(tmp_path / "d.safetensors").dtype == torch.float64


def test_models_that_cannot_be_written_down() -> None:
    with pytest.raises(ModelError, match="cannot write down a Odd"):
        hf.Model.of(Odd(2), SCHEMA).save("never.safetensors")
    with pytest.raises(ModelError, match="only torch models"):
        hf.Model.of(lambda f: np.full(len(f), 0.5), SCHEMA).save("never.safetensors")
    with pytest.raises(ModelError, match=r"unknown layer 'os\.system'"):
        build([{"layer": "os.system"}])
    with pytest.raises(ModelError, match="unknown setting"):
        build([{"layer": "Linear", "in_features": 2, "out_features": 2, "device": "meta"}])


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.write_text, (self.marker, "boom")


@pytest.mark.parametrize(
    "name", ["m.pkl", "m.joblib", "m.pt", "m.pt2", "m.safetensors", "model", "m.bin"]
)
@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_pickle_bomb_is_refused_and_not_run(tmp_path: Path, name: str, kind: str) -> None:
    marker = tmp_path / "boom"
    path = tmp_path / name
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Bomb(marker)))
    else:
        torch.save(Bomb(marker), path)
    with pytest.raises(UnsafeFileError, match="trust"):
        hf.Model.load(path, SCHEMA)
    assert not marker.exists()


def test_a_trusted_pickle_loads(tmp_path: Path) -> None:
    numbers = TABLE[["income", "age"]].astype(float)
    schema = hf.Schema.infer(numbers)
    fitted = LogisticRegression(max_iter=1000).fit(numbers, numbers["income"] > 3000)
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(fitted))
    model = hf.Model.load(tmp_path / "m.pkl", schema, trust=True)
    assert (model.predict(numbers) == fitted.predict(numbers)).all()
    with pytest.raises(FileError, match="schema"):
        hf.Model.load(tmp_path / "m.pkl", trust=True)


def test_broken_files_are_refused(tmp_path: Path) -> None:
    model = hf.Model.of(seeded(mlp(SCHEMA.width, (4,), 2)), SCHEMA)
    model.save(tmp_path / "m.safetensors")
    whole = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "text.safetensors").write_text("hello")
    save_file({"a": torch.ones(2)}, tmp_path / "bare.safetensors")
    good = json.dumps(
        {
            "architecture": describe(model.module),
            "classes": [0, 1],
            "outputs": "logits",
            "schema": SCHEMA.to_dict(),
        }
    )
    for i, text in enumerate(
        [
            "not json",
            "[]",
            "{}",
            good.replace('"in_features": ', '"in_features": 1'),
            '{"architecture": 3}',
        ]
    ):
        save_file(
            {"0.weight": torch.ones(2, 2)},
            tmp_path / f"junk{i}.safetensors",
            metadata={"holdfast": text},
        )
    for path in tmp_path.glob("*.safetensors"):
        if path.name != "m.safetensors":
            with pytest.raises(hf.HoldfastError):
                hf.Model.load(path)
    with pytest.raises(FileError, match="no model file"):
        hf.Model.load(tmp_path / "none.safetensors")
