"""Models that were made before: read, never made again, whatever happened in between."""

import errno
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn
from xgboost import XGBClassifier

import holdfast as hf
from holdfast._core import files
from holdfast.errors import FileError
from holdfast.retraining import cache
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.recipe import Recipe
from support.faulty_files import Faults

torch.set_num_threads(1)
RNG = np.random.default_rng(2)
X = pd.DataFrame(RNG.normal(size=(50, 3)), columns=list("abc"))
Y = pd.Series(np.where(X.a + X.b > 0, "yes", "no"))
SCHEMA = hf.Schema.infer(X)
KINDS: dict[str, Any] = {
    "forest": RandomForestClassifier(2),
    "xgboost": XGBClassifier(n_estimators=2, n_jobs=1),
    "network": Recipe(hidden=(4,), epochs=2, batch_size=16),
    "module": Recipe(
        module=nn.Sequential(nn.Sequential(nn.Linear(SCHEMA.width, 3), nn.Tanh()), nn.Linear(3, 2)),
        epochs=1,
    ),
}


def made(
    recipe: Any, folder: Path | None, families: Any, schema: hf.Schema = SCHEMA, **more: Any
) -> ModelBank:
    return ModelBank.retrain(recipe, X, Y, schema, families=families, cache=folder, seed=3, **more)


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many models each call has made."""
    counts = list[int]()
    for name in ("train", "fit_estimators"):
        original = getattr(BaseRun, name)

        def counted(self: Any, variation: Any, *rest: Any, original: Any = original) -> Any:
            counts.append(len(variation))
            return original(self, variation, *rest)

        monkeypatch.setattr(BaseRun, name, counted)
    return counts


def same(a: ModelBank, b: ModelBank) -> None:
    assert a.origins() == b.origins()
    assert a.families == b.families
    assert torch.allclose(a.scores(X), b.scores(X), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_call_makes_nothing(kind: str, tmp_path: Path, fitted: list[int]) -> None:
    recipe = KINDS[kind]
    families = {"retrain": 4, "seed": 2}
    plain = made(recipe, None, families)
    first = made(recipe, tmp_path, families)
    same(plain, first)
    fitted.clear()
    again = made(recipe, tmp_path, families)
    assert fitted == []
    assert torch.equal(again.scores(X), first.scores(X))
    assert again.origins() == first.origins()
    assert again.fingerprint() == first.fingerprint()
    assert repr(again) == repr(first)
    more = made(recipe, tmp_path, {"seed": 1, "retrain": 7})  # three are new
    assert fitted == [3]
    assert torch.equal(more.scores(X)[1:5], first.scores(X)[:4])
    same(more, made(recipe, None, {"seed": 1, "retrain": 7}))
    fitted.clear()
    assert made(recipe, tmp_path, {"retrain": range(5, 7)}).origins() == more.origins()[6:8]
    assert fitted == []


def test_architectures_and_copies(tmp_path: Path, fitted: list[int]) -> None:
    recipe = KINDS["network"]
    families = {"width": 6, "epochs": 8}
    first = made(recipe, tmp_path, families)
    copies = len(first["epochs"].members())
    assert copies < 8
    assert sum(fitted) == 6 + copies
    fitted.clear()
    again = made(recipe, tmp_path, families)
    assert fitted == []
    assert torch.equal(again.scores(X), first.scores(X))
    same(again, made(recipe, None, families))


def test_other_models_are_not_read(
    tmp_path: Path, fitted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = KINDS["forest"]
    families = {"retrain": 1}
    made(forest, tmp_path, families)
    fitted.clear()
    made(RandomForestClassifier(3), tmp_path, families)
    made(forest, tmp_path, families, classes=["yes", "no"])
    ModelBank.retrain(forest, X, Y, SCHEMA, families=families, cache=tmp_path, seed=4)
    ModelBank.retrain(forest, X.round(3), Y, SCHEMA, families=families, cache=tmp_path, seed=3)
    ModelBank.retrain(
        forest, X, Y.where(Y.index > 0, "no"), SCHEMA, families=families, cache=tmp_path, seed=3
    )
    made(forest, tmp_path, families, hf.Schema.infer(X * 2))
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    made(forest, tmp_path, families)
    assert len(fitted) >= 6


def test_models_are_read_under_the_schema_of_the_call(tmp_path: Path, fitted: list[int]) -> None:
    made(KINDS["forest"], tmp_path, {"retrain": 2})
    fitted.clear()
    schema = SCHEMA.change(a={"change": "fixed"})
    again = made(KINDS["forest"], tmp_path, {"retrain": 2}, schema)
    assert fitted == []
    assert again.schema.fingerprint == again.model(1).schema.fingerprint == schema.fingerprint


@pytest.mark.parametrize("kind", ["forest", "network"])
def test_damaged_files_are_made_again(kind: str, tmp_path: Path, fitted: list[int]) -> None:
    first = made(KINDS[kind], tmp_path, {"retrain": 3})
    (path,) = tmp_path.glob("*/*.safetensors")
    whole = path.read_bytes()
    turned = bytearray(whole)
    turned[-40] ^= 1
    for damaged in (b"", whole[:200], whole[:-1], bytes(turned), b"x" * len(whole)):
        path.write_bytes(damaged)
        fitted.clear()
        with pytest.warns(
            UserWarning, match="in the cache is damaged, so its models are made again"
        ):
            again = made(KINDS[kind], tmp_path, {"retrain": 3})
        assert fitted == [3]
        same(again, first)
        # a zip file knows when it was written
        assert path.read_bytes() == whole or kind == "forest"
        aside = path.with_suffix(".damaged")
        assert {*path.parent.iterdir()} == {path, aside}
        assert aside.read_bytes() == damaged


def test_parts_are_kept_as_they_are_made(
    tmp_path: Path, fitted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "PART", 2)
    first = made(KINDS["forest"], tmp_path, {"retrain": 5})
    assert fitted == [2, 2, 1]
    assert len(list(tmp_path.glob("*/*.safetensors"))) == 3
    same(first, made(KINDS["forest"], None, {"retrain": 5}))


KILLED = """
import os, signal, sys
sys.path[:0] = {path!r}
from pathlib import Path
from retraining import test_cache as here
here.cache.PART, parts, replace = 2, [], os.replace
def kill(old, new):
    if len(parts) == 2:
        os.kill(os.getpid(), signal.SIGKILL)  # the third file is written, but has not got its name
    parts.append(replace(old, new))
