"""Counterfactual images as tables, pictures, pages and files; all by hand, nothing is trained."""

import importlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

import holdfast as hf
from holdfast.counterfactuals import Run
from holdfast.errors import FileError, SettingError
from holdfast.images import grid as picture
from holdfast.images import page
from holdfast.images.charts import confidence_chart, pixels_chart
from holdfast.images.io import read_images, read_mask, write_images
from holdfast.images.result import ImageCounterfactuals
from holdfast.render import lettering
from holdfast.render.png import encoded, png
from holdfast.target import BoundTarget
from support.pages import EVIL, Reader, pixels_of

RUN = Run("DeDUCE", "DeDUCE(mu=2)", "all", 7, 1.5, "abc", "images of 1 x 3 x 4", "0", "2024-01-01T00:00:00+00:00")
BLACK, WHITE = [0, 0, 0], [255, 255, 255]


def made(
    classes: tuple[Any, ...] = (0, 1, 2), channels: int = 1, codes: tuple[int, ...] = (0, 1, 2, 0)
) -> ImageCounterfactuals:
    """Two images of 3 x 4 pixels and four pairs: found, already met, not found, found.

    The first pair makes pixel (0, 1) brighter by 1 and (2, 3) darker by 0.4; the last makes (1, 0) brighter by 0.2.
    """
    x = torch.zeros(4, channels, 3, 4)
    x[:, :, 2, 3] = 0.4
    x_cf = x.clone()
    x_cf[0, -1, 0, 1] = 1.0
    x_cf[0, 0, 2, 3] = 0.0
    x_cf[2, 0] = 0.5
    x_cf[3, 0, 1, 0] = 0.2
    p = torch.tensor([[0.3, 0.6, 0.1], [0.2, 0.1, 0.7], [0.5, 0.3, 0.2], [0.05, 0.05, 0.9]])
    goal = BoundTarget(torch.tensor([1, 2, 1, 2]), 1.0, 0.0, True, 3)
    reasons = ["", "the model gives the wanted class already", "the best attempt has probability 0.30; wait", ""]
    numbers = np.array([0, 0, 1, 1]), np.array([0, 0, 2, 0]), np.array([5, 0, 700, 2])
    return ImageCounterfactuals(x, x_cf, p.log(), goal, np.array(codes), reasons, *numbers, 123, classes, RUN)


# ---- tables


def test_tables_say_what_became_of_each_pair() -> None:
    cfs = made()
    assert cfs.status["status"].tolist() == ["found", "already met", "not found", "found"]
    assert cfs.status["reason"].tolist() == cfs.reasons
    assert cfs.pixels.tolist()[:2] == [2, 0]
    assert np.isnan(cfs.pixels[2])
    table = cfs.table()
    assert list(table.columns) == [
        "row", "label", "target", "status", "confidence", "pixels", "l1", "iterations", "reason"
    ]  # fmt: skip
    assert table["row"].tolist() == [0, 0, 1, 1]
    assert table["label"].tolist() == [0, 0, 2, 0]
    assert table["target"].tolist() == [1, 2, 1, 2]
    assert table["confidence"].tolist() == pytest.approx([0.6, 0.7, 0.3, 0.9])
    assert table["pixels"].astype(object).where(table["pixels"].notna(), None).tolist() == [2, 0, None, 1]
    assert table["l1"].tolist() == pytest.approx([1.4, 0, np.nan, 0.2], nan_ok=True)
    assert table["iterations"].tolist() == [5, 0, 700, 2]
    assert json.loads(json.dumps(hf.datasets.records(table)))[2]["pixels"] is None


def test_changes_are_the_values_that_differ_where_there_is_an_answer() -> None:
    tidy = made().changes()
    lines = [(0, 1, 0, 0, 1, 0.0, 1.0), (0, 1, 0, 2, 3, np.float32(0.4), 0.0), (1, 2, 0, 1, 0, 0.0, np.float32(0.2))]
    pd.testing.assert_frame_equal(
        tidy, pd.DataFrame(lines, columns=["row", "target", "channel", "y", "x", "before", "after"]), check_dtype=False
    )
    coloured = made(channels=3)
    assert coloured.changes()[["channel", "y", "x"]].to_numpy().tolist() == [[0, 2, 3], [2, 0, 1], [0, 1, 0]]
    assert coloured.pixels.tolist()[0] == 2
    nothing = made(codes=(2, 2, 2, 2)).changes()
    assert len(nothing) == 0
    assert list(nothing.columns) == ["row", "target", "channel", "y", "x", "before", "after"]


