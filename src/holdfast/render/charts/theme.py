"""Pictures of answers. They need the `plot` extra, and return Altair charts, which can be styled
further."""

import io
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast._core.checks import listed, optional
from holdfast._core.files import whole_file
from holdfast.errors import SettingError
from holdfast.render.sentences import headings, moves, sentences
from holdfast.target import BoundTarget, IntervalTarget

if TYPE_CHECKING:
    from holdfast.counterfactuals import Counterfactuals
    from holdfast.models.base import Model

EXTENSIONS = (".png", ".svg", ".html")
MOST_DOTS = 2000  # more hide each other, and make a page slow
MOST_BARS = 25

# From the palette of Okabe and Ito, whose colours people with any colour vision can tell apart.
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREY = "#999999"
GREEN = "#009E73"
RED = "#D55E00"
PINK = "#CC79A7"
SKY = "#56B4E9"
WAYS = {"raised": BLUE, "lowered": ORANGE, "switched": GREY}
INK = "#1f2933"
QUIET = "#52606d"
LINE = "#e4e7eb"
# Text is measured where the chart is made and drawn where it is read: these fonts have the same
# widths.
FONT = "Arial, Helvetica, 'Liberation Sans', sans-serif"
WIDTH = 478  # of the whole picture, labels included: half of the report's page
# of methods, models and the like, repeated as needed
COLOURS = [BLUE, ORANGE, GREEN, RED, PINK, SKY, GREY]
UNWANTED = (ORANGE, GREEN, RED, PINK, GREY)  # of classes that are not the wanted one
Span = tuple[float, float]
TAG = re.compile(r"<(?=[/!?]|script)", re.IGNORECASE)


def themed(chart: Any) -> Any:
    """The look of every chart; set on the chart, because an Altair theme would change the caller's
    charts too."""
    words = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": 12, "titleFontSize": 12}
    words |= {"labelColor": QUIET, "titleColor": INK, "titleFontWeight": 500}
    lines = {"gridColor": LINE, "domainColor": "#9aa5b1", "tickColor": "#9aa5b1"}
    axis = words | lines | {"titlePadding": 10, "labelFlush": False}
    legend = words | {
        "orient": "top",
        "title": None,
        "symbolType": "square",
        "padding": 0,
        "offset": 8,
    }
    styled = chart.configure(
        font=FONT, background="white", padding=6, view={"stroke": None}, axis=axis, legend=legend
    )
    kind = cast(type[Any], styled.__class__)
    object.__setattr__(styled, "__class__", _inert(kind))
    return styled


@cache
def _inert(kind: type[Any]) -> type[Any]:
    """A type of charts whose texts cannot leave the script of the page that they are put into:
    names of rows and columns may be anybody's."""

    def to_dict(self: Any, *args: Any, **settings: Any) -> Any:
        return _without_tags(kind.to_dict(self, *args, **settings))

    return type(kind.__name__, (kind,), {"to_dict": to_dict, "__module__": kind.__module__})


def _without_tags(value: Any) -> Any:
    """The same values, where no text closes a script or opens a comment: between "<" and what
    follows stands a joiner, which nobody sees."""
    if isinstance(value, str):
        return TAG.sub("<\N{WORD JOINER}", value)
    if isinstance(value, dict):
        some = cast(dict[Any, Any], value)
        return {_without_tags(name): _without_tags(part) for name, part in some.items()}
    if isinstance(value, list):
        return [_without_tags(part) for part in cast(list[Any], value)]
    return value


def coloured(
    field: str, names: Sequence[str], colours: Sequence[str] = COLOURS, **legend: Any
) -> Any:
    """A colour per name, repeated if there are more names."""
    alt = optional("altair", "plot")
    scale = alt.Scale(
        domain=list(names), range=[colours[i % len(colours)] for i in range(len(names))]
    )
    return alt.Color(f"{field}:N", scale=scale, legend=alt.Legend(title=None, **legend))


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """The places of at most this many of n rows, evenly spread, the same ones every time."""
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)


def widened(values: NDArray[Any], share: float) -> Span:
    """The range of the values and a share of it more on either side."""
    low = float(values.min())
    high = float(values.max())
    more = share * (high - low) or 1.0
    return low - more, high + more


def two_features(model: "Model") -> list[str]:
    """The names of the features that a map has for its axes."""
    names = model.schema.names
    good = len(names) == 2 and not any(f.is_category for f in model.schema.features)
    if not good:
        raise SettingError(f"a map needs exactly two numeric features, got {names}")
    return names


