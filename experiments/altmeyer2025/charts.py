"""Pictures of models side by side: how much better their explanations are, what attacks leave of
their accuracy, and images with their counterfactuals."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from experiments.altmeyer2025.repeats import Array
from holdfast._core.checks import listed, optional
from holdfast.errors import SettingError
from holdfast.render.charts.theme import (
    COLOURS,
    GREY,
    INK,
    QUIET,
    WIDTH,
    coloured,
    themed,
)
from holdfast.render.png import png

TITLES = {
    "implausibility": "Implausibility (l1 to data)",
    "mmd": "Implausibility of sets (MMD)",
    "cost": "Cost (l1)",
}


def comparison_chart(reductions: pd.DataFrame, curves: pd.DataFrame, *, width: int = WIDTH) -> Any:
    """Percent reductions (of `Comparison.reductions`) with their spread, and below accuracy against
    the size of an attack: columns `model`, `attack`, `epsilon` and `accuracy`; the first model is
    the one to compare with."""
    alt = optional("altair", "plot")
    if not len(reductions) or not np.isfinite(reductions["reduction"]).any():
        raise SettingError("nothing to draw: no round has counterfactuals of two models")
    models = list(dict.fromkeys(curves["model"]))
    cases: list[str] = list(dict.fromkeys(reductions["case"]))
    parts = [
        _bars(alt, reductions[reductions["case"] == case], case, models, width) for case in cases
    ]
    attacks: list[str] = [name for name in dict.fromkeys(curves["attack"]) if name != "none"]
    if attacks:
        lines = [
            _lines(alt, curves[curves["attack"] == name], name, models, width // 2)
            for name in attacks
        ]
        parts.append(alt.hconcat(*lines, spacing=24))
    about = (
        "Bars: by how many percent explanations improve on those of the first model. Lines: "
        "accuracy under attack."
    )
    return themed(alt.vconcat(*parts, spacing=20).properties(description=about))


def _bars(alt: Any, shown: pd.DataFrame, case: str, models: list[str], width: int) -> Any:
    """By how many percent each metric falls, one bar per metric and model, with the figures beside
    it."""
    shown = shown[np.isfinite(shown["reduction"])]
    se = shown["se"].fillna(0.0)
    low = shown["reduction"] - se
    high = shown["reduction"] + se
    star = np.where(shown["significant"], "*", "")
    figures = [
        f"{m:.1f} ± {s:.1f}{t}" for m, s, t in zip(shown["reduction"], se, star, strict=True)
    ]
    shown = shown.assign(what=shown["metric"].replace(TITLES), low=low, high=high, figures=figures)
    order = list(dict.fromkeys(shown["what"]))
    # Nothing falls by more than all of it; what grows to more than twice the size is cut off, and
    # its figures say so.
    scale = alt.Scale(
        domain=[max(-100.0, min(0.0, float(low.min()))), min(100.0, max(0.0, float(high.max())))]
    )
    title = f"Percent less than {models[0]}, {case}"
    x = alt.X("reduction:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6))
    y = alt.Y(
        "what:N", sort=order, title=None, axis=alt.Axis(labelLimit=200, ticks=False, domain=False)
    )
    base = alt.Chart(shown).encode(y=y, yOffset=alt.YOffset("model:N", sort=models))
    tips = [
        "model:N",
        "what:N",
        alt.Tooltip("reduction:Q", format=".2f"),
        alt.Tooltip("se:Q", format=".2f"),
    ]
    bars = base.mark_bar(clip=True).encode(
        x=x, color=coloured("model", models, [GREY, *COLOURS[:6]]), tooltip=tips
    )
    spread = base.mark_rule(color=INK, clip=True).encode(x="low:Q", x2="high:Q")
    text = base.mark_text(align="left", color=INK, fontSize=12).encode(
        x=alt.value(width + 8), text="figures:N"
    )
    zero = alt.Chart(pd.DataFrame({"at": [0]})).mark_rule(color=GREY).encode(x="at:Q")
    return alt.layer(bars, spread, text, zero).properties(width=width, height=alt.Step(24))


def _lines(alt: Any, shown: pd.DataFrame, attack: str, models: list[str], width: int) -> Any:
    """Accuracy against the radius of an attack, one line per model."""
    x = alt.X("epsilon:Q", title=f"Radius of the attack ({attack})", axis=alt.Axis(tickCount=5))
    y = alt.Y(
        "accuracy:Q",
        title="Accuracy",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", tickCount=5),
    )
    tips = [
        "model:N",
        alt.Tooltip("epsilon:Q", format=".3f"),
        alt.Tooltip("accuracy:Q", format=".1%"),
    ]
    line = alt.Chart(shown).mark_line(point=True, strokeWidth=1.5)
    line = line.encode(
        x=x, y=y, color=coloured("model", models, [GREY, *COLOURS[:6]]), tooltip=tips
    )
    return line.properties(width=width, height=180)


# ---- where answers lead


# ---- images


def image_grid(
    images: Mapping[str, Any],
    *,
    titles: Sequence[Any] = (),
    shape: tuple[int, int] = (28, 28),
    limits: tuple[float, float] = (-1.0, 1.0),
    size: int = 72,
) -> Any:
    """Grey images, one row per name: rows as they are, and each model's counterfactuals
    below.

    Args:
        images: name -> (n, pixels) or (n, height, width); such as {"row": x, "plain": .., "taught":
            ..}.
        titles: above the n columns, such as "4 to 9".
        shape: height and width of an image.
        limits: the values of black and white.
        size: side of an image on the page.
    """
    alt = optional("altair", "plot")
    if not images:
        raise SettingError("nothing to draw: there are no images")
    sets = {str(name): _pixels(name, each, shape) for name, each in images.items()}
    counts = {name: len(each) for name, each in sets.items()}
    n = max(counts.values())
    if not n or set(counts.values()) != {n}:
        raise SettingError(
            f"every row of the grid needs the same number of images, at least one; got {counts}"
        )
    if titles and len(titles) != n:
        raise SettingError(f"need a title for each of {n} columns, got {len(titles)}")
    low, high = limits
    if not low < high:
        raise SettingError(f"limits must be a lower and a higher value, got {limits}")
    above = [str(t) for t in titles] or [str(i + 1) for i in range(n)]
    rows = [(name, i, image) for name, each in sets.items() for i, image in enumerate(each)]
    urls = [(name, i, above[i], png((image - low) / (high - low)).url) for name, i, image in rows]
    cells = pd.DataFrame(urls, columns=["model", "column", "title", "url"])
    cells["words"] = cells["model"] + ", " + cells["title"]
    bare = {"title": None, "domain": False, "ticks": False, "grid": False}
    ink = QUIET if titles else "white"
    x = alt.X(
        "column:O",
        axis=alt.Axis(
            labelExpr=f"{json.dumps(above)}[datum.value]",
            orient="top",
            labelAngle=0,
            labelColor=ink,
            **bare,
        ),
    )
    y = alt.Y("model:N", sort=list(sets), axis=alt.Axis(labelColor=INK, labelPadding=8, **bare))
    chart = alt.Chart(cells).mark_image(width=size, height=size)
    chart = chart.encode(
        x=x, y=y, url="url:N", tooltip=["words:N"], description=alt.Description("words:N")
    )
    step = alt.Step(size + 6)
    return themed(
        chart.properties(width=step, height=step, description=f"Images in rows: {listed(sets)}.")
    )


def _pixels(name: str, images: Any, shape: tuple[int, int]) -> Array:
    values = np.asarray(
        images.detach().numpy() if isinstance(images, torch.Tensor) else images, dtype=np.float64
    )
    good = values.ndim in (2, 3) and values[:1].size in (0, shape[0] * shape[1])
    if not good:
        raise SettingError(
            f"images of {name!r} have shape {values.shape}, expected (n, {shape[0]}, {shape[1]}) "
            "or flat"
        )
    return values.reshape(-1, *shape)
