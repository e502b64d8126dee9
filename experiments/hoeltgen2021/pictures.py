"""Pictures of Höltgen et al. 2021, drawn from the results alone: boards of images with words around them."""

import base64
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.experiment import Pictures, Results
from holdfast.render.lettering import BOLD, cut, draw, width_of
from holdfast.render.png import Png, encoded, enlarged, to_bytes

SIDE = 112  # about how wide an image is
MARGIN, GAP, BELOW = 24, 12, 30
TITLE, SMALL = 14, 11  # heights of capitals
BESIDE = 150  # room for the names of the rows
INK, QUIET, LOST = (31, 41, 51), (82, 96, 109), (197, 27, 38)
FAILED = "failed"


def stored(rows: Sequence[str], columns: Sequence[str], images: NDArray[Any], told: list[list[str]]) -> dict[str, Any]:
    """A board for a file of results: images (rows, columns, h, w) as text, and what is said below each."""
    pixels = base64.b64encode(to_bytes(images).tobytes()).decode()
    return {"rows": [*rows], "columns": [*columns], "size": list(images.shape[2:]), "pixels": pixels, "told": told}


def board(kept: dict[str, Any]) -> Png:
    """The picture of what was `stored`."""
    rows, columns, (high, wide) = kept["rows"], kept["columns"], kept["size"]
    images = np.frombuffer(base64.b64decode(kept["pixels"]), np.uint8).reshape(len(rows), len(columns), high, wide)
    zoom = max(1, round(SIDE / max(high, wide)))
    high, wide = high * zoom, wide * zoom
    top, left = MARGIN + 2 * TITLE, MARGIN + BESIDE
    shape = top + len(rows) * (high + BELOW) + MARGIN, left + len(columns) * (wide + GAP) - GAP + MARGIN
    canvas = np.full((*shape, 3), 255, dtype=np.uint8)
    for c, name in enumerate(columns):
        word = cut(name, TITLE, wide)
        x = left + c * (wide + GAP) + (wide - width_of(word, TITLE)) // 2
        draw(canvas, word, x, MARGIN + TITLE, size=TITLE, ink=INK, thickness=BOLD)
    for r, name in enumerate(rows):
        y = top + r * (high + BELOW)
        draw(canvas, cut(name, TITLE, BESIDE - GAP), MARGIN, y + (high + TITLE) // 2, size=TITLE, ink=INK)
        for c in range(len(columns)):
            x = left + c * (wide + GAP)
            canvas[y : y + high, x : x + wide] = enlarged(images[r, c], zoom)[:, :, None]
            word = cut(kept["told"][r][c], SMALL, wide)
            at = x + (wide - width_of(word, SMALL)) // 2
            draw(canvas, word, at, y + high + SMALL + 6, size=SMALL, ink=LOST if word == FAILED else QUIET)
    return encoded(canvas)


def pictures(results: Results) -> Pictures:
    """The pairs of Table 3 by all methods, on one network and on those of the paper; one image to all classes."""
    return {f"{r['dataset']}-{name}.png": partial(board, kept) for r in results for name, kept in r["pictured"].items()}
