"""The frozen record: the bytes of what the library answers, so that a change that should change
nothing can show it.

    python tests/frozen_record.py check               compare with tests/frozen_record.json
    python tests/frozen_record.py write               write it anew
    python tests/frozen_record.py check --papers      the quick runs of the papers too, some minutes

Answers of every method of the law tables on every kind of model, scores of two banks, and the
figures of each paper's quick run. Last digits depend on the processor: write the record before a
change, on the machine where it is checked.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier

import holdfast as hf

RECORD = Path(__file__).with_suffix(".json")
ROOT = Path(__file__).parents[1]
# of a paper's result: the machine's, not figures
TIMES = ("machine", "version", "training", "per answer", "table 2")
SECONDS = ("seconds", "seconds of training")


def digest(*parts: Any) -> str:
    """A short hash of arrays and tables."""
    total = hashlib.sha256()
    for part in parts:
        if hasattr(part, "to_csv"):
            total.update(part.to_csv().encode())
        else:
            total.update(np.ascontiguousarray(part).tobytes())
    return total.hexdigest()[:16]


def tables() -> Iterator[tuple[str, Callable[[], str]]]:
    import test_laws as laws

    for method, model in laws.CASES:

        def answer(method: str = method, model: str = model) -> str:
            _, _, _, cfs = laws.solved(method, model)
            return digest(cfs.x_cf, cfs.scores, cfs.status_codes, cfs.after)

        yield f"table / {method} / {model}", answer


def images() -> Iterator[tuple[str, Callable[[], str]]]:
    from images import test_laws as laws

    for method, model in laws.CASES:

        def answer(method: str = method, model: str = model) -> str:
            cfs = laws.solved(method, model)[-1]
            return digest(cfs.x_cf, cfs.scores, cfs.status_codes, cfs.iterations)

        yield f"image / {method} / {model}", answer


def banks() -> Iterator[tuple[str, Callable[[], str]]]:
    from support.law_table import OUTCOME, SCHEMA, TABLE

    recipes = {
        "networks": (
            hf.Recipe(hidden=(12, 6), epochs=4),
            ("seed", "leave_one_out", "bootstrap", "width", "last_layer"),
        ),
        "forests": (
            hf.Recipe(estimator=RandomForestClassifier(5), inputs="encoded"),
            ("seed", "leave_one_out", "bootstrap"),
        ),
    }
    for name, (recipe, families) in recipes.items():

        def scores(recipe: hf.Recipe = recipe, families: tuple[str, ...] = families) -> str:
            wanted = dict.fromkeys(families, 3)
            bank = hf.ModelBank.retrain(recipe, TABLE, OUTCOME, SCHEMA, families=wanted, seed=2)
            return digest(bank.scores(TABLE))

        yield f"bank / {name}", scores


def papers() -> Iterator[tuple[str, Callable[[], str]]]:
    from experiments import PAPERS

    for name in PAPERS:

        def figures(name: str = name) -> str:
            with tempfile.TemporaryDirectory() as folder:
                call = [sys.executable, "-m", "experiments", name, "--quick", "--out", folder]
                call += ["--work", f"{folder}/work"]
                done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
                # a paper that is made of cells prints its page
                cells = sorted(Path(folder).glob("quick/cells/**/*.json"))
                found = [json.loads(cell.read_text())["figures"] for cell in cells]
            results = [
                untimed({k: v for k, v in r.items() if k not in TIMES})
                for r in found or json.loads(done.stdout)
            ]
            return hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()[:16]

        yield f"paper / {name}", figures


def untimed(value: Any) -> Any:
    """Without the seconds that anything took."""
    if isinstance(value, dict):
        return {key: untimed(part) for key, part in value.items() if key not in SECONDS}
    return [untimed(part) for part in value] if isinstance(value, list) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["check", "write"])
    parser.add_argument("--papers", action="store_true")
    parser.add_argument("--only", default="", help="names that contain this")
    call = parser.parse_args()
    parts = [*tables(), *images(), *banks(), *(papers() if call.papers else ())]
    known: dict[str, str] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    found = dict[str, str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in parts:
            if call.only in name:
                found[name] = make()
                if sys.stderr.isatty():
                    print(f"{len(found)} of {len(parts)} {name}", file=sys.stderr)
    if call.task == "write":
        RECORD.write_text(json.dumps(known | found, indent=1) + "\n")
        print(f"{len(found)} entries written")
        return 0
    changed = [name for name in found if known.get(name) != found[name]]
    for name in changed:
        print(f"changed: {name}: {known.get(name)} -> {found[name]}")
    missing = (
        []
        if call.only
        else [k for k in known if k not in found and (call.papers or not k.startswith("paper"))]
    )
    for name in missing:
        print(f"missing: {name}")
    print(f"{len(found) - len(changed)} of {len(found)} entries unchanged")
    return 1 if changed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
