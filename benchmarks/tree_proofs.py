"""How far the answers of `TreeSearch` are from the cheapest, and what the proof of it takes.

    HOLDFAST_DATA=... python -m benchmarks.tree_proofs [OUT.json] [--rows 100] [--nodes 2000]
        [--only NAME]

Refused people of the test part of four tables, one process, one thread, CPU time. Each model is
searched twice, one after the other on the same rows: `proof_nodes=0`, which grows and exchanges
changes as before there were proofs, and with boxes. Ratio: what the former's answer costs by what
the latter's does, row by row. One row: the mean of the first people, each asked about alone.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import torch
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from threadpoolctl import threadpool_limits

import holdfast as hf
from benchmarks.engine import RESULTS, seconds
from holdfast.methods.tree_search.boxes.prove import BOXES

ALONE = 10  # people asked about one by one
CASES = {
    "heloc / XGBoost 100 x 4": ("heloc", "small", 100),
    "heloc / LightGBM 100 x 15": ("heloc", "leaves", 100),
    "taiwan_credit / XGBoost 100 x 4": ("taiwan_credit", "small", 100),
    "german_credit / XGBoost 100 x 4": ("german_credit", "small", 100),
    "adult / XGBoost 100 x 4": ("adult", "small", 100),
    "heloc / XGBoost 300 x 6": ("heloc", "large", 16),
    "taiwan_credit / XGBoost 300 x 6": ("taiwan_credit", "large", 16),
    "heloc / forest 50 x 6": ("heloc", "forest", 12),
}


def estimator(kind: str) -> Any:
    if kind == "leaves":
        return lightgbm.LGBMClassifier(n_estimators=100, num_leaves=15, verbose=-1, n_jobs=1)
    if kind == "forest":
        return RandomForestClassifier(50, max_depth=6, random_state=0, n_jobs=1)
    count, depth = (100, 4) if kind == "small" else (300, 6)
    return xgboost.XGBClassifier(
        n_estimators=count, max_depth=depth, learning_rate=0.1, n_jobs=1, random_state=0
    )


def asked(name: str, kind: str, rows: int) -> tuple[hf.Model, pd.DataFrame]:
    """A model of a table, and people whom it refuses."""
    data = hf.datasets.load(name)
    train, test = data.split()
    made = estimator(kind)
    levels = [f.name for f in data.schema.features if f.kind in ("category", "ordered")]
    if levels:
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        made = make_pipeline(
            make_column_transformer((encoder, levels), remainder="passthrough"), made
        )
    made.fit(train.X, (train.y == data.favourable).astype(int))
    refused = test.X[made.predict(test.X) == 0].iloc[:rows]
    return hf.Model.of(made, data.schema, classes=["no", "yes"]), refused


def searched(
    search: hf.TreeSearch, model: hf.Model, people: pd.DataFrame
) -> tuple[hf.Counterfactuals, float, float]:
    """The answers, and milliseconds for a person: of all together, and alone."""
    search.explain(model, people.head(1), "yes")  # compiles, and makes the tables of the model
    found: list[hf.Counterfactuals] = []
    together = seconds(lambda: found.append(search.explain(model, people, "yes")))
    some = [people.iloc[i : i + 1] for i in range(min(ALONE, len(people)))]
    alone = seconds(lambda: [search.explain(model, one, "yes") for one in some])
    return found[0], 1e3 * together / len(people), 1e3 * alone / len(some)


def measured(model: hf.Model, people: pd.DataFrame, norm: int, nodes: int) -> dict[str, float]:
    before, ms_before, alone_before = searched(hf.TreeSearch(norm, proof_nodes=0), model, people)
    after, ms_after, alone_after = searched(hf.TreeSearch(norm, proof_nodes=nodes), model, people)
    both = before.found & after.found
    ratio = (before.cost("weighted") / after.cost("weighted"))[both].to_numpy()
    gap = after.gap[both].to_numpy()
    accepted = model.predict(after.to_frame()) == "yes"
    return {
        "rows": int(both.sum()),
        "ratio before": float(ratio.mean()),
        "worst before": float(ratio.max()),
        "dearer than before": float((ratio < 1 - 1e-6).mean()),
        "refused": float((~accepted[after.found]).mean()),
        "proved": float((gap == 0).mean()),
        "mean gap of the others": float(
            np.nan_to_num(gap[gap != 0].mean() if any(gap != 0) else 0)
        ),
        "ms before": ms_before,
        "ms": ms_after,
        "time / before": ms_after / ms_before,
        "alone, ms before": alone_before,
        "alone, ms": alone_after,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="proofs of tree answers")
    parser.add_argument("out", nargs="?", type=Path, help="left out: benchmarks/results")
    parser.add_argument("--rows", type=int, default=100, help="people of each case, at most")
    parser.add_argument("--nodes", type=int, default=BOXES)
    parser.add_argument("--only", default="", help="cases with this in their names")
    call = parser.parse_args()
    torch.set_num_threads(1)
    cases: dict[str, Any] = {}
    for name, (table, kind, rows) in CASES.items():
        if call.only not in name:
            continue
        model, people = asked(table, kind, min(rows, call.rows))
        for norm in (0, 1):
            cases[f"{name}, norm {norm}"] = figures = measured(model, people, norm, call.nodes)
            print(name, norm, {k: round(v, 3) for k, v in figures.items()}, flush=True)
    out: Path = call.out or RESULTS / "tree_proofs.json"
    content = {"holdfast": hf.__version__, "proof_nodes": call.nodes, "cases": cases}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
