"""A picture of what certainty costs: one line per person, and one for the median."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from holdfast._core.checks import optional
from holdfast.errors import SettingError
from holdfast.render.charts.theme import (
    BLUE,
    GREY,
    INK,
    QUIET,
    WIDTH,
    evenly,
    fitted,
    row_names,
    themed,
)

if TYPE_CHECKING:
    from holdfast.frontier import Frontier

MOST_LINES = 200  # more hide each other


def frontier_chart(frontier: "Frontier", *, width: int = WIDTH) -> Any:
    """What a plan costs against how surely it holds: a thin line per person, a thick one for the
    median of those who can have such a plan, and how many can."""
    alt = optional("altair", "plot")
    costs = frontier.costs()
    if not bool(costs.notna().any(axis=None)):
        raise SettingError("nothing to draw: nobody has a plan at any of the levels")
    names = [f"{100 * level:g}%" for level in frontier.levels]
    table = costs.set_axis(names, axis=1).set_axis(row_names(costs.index))
    shown = evenly(len(table), MOST_LINES)
    lines = _lines(table.iloc[shown], shown.tolist())
    middle = pd.DataFrame(
        {
            "level": names,
            "cost": table.median().to_numpy(),
            "reached": [f"{int(n):,} of {len(table):,}" for n in table.notna().sum()],
        }
    )
    middle["words"] = [
        f"{level}: median cost {cost:.2f}, reached by {reached} people."
        for level, cost, reached in zip(
            middle["level"], middle["cost"], middle["reached"], strict=True
        )
    ]
    top = float(np.nanmax(costs.to_numpy()))
    x = alt.X("level:O", sort=names, title="Retrained models that are to accept a plan")
    x = x.axis(labelAngle=0, grid=False)
    y = alt.Y(
        "cost:Q",
        title="Cost",
        scale=alt.Scale(domain=[0, 1.12 * top], nice=False),
    )
    dots = {"size": 10, "opacity": 0.35, "color": GREY}  # who reaches one level only has no line
    thin = alt.Chart(lines).mark_line(strokeWidth=1, opacity=0.35, color=GREY, point=dots)
    tips = [alt.Tooltip("person:N"), alt.Tooltip("level:O"), alt.Tooltip("cost:Q", format=".2f")]
    thin = thin.encode(
        x=x, y=y, detail="place:N", tooltip=tips, description=alt.Description("words:N")
    )
    thick = alt.Chart(middle.dropna()).encode(x=x, y=y, description=alt.Description("words:N"))
    tips = [
        alt.Tooltip("level:O"),
        alt.Tooltip("cost:Q", format=".2f", title="median cost"),
        alt.Tooltip("reached:N"),
    ]
    line = thick.mark_line(strokeWidth=3, color=BLUE, aria=False)
    ends = thick.mark_circle(size=70, color=BLUE, opacity=1).encode(tooltip=tips)
    label = thick.mark_text(dy=-12, color=INK, fontSize=12, fontWeight=600, aria=False)
    counts = alt.Chart(middle).mark_text(baseline="top", color=QUIET, fontSize=12, aria=False)
    counts = counts.encode(x=x, y=alt.value(2), text="reached:N")
    chart = alt.layer(thin, line, ends, label.encode(text=alt.Text("cost:Q", format=".2f")), counts)
    shown_words = f", {len(shown)} of {len(table):,} shown" if len(shown) < len(table) else ""
    words = (
        f"One thin line per person{shown_words}; the thick one is the median. On top: who can "
        "have such a plan."
    )
    title = alt.TitleParams(words, anchor="start", fontSize=12, fontWeight="normal", color=INK)
    about = "Lines: what a plan costs at each share of retrained models that are to accept it."
    size = {"width": width, "height": 340, "autosize": fitted("fit")}
    return themed(chart.properties(title=title, description=about, **size))


def _lines(table: pd.DataFrame, places: list[int]) -> pd.DataFrame:
    """One row per person and level that the person can reach: people of the same name stay apart by
    their place."""
    tall = (
        table.set_axis(pd.Index(places, name="place"))
        .reset_index()
        .melt("place", var_name="level", value_name="cost")
    )
    tall = tall.dropna().reset_index(drop=True)
    tall["person"] = tall["place"].map(dict(zip(places, table.index, strict=True)))
    tall["words"] = [
        f"Person {person}: cost {cost:.2f} at {level}."
        for person, cost, level in zip(tall["person"], tall["cost"], tall["level"], strict=True)
    ]
    return tall
