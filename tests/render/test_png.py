"""PNG files hold every pixel."""

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
