"""Pictures of counterfactual images: every pixel as it is, and captions."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.errors import FileError, MissingExtraError, SettingError
from holdfast.images import grid as picture
from holdfast.render.svg import width_of
from support.images import pairs_by_hand
from support.pages import EVIL, Picture, Reader, pixels_of

BLACK = [0, 0, 0]
WHITE = [255, 255, 255]


def test_colours_and_differences_are_those_of_the_pixels() -> None:
    cfs = pairs_by_hand()
    assert picture.colours(cfs.x_cf[0])[0].tolist() == [BLACK, WHITE, BLACK, BLACK]
    assert picture.colours(cfs.x[0])[2, 3].tolist() == [102] * 3
    coloured = picture.colours(torch.tensor([0.0, 0.2, 1.0]).view(3, 1, 1))
    assert coloured.tolist() == [[[0, 51, 255]]]
    assert picture.colours(torch.tensor([0.0, 1.0]).view(2, 1, 1)).tolist() == [[[128] * 3]]
    changed = picture.difference(cfs.x[0], cfs.x_cf[0])
    assert changed[0, 1].tolist() == list(picture.RED)
    assert changed[0, 0].tolist() == WHITE
    strength = picture.PALEST + (1 - picture.PALEST) * 0.4  # darker by 0.4
    assert changed[2, 3].tolist() == [
        round(255 * (1 - strength) + strength * c) for c in picture.BLUE
    ]
    # Of a coloured image the channel that changes most: here one is darker by 0.1, one brighter by
    # 1.
    after = torch.tensor([0.4, 1.0, 0.5]).view(3, 1, 1)
    assert picture.difference(torch.tensor([0.5, 0.0, 0.5]).view(3, 1, 1), after).tolist() == [
        [list(picture.RED)]
    ]
    least = picture.difference(torch.zeros(1, 1, 1), torch.full((1, 1, 1), 1 / 255))
    assert (least < 245).any()  # the least change can be seen


def test_a_grid_shows_image_counterfactual_and_difference_beside_each_other() -> None:
    cfs = pairs_by_hand()
    shown = Picture(cfs.grid(zoom=42))
    assert {(i.width, i.height) for i in shown.images} == {(168, 126)}
    tiles = (
        picture.colours(cfs.x[0]),
        picture.colours(cfs.x_cf[0]),
        picture.difference(cfs.x[0], cfs.x_cf[0]),
    )
    # both pairs are of one image
    places = [shown.places_of(tile) for tile in tiles]
    (before, again), (after,), (changed,) = places
    assert before[0] == after[0] == changed[0] == again[0]
    assert before[1] < after[1] < changed[1] < again[1]
    assert shown.words == [
        "original",
        "counterfactual",
        "difference",
        "0 → 1",
        "2 pixels, probability 0.60",
        "original",
        "counterfactual",
        "difference",
        "0 → 2",
        "1 pixel, probability 0.90",
        "brighter than before",
        "darker",
    ]


@pytest.mark.parametrize("by", ["pair", "image"])
def test_a_png_file_shows_what_the_svg_file_shows(by: Any, tmp_path: Path) -> None:
    cfs = pairs_by_hand(channels=3)
    svg = cfs.grid(tmp_path / "grid.svg", zoom=7, by=by)
    assert (tmp_path / "grid.svg").read_text(encoding="utf-8") == svg == svg._repr_svg_()
    cfs.grid(tmp_path / "grid.png", zoom=7, by=by)
    canvas = pixels_of((tmp_path / "grid.png").read_bytes())
    shown = Picture(svg)
    assert canvas.shape == (shown.height, shown.width, 3)
    for image in shown.images:
        part = canvas[image.y : image.y + image.height, image.x : image.x + image.width]
        assert np.array_equal(part, image.pixels.repeat(7, 0).repeat(7, 1))
    assert (canvas == picture.INK).all(2).any()  # captions


def test_a_png_file_needs_the_plot_extra_and_an_svg_file_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    pairs_by_hand().grid(tmp_path / "a.svg")
    with pytest.raises(MissingExtraError, match=r"pip install 'holdfast\[plot\]'"):
        pairs_by_hand().grid(tmp_path / "a.png")
    with pytest.raises(FileError, match=r"must end in one of \.png, \.svg"):
        pairs_by_hand().grid(tmp_path / "a.jpg")
    with pytest.raises(FileError, match="cannot write"):
        pairs_by_hand().grid(tmp_path / "no" / "a.svg")


def test_which_pairs_a_grid_shows() -> None:
    cfs = pairs_by_hand(codes=(0, 0, 0, 0))
    assert picture.chosen(cfs, 12, "spread").tolist() == [0, 1, 2, 3]
    assert picture.chosen(cfs, 2, "spread").tolist() == [0, 3]
    assert picture.chosen(cfs, 3, "asked").tolist() == [0, 1, 2]
    assert picture.chosen(cfs, 4, "fewest").tolist() == [1, 3, 0, 2]
    assert picture.chosen(cfs, 2, "most").tolist() == [2, 0]
    assert picture.chosen(pairs_by_hand(), 12, "spread").tolist() == [0, 3]  # those with an answer
    # or the attempts
    assert picture.chosen(pairs_by_hand(codes=(2, 2, 1, 2)), 12, "spread").tolist() == [0, 1, 2, 3]
    one = Picture(cfs.grid(pairs=[3], zoom=4))
    other = Picture(cfs.grid(pairs=[0], zoom=4))
    assert (one.width, one.height) == (other.width, other.height)
    assert not one.places_of(picture.colours(cfs.x_cf[0]))
    assert other.places_of(picture.colours(cfs.x_cf[0]))
    wide = Picture(cfs.grid(zoom=30, columns=4))
    high = Picture(cfs.grid(zoom=30, columns=1))
    assert wide.width > high.width
    assert wide.height < high.height


def test_a_grid_by_image_has_a_line_per_image_and_a_column_per_class() -> None:
    cfs = pairs_by_hand(codes=(0, 0, 2, 0))
    shown = Picture(cfs.grid(by="image", zoom=42, pairs=[0, 1, 2, 3]))
    after = [shown.places_of(picture.colours(cfs.x_cf[i])) for i in (0, 2, 3)]
    assert [len(where) for where in after] == [1, 1, 1]
    (first,), (third,), (fourth,) = after
    assert first[1] == third[1]  # both towards class 1
    assert third[0] == fourth[0]  # both of image 1
    assert first[0] < third[0]
    assert third[1] < fourth[1]
    assert shown.words[:3] == ["original", "→ 1", "→ 2"]
    assert {"image 0", "image 1", "2 px", "0 px", "not found", "1 px"} <= set(shown.words)
    assert Picture(cfs.grid(by="image", most=1, zoom=42)).height < shown.height


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
        pairs_by_hand().grid(**settings)


def test_captions() -> None:
    cfs = pairs_by_hand()
    assert picture.title(4, "nine", 500) == "4 → nine"
    both = picture.title("a" * 50, "b" * 50, 300)
    assert re.fullmatch("a+… → b+…", both)
    assert width_of(both, picture.TITLE) <= 300
    assert [picture.caption(cfs, i) for i in (0, 2, 3)] == [
        "2 pixels, probability 0.60",
        "not found, probability 0.30",
        "1 pixel, probability 0.90",
    ]


@pytest.mark.parametrize("by", ["pair", "image"])
def test_long_names_and_odd_letters_stay_inside_a_grid(by: Any) -> None:
    names = (
        "a very long name of a class that has no room anywhere" * 3,
        "日本",
        "\u0627 é \u2013 “x”\n\t\0",
    )
    canvas = pixels_of(pairs_by_hand(names).grid(zoom=8, by=by).png())
    edge = [
        canvas[:20].reshape(-1, 3),
        canvas[:, :20].reshape(-1, 3),
        canvas[:, -20:].reshape(-1, 3),
    ]
    assert (np.concatenate(edge) == 255).all()


def test_names_run_nothing() -> None:
    for by in ("pair", "image"):
        svg = pairs_by_hand((EVIL, "b", "c")).grid(by=by, zoom=90)
        assert "<script" not in svg
        assert Reader(svg).count("script") == 0
        assert any("<script>" in words for words in Picture(svg).words)  # as words
