"""Images and answers as files."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast._core.parquet import write_sealed
from holdfast.errors import FileError, SettingError
from holdfast.images.io import read_images, read_mask, write_images
from holdfast.images.result import ImageCounterfactuals
from support.images import RUN, pairs_by_hand
from support.pages import Reader


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("classes", [(0, 1, 2), ("a", "é", "c d"), (1, "1", 2.5)])
def test_a_parquet_file_holds_everything(
    tmp_path: Path, classes: tuple[Any, ...], channels: int
) -> None:
    cfs = pairs_by_hand(classes, channels)
    cfs.x_cf[2].uniform_(generator=torch.Generator().manual_seed(0))
    cfs.save(tmp_path / "a.parquet")
    again = ImageCounterfactuals.load(tmp_path / "a.parquet")
    for name in ("x", "x_cf", "scores"):
        ours = getattr(cfs, name)
        theirs = getattr(again, name)
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    for name in ("status_codes", "source", "own", "iterations"):
        assert getattr(cfs, name).tolist() == getattr(again, name).tolist()
        assert getattr(again, name).dtype == np.int64
    assert torch.equal(again.goal.label, cfs.goal.label)
    assert (again.goal.sign, again.goal.margin, again.goal.soft, again.goal.k) == (
        1.0,
        0.0,
        True,
        3,
    )
    assert (again.reasons, again.passes, again.classes, again.run) == (
        cfs.reasons,
        123,
        cfs.classes,
        RUN,
    )
    pd.testing.assert_frame_equal(again.table(), cfs.table())
    again.x_cf[0] = 0  # what was read is the reader's own
    plain = pd.read_parquet(tmp_path / "a.parquet")  # and other readers see lists of numbers
    assert np.array_equal(np.stack(plain["counterfactual"].to_list()), cfs.x_cf.flatten(1).numpy())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.floats(0, 1, width=32), min_size=12, max_size=12),
    st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3),
)
def test_every_bit_survives_a_file(values: list[float], scores: list[float]) -> None:
    from holdfast.images.io import MARK, _from_arrow, _to_arrow, untyped

    cfs = replace(pairs_by_hand(), scores=torch.tensor([scores] * 4, dtype=torch.float64))
    cfs.x_cf[0] = torch.tensor(values).view(1, 3, 4)
    file = io.BytesIO()
    table, contents = _to_arrow(cfs)
    untyped("pyarrow.parquet").write_table(table, file)
    table = untyped("pyarrow.parquet").read_table(file)
    again = _from_arrow(table, json.loads(json.dumps(contents[MARK])))
    assert again.x_cf.numpy().tobytes() == cfs.x_cf.numpy().tobytes()
    assert torch.equal(again.scores, cfs.scores)


def test_no_pairs_are_a_file_as_well(tmp_path: Path) -> None:
    whole = pairs_by_hand()
    none = torch.arange(0)
    empty = replace(
        whole,
        x=whole.x[none],
        x_cf=whole.x_cf[none],
        scores=whole.scores[none],
        goal=whole.goal[none],
        status_codes=whole.status_codes[:0],
        reasons=[],
        source=whole.source[:0],
        own=whole.own[:0],
        iterations=whole.iterations[:0],
    )
    empty.save(tmp_path / "none.parquet")
    again = ImageCounterfactuals.load(tmp_path / "none.parquet")
    assert again.x.shape == (0, 1, 3, 4)
    assert len(again.table()) == len(again.changes()) == 0
    assert "No images were asked about." in again.report(tmp_path / "none.html").read_text(
        encoding="utf-8"
    )
    assert Reader(again._repr_html_()).rows == []
    with pytest.raises(SettingError, match="there are no pairs"):
        again.grid()


def test_arrays_alone_as_npz(tmp_path: Path) -> None:
    pairs_by_hand((0, "b", 2)).save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    assert np.array_equal(arrays["counterfactuals"], pairs_by_hand().x_cf.numpy())
    assert arrays["target"].tolist() == ["b", "2", "b", "2"]
    assert arrays["status"].tolist() == [0, 1, 2, 0]
    assert arrays["row"].tolist() == [0, 0, 1, 1]
    assert arrays["probability"].tolist() == pytest.approx([0.6, 0.7, 0.3, 0.9])
    assert arrays["scores"].shape == (4, 3)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no file at"):
        ImageCounterfactuals.load(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(FileError, match="cannot read"):
        ImageCounterfactuals.load(tmp_path / "text.parquet")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(FileError, match=r"was not written by ImageCounterfactuals\.save"):
        ImageCounterfactuals.load(tmp_path / "other.parquet")
    pairs_by_hand().save(tmp_path / "good.parquet")
    with pytest.raises(FileError, match=r"was not written by Counterfactuals\.save"):
        hf.Counterfactuals.load(tmp_path / "good.parquet")
    with pytest.raises(
        FileError, match=r"must be one of \.parquet, \.npz, \.csv, \.json, \.png, \.svg, \.html"
    ):
        pairs_by_hand().save(tmp_path / "a.txt")
    with pytest.raises(FileError, match="cannot write"):
        pairs_by_hand().save(tmp_path / "no" / "a.parquet")


def test_a_file_whose_text_was_changed_is_damaged(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pairs_by_hand().save(tmp_path / "a.parquet")
    table: Any = pq.read_table(tmp_path / "a.parquet")
    content = json.loads(table.schema.metadata[b"holdfast-images"])
    for change in (
        {"size": [1, 3, 5]},
        {"classes": ["a"]},
        {"goal": {}},
        {"run": {"method": 1}},
        {"size": None},
    ):
        write_sealed(tmp_path / "bad.parquet", table, {b"holdfast-images": content | change})
        with pytest.raises(FileError, match="is damaged"):
            ImageCounterfactuals.load(tmp_path / "bad.parquet")


def test_images_and_labels_in_and_out(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((5, 3, 4), dtype=np.float32)
    write_images(tmp_path / "a.npz", x, ["a", "b", "a", "c", "é"])
    data = read_images(tmp_path / "a.npz")
    assert torch.equal(data.images, torch.from_numpy(x)[:, None])
    assert data.labels is not None
    assert data.labels.tolist() == ["a", "b", "a", "c", "é"]
    part = data[torch.tensor([3, 1]).numpy()]
    assert part.labels is not None
    assert part.labels.tolist() == ["c", "b"]
    np.savez(tmp_path / "b.npz", images=(255 * x).astype(np.uint8)[:, None], more=x)
    data = read_images(tmp_path / "b.npz", (1, 3, 4))
    assert data.labels is None
    assert torch.equal(
        data.images, torch.from_numpy((255 * x).astype(np.uint8)).float()[:, None] / 255
    )
    np.savez(tmp_path / "swapped.npz", images=x.astype(">f4"))
    assert torch.equal(read_images(tmp_path / "swapped.npz").images, torch.from_numpy(x)[:, None])


BAD_IMAGES: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"image": np.zeros((2, 3, 4))}, "has no array 'images'; did you mean 'image'"),
    "empty": ({}, "has no array 'images'; it is empty"),
    "flat": ({"images": np.zeros((2, 12))}, r"expected images of shape .* got \(2, 12\)"),
    "beyond": (
        {"images": np.full((2, 3, 4), 255.0)},
        r"between 0 and 1, got 255 to 255; divide them by 255\?",
    ),
    "negative": ({"images": np.full((2, 3, 4), -0.5)}, "between 0 and 1"),
    "nan": ({"images": np.full((2, 3, 4), np.nan)}, r"between 0 and 1|non-finite \(NaN\)"),
    "whole": ({"images": np.zeros((2, 3, 4), np.int64)}, "images are bytes"),
    "texts": ({"images": np.array([[["a"]]])}, "are not numeric but <U1"),
    "objects": ({"images": np.array([None, "x"], dtype=object)}, "holds Python objects"),
    "size": ({"images": np.zeros((2, 5, 5))}, "expected images of 1 x 3 x 4, got 1 x 5 x 5"),
    "few labels": (
        {"images": np.zeros((2, 3, 4)), "labels": [1]},
        r"needs 2 labels, got shape \(1,\)",
    ),
    "real labels": (
        {"images": np.zeros((2, 3, 4)), "labels": [1.5, 2]},
        "integers or strings, got float64",
    ),
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_images_that_cannot_be_used(tmp_path: Path, name: str) -> None:
    arrays, told = BAD_IMAGES[name]
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(FileError, match=told):
        read_images(tmp_path / "a.npz", (1, 3, 4))


def test_files_that_hold_no_images(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_text("hello")
    with pytest.raises(FileError, match="cannot read"):
        read_images(tmp_path / "a.npz")
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.zeros((2, 3, 4)))
    with pytest.raises(FileError, match="a single array"):
        read_images(tmp_path / "one.npz")
    with pytest.raises(FileError, match=r"expected an \.npz file"):
        read_images(tmp_path / "a.csv")
    with pytest.raises(FileError, match="no file at"):
        read_images(tmp_path / "none.npz")


def test_masks(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.eye(3, dtype=np.uint8))
    assert read_mask(tmp_path / "m.npy").tolist() == np.eye(3, dtype=bool).tolist()
    np.save(tmp_path / "real.npy", np.eye(3))
    with pytest.raises(FileError, match="true or false, got float64"):
        read_mask(tmp_path / "real.npy")
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(FileError, match="holds Python objects"):
        read_mask(tmp_path / "objects.npy")
    for name, told in (("m.npz", r"expected an \.npy file"), ("none.npy", "no file at")):
        with pytest.raises(FileError, match=told):
            read_mask(tmp_path / name)
