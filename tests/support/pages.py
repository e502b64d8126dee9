"""Pages and pictures as tests read them."""

import zlib
from html.parser import HTMLParser

import numpy as np
from numpy.typing import NDArray


def pixels_of(file: bytes) -> NDArray[np.uint8]:
    """What a PNG file without filters shows, (h, w, 3)."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, dict[bytes, bytes]()
    while at < len(file):
        size = int.from_bytes(file[at : at + 4])
        kind, content = file[at + 4 : at + 8], file[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + content) == int.from_bytes(file[at + 8 + size : at + 12 + size])
        parts[kind] = content
        at += 12 + size
    width, height = (int.from_bytes(parts[b"IHDR"][i : i + 4]) for i in (0, 4))
    depth, colour = parts[b"IHDR"][8:10]
    assert depth == 8
    channels = {0: 1, 2: 3}[colour]
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    assert (lines[:, 0] == 0).all()
    return np.broadcast_to(lines[:, 1:].reshape(height, width, channels), (height, width, 3))


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
