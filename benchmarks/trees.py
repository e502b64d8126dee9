"""Tree models: how fast their exact copies are, and how good and fast the search along their
thresholds is.

    HOLDFAST_DATA=... python -m benchmarks.trees [OUT.json] [--rows 60] [--only copies|search]
        [--scale 1.0]

Two parts, one process, one thread, CPU time.

Copies: 100,000 rows, the library's `predict_proba` on its own matrix of numbers against the copy on
encoded rows, codes and all; repeats are interleaved, so that a slow minute of the machine hits both
alike, and medians taken. The data are 20 columns of made-up numbers, in random order, so that no
branch is easy to foretell; and Adult, for categories that XGBoost splits by itself.

Search: German Credit and Adult, an XGBoost model, all test rows that it refuses. `TreeSearch` on
all of them; beside it, on the first `--rows` of them, which is what they have time for, dice-ml
(random, genetic and kdtree) and NICE (sparsity). All may change every feature within the data's
range, and are judged alike: validity by the bare model, the number of changed features, and l1 with
numbers (and ranks of ordered levels) scaled by their range and a category counting 1. Means are
over the valid answers; ratios of two methods over the rows that both answer validly, and of their
times over the same rows, as one call here and row by row there. Then `TreeSearch` alone with the
dataset's own schema, where features are fixed or may go one way only: which rows have an answer,
and which are proved to have none.

The others are not part of this project: `pip install --no-deps --target DIR dice-ml==0.12
NICEx==0.2.3 raiutils tqdm jsonschema jsonschema-specifications referencing rpds-py attrs`, with DIR
on PYTHONPATH; what is missing is left out, and said so.
"""

import argparse
import contextlib
import io
import json
import statistics
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import torch
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from threadpoolctl import threadpool_limits

import holdfast as hf
from benchmarks.engine import RESULTS, seconds

ROWS = 100_000
REPEATS = 5
SOME = 60  # test rows that the other libraries have time for
DATASETS = ("german_credit", "adult")
# What the figures must not exceed; those of the search for each dataset.
LIMITS = {
    "copy / library": 1.0,
    "refused rows without an answer or a proof": 0.0,
    "invalid answers": 0.0,
    "changed features, fewest": 3.0,
    "changed features, smallest": 3.0,
    "l1 / best of dice-ml": 0.8,
    "l1 / NICE": 1.0,
    "time per row / fastest of dice-ml": 0.05,
}


# ---- copies


def models() -> dict[str, Any]:
    return {
        "RandomForest 100, depth 6": RandomForestClassifier(
            100, max_depth=6, random_state=0, n_jobs=1
        ),
        "RandomForest 100, full depth": RandomForestClassifier(100, random_state=0, n_jobs=1),
        "ExtraTrees 100, depth 6": ExtraTreesClassifier(100, max_depth=6, random_state=0, n_jobs=1),
        "GradientBoosting 100, depth 3": GradientBoostingClassifier(random_state=0, subsample=0.3),
        "HistGradientBoosting 100, 31 leaves": HistGradientBoostingClassifier(
            random_state=0, early_stopping=False
        ),
        "XGBoost 100, depth 3": xgboost.XGBClassifier(n_estimators=100, max_depth=3, n_jobs=1),
        "XGBoost 100, depth 6": xgboost.XGBClassifier(n_estimators=100, max_depth=6, n_jobs=1),
        "LightGBM 100, 31 leaves": lightgbm.LGBMClassifier(n_estimators=100, verbose=-1, n_jobs=1),
    }


def copies(rows: int) -> dict[str, Any]:
    X, y = make_classification(8_000, 20, n_informative=10, random_state=0)
    names = [f"x{i}" for i in range(20)]
    table = pd.DataFrame(X, columns=names)
    schema = hf.Schema.infer(table)
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(
        X[rng.integers(0, len(X), rows)] + rng.normal(0, 0.3, (rows, 20)), columns=names
    )
    x = schema.encode(wide, torch.float64)
    out = {
        name: timed(name, made.fit(table, y), schema, wide, x) for name, made in models().items()
    }
    return out | native_categories(rows)


