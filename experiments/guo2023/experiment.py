"""Guo, Jia, Chen, Yadav and Xiao, "RoCourseNet", CIKM 2023: Tables 2, 3, 6 to 11 and the curves of Figures 3 to 6, 12.

A dataset comes in k subsets (years, schools, the original and the corrected table). One network per subset; the answers
of each are put before the networks of all others. Rows are encoded first and every column may change, as in the paper.
Networks of a method train side by side, whatever their number.

Methods that come with their own predictor (CounterNet, RoCourseNet) are judged by these, all others by base networks of
the same layers. On the small datasets everything is repeated with other seeds, because k = 2 says little.
"""

from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np

from experiments.cells import Arrays, Cells
from experiments.guo2023.curves import all_curves, curve_charts, curve_lines
from experiments.guo2023.reported import reported
from experiments.guo2023.setup import (
    AUTHORS,
    KEPT,
    OURS,
    SETTINGS,
    SIMULATED,
    TITLES,
    UNATTACKED,
    farthest,
    figures,
    generated,
    generators,
    joint_methods,
    prepare,
    searched,
    searches,
    spread_of,
    stacked,
    trained,
)
from holdfast import __version__
from holdfast.methods.amortized._joint_loop import Joint
from holdfast.render.charts.shift import validity_heatmap

__all__ = ["SETTINGS", "charts", "page", "run"]
MODELS = POOL = 10  # repeats at most
QUICK, QUICK_MODELS = "german_credit", 1


# ---- a dataset


def run(name: str, cells: Cells, *, models: int = MODELS, rows: int | None = None, seed: int = 0) -> dict[str, Any]:
    """One dataset: everything the paper reports about it, and how long it took."""
    setting = SETTINGS[name]
    repeats, whole = min(models, setting.repeats), rows is None
    task = prepare(name)
    common = {"seed": seed, "repeats": repeats, "version": __version__}
    cells = replace(cells, settings=common)
    base_how = replace(setting.how, l2=0.0, l3=0.0, loss="entropy", smooth_labels=True)

    def joint(label: str, how: Joint) -> Arrays:
        return cells.arrays(f"{name}/{label}", lambda: trained(how, task, repeats, seed), repr(how))

    base_cell = joint("base", base_how)
    base = stacked(base_how, task, base_cell)
    searching, generating = dict[str, Arrays](), dict[str, Arrays]()
    if name not in SIMULATED:
        asked = min(repeats, 3)  # searching takes long, and varies less with the seed
        for label, make in searches().items():
            some = min(setting.rbr_rows if label == "RBR" else setting.rows, rows or setting.rows)
            searching[label] = cells.arrays(
                f"{name}/{label}",
                lambda label=label, make=make, some=some: searched(label, make, base_how, base, task, asked, some),
                [repr(make()), some, asked, repr(base_how)],
            )
        for label, (kind, shift) in generators(setting).items():
            generating[label] = cells.arrays(
                f"{name}/{label}",
                lambda kind=kind, shift=shift: generated(kind, shift, base, task, repeats, seed),
                [repr(kind), repr(shift), repr(base_how)],
            )
    nets = {label: (how, joint(label, how)) for label, how in joint_methods(setting).items()}
    found = searching | generating | {label: cell for label, (_, cell) in nets.items()}
    curves: dict[str, Any] = {}
    if whole and name not in SIMULATED:
        curves = all_curves(name, setting, cells, task, nets, base, base_how, repeats, seed)
    return {
        "paper": "guo2023",
        "dataset": name,
        "subsets": list(task.names),
        "measured": {label: figures(cell) for label, cell in found.items()},
        "prediction": {
            label: {key: spread_of(cell[key]) for key in ("accuracy", "auc")}
            for label, cell in {"base": base_cell, **{label: cell for label, (_, cell) in nets.items()}}.items()
        },
        "training": {label: round(float(c["training"]), 1) for label, c in found.items() if "training" in c},
        "per answer": {label: float(np.median(c["per answer"]) * 1000) for label, c in found.items()},
        "reported": reported(name),
        "curves": curves,
        "columns": task.x.shape[1],
        "farthest": farthest(task),
        "training_rows": sum(len(t) for t in task.train),
        "test_rows": sum(len(t) for t in task.test),
        "searched_rows": {"most": min(setting.rows, rows or setting.rows), "RBR": setting.rbr_rows},
        "repeats": repeats,
        "vae_samples": setting.vae_samples,
        "seed": seed,
        "seconds": {label: round(float(cell["seconds"]), 1) for label, cell in {"base": base_cell, **found}.items()},
        "version": __version__,
    }


# ---- pages

TABLES = {
    "robust validity": "Robust validity: answers that the networks of other subsets accept",
    "validity": "Validity: answers that the network they were made for accepts",
    "proximity": "Proximity: l1 distance between row and answer, another category counts 2",
}
FREE = "numbers not clamped"


