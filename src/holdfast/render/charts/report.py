"""The picture of a report: the mean of every metric with its interval."""

from typing import Any

import numpy as np
import pandas as pd

from holdfast._core.checks import optional
from holdfast.errors import SettingError
from holdfast.render.charts.theme import BLUE, INK, WIDTH, themed


def report_chart(table: pd.DataFrame, level: float, *, width: int = WIDTH) -> Any:
    """A line per metric of `Report.table`: a dot at its mean, a rule over its interval, each on its
    own scale, since metrics have different units."""
    alt = optional("altair", "plot")
    shown = table[np.isfinite(table["mean"])]
    if not len(shown):
        raise SettingError("nothing to draw: no metric has a value for any row")
    shown = shown.rename_axis("metric").reset_index()
    shown["figures"] = [
        f"{mean:.4g} ({low:.4g} to {high:.4g})"
        for mean, low, high in zip(shown["mean"], shown["low"], shown["high"], strict=True)
    ]
    x = alt.X("low:Q", title=None, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
    y = alt.Y("metric:N", title=None, axis=alt.Axis(domain=False, ticks=False, labelLimit=200))
    tips = ["metric:N", alt.Tooltip("figures:N", title=f"mean and {level:.0%} interval"), "rows:Q"]
    # One chart per metric: in a single one they would share the scale.
    panels = list[Any]()
    for i in range(len(shown)):
        base = alt.Chart(shown.iloc[[i]]).encode(y=y, tooltip=tips)
        interval = base.mark_rule(color=INK, strokeWidth=1.5).encode(x=x, x2="high:Q")
        mean = base.mark_circle(color=BLUE, size=60, opacity=1).encode(x="mean:Q")
        text = base.mark_text(align="left", color=INK, fontSize=12).encode(
            x=alt.value(width + 8), text="figures:N"
        )
        panels.append(alt.layer(interval, mean, text).properties(width=width, height=24))
    about = f"Dots: the mean of each metric. Rules: its {level:.0%} interval."
    return themed(
        alt.vconcat(*panels, spacing=6)
        .resolve_scale(x="independent", y="independent")
        .properties(description=about)
    )
