"""The tables and curves of Guo et al. 2023 as markdown: measured, and the paper's figure in
brackets."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from experiments.experiment import Figures, Pictures, Results
from experiments.guo2023.setup import AUTHORS, KEPT, OURS, TITLES, UNATTACKED
from experiments.tables import cell, section, table
from holdfast.render.charts.shift import data_size, pareto, strength, validity_heatmap

INTRO = (
    "Measured, and in brackets what the paper reports; mean ± standard deviation. First "
    "with the numbers that\n"
    "networks propose as they are, as in the paper; then kept inside the range of the data, "
    "which is what a\n"
    "person can hand in and what `recourse` returns. Methods that search keep inside it in "
    "both. The paper's\n"
    "RoCourseNet stands beside the paper's algorithm; RoCourseNet (ours) is another "
    "training (see notes)."
)
TABLES = {
    "robust validity": "Robust validity: answers that the networks of other subsets accept",
    "validity": "Validity: answers that the network they were made for accepts",
    "proximity": "Proximity: l1 distance between row and answer, another category counts 2",
}
FREE = "numbers not clamped"
BRIEF = (OURS, UNATTACKED, KEPT, "CounterNet", "VanillaCF", "ROAR-LIME", "RBR")


def page(results: Results) -> list[str]:
    lines = [INTRO, ""]
    for figure, title in TABLES.items():
        lines += section(f"## {title}", _table(results, figure, free=True))
        lines += section(
            f"## {title}, inside the range of the data", _table(results, figure, free=False)
        )
    rows = list[list[str]]()
    for r in results:
        for label, row in r["prediction"].items():
            reported = r["reported"].get("prediction", {}).get(_paper_name(label), {})
            rows.append(
                [
                    r["dataset"],
                    _title(label),
                    *(cell(row[k], reported.get(k), 3) for k in ("accuracy", "auc")),
                ]
            )
    lines += section(
        "## Prediction", table(["dataset", "network", "accuracy", "area under the curve"], rows)
    )
    lines += section(
        "## Processor seconds of training, all subsets and repeats together; milliseconds per "
        "answer",
        table(
            ["dataset", "method", "training", "per answer"],
            [_times(r, m) for r in results for m in r["measured"]],
        ),
    )
    return [*lines, *(line for r in results if r["curves"] for line in _curves(r))]


def _table(results: Results, figure: str, *, free: bool) -> list[str]:
    """One figure of every method on every dataset; of the paper where numbers are as networks
    propose them."""
    rows = list[list[object]]()
    for label in dict.fromkeys(label for r in results for label in r["measured"]):
        cells = list[str]()
        for r in results:
            row = r["measured"].get(label)
            reported = r["reported"]["tables"].get(_paper_name(label), {})
            cells.append(
                cell(
                    row and (row[FREE] if free else row)[figure],
                    reported.get(figure) if free else None,
                    3,
                )
            )
        rows.append([_title(label), *cells])
    if figure == "proximity":
        rows.append(
            [
                "*farthest that rows inside the range can be apart*",
                *(r["farthest"] for r in results),
            ]
        )
    return table(["method", *(r["dataset"] for r in results)], rows)


def _times(r: Figures, label: str) -> list[str]:
    """Of training and of an answer; the paper's as it prints them."""
    training = cell(r["training"].get(label), digits=0), f"{r['per answer'][label]:.3f}"
    reported = [
        r["reported"].get(key, {}).get(_paper_name(label)) for key in ("training", "per answer")
    ]
    pairs = zip(training, reported, strict=True)
    return [
        r["dataset"],
        _title(label),
        *(ours if paper is None else f"{ours} ({paper})" for ours, paper in pairs),
    ]


def brief(results: Results) -> list[list[str]]:
    """Rows of the shortest table: robust validity / proximity on each dataset, and in brackets what
    the paper reports of the same method; last, what proximity can be at most without leaving the
    range of the data."""
    out = list[list[str]]()
    for label in BRIEF:
        cells = list[str]()
        for r in results:
            row = r["measured"][label][FREE]
            reported = r["reported"]["tables"].get(_paper_name(label))
            cells.append(_pair(row) + (f" ({_pair(reported)})" if reported else ""))
        out.append([TITLES.get(label, f"`{label}`"), *cells])
    return [*out, ["*farthest inside the range*", *(f"- / {r['farthest']}" for r in results)]]


