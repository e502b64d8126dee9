"""Pages and pictures as tests read them."""

import base64
import zlib
from dataclasses import dataclass
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray


def pixels_of(file: bytes) -> NDArray[np.uint8]:
    """What a PNG file of 8 bits shows, (h, w, 3)."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    place = 8
    parts = dict[bytes, bytes]()
    while place < len(file):
        size = int.from_bytes(file[place : place + 4])
        kind = file[place + 4 : place + 8]
        content = file[place + 8 : place + 8 + size]
        assert zlib.crc32(kind + content) == int.from_bytes(
            file[place + 8 + size : place + 12 + size]
        )
        parts[kind] = parts.get(kind, b"") + content
        place += 12 + size
    width = int.from_bytes(parts[b"IHDR"][0 : 0 + 4])
    height = int.from_bytes(parts[b"IHDR"][4 : 4 + 4])
    depth, colour = parts[b"IHDR"][8:10]
    assert depth == 8
    channels = {0: 1, 2: 3, 6: 4}[colour]
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(
        height, 1 + width * channels
    )
    pixels = unfiltered(lines[:, 0], lines[:, 1:].reshape(height, width, channels))
    if channels == 4:
        assert (pixels[..., 3] == 255).all()  # nothing shines through
    return np.broadcast_to(pixels[..., :3], (height, width, 3))


def unfiltered(filters: NDArray[np.uint8], lines: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Lines (h, w, c) of a PNG file, each stored as what it differs from its neighbours by."""
    out = np.zeros_like(lines)
    above = np.zeros_like(lines[0])
    for y, (kind, line) in enumerate(zip(filters.tolist(), lines, strict=True)):
        if kind in (0, 2):
            out[y] = line + (above if kind else 0)
        elif kind == 1:
            out[y] = line.cumsum(0, dtype=np.uint8)
        else:
            left = np.zeros(line.shape[1], np.int64)
            corner = np.zeros(line.shape[1], np.int64)
            for x, up in enumerate(above.astype(np.int64)):
                near = [left, up, corner]
                guess = left + up - corner
                paeth = np.choose(np.argmin([np.abs(guess - n) for n in near], 0), near)
                left = (line[x] + ((left + up) // 2 if kind == 3 else paeth)) % 256
                out[y, x] = left
                corner = up
        above = out[y]
    return out


@dataclass(frozen=True)
class Shown:
    """An image inside an SVG picture."""

    x: int
    y: int
    width: int
    height: int
    pixels: NDArray[np.uint8]


class Picture:
    """The images and words of an SVG picture."""

    def __init__(self, svg: str) -> None:
        root = ElementTree.fromstring(svg)
        self.width = int(root.attrib["width"])
        self.height = int(root.attrib["height"])
        name = "{http://www.w3.org/2000/svg}"
        self.words = [(node.text or "") for node in root.iter(f"{name}text")]
        self.images = list[Shown]()
        for node in root.iter(f"{name}image"):
            place = (int(node.attrib[key]) for key in ("x", "y", "width", "height"))
            head, _, content = node.attrib["href"].partition(",")
            assert head == "data:image/png;base64"
            self.images.append(Shown(*place, pixels_of(base64.b64decode(content))))

    def places_of(self, pixels: NDArray[np.uint8]) -> list[tuple[int, int]]:
        """Where the picture holds an image: from the top and from the left."""
        return [(i.y, i.x) for i in self.images if np.array_equal(i.pixels, pixels)]


EVIL = "<script>alert('x')</script>&\"<img src=x onerror=alert(1)>"


class Reader(HTMLParser):
    """Tags with their attributes, and the text of table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.cell = self.cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.rows[-1][-1] += data

    def count(self, tag: str) -> int:
        return sum(t == tag for t, _ in self.tags)
