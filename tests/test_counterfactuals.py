"""Answers: some of them, one by one, and as files of every format."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression

import holdfast as hf
from holdfast.errors import FileError, SettingError
from holdfast.nn.architecture import mlp
from holdfast.target import Status
from support.tables import mixed_schema, mixed_table, seeded

TABLE = mixed_table(12)
SCHEMA = mixed_schema(mixed_table(200))
MODEL = hf.Model.of(seeded(mlp(SCHEMA.width, (16, 8), 2)), SCHEMA, classes=["no", "yes"])


@pytest.fixture(scope="module")
def cfs() -> hf.Counterfactuals:
    people = TABLE.assign(id=range(100, 112), since=pd.Timestamp("2024-02-29"))
    wanted = np.where(MODEL.predict(people) == "yes", "no", "yes")
    wanted[2] = "yes" if wanted[2] == "no" else "no"  # one is met already
    return hf.MinCost(steps=20).explain(MODEL, people, wanted)


def assert_same(a: hf.Counterfactuals, b: hf.Counterfactuals) -> None:
    pd.testing.assert_frame_equal(a.before, b.before)
    pd.testing.assert_frame_equal(a.after, b.after)
    for name in ("x", "x_cf", "scores"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert torch.equal(a.goal.label, b.goal.label)
    assert a.status_codes.tolist() == b.status_codes.tolist()
    assert (a.reasons, a.source.tolist(), a.run) == (b.reasons, b.source.tolist(), b.run)


# ---- some of them


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        (0, [0]),
        (-1, [11]),
        (np.int64(3), [3]),
        (slice(2, 5), [2, 3, 4]),
        (slice(None, None, -4), [11, 7, 3]),
        ([4, 1, 4], [4, 1, 4]),
        (np.array([0, -2]), [0, 10]),
        (torch.tensor([5, 6]), [5, 6]),
        ([], []),
        (np.arange(12) % 3 == 0, [0, 3, 6, 9]),
        ([True] + [False] * 11, [0]),
        (pd.Series(np.arange(12) > 9, index=TABLE.index), [10, 11]),
        (torch.arange(12) < 1, [0]),
    ],
)
def test_some_answers_are_chosen_by_position(
    cfs: hf.Counterfactuals, rows: Any, chosen: list[int]
) -> None:
    some = cfs[rows]
    assert isinstance(some, hf.Counterfactuals)
    assert len(some) == len(chosen)
    pd.testing.assert_frame_equal(some.before, cfs.before.iloc[chosen])
    pd.testing.assert_frame_equal(some.after, cfs.after.iloc[chosen])
    assert torch.equal(some.x_cf, cfs.x_cf[chosen])
    assert torch.equal(some.goal.label, cfs.goal.label[chosen])
    assert some.source.tolist() == chosen
    assert some.reasons == [cfs.reasons[i] for i in chosen]
    pd.testing.assert_series_equal(some.cost(), cfs.cost().iloc[chosen])
    pd.testing.assert_series_equal(some.probability, cfs.probability.iloc[chosen])
    assert some.sentences().tolist() == cfs.sentences().iloc[chosen].tolist()
    pd.testing.assert_frame_equal(some.table(), cfs.table().iloc[chosen])


def test_iterating_gives_one_answer_after_the_other(cfs: hf.Counterfactuals) -> None:
    each = list(cfs)
    assert len(each) == len(cfs) == 12
    for i, one in enumerate(each):
        assert_same(one, cfs[i])
    found = cfs[cfs.found]
    assert found.found.all()
    assert len(found) == cfs.found.sum() > 0
    assert repr(each[2]).startswith("<Counterfactuals 1 row: 1 already met (MinCost(")
    pd.testing.assert_frame_equal(
        pd.concat([one.changes() for one in found], ignore_index=True), cfs.changes()
    )


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        (12, IndexError, "there is no answer 12: there are 12"),
        (-13, IndexError, "there is no answer -13"),
        ([0, 40], IndexError, "there is no answer 40"),
        ([True, False], SettingError, r"one value for each of the 12 answers, got shape \(2,\)"),
        ("p0", SettingError, "by position or by a mask, got str 'p0'"),
        (1.5, SettingError, "by position or by a mask, got float 1.5"),
        ([[0, 1]], SettingError, "by position or by a mask"),
    ],
)
def test_what_chooses_no_answers(
    cfs: hf.Counterfactuals, rows: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        cfs[rows]


def test_estimates_are_chosen_too() -> None:
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [0.0, 1.0, 0.0, 1.0]})
    model = hf.Model.of(LinearRegression().fit(X, 10 * X["a"] + X["b"]), hf.Schema.infer(X))
    cfs = hf.MinCost().explain(model, X, hf.Target.between(22, 25))
    some = cfs[[3, 0]]
    assert some.estimate_before is not None
    assert some.estimate_before.squeeze(1).tolist() == pytest.approx([41.0, 10.0])
    assert some.sentences().tolist() == cfs.sentences().iloc[[3, 0]].tolist()


# ---- files


def test_parquet_has_everything(cfs: hf.Counterfactuals, tmp_path: Path) -> None:
    cfs.save(tmp_path / "all.parquet")
    assert_same(hf.Counterfactuals.load(tmp_path / "all.parquet"), cfs)
    some = cfs[cfs.found]
    some.save(str(tmp_path / "some.PARQUET"))
    assert_same(hf.Counterfactuals.load(tmp_path / "some.PARQUET"), some)


def test_json_and_csv_have_what_to_table_gives(cfs: hf.Counterfactuals, tmp_path: Path) -> None:
    cfs.save(tmp_path / "answers.json")
    cfs.save(tmp_path / "answers.csv")
    records = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    assert records == json.loads(cfs.to_json())["answers"]
    table = cfs.table()
    assert [row["sentence"] for row in records] == table["sentence"].tolist()
    assert [row["id"] for row in records] == list(range(100, 112))
    assert {row["since"] for row in records} == {"2024-02-29T00:00:00"}
    assert [row["job"] for row in records] == [None if pd.isna(v) else v for v in table["job"]]
    read = hf.datasets.read_table(tmp_path / "answers.csv", SCHEMA)
    assert list(read.columns) == list(table.columns)
    assert read["income"].tolist() == table["income"].tolist()
    assert read["status"].tolist() == [Status(int(c)).words for c in cfs.status_codes]


@pytest.mark.parametrize(
    "name", ["answers", "answers.txt", "answers.json.gz", "answers.parquet.bak"]
)
def test_other_extensions_are_errors_that_name_those_we_know(
    cfs: hf.Counterfactuals, tmp_path: Path, name: str
) -> None:
    with pytest.raises(FileError, match=r"the extension must be one of \.csv, \.json, \.parquet"):
        cfs.save(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_loading_something_else_says_what_it_is(cfs: hf.Counterfactuals, tmp_path: Path) -> None:
    for name in ("answers.json", "answers.csv"):
        cfs.save(tmp_path / name)
        with pytest.raises(
            FileError, match=r"read it with hf\.datasets\.read_table, and save to a \.parquet file"
        ):
            hf.Counterfactuals.load(tmp_path / name)
    for name in ("none.parquet", "none.csv"):
        with pytest.raises(FileError, match="no file at"):
            hf.Counterfactuals.load(tmp_path / name)
    hf.datasets.write_table(cfs.before, tmp_path / "people.csv")
    with pytest.raises(FileError, match=r"people\.csv' is a table without answers"):
        hf.Counterfactuals.load(tmp_path / "people.csv")
    cfs.after.to_parquet(tmp_path / "other.parquet")
    with pytest.raises(FileError, match=r"was not written by Counterfactuals\.save"):
        hf.Counterfactuals.load(tmp_path / "other.parquet")
    (tmp_path / "junk.parquet").write_bytes(b"junk")
    with pytest.raises(FileError, match="cannot read"):
        hf.Counterfactuals.load(tmp_path / "junk.parquet")
