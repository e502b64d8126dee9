"""Are certificates as seldom false as they say, for the very models that their judges are drawn
from?

    export HOLDFAST_DATA=...
    python -m benchmarks.repeated_banks --minutes 30   the next missing repetitions
    python -m benchmarks.repeated_banks --table        what they say

`benchmarks.next_training` asks whether judges are what the next models will be. This asks the
smaller question that comes before it: one table, one model, and twenty times `Recourse` with
retrained models that are all new. What it certifies is put before many more models of the same
family, which had no part in any of it. A certificate is false where fewer of these than promised
accept the plan.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import holdfast as hf
from benchmarks.next_training import Cell, World, commit, recipe_of

RESULTS = Path(__file__).parent / "results" / "repeated_banks"
TABLE = 200  # which the other experiment never draws
POPULATION = "gmsc"
KINDS = ("lr", "xgb", "net")
HOLDS = (0.8, 0.9, 0.95)
REPETITIONS = 20
JUDGES = 2000  # of what is true
FAR = 10_000  # their seed; far from those of the repetitions


@cache
def world_of(kind: str) -> tuple[World, hf.Recipe, hf.Model, pd.DataFrame]:
    """One table, its model, and the people whom it refuses."""
    world = World.of(Cell(POPULATION, kind, 1000, TABLE))
    recipe = recipe_of(kind)
    model = recipe.fit(*world.rows(world.table), world.schema, classes=world.classes, seed=TABLE)
    return world, recipe, model, world.data.X.iloc[world.refused(model)]


@cache
def truth_of(kind: str) -> hf.ModelBank:
    """Bootstraps that nobody else sees; led away from the model in use, they are the judges of
    judges."""
    world, recipe, _, _ = world_of(kind)
    rows = world.rows(world.table)
    families = {"retrain": JUDGES}
    return hf.ModelBank.retrain(
        recipe, *rows, world.schema, families=families, classes=world.classes, seed=FAR, workers=1
    )


def repetition(kind: str, hold: float, seed: int, kept: str) -> dict[str, Any]:
    """What one `Recourse` certifies, and on how many of the true judges it holds; all levels of a
    repetition share the retrained models, which the folder keeps."""
    start = time.perf_counter()
    world, recipe, model, people = world_of(kind)
    rows = world.rows(world.table)
    banks = hf.Banks(recipe=recipe, workers=1, cache=kept)
    recourse = hf.Recourse(model, *rows, hold=hold, banks=banks, seed=seed)
    plans = recourse.plans(people, world.target)
    judges = truth_of(kind).stretched(model, recourse.spread)
    certified = plans.certified.to_numpy()
    true = hf.audit(plans.cfs, judges).survival().to_numpy()
    return {
        "seed": seed,
        "people": len(plans),
        "certified": int(certified.sum()),
        "false": int((true[certified] < hold).sum()),
        "least": round(float(true[certified].min(initial=1.0)), 4),
        "spread": round(recourse.spread, 3),
        "seconds": round(time.perf_counter() - start, 1),
        "commit": commit(),
    }


def path_of(kind: str, hold: float) -> Path:
    return RESULTS / f"{POPULATION}-{kind}-{hold:g}.json"


def done(kind: str, hold: float) -> list[dict[str, Any]]:
    path = path_of(kind, hold)
    return json.loads(path.read_text()) if path.exists() else []


def missing() -> Iterator[tuple[int, str, float]]:
    """Seed, kind of model and level of what is not there yet."""
    for seed in range(1, REPETITIONS + 1):
        for kind in KINDS:
            for hold in HOLDS:
                if seed not in [r["seed"] for r in done(kind, hold)]:
                    yield seed, kind, hold


def table() -> pd.DataFrame:
    """One line per kind of model and level."""
    lines = list[dict[str, Any]]()
    for kind in KINDS:
        for hold in HOLDS:
            found = done(kind, hold)
            certified = np.array([r["certified"] for r in found])
            false = np.array([r["false"] for r in found])
            if len(found):
                lines.append(
                    {
                        "model": kind,
                        "hold": hold,
                        "repetitions": len(found),
                        "certified": int(certified.sum()),
                        "of": sum(r["people"] for r in found),
                        "false": false.sum() / max(certified.sum(), 1),
                        "most in one": float((false / np.maximum(certified, 1)).max()),
                    }
                )
    return pd.DataFrame(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Are certificates as seldom false as they say?")
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print(table().to_string(index=False, float_format=lambda v: f"{v:.3f}"))
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * given.minutes
    RESULTS.mkdir(parents=True, exist_ok=True)
    for (seed, kind), holds in groupby(missing(), key=lambda one: one[:2]):
        with tempfile.TemporaryDirectory() as kept:
            for _, _, hold in list(holds):
                if time.monotonic() >= end:
                    return
                found = [*done(kind, hold), repetition(kind, hold, seed, kept)]
                path_of(kind, hold).write_text(json.dumps(found, indent=0) + "\n")
                print(kind, hold, found[-1], flush=True)


if __name__ == "__main__":
    main()
