"""Pictures of counterfactual images: the image, what became of it, and the difference, exact to the pixel."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from holdfast.errors import SettingError
from holdfast.render.lettering import BOLD, Colour, cut, draw, width_of
from holdfast.render.png import Bytes, Png, encoded, enlarged, to_bytes
from holdfast.target import Status

if TYPE_CHECKING:
    from holdfast.images.result import ImageCounterfactuals

Order = Literal["spread", "asked", "fewest", "most"]
By = Literal["pair", "image"]
Ints = NDArray[np.int64]

RED, BLUE = (197, 27, 38), (0, 92, 172)
PALEST = 0.25  # of these colours, for the least change: a pixel that changes at all can be seen
INK, QUIET, EDGE = (31, 41, 51), (82, 96, 109), (203, 210, 217)
SIDE = 168  # about how wide an image is; pictures are made for screens with two pixels a point
MARGIN, GAP, BETWEEN, BELOW = 44, 14, 56, 52
TITLE, SMALL = 20, 15  # heights of capitals
PAGE, LEGEND = 2000, 440  # about how wide a picture may be, and must be


def colours(image: Tensor) -> Bytes:
    """(c, h, w) -> (h, w, 3): one channel is grey, three are red, green and blue, of others the mean is shown."""
    pixels = to_bytes(image.double().numpy())
    if len(pixels) != 3:
        pixels = pixels[:1] if len(pixels) == 1 else to_bytes(image.double().mean(0, keepdim=True).numpy())
        pixels = pixels.repeat(3, 0)
    return np.ascontiguousarray(pixels.transpose(1, 2, 0))


def difference(before: Tensor, after: Tensor) -> Bytes:
    """(c, h, w) twice -> (h, w, 3): red where a pixel is brighter than before, blue where it is darker, else white.

    Of several channels, the one that changes most.
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
    if most < 1:
        raise SettingError(f"most must be at least 1, got {most}")
    at = np.flatnonzero(cfs.found)
    at = at if len(at) else np.arange(len(cfs))
    if order == "spread" and len(at) > most:
        return at[np.linspace(0, len(at) - 1, most).round().astype(np.int64)]
    if order in ("fewest", "most"):
        pixels = moved(cfs)[at]
        at = at[np.argsort(pixels if order == "fewest" else -pixels, kind="stable")]
    return at[:most]


def grid(
    cfs: "ImageCounterfactuals",
    *,
    most: int = 12,
    by: str = "pair",
    columns: int | None = None,
    order: str = "spread",
    pairs: Sequence[int] | None = None,
    zoom: int | None = None,
) -> Png:
    """The picture; see `ImageCounterfactuals.grid`."""
    if by not in get_args(By):
        raise SettingError(f"by must be one of {', '.join(get_args(By))}, got {by!r}")
    for name, value in (("columns", columns), ("zoom", zoom)):
        if value is not None and value < 1:
            raise SettingError(f"{name} must be at least 1, got {value}")
    if not len(cfs):
        raise SettingError("nothing to draw: there are no pairs")
    at = chosen(cfs, most if by == "pair" else len(cfs), order if by == "pair" else "asked")
    if pairs is not None:
        at = np.asarray(pairs, dtype=np.int64)
        if not len(at) or at.min() < 0 or at.max() >= len(cfs):
            raise SettingError(f"pairs must be numbers from 0 to {len(cfs) - 1}, at least one, got {list(pairs)}")
    height, width = cfs.x.shape[2:]
    zoom = zoom or max(1, round(SIDE / max(height, width)))
    if by == "image":
        images = list(dict.fromkeys(cfs.source[at].tolist()))[:most]
        return encoded(_by_image(cfs, at[np.isin(cfs.source[at], images)], images, zoom))
    return encoded(_by_pair(cfs, at, columns, zoom))


def title(label: object, target: object, room: int) -> str:
    """'4 → 9'; long names are cut, so that both can be told."""
    text = f"{label} → {target}"
    if width_of(text, TITLE) <= room:
        return text
    arrow = width_of("n → n", TITLE) - width_of("nn", TITLE)  # with the spaces around it
    half = (room - arrow) // 2
    return f"{cut(str(label), TITLE, half)} → {cut(str(target), TITLE, half)}"


def told(cfs: "ImageCounterfactuals", i: int) -> str:
    """'5 pixels, confidence 0.52'"""
    count = int(moved(cfs)[i])
    what = "not found" if cfs.status_codes[i] == Status.NOT_FOUND else f"{count} pixel{'s' * (count != 1)}"
    return f"{what}, confidence {cfs.confidence.iat[i]:.2f}"


def moved(cfs: "ImageCounterfactuals") -> Ints:
    """(n,) how many pixels differ, in attempts as well."""
    return (cfs.x_cf != cfs.x).any(1).flatten(1).sum(1).numpy()