def _pair(row: Figures) -> str:
    return f"{row['robust validity'][0]:.3f} / {row['proximity'][0]:.2f}"


def _title(label: str) -> str:
    return TITLES.get(label, label)


def _paper_name(label: str) -> str:
    """The name of a method in the paper's tables: its RoCourseNet is its own algorithm, not our
    training."""
    return {KEPT: "RoCourseNet", AUTHORS: "RoCourseNet", OURS: ""}.get(label, label)


# ---- curves


def _curves(r: Figures) -> list[str]:
    """Their points as tables."""
    curves = r["curves"]
    reported = r["reported"].get("attacked", {}).get("validity", {})
    parts = list[Any](["Validity under attack (softmax over shifted categories, as the authors):"])
    for kind in ("T", "E", "T, l2 ball"):
        points = [p for p in curves["attack"] if p["kind"] == kind]
        rows = dict[str, list[str]]()
        for p in points:
            rows.setdefault(f"{_title(p['method'])}; {p['categories']}", []).append(
                f"{p['mean']:.3f}"
            )
        for method, values in reported.get(kind, {}).items():
            rows[f"reported: {method}"] = [f"{v:.3f}" for v in values["mean"]]
        head = [kind, *dict.fromkeys(p["strength"] for p in points)]
        parts.append(table(head, ([label, *values] for label, values in rows.items())))
    for key, varied in (("training", "strength"), ("trade-off", "setting"), ("data size", "share")):
        if key in curves:
            head = ["method", varied, "proximity", "validity", "robust validity"]
            parts += [f"{key.capitalize()}:", table(head, (_point(p, varied) for p in curves[key]))]
    return section(f"## Curves: {r['dataset']}", *parts)


def _point(p: Figures, varied: str) -> list[str]:
    value = f"{p['kind']} {p[varied]}" if "kind" in p else f"{p[varied]}"
    return [
        _title(p["method"]),
        value,
        *(cell(p[k], digits=3) for k in ("cost", "validity", "robust validity")),
    ]


# ---- pictures


def pictures(results: Results) -> Pictures:
    """Of each dataset a heat-map of validities, the attack, the trade-off and the size of the
    data."""
    out = dict[str, Any]()
    for r in results:
        name = r["dataset"]
        out[f"{name}.svg"] = partial(_heatmap, r)
        if "attack" in r["curves"]:
            out[f"{name}-attack-steps.svg"] = partial(
                _attack, r, "T", "Steps of the attack (T)", log=False
            )
            out[f"{name}-attack-size.svg"] = partial(
                _attack, r, "E", "Size of the shift (E)", log=True
            )
        if "trade-off" in r["curves"]:
            out[f"{name}-trade-off.svg"] = partial(_trade_off, r)
            out[f"{name}-data-size.svg"] = partial(_data_size, r)
    return out


def _heatmap(r: Figures) -> Any:
    return validity_heatmap(np.array(r["measured"][OURS]["matrix"]), r["subsets"])


def _points(r: Figures, key: str) -> list[Figures]:
    return [p | {"method": _title(p["method"])} for p in r["curves"][key]]


def _attack(r: Figures, kind: str, title: str, *, log: bool) -> Any:
    points = [p for p in _points(r, "attack") if p["kind"] == kind and p["categories"] == "softmax"]
    return strength(pd.DataFrame(points), title=title, log=log)


def _trade_off(r: Figures) -> Any:
    points = [
        p | {"cost": p["cost"][0], "validity": p["robust validity"][0]}
        for p in _points(r, "trade-off")
    ]
    return pareto(pd.DataFrame(points))


def _data_size(r: Figures) -> Any:
    points = [
        p | {"mean": p["robust validity"][0], "sd": p["robust validity"][1]}
        for p in _points(r, "data size")
    ]
    return data_size(pd.DataFrame(points))
