"""The page of a paper, made from what there is: its records, tables, notes and pictures."""

import contextlib
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments.cell import Store
from experiments.paper import Found, Paper, Pictures
from experiments.records import FILE, write_records
from holdfast._core.files import write_whole
from holdfast.errors import MissingExtraError
from holdfast.render.charts.theme import save as save_chart
from holdfast.render.charts.theme import to_svg

RESULTS = Path(__file__).parent / "results"
GRADIENT = re.compile(r"gradient_\d+")


def write_paper(paper: Paper, store: Store, folder: Path = RESULTS) -> Path:
    """Write the records, the page and the pictures of the cells there are."""
    found = Found.of(paper.cells(), store)
    directory = folder / paper.name
    records = paper.records(found)
    if records:
        write_records(directory / FILE, records)
    text = page_text(paper.name, paper.title, paper.page(found), paper.pictures(found))
    return write_page(directory, text, paper.pictures(found))


def page_text(name: str, title: str, lines: Sequence[str], pictures: Pictures) -> str:
    """The markdown page of a paper: its tables, its notes, its pictures."""
    body = "\n".join(lines).rstrip()
    source = files(f"experiments.{name}") / "notes.md"
    notes = source.read_text(encoding="utf-8").rstrip()
    shown = [f"![{Path(file).stem}]({file})" for file in pictures]
    return "\n".join([f"# {title}", "", body, "", notes, "", "## Pictures", "", *shown, ""])


def write_page(directory: Path, text: str, pictures: Pictures) -> Path:
    """Write a page and its pictures; pictures it no longer shows are deleted."""
    page = directory / "README.md"
    write_whole(page, text.encode())
    for old in [*directory.glob("*.svg"), *directory.glob("*.png")]:
        if old.name not in pictures:
            old.unlink()
    with contextlib.suppress(MissingExtraError):  # pictures need the plot extra; figures do not
        for file, draw in pictures.items():
            picture = draw()
            if isinstance(picture, bytes):
                write_whole(directory / file, picture)
            else:
                _write_chart(directory / file, picture)
    return page


def _write_chart(path: Path, chart: Any) -> None:
    """Count colour scales anew, so a chart is the same text whatever was drawn before it."""
    if path.suffix != ".svg":
        save_chart(chart, path)
        return
    text = to_svg(chart)
    names = dict.fromkeys(GRADIENT.findall(text))
    numbers = {name: f"gradient_{number}" for number, name in enumerate(names)}
    write_whole(path, GRADIENT.sub(lambda found: numbers[found[0]], text).encode())
