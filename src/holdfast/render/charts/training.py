"""Pictures of counterfactual training: how training went."""

from typing import Any

import pandas as pd

from holdfast._core.checks import listed, optional
from holdfast.errors import SettingError
from holdfast.render.charts.theme import WIDTH, coloured, themed

CURVES = {
    "accuracy": "Training accuracy",
    "validation": "Validation accuracy",
    "divergence": "Divergence",
    "ridge": "Ridge on energies",
    "adversarial": "Adversarial loss",
    "matured": "Counterfactuals that mature",
}
SHARES = ("accuracy", "validation", "matured")


def training_curves(history: pd.DataFrame, *, width: int = WIDTH) -> Any:
    """Accuracy, the terms of the objective, and the share of mature counterfactuals against the
    epoch.

    Args:
        history: columns `epoch` and some of `accuracy`, `validation`, `divergence`, `ridge`,
            `adversarial` and `matured`; with `variant`, one line each, means over whatever else
            there is, such as seeds.
    """
    alt = optional("altair", "plot")
    there = [name for name in CURVES if name in history.columns and history[name].notna().any()]
    if "epoch" not in history.columns or not there:
        columns = list(history.columns)
        raise SettingError(
            f"the history needs a column 'epoch' and some of {listed(CURVES)}, got {columns}"
        )
    table = history if "variant" in history.columns else history.assign(variant="model")
    table = table.groupby(["variant", "epoch"], sort=False)[there].mean().reset_index()
    table["variant"] = table["variant"].astype(str)
    variants = list(dict.fromkeys(table["variant"]))
    colour = coloured("variant", variants, symbolType="stroke")
    colour = colour if len(variants) > 1 else colour.legend(None)
    charts = [_curve(alt, table, name, colour, width // 2) for name in there]
    rows = [alt.hconcat(*charts[i : i + 2], spacing=24) for i in range(0, len(charts), 2)]
    about = (
        "Line charts against the epoch: " + ", ".join(CURVES[name].lower() for name in there) + "."
    )
    return themed(alt.vconcat(*rows, spacing=20).properties(description=about))


def _curve(alt: Any, table: pd.DataFrame, name: str, colour: Any, width: int) -> Any:
    """One column of the history against the epoch, a line per variant."""
    limits = alt.Scale(domain=[0, 1]) if name == "matured" else alt.Scale(zero=False)
    axis = {"format": "%" if name in SHARES else "~g", "tickCount": 5}
    shown = table[["variant", "epoch", name]].rename(columns={name: "value"}).dropna()
    line = alt.Chart(shown).mark_line(strokeWidth=1.5)
    chart = line.encode(
        x=alt.X(
            "epoch:Q",
            title="Epoch",
            scale=alt.Scale(nice=False),
            axis=alt.Axis(tickCount=5, tickMinStep=1),
        ),
        y=alt.Y("value:Q", title=CURVES[name], scale=limits).axis(**axis),
        color=colour,
        tooltip=[
            "variant:N",
            "epoch:Q",
            alt.Tooltip("value:Q", format=".4f", title=CURVES[name]),
        ],
    )
    return chart.properties(width=width, height=150)
