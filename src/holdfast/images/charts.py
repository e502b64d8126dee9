"""How many answers change so many pixels, or are so likely: bars in the look of the other
charts."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast._core.checks import optional
from holdfast.render.charts.theme import BLUE, WIDTH, themed

MOST_BARS = 24


def pixels_chart(pixels: NDArray[Any]) -> Any:
    """Answers by the number of pixels they change."""
    low = int(pixels.min())
    high = int(pixels.max())
    step = -(-(high - low + 1) // MOST_BARS)
    edges = np.arange(low, high + step + 1, step, dtype=np.float64)
    names = [
        f"{int(a)} pixels" if step == 1 else f"{int(a)} to {int(a) + step - 1} pixels"
        for a in edges[:-1]
    ]
    return _bars(pixels, edges, names, title="Pixels changed", shift=0.5)


def probability_chart(probability: NDArray[Any]) -> Any:
    """Answers by the probability of the wanted class."""
    low = math.floor(20 * float(probability.min()) + 1e-9) / 20
    edges = np.linspace(low, 1.0, max(1, round((1 - low) / 0.025)) + 1, dtype=np.float64)
    names = [f"{a:.1%} to {b:.1%}" for a, b in pairwise(edges.tolist())]
    return _bars(probability, edges, names, title="Probability of the wanted class", style="%")


def _bars(
    values: NDArray[Any],
    edges: NDArray[Any],
    names: list[str],
    *,
    title: str,
    style: str = "d",
    shift: float = 0.0,
) -> Any:
    """A bar per interval [a, b), the last one with its end."""
    alt = optional("altair", "plot")
    counts, _ = np.histogram(values, edges)
    table = pd.DataFrame(
        {"left": edges[:-1] - shift, "right": edges[1:] - shift, "answers": counts, "none": 0}
    )
    table["words"] = [
        f"{name}: {n:,} answer{'s' * (n != 1)}"
        for name, n in zip(names, counts.tolist(), strict=True)
    ]
    span = [float(edges[0]) - shift, float(edges[-1]) - shift]
    x = alt.X("left:Q", title=title, scale=alt.Scale(domain=span, nice=False, zero=False))
    x = x.axis(
        format=style, grid=False, tickCount=8, **({"tickMinStep": 1} if style == "d" else {})
    )
    y = alt.Y("answers:Q", title="Answers", axis=alt.Axis(tickCount=5, tickMinStep=1, format="~s"))
    chart = alt.Chart(table).mark_bar(color=BLUE, stroke="white", strokeWidth=1)
    chart = chart.encode(
        x=x, x2="right", y=y, y2="none", tooltip=["words:N"], description=alt.Description("words:N")
    )
    about = f"Histogram: answers by {title[:1].lower()}{title[1:]}."
    size = {"width": WIDTH, "height": 240, "autosize": {"type": "fit", "contains": "padding"}}
    return themed(chart.properties(description=about, **size))
