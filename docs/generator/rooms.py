"""The rooms of the library, from the layer contract in `pyproject.toml` and the docstring of each
room."""

import importlib
import tomllib
from html import escape
from pathlib import Path

from docs.generator.docstrings import parse

ROOT = Path(__file__).parents[2]
WIDTH = 1180
ROW = 46
LEFT = 20
TOP = 20
COLOURS = {  # what a room is for
    "people": ("#ede7f6", "#5e35b1"),
    "answers": ("#e8eaf6", "#3949ab"),
    "models": ("#e3f2fd", "#1e88e5"),
    "tables": ("#e0f2f1", "#00897b"),
    "base": ("#eceff1", "#607d8b"),
}
KIND = {
    "cli": "people",
    "render": "people",
    "plans": "answers",
    "auditing": "answers",
    "evaluation": "answers",
    "images": "answers",
    "methods": "answers",
    "registry": "answers",
    "explainer": "answers",
    "problem": "answers",
    "counterfactuals": "answers",
    "target": "answers",
    "distances": "answers",
    "training": "models",
    "retraining": "models",
    "models": "models",
    "nn": "models",
    "datasets": "tables",
    "schema": "tables",
}


def layers() -> list[list[str]]:
    """The contract from top to bottom: a layer imports only from those below it."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "tool"
    ]["importlinter"]["contracts"]
    return [
        [name.strip() for name in line.replace(":", "|").split("|")]
        for line in contract[0]["layers"]
    ]


def sentence(room: str) -> str:
    """What a room is for, in its own words."""
    return parse(importlib.import_module(f"holdfast.{room}").__doc__).summary


def table() -> str:
    """The rooms in the order data meets them, which is the contract from bottom to top."""
    rows = ["| room | what it is for |", "|---|---|"]
    for layer in reversed(layers()):
        rows += [f"| `{room}` | {sentence(room)} |" for room in layer]
    return "\n".join(rows)


def picture() -> str:
    """The rooms as boxes, one layer a line."""
    lines = list[str]()
    y = TOP
    for layer in layers():
        width = (WIDTH - 2 * LEFT - 10 * (len(layer) - 1)) / len(layer)
        for i, room in enumerate(layer):
            fill, line = COLOURS[KIND.get(room, "base")]
            x = LEFT + i * (width + 10)
            short = _fitted(sentence(room), width)
            lines += [
                f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{ROW - 8}" rx="6" '
                f'fill="{fill}" stroke="{line}"/>',
                f'<text x="{x + 14:g}" y="{y + 24}" class="room">{escape(room)}</text>',
                f'<text x="{x + 165:g}" y="{y + 24}" class="what">{escape(short)}</text>',
            ]
        y += ROW
    style = (
        "text{font-family:system-ui,sans-serif;fill:#263238}"
        ".room{font-weight:600;font-size:15px}.what{font-size:13px}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 12}" role="img">'
        "<title>The rooms of holdfast: each imports only from those below "
        f"it</title><style>{style}</style>\n"
        + f'<rect width="{WIDTH}" height="{y + 12}" fill="#ffffff"/>\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def _fitted(text: str, width: float) -> str:
    """As much of a sentence as fits into a box, cut between words."""
    most = int((width - 180) / 6.6)
    text = text.rstrip(".").replace("`", "")
    return (
        text
        if len(text) <= most
        else text[:most].rpartition(" ")[0].rstrip(",:;") + " …"
    )
