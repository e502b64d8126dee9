"""The page: one table for each kind of model, one for drift, one for the repetitions."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from experiments.experiment import Figures, Pictures, Results
from experiments.holdfast2026.drift import AHEAD
from experiments.holdfast2026.setup import KINDS
from experiments.holdfast2026.summary import METHODS, Interval, People, ratio, share
from experiments.tables import table
from holdfast.errors import optional
from holdfast.render.charts.theme import COLOURS, WIDTH, coloured, themed

NAMES = {
    "smallest": "smallest answer", "sns": "SNS, 10 retrained models", "margin": "smallest, calibrated margin",
    "survival": "**survival search**", "history": "**survival search, history guide**",
}  # fmt: skip
HEAD = ("dataset", "method", "people", "cost", "ours / theirs", "/ oracle", "survival", "certified", "ms per person")
TITLES = {
    "network l1": "Networks, l1", "network l2": "Networks, l2", "xgboost": "XGBoost", "lightgbm": "LightGBM",
    "forest": "Random forest",
}  # fmt: skip


def page(results: Results) -> list[str]:
    """One table for each kind of model, and what was asked of them beside it."""
    lines = list[str]()
    for kind in KINDS:
        known = [r for r in results if r.get("kinds", {}).get(kind)]
        rows = [row for result in known for row in _rows(result, kind)]
        if rows:
            lines += [f"## {TITLES[kind]}", "", *table(HEAD, rows), ""]
            lines += [f"Calibrated c by base seed: {_settings(known, kind, 'c')}."]
            lines += [f"Calibrated margin: {_settings(known, kind, 'margin_value')}.", ""]
    for result in results:
        if result.get("years"):
            lines += ["## Drift", "", *_drift(result), ""]
        if result.get("repeats"):
            lines += ["## Twenty repetitions", "", *_repeats(result), ""]
    return lines


def _settings(results: Results, kind: str, name: str) -> str:
    return "; ".join(f"{r['title']} {', '.join(f'{s[name]:g}' for s in r['kinds'][kind])}" for r in results)


def _rows(result: Figures, kind: str) -> list[list[str]]:
    ours = People.of(result, kind, "survival")
    out = list[list[str]]()
    for method in METHODS:
        people = People.of(result, kind, method)
        if people is None or ours is None:
            continue
        against = "" if method == "survival" else interval(ratio(ours.cost, people.cost))
        out.append([
            str(result["title"]), NAMES[method], str(len(people.cost)), f"{people.cost[people.answered].mean():.3f}",
            against, interval(ratio(people.cost, people.oracle)), f"{people.survival[people.answered].mean():.3f}",
            interval(share(people.certified)), f"{1000 * people.seconds:.0f}",
        ])  # fmt: skip
    return out


def interval(values: Interval) -> str:
    """An estimate with its interval."""
    value, low, high = values
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _drift(result: Figures) -> list[str]:
    head = ("base year", "method", "people", "cost", *[f"survival, year + {h}" if h else "same year" for h in AHEAD])
    rows = list[list[str]]()
    for year, seeds in [*result["years"].items(), ("all", [s for part in result["years"].values() for s in part])]:
        for method in ("smallest", "survival", "history"):
            answered = np.concatenate([s[f"{method} answered"] for s in seeds]) > 0
            cost = np.concatenate([s[f"{method} cost"] for s in seeds]).astype(float)[answered]
            held = [np.concatenate([s[f"{method} held {h}"] for s in seeds])[answered].mean() for h in AHEAD]
            shares = [f"{h:.3f}" for h in held]
            rows.append([str(year), NAMES[method], str(len(answered)), f"{cost.mean():.3f}", *shares])
    return table(head, rows)


def _repeats(result: Figures) -> list[str]:
    head = ("level", "c", "certified", "repetitions at 0.9 or more", "false certificates", "mean survival in truth")
    rows = list[list[str]]()
    for level, lines in result["repeats"].items():
        people, certified, false = (sum(line[name] for line in lines) for name in ("people", "certified", "false"))
        enough = sum(line["certified"] >= 0.9 * line["people"] for line in lines)
        wrong = share(np.arange(max(certified, 1)) < false)
        cs = sorted(line["c"] for line in lines)
        truth = float(np.concatenate([np.array(line["held"], dtype=float) for line in lines]).mean())
        rows.append([
            level, f"{cs[0]:g} to {cs[-1]:g}", interval(share(np.arange(people) < certified)),
            f"{enough} of {len(lines)}", f"{false} of {certified}: {interval(wrong)}", f"{truth:.3f}",
        ])  # fmt: skip
    return table(head, rows)


def pictures(results: Results) -> Pictures:
    """Certified share against cost, of each kind of model that was measured."""
    kinds = [kind for kind in KINDS if any(r.get("kinds", {}).get(kind) for r in results)]
    return {f"{kind.replace(' ', '-')}.svg": partial(_picture, results, kind) for kind in kinds}


def _picture(results: Results, kind: str) -> Any:
    alt, points = optional("altair", "plot"), list[dict[str, Any]]()
    for result in results:
        for method in METHODS:
            people = People.of(result, kind, method) if result.get("kinds") else None
            if people is not None:
                about = {"dataset": result["title"], "method": NAMES[method].strip("*")}
                cost = ratio(people.cost, people.oracle)[0]
                points.append(about | {"cost": cost, "certified": float(people.certified.mean())})
    table = pd.DataFrame(points)
    methods = list(dict.fromkeys(table["method"]))
    chart = alt.Chart(table).mark_point(filled=True, size=90).encode(
        x=alt.X("cost:Q", title="Cost, as a multiple of the oracle's", scale=alt.Scale(zero=False)),
        y=alt.Y("certified:Q", title="Certified", scale=alt.Scale(domain=[0, 1])).axis(format="%"),
        color=coloured("method", methods, COLOURS[: len(methods)]),
        shape=alt.Shape("dataset:N", title=None),
        tooltip=["dataset", "method", alt.Tooltip("cost:Q", format=".2f"), alt.Tooltip("certified:Q", format=".0%")],
    )  # fmt: skip
    about = f"{TITLES[kind]}: the share of people whose plan is certified, against what plans cost, by method."
    return themed(chart.properties(width=WIDTH, height=320, description=about))
