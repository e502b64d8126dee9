"""The page of Krishna et al. 2024: verdicts first, then the figures."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from experiments.experiment import Figures, Pictures, Results
from experiments.krishna2024.claims import CLAIMS, numbers, tally, verdicts
from experiments.tables import section, table
from holdfast.render.charts.shift import validity_heatmap
from holdfast.render.charts.tradeoff import bounds_chart, neighbourhood_chart, tradeoff_chart

ATTACK = 0.1  # radius of the attack on accuracy
MARKED = {"no": "**no**"}
OF_MODELS = {  # against epsilon
    "accuracy": "accuracy",
    "accuracy sd": "its sd over the networks",
    "attacked": f"accuracy under PGD of {ATTACK:g}",
    "attacked sd": "its sd over the networks",
    "slope": "length of the gradient",
    "nearby": "neighbours with the other outcome",
    "nearby, all rows": "the same, with rows that have it already",
}
OF_METHODS = {
    "validity": "validity",
    "validity sd": "sd of validity over the networks",
    "validity, twice the budget": "validity, twice the budget",
    "cost": "cost (l2)",
    "cost of attempts": "cost with attempts that fail",
    "extra cost": "more expensive by",
    "survives": "survives retraining",
    "noise": "invalidated by noise",
}


def page(results: Results) -> list[str]:
    asked = ", ".join(f"{r['title']} {r['rows']['asked']}" for r in results)
    lines = [
        "The paper has figures and no tables: trends can be compared, sizes cannot. Rows that are "
        f"asked about:\n{asked}.",
        "",
    ]
    rows = [
        [
            f"{number}. {claim}",
            r["title"],
            line["model"],
            MARKED.get(line["holds"], line["holds"]),
            line["statistic"],
        ]
        for number, claim in CLAIMS.items()
        for r in results
        for line in verdicts(r)
        if line["claim"] == number
    ]
    lines += section(
        "## Claims",
        table(["claim", "holds in"], tally(results).items()),
        table(["claim", "dataset", "model", "holds", "measured"], rows),
    )
    for r in results:
        for kind, curve in r["curves"].items():
            rows = [[name, *_cells(curve[key])] for key, name in OF_MODELS.items()]
            for key, name in OF_METHODS.items():
                pairs = zip(r["methods"], curve[key], strict=True)
                rows += [[f"{name}: {method}", *_cells(values)] for method, values in pairs]
            lines += section(
                f"## {r['title']}: {kind}",
                table(["", *(f"{e:g}" for e in r["epsilon"])], rows),
                f"Recommended epsilon: {curve['recommended']:g}.",
            )
        for what in ("linear bounds", "ntk bounds", "vae bounds"):
            rows = [_cells(line.values()) for line in r[what]]
            lines += section(f"### {r['title']}: {what}", table(r[what][0], rows))
    return lines


def _cells(values: Any) -> list[str]:
    return ["-" if v is None else f"{v:.3g}" for v in values]


def pictures(results: Results) -> Pictures:
    """For each dataset the curves of both kinds of models, differences of costs beside their
    bounds, and for networks answers on models of other epsilons, and what is granted around one
    row."""
    drawn = {
        "logistic": partial(_tradeoff, kind="logistic regression"),
        "network": partial(_tradeoff, kind="network"),
        "bounds": _bounds,
        "crossing": _crossing,
        "around": _around,
    }
    return {
        f"{r['dataset']}-{part}.svg": partial(draw, r)
        for r in results
        for part, draw in drawn.items()
    }


def _tradeoff(r: Figures, *, kind: str) -> Any:
    curve = r["curves"][kind]
    parts = list[pd.DataFrame]()
    models = {
        "accuracy": numbers(curve["accuracy"]),
        "attacked accuracy": numbers(curve["attacked"]),
    }
    for i, name in enumerate(r["methods"]):
        columns = {
            key: numbers(curve[key])[i] for key in ("validity", "cost", "extra cost", "survives")
        }
        parts.append(pd.DataFrame({"method": name, "epsilon": r["epsilon"], **columns, **models}))
    return tradeoff_chart(pd.concat(parts, ignore_index=True), curve["recommended"], ATTACK)


def _bounds(r: Figures) -> Any:
    boxes = [
        pd.DataFrame(rows, columns=["difference", "bound"]).assign(case=c)
        for c, rows in r["shown"].items()
    ]
    return bounds_chart(pd.concat(boxes, ignore_index=True))


def _crossing(r: Figures) -> Any:
    return validity_heatmap(
        numbers(r["curves"]["network"]["crossing"]), [f"{e:g}" for e in r["epsilon"]]
    )


def _around(r: Figures) -> Any:
    a, b = numbers(r["place"])
    parts = [
        pd.DataFrame(
            {
                "a": a,
                "b": b,
                "epsilon": e,
                "granted": np.array([*marks]) == "1",
                "asked": np.arange(len(a)) == 0,
            }
        )
        for e, marks in zip(r["epsilon"], r["granted"], strict=True)
    ]
    return neighbourhood_chart(pd.concat(parts, ignore_index=True))
