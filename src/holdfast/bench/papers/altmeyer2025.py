"""Altmeyer et al., "Counterfactual Training: Teaching Models Plausible and Actionable Explanations", 2025.

By how many percent counterfactuals of networks that were taught with their own counterfactuals are closer to data, and
cheaper where a feature is protected, than those of the same networks trained plainly.
"""

from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np

from holdfast.bench.cells import Arrays, Cells
from holdfast.bench.papers.altmeyer2025_parts import EPOCHS, GUARDED, SETTINGS, VARIANTS, main_table, prepare
from holdfast.bench.papers.altmeyer2025_reported import ACCURACY, EARLIER, LATER
from holdfast.comparison import FREE, HELD, reduction
from holdfast.version import __version__

__all__ = ["SETTINGS", "charts", "page", "run"]
MODELS = POOL = 5  # seeds
QUICK, QUICK_MODELS = "moons", 1
ROUNDS = 20  # for each seed
COLUMNS = {
    "implausibility": (FREE, "implausibility", "full"),
    "MMD": (FREE, "mmd", "full"),
    "cost, protected": (HELD, "cost", GUARDED),
    "cost": (FREE, "cost", "full"),
}


def run(name: str, cells: Cells, *, models: int = MODELS, rows: int | None = None, seed: int = 0) -> dict[str, Any]:
    """One dataset: reductions of the taught networks, and of those with a part of the objective."""
    setting = SETTINGS[name]
    asked = min(rows or setting.asked, setting.asked)
    cells = replace(cells, settings={"seed": seed, "version": __version__})
    task, setting = prepare(name, seed), replace(setting, asked=asked)
    cell = cells.arrays(
        f"{name}/main", lambda: main_table(task, setting, EPOCHS, models, ROUNDS, seed), [models, asked, ROUNDS, EPOCHS]
    )
    labels = [*VARIANTS, GUARDED]
    return {
        "paper": "altmeyer2025",
        "dataset": name,
        "title": setting.title,
        "reported": {"later": LATER[name], "earlier": EARLIER[name], "accuracy": ACCURACY[name]},
        "measured": {column: measured(cell, labels, *where) for column, where in COLUMNS.items()},
        "ablation": {
            label: {
                column: measured(cell, labels, case, metric, label) for column, (case, metric, _) in COLUMNS.items()
            }
            for label in labels[1:]
        },
        "validity": {case: dict(zip(labels, _means(cell[f"{case}: validity"]), strict=True)) for case in (FREE, HELD)},
        "accuracy": dict(zip(labels, np.round(cell["curves"][:, :, 0].mean(0), 4).tolist(), strict=True)),
        "sensitivity": dict(zip(labels, np.round(cell["sensitivity"].mean(0), 4).tolist(), strict=True)),
        "rows": {"train": len(task.X), "test": len(task.test_X), "asked": asked},
        "rounds": ROUNDS * models,
        "models": models,
        "epochs": EPOCHS,
        "seed": seed,
        "seconds": {"main": round(float(cell["seconds"]), 1)},
        "version": __version__,
    }


def measured(cell: Arrays, labels: list[str], case: str, metric: str, label: str) -> dict[str, Any]:
    """Percent less than the plain networks of the same seeds, over all rounds."""
    values = cell[f"{case}: {metric}"]  # (models, seeds, rounds)
    ours, plain = (values[labels.index(name)].ravel() for name in (label, "plain"))
    found = reduction(ours, plain)
    return {key: (round(float(v), 4) if np.isfinite(v) else None) for key, v in found.items()} | {
        "significant": bool(found["significant"]),
        "taught": _known(np.nanmean(ours)),
        "plain": _known(np.nanmean(plain)),
    }


def _known(value: Any) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def _means(values: np.ndarray[Any, Any]) -> list[float | None]:
    return [_known(np.nanmean(part)) for part in values]


def page(results: list[dict[str, Any]]) -> str:
    """Measured beside reported."""
    lines = ["# Counterfactual Training (Altmeyer et al. 2025)", ""]
    lines += ["Percent less than the plain network; * sure at 99 %; reported: later version / earlier version.", ""]
    head = ["data", *[f"{name} | reported" for name in list(COLUMNS)[:3]], "cost, nothing protected"]
    lines += [f"| {' | '.join(head)} |", "|" + "---|" * 8]
    for r in results:
        cells = [r["title"]]
        for i, column in enumerate(list(COLUMNS)[:3]):
            later, earlier = r["reported"]["later"][i], r["reported"]["earlier"][i]
            star = "*" if later[2] else ""
            cells += [_cell(r["measured"][column]), f"{later[0]:.2f}{star} / {earlier[0]:.2f}"]
        lines.append(f"| {' | '.join([*cells, _cell(r['measured']['cost'])])} |")
    lines += ["", (files("holdfast.bench.papers") / "altmeyer2025.md").read_text(encoding="utf-8").rstrip()]
    return "\n".join([*lines, ""])


def _cell(found: dict[str, Any]) -> str:
    if found["reduction"] is None:
        return "-"
    return f"{found['reduction']:.2f} +- {found['se']:.2f}{'*' if found['significant'] else ''}"


def charts(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {}