os.replace = kill
here.made(here.KINDS["xgboost"], Path({folder!r}), {{"retrain": 7}})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_what_was_killed_goes_on_from_there(
    tmp_path: Path, fitted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = [str(Path(__file__).parents[1]), *sys.path]
    program = KILLED.format(path=path, folder=str(tmp_path))
    child = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=300
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()[-2000:]
    assert len(list(tmp_path.glob("*/*.safetensors"))) == 2
    monkeypatch.setattr(cache, "PART", 2)
    bank = made(KINDS["xgboost"], tmp_path, {"retrain": 7})
    assert fitted == [2, 1]  # four of seven were there
    alone = made(KINDS["xgboost"], None, {"retrain": 7})
    assert bank.origins() == alone.origins()
    assert torch.equal(bank.scores(X), alone.scores(X))


def test_models_that_cannot_be_kept_are_made_each_time(tmp_path: Path, fitted: list[int]) -> None:
    own = make_pipeline(FunctionTransformer(lambda table: table * 2), LogisticRegression())
    for _ in range(2):
        with pytest.warns(
            UserWarning, match="the cache cannot keep these models: .*cannot be saved"
        ):
            made(own, tmp_path, {"retrain": 2})
    assert fitted == [2, 2]
    assert not list(tmp_path.glob("*/*"))


def of_nested_json(path: Path) -> None:
    header = b'{"__metadata__":{"holdfast_bank":"' + b"[" * 100_000 + b'"}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header)


def of_networks(path: Path) -> None:
    """Whole, and under the origin of the forest that is asked for."""
    bank = made(KINDS["network"], None, {"retrain": 1})
    forest = made(KINDS["forest"], None, {"retrain": 1})
    group = replace(bank.groups[0], origins=tuple(forest.origins()))
    replace(bank, groups=(group,), recipe=None).save(path)


STRANGE: dict[str, Callable[[Path], object]] = {
    "nested": of_nested_json,
    "networks": of_networks,
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("what", STRANGE)
def test_what_is_none_of_its_files_is_set_aside(
    what: str, tmp_path: Path, fitted: list[int]
) -> None:
    first = made(KINDS["forest"], tmp_path, {"retrain": 1})
    (path,) = tmp_path.glob("*/*.safetensors")
    path.unlink()
    STRANGE[what](path)
    fitted.clear()
    with pytest.warns(UserWarning, match="is damaged, so its models are made again"):
        again = made(KINDS["forest"], tmp_path, {"retrain": 1})
    assert fitted == [1]
    same(first, again)
    assert path.is_file()
    assert path.with_suffix(".damaged").exists()


def test_anothers_file_is_left_and_a_full_disk_ends_nothing(
    tmp_path: Path, fitted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(KINDS["forest"], tmp_path, {"retrain": 2})
    (path,) = tmp_path.glob("*/*.safetensors")
    whole = path.read_bytes()
    fitted.clear()

    class Others:  # stands in for `os`: a process that may not read files
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def open(self, *_: Any) -> int:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(cache, "os", Others())
        patch.setattr(files, "os", Faults(1))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            again = made(KINDS["forest"], tmp_path, {"retrain": 2})
    words = [str(warning.message) for warning in told]
    assert any(
        "cannot be read, so its models are made again: Permission denied" in w for w in words
    )
    assert any("the cache cannot keep these models: " in w and "No space left" in w for w in words)
    same(first, again)
    assert fitted == [2]
    assert path.read_bytes() == whole
    assert [*path.parent.iterdir()] == [path]


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write to the cache"):
        made(KINDS["forest"], tmp_path / "file", {"retrain": 1})
