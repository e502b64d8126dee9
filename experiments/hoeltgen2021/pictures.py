"""Pictures of Höltgen et al. 2021, drawn from the results alone: boards of images with words around
them."""

import base64
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.experiment import Pictures, Results
from holdfast.render.png import to_bytes
from holdfast.render.svg import Drawing, Svg

SIDE = 112  # about how wide an image is
MARGIN = 24
GAP = 12
BELOW = 30
# heights of capitals
TITLE = 13
SMALL = 10
BESIDE = 190  # room for the names of the rows
INK = 31, 41, 51
QUIET = 82, 96, 109
LOST = 197, 27, 38
FAILED = "failed"


def stored(
    rows: Sequence[str], columns: Sequence[str], images: NDArray[Any], captions: list[list[str]]
) -> dict[str, Any]:
    """A board for a file of results: images (rows, columns, h, w) as text, and the caption below
    each."""
    pixels = base64.b64encode(to_bytes(images).tobytes()).decode()
    return {
        "rows": [*rows],
        "columns": [*columns],
        "size": list(images.shape[2:]),
        "pixels": pixels,
        "told": captions,
    }


def board(kept: dict[str, Any]) -> Svg:
    """The picture of what was `stored`."""
    rows = kept["rows"]
    columns = kept["columns"]
    high, wide = kept["size"]
    images = np.frombuffer(base64.b64decode(kept["pixels"]), np.uint8).reshape(
        len(rows), len(columns), high, wide
    )
    zoom = max(1, round(SIDE / max(high, wide)))
    high = high * zoom
    wide = wide * zoom
    top = MARGIN + 2 * TITLE
    left = MARGIN + BESIDE
    drawing = Drawing()
    for c, name in enumerate(columns):
        middle = left + c * (wide + GAP) + wide / 2
        drawing.text(
            name,
            middle,
            MARGIN + TITLE,
            capital=TITLE,
            colour=INK,
            room=wide + GAP,
            bold=True,
            centred=True,
        )
    for r, name in enumerate(rows):
        y = top + r * (high + BELOW)
        drawing.text(
            name, MARGIN, y + (high + TITLE) // 2, capital=TITLE, colour=INK, room=BESIDE - GAP
        )
        for c in range(len(columns)):
            x = left + c * (wide + GAP)
            words = kept["told"][r][c]
            drawing.image(images[r, c], x, y, zoom, f"{name}, {columns[c]}")
            colour = LOST if words == FAILED else QUIET
            base = y + high + SMALL + 6
            drawing.text(
                words, x + wide / 2, base, capital=SMALL, colour=colour, room=wide, centred=True
            )
    width = left + len(columns) * (wide + GAP) - GAP + MARGIN
    height = top + len(rows) * (high + BELOW) + MARGIN
    return drawing.svg(width, height, "Counterfactual images by method")


def drawn(kept: dict[str, Any]) -> bytes:
    """The same as the bytes of a file."""
    return board(kept).encode()


def pictures(results: Results) -> Pictures:
    """The pairs of Table 3 by all methods, on one network and on those of the paper; one image to
    all classes.

    Paper: hoeltgen2021 Figure 3.
    """
    return {
        f"{r['dataset']}-{name}.svg": partial(drawn, kept)
        for r in results
        for name, kept in r["pictured"].items()
    }
