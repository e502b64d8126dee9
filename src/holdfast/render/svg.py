"""Pictures as SVG: images exact to the pixel, with captions; vl-convert turns them into PNG
files."""

import unicodedata
from pathlib import Path

from markupsafe import escape

from holdfast._core.checks import optional
from holdfast._core.files import whole_file
from holdfast.errors import FileError
from holdfast.render.png import Bytes, Png, encoded

Colour = tuple[int, int, int]
FONT = "Arial, Helvetica, Liberation Sans, sans-serif"
CAPITAL = 0.716  # height of a capital, as a share of the font size
# about how wide letters are, as a share of the font size
LETTER = 0.55
WIDE_LETTER = 1.0
EXTENSIONS = (".png", ".svg")


class Svg(str):
    """The text of an SVG picture, which notebooks show."""

    def _repr_svg_(self) -> str:
        return str(self)

    def png(self) -> Png:
        """The picture as a PNG file; needs the `plot` extra."""
        return Png(optional("vl_convert", "plot").svg_to_png(str(self)))

    def save(self, path: str | Path) -> None:
        """Write an .svg file, or a .png file, which needs the `plot` extra."""
        path = Path(path)
        if path.suffix.lower() not in EXTENSIONS:
            raise FileError(
                f"cannot write {str(path)!r}: a picture's name must end in one of "
                f"{', '.join(EXTENSIONS)}"
            )
        content = self.encode() if path.suffix.lower() == ".svg" else self.png()
        with whole_file(path) as file:
            file.write(content)


class Drawing:
    """Images, words and rectangles at places, all in pixels from the top left."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def rectangle(self, x: int, y: int, width: int, height: int, colour: Colour) -> None:
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{_hex(colour)}"/>'
        )

    def image(self, pixels: Bytes, x: int, y: int, zoom: int, words: str = "") -> None:
        """An image (h, w) or (h, w, 3), each of its pixels a square of `zoom` by `zoom`; `words`
        say what it shows."""
        high = zoom * pixels.shape[0]
        wide = zoom * pixels.shape[1]
        # In the two spellings of "do not blur" that browsers and vl-convert know.
        look = 'image-rendering="optimizeSpeed" style="image-rendering:pixelated"'
        place = f'x="{x}" y="{y}" width="{wide}" height="{high}" preserveAspectRatio="none"'
        title = f"<title>{escape(one_line(words))}</title>" if words else ""
        self.parts.append(f'<image {place} {look} href="{encoded(pixels).url}">{title}</image>')

    def text(
        self,
        words: str,
        x: float,
        baseline: float,
        *,
        capital: int,
        colour: Colour,
        room: int,
        bold: bool = False,
        centred: bool = False,
    ) -> None:
        """Words in letters with capitals of this height; words without room are cut, and shown when
        pointed at."""
        words = one_line(words)
        shown = cut(words, capital, room)
        style = f'font-size="{capital / CAPITAL:.1f}" fill="{_hex(colour)}"'
        style += ' font-weight="bold"' * bold + ' text-anchor="middle"' * centred
        title = f"<title>{escape(words)}</title>" if shown != words else ""
        self.parts.append(f'<text x="{x:g}" y="{baseline:g}" {style}>{escape(shown)}{title}</text>')

    def svg(self, width: int, height: int, title: str) -> Svg:
        """The picture, on white."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        head += f'viewBox="0 0 {width} {height}" font-family="{FONT}" role="img">'
        lines = [
            head,
            f"<title>{escape(title)}</title>",
            '<rect width="100%" height="100%" fill="white"/>',
        ]
        return Svg("\n".join([*lines, *self.parts, "</svg>\n"]))


def one_line(words: str) -> str:
    """Without line breaks and characters that are not letters: XML has no control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())


def width_of(words: str, capital: float) -> int:
    """About how many pixels wide words are, with capitals of this height."""
    wide = sum(WIDE_LETTER if unicodedata.east_asian_width(c) in "WF" else LETTER for c in words)
    return round(wide * capital / CAPITAL)


def cut(words: str, capital: float, room: int) -> str:
    """The words in one line, or as many letters as have room."""
    words = one_line(words)
    if width_of(words, capital) <= room:
        return words
    while words and width_of(words + "…", capital) > room:
        words = words[:-1]
    return words.rstrip() + "…"


def _hex(colour: Colour) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
