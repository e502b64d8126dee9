"""PNG files hold every pixel."""

import zlib

import numpy as np

from holdfast.render.png import encoded, png
from support.pages import pixels_of


def test_a_png_holds_every_pixel_in_grey_and_in_colour() -> None:
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (3, 5), dtype=np.uint8)
    coloured = rng.integers(0, 256, (4, 3, 3), dtype=np.uint8)
    assert np.array_equal(pixels_of(encoded(grey)), np.repeat(grey[..., None], 3, 2))
    assert np.array_equal(pixels_of(encoded(coloured)), coloured)
    large = pixels_of(png(coloured / 255, zoom=3))
    assert np.array_equal(large[1::3, 1::3], coloured)
    assert np.array_equal(large[::3, 2::3], coloured)
    assert encoded(grey)._repr_png_() == bytes(encoded(grey))


def test_a_png_holds_the_pixels() -> None:
    file = png(np.array([[0.0, 0.5], [1.0, 2.0]]), zoom=2)
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    assert file[16:24] == (4).to_bytes(4) + (4).to_bytes(4)
    start = file.index(b"IDAT") + 4
    size = int.from_bytes(file[start - 8 : start - 4])
    lines = np.frombuffer(zlib.decompress(file[start : start + size]), np.uint8).reshape(4, 5)
    assert (lines[:, 0] == 0).all()  # no filter
    assert lines[::2, 1::2].tolist() == [[0, 128], [255, 255]]
    assert (lines[1::2] == lines[::2]).all()
    assert file.endswith(b"IEND" + zlib.crc32(b"IEND").to_bytes(4))
