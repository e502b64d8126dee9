"""Boards of images show them to the pixel, and the committed ones are those of the results."""

import json
import zlib
from typing import Any

import numpy as np

from experiments.hoeltgen2021.pictures import FAILED, board, pictures, stored
from support.committed import RESULTS, committed_results


def test_a_board_shows_every_image_to_the_pixel() -> None:
    images = np.linspace(0, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
    told = [["", "5 pixels", FAILED], ["", "1 pixels", "2 pixels"]]
    kept_ = stored(["4 → 9", "a very long name that has no room at all"], ["original", "DeDUCE", "JSMA"], images, told)
    assert json.loads(json.dumps(kept_)) == kept_
    picture = board(kept_)
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    lines = unpacked(picture)
    for grey in np.round(255 * images).astype(np.uint8).reshape(-1):
        assert (lines == grey).all(2).any()


def unpacked(picture: bytes) -> Any:
    """Pixels of a PNG file whose lines have no filter."""
    width, height = (int.from_bytes(picture[i : i + 4]) for i in (16, 20))
    at = picture.index(b"IDAT")
    data = zlib.decompress(picture[at + 4 : at + 4 + int.from_bytes(picture[at - 4 : at])])
    return np.frombuffer(data, np.uint8).reshape(height, -1)[:, 1:].reshape(height, width, 3)


def test_the_committed_boards_are_those_of_the_results() -> None:
    drawn = pictures(list(committed_results("hoeltgen2021").values()))
    assert len(drawn) == 3
    for name, draw in drawn.items():
        kept = (RESULTS / "hoeltgen2021" / name).read_bytes()
        assert np.array_equal(unpacked(draw()), unpacked(kept))
        assert len(kept) < 300_000