def native_categories(rows: int) -> dict[str, Any]:
    """Adult, its levels as categories of pandas that XGBoost splits by itself."""
    data = hf.datasets.load("adult")
    levels = [f.name for f in data.schema.features if f.kind in ("category", "ordered")]
    table = data.X.astype(dict.fromkeys(levels, "category"))
    schema = hf.Schema.infer(table)
    wide = table.iloc[np.random.default_rng(0).integers(0, len(table), rows)]
    x = schema.encode(wide, torch.float64)
    out: dict[str, Any] = {}
    for depth in (3, 6):
        name = f"XGBoost 100, depth {depth}, native categories"
        made = xgboost.XGBClassifier(
            n_estimators=100, max_depth=depth, n_jobs=1, enable_categorical=True
        )
        made.fit(table[:8_000], (data.y == data.favourable)[:8_000])
        out[name] = timed(name, made, schema, wide, x)
    return out


def timed(
    name: str, estimator: Any, schema: hf.Schema, wide: pd.DataFrame, x: torch.Tensor
) -> dict[str, Any]:
    """The library over a table, and its copy over the same rows, encoded."""
    model = hf.Model.of(estimator, schema)
    assert model.conversion, model.conversion.text
    of_library = list[float]()
    of_copy = list[float]()
    for _ in range(REPEATS):
        of_library.append(seconds(lambda: estimator.predict_proba(wide)))
        of_copy.append(seconds(lambda: model(x)))
    a = statistics.median(of_library)
    b = statistics.median(of_copy)
    how = str(model.conversion)
    print(f"{name:42s} {a:8.3f} s {b:8.3f} s {b / a:6.2f}   {how}", flush=True)
    return {
        "library": round(a, 3),
        "copy": round(b, 3),
        "copy / library": round(b / a, 2),
        "how": how,
    }


# ---- search


class Task:
    """A dataset, a model of it, and the test rows that it refuses."""

    def __init__(self, name: str) -> None:
        self.data = hf.datasets.load(name)
        train, test = self.data.split()
        self.X = train.X
        self.y = (train.y == self.data.favourable).astype(int)
        levels = [f.name for f in self.data.schema.features if f.kind in ("category", "ordered")]
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        prepare = make_column_transformer((encoder, levels), remainder="passthrough")
        booster = xgboost.XGBClassifier(
            n_estimators=100, max_depth=4, learning_rate=0.1, n_jobs=1, random_state=0
        )
        self.estimator = make_pipeline(prepare, booster).fit(self.X, self.y)
        self.refused = test.X[self.estimator.predict(test.X) == 0]
        self.free = everything_free(self.data.schema)

    def model(self, schema: hf.Schema) -> hf.Model:
        return hf.Model.of(self.estimator, schema, classes=["no", "yes"])

    def judged(self, before: pd.DataFrame, after: list[Any] | pd.DataFrame) -> dict[str, Any]:
        """Answers, None where there is none: valid by the bare model, changed features and l1 of
        each."""
        if isinstance(after, pd.DataFrame):
            frame = after
            there = np.ones(len(before), dtype=bool)
        else:
            there = np.array([a is not None for a in after])
            cells = [
                b if a is None else a for a, b in zip(after, before.to_dict("records"), strict=True)
            ]
            frame = pd.DataFrame(cells, index=before.index)[before.columns].astype(before.dtypes)
        valid = there & (self.estimator.predict(frame) == 1)
        step = self.free.encode(frame, torch.float64) - self.free.encode(before, torch.float64)
        l1 = (step.abs() @ self.free.encoding(torch.float64).weight).numpy()
        changed = (frame.astype(object) != before.astype(object)).to_numpy().sum(axis=1)
        return {"there": there, "valid": valid, "l1": l1, "changed": changed}


def everything_free(schema: hf.Schema) -> hf.Schema:
    """Every feature may change within the data's range, and the library's l1 is the one that is
    judged: numbers in units of their range, a category 1 (its two one-hot columns a half each)."""
    features: list[hf.Feature] = []
    for f in schema.features:
        f = replace(f, change="free", allowed=(), weight=0.5 if f.is_category else 1.0)
        if f.kind in ("real", "integer"):
            low, high = f.seen
            f = replace(f, bounds=(low, high), center=low, scale=max(high - low, 1e-9))
        features.append(f)
    return hf.Schema(tuple(features))


