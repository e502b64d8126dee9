from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import holdfast as hf
from holdfast.errors import FileError
from holdfast.train import network


def test_the_shipped_data_is_whole_and_has_its_notice() -> None:
    data = hf.data.load("german_credit")
    assert data.X.shape == (1000, 20)
    assert (data.y == "approved").sum() == 700
    assert data.X.notna().all().all()
    assert data.licence == "CC BY 4.0"
    notice = Path(hf.data.__file__).parent / "bundled" / "ATTRIBUTION.md"
    assert "CC BY 4.0" in notice.read_text(encoding="utf-8")
    pd.testing.assert_frame_equal(data.schema.decode(data.schema.encode(data.X), data.X), data.X)


def test_split_is_seeded_and_loses_nobody() -> None:
    data = hf.data.german_credit()
    train, test = data.split(test=0.2, seed=3)
    assert (len(train.X), len(test.X)) == (800, 200)
    assert sorted([*train.X.index, *test.X.index]) == list(range(1000))
    assert data.split(test=0.2, seed=3)[1].X.equals(test.X)
    assert (test.y == data.y[test.X.index]).all()


@pytest.mark.data
def test_heloc_from_the_data_directory(data_dir: Path) -> None:
    assert data_dir.is_dir()
    data = hf.data.load("heloc")
    assert data.X.shape == (9871, 23)
    assert set(data.y) == {"Good", "Bad"}
    x = data.schema.encode(data.X)
    assert (x.min(), x.max()) == (0, 1)


def test_missing_data_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    with pytest.raises(FileError, match="set HOLDFAST_DATA"):
        hf.data.load("heloc")
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    with pytest.raises(FileError, match="no file 'heloc/heloc"):
        hf.data.load("heloc")
    with pytest.raises(FileError, match="did you mean 'heloc'"):
        hf.data.load("helok")


def test_training_is_seeded_and_leaves_the_callers_generator_alone() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    y = pd.Series(np.where(X["a"] + X["b"] > 0, "yes", "no"))
    schema = hf.Schema.infer(X)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again, other = (network(X, y, schema, hidden=(8,), epochs=20, lr=0.01, seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    assert first.classes == ("no", "yes")
    assert (first.predict(X) == y).mean() > 0.95
    with pytest.raises(hf.HoldfastError, match="as many outcomes as rows"):
        network(X, y[:5], schema)
    with pytest.raises(hf.HoldfastError, match="two known classes"):
        network(X, pd.Series(["yes"] * 300), schema)