def regions(
    names: list[str], spans: Sequence[Span], cells: int, kind: Callable[[pd.DataFrame], Any]
) -> pd.DataFrame:
    """Rectangles of a map whose points have the same `kind`; neighbours in a column are one
    rectangle, as Altair takes no more than 5,000 of them."""
    across, up = spans
    wide = np.linspace(*across, cells + 1, dtype=np.float64)
    high = np.linspace(*up, cells + 1, dtype=np.float64)
    a = (wide[1:] + wide[:-1]) / 2
    b = (high[1:] + high[:-1]) / 2
    kinds = kind(
        pd.DataFrame({names[0]: np.repeat(a, cells), names[1]: np.tile(b, cells)})
    ).reshape(cells, cells)
    new = np.ones((cells, cells), dtype=bool)
    new[:, 1:] = kinds[:, 1:] != kinds[:, :-1]
    column, start = np.nonzero(new)
    end = np.append(start[1:], cells)
    end[np.append(column[1:] != column[:-1], True)] = cells
    edges = {
        "left": wide[column],
        "right": wide[column + 1],
        "bottom": high[start],
        "top": high[end],
    }
    return pd.DataFrame(edges | {"kind": kinds[column, start]})


def fitted(how: str) -> dict[str, str]:
    """The picture is as large as asked for, and the plot gets what its labels leave."""
    return {"type": how, "contains": "padding"}


def decision_level(goal: BoundTarget) -> float | None:
    """The probability from which the outcome counts as reached. With more than two classes, only a
    class wanted with a probability has one; behind a threshold, only a single class; a model that
    does not go by probabilities has none."""
    if goal.defers_to_predict or (goal.k > 2 and not (goal.soft and goal.is_lead)):
        return None
    levels: list[float] = (goal.least - goal.ahead).sigmoid().numpy().tolist()
    return levels[0] if len(set(levels)) == 1 else None


