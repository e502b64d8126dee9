"""Gather the result files of all peers into one JSON file and print a table. Needs numpy only.

    python combine.py task.npz RESULTS_DIR OUT.json
"""

import json
import sys
from pathlib import Path

from score import load_task


def best_of(methods, key):
    """The method with the smallest mean distance among those that are valid on every row."""
    full = [m for m in methods if m["validity"] == 1.0]
    return min(full, key=lambda m: m[key])["method"] if full else None


def main(task_path, results_dir, out_path):
    task = load_task(task_path)
    facts = json.loads(str(task["facts"]))
    methods = [json.loads(path.read_text()) for path in sorted(Path(results_dir).glob("*.json"))]
    # The long runs are kept apart from the choice of the best, as they cost ten times more.
    art = [m for m in methods if m["method"].startswith("art_") and m["settings"]["max_iter"] == 100]
    combined = {"task": facts, "art_best_l1": best_of(art, "l1"), "art_best_l2": best_of(art, "l2"),
                "methods": methods}
    Path(out_path).parent.mkdir(parents=True, exist_ok=True)
    Path(out_path).write_text(json.dumps(combined, indent=2) + "\n")

    columns = ("rows", "coverage", "validity", "l1", "l2", "in_range", "changed", "ms_per_row")
    print(f"{'method':28}" + "".join(f"{c:>11}" for c in columns))
    for m in methods:
        print(f"{m['method']:28}" + "".join(f"{m[c]:11.4g}" if m[c] is not None else f"{'-':>11}"
                                           for c in columns))
    print("best ART:", combined["art_best_l1"], combined["art_best_l2"])


if __name__ == "__main__":
    main(*sys.argv[1:])