def page(results: list[dict[str, Any]]) -> str:
    """The tables as markdown: measured, and the paper's figure in brackets."""
    lines = ["# RoCourseNet (Guo et al., CIKM 2023)", ""]
    lines += [
        "Measured, and in brackets what the paper reports; mean ± standard deviation. First with the numbers that"
    ]
    lines += ["networks propose as they are, as in the paper; then kept inside the range of the data, which is what a"]
    lines += ["person can hand in and what `recourse` returns. Methods that search keep inside it in both. The paper's"]
    lines += ["RoCourseNet stands beside the paper's algorithm; RoCourseNet (ours) is another training (see notes)."]
    lines.append("")
    names = [r["dataset"] for r in results]
    labels = list(dict.fromkeys(label for r in results for label in r["measured"]))
    for figure, title in TABLES.items():
        for free in (True, False):
            kept = "" if free else ", inside the range of the data"
            lines += [f"## {title}{kept}", "", f"| method | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
            for label in labels:
                cells = list[str]()
                for r in results:
                    row, told = r["measured"].get(label), r["reported"]["tables"].get(_paper_name(label), {})
                    cells.append(
                        _cell(row and (row[FREE] if free else row)[figure], told.get(figure) if free else None)
                    )
                lines.append(f"| {TITLES.get(label, label)} | {' | '.join(cells)} |")
            if figure == "proximity":
                most = " | ".join(str(r["farthest"]) for r in results)
                lines.append(f"| *farthest that rows inside the range can be apart* | {most} |")
            lines.append("")
    lines += ["## Prediction", "", "| dataset | network | accuracy | area under the curve |", "|---|---|---|---|"]
    for r in results:
        for label, row in r["prediction"].items():
            told = r["reported"].get("prediction", {}).get(_paper_name(label), {})
            cells = [_cell(row[key], told.get(key)) for key in ("accuracy", "auc")]
            lines.append(f"| {r['dataset']} | {TITLES.get(label, label)} | {' | '.join(cells)} |")
    lines += ["", "## Processor seconds of training, all subsets and repeats together; milliseconds per answer", ""]
    lines += ["| dataset | method | training | per answer |", "|---|---|---|---|"]
    for r in results:
        for label in r["measured"]:
            trained, told = r["training"].get(label), r["reported"]
            seconds = "-" if trained is None else f"{trained:.0f}"
            paper = told.get("training", {}).get(_paper_name(label))
            each, theirs = r["per answer"][label], told.get("per answer", {}).get(_paper_name(label))
            first = seconds if paper is None else f"{seconds} ({paper})"
            second = f"{each:.3f}" if theirs is None else f"{each:.3f} ({theirs})"
            lines.append(f"| {r['dataset']} | {TITLES.get(label, label)} | {first} | {second} |")
    for r in results:
        lines += curve_lines(r)
    lines += ["", (files("experiments.guo2023") / "notes.md").read_text(encoding="utf-8").rstrip()]
    lines += ["", "## Pictures", "", *[f"![{name}]({name}.svg)" for name in names]]
    return "\n".join([*lines, ""])


BRIEF = (OURS, UNATTACKED, KEPT, "CounterNet", "VanillaCF", "ROAR-LIME", "RBR")


def brief(results: list[dict[str, Any]]) -> list[list[str]]:
    """Rows of the shortest table: robust validity / proximity on each dataset, and in brackets what the paper reports
    of the same method; last, what proximity can be at most without leaving the range of the data."""
    out = list[list[str]]()
    for label in BRIEF:
        cells = list[str]()
        for r in results:
            row, told = r["measured"][label][FREE], r["reported"]["tables"].get(_paper_name(label))
            cells.append(f"{row['robust validity'][0]:.3f} / {row['proximity'][0]:.2f}")
            if told:
                cells[-1] += f" ({told['robust validity'][0]:.3f} / {told['proximity'][0]:.2f})"
        out.append([TITLES.get(label, f"`{label}`"), *cells])
    return [*out, ["*farthest inside the range*", *(f"- / {r['farthest']}" for r in results)]]


def _paper_name(label: str) -> str:
    """The name of a method in the paper's tables: its RoCourseNet is its own algorithm, not our training."""
    return {KEPT: "RoCourseNet", AUTHORS: "RoCourseNet", OURS: ""}.get(label, label)


def _cell(measured: Any, told: Any) -> str:
    def text(value: Any) -> str:
        return f"{value[0]:.3f} ± {value[1]:.3f}" if value else "-"

    return text(measured) if told is None else f"{text(measured)} ({text(told)})"


def charts(results: list[dict[str, Any]]) -> dict[str, Any]:
    """One heat-map of validities per dataset, and the curves there are."""
    out = {r["dataset"]: validity_heatmap(np.array(r["measured"][OURS]["matrix"]), r["subsets"]) for r in results}
    for r in results:
        out |= curve_charts(r)
    return out