def test_a_pixel_that_changes_in_two_channels_counts_once() -> None:
    cfs = made(channels=3)
    cfs.x_cf[0, 1, 0, 1] = 0.5
    assert cfs.pixels[0] == 2
    assert cfs.cost("l0")[0] == 3


def test_summary_and_repr() -> None:
    told = "4 pairs of 2 images and a class: 2 found, 1 already met, 1 not found (DeDUCE(mu=2), 1.50 s)"
    assert made().summary() == told
    assert repr(made()) == f"<ImageCounterfactuals {told}>"
    assert replace(made(), source=np.arange(4)).summary().startswith("4 images: 2 found")


def test_names_of_classes_keep_their_type() -> None:
    assert made(("a", "b", "c")).target.tolist() == ["b", "c", "b", "c"]
    mixed = made((0, "b", 2.5))
    assert mixed.target.tolist() == ["b", 2.5, "b", 2.5]
    assert mixed.label.tolist() == [0, 0, 2.5, 0]


# ---- files


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("classes", [(0, 1, 2), ("a", "é", "c d"), (1, "1", 2.5)])
def test_a_parquet_file_holds_everything(tmp_path: Path, classes: tuple[Any, ...], channels: int) -> None:
    cfs = made(classes, channels)
    cfs.x_cf[2].uniform_(generator=torch.Generator().manual_seed(0))
    cfs.save(tmp_path / "a.parquet")
    again = ImageCounterfactuals.load(tmp_path / "a.parquet")
    for name in ("x", "x_cf", "scores"):
        ours, theirs = getattr(cfs, name), getattr(again, name)
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    for name in ("status_codes", "source", "own", "iterations"):
        assert getattr(cfs, name).tolist() == getattr(again, name).tolist()
        assert getattr(again, name).dtype == np.int64
    assert torch.equal(again.goal.label, cfs.goal.label)
    assert (again.goal.sign, again.goal.margin, again.goal.soft, again.goal.k) == (1.0, 0.0, True, 3)
    assert (again.reasons, again.passes, again.classes, again.run) == (cfs.reasons, 123, cfs.classes, RUN)
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
    from holdfast.images.io import _from_arrow, _to_arrow, untyped

    cfs = replace(made(), scores=torch.tensor([scores] * 4, dtype=torch.float64))
    cfs.x_cf[0] = torch.tensor(values).view(1, 3, 4)
    file = io.BytesIO()
    table = _to_arrow(cfs)
    untyped("pyarrow.parquet").write_table(table, file)
    table = untyped("pyarrow.parquet").read_table(file)
    again = _from_arrow(table, json.loads(table.schema.metadata[b"holdfast-images"]))
    assert again.x_cf.numpy().tobytes() == cfs.x_cf.numpy().tobytes()
    assert torch.equal(again.scores, cfs.scores)


def test_no_pairs_are_a_file_as_well(tmp_path: Path) -> None:
    whole = made()
    none = torch.arange(0)
    empty = replace(
        whole, x=whole.x[none], x_cf=whole.x_cf[none], scores=whole.scores[none], goal=whole.goal[none],
        status_codes=whole.status_codes[:0], reasons=[],
        source=whole.source[:0], own=whole.own[:0], iterations=whole.iterations[:0],
    )  # fmt: skip
    empty.save(tmp_path / "none.parquet")
    again = ImageCounterfactuals.load(tmp_path / "none.parquet")
    assert again.x.shape == (0, 1, 3, 4)
    assert len(again.table()) == len(again.changes()) == 0
    assert "No images were asked about." in again.report(tmp_path / "none.html").read_text(encoding="utf-8")
    assert Reader(again._repr_html_()).rows == []
    with pytest.raises(SettingError, match="there are no pairs"):
        again.grid()


def test_arrays_alone_as_npz(tmp_path: Path) -> None:
    made((0, "b", 2)).save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    assert np.array_equal(arrays["counterfactuals"], made().x_cf.numpy())
    assert arrays["target"].tolist() == ["b", "2", "b", "2"]
    assert arrays["status"].tolist() == [0, 1, 2, 0]
    assert arrays["row"].tolist() == [0, 0, 1, 1]
    assert arrays["confidence"].tolist() == pytest.approx([0.6, 0.7, 0.3, 0.9])
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
    made().save(tmp_path / "good.parquet")
    with pytest.raises(FileError, match=r"was not written by Counterfactuals\.save"):
        hf.Counterfactuals.load(tmp_path / "good.parquet")
    with pytest.raises(FileError, match=r"must end in '\.parquet', '\.npz'"):
        made().save(tmp_path / "a.txt")
    with pytest.raises(FileError, match="cannot write"):
        made().save(tmp_path / "no" / "a.parquet")
    with pytest.raises(FileError, match="cannot write"):
        made().grid(tmp_path / "no" / "a.png")
    with pytest.raises(FileError, match=r"must end in '\.png'"):
        made().grid(tmp_path / "a.jpg")


