"""How fast the exact copies of tree models are: 100,000 rows, one process, one thread, CPU time, medians.

    python benchmarks/trees.py [OUT.json]

The library's `predict_proba` on its own matrix of numbers against the copy on encoded rows, codes and all; their
repeats are interleaved, so that a slow minute of the machine hits both alike. The data are 20 columns of made-up
numbers, in random order, so that no branch is easy to foretell.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import torch
import xgboost
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from threadpoolctl import threadpool_limits

import holdfast as hf

ROWS, REPEATS = 100_000, 5


def models() -> dict[str, Any]:
    return {
        "RandomForest 100, depth 6": RandomForestClassifier(100, max_depth=6, random_state=0, n_jobs=1),
        "RandomForest 100, full depth": RandomForestClassifier(100, random_state=0, n_jobs=1),
        "ExtraTrees 100, depth 6": ExtraTreesClassifier(100, max_depth=6, random_state=0, n_jobs=1),
        "GradientBoosting 100, depth 3": GradientBoostingClassifier(random_state=0, subsample=0.3),
        "HistGradientBoosting 100, 31 leaves": HistGradientBoostingClassifier(random_state=0, early_stopping=False),
        "XGBoost 100, depth 3": xgboost.XGBClassifier(n_estimators=100, max_depth=3, n_jobs=1),
        "XGBoost 100, depth 6": xgboost.XGBClassifier(n_estimators=100, max_depth=6, n_jobs=1),
        "LightGBM 100, 31 leaves": lightgbm.LGBMClassifier(n_estimators=100, verbose=-1, n_jobs=1),
    }


def seconds(f: Any) -> float:
    start = time.process_time()
    f()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    X, y = make_classification(8_000, 20, n_informative=10, random_state=0)
    names = [f"x{i}" for i in range(20)]
    table = pd.DataFrame(X, columns=names)
    schema = hf.Schema.infer(table)
    rng = np.random.default_rng(0)
    rows = X[rng.integers(0, len(X), ROWS)] + rng.normal(0, 0.3, (ROWS, 20))
    wide = pd.DataFrame(rows, columns=names)
    x = schema.encode(wide, torch.float64)
    out: dict[str, dict[str, float | str]] = {}
    for name, estimator in models().items():
        estimator.fit(table, y)
        model = hf.Model.of(estimator, schema)
        assert model.conversion, model.conversion.text
        theirs, mine = list[float](), list[float]()
        for _ in range(REPEATS):
            theirs.append(seconds(lambda e=estimator: e.predict_proba(wide)))
            mine.append(seconds(lambda m=model: m(x)))
        a, b = statistics.median(theirs), statistics.median(mine)
        out[name] = {
            "library": round(a, 3),
            "copy": round(b, 3),
            "ratio": round(b / a, 2),
            "how": str(model.conversion),
        }
        print(f"{name:38s} {a:8.3f} s {b:8.3f} s {b / a:6.2f}   {model.conversion}", flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps({"rows": ROWS, "models": out}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
