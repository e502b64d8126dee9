"""Gather the result files of all peers into one JSON file and print a table. Needs numpy only.

python combine.py task.npz RESULTS_DIR OUT.json
"""

import json
import sys
from pathlib import Path

import numpy as np
from score import load_task, score

# What the README shows, and under which name; "best" is filled in from the sweep.
SHOWN = {
    "holdfast_min_cost_l1": "Holdfast `MinCost(norm=1)`",
    "holdfast_min_cost_l2": "Holdfast `MinCost(norm=2)`",
    "art_best_l1": "ART elastic net, L1 rule, best of 6 settings",
    "art_best_l2": "ART elastic net, L2 rule, best of 6 settings",
    "nice_proximity": "NICE, proximity",
    "nice_sparsity": "NICE, sparsity",
    "dice_random": "DiCE, random",
    "dice_genetic": "DiCE, genetic",
    "dice_gradient": "DiCE, gradient",
}


def best_of(methods, key):
    """The method with the smallest mean distance among those that are valid on every row."""
    full = [m for m in methods if m["validity"] == 1.0]
    return min(full, key=lambda m: m[key])["method"] if full else None


def on_first_rows(task, results_dir, methods, n):
    """Distances of every method on the first n rows, so that those with few rows can be compared
    too."""
    figures = {}
    for m in methods:
        if m["rows"] >= n:
            with np.load(Path(results_dir) / f"{m['method']}.npz") as stored:
                scored = score(task, stored["counterfactuals"][:n], 0.0, 0.0)
            figures[m["method"]] = {key: scored[key] for key in ("validity", "l1", "l2", "changed")}
    return figures


def main(task_path, results_dir, out_path):
    task = load_task(task_path)
    facts = json.loads(str(task["facts"]))
    methods = [json.loads(path.read_text()) for path in sorted(Path(results_dir).glob("*.json"))]
    # The long runs are kept apart from the choice of the best, as they cost ten times more.
    art = [
        m for m in methods if m["method"].startswith("art_") and m["settings"]["max_iter"] == 100
    ]
    best = {"art_best_l1": best_of(art, "l1"), "art_best_l2": best_of(art, "l2")}
    combined = {
        "task": facts,
        **best,
        "readme": {best.get(name, name): label for name, label in SHOWN.items()},
        "methods": methods,
        "on_first_rows": {
            str(n): on_first_rows(task, results_dir, methods, n)
            for n in sorted({m["rows"] for m in methods})
        },
    }
    Path(out_path).parent.mkdir(parents=True, exist_ok=True)
    Path(out_path).write_text(json.dumps(combined, indent=2) + "\n")

    columns = ("rows", "coverage", "validity", "l1", "l2", "in_range", "changed", "ms_per_row")
    print(f"{'method':28}" + "".join(f"{c:>11}" for c in columns))
    for m in methods:
        print(
            f"{m['method']:28}"
            + "".join(f"{m[c]:11.4g}" if m[c] is not None else f"{'-':>11}" for c in columns)
        )
    print("best ART:", combined["art_best_l1"], combined["art_best_l2"])


if __name__ == "__main__":
    main(*sys.argv[1:])
