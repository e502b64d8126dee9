"""Boards of images show them to the pixel, and the committed ones are those of the results."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.hoeltgen2021.pictures import FAILED, board, pictures, stored
from support.committed import RESULTS, committed_results
from support.pages import Picture


def test_a_board_shows_every_image_to_the_pixel() -> None:
    images = np.linspace(0, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
    captions = [["", "5 pixels", FAILED], ["", "1 pixels", "2 pixels"]]
    kept_ = stored(
        ["4 → 9", "a very long name that has no room at all"],
        ["original", "DeDUCE", "JSMA"],
        images,
        captions,
    )
    assert json.loads(json.dumps(kept_)) == kept_
    shown = Picture(board(kept_))
    assert [
        np.array_equal(i.pixels[..., 0], g) for i, g in zip(shown.images, grey(images), strict=True)
    ] == [True] * 6
    assert shown.words[:4] == ["original", "DeDUCE", "JSMA", "4 → 9"]
    assert FAILED in shown.words
    assert any(words.endswith("…") for words in shown.words)


def grey(images: NDArray[Any]) -> NDArray[np.uint8]:
    return np.round(255 * images).astype(np.uint8).reshape(-1, *images.shape[2:])


def test_the_committed_boards_are_those_of_the_results() -> None:
    """Paper: hoeltgen2021 Figure 3."""
    drawn = pictures(list(committed_results("hoeltgen2021").values()))
    assert len(drawn) == 3
    for name, draw in drawn.items():
        assert (RESULTS / "hoeltgen2021" / name).read_bytes() == draw()
        assert len(draw()) < 150_000
