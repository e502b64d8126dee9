"""Maps of models of two features: where answers lead."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from holdfast._core.checks import listed, optional
from holdfast._core.types import AnyArray
from holdfast.errors import SettingError
from holdfast.models.scores import probabilities
from holdfast.render.charts.theme import (
    BLUE,
    INK,
    MOST_DOTS,
    UNWANTED,
    Span,
    coloured,
    evenly,
    regions,
    themed,
    two_features,
    widened,
)

if TYPE_CHECKING:
    from holdfast.counterfactuals import Counterfactuals
    from holdfast.models.base import Model

GRID = 60  # cells per side of the map of probabilities
BANDS = 10  # shades of the map
# unlikely, undecided, likely: pale, under dots of the full colours
PALE = ("#f4d285", "#fafafa", "#7fb8d8")


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
        answers: case -> model -> its answers; one row of pictures per case, such as a feature held
            fixed.
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

    def band(points: pd.DataFrame) -> AnyArray:
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
    colours = [UNWANTED[i % len(UNWANTED)] for i in range(len(others))]
    colour = coloured("class", [*others, str(target)], [*colours, BLUE], symbolType="circle")
    return (
        alt.Chart(dots)
        .mark_circle(aria=False, size=9, opacity=0.6)
        .encode(x="a:Q", y="b:Q", color=colour)
    )


def _arrows(alt: Any, cfs: "Counterfactuals", spans: list[Span]) -> list[Any]:
    """Arrows from rows to their answers; failed attempts are dashed and have no head."""
    a, b = cfs.schema.names
    moved = cfs.after
    steps = pd.DataFrame(
        {"x": cfs.before[a], "y": cfs.before[b], "x2": moved[a], "y2": moved[b]}
    ).astype(float)
    across = (steps["x2"] - steps["x"]) / (spans[0][1] - spans[0][0])
    up = (steps["y2"] - steps["y"]) / (spans[1][1] - spans[1][0])
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
