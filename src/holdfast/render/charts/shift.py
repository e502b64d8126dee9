"""Pictures of shifts: who accepts whose answers, what robustness costs, and how it fares under
attack.

Tables are tidy: one line per method and point. Columns that a picture does not name are ignored.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from holdfast._core.checks import listed, optional
from holdfast.errors import SettingError
from holdfast.render.charts.theme import BLUE, INK, WIDTH, coloured, themed

PALE = "#f1f5f9"  # nothing holds
MOST_NUMBERS = 12  # subsets; the cells of more have no room for numbers


def validity_heatmap(matrix: Any, names: Sequence[Any], *, width: int = WIDTH) -> Any:
    """Answers of each of k subsets (down) on the models of each (across): the shares (k, k) that
    hold."""
    alt = optional("altair", "plot")
    shares = np.asarray(matrix, dtype=np.float64)
    order = [str(name) for name in names]
    k = len(order)
    if not (k and shares.shape == (k, k)):
        raise SettingError(
            f"a heat-map of {k} subsets needs a matrix of {k} by {k}, got {shares.shape}"
        )
    cells = pd.DataFrame(
        {"answers": np.repeat(order, k), "models": np.tile(order, k), "validity": shares.ravel()}
    )
    cells["words"] = [
        f"Answers of {answers} on models of {models}: {share:.1%}."
        for answers, models, share in cells.itertuples(index=False, name=None)
    ]
    few = k <= MOST_NUMBERS  # numbers in cells and level names have room
    bare = {"domain": False, "ticks": False}
    across = alt.Axis(labelAngle=0 if few else -90, labelLimit=width // k if few else 120, **bare)
    x = alt.X("models:N", sort=order, title="Models of", axis=across)
    y = alt.Y("answers:N", sort=order, title="Answers of", axis=alt.Axis(labelLimit=120, **bare))
    scale = alt.Scale(domain=[0, 1], range=[PALE, BLUE])
    colour = alt.Color("validity:Q", scale=scale, legend=alt.Legend(format="%", values=[0, 0.5, 1]))
    tips = [
        alt.Tooltip("answers:N"),
        alt.Tooltip("models:N"),
        alt.Tooltip("validity:Q", format=".1%"),
    ]
    base = alt.Chart(cells).encode(x=x, y=y)
    chart = base.mark_rect().encode(
        color=colour, tooltip=tips, description=alt.Description("words:N")
    )
    if few:
        ink = alt.condition("datum.validity > 0.85", alt.value("white"), alt.value(INK))
        chart += base.mark_text(fontSize=12, aria=False).encode(
            text=alt.Text("validity:Q", format=".0%"), color=ink
        )
    about = "Heat-map: the share of answers of each subset that models of each subset accept."
    return themed(chart.properties(width=width, height=width, description=about))


def pareto(table: pd.DataFrame, *, title: str = "Robust validity", width: int = WIDTH) -> Any:
    """What validity costs: one line per method, one dot per setting of it.

    Args:
        table: columns `method`, `cost`, `validity` (a share), and optionally `setting`: dots are
            joined in the order of its numbers, or without it in that of the costs.
        title: which validity it is.
    """
    alt = optional("altair", "plot")
    order = "setting" if "setting" in table.columns else "cost"
    table = _tidy(
        table, ["method", "cost", "validity", *(["setting"] if order == "setting" else [])]
    )
    x = alt.X(
        "cost:Q",
        title="Cost (l1, encoded)",
        scale=alt.Scale(zero=False),
        axis=alt.Axis(tickCount=6),
    )
    base = alt.Chart(table).encode(x=x, y=_share(alt, "validity", title), color=_colour(table))
    tips = [
        "method:N",
        alt.Tooltip("cost:Q", format=".3f"),
        alt.Tooltip("validity:Q", format=".1%"),
    ]
    tips += ["setting:Q"] if order == "setting" else []
    chart = base.mark_line(strokeWidth=1.5).encode(order=f"{order}:Q") + base.mark_circle(
        size=50
    ).encode(tooltip=tips)
    about = f"Line chart: cost against {title.lower()}, one line per method."
    return themed(chart.properties(width=width, height=340, description=about))


def strength(
    table: pd.DataFrame,
    *,
    title: str = "Steps of the attack (T)",
    log: bool = False,
    width: int = WIDTH,
) -> Any:
    """Validity under attack against the strength of the attack: one line per method, its spread as
    a band.

    The table has the columns `method`, `strength` (T or E), `mean` (a share) and `sd`; a
    logarithmic axis is for strengths above 0 that differ by powers of ten.
    """
    return _curves(table, "strength", title, "Validity under attack", log=log, width=width)


def data_size(
    table: pd.DataFrame, *, title: str = "Robust validity", log: bool = False, width: int = WIDTH
) -> Any:
    """Validity against the share of the training rows used: one line per method, its spread as a
    band.

    The table has the columns `method`, `share` (of the rows, up to 1), `mean` (a share) and `sd`.
    """
    return _curves(table, "share", "Training rows used", title, log=log, width=width, form="%")


def _curves(
    table: pd.DataFrame,
    by: str,
    across: str,
    up: str,
    *,
    log: bool,
    width: int,
    form: str | None = None,
) -> Any:
    alt = optional("altair", "plot")
    table = _tidy(table, ["method", by, "mean", "sd"])
    positive = not log or (table[by] > 0).all()
    if not positive:
        raise SettingError(
            f"a logarithmic axis needs values above 0; the column {by!r} has {table[by].min():g}"
        )
    # a single model has none
    mean = table["mean"]
    sd = table["sd"].fillna(0.0)
    table = table.assign(low=(mean - sd).clip(lower=0.0), high=(mean + sd).clip(upper=1.0))
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False, nice=False)
    axis = {"tickCount": 6} | ({} if form is None else {"format": form})
    x = alt.X(f"{by}:Q", title=across, scale=scale, axis=alt.Axis(**axis))
    base = alt.Chart(table).encode(x=x, color=_colour(table))
    band = base.mark_area(opacity=0.18, aria=False).encode(y=_share(alt, "low", up), y2="high:Q")
    tips = [
        "method:N",
        f"{by}:Q",
        alt.Tooltip("mean:Q", format=".1%"),
        alt.Tooltip("sd:Q", format=".3f"),
    ]
    line = base.mark_line(point=True, strokeWidth=1.5).encode(
        y=_share(alt, "mean", up), tooltip=tips
    )
    about = f"Line chart: {across.lower()} against {up.lower()}, one line per method."
    return themed((band + line).properties(width=width, height=340, description=about))


def _tidy(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """A copy of these columns of the table, or an error if one is missing or there is nothing to
    draw."""
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise SettingError(f"the table has no column {listed(missing)}; it needs {listed(columns)}")
    if not len(table):
        raise SettingError("nothing to draw: the table is empty")
    return table[columns].assign(method=table["method"].astype(str))


def _share(alt: Any, column: str, title: str) -> Any:
    scale = alt.Scale(domain=[0, 1])
    return alt.Y(f"{column}:Q", title=title, scale=scale, axis=alt.Axis(format="%", tickCount=6))


def _colour(table: pd.DataFrame) -> Any:
    """A colour per method, in the order of the table; less pale in the legend than a band."""
    return coloured(
        "method", list(dict.fromkeys(table["method"])), symbolOpacity=1, labelLimit=WIDTH
    )
