"""Pictures of what hardening costs: curves against epsilon, cost differences beside their bounds, a
neighbourhood."""

from typing import Any

import numpy as np
import pandas as pd

from holdfast._core.checks import optional
from holdfast.errors import SettingError
from holdfast.render.charts.theme import COLOURS, GREY, INK, WIDTH, coloured, themed

PANELS = {
    "validity": ("Rows with an answer", "%"),
    "cost": ("Cost of an answer (l2)", ".2f"),
    "extra cost": ("More expensive than at the least epsilon", ".2f"),
    "survives": ("Answers that survive retraining", "%"),
    "accuracy": ("Accuracy", "%"),
    "attacked accuracy": ("Accuracy under attack", "%"),
}
OF_MODELS = ("accuracy", "attacked accuracy")  # the same for every method


def tradeoff_chart(
    table: pd.DataFrame, recommended: float | None, attack: float, *, width: int = WIDTH
) -> Any:
    """Small charts of `Tradeoff.table` against epsilon, one line per method, and a rule where to
    stop; `attack` is the radius of the attacked accuracy."""
    alt = optional("altair", "plot")
    if not len(table):
        raise SettingError("nothing to draw: the table is empty")
    methods = list(dict.fromkeys(table["method"]))
    charts = list[Any]()
    for column, (title, form) in PANELS.items():
        if not table[column].notna().any():
            continue
        shown = table[["method", "epsilon", column]].rename(columns={column: "value"}).dropna()
        if column in OF_MODELS:
            shown = shown.drop_duplicates("epsilon").assign(method="model")
        if column == "attacked accuracy":
            title = f"{title} (PGD, {attack:g})"
        charts.append(_panel(alt, shown, title, form, methods, recommended, width // 2))
    rows = [alt.hconcat(*charts[i : i + 2], spacing=24) for i in range(0, len(charts), 2)]
    about = (
        "Charts against epsilon: rows with an answer, cost, survival, accuracy and attacked "
        "accuracy."
    )
    return themed(alt.vconcat(*rows, spacing=24).properties(description=about))


def _panel(
    alt: Any,
    shown: pd.DataFrame,
    title: str,
    form: str,
    methods: list[str],
    mark: float | None,
    width: int,
) -> Any:
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(methods))]
    colour = coloured("method", [*methods, "model"], [*colours, INK], values=methods)
    domain = [0, 1] if form == "%" else alt.Undefined
    x = alt.X("epsilon:Q", title="epsilon", axis=alt.Axis(tickCount=5))
    y = alt.Y("value:Q", title=title, scale=alt.Scale(domain=domain, zero=False)).axis(
        format=form, tickCount=5
    )
    tips = ["method:N", "epsilon:Q", alt.Tooltip("value:Q", format=".3f", title=title)]
    line = alt.Chart(shown).mark_line(point=True, strokeWidth=1.5)
    chart = line.encode(x=x, y=y, color=colour, tooltip=tips)
    if mark is not None:
        rule = alt.Chart(pd.DataFrame({"epsilon": [mark]})).mark_rule(
            color=GREY, strokeDash=[4, 3], strokeWidth=1.5
        )
        chart = rule.encode(x="epsilon:Q", tooltip=alt.value(f"recommended: {mark:g}")) + chart
    return chart.properties(width=width, height=180)


def bounds_chart(rows: pd.DataFrame, *, width: int = WIDTH) -> Any:
    """Cost differences of single rows, as boxes, beside what bounds them from both sides: columns
    `case` (what is compared, such as an epsilon), `difference`, and `bound`; an infinite bound says
    nothing and is not drawn."""
    alt = optional("altair", "plot")
    if not len(rows):
        raise SettingError("nothing to draw: the table is empty")
    known = rows[np.isfinite(rows["bound"])]
    parts = [rows.assign(kind="difference", value=rows["difference"])]
    parts += [
        known.assign(kind=f"{side} bound", value=s * known["bound"])
        for side, s in (("upper", 1), ("lower", -1))
    ]
    tidy = pd.concat(parts)[["case", "kind", "value"]]
    kinds = ["lower bound", "difference", "upper bound"]
    colour = coloured("kind", kinds, [GREY, COLOURS[0], GREY])
    x = alt.X("case:N", title=None, sort=None, axis=alt.Axis(labelAngle=0))
    chart = alt.Chart(tidy).mark_boxplot(extent="min-max", size=14)
    offset = alt.XOffset("kind:N", sort=kinds)
    chart = chart.encode(
        x=x, xOffset=offset, y=alt.Y("value:Q", title="Difference of costs (l2)"), color=colour
    )
    about = "Boxes: differences of costs between hardened and plain models, between their bounds."
    return themed(chart.properties(width=width, height=300, description=about))


def neighbourhood_chart(points: pd.DataFrame, *, width: int = WIDTH) -> Any:
    """Rows in two dimensions, coloured by whether the model of each epsilon grants them what is
    wanted: columns `a`, `b` (coordinates), `epsilon`, `granted` (bool) and `asked` (bool: the row
    in question)."""
    alt = optional("altair", "plot")
    if not len(points):
        raise SettingError("nothing to draw: the table is empty")
    blank = alt.Axis(labels=False, ticks=False, domain=False, grid=False, title=None)
    words = points.assign(granted=np.where(points["granted"], "granted", "refused"))
    colour = coloured("granted", ["granted", "refused"])
    place = {"x": alt.X("a:Q", axis=blank), "y": alt.Y("b:Q", axis=blank)}
    dots = alt.Chart(words).transform_filter("!datum.asked").mark_circle(size=14, opacity=0.6)
    star = (
        alt.Chart(words)
        .transform_filter("datum.asked")
        .mark_point(shape="cross", size=90, filled=True, color=INK)
    )
    layered = dots.encode(color=colour, **place) + star.encode(**place)
    layered = layered.properties(width=width // 3, height=width // 3)
    about = (
        "Dots: neighbours of one row, coloured by what the model of each epsilon says about them."
    )
    return themed(
        layered.facet(alt.Facet("epsilon:N", title="epsilon"), columns=3).properties(
            description=about
        )
    )
