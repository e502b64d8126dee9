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
    from holdfast.plans.frontier import Frontier

MOST_LINES = 200  # more hide each other


def frontier_chart(frontier: "Frontier", *, width: int = WIDTH) -> Any:
    """What a plan costs against how surely it holds: a thin line per person, a thick one for the
    median of those who can have such a plan, and how many they are."""
    alt = optional("altair", "plot")
    costs = frontier.costs()
    if not bool(costs.notna().any(axis=None)):
        raise SettingError("nothing to draw: nobody has a plan for any of the shares")
    names = [f"{100 * hold:g}%" for hold in frontier.holds]
    table = costs.set_axis(names, axis=1).set_axis(row_names(costs.index))
    shown = evenly(len(table), MOST_LINES)
    # room for the number above the dearest one
    top = float(np.nanmax(costs.to_numpy()))
    x = alt.X("hold:O", sort=names, title="Retrained models that are to accept a plan")
    x = x.axis(labelAngle=0, grid=False)
    y = alt.Y(
        "cost:Q",
        title="Cost",
        scale=alt.Scale(domain=[0, 1.12 * top], nice=False),
    )
    layers = [
        _thin(_lines(table.iloc[shown], shown.tolist()), x, y),
        *_thick(_middle(table, names), x, y),
    ]
    some = f", {len(shown)} of {len(table):,} shown" if len(shown) < len(table) else ""
    words = (
        f"One thin line per person{some}; the thick one is the median. On top: who can have such "
        "a plan."
    )
    title = alt.TitleParams(words, anchor="start", fontSize=12, fontWeight="normal", color=INK)
    about = "Lines: what a plan costs at each share of retrained models that are to accept it."
    size = {"width": width, "height": 340, "autosize": fitted("fit")}
    return themed(alt.layer(*layers).properties(title=title, description=about, **size))


def _middle(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """One row per share: the median cost, who can reach it, and both in words."""
    cost = table.median().to_numpy()
    reached = [f"{int(n):,} of {len(table):,}" for n in table.notna().sum()]
    words = [
        f"{hold}: median cost {price:.2f}, reached by {who} people."
        for hold, price, who in zip(names, cost, reached, strict=True)
    ]
    return pd.DataFrame({"hold": names, "cost": cost, "reached": reached, "words": words})


def _thin(lines: pd.DataFrame, x: Any, y: Any) -> Any:
    """A line for each person."""
    alt = optional("altair", "plot")
    dots = {"size": 10, "opacity": 0.35, "color": GREY}  # a single point has no line
    thin = alt.Chart(lines).mark_line(strokeWidth=1, opacity=0.35, color=GREY, point=dots)
    tips = [alt.Tooltip("person:N"), alt.Tooltip("hold:O"), alt.Tooltip("cost:Q", format=".2f")]
    return thin.encode(
        x=x, y=y, detail="place:N", tooltip=tips, description=alt.Description("words:N")
    )


def _thick(middle: pd.DataFrame, x: Any, y: Any) -> list[Any]:
    """The median as line, dots and numbers, and above it how many can reach each share."""
    alt = optional("altair", "plot")
    base = alt.Chart(middle.dropna()).encode(x=x, y=y, description=alt.Description("words:N"))
    tips = [
        alt.Tooltip("hold:O"),
        alt.Tooltip("cost:Q", format=".2f", title="median cost"),
        alt.Tooltip("reached:N"),
    ]
    line = base.mark_line(strokeWidth=3, color=BLUE, aria=False)
    ends = base.mark_circle(size=70, color=BLUE, opacity=1).encode(tooltip=tips)
    label = base.mark_text(dy=-12, color=INK, fontSize=12, fontWeight=600, aria=False)
    counts = alt.Chart(middle).mark_text(baseline="top", color=QUIET, fontSize=12, aria=False)
    counts = counts.encode(x=x, y=alt.value(2), text="reached:N")
    return [line, ends, label.encode(text=alt.Text("cost:Q", format=".2f")), counts]


def _lines(table: pd.DataFrame, places: list[int]) -> pd.DataFrame:
    """One row per person and share the person can reach; people of the same name are told apart by
    place."""
    tall = (
        table.set_axis(pd.Index(places, name="place"))
        .reset_index()
        .melt("place", var_name="hold", value_name="cost")
    )
    tall = tall.dropna().reset_index(drop=True)
    tall["person"] = tall["place"].map(dict(zip(places, table.index, strict=True)))
    tall["words"] = [
        f"Person {person}: cost {cost:.2f} at {hold}."
        for person, cost, hold in zip(tall["person"], tall["cost"], tall["hold"], strict=True)
    ]
    return tall
