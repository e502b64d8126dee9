"""Drawings: words cut to their room, images exact to the pixel."""

from pathlib import Path

import numpy as np

from holdfast.render.svg import Drawing, Svg, cut, width_of
from support.pages import Picture, pixels_of

INK = (31, 41, 51)


def test_a_drawing_has_its_parts_where_they_were_put(tmp_path: Path) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (5, 3), dtype=np.uint8)
    drawing = Drawing()
    drawing.rectangle(2, 3, 10, 4, (255, 0, 9))
    drawing.image(grey, 20, 30, 4, "noise")
    drawing.text("4 → 9 & more", 50, 20, capital=10, colour=INK, room=400, bold=True, centred=True)
    svg = drawing.svg(120, 80, "A <test>")
    assert isinstance(svg, Svg)
    assert "<title>A &lt;test&gt;</title>" in svg
    shown = Picture(svg)
    assert (shown.width, shown.height, shown.words) == (120, 80, ["4 → 9 & more"])
    (image,) = shown.images
    assert (image.x, image.y, image.width, image.height) == (20, 30, 12, 20)
    assert np.array_equal(image.pixels[..., 0], grey)
    svg.save(tmp_path / "a.png")
    canvas = pixels_of((tmp_path / "a.png").read_bytes())
    assert canvas[3:7, 2:12].reshape(-1, 3).tolist() == [[255, 0, 9]] * 40
    assert np.array_equal(canvas[30:50, 20:32, 0], grey.repeat(4, 0).repeat(4, 1))
    assert (canvas[8:22] == INK).all(2).any()


def test_what_has_no_room_is_cut_and_kept_as_a_title() -> None:
    assert cut("abc", 20, 500) == "abc"
    short = cut("a long text", 20, 60)
    assert short.endswith("…")
    assert width_of(short, 20) <= 60
    assert cut("Ä \u2013 b\n c\0", 20, 500) == "Ä \u2013 b c"
    assert width_of("日本", 20) > width_of("ab", 20)
    drawing = Drawing()
    drawing.text("a long text", 0, 0, capital=20, colour=INK, room=60)
    assert "<title>a long text</title>" in drawing.parts[0]
