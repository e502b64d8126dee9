"""`python -m docs.generator`: write the generated parts of the documentation; `--check` only says
what is out of date.

Kept in the repository, so that they can be read without building the site: the tables between
`generated: NAME` and `end` in README.md, mkdocs.yml and the pages of docs/, the pages of the
methods, and the picture of the rooms. Made anew for every site and not kept: the pages of the API,
and those of the papers, which lie in experiments/results.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from docs.generator import api, methods, papers, results, rooms
from experiments import PAPERS

ROOT = Path(__file__).parents[2]
SPEED = ("engine", "retraining", "shift", "hardening", "teaching", "images")
BLOCK = re.compile(  # between comments, of Markdown or of YAML
    r"(?P<start>^ *(?:<!--|#) generated: (?P<name>[^\n]*?)(?: -->)?\n)"
    r"(?P<text>.*?)(?P<end>^ *(?:<!--|#) end)",
    re.MULTILINE | re.DOTALL,
)
PARTS: dict[str, Callable[[], str]] = {
    "methods": partial(methods.table, images=False),
    "methods for images": partial(methods.table, images=True),
    "what methods need": methods.needs_table,
    "navigation of methods": methods.navigation,
    "navigation of the API": api.navigation,
    "rooms": rooms.table,
    "black2022": results.black2022,
    "guo2023": results.guo2023,
    "krishna2024": results.krishna2024,
    "altmeyer2025": results.altmeyer2025,
    "hoeltgen2021": results.hoeltgen2021,
    "population experiment": results.next_training,
    "population experiment, fewer rows": results.next_training_of_fewer_rows,
    "repeated banks": results.repeated_banks,
    "peers": results.peers,
    "tree search": results.tree_search,
    "compiled trees": results.compiled_trees,
    **{f"elements of {paper}": partial(papers.table, paper) for paper in PAPERS},
    **{f"speed: {file}": partial(results.speed, file) for file in SPEED},
}


def with_parts(text: str) -> str:
    """A page with its generated parts made anew."""

    def made(found: re.Match[str]) -> str:
        gap = "\n" if "<!--" in found["start"] else ""
        return f"{found['start']}{gap}{PARTS[found['name']]()}\n{gap}{found['end']}"

    return BLOCK.sub(made, text)


def pages() -> list[Path]:
    """The pages that lie in the repository."""
    return [
        ROOT / "README.md",
        *(page for page in sorted((ROOT / "docs").rglob("*.md")) if not _is_made(page)),
    ]


def kept() -> dict[Path, str]:
    """What lies in the repository, as it should be: file -> text."""
    out = {
        page: with_parts(page.read_text(encoding="utf-8"))
        for page in [ROOT / "mkdocs.yml", *pages()]
    }
    out |= {ROOT / "docs" / m.page: methods.page(m) for m in methods.methods()}
    return {path: text for path, text in out.items() if not _is_stray(path)} | {
        ROOT / "docs/pictures/architecture.svg": rooms.picture()
    }


def _is_made(page: Path) -> bool:
    """Is it a page that is made for the site and not kept?"""
    place = page.relative_to(ROOT / "docs").parts
    return place[0] == "api" or (place[0] == "reproductions" and len(place) == 3)


def _is_stray(path: Path) -> bool:
    """Is it the page of a method that is no longer there?"""
    known = {ROOT / "docs" / m.page for m in methods.methods()} | {
        ROOT / "docs/methods/index.md"
    }
    return ROOT / "docs/methods" in path.parents and path not in known


def out_of_date() -> list[str]:
    """Files in the repository that are not as they should be."""
    wanted = kept()
    stray = [path for path in (ROOT / "docs/methods").rglob("*.md") if _is_stray(path)]
    changed = [
        p
        for p, text in wanted.items()
        if not p.exists() or p.read_text(encoding="utf-8") != text
    ]
    return sorted(str(path.relative_to(ROOT)) for path in [*changed, *stray])


def write_site_pages(docs: Path) -> None:
    """The pages that are made for the site: the API, and the papers with their pictures."""
    for name, text in api.pages().items():
        _write(docs / name, text)
    for paper in PAPERS:
        source = ROOT / "experiments/results" / paper
        room = docs / "reproductions" / paper
        room.mkdir(parents=True, exist_ok=True)
        _write(room / "index.md", (source / "README.md").read_text(encoding="utf-8"))
        for picture in [*source.glob("*.svg"), *source.glob("*.png")]:
            shutil.copyfile(picture, room / picture.name)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "--check",
        action="store_true",
        help="change nothing; fail if something is out of date",
    )
    if options.parse_args().check:
        for name in (late := out_of_date()):
            print(f"{name} is out of date; run `make docs`", file=sys.stderr)
        return 1 if late else 0
    for path, text in kept().items():
        _write(path, text)
    for path in (ROOT / "docs/methods").rglob("*.md"):
        if _is_stray(path):
            path.unlink()
    write_site_pages(ROOT / "docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
