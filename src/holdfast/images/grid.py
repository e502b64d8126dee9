"""Pictures of counterfactual images: the image, its counterfactual and the difference, exact to the
pixel."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from torch import Tensor

from holdfast._core.types import Ints
from holdfast.errors import SettingError
from holdfast.render.png import Bytes, to_bytes
from holdfast.render.svg import Drawing, Svg, cut, width_of
from holdfast.target import Status

if TYPE_CHECKING:
    from holdfast.images.result import ImageCounterfactuals

Order = Literal["spread", "asked", "fewest", "most"]
By = Literal["pair", "image"]

RED = 197, 27, 38
BLUE = 0, 92, 172
PALEST = 0.25  # share of these colours for the least change: every pixel that changes can be seen
INK = 31, 41, 51
QUIET = 82, 96, 109
EDGE = 203, 210, 217
SIDE = 168  # about how wide an image is; pictures are for screens with two pixels to the point
MARGIN = 44
GAP = 14
BETWEEN = 56
BELOW = 52
# heights of capitals
TITLE = 18
SMALL = 14
# about how wide a picture may be, and must be
PAGE = 2000
LEGEND = 440
# names of the columns; what the colours mean
HEAD = TITLE + 34
FOOT = 4 * SMALL


def colours(image: Tensor) -> Bytes:
    """(c, h, w) -> (h, w, 3): one channel is grey, three are red, green and blue; any other number
    is shown as its mean."""
    pixels = to_bytes(image.double().numpy())
    if len(pixels) != 3:
        pixels = (
            pixels[:1]
            if len(pixels) == 1
            else to_bytes(image.double().mean(0, keepdim=True).numpy())
        )
        pixels = pixels.repeat(3, 0)
    return np.ascontiguousarray(pixels.transpose(1, 2, 0))


def difference(before: Tensor, after: Tensor) -> Bytes:
    """(c, h, w) twice -> (h, w, 3): red where a pixel is brighter than before, blue where it is
    darker, else white.

    If there are several channels, the one that changes most.
    """
    delta = (after.double() - before.double()).numpy()
    most = np.abs(delta).argmax(0)
    d = np.take_along_axis(delta, most[None], 0)[0]
    strength = np.where(d == 0, 0.0, PALEST + (1 - PALEST) * np.minimum(np.abs(d), 1))[..., None]
    full = np.where(d[..., None] > 0, np.array(RED), np.array(BLUE))
    return (255 * (1 - strength) + full * strength).round().astype(np.uint8)


def chosen(cfs: "ImageCounterfactuals", most: int, order: str) -> Ints:
    """Numbers of the pairs to show: those with an answer; if there are none, the attempts."""
    if order not in get_args(Order):
        raise SettingError(f"order must be one of {', '.join(get_args(Order))}, got {order!r}")
    if not most >= 1:
        raise SettingError(f"most must be at least 1, got {most}")
    pairs = np.flatnonzero(cfs.found)
    pairs = pairs if len(pairs) else np.arange(len(cfs))
    if order == "spread" and len(pairs) > most:
        return pairs[np.linspace(0, len(pairs) - 1, most).round().astype(np.int64)]
    if order in ("fewest", "most"):
        pixels = changed_pixels(cfs)[pairs]
        pairs = pairs[np.argsort(pixels if order == "fewest" else -pixels, kind="stable")]
    return pairs[:most]


def grid(
    cfs: "ImageCounterfactuals",
    *,
    most: int = 12,
    by: str = "pair",
    columns: int | None = None,
    order: str = "spread",
    pairs: Sequence[int] | None = None,
    zoom: int | None = None,
) -> Svg:
    """The picture; see `ImageCounterfactuals.grid`."""
    if by not in get_args(By):
        raise SettingError(f"by must be one of {', '.join(get_args(By))}, got {by!r}")
    for name, value in (("columns", columns), ("zoom", zoom)):
        if not (value is None or value >= 1):
            raise SettingError(f"{name} must be at least 1, got {value}")
    if not len(cfs):
        raise SettingError("nothing to draw: there are no pairs")
    shown = chosen(cfs, most if by == "pair" else len(cfs), order if by == "pair" else "asked")
    if pairs is not None:
        shown = np.asarray(pairs, dtype=np.int64)
        if not len(shown) or shown.min() < 0 or shown.max() >= len(cfs):
            raise SettingError(
                f"pairs must be numbers from 0 to {len(cfs) - 1}, at least one, got {list(pairs)}"
            )
    height, width = cfs.x.shape[2:]
    zoom = zoom or max(1, round(SIDE / max(height, width)))
    if by == "image":
        images = list(dict.fromkeys(cfs.source[shown].tolist()))[:most]
        return _by_image(cfs, shown[np.isin(cfs.source[shown], images)], images, zoom)
    return _by_pair(cfs, shown, columns, zoom)


def title(label: object, target: object, room: int) -> str:
    """'4 → 9'; long names are cut so that both can be read."""
    text = f"{label} → {target}"
    if width_of(text, TITLE) <= room:
        return text
    half = (room - width_of(" → ", TITLE)) // 2
    return f"{cut(str(label), TITLE, half)} → {cut(str(target), TITLE, half)}"


def caption(cfs: "ImageCounterfactuals", i: int) -> str:
    """'5 pixels, probability 0.52'"""
    count = int(changed_pixels(cfs)[i])
    what = (
        "not found"
        if cfs.status_codes[i] == Status.NOT_FOUND
        else f"{count} pixel{'s' * (count != 1)}"
    )
    return f"{what}, probability {cfs.probability.iat[i]:.2f}"


def changed_pixels(cfs: "ImageCounterfactuals") -> Ints:
    """(n,) how many pixels differ, in attempts as well."""
    return (cfs.x_cf != cfs.x).any(1).flatten(1).sum(1).numpy()


def _shown_size(images: Tensor, zoom: int) -> tuple[int, int]:
    """Height and width of an image in the picture."""
    height, width = images.shape[2:]
    return height * zoom, width * zoom


def _by_pair(cfs: "ImageCounterfactuals", shown: Ints, columns: int | None, zoom: int) -> Svg:
    """Blocks of three images with their captions below."""
    high, wide = _shown_size(cfs.x, zoom)
    block = 3 * wide + 2 * GAP
    columns = min(columns or max(1, (PAGE - 2 * MARGIN + BETWEEN) // (block + BETWEEN)), len(shown))
    step = high + 16 + TITLE + 14 + SMALL + BELOW
    drawing = Drawing()
    for n, i in enumerate(shown.tolist()):
        left = MARGIN + (n % columns) * (block + BETWEEN)
        top = MARGIN + HEAD + (n // columns) * step
        for k, (name, pixels) in enumerate(_three(cfs, i).items()):
            x = left + k * (wide + GAP)
            if n < columns:
                drawing.text(name, x, MARGIN + TITLE, capital=SMALL, colour=QUIET, room=wide + GAP)
            _framed(drawing, pixels, x, top, zoom, name)
        base = top + high + 16 + TITLE
        names = title(cfs.label[i], cfs.target[i], block)
        drawing.text(names, left, base, capital=TITLE, colour=INK, room=block, bold=True)
        colour = RED if cfs.status_codes[i] == Status.NOT_FOUND else QUIET
        drawing.text(
            caption(cfs, i), left, base + 14 + SMALL, capital=SMALL, colour=colour, room=block
        )
    lines = -(-len(shown) // columns)
    width = columns * (block + BETWEEN) - BETWEEN
    height = lines * step - BELOW
    return _finished(drawing, width, height, "images, their counterfactuals and what changed")


def _by_image(cfs: "ImageCounterfactuals", shown: Ints, images: list[int], zoom: int) -> Svg:
    """A line per image: the image, then its counterfactuals by wanted class, and below them what
    changed."""
    high, wide = _shown_size(cfs.x, zoom)
    targets = cfs.goal.label.numpy()
    wanted = sorted({int(targets[i]) for i in shown})
    # the image itself stands apart
    step = 2 * high + GAP + 12 + SMALL + 36
    first = wide + BETWEEN
    drawing = Drawing()
    drawing.text("original", MARGIN, MARGIN + TITLE, capital=SMALL, colour=QUIET, room=wide + GAP)
    lanes = {place: MARGIN + first + n * (wide + GAP) for n, place in enumerate(wanted)}
    for place, left in lanes.items():
        _head(drawing, f"→ {cfs.classes[place]}", left, wide)
    for line, image in enumerate(images):
        top = MARGIN + HEAD + line * step
        pairs_of_image = shown[cfs.source[shown] == image]
        _original(drawing, cfs, int(pairs_of_image[0]), image, top, zoom)
        for i in pairs_of_image.tolist():
            _answer(drawing, cfs, i, lanes[int(targets[i])], top, zoom)
    width = first + len(wanted) * (wide + GAP) - GAP
    height = len(images) * step - 36
    return _finished(
        drawing,
        width,
        height,
        "images and their counterfactuals by wanted class, with what changed",
    )


def _head(drawing: Drawing, name: str, left: int, wide: int) -> None:
    """The name of a class above its column."""
    drawing.text(
        name,
        left + wide / 2,
        MARGIN + TITLE,
        capital=TITLE,
        colour=INK,
        room=wide,
        bold=True,
        centred=True,
    )


def _original(
    drawing: Drawing, cfs: "ImageCounterfactuals", i: int, image: int, top: int, zoom: int
) -> None:
    """The image of pair i at the left of its line, with its class and its number."""
    high, wide = _shown_size(cfs.x, zoom)
    label = str(cfs.label[i])
    _framed(drawing, colours(cfs.x[i]), MARGIN, top, zoom, label)
    below = top + high + 16 + TITLE
    drawing.text(label, MARGIN, below, capital=TITLE, colour=INK, room=wide, bold=True)
    drawing.text(
        f"image {image}",
        MARGIN,
        below + 14 + SMALL,
        capital=SMALL,
        colour=QUIET,
        room=wide + BETWEEN,
    )


def _answer(
    drawing: Drawing, cfs: "ImageCounterfactuals", i: int, left: int, top: int, zoom: int
) -> None:
    """The answer of pair i, what changed below it, and how many pixels these are."""
    high, wide = _shown_size(cfs.x, zoom)
    _, after, changed = _three(cfs, i).items()
    _framed(drawing, after[1], left, top, zoom, after[0])
    _framed(drawing, changed[1], left, top + high + GAP, zoom, changed[0])
    if cfs.status_codes[i] == Status.NOT_FOUND:
        words = "not found"
        colour = RED
    else:
        words = f"{changed_pixels(cfs[[i]])[0]} px"
        colour = QUIET
    base = top + 2 * high + GAP + 12 + SMALL
    drawing.text(words, left, base, capital=SMALL, colour=colour, room=wide)


def _three(cfs: "ImageCounterfactuals", i: int) -> dict[str, Bytes]:
    """What a pair shows, by name."""
    both = {"original": colours(cfs.x[i]), "counterfactual": colours(cfs.x_cf[i])}
    return both | {"difference": difference(cfs.x[i], cfs.x_cf[i])}


def _framed(drawing: Drawing, pixels: Bytes, x: int, y: int, zoom: int, words: str) -> None:
    """An image with a thin frame around it: differences are white on white."""
    high = zoom * pixels.shape[0]
    wide = zoom * pixels.shape[1]
    drawing.rectangle(x - 2, y - 2, wide + 4, high + 4, EDGE)
    drawing.image(pixels, x, y, zoom, words)


def _finished(drawing: Drawing, width: int, height: int, what: str) -> Svg:
    """What the colours mean below, and a margin around everything."""
    base = MARGIN + HEAD + height + FOOT
    left = MARGIN
    for colour, words in ((RED, "brighter than before"), (BLUE, "darker")):
        drawing.rectangle(left, base - SMALL, SMALL, SMALL, colour)
        room = width_of(words, SMALL)
        drawing.text(words, left + SMALL + 10, base, capital=SMALL, colour=QUIET, room=room)
        left += SMALL + 10 + room + 28
    return drawing.svg(max(2 * MARGIN + width, LEGEND), base + MARGIN, what[:1].upper() + what[1:])
