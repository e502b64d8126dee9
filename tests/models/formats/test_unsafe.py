"""Files that run code: refused and not run, unless they are trusted."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import joblib
import numpy as np
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.errors import FileError, UnsafeFileError
from holdfast.models.formats.detect import kind_of_file
from holdfast.nn.architecture import mlp
from support.model_files import SCHEMA, TABLE, silent, zipped
from support.tables import seeded


class Bomb:
    """Leaves two marks when it is unpickled: a file and an environment variable."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        code = (
            f"import os; os.environ['HOLDFAST_CANARY'] = 'sung'; open({str(self.marker)!r}, "
            "'w').close()"
        )
        return exec, (code,)


def test_the_canary_sings_when_it_is_unpickled(
    canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CANARY", "")
    pickle.loads(pickle.dumps(Bomb(canary)))
    assert canary.exists()
    assert os.environ["HOLDFAST_CANARY"] == "sung"


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
    "torch, old": (
        "torch",
        lambda m: b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + pickle.dumps(Bomb(m)),
    ),
    "torchscript": (
        "torchscript",
        lambda m: zipped(
            m__data_DOT_pkl=pickle.dumps(Bomb(m)),
            m__constants_DOT_pkl=pickle.dumps(Bomb(m)),
            m__code__a_DOT_py=b"1",
        ),
    ),
    "pt2": (
        "pt2",
        lambda m: zipped(
            m__archive_format=b"pt2", m__data__weights__payload_DOT_pkl=pickle.dumps(Bomb(m))
        ),
    ),
}
NAMES = [
    "model.pkl",
    "model.safetensors",
    "model.onnx",
    "model.skops",
    "model.json",
    "model.txt",
    "model",
]


@pytest.mark.parametrize("what", DANGEROUS)
def test_files_that_run_code_are_refused_and_not_run(
    what: str, tmp_path: Path, canary: Path
) -> None:
    kind, make = DANGEROUS[what]
    for name in NAMES:
        path = tmp_path / name
        path.write_bytes(make(canary))
        assert kind_of_file(path).name == kind, name
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
            torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("n")},)),
            tmp_path / "m.pt2",
        )
        assert [kind_of_file(tmp_path / n).name for n in ("m.pt", "script.pt", "m.pt2")] == [
            "torch",
            "torchscript",
            "pt2",
        ]
        for name in ("m.pt", "script.pt", "m.pt2"):
            with pytest.raises(UnsafeFileError):
                hf.Model.load(tmp_path / name, SCHEMA)
            model = hf.Model.load(tmp_path / name, SCHEMA, trust=True, classes=["no", "yes"])
            with model.eval_mode():
                assert torch.allclose(model(x), net(x), atol=1e-6)
                assert model.vjp(x[:5])[1](torch.ones(5, 2)).shape == (5, 3)
    with pytest.raises(FileError, match="schema"):
        hf.Model.load(tmp_path / "m.pt", trust=True)


def test_a_state_dict_is_no_model(tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "m.pt")
    with pytest.raises(UnsafeFileError):
        hf.Model.load(tmp_path / "m.pt", SCHEMA)
    with pytest.raises(hf.HoldfastError, match="cannot use a"):
        hf.Model.load(tmp_path / "m.pt", SCHEMA, trust=True)
