"""Pictures of audits: survival against cost, invalidation per method and family, and where two models disagree."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from holdfast.errors import SettingError, optional
from holdfast.render.charts.theme import BLUE, GREEN, GREY, INK, MOST_DOTS, ORANGE, RED, WIDTH, row_names, themed

if TYPE_CHECKING:
    from holdfast.evaluation.audit import Audit
    from holdfast.models.base import Model

GRID = 120  # cells a side of the map of two models


def survival_cost(audit: "Audit", *, at_least: float = 0.95, confidence: float = 0.95, width: int = WIDTH) -> Any:
    """What answers cost against the share of retrained models that accept them; certified ones stand out."""
    alt = optional("altair", "plot")
    cfs = audit.cfs
    at = np.flatnonzero(cfs.found)
    if len(at) > MOST_DOTS:  # evenly spread over the rows, the same ones every time
        at = at[np.linspace(0, len(at) - 1, MOST_DOTS).astype(np.int64)]
    rows = row_names(cfs.after.index)
    sure = audit.certified(at_least=at_least, confidence=confidence).to_numpy()[at]
    yes, no = f"certified: at least {100 * at_least:g}% of models, {100 * confidence:g}% sure", "not certified"
    dots = pd.DataFrame(
        {
            "row": [rows[i] for i in at],
            "cost": cfs.cost("l2").to_numpy()[at],
            "survival": audit.survival().to_numpy()[at],
            "verdict": np.where(sure, yes, no),
        }
    )
    legend = alt.Legend(title=None, labelLimit=WIDTH)
    colour = alt.Color("verdict:N", scale=alt.Scale(domain=[yes, no], range=[GREEN, RED]), legend=legend)
    x = alt.X("cost:Q", title="Cost (l2, encoded)", axis=alt.Axis(tickCount=6))
    y = alt.Y(
        "survival:Q",
        title="Retrained models that accept the answer",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%"),
    )
    marks = alt.Chart(dots).mark_circle(size=28, opacity=0.55)
    line = alt.Chart(pd.DataFrame({"level": [at_least]})).mark_rule(strokeDash=[4, 4], color=INK).encode(y="level:Q")
    chart = marks.encode(x=x, y=y, color=colour, tooltip=["row:N", "cost:Q", "survival:Q"]) + line
    return themed(chart.properties(width=width, height=340))


def invalidation(audits: Mapping[str, "Audit"], *, width: int = WIDTH) -> Any:
    """The share of answers that a retraining breaks, per method and family, with its spread over models."""
    lines = [
        {"method": name, "family": family, "mean": mean, "low": max(0.0, mean - sd), "high": min(1.0, mean + sd)}
        for name, audit in audits.items()
        if audit.cfs.found.any()
        for family, (mean, sd) in audit.invalidation().items()
    ]
    return invalidation_bars(pd.DataFrame(lines), width=width)


def invalidation_bars(table: pd.DataFrame, *, width: int = WIDTH) -> Any:
    """The same from a table with the columns method, family, mean, low and high."""
    alt = optional("altair", "plot")
    if not len(table):
        raise SettingError("nothing to draw: no audit has an answer")
    order = list(dict.fromkeys(table["method"]))
    families = list(dict.fromkeys(table["family"]))
    colours = [BLUE, ORANGE, GREEN, RED, GREY]
    scale = alt.Scale(domain=families, range=[colours[i % len(colours)] for i in range(len(families))])
    y = alt.Y("method:N", sort=order, title=None, axis=alt.Axis(labelLimit=260))
    shift = alt.YOffset("family:N", sort=families)
    title = "Answers that a retraining breaks"
    x = alt.X("mean:Q", title=title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    colour = alt.Color("family:N", scale=scale, title=None)
    base = alt.Chart(table)
    bars = base.mark_bar().encode(x=x, y=y, yOffset=shift, color=colour)
    spread = base.mark_rule(color=INK).encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y, yOffset=shift)
    return themed((bars + spread).properties(width=width, height=alt.Step(14)))


def disagreement(
    first: "Model",
    second: "Model",
    X: pd.DataFrame,
    y: "pd.Series[Any]",
    *,
    steps: pd.DataFrame | None = None,
    width: int = 380,
) -> Any:
    """The decision regions of two models of two features, with the region where they disagree shaded.

    Args:
        first, second: models of the same two numeric features and classes.
        X, y: data to show.
        steps: rows with the columns `x`, `y`, `x_cf`, `y_cf`: arrows from questions to answers.
    """
    alt = optional("altair", "plot")
    names = first.schema.names
    if len(names) != 2 or any(f.is_category for f in first.schema.features):
        raise SettingError(f"a map needs exactly two numeric features, got {names}")
    a, b = (X[name].to_numpy(dtype=float) for name in names)
    spans = [_span(v) for v in (a, b)]
    wide, high = (np.linspace(low, top, GRID + 1, dtype=np.float64) for low, top in spans)
    cells = pd.DataFrame({"left": np.repeat(wide[:-1], GRID), "bottom": np.tile(high[:-1], GRID)})
    cells["right"], cells["top"] = cells["left"] + wide[1] - wide[0], cells["bottom"] + high[1] - high[0]
    middle = cells[["left", "right"]].mean(axis=1), cells[["bottom", "top"]].mean(axis=1)
    points = pd.DataFrame(dict(zip(names, middle, strict=True)))
    says = [_classes(model, points) for model in (first, second)]
    cells["region"] = np.where(
        says[0] == says[1], np.array(first.classes, dtype=object)[says[0]], "the models disagree"
    )
    kinds = [*map(str, first.classes), "the models disagree"]
    colours = [*[ORANGE, BLUE, GREEN, RED][: len(first.classes)], INK]
    scale = alt.Scale(domain=kinds, range=colours)
    cells["region"] = cells["region"].astype(str)
    # Neighbours of one region in a column as one rectangle: Altair takes no more than 5,000 rows.
    new = (cells["region"] != cells["region"].shift()) | (cells["left"] != cells["left"].shift())
    last = new.shift(-1, fill_value=True)
    cells = cells[new].assign(top=cells["top"][last].to_numpy())
    alt_x = {"scale": alt.Scale(domain=list(spans[0]), nice=False), "title": names[0]}
    alt_y = {"scale": alt.Scale(domain=list(spans[1]), nice=False), "title": names[1]}
    colour = alt.Color("region:N", scale=scale, title=None)
    shade = alt.Chart(cells).mark_rect(opacity=0.3, stroke=None)
    shade = shade.encode(x=alt.X("left:Q", **alt_x), x2="right", y=alt.Y("bottom:Q", **alt_y), y2="top", color=colour)
    dots = pd.DataFrame({"a": a, "b": b, "region": y.astype(str).to_numpy()})
    if len(dots) > MOST_DOTS:
        dots = dots.iloc[np.linspace(0, len(dots) - 1, MOST_DOTS).astype(np.int64)]
    layers = [shade, alt.Chart(dots).mark_circle(size=16).encode(x="a:Q", y="b:Q", color=colour)]
    if steps is not None:
        moves = alt.Chart(steps).mark_rule(color=INK, strokeWidth=1.5)
        ends = alt.Chart(steps).mark_point(shape="diamond", filled=True, color=INK, size=40)
        layers += [moves.encode(x="x:Q", y="y:Q", x2="x_cf", y2="y_cf"), ends.encode(x="x_cf:Q", y="y_cf:Q")]
    return themed(alt.layer(*layers).properties(width=width, height=width))


def _span(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """The range of the values and a tenth more on either side."""
    low, high = float(values.min()), float(values.max())
    return low - 0.1 * (high - low), high + 0.1 * (high - low)


def _classes(model: "Model", points: pd.DataFrame) -> np.ndarray[Any, Any]:
    with model.eval_mode(), torch.no_grad():
        return model.score_frame(points).argmax(1).numpy()
