"""Words in pictures of pixels, without a font: letters are lines and arcs, drawn with smooth edges at any size.

A letter is a text of strokes with ';' between them, in units of a seventh of the height of a capital: corners
`x,y x,y ..`, or an arc `@ x y rx ry from to` about (x, y) in degrees. The baseline is y = 0, small letters are 5 high.
"""

import unicodedata
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
CAPITAL, BELOW = 7.0, 2.6  # heights above and below the baseline
GAP = 1.75  # between two letters
REGULAR, BOLD = 0.9, 1.25  # thickness of a stroke
ARC = 24  # straight pieces of an arc

UPPER = {
    "A": "0,0 2.7,7 5.4,0; 0.95,2.4 4.45,2.4",
    "B": "0,3.6 0,7 2.5,7; @ 2.5 5.3 1.8 1.7 90 -90; 0,3.6 2.6,3.6; @ 2.6 1.8 2.1 1.8 90 -90; 2.6,0 0,0 0,3.6",
    "C": "@ 3.1 3.5 3.1 3.5 45 315",
    "D": "2,0 0,0 0,7 2,7; @ 2 3.5 3.3 3.5 90 -90",
    "E": "4,7 0,7 0,0 4,0; 0,3.6 3.6,3.6",
    "F": "4,7 0,7 0,0; 0,3.5 3.5,3.5",
    "G": "@ 3.1 3.5 3.1 3.5 45 357; 6.2,3.3 3.7,3.3",
    "H": "0,0 0,7; 5,0 5,7; 0,3.6 5,3.6",
    "I": "0,0 0,7",
    "J": "3.2,7 3.2,1.9; @ 1.6 1.8 1.6 1.8 0 -170",
    "K": "0,0 0,7; 4.5,7 0,2.6; 1.7,4.2 4.8,0",
    "L": "0,7 0,0 3.7,0",
    "M": "0,0 0,7 3,1.4 6,7 6,0",
    "N": "0,0 0,7 5,0 5,7",
    "O": "@ 3.2 3.5 3.2 3.5 0 360",
    "P": "0,0 0,7 2.5,7; @ 2.5 5.1 2 1.9 90 -90; 2.5,3.2 0,3.2",
    "Q": "@ 3.2 3.5 3.2 3.5 0 360; 3.9,1.9 6.2,-0.4",
    "R": "0,0 0,7 2.5,7; @ 2.5 5.1 2 1.9 90 -90; 2.5,3.2 0,3.2; 2.3,3.2 4.7,0",
    "S": "@ 2.4 5.25 2.1 1.75 30 270; @ 2.4 1.75 2.3 1.75 90 -150",
    "T": "0,7 5,7; 2.5,7 2.5,0",
    "U": "0,7 0,2.4; @ 2.5 2.4 2.5 2.4 180 360; 5,2.4 5,7",
    "V": "0,7 2.6,0 5.2,7",
    "W": "0,7 1.9,0 3.8,7 5.7,0 7.6,7",
    "X": "0,7 5,0; 0,0 5,7",
    "Y": "0,7 2.5,3.3 5,7; 2.5,3.3 2.5,0",
    "Z": "0.1,7 4.6,7 0,0 4.8,0",
}
LOWER = {
    "a": "@ 2.1 2.5 2.1 2.5 0 360; 4.2,5 4.2,0",
    "b": "0,0 0,7; @ 2.1 2.5 2.1 2.5 0 360",
    "c": "@ 2.2 2.5 2.2 2.5 45 315",
    "d": "@ 2.1 2.5 2.1 2.5 0 360; 4.2,7 4.2,0",
    "e": "0,2.6 4.4,2.6; @ 2.2 2.5 2.2 2.5 0 318",
    "f": "1.2,0 1.2,5.7; @ 2.5 5.7 1.3 1.4 180 80; 0,4.8 2.6,4.8",
    "g": "@ 2.1 2.5 2.1 2.5 0 360; 4.2,5 4.2,-0.1; @ 2.1 -0.1 2.1 2 0 -145",
    "h": "0,0 0,7; @ 2 2.9 2 2.1 180 0; 4,2.9 4,0",
    "i": "0,0 0,5; 0,7 0,7",
    "j": "1.1,5 1.1,-0.8; @ 0 -0.9 1.1 1.2 0 -90; 1.1,7 1.1,7",
    "k": "0,0 0,7; 3.5,5 0,1.7; 1.3,2.9 3.8,0",
    "l": "0,0 0,7",
    "m": "0,0 0,5; @ 1.6 3.3 1.6 1.7 180 0; 3.2,3.3 3.2,0; @ 4.8 3.3 1.6 1.7 180 0; 6.4,3.3 6.4,0",
    "n": "0,0 0,5; @ 2 2.9 2 2.1 180 0; 4,2.9 4,0",
    "o": "@ 2.2 2.5 2.2 2.5 0 360",
    "p": "0,-2 0,5; @ 2.1 2.5 2.1 2.5 0 360",
    "q": "4.2,-2 4.2,5; @ 2.1 2.5 2.1 2.5 0 360",
    "r": "0,0 0,5; @ 1.9 2.9 1.9 2.1 180 75",
    "s": "@ 1.8 3.75 1.6 1.25 30 270; @ 1.8 1.25 1.75 1.25 90 -150",
    "t": "1.2,6.6 1.2,1.3; @ 2.5 1.3 1.3 1.3 180 280; 0,4.8 2.6,4.8",
    "u": "0,5 0,2.1; @ 2 2.1 2 2.1 180 360; 4,5 4,0",
    "v": "0,5 2,0 4,5",
    "w": "0,5 1.6,0 3.2,5 4.8,0 6.4,5",
    "x": "0,5 3.8,0; 0,0 3.8,5",
    "y": "0,5 2,0; 4,5 1.2,-2",
    "z": "0.1,5 3.6,5 0,0 3.8,0",
}
DIGITS = {
    "0": "@ 2.2 3.5 2.2 3.5 0 360",
    "1": "0.7,5.4 2.6,7 2.6,0",
    "2": "@ 2.2 4.9 2.1 2.1 165 -38; 3.85,3.6 0.1,0 4.4,0",
    "3": "@ 2.1 5.35 1.9 1.65 150 -90; @ 2.1 1.85 2.2 1.85 90 -150",
    "4": "3.4,0 3.4,7 0,2.1 4.6,2.1",
    "5": "3.9,7 0.9,7 0.6,3.9; @ 2.1 2.25 2.2 2.25 132 -150",
    "6": "@ 2.2 2.2 2.2 2.2 0 360; @ 3.6 2.4 3.6 4.6 180 92",
    "7": "0,7 4.4,7 1.4,0",
    "8": "@ 2.2 5.3 1.8 1.7 0 360; @ 2.2 1.8 2.2 1.8 0 360",
    "9": "@ 2.2 4.8 2.2 2.2 0 360; @ 0.8 4.6 3.6 4.6 0 -88",
}
SIGNS = {
    ".": "0,0.15 0,0.15",
    ",": "0.5,0.2 0,-1.1",
    ":": "0,0.4 0,0.4; 0,4 0,4",
    ";": "0.5,0.3 0,-1.1; 0.5,4 0.5,4",
    "!": "0,7 0,2.4; 0,0.2 0,0.2",
    "?": "@ 1.9 5.2 1.9 1.8 160 -55; 2.95,3.7 1.9,2.2; 1.9,0.2 1.9,0.2",
    "'": "0,7 0,5.2",
    '"': "0,7 0,5.2; 1.6,7 1.6,5.2",
    "-": "0,2.7 2.6,2.7",
    "_": "0,-0.8 4,-0.8",
    "+": "0,3 4.4,3; 2.2,0.8 2.2,5.2",
    "=": "0,4 4.4,4; 0,2 4.4,2",
    "<": "4,5.4 0,3 4,0.6",
    ">": "0,5.4 4,3 0,0.6",
    "/": "0,-0.8 3,7.6",
    "(": "@ 3.2 3.1 2.7 5.4 120 240",
    ")": "@ 0 3.1 2.7 5.4 60 -60",
    "[": "1.5,7.8 0,7.8 0,-1.4 1.5,-1.4",
    "]": "0,7.8 1.5,7.8 1.5,-1.4 0,-1.4",
    "*": "1.5,7 1.5,4; 0.2,6.2 2.8,4.8; 2.8,6.2 0.2,4.8",
    "#": "1.4,0 2.2,7; 3.6,0 4.4,7; 0.4,4.8 5.4,4.8; 0.2,2.2 5.2,2.2",
    "%": "@ 1.4 5.5 1.4 1.5 0 360; @ 5.8 1.5 1.4 1.5 0 360; 1.7,0 5.5,7",
    "&": "@ 2.3 5.5 1.5 1.5 -30 220; 1.2,4.6 5.4,0; @ 2.2 1.9 2.2 1.9 120 320; 3.8,0.7 5.2,3.2; 1.1,3.55 3.5,4.8",
    "·": "0,2.7 0,2.7",
    "→": "0,3 6.6,3; 4.4,5.2 6.6,3 4.4,0.8",
    "…": "0,0.15 0,0.15; 2,0.15 2,0.15; 4,0.15 4,0.15",
}  # fmt: skip
LETTERS = UPPER | LOWER | DIGITS | SIGNS
UNKNOWN = "0,0 0,7 4,7 4,0 0,0"  # a box, as elsewhere
SPACE = 1.3  # and a gap on both sides


