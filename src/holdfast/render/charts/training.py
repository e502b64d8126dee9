"""Pictures of counterfactual training: where answers lead, how training went, and images with their
counterfactuals."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from holdfast._core.checks import listed, optional
from holdfast.errors import SettingError
from holdfast.models.scores import probabilities
from holdfast.render.charts.theme import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MOST_DOTS,
    ORANGE,
    PINK,
    QUIET,
    RED,
    WIDTH,
    Span,
    coloured,
    evenly,
    regions,
    themed,
    two_features,
    widened,
)
from holdfast.render.png import png

if TYPE_CHECKING:
    from holdfast.counterfactuals import Counterfactuals
    from holdfast.models.base import Model

Array = np.ndarray[Any, Any]
OTHERS = (ORANGE, GREEN, RED, PINK, GREY)  # classes that are not wanted
GRID = 60  # cells a side of the map of probabilities
BANDS = 10  # shades of it
# unlikely, undecided, likely: under dots of the full colours
PALE = ("#f4d285", "#fafafa", "#7fb8d8")
CURVES = {
    "accuracy": "Training accuracy",
    "validation": "Validation accuracy",
    "divergence": "Divergence",
    "ridge": "Ridge on energies",
    "adversarial": "Adversarial loss",
    "matured": "Counterfactuals that mature",
}
SHARES = ("accuracy", "validation", "matured")


# ---- where answers lead


def decision_paths(
    models: Mapping[str, "Model"],
    X: pd.DataFrame,
    y: "pd.Series[Any]",
    answers: Mapping[str, Mapping[str, "Counterfactuals"]],
    target: Any,
    *,
    width: int = 260,
) -> Any:
    """Maps of models of two features: how likely they find the wanted class, data, and arrows to
    the answers.

    Args:
        models: name -> model; one column of pictures each.
        X, y: data to show.
        answers: case -> model -> its answers; one row of pictures per case, such as with a feature
            held.
        target: the wanted class.
    """
    alt = optional("altair", "plot")
    first = next(iter(models.values()))
    names = two_features(first)
    if target not in first.classes:
        raise SettingError(
            f"the models have no class {target!r}; they have {listed(first.classes)}"
        )
    if not answers:
        raise SettingError("nothing to draw: there are no answers")
    shown = [cfs.after[names] for by_model in answers.values() for cfs in by_model.values()]
    spans = [
        widened(pd.concat([X[names], *shown])[name].to_numpy(dtype=float), 0.06) for name in names
    ]
    maps = {
        name: _shades(model, names, spans, first.classes.index(target))
        for name, model in models.items()
    }
    dots = pd.DataFrame(
        {"a": X[names[0]].to_numpy(float), "b": X[names[1]].to_numpy(float), "class": y.astype(str)}
    )
    dots = dots.iloc[evenly(len(dots), MOST_DOTS // 4)]  # there are several such pictures
    rows = list[Any]()
    for case, by_model in answers.items():
        panels = list[Any]()
        for name, cfs in by_model.items():
            below = (
                _map(alt, maps[name], names, spans, target),
                _dots(alt, dots, first.classes, target),
            )
            title = alt.Title(
                f"{name}, {case}", fontSize=12, fontWeight=500, color=INK, anchor="start"
            )
            panel = alt.layer(*below, *_arrows(alt, cfs, spans))
            panels.append(panel.properties(width=width, height=width, title=title))
        rows.append(alt.hconcat(*panels, spacing=16))
    about = (
        f"Maps: the probability of {target}, data, and arrows from rows to their counterfactuals."
    )
    return themed(
        alt.vconcat(*rows, spacing=16).resolve_scale(color="shared").properties(description=about)
    )


def _shades(model: "Model", names: list[str], spans: list[Span], target: int) -> pd.DataFrame:
    """Rectangles of about the same probability of the class."""

    def band(points: pd.DataFrame) -> Array:
        with model.eval_mode(), torch.no_grad():
            scores = model.score_frame(points)
        p = probabilities(scores, model.offset, defers_to_predict=model.defers_to_predict)[
            :, target
        ].numpy()
        return np.minimum((p * BANDS).astype(np.int64), BANDS - 1)

    shades = regions(names, spans, GRID, band)
    return shades.assign(p=(shades.pop("kind") + 0.5) / BANDS)


def _map(alt: Any, shades: pd.DataFrame, names: list[str], spans: list[Span], target: Any) -> Any:
    axis = alt.Axis(grid=False, tickCount=5)
    ranges = [alt.Scale(domain=list(span), nice=False) for span in spans]
    x = alt.X("left:Q", title=names[0], scale=ranges[0], axis=axis)
    y = alt.Y("bottom:Q", title=names[1], scale=ranges[1], axis=axis)
    scale = alt.Scale(domain=[0, 0.5, 1], range=list(PALE))
    legend = alt.Legend(
        title=f"Probability of {target}", format="%", values=[0, 0.5, 1], titleOrient="left"
    )
    fill = alt.Fill("p:Q", scale=scale, legend=legend)
    stroke = alt.Stroke("p:Q", scale=scale, legend=None)
    # strokes close the seams
    mark = alt.Chart(shades).mark_rect(aria=False, opacity=1, strokeWidth=0.6)
    return mark.encode(x=x, x2="right", y=y, y2="top", fill=fill, stroke=stroke)


def _dots(alt: Any, dots: pd.DataFrame, classes: Sequence[Any], target: Any) -> Any:
    others = [str(c) for c in classes if c != target]
    colours = [OTHERS[i % len(OTHERS)] for i in range(len(others))]
    colour = coloured("class", [*others, str(target)], [*colours, BLUE], symbolType="circle")
    return (
        alt.Chart(dots)
        .mark_circle(aria=False, size=9, opacity=0.6)
        .encode(x="a:Q", y="b:Q", color=colour)
    )


def _arrows(alt: Any, cfs: "Counterfactuals", spans: list[Span]) -> list[Any]:
    """From rows to their answers; attempts that failed are dashed and have no head."""
    a, b = cfs.schema.names
    moved = cfs.after
    steps = pd.DataFrame(
        {"x": cfs.before[a], "y": cfs.before[b], "x2": moved[a], "y2": moved[b]}
    ).astype(float)
    across, up = (
        (steps[end] - steps[start]) / (span[1] - span[0])
        for start, end, span in (("x", "x2", spans[0]), ("y", "y2", spans[1]))
    )
    # clockwise from the top, as it looks on the page
    steps["angle"] = np.degrees(np.arctan2(across, up)) % 360
    steps["found"] = cfs.found
    dash = alt.condition("datum.found", alt.value([1, 0]), alt.value([3, 3]))
    base = alt.Chart(steps.reset_index(drop=True))
    line = base.mark_rule(color=INK, strokeWidth=1.2).encode(
        x="x:Q", y="y:Q", x2="x2", y2="y2", strokeDash=dash
    )
    turn = alt.Angle("angle:Q", scale=alt.Scale(domain=[0, 360], range=[0, 360]), legend=None)
    head = base.transform_filter("datum.found").mark_point(
        shape="triangle", filled=True, color=INK, size=45, opacity=1
    )
    tail = base.mark_circle(aria=False, color=INK, size=18, opacity=1).encode(x="x:Q", y="y:Q")
    return [line, tail, head.encode(x="x2:Q", y="y2:Q", angle=turn)]


# ---- how training went


def training_curves(history: pd.DataFrame, *, width: int = WIDTH) -> Any:
    """Accuracy, the terms of the objective, and the share of mature counterfactuals against the
    epoch.

    Args:
        history: columns `epoch` and some of `accuracy`, `validation`, `divergence`, `ridge`,
            `adversarial` and `matured`; with `variant`, one line each, means over whatever else
            there is, such as seeds.
    """
    alt = optional("altair", "plot")
    there = [name for name in CURVES if name in history.columns and history[name].notna().any()]
    if "epoch" not in history.columns or not there:
        columns = list(history.columns)
        raise SettingError(
            f"the history needs a column 'epoch' and some of {listed(CURVES)}, got {columns}"
        )
    table = history if "variant" in history.columns else history.assign(variant="model")
    table = table.groupby(["variant", "epoch"], sort=False)[there].mean().reset_index()
    table["variant"] = table["variant"].astype(str)
    variants = list(dict.fromkeys(table["variant"]))
    colour = coloured("variant", variants, symbolType="stroke")
    colour = colour if len(variants) > 1 else colour.legend(None)
    charts = list[Any]()
    for name in there:
        share = name in SHARES
        limits = alt.Scale(domain=[0, 1]) if name == "matured" else alt.Scale(zero=False)
        y = alt.Y("value:Q", title=CURVES[name], scale=limits).axis(
            format="%" if share else "~g", tickCount=5
        )
        shown = table[["variant", "epoch", name]].rename(columns={name: "value"}).dropna()
        chart = (
            alt.Chart(shown)
            .mark_line(strokeWidth=1.5)
            .encode(
                x=alt.X(
                    "epoch:Q",
                    title="Epoch",
                    scale=alt.Scale(nice=False),
                    axis=alt.Axis(tickCount=5, tickMinStep=1),
                ),
                y=y,
                color=colour,
                tooltip=[
                    "variant:N",
                    "epoch:Q",
                    alt.Tooltip("value:Q", format=".4f", title=CURVES[name]),
                ],
            )
        )
        charts.append(chart.properties(width=width // 2, height=150))
    rows = [alt.hconcat(*charts[i : i + 2], spacing=24) for i in range(0, len(charts), 2)]
    about = (
        "Line charts against the epoch: " + ", ".join(CURVES[name].lower() for name in there) + "."
    )
    return themed(alt.vconcat(*rows, spacing=20).properties(description=about))


# ---- images


def image_grid(
    images: Mapping[str, Any],
    *,
    titles: Sequence[Any] = (),
    shape: tuple[int, int] = (28, 28),
    limits: tuple[float, float] = (-1.0, 1.0),
    size: int = 72,
) -> Any:
    """Grey images, one row of them per name: rows as they are, and the counterfactuals of each
    model below.

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