def holdfast(task: Task, rows: pd.DataFrame, norm: int) -> tuple[dict[str, Any], float]:
    model = task.model(task.free)
    search = hf.TreeSearch(norm=norm).fit(model, task.X)
    cfs: list[hf.Counterfactuals] = []
    took = seconds(lambda: cfs.append(search.explain(model, rows, "yes")))
    judged = task.judged(rows, cfs[0].after)
    judged["there"] &= cfs[0].found
    judged["valid"] &= cfs[0].found
    judged["proved"] = cfs[0].status["reason"].str.startswith("proved").to_numpy()
    return judged, took


def dice(task: Task, rows: pd.DataFrame, method: str) -> tuple[dict[str, Any], float]:
    import dice_ml

    numbers = [f.name for f in task.data.schema.features if f.kind in ("real", "integer")]
    frame = task.X.assign(outcome=task.y)
    data = dice_ml.Data(dataframe=frame, continuous_features=numbers, outcome_name="outcome")
    explainer = dice_ml.Dice(
        data, dice_ml.Model(model=task.estimator, backend="sklearn"), method=method
    )
    extra = {"random_seed": 0} if method == "random" else {}
    np.random.seed(0)  # noqa: NPY002, what it draws from
    after: list[Any] = []

    def work() -> None:
        for i in range(len(rows)):
            try:
                with (
                    contextlib.redirect_stderr(io.StringIO()),
                    contextlib.redirect_stdout(io.StringIO()),
                ):
                    found = explainer.generate_counterfactuals(
                        rows.iloc[[i]], total_CFs=1, desired_class=1, verbose=False, **extra
                    )
                answer = found.cf_examples_list[0].final_cfs_df_sparse
            except Exception as error:  # it raises where it finds none
                print(f"dice-ml {method}, row {i}: {type(error).__name__}: {str(error)[:80]}")
                answer = None
            got = answer is not None and len(answer) > 0
            after.append(answer[list(rows.columns)].iloc[0].to_dict() if got else None)

    took = seconds(work)
    return task.judged(rows, after), took


def nice(task: Task, rows: pd.DataFrame) -> tuple[dict[str, Any], float]:
    from nice import NICE

    schema = task.free
    levels = [i for i, f in enumerate(schema.features) if f.is_category]
    others = [i for i in range(len(schema.features)) if i not in levels]

    def frame(codes: Any) -> pd.DataFrame:
        numbers = np.asarray(codes, dtype=np.float64)
        return pd.DataFrame(
            {f.name: f.values(numbers[:, i], None) for i, f in enumerate(schema.features)}
        )

    explainer = NICE(
        predict_fn=lambda codes: task.estimator.predict_proba(frame(codes)),
        X_train=schema.read(task.X),
        y_train=task.y.to_numpy(),
        cat_feat=levels,
        num_feat=others,
        optimization="sparsity",
        justified_cf=True,
        distance_metric="HEOM",
        num_normalization="minmax",
    )
    codes = schema.read(rows)
    after = list[Any]()

    def work() -> None:
        for i in range(len(rows)):
            after.append(explainer.explain(codes[i : i + 1].copy(), target_class=[1])[0])

    took = seconds(work)
    return task.judged(rows, frame(np.array(after)).set_index(rows.index).astype(rows.dtypes)), took


def brief(judged: dict[str, Any], took: float) -> dict[str, Any]:
    ok = judged["valid"]
    return {
        "rows": len(ok),
        "answered": float(judged["there"].mean()),
        "validity": float(ok.mean()),
        "changed": float(judged["changed"][ok].mean()) if ok.any() else None,
        "l1": float(judged["l1"][ok].mean()) if ok.any() else None,
        "seconds per row": took / len(ok),
    }


