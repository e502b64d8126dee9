"""PNG files from arrays, with nothing but zlib: exact to the pixel, and without a plotting
library."""

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class Png(bytes):
    """The bytes of a PNG file, which notebooks show as a picture."""

    def _repr_png_(self) -> bytes:
        return bytes(self)

    @property
    def url(self) -> str:
        """The file as an address, to put into a page."""
        return "data:image/png;base64," + base64.b64encode(self).decode()


def encoded(pixels: Bytes) -> Png:
    """Grey (height, width) or coloured (height, width, 3) bytes as a PNG file."""
    height, width = pixels.shape[:2]
    colour = 2 if pixels.ndim == 3 else 0
    # Each line begins with the number of its filter: none.
    lines = np.insert(np.ascontiguousarray(pixels).reshape(height, -1), 0, 0, axis=1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)  # 8 bits
    parts = (
        chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
        + chunk(b"IEND", b"")
    )
    return Png(b"\x89PNG\r\n\x1a\n" + parts)


def to_bytes(image: NDArray[Any]) -> Bytes:
    """Numbers from 0 to 1 as bytes; those beyond are cut off."""
    return (255 * np.clip(image, 0, 1)).round().astype(np.uint8)


def png(image: NDArray[Any], *, zoom: int = 4) -> Png:
    """A grey (height, width) or coloured (height, width, 3) image of numbers from 0 (black) to 1 as
    a PNG file; each pixel is a square of `zoom` by `zoom`, as viewers would blur it."""
    return encoded(to_bytes(image).repeat(zoom, axis=0).repeat(zoom, axis=1))