def written(text: str) -> str:
    """The text in letters that are known: accents are left out, dashes are hyphens."""
    plain = unicodedata.normalize("NFD", " ".join(text.split()))
    return "".join("-" if unicodedata.category(c) == "Pd" else c for c in plain if not unicodedata.combining(c))


@cache
def strokes(letter: str) -> tuple[NDArray[np.float64], float]:
    """Straight pieces (k, 2, 2) of a letter, and how wide it is."""
    pieces = list[NDArray[np.float64]]()
    for part in LETTERS.get(letter, UNKNOWN).split(";"):
        if part.strip().startswith("@"):
            x, y, rx, ry, start, end = map(float, part.replace("@", "").split())
            turn = np.radians(np.linspace(start, end, ARC + 1))
            line = np.stack([x + rx * np.cos(turn), y + ry * np.sin(turn)], 1)
        else:
            line = np.array([[float(v) for v in corner.split(",")] for corner in part.split()])
        pieces.append(np.stack([line[:-1], line[1:]], 1))
    all_of_them = np.concatenate(pieces)
    width = 4.4 if letter in DIGITS else float(all_of_them[..., 0].max())  # numbers stand below each other
    return all_of_them, max(0.0, width)


def width_of(text: str, size: float) -> int:
    """How many pixels wide the text is, when capitals are `size` high."""
    return round(sum(_advance(c) for c in written(text)) * size / CAPITAL)