def cost_probability(cfs: "Counterfactuals", *, width: int = WIDTH, height: int = 340) -> Any:
    """What answers cost against how sure the model is of them, or what it estimates for them: one
    dot per answer."""
    alt = optional("altair", "plot")
    # Thousands of dots hide each other, and what a regression model says is a number, not a share.
    every = np.flatnonzero(cfs.found)
    shown = every[evenly(len(every), MOST_DOTS)]
    values = cfs.goal.value(cfs.scores).numpy()[shown]
    name, in_words, levels = _outcome(cfs.goal, values)
    dots = _dots(cfs, shown).assign(**{name: values})
    lines = zip(dots["row"], dots["sentence"], dots["cost"], in_words, strict=True)
    dots["words"] = [
        f"Row {row}: {sentence} Cost {cost:.2f}, {name} {value}."
        for row, sentence, cost, value in lines
    ]
    x = alt.X(
        "cost:Q",
        title="Cost (sum of encoded changes)",
        scale=alt.Scale(zero=True),
        axis=alt.Axis(tickCount=6),
    )
    if isinstance(cfs.goal, IntervalTarget):
        title = "The model's estimate"
        about = "the model's estimate"
        style = ",.6~g"
    else:
        title = "Probability of the wanted outcome"
        about = "the probability of the wanted outcome"
        style = ".1%"
    scale = _upward(alt, cfs.goal, [*levels.values(), *values])
    form = {"format": "%"} if name == "probability" else {}
    y = alt.Y(f"{name}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6, **form))
    tips = [alt.Tooltip("row:N"), alt.Tooltip("sentence:N"), alt.Tooltip("cost:Q", format=".2f")]
    tips.append(alt.Tooltip(f"{name}:Q", format=style))
    marks = alt.Chart(dots).mark_circle(size=46, opacity=0.6, color=BLUE)
    layers = [marks.encode(x=x, y=y, tooltip=tips, description=alt.Description("words:N"))]
    rules, words = _decision_rules(alt, levels, scale)
    layers = [*rules, *layers, *words]
    about = f"Scatter plot: the cost of each answer against {about}."
    size = {"width": width, "height": height, "autosize": fitted("fit")}
    return themed(alt.layer(*layers).properties(description=about, **size))


def _upward(alt: Any, goal: BoundTarget, values: list[float]) -> Any:
    """The vertical scale: of probabilities from a tenth below the lowest up to 1."""
    if isinstance(goal, IntervalTarget):
        return alt.Scale(zero=False)
    lowest = float(np.min([1.0, *values]))
    # room below the lowest dot
    return alt.Scale(domain=[max(0.0, np.floor(10 * lowest - 0.5) / 10), 1])


def _dots(cfs: "Counterfactuals", shown: NDArray[np.int64]) -> pd.DataFrame:
    """Name, sentence and cost of these answers."""
    return pd.DataFrame(
        {
            "row": row_names(cfs.after.index[shown]),
            "sentence": sentences(cfs).to_numpy()[shown],
            "cost": cfs.cost("l1").to_numpy()[shown],
        }
    )


def _decision_rules(alt: Any, levels: dict[str, float], scale: Any) -> tuple[list[Any], list[Any]]:
    """Lines at the levels where the outcome turns, the last one first, and their labels."""
    rules = list[Any]()
    texts = list[Any]()
    for words, level in levels.items():
        rule = alt.Chart(pd.DataFrame({"level": [level], "words": [words]}))
        rule = rule.encode(y=alt.Y("level:Q", scale=scale))
        rules.insert(0, rule.mark_rule(color=QUIET, strokeDash=[5, 4], aria=False))
        # On the side of the rule where no dot can lie: every answer is on the other side.
        side = -8 if words.startswith("at most") else 12
        text = rule.mark_text(align="right", dx=-4, dy=side, color=QUIET, fontSize=12, aria=False)
        texts.append(text.encode(x=alt.value("width"), text="words:N"))
    return rules, texts


def _outcome(goal: BoundTarget, values: Any) -> tuple[str, list[str], dict[str, float]]:
    """What the vertical axis shows: its name, the values as strings, and the levels where the
    outcome turns."""
    if isinstance(goal, IntervalTarget):
        ends = {"at least": goal.low, "at most": goal.high}
        levels = {
            f"{word} {goal.numbers([end])[0]}": end
            for word, end in ends.items()
            if np.isfinite(end)
        }
        return "estimate", goal.numbers(values.tolist()), levels
    level = decision_level(goal)
    levels = {} if level is None else {f"decision at {level:.0%}": level}
    return "probability", [f"{p:.1%}" for p in values], levels


def changed_features(cfs: "Counterfactuals", *, width: int = WIDTH) -> Any:
    """The share of the answers in which each feature is raised, lowered or switched to another
    value."""
    alt = optional("altair", "plot")
    bars, order = change_shares(cfs)
    bars["words"] = [
        f"{feature}: {way} in {share:.0%} of answers ({count:,})."
        for feature, way, count, share in bars[["feature", "way", "count", "share"]].itertuples(
            index=False, name=None
        )
    ]
    totals = bars.groupby("feature", as_index=False)["share"].sum()
    axis = alt.Axis(labelLimit=200, ticks=False, domain=False, labelPadding=8, labelColor=INK)
    y = alt.Y("feature:N", sort=order, title=None, axis=axis)
    most = float(totals["share"].max()) if len(totals) else 1.0
    # Room for the number behind the longest bar.
    x = alt.X(
        "share:Q", title="Share of answers", scale=alt.Scale(domain=[0, 1.12 * most], nice=False)
    )
    x = x.axis(format="%", tickCount=5)
    present = [w for w in WAYS if w in set(bars["way"])]
    colour = alt.Color("way:N", scale=alt.Scale(domain=present, range=[WAYS[w] for w in present]))
    tips = [
        alt.Tooltip("feature:N"),
        alt.Tooltip("way:N", title="change"),
        alt.Tooltip("count:Q", title="answers"),
    ]
    tips.append(alt.Tooltip("share:Q", format=".0%"))
    marks = {
        "color": colour,
        "order": "rank:Q",
        "tooltip": tips,
        "description": alt.Description("words:N"),
    }
    drawn = alt.Chart(bars).mark_bar(height={"band": 0.7}).encode(x=x, y=y, **marks)
    ends = alt.Chart(totals).mark_text(align="left", dx=5, color=QUIET, fontSize=12, aria=False)
    ends = ends.encode(x="share:Q", y=y, text=alt.Text("share:Q", format=".0%"))
    about = "Bar chart: in which share of the answers each feature changes, and which way."
    size = {"width": width, "height": {"step": 26}, "autosize": fitted("fit-x")}
    return themed(alt.layer(drawn, ends).properties(description=about, **size))


def change_shares(cfs: "Counterfactuals") -> tuple[pd.DataFrame, list[str]]:
    """For each feature and way of changing, the number and share of answers; and the features, most
    frequent first."""
    found = moves(cfs, cfs.found)
    answers = max(int(cfs.found.sum()), 1)
    names = headings([m.feature for m in found])
    by_count = sorted(zip(found, names, strict=True), key=lambda pair: -len(pair[0].rows))[
        :MOST_BARS
    ]
    lines = [
        (name, way, rank, count, count / answers)
        for m, name in by_count
        for rank, (way, sign) in enumerate(zip(WAYS, (1, -1, 0), strict=True))
        if (count := int((m.way == sign).sum()))
    ]
    columns = {"feature": str, "way": str, "rank": int, "count": int, "share": float}
    return pd.DataFrame(lines, columns=list(columns)).astype(columns), [
        name for _, name in by_count
    ]


def row_names(index: "pd.Index[Any]") -> list[str]:
    """Index labels of any type as strings."""
    labels: list[Any] = list(index)
    if isinstance(index, pd.MultiIndex):
        return [", ".join(str(part) for part in label) for label in labels]
    return [str(label) for label in labels]


def save(chart: Any, path: str | Path) -> Path:
    """Write a chart as .png, .svg, or a .html page that works offline."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in EXTENSIONS:
        raise SettingError(
            f"cannot write a chart to {path.name!r}; the name must end in one of "
            f"{listed(EXTENSIONS)}"
        )
    optional("vl_convert", "plot")
    more = {".html": {"inline": True}, ".png": {"ppi": 144}}.get(kind, {})
    # altair writes pictures as bytes and pages as text
    buffer = io.BytesIO() if kind == ".png" else io.StringIO()
    chart.save(buffer, format=kind[1:], **more)
    content = buffer.getvalue()
    with whole_file(path) as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def to_svg(chart: Any) -> str:
    """The chart as the text of an SVG picture."""
    optional("vl_convert", "plot")
    buffer = io.StringIO()
    chart.save(buffer, format="svg")
    return buffer.getvalue()