def search(name: str, count: int, scale: float) -> dict[str, Any]:
    """One dataset."""
    task = Task(name)
    everyone = task.refused.iloc[: max(1, int(scale * len(task.refused)))]
    some = everyone.iloc[:count]
    out: dict[str, Any] = {
        "refused": len(everyone),
        "rows beside the others": len(some),
        "methods": {},
    }
    runs: dict[str, tuple[dict[str, Any], float]] = {}

    def run(label: str, work: Callable[[], tuple[dict[str, Any], float]]) -> None:
        try:
            runs[label] = work()
        except ImportError as error:
            print(f"{label} is left out: {error}; see the top of this file for how to install it")
            out["methods"][label] = {"left out": str(error)}
            return
        out["methods"][label] = brief(*runs[label])
        print(f"{name} {label}: {out['methods'][label]}", flush=True)

    for label, norm in (("fewest", 0), ("smallest", 1)):
        run(f"TreeSearch, {label}, all rows", lambda n=norm: holdfast(task, everyone, n))
        run(f"TreeSearch, {label}", lambda n=norm: holdfast(task, some, n))
    for method in ("random", "genetic", "kdtree"):
        run(f"dice-ml {method}", lambda m=method: dice(task, some, m))
    run("NICE sparsity", lambda: nice(task, some))

    figures = figures_of(runs)
    out["figures"] = figures
    model = task.model(task.data.schema)
    cfs = hf.TreeSearch().fit(model, task.X).explain(model, everyone, "yes")
    proved = cfs.status["reason"].str.startswith("proved").to_numpy()
    out["with its own schema"] = {
        "answered": float(cfs.found.mean()),
        "proved to have none": float(proved.mean()),
    }
    figures["refused rows without an answer or a proof"] = float((~cfs.found & ~proved).mean())
    print(json.dumps(out["with its own schema"] | figures, indent=1), flush=True)
    return out


def figures_of(runs: dict[str, tuple[dict[str, Any], float]]) -> dict[str, float]:
    every = runs["TreeSearch, smallest, all rows"][0]
    some, took = runs["TreeSearch, smallest"]
    few = runs["TreeSearch, fewest, all rows"][0]
    out = {
        "invalid answers": float(max((r["there"] & ~r["valid"]).mean() for r in (every, few))),
        "changed features, fewest": float(few["changed"][few["valid"]].mean()),
        "changed features, smallest": float(every["changed"][every["valid"]].mean()),
    }

    def ratio(label: str) -> float:
        both = some["valid"] & runs[label][0]["valid"]
        return float(some["l1"][both].mean() / runs[label][0]["l1"][both].mean())

    of_dice = [
        label for label in runs if label.startswith("dice-ml") and runs[label][0]["valid"].any()
    ]
    if of_dice:
        out["l1 / best of dice-ml"] = max(ratio(label) for label in of_dice)
        out["time per row / fastest of dice-ml"] = took / min(runs[label][1] for label in of_dice)
    if "NICE sparsity" in runs:
        out["l1 / NICE"] = ratio("NICE sparsity")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="tree models: copies and search")
    parser.add_argument(
        "out", nargs="?", type=Path, help="left out: benchmarks/results, if all of it is run"
    )
    parser.add_argument(
        "--rows", type=int, default=SOME, help="test rows that the other libraries are given"
    )
    parser.add_argument("--only", choices=["copies", "search"])
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of all rows, for a quick look"
    )
    call = parser.parse_args()
    whole = call.only is None and call.scale == 1.0 and call.rows == SOME
    out: Path | None = call.out or (RESULTS / "trees.json" if whole else None)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of the other libraries, about one another
    content: dict[str, Any] = {
        "holdfast": hf.__version__,
        "limits": LIMITS,
        "share of all rows": call.scale,
    }
    if call.only != "search":
        rows = int(ROWS * call.scale)
        content |= {"rows": rows, "models": copies(rows)}
    if call.only != "copies":
        content["search"] = {name: search(name, call.rows, call.scale) for name in DATASETS}
    for name, result in content.get("search", {}).items():
        for figure, value in result["figures"].items():
            print(
                f"{name:14} {figure:45} {value:8.3f}  "
                f"{'holds' if value <= LIMITS[figure] else 'MISSED'}"
            )
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
