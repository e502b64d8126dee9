"""Counterfactual images as HTML: a table for notebooks, and a report in one file that needs neither
network nor server.

Images are PNG files of their own size inside the page; the browser enlarges them without blurring.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from holdfast._core.checks import optional
from holdfast._core.types import Ints
from holdfast.errors import MissingExtraError
from holdfast.images.charts import pixels_chart, probability_chart
from holdfast.images.grid import chosen, colours, difference
from holdfast.render.charts.theme import to_svg
from holdfast.render.html import by_status, inline_svg, middle, provenance, render, write_page
from holdfast.render.png import Bytes, encoded
from holdfast.target import Status

if TYPE_CHECKING:
    from holdfast.images.result import ImageCounterfactuals

MOST_CARDS = 12
MOST_PAIRS = 500  # in the table of the report
MOST_CLASSES = 20  # up to here a table of every class against every class is legible


def pairs_table(cfs: "ImageCounterfactuals", most: int = 30) -> str:
    """The first pairs with their images, as an HTML fragment."""
    shown = np.arange(min(len(cfs), most))
    return render(
        "pairs.html",
        cards=cards(cfs, shown),
        summary=cfs.summary(),
        total=len(cfs),
        tall=tall(cfs, 56),
    )


def write_report(cfs: "ImageCounterfactuals", path: Path) -> Path:
    """Write the whole story of a run to one self-contained HTML file; charts are left out without
    the `plot` extra."""
    found = np.flatnonzero(cfs.found)
    failed = np.flatnonzero(cfs.status_codes == Status.NOT_FOUND)
    # Answers first: they are what readers come for.
    order = np.concatenate([found, failed, np.flatnonzero(cfs.status_codes == Status.ALREADY_MET)])
    listed = cards(cfs, np.sort(order[:MOST_PAIRS]))
    pixels, probability = charts(cfs, found)
    return write_page(
        path,
        "images.html",
        headline=headline(cfs),
        figures=figures(cfs),
        pixels=pixels,
        probability=probability,
        found=len(found),
        matrix=matrix(cfs),
        total=len(cfs),
        labels=_names(cfs.label),
        targets=_names(cfs.target),
        some=cards(cfs, chosen(cfs, MOST_CARDS, "spread")) if len(found) else [],
        pairs=listed,
        statuses=[s.words for s in Status if (cfs.status_codes == s).any()],
        tall=tall(cfs, 98),
        low=tall(cfs, 44),
        provenance=provenance(cfs.run, "Images"),
    )


def charts(cfs: "ImageCounterfactuals", found: Ints) -> tuple[Markup | None, Markup | None]:
    """Histograms of pixels changed and of probability, if the extra that draws them is there."""
    try:
        for module in ("altair", "vl_convert"):
            optional(module, "plot")
    except MissingExtraError:
        return None, None
    if not len(found):
        return None, None
    pixels = cfs.pixels.to_numpy()[found]
    sure = cfs.probability.to_numpy()[found]
    return inline_svg(to_svg(pixels_chart(pixels))), inline_svg(to_svg(probability_chart(sure)))


# ---- what the pages say


def headline(cfs: "ImageCounterfactuals") -> str:
    """One line: how many pairs have an answer, and by how many pixels."""
    if not len(cfs):
        return "No images were asked about."
    images = len(np.unique(cfs.source))
    found = cfs.found
    met = int((cfs.status_codes == Status.ALREADY_MET).sum())
    pairs = f"{len(cfs):,} pair{'s' * (len(cfs) != 1)} of an image and a wanted class"
    text = f"{images:,} image{'s' * (images != 1)}, {pairs}: {int(found.sum()):,} answered"
    text += f", {met:,} met from the start" if met else ""
    if not found.any():
        return text + "."
    pixels = float(np.median(cfs.pixels.to_numpy()[found]))
    share = pixels / (cfs.x.shape[2] * cfs.x.shape[3])
    return (
        f"{text}; half of the answers change {pixels:g} pixel{'s' * (pixels != 1)} ({share:.1%} "
        "of an image) or fewer."
    )


def figures(cfs: "ImageCounterfactuals") -> list[tuple[str, str, str]]:
    """(name, number, small print) at a glance."""
    n = len(cfs)
    found = cfs.found
    high, wide = cfs.x.shape[2:]
    return [
        ("Images", f"{len(np.unique(cfs.source)):,}", f"of {wide} x {high} pixels"),
        *by_status(cfs, "pairs"),
        ("Median pixels", middle(cfs.pixels, found, "median", "g"), "changed per answer"),
        ("Median l1", middle(cfs.cost("l1"), found, "median", ".2f"), "sum of all changes"),
        ("Mean probability", middle(cfs.probability, found, "mean", ".1%"), "of the wanted class"),
        (
            "Time",
            f"{cfs.run.seconds:.2f} s",
            f"{1e3 * cfs.run.seconds / n:.3g} ms per pair" if n else "",
        ),
    ]


def matrix(cfs: "ImageCounterfactuals") -> dict[str, Any] | None:
    """Median pixels changed from every class to every other, for a table; None where it would say
    nothing."""
    found = cfs.found
    rows = np.unique(cfs.own[found])
    columns = np.unique(cfs.goal.label.numpy()[found])
    if len(rows) < 2 or len(columns) < 2 or max(len(rows), len(columns)) > MOST_CLASSES:
        return None
    pixels = cfs.pixels.to_numpy()
    places = [
        [(cfs.own == own) & (cfs.goal.label.numpy() == to) & found for to in columns]
        for own in rows
    ]
    medians = [[float(np.median(pixels[p])) if p.any() else None for p in line] for line in places]
    most = max(1.0, *(v for line in medians for v in line if v is not None))

    def cell(value: float | None) -> tuple[str, str]:
        """The number, and how dark its field is."""
        return ("", "0") if value is None else (f"{value:g}", f"{0.06 + 0.5 * value / most:.2f}")

    names = [str(cfs.classes[own]) for own in rows.tolist()]
    lines = [(name, [cell(v) for v in line]) for name, line in zip(names, medians, strict=True)]
    return {"columns": [str(cfs.classes[to]) for to in columns.tolist()], "lines": lines}


def cards(cfs: "ImageCounterfactuals", pairs: Ints) -> list[dict[str, str]]:
    """Pairs as strings and addresses of pictures; an image asked about several times is made
    once."""
    # Nine classes ask about the same image nine times, and PNG files are most of the page.
    images = {
        row: _url(colours(cfs.x[i]))
        for i, row in zip(pairs.tolist(), cfs.source[pairs].tolist(), strict=True)
    }
    label = cfs.label
    target = cfs.target
    sure = cfs.probability.to_numpy()
    pixels = cfs.pixels.to_numpy()
    l1 = cfs.cost("l1").to_numpy()

    def card(i: int) -> dict[str, str]:
        row = int(cfs.source[i])
        status = Status(int(cfs.status_codes[i]))
        failed = status == Status.NOT_FOUND
        return {
            "row": str(row),
            "label": str(label[i]),
            "target": str(target[i]),
            "status": status.words,
            "reason": cfs.reasons[i],
            "probability": f"{sure[i]:.1%}",
            "pixels": "" if failed else f"{pixels[i]:g}",
            "l1": "" if failed else f"{l1[i]:.2f}",
            "iterations": f"{cfs.iterations[i]:,}",
            "before": images[row],
            "after": _url(colours(cfs.x_cf[i])),
            "changed": _url(difference(cfs.x[i], cfs.x_cf[i])),
        }

    return [card(i) for i in pairs.tolist()]


def _url(pixels: Bytes) -> str:
    grey = (pixels == pixels[..., :1]).all()
    return encoded(pixels[..., 0] if grey else pixels).url


def tall(cfs: "ImageCounterfactuals", wide: int) -> tuple[int, int]:
    """Width and height of an image on the page."""
    high, across = cfs.x.shape[2:]
    side = wide / max(high, across)
    return max(1, round(across * side)), max(1, round(high * side))


def _names(values: NDArray[Any]) -> list[str]:
    """Different values in order, numbers before strings."""
    return [str(v) for v in sorted(set(values.tolist()), key=lambda v: (isinstance(v, str), v))]