def test_a_file_whose_text_was_changed_is_damaged(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    made().save(tmp_path / "a.parquet")
    table: Any = pq.read_table(tmp_path / "a.parquet")
    content = json.loads(table.schema.metadata[b"holdfast-images"])
    for change in ({"size": [1, 3, 5]}, {"classes": ["a"]}, {"goal": {}}, {"run": {"method": 1}}, {"size": None}):
        text = json.dumps(content | change).encode()
        pq.write_table(table.replace_schema_metadata({b"holdfast-images": text}), tmp_path / "bad.parquet")
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
    assert torch.equal(data.images, torch.from_numpy((255 * x).astype(np.uint8)).float()[:, None] / 255)
    np.savez(tmp_path / "swapped.npz", images=x.astype(">f4"))
    assert torch.equal(read_images(tmp_path / "swapped.npz").images, torch.from_numpy(x)[:, None])


BAD_IMAGES: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"image": np.zeros((2, 3, 4))}, "has no array 'images'; did you mean 'image'"),
    "empty": ({}, "has no array 'images'; it is empty"),
    "flat": ({"images": np.zeros((2, 12))}, r"expected images of shape .* got \(2, 12\)"),
    "beyond": ({"images": np.full((2, 3, 4), 255.0)}, r"between 0 and 1, got 255 to 255; divide them by 255\?"),
    "negative": ({"images": np.full((2, 3, 4), -0.5)}, "between 0 and 1"),
    "nan": ({"images": np.full((2, 3, 4), np.nan)}, r"between 0 and 1|no numbers \(NaN\)"),
    "whole": ({"images": np.zeros((2, 3, 4), np.int64)}, "images are bytes"),
    "texts": ({"images": np.array([[["a"]]])}, "are no numbers but <U1"),
    "objects": ({"images": np.array([None, "x"], dtype=object)}, "holds Python objects"),
    "size": ({"images": np.zeros((2, 5, 5))}, "expected images of 1 x 3 x 4, got 1 x 5 x 5"),
    "few labels": ({"images": np.zeros((2, 3, 4)), "labels": [1]}, r"needs 2 labels, got shape \(1,\)"),
    "real labels": ({"images": np.zeros((2, 3, 4)), "labels": [1.5, 2]}, "whole numbers or texts, got float64"),
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


# ---- pictures


def test_a_png_holds_every_pixel_in_grey_and_in_colour() -> None:
    rng = np.random.default_rng(0)
    grey, coloured = rng.integers(0, 256, (3, 5), dtype=np.uint8), rng.integers(0, 256, (4, 3, 3), dtype=np.uint8)
    assert np.array_equal(pixels_of(encoded(grey)), np.repeat(grey[..., None], 3, 2))
    assert np.array_equal(pixels_of(encoded(coloured)), coloured)
    large = pixels_of(png(coloured / 255, zoom=3))
    assert np.array_equal(large[1::3, 1::3], coloured)
    assert np.array_equal(large[::3, 2::3], coloured)
    assert encoded(grey)._repr_png_() == bytes(encoded(grey))


def test_colours_and_differences_are_those_of_the_pixels() -> None:
    cfs = made()
    assert picture.colours(cfs.x_cf[0])[0].tolist() == [BLACK, WHITE, BLACK, BLACK]
    assert picture.colours(cfs.x[0])[2, 3].tolist() == [102] * 3
    coloured = picture.colours(torch.tensor([0.0, 0.2, 1.0]).view(3, 1, 1))
    assert coloured.tolist() == [[[0, 51, 255]]]
    assert picture.colours(torch.tensor([0.0, 1.0]).view(2, 1, 1)).tolist() == [[[128] * 3]]
    changed = picture.difference(cfs.x[0], cfs.x_cf[0])
    assert changed[0, 1].tolist() == list(picture.RED)
    assert changed[0, 0].tolist() == WHITE
    strength = picture.PALEST + (1 - picture.PALEST) * 0.4  # darker by 0.4
    assert changed[2, 3].tolist() == [round(255 * (1 - strength) + strength * c) for c in picture.BLUE]
    # Of a coloured image the channel that changes most: here one is darker by 0.1, one brighter by 1.
    after = torch.tensor([0.4, 1.0, 0.5]).view(3, 1, 1)
    assert picture.difference(torch.tensor([0.5, 0.0, 0.5]).view(3, 1, 1), after).tolist() == [[list(picture.RED)]]
    least = picture.difference(torch.zeros(1, 1, 1), torch.full((1, 1, 1), 1 / 255))
    assert (least < 245).any()  # the least change can be seen