def _by_pair(cfs: "ImageCounterfactuals", at: Ints, columns: int | None, zoom: int) -> Bytes:
    """Blocks of three images with their captions below."""
    high, wide = (n * zoom for n in cfs.x.shape[2:])
    block = 3 * wide + 2 * GAP
    columns = columns or max(1, (PAGE - 2 * MARGIN + BETWEEN) // (block + BETWEEN))
    columns = min(columns, len(at))
    lines = -(-len(at) // columns)
    head, foot = TITLE + 34, 4 * SMALL  # names of the columns; what the colours mean
    step = high + 16 + TITLE + 14 + SMALL + BELOW
    across = 2 * MARGIN + columns * (block + BETWEEN) - BETWEEN
    canvas = _blank(MARGIN + head + lines * step - BELOW + foot + MARGIN, across)
    for n, i in enumerate(at.tolist()):
        left = MARGIN + (n % columns) * (block + BETWEEN)
        top = MARGIN + head + (n // columns) * step
        for k, pixels in enumerate(_three(cfs, i)):
            x = left + k * (wide + GAP)
            if n < columns:
                name = cut(("original", "counterfactual", "difference")[k], SMALL, wide + GAP)
                draw(canvas, name, x, MARGIN + TITLE, size=SMALL, ink=QUIET)
            _place(canvas, enlarged(pixels, zoom), x, top)
        base = top + high + 16 + TITLE
        name = title(cfs.label[i], cfs.target[i], block)
        draw(canvas, name, left, base, size=TITLE, ink=INK, thickness=BOLD)
        ink = RED if cfs.status_codes[i] == Status.NOT_FOUND else QUIET
        draw(canvas, cut(told(cfs, i), SMALL, block), left, base + 14 + SMALL, size=SMALL, ink=ink)
    _legend(canvas, canvas.shape[0] - MARGIN)
    return canvas


def _by_image(cfs: "ImageCounterfactuals", at: Ints, images: list[int], zoom: int) -> Bytes:
    """A line per image: itself, then its counterfactuals by wanted class, and below them what changed."""
    high, wide = (n * zoom for n in cfs.x.shape[2:])
    goals, count = cfs.goal.label.numpy(), moved(cfs)
    wanted = sorted({int(goals[i]) for i in at})
    head, foot, step = TITLE + 34, 4 * SMALL, 2 * high + GAP + 12 + SMALL + 36
    first = wide + BETWEEN  # the image itself stands apart
    across = 2 * MARGIN + first + len(wanted) * (wide + GAP) - GAP
    canvas = _blank(MARGIN + head + len(images) * step - 36 + foot + MARGIN, across)
    draw(canvas, cut("original", SMALL, wide + GAP), MARGIN, MARGIN + TITLE, size=SMALL, ink=QUIET)
    for n, place in enumerate(wanted):
        name = cut(f"→ {cfs.classes[place]}", TITLE, wide)
        left = MARGIN + first + n * (wide + GAP) + (wide - width_of(name, TITLE)) // 2
        draw(canvas, name, left, MARGIN + TITLE, size=TITLE, ink=INK, thickness=BOLD)
    for line, image in enumerate(images):
        top = MARGIN + head + line * step
        own = at[cfs.source[at] == image]
        _place(canvas, enlarged(colours(cfs.x[int(own[0])]), zoom), MARGIN, top)
        name = cut(str(cfs.label[int(own[0])]), TITLE, wide)
        draw(canvas, name, MARGIN, top + high + 16 + TITLE, size=TITLE, ink=INK, thickness=BOLD)
        draw(
            canvas, cut(f"image {image}", SMALL, first), MARGIN, top + high + 30 + TITLE + SMALL, size=SMALL, ink=QUIET
        )
        for i in own.tolist():
            left = MARGIN + first + wanted.index(int(goals[i])) * (wide + GAP)
            _, after, changed = _three(cfs, i)
            _place(canvas, enlarged(after, zoom), left, top)
            _place(canvas, enlarged(changed, zoom), left, top + high + GAP)
            lost = cfs.status_codes[i] == Status.NOT_FOUND
            below = cut("not found" if lost else f"{count[i]} px", SMALL, wide)
            base = top + 2 * high + GAP + 12 + SMALL
            draw(canvas, below, left, base, size=SMALL, ink=RED if lost else QUIET)
    _legend(canvas, canvas.shape[0] - MARGIN)
    return canvas


def _three(cfs: "ImageCounterfactuals", i: int) -> tuple[Bytes, Bytes, Bytes]:
    return colours(cfs.x[i]), colours(cfs.x_cf[i]), difference(cfs.x[i], cfs.x_cf[i])


def _blank(height: int, width: int) -> Bytes:
    return np.full((height, max(width, LEGEND), 3), 255, dtype=np.uint8)


def _place(canvas: Bytes, pixels: Bytes, left: int, top: int) -> None:
    """An image with a thin frame around it: differences are white on white."""
    high, wide = pixels.shape[:2]
    canvas[top - 2 : top + high + 2, left - 2 : left + wide + 2] = EDGE
    canvas[top : top + high, left : left + wide] = pixels


def _legend(canvas: Bytes, base: int) -> None:
    left = MARGIN
    for colour, word in ((RED, "brighter than before"), (BLUE, "darker")):
        left = _key(canvas, left, base, colour, word)


def _key(canvas: Bytes, left: int, base: int, colour: Colour, word: str) -> int:
    """A square of a colour and what it means; returns where the next one starts."""
    canvas[base - SMALL : base, left : left + SMALL] = colour
    draw(canvas, word, left + SMALL + 10, base - 1, size=SMALL, ink=QUIET)
    return left + SMALL + 10 + width_of(word, SMALL) + 28
