"""Score counterfactuals for the shared task. Needs numpy only, so it runs in every environment.

Row i of the counterfactuals belongs to row i of X_explain; a row of NaN means "no answer".
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

TOLERANCE = 1e-6


class Run(NamedTuple):
    """What a method answered, and how long it took; what setting it up took is not in the other
    two."""

    counterfactuals: np.ndarray
    cpu_seconds: float
    wall_seconds: float
    setup_seconds: float | None = None


def load_task(path):
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def forward(task, x):
    """The network's logits in float64, straight from the stored weights."""
    x = np.asarray(x, dtype=np.float64)
    depth = sum(name[0] == "W" for name in task)
    for i in range(1, depth + 1):
        x = x @ task[f"W{i}"] + task[f"b{i}"]
        if i < depth:
            x = np.maximum(x, 0.0)
    return x


def score(task, counterfactuals, cpu_seconds, wall_seconds):
    """Return the figures of one method.

    Coverage and validity are over all rows asked for, the range check is over all answers, and the
    distances and the number of changed features are over valid answers. Time is CPU time.
    """
    cf = np.asarray(counterfactuals, dtype=np.float64)
    x = task["X_explain"][: len(cf)]
    answered = np.isfinite(cf).all(axis=1)
    valid = np.zeros(len(cf), dtype=bool)
    valid[answered] = forward(task, cf[answered]).argmax(axis=1) == 1
    in_range = ((cf >= task["lo"] - TOLERANCE) & (cf <= task["hi"] + TOLERANCE)).all(axis=1)
    delta = np.abs(cf - x)[valid]

    def mean(values):
        return float(np.mean(values)) if len(values) else None

    return {
        "rows": len(cf),
        "coverage": mean(answered),
        "validity": mean(valid),
        "l1": mean(delta.sum(axis=1)),
        "l2": mean(np.sqrt((delta**2).sum(axis=1))),
        "in_range": mean(in_range[answered]),
        "changed": mean((delta > TOLERANCE).sum(axis=1)),
        "ms_per_row": 1000.0 * cpu_seconds / len(cf),
        "wall_ms_per_row": 1000.0 * wall_seconds / len(cf),
    }


def record(out_dir, name, task, run, library, settings):
    """Score, then write NAME.json (figures and settings) and NAME.npz (the counterfactuals)."""
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    about = {"library": library, "version": version(library), "settings": settings}
    if run.setup_seconds is not None:
        about["setup_seconds"] = run.setup_seconds
    figures = score(task, run.counterfactuals, run.cpu_seconds, run.wall_seconds)
    entry = {"method": name, **about, **figures}
    (out_dir / f"{name}.json").write_text(json.dumps(entry, indent=2) + "\n")
    np.savez_compressed(out_dir / f"{name}.npz", counterfactuals=run.counterfactuals)
    print(json.dumps(entry), flush=True)
    return entry
