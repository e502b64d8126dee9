"""Counterfactual images as tables; all by hand, nothing is trained."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import holdfast as hf
from support.images import COLUMNS, pairs_by_hand

BLACK = [0, 0, 0]
WHITE = [255, 255, 255]


# ---- tables


def test_tables_say_what_became_of_each_pair() -> None:
    cfs = pairs_by_hand()
    assert cfs.status["status"].tolist() == ["found", "already met", "not found", "found"]
    assert cfs.status["reason"].tolist() == cfs.reasons
    assert cfs.pixels.tolist()[:2] == [2, 0]
    assert np.isnan(cfs.pixels[2])
    table = cfs.table()
    assert list(table.columns) == COLUMNS
    assert table["row"].tolist() == [0, 0, 1, 1]
    assert table["label"].tolist() == [0, 0, 2, 0]
    assert table["target"].tolist() == [1, 2, 1, 2]
    assert table["probability"].tolist() == pytest.approx([0.6, 0.7, 0.3, 0.9])
    assert table["pixels"].astype(object).where(table["pixels"].notna(), None).tolist() == [
        2,
        0,
        None,
        1,
    ]
    assert table["l1"].tolist() == pytest.approx([1.4, 0, np.nan, 0.2], nan_ok=True)
    assert table["iterations"].tolist() == [5, 0, 700, 2]
    assert json.loads(json.dumps(hf.datasets.records(table)))[2]["pixels"] is None


def test_changes_are_the_values_that_differ_where_there_is_an_answer() -> None:
    tidy = pairs_by_hand().changes()
    lines = [
        (0, 1, 0, 0, 1, 0.0, 1.0),
        (0, 1, 0, 2, 3, np.float32(0.4), 0.0),
        (1, 2, 0, 1, 0, 0.0, np.float32(0.2)),
    ]
    pd.testing.assert_frame_equal(
        tidy,
        pd.DataFrame(lines, columns=["row", "target", "channel", "y", "x", "before", "after"]),
        check_dtype=False,
    )
    coloured = pairs_by_hand(channels=3)
    assert coloured.changes()[["channel", "y", "x"]].to_numpy().tolist() == [
        [0, 2, 3],
        [2, 0, 1],
        [0, 1, 0],
    ]
    assert coloured.pixels.tolist()[0] == 2
    nothing = pairs_by_hand(codes=(2, 2, 2, 2)).changes()
    assert len(nothing) == 0
    assert list(nothing.columns) == ["row", "target", "channel", "y", "x", "before", "after"]


def test_a_pixel_that_changes_in_two_channels_counts_once() -> None:
    cfs = pairs_by_hand(channels=3)
    cfs.x_cf[0, 1, 0, 1] = 0.5
    assert cfs.pixels[0] == 2
    assert cfs.cost("l0")[0] == 3


def test_summary_and_repr() -> None:
    told = (
        "4 pairs of 2 images and a class: 2 found, 1 already met, 1 not found (DeDUCE(mu=2), "
        "1.50 s)"
    )
    assert pairs_by_hand().summary() == told
    assert repr(pairs_by_hand()) == f"<ImageCounterfactuals {told}>"
    assert replace(pairs_by_hand(), source=np.arange(4)).summary().startswith("4 images: 2 found")


def test_names_of_classes_keep_their_type() -> None:
    assert pairs_by_hand(("a", "b", "c")).target.tolist() == ["b", "c", "b", "c"]
    mixed = pairs_by_hand((0, "b", 2.5))
    assert mixed.target.tolist() == ["b", 2.5, "b", 2.5]
    assert mixed.label.tolist() == [0, 0, 2.5, 0]


def test_the_callers_tensors_stay_as_they_are(tmp_path: Path) -> None:
    cfs = pairs_by_hand()
    before: list[Tensor] = [cfs.x.clone(), cfs.x_cf.clone(), cfs.scores.clone()]
    cfs.grid()
    cfs.report(tmp_path / "r.html")
    cfs.save(tmp_path / "a.parquet")
    cfs.table(), cfs.changes()
    assert all(
        torch.equal(a, b) for a, b in zip(before, (cfs.x, cfs.x_cf, cfs.scores), strict=True)
    )


# ---- some of the pairs


def test_some_of_the_pairs_are_pairs_again() -> None:
    cfs = pairs_by_hand()
    for chosen, rows in (
        (1, [1]),
        (-1, [3]),
        (slice(1, None), [1, 2, 3]),
        ([3, 0], [3, 0]),
        (cfs.found, [0, 3]),
    ):
        some = cfs[chosen]
        assert len(some) == len(rows)
        pd.testing.assert_frame_equal(some.table(), cfs.table().iloc[rows].reset_index(drop=True))
        assert torch.equal(some.x_cf, cfs.x_cf[rows])
        assert some.run == cfs.run
    assert len(cfs[np.zeros(4, dtype=bool)]) == len(cfs[[]]) == 0
    with pytest.raises(IndexError):
        cfs[4]


def test_a_file_is_what_its_extension_says(tmp_path: Path) -> None:
    cfs = pairs_by_hand()
    for name in ("a.csv", "a.json", "a.svg", "a.html", "a.png", "a.npz", "a.parquet"):
        cfs.save(tmp_path / name)
    assert hf.datasets.read_table(tmp_path / "a.csv")["target"].tolist() == [1, 2, 1, 2]
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(cfs.to_json())["answers"]
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == cfs.grid()
    assert (tmp_path / "a.png").read_bytes() == cfs.grid().png()
    assert "<html" in (tmp_path / "a.html").read_text(encoding="utf-8")
    pd.testing.assert_frame_equal(
        hf.images.ImageCounterfactuals.load(tmp_path / "a.parquet").table(), cfs.table()
    )
