"""The page of a paper: its records, its tables, its notes and its pictures, of what there is."""

import contextlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from experiments.cell import Store
from experiments.paper import Found, Paper, Pictures
from experiments.records import FILE, write_records
from holdfast._core.files import write_whole
from holdfast.errors import MissingExtraError
from holdfast.render.charts.theme import save as save_chart

RESULTS = Path(__file__).parent / "results"


def write_paper(paper: Paper, store: Store, folder: Path = RESULTS) -> Path:
    """Write the records, the page and the pictures of the cells that there are."""
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
    """Write a page and its pictures; pictures that it no longer shows go."""
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
                save_chart(picture, directory / file)
    return page
