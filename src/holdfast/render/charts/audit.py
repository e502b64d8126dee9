"""Pictures of audits: survival against cost, invalidation per method and family, and where two
models disagree."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from holdfast._core.binomial import models_needed
from holdfast._core.checks import optional
from holdfast.errors import SettingError
from holdfast.render.charts.theme import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MOST_DOTS,
    ORANGE,
    RED,
    WIDTH,
    coloured,
    evenly,
    fitted,
    regions,
    row_names,
    themed,
    two_features,
    widened,
)

if TYPE_CHECKING:
    from holdfast.auditing.audit import Audit
    from holdfast.models.base import Model

GRID = 120  # cells per side of the map of two models
APART = "the models disagree"


def survival_cost(
    audit: "Audit",
    *,
    hold: float = 0.95,
    confidence: float = 0.95,
    norm: str = "l2",
    width: int = WIDTH,
) -> Any:
    """What answers cost against the share of retrained models that accept them; certified ones
    stand out."""
    alt = optional("altair", "plot")
    kinds = _kinds(audit, hold, confidence)
    dots = _dots(audit, list(kinds), norm, hold, confidence)
    colour = coloured("verdict", list(kinds), list(kinds.values()), labelLimit=WIDTH)
    title = {"anchor": "start", "offset": 12, "fontSize": 12, "fontWeight": "normal", "color": INK}
    title = alt.TitleParams(f"Accepted: {audit.asked}", **title)
    x = alt.X(
        "cost:Q",
        title="Cost" if norm == "weighted" else f"Cost ({norm}, encoded)",
        axis=alt.Axis(tickCount=6),
    )
    lowest = float(np.min([hold, *dots["survival"]]))
    # room below the lowest dot
    scale = alt.Scale(domain=[max(0.0, np.floor(10 * lowest - 0.5) / 10), 1])
    y = alt.Y("survival:Q", title="Judges that accept the answer", scale=scale).axis(
        format="%", tickCount=6
    )
    marks = alt.Chart(dots).mark_circle(size=28, opacity=0.55)
    level = alt.Chart(pd.DataFrame({"hold": [hold]}))
    line = level.mark_rule(strokeDash=[4, 4], color=INK, aria=False).encode(
        y=alt.Y("hold:Q", scale=scale)
    )
    tips = ["row:N", alt.Tooltip("cost:Q", format=".2f"), alt.Tooltip("survival:Q", format=".1%")]
    marks = marks.encode(
        x=x, y=y, color=colour, tooltip=tips, description=alt.Description("words:N")
    )
    about = (
        "Scatter plot: the cost of each answer against the share of retrained models that accept "
        "it."
    )
    size = {"width": width, "height": 340, "autosize": fitted("fit")}
    return themed((marks + line).properties(title=title, description=about, **size))


def _kinds(audit: "Audit", hold: float, confidence: float) -> dict[str, str]:
    """What a dot can stand for, and its colour."""
    if audit.too_few(hold=hold, confidence=confidence):
        return {f"no certificates: they need {models_needed(hold, confidence)} models": GREY}
    return {
        f"certified: at least {100 * hold:g}% of models, {100 * confidence:g}% sure": GREEN,
        "not certified": RED,
    }


def _dots(
    audit: "Audit", kinds: list[str], norm: str, hold: float, confidence: float
) -> pd.DataFrame:
    """One line per answer drawn."""
    cfs = audit.cfs
    shown = np.flatnonzero(cfs.answered)
    shown = shown[evenly(len(shown), MOST_DOTS)]
    verdict = np.full(len(shown), kinds[0], dtype=object)
    if len(kinds) > 1:
        certified = audit.certified(hold=hold, confidence=confidence).to_numpy()[shown]
        verdict = np.where(certified, *kinds)
    names = row_names(cfs.after.index[shown])
    cost = cfs.cost(norm).to_numpy()[shown]
    accepted = audit.held.sum(0)[shown].tolist()
    words = [
        f"Row {name}: cost {price:.2f}, accepted by {k} of {len(audit.held)} models."
        for name, price, k in zip(names, cost, accepted, strict=True)
    ]
    survival = audit.survival().to_numpy()[shown]
    return pd.DataFrame(
        {"row": names, "cost": cost, "survival": survival, "verdict": verdict, "words": words}
    )


def invalidation(audits: Mapping[str, "Audit"], *, width: int = WIDTH) -> Any:
    """The share of answers that a retraining breaks, per method and family, with its spread over
    models."""
    lines = [
        {
            "method": name,
            "family": family,
            "mean": mean,
            "low": max(0.0, mean - sd),
            "high": min(1.0, mean + sd),
        }
        for name, audit in audits.items()
        if audit.cfs.answered.any()
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
    y = alt.Y("method:N", sort=order, title=None, axis=alt.Axis(labelLimit=260))
    shift = alt.YOffset("family:N", sort=families)
    title = "Answers that a retraining breaks"
    x = alt.X("mean:Q", title=title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    colour = coloured("family", families, [BLUE, ORANGE, GREEN, RED, GREY])
    base = alt.Chart(table)
    bars = base.mark_bar().encode(x=x, y=y, yOffset=shift, color=colour)
    spread = base.mark_rule(color=INK).encode(
        x=alt.X("low:Q", title=title), x2="high:Q", y=y, yOffset=shift
    )
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
    """The decision regions of two models of two features; where they disagree is
    shaded.

    Args:
        first, second: models of the same two numeric features and classes.
        X, y: data to show.
        steps: rows with the columns `x`, `y`, `x_cf`, `y_cf`: arrows from questions to answers.
    """
    alt = optional("altair", "plot")
    names = two_features(first)
    # the regions reach a little further than the data
    a = X[names[0]].to_numpy(dtype=float)
    b = X[names[1]].to_numpy(dtype=float)
    spans = [widened(values, 0.1) for values in (a, b)]

    def region(points: pd.DataFrame) -> Any:
        says = [_classes(model, points) for model in (first, second)]
        return np.where(
            says[0] == says[1],
            np.array(list(map(str, first.classes)), dtype=object)[says[0]],
            APART,
        )

    cells = regions(names, spans, GRID, region).rename(columns={"kind": "region"})
    kinds = [*map(str, first.classes), APART]
    colour = coloured("region", kinds, [*[ORANGE, BLUE, GREEN, RED][: len(first.classes)], INK])
    scales = [alt.Scale(domain=list(span), nice=False) for span in spans]
    axes = [{"scale": scale, "title": name} for scale, name in zip(scales, names, strict=True)]
    shade = alt.Chart(cells).mark_rect(opacity=0.3, stroke=None)
    shade = shade.encode(
        x=alt.X("left:Q", **axes[0]),
        x2="right",
        y=alt.Y("bottom:Q", **axes[1]),
        y2="top",
        color=colour,
    )
    dots = pd.DataFrame({"a": a, "b": b, "region": y.astype(str).to_numpy()})
    dots = dots.iloc[evenly(len(dots), MOST_DOTS)]
    layers = [shade, alt.Chart(dots).mark_circle(size=16).encode(x="a:Q", y="b:Q", color=colour)]
    if steps is not None:
        moves = alt.Chart(steps).mark_rule(color=INK, strokeWidth=1.5)
        ends = alt.Chart(steps).mark_point(shape="diamond", filled=True, color=INK, size=40)
        layers += [
            moves.encode(x="x:Q", y="y:Q", x2="x_cf", y2="y_cf"),
            ends.encode(x="x_cf:Q", y="y_cf:Q"),
        ]
    return themed(alt.layer(*layers).properties(width=width, height=width))


def _classes(model: "Model", points: pd.DataFrame) -> np.ndarray[Any, Any]:
    with model.eval_mode(), torch.no_grad():
        return model.score_frame(points).argmax(1).numpy()
