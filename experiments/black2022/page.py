"""Tables 1 to 4 of Black et al. 2022 as markdown: measured, and the paper's figure in brackets."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from experiments.black2022.setup import FAMILIES, STARTS
from experiments.experiment import Figures, Pictures, Results
from experiments.tables import cell, section, table
from holdfast.render.charts.audit import invalidation_bars

FIGURES = {
    "IV LOO": "Invalidation when one training row is left out",
    "IV RS": "Invalidation when the initial weights change",
    "l2": "Cost, l2",
    "l1": "Cost, l1",
    "success": "Share of rows with an answer",
}


def page(results: Results) -> list[str]:
    """Tables first, then the means over datasets, what was run, and the authors' own start."""
    names = [r["dataset"] for r in results]
    lines = ["Measured, and in brackets what the paper reports; mean ± standard deviation.", ""]
    for figure, title in FIGURES.items():
        rows = [
            [label, *(_beside(r, label, figure) for r in results)]
            for label in results[0]["measured"]
        ]
        lines += section(f"## {title}", table(["method", *names], rows))
    lines += section(
        "## Does a more expensive answer hold better?",
        "R² of invalidation against l2 cost over all answers.",
        table(
            ["", *names],
            [[key, *(cell(r["r2"][key]) for r in results)] for key in results[0]["r2"]],
        ),
    )
    rows = [
        [
            label,
            f"{row['LOO']:.4f}",
            f"{row['RS']:.4f}",
            f"{row['rise']:.3f}",
            f"{row['times']:.2f}",
        ]
        for label, row in means(results).items()
    ]
    lines += section(
        "## Means over datasets",
        "Rise: l2 cost above that of the start. Of the datasets and starts that the paper reports.",
        table(["", "LOO", "RS", "rise", "times the start's cost"], rows),
    )
    head = [
        "dataset",
        "columns",
        "training rows",
        "test rows",
        "models",
        "test accuracy",
        "seconds",
    ]
    return [
        *lines,
        *section("## What was run", table(head, map(_run, results))),
        *_clipped(results),
    ]


def _beside(r: Figures, label: str, figure: str) -> str:
    return cell(r["measured"][label].get(figure), r["reported"].get(label, {}).get(figure))


def _run(r: Figures) -> list[object]:
    """What was run, and the seconds all cells of a dataset took, whenever they were made."""
    seconds = sum(value for key, value in r["seconds"].items() if key != "this call")
    facts = [r[key] for key in ("dataset", "columns", "training_rows", "test_rows")]
    return [*facts, _models(r), f"{r['accuracy']:.3f}", f"{seconds:.0f}"]


def _models(r: Figures) -> str:
    return " + ".join(map(str, r["models"].values()))


def _clipped(results: Results) -> list[str]:
    """The authors' own start: which rows it answers, and how many of these answers, and of ours to
    the same rows, are lost."""
    results = [r for r in results if "clipped" in r]
    if not results:
        return []
    how = results[0]["clipped"]["settings"]
    steps = " and ".join(f"{step} ({norm})" for norm, step in how["step"].items())
    rows = list[list[str]]()
    ran = list[str]()
    for r in results:
        found = r["clipped"]
        for label, same in found["ours, same rows"].items():
            start, plus, moved = label.partition(" + ")
            row = found["measured"][f"{start}, clipped{plus}{moved}"]
            reported = r["reported"].get(label, {})
            cells = [cell(row[key], reported.get(key)) for key in ("success", "IV RS", "l2")]
            ours = [cell(part["IV RS"]) for part in (same, found["ours, all rows"][label])]
            rows.append([r["dataset"], label, *cells[:2], *ours, cells[2], cell(same["l2"])])
        ran.append(
            f"{r['dataset']} {found['rows']} rows, {_models(found)} models, test accuracy of the "
            "network "
            f"{found['accuracy']:.4f} (of the one in the tables {r['accuracy']:.4f})"
        )
    head = [
        "dataset",
        "method",
        "success",
        "invalidation",
        "ours, same rows",
        "ours, all rows",
        "l2",
        "ours, same rows",
    ]
    return section(
        "## The authors' own start",
        f"`MinCost(legacy=True)`, which clips to [0, 1] as the authors' does: {how['rounds']} "
        f"rounds of {how['steps']} "
        f"steps of {steps}. Share of rows with an answer; invalidation when the initial weights "
        "change and l2 cost, of "
        "its answers, of our own to the same rows, and of our own to all rows; in brackets what "
        "the paper reports.",
        table(head, rows),
        f"What was run: {'; '.join(ran)}. All columns are of the same networks, which may have "
        "been trained anew after "
        "those of the tables above.",
    )


def means(results: Results) -> dict[str, dict[str, float]]:
    """Over the datasets and starts that the paper reports: invalidation, and what the move costs,
    measured and as reported."""
    out = dict[str, dict[str, float]]()
    for source, suffix in (
        ("measured", " + SNS"),
        ("measured", " + SNS with a bank"),
        ("reported", " + SNS"),
    ):
        rows = list[list[float]]()
        for r in results:
            for start in STARTS:
                if not _has_cost(r["reported"], start, start + " + SNS"):
                    continue
                if _has_cost(r[source], start, start + suffix):
                    moved = r[source][start + suffix]
                    after = moved["l2"][0]
                    before = r[source][start]["l2"][0]
                    rows.append(
                        [moved["IV LOO"][0], moved["IV RS"][0], after - before, after / before]
                    )
        if rows:
            figures: list[float] = np.mean(rows, 0).tolist()
            out[f"{source},{suffix}"] = dict(
                zip(("LOO", "RS", "rise", "times"), figures, strict=True)
            )
    return out


def _has_cost(source: Figures, *labels: str) -> bool:
    return all(label in source and source[label].get("l2") for label in labels)


def pictures(results: Results) -> Pictures:
    """One per dataset: what a retraining breaks, per method and family."""
    return {f"{r['dataset']}.svg": partial(_bars, r["measured"]) for r in results}


def _bars(measured: Figures) -> Any:
    lines = list[dict[str, Any]]()
    for label, figures in measured.items():
        for short in FAMILIES:
            if figures[f"IV {short}"]:
                mean, sd = figures[f"IV {short}"]
                low = max(0.0, mean - sd)
                high = min(1.0, mean + sd)
                lines.append(
                    {"method": label, "family": short, "mean": mean, "low": low, "high": high}
                )
    return invalidation_bars(pd.DataFrame(lines))