def places_of(canvas: NDArray[np.uint8], tile: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Where a picture holds another one."""
    windows = np.lib.stride_tricks.sliding_window_view(canvas, tile.shape)[:, :, 0]
    return [(int(y), int(x)) for y, x in np.argwhere((windows == tile).all((2, 3, 4)))]


def test_a_grid_shows_image_counterfactual_and_difference_beside_each_other(tmp_path: Path) -> None:
    cfs = made()
    shown = cfs.grid(tmp_path / "grid.png", zoom=6)
    assert (tmp_path / "grid.png").read_bytes() == shown
    canvas = pixels_of(shown)
    found = list[list[tuple[int, int]]]()
    for tile in (picture.colours(cfs.x[0]), picture.colours(cfs.x_cf[0]), picture.difference(cfs.x[0], cfs.x_cf[0])):
        found.append(places_of(canvas, tile.repeat(6, 0).repeat(6, 1)))
    (before, again), (after,), (changed,) = found  # both pairs are of the same image
    assert before[0] == after[0] == changed[0] == again[0]
    assert before[1] < after[1] < changed[1] < again[1]
    below = canvas[before[0] + 20 : before[0] + 120, before[1] : changed[1] + 24]
    assert (below == picture.INK).all(2).any()  # a caption


def test_which_pairs_a_grid_shows() -> None:
    cfs = made(codes=(0, 0, 0, 0))
    assert picture.chosen(cfs, 12, "spread").tolist() == [0, 1, 2, 3]
    assert picture.chosen(cfs, 2, "spread").tolist() == [0, 3]
    assert picture.chosen(cfs, 3, "asked").tolist() == [0, 1, 2]
    assert picture.chosen(cfs, 4, "fewest").tolist() == [1, 3, 0, 2]
    assert picture.chosen(cfs, 2, "most").tolist() == [2, 0]
    assert picture.chosen(made(), 12, "spread").tolist() == [0, 3]  # those with an answer
    assert picture.chosen(made(codes=(2, 2, 1, 2)), 12, "spread").tolist() == [0, 1, 2, 3]  # or the attempts
    one, other = cfs.grid(pairs=[3], zoom=4), cfs.grid(pairs=[0], zoom=4)
    assert one != other
    assert pixels_of(one).shape == pixels_of(other).shape
    wide, high = (pixels_of(cfs.grid(zoom=30, columns=k)).shape for k in (4, 1))
    assert wide[1] > high[1]
    assert wide[0] < high[0]


def test_a_grid_by_image_has_a_line_per_image_and_a_column_per_class() -> None:
    cfs = made(codes=(0, 0, 2, 0))
    canvas = pixels_of(cfs.grid(by="image", zoom=6, pairs=[0, 1, 2, 3]))
    after = [places_of(canvas, picture.colours(cfs.x_cf[i]).repeat(6, 0).repeat(6, 1)) for i in (0, 2, 3)]
    assert [len(where) for where in after] == [1, 1, 1]
    (first,), (third,), (fourth,) = after
    assert first[1] == third[1]  # both towards class 1
    assert third[0] == fourth[0]  # both of image 1
    assert first[0] < third[0]
    assert third[1] < fourth[1]
    shown = cfs.grid(by="image", most=1, zoom=6)
    assert pixels_of(shown).shape[0] < canvas.shape[0]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"most": 0}, "most must be at least 1, got 0"),
        ({"columns": 0}, "columns must be at least 1"),
        ({"zoom": -1}, "zoom must be at least 1"),
        ({"order": "best"}, "order must be one of spread, asked, fewest, most, got 'best'"),
        ({"by": "class"}, "by must be one of pair, image, got 'class'"),
        ({"pairs": [4]}, r"numbers from 0 to 3, at least one, got \[4\]"),
        ({"pairs": []}, "at least one"),
    ],
)
def test_grids_that_cannot_be(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingError, match=told):
        made().grid(**settings)


def test_captions() -> None:
    cfs = made()
    assert picture.title(4, "nine", 500) == "4 → nine"
    both = picture.title("a" * 50, "b" * 50, 300)
    assert re.fullmatch("a+… → b+…", both)
    assert lettering.width_of(both, picture.TITLE) <= 300
    assert [picture.told(cfs, i) for i in (0, 2, 3)] == [
        "2 pixels, confidence 0.60", "not found, confidence 0.30", "1 pixel, confidence 0.90"
    ]  # fmt: skip


def test_long_names_and_odd_letters_stay_inside_a_grid() -> None:
    names = ("a very long name of a class that has no room anywhere" * 3, "日本", "\u0627 é \u2013 “x”\n\t")
    for by in ("pair", "image"):
        canvas = pixels_of(made(names).grid(zoom=8, by=by))
        edge = np.concatenate(
            [canvas[:20].reshape(-1, 3), canvas[:, :20].reshape(-1, 3), canvas[:, -20:].reshape(-1, 3)]
        )
        assert (edge == 255).all()


# ---- letters


def test_a_letter_is_drawn_where_it_is_said_to_be() -> None:
    canvas = np.full((40, 60, 3), 255, dtype=np.uint8)
    lettering.draw(canvas, "L", 10, 30, size=21, ink=(0, 0, 0))
    dark = (canvas < 60).all(2)
    rows, columns = np.flatnonzero(dark.any(1)), np.flatnonzero(dark.any(0))
    assert rows[0] in (8, 9)  # from the top of a capital to the baseline
    assert rows[-1] in (30, 31)
    assert columns[0] in (8, 9)
    assert dark[20].sum() < 5  # the stem
    assert dark[30].sum() > 10  # the foot
    half = (canvas > 60) & (canvas < 250)
    assert half.any()  # edges are smooth


def test_every_letter_has_ink_and_fits_its_width() -> None:
    for letter in (*lettering.LETTERS, "日"):
        canvas = np.full((60, 80, 3), 255, dtype=np.uint8)
        lettering.draw(canvas, letter, 20, 40, size=21, ink=(0, 0, 0))
        columns = np.flatnonzero((canvas < 128).any((0, 2)))
        assert len(columns), letter
        assert columns[0] >= 20 - 8
        assert columns[-1] <= 20 + lettering.width_of(letter, 21) + 3, letter


def test_numbers_are_equally_wide_and_what_has_no_room_is_cut() -> None:
    assert len({lettering.width_of(d, 20) for d in "0123456789"}) == 1
    assert lettering.cut("abc", 20, 500) == "abc"
    short = lettering.cut("a long text", 20, 60)
    assert short.endswith("…")
    assert lettering.width_of(short, 20) <= 60
    assert lettering.written("Ä \u2013 b\n c") == "A - b c"


def test_letters_beyond_the_edge_are_lost() -> None:
    canvas = np.full((20, 30, 3), 255, dtype=np.uint8)
    lettering.draw(canvas, "WWW", -12, 5, size=30, ink=(0, 0, 0))
    lettering.draw(canvas, "WWW", 200, 200, size=30, ink=(0, 0, 0))
    assert (canvas < 255).any()
    assert canvas.shape == (20, 30, 3)


# ---- pages


def test_the_report_tells_of_every_pair(tmp_path: Path) -> None:
    text = made(("zero", "one", "two")).report(tmp_path / "deep" / "r.html").read_text(encoding="utf-8")
    rows = [row for row in Reader(text).rows if len(row) == 8][1:]
    cells = [[re.sub(r"\s+", " ", cell).strip() for cell in row] for row in rows]
    assert [row[0] for row in cells] == ["0", "0", "1", "1"]
    assert [row[2] for row in cells] == ["zero → one", "zero → two", "two → one", "zero → two"]
    assert [row[3] for row in cells] == [
        "found", "already met", "not foundthe best attempt has probability 0.30; wait", "found"
    ]  # fmt: skip
    assert [row[4:] for row in cells] == [
        ["2", "1.40", "5", "60.0%"], ["0", "0.00", "0", "70.0%"], ["", "", "700", "30.0%"], ["1", "0.20", "2", "90.0%"]
    ]  # fmt: skip
    told = (
        "2 images, 4 pairs of an image and a wanted class: 2 answered, 1 met from the start; half of the answers change"
    )
    assert f"{told} 1.5 pixels (12.5% of an image) or fewer." in text
    assert "DeDUCE(mu=2)" in text
    assert text.count("<svg") == 2
    assert text.count("<img") == 3 * 4 + 3 * 2  # all pairs, and the answers in large


def test_pages_load_nothing_and_run_nothing_from_names(tmp_path: Path) -> None:
    cfs = made((EVIL, "b", "c"))
    for text, scripts in ((cfs.report(tmp_path / "r.html").read_text(encoding="utf-8"), 1), (cfs._repr_html_(), 0)):
        seen = Reader(text)
        assert seen.count("script") == scripts
        for tag, attributes in seen.tags:
            assert not {name for name in attributes if name.startswith("on")}
            assert "href" not in attributes
            if "src" in attributes:
                assert tag == "img"
                assert (attributes["src"] or "").startswith("data:image/png;base64,")
        assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"|http-equiv', "", text)


def test_images_in_pages_are_those_of_the_pairs() -> None:
    import base64

    (card, *_) = page.cards(made(), np.array([0, 3]))
    shown = [pixels_of(base64.b64decode(url.partition(",")[2])) for url in (card.before, card.after, card.changed)]
    cfs = made()
    wanted = picture.colours(cfs.x[0]), picture.colours(cfs.x_cf[0]), picture.difference(cfs.x[0], cfs.x_cf[0])
    for ours, theirs in zip(shown, wanted, strict=True):
        assert np.array_equal(ours, theirs)


def test_a_report_without_the_plot_extra_has_no_charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, *more: Any) -> Any:
        if name == "altair":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    text = made().report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<svg" not in text
    assert "pip install &#39;holdfast[plot]&#39;" in text or "pip install 'holdfast[plot]'" in text


def test_a_long_report_shows_answers_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_PAIRS", 3)
    text = made(codes=(2, 2, 0, 0)).report(tmp_path / "r.html").read_text(encoding="utf-8")
    rows = [row for row in Reader(text).rows if len(row) == 8][1:]
    assert [row[0] for row in rows] == ["0", "1", "1"]
    assert "3 of 4 pairs are shown" in text


def test_the_table_of_classes_has_medians() -> None:
    cfs = replace(made(codes=(0, 0, 0, 0)), own=np.array([0, 0, 2, 0]))
    table = page.matrix(cfs)
    assert table is not None
    assert table["columns"] == ["1", "2"]
    assert [(name, [value for value, _ in cells]) for name, cells in table["lines"]] == [
        ("0", ["2", "0.5"]), ("2", ["12", ""])
    ]  # fmt: skip
    assert page.matrix(replace(cfs, own=np.zeros(4, dtype=np.int64))) is None


def test_histograms_count_the_answers() -> None:
    def counts(chart: Any) -> pd.DataFrame:
        return pd.DataFrame(next(iter(chart.to_dict()["datasets"].values())))

    few = counts(pixels_chart(np.array([3.0, 5.0, 5.0])))
    assert few[["left", "right", "answers"]].to_numpy().tolist() == [[2.5, 3.5, 1], [3.5, 4.5, 0], [4.5, 5.5, 2]]
    assert few["words"][2] == "5 pixels: 2 answers"
    many = counts(pixels_chart(np.arange(1.0, 101.0)))
    assert len(many) <= 24
    assert many["answers"].sum() == 100
    sure = counts(confidence_chart(np.array([0.5, 0.52, 0.53, 0.99, 1.0])))
    assert sure["answers"].sum() == 5
    assert sure["left"][0] == 0.5
    assert sure["right"].iat[-1] == 1.0
    assert sure["answers"].tolist()[:2] == [2, 1]
    assert counts(confidence_chart(np.array([1.0])))["answers"].sum() == 1


def test_the_notebook_table_shows_the_first_pairs() -> None:
    text = page.pairs_table(made(), most=3)
    assert "The first 3 of 4 pairs." in text
    rows = Reader(text).rows
    assert [row[2] for row in rows[1:]] == ["0 → 1", "0 → 2", "2 → 1"]
    assert made()._repr_html_() == page.pairs_table(made())


def test_the_callers_tensors_stay_as_they_are(tmp_path: Path) -> None:
    cfs = made()
    before: list[Tensor] = [cfs.x.clone(), cfs.x_cf.clone(), cfs.scores.clone()]
    cfs.grid()
    cfs.report(tmp_path / "r.html")
    cfs.save(tmp_path / "a.parquet")
    cfs.table(), cfs.changes()
    assert all(torch.equal(a, b) for a, b in zip(before, (cfs.x, cfs.x_cf, cfs.scores), strict=True))