def _advance(letter: str) -> float:
    return SPACE + GAP if letter == " " else strokes(letter)[1] + GAP


def cut(text: str, size: float, room: int) -> str:
    """The text, or as much of it as there is room for."""
    if width_of(text, size) <= room:
        return text
    while text and width_of(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…"


def draw(
    canvas: NDArray[np.uint8],
    text: str,
    left: float,
    baseline: float,
    *,
    size: float,
    ink: Colour,
    thickness: float = REGULAR,
) -> None:
    """Write on a canvas (height, width, 3), in place; what is beyond its edges is lost.

    A pixel is covered by max over the strokes of clip(r + 1/2 - distance to the stroke, 0, 1), r: half the thickness.
    """
    unit, at = size / CAPITAL, float(left)
    for letter in written(text):
        if letter != " ":
            _letter(canvas, letter, at, baseline, unit, ink, thickness)
        at += _advance(letter) * unit


def _letter(
    canvas: NDArray[np.uint8], letter: str, left: float, base: float, unit: float, ink: Colour, thick: float
) -> None:
    x, y = int(np.floor(left)), round(base)
    dx, dy, cover = _cover(letter, unit, thick, round(4 * (left - x)) / 4)
    x0, y0 = x + dx, y + dy
    x1, y1 = x0 + cover.shape[1], y0 + cover.shape[0]
    cover = cover[max(0, -y0) : max(0, canvas.shape[0] - y0), max(0, -x0) : max(0, canvas.shape[1] - x0), None]
    part = canvas[max(0, y0) : max(0, y1), max(0, x0) : max(0, x1)]
    part[:] = (part * (1 - cover) + np.array(ink) * cover).round().astype(np.uint8)


@lru_cache(2048)
def _cover(letter: str, unit: float, thick: float, shift: float) -> tuple[int, int, NDArray[np.float64]]:
    """How much of each pixel a letter covers (h, w), and where the first of them is, seen from its place."""
    r = thick * unit / 2
    ends = strokes(letter)[0] * np.array([unit, -unit]) + np.array([shift, 0.0])  # (k, 2, 2) in pixels
    low, high = np.floor(ends.min((0, 1)) - r - 1), np.ceil(ends.max((0, 1)) + r + 1)
    across, down = (np.arange(a, b, dtype=np.float64) + 0.5 for a, b in zip(low.tolist(), high.tolist(), strict=True))
    places = np.stack(np.meshgrid(across, down), 2)[:, :, None]  # (h, w, 1, 2)
    start, way = ends[:, 0], ends[:, 1] - ends[:, 0]
    length = np.maximum((way * way).sum(1), 1e-12)
    t = np.clip(((places - start) * way).sum(3) / length, 0, 1)  # (h, w, k) the nearest point of each piece
    distance = np.sqrt(((places - start - t[..., None] * way) ** 2).sum(3)).min(2)
    return int(low[0]), int(low[1]), np.clip(r + 0.5 - distance, 0, 1)
