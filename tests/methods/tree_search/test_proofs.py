"""Proofs of TreeSearch, against every reachable row of small tables."""

import importlib
import sys
from dataclasses import dataclass
from itertools import product
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import holdfast as hf
from holdfast.models.black_box import CompiledModel
from holdfast.schema.columns import differ
from holdfast.schema.verify import violations

WHOLE = pd.DataFrame(
    list(product(range(6), range(5), range(3), "abc")), columns=["n", "m", "k", "job"]
)
GAPPY = pd.DataFrame(
    list(
        product([np.nan, *map(float, range(5))], [*map(float, range(4)), np.nan], range(3), "abc")
    ),
    columns=["n", "m", "k", "job"],
)
LIBRARIES = ("xgboost", "lightgbm", "hist", "forest", "extra")


def fitted(library: str, rng: np.random.Generator, table: pd.DataFrame, classes: int) -> Any:
    """A small ensemble that has learned noise."""
    score = table[["n", "m", "k"]].fillna(1.3).sum(axis=1) + 2 * (table["job"] == "b")
    score = score + rng.normal(0, 1.5, len(table))
    edges = np.quantile(score, np.arange(1, classes) / classes)
    y = np.array(["no", "perhaps", "yes"] if classes == 3 else ["no", "yes"])
    y = np.digitize(score, edges)
    seed = int(rng.integers(1000))
    made = {
        "xgboost": xgboost.XGBClassifier(
            n_estimators=int(rng.integers(3, 12)), max_depth=3, learning_rate=0.6, n_jobs=1
        ),
        "lightgbm": lightgbm.LGBMClassifier(
            n_estimators=int(rng.integers(3, 12)),
            num_leaves=6,
            min_child_samples=3,
            verbose=-1,
            learning_rate=0.5,
            n_jobs=1,
        ),
        "hist": HistGradientBoostingClassifier(
            max_iter=6, max_leaf_nodes=6, min_samples_leaf=3, random_state=seed
        ),
        # trees that are sure of themselves vote, and there are ties
        "forest": RandomForestClassifier(int(rng.integers(4, 9)), random_state=seed),
        "extra": ExtraTreesClassifier(6, max_depth=5, random_state=seed),
    }[library]
    prepare = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["job"]), remainder="passthrough"
    )
    return make_pipeline(prepare, made).fit(table, y)


def any_schema(rng: np.random.Generator, table: pd.DataFrame) -> hf.Schema:
    """Directions, prices, rules and limits at random."""
    rules = [[], [], ["n + m <= 6"], ["k <= n"]][int(rng.integers(4))]
    schema = hf.Schema.infer(
        table,
        integers=["n", "m", "k"],
        rules=rules,
        max_changes=int(rng.choice([0, 0, 2, 3])),
        weights={"job": float(rng.choice([0.3, 1.0])), "n": float(rng.uniform(0.5, 2))},
    )
    ways = ["free", "free", "free", "up", "down", "fixed"]
    return schema.change(
        n={"change": str(rng.choice(ways))},
        m={"change": str(rng.choice(ways))},
        job={"change": str(rng.choice(["free", "free", "fixed"]))},
    )


@dataclass
class Truth:
    """All rows that a person can reach and the model accepts."""

    cost: torch.Tensor
    count: torch.Tensor

    @staticmethod
    def of(
        model: hf.Model, person: pd.DataFrame, target: hf.Target, table: pd.DataFrame
    ) -> "Truth":
        schema = model.schema
        before = np.repeat(schema.read(person), len(table), axis=0)
        rows = table[violations(schema, before, schema.read(table)) == ""]
        x = schema.encode(person, torch.float64)
        z = schema.encode(rows, torch.float64)
        goal = target.bind(model, model.score_frame(person, x))
        ok = goal[torch.zeros(len(z), dtype=torch.int64)].met(model.score_frame(rows, z))
        weight = schema.encoding(torch.float64).weight
        count = torch.tensor(differ(schema.read(rows), schema.read(person)).sum(1))
        return Truth(((z - x).abs() @ weight)[ok], count[ok])

    def cheapest(self, norm: int) -> float:
        cost = self.cost[self.count == self.count.min()] if norm == 0 else self.cost
        return float(cost.min())


@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("library", LIBRARIES)
def test_no_proof_is_wrong(library: str, norm: int) -> None:
    proved = 0
    cases = 0
    for seed in range(8):
        rng = np.random.default_rng([seed, norm, LIBRARIES.index(library)])
        gappy = library in ("xgboost", "lightgbm", "hist") and seed % 2 == 1
        table = GAPPY if gappy else WHOLE
        classes = 3 if seed % 4 == 2 else 2
        schema = any_schema(rng, table)
        names = list(range(classes))
        model = hf.Model.of(fitted(library, rng, table, classes), schema, classes=names)
        assert isinstance(model, CompiledModel)
        wanted = [
            hf.Target(classes - 1),
            hf.Target(None),
            hf.Target(1, probability=0.6),
            hf.Target(0),
        ][seed % 4]
        people = table.sample(16, random_state=seed)
        nodes = [2000, 2000, 3][int(rng.integers(3))]
        search = hf.TreeSearch(norm=norm, beam=2, max_nodes=nodes, proof_nodes=nodes)
        cfs = search.explain(model, people, wanted)
        for i in range(len(people)):
            if "already" in cfs.reasons[i] or "nothing can be" in cfs.reasons[i]:
                continue
            truth = Truth.of(model, people.iloc[i : i + 1], wanted, table)
            if not cfs.found[i]:
                assert not cfs.reasons[i].startswith("proved") or not len(truth.cost)
                continue
            cases += 1
            best = truth.cheapest(norm)
            gap = float(cfs.gap.iloc[i])
            mine = float(cfs.cost("weighted").iloc[i])
            if np.isnan(gap):
                continue
            assert cfs.least_cost is not None
            assert float(cfs.least_cost[i]) <= best + 1e-7
            assert mine <= best * (1 + gap) + 1e-6
            if norm == 0:
                changed = differ(schema.read(cfs.after), schema.read(cfs.before)).sum(1)[i]
                assert changed == int(truth.count.min())
            proved += gap == 0
    assert cases > 50
    assert proved > 0.5 * cases


def without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The search as it is where numba is not installed."""
    monkeypatch.setattr("holdfast._core.compiled.IS_COMPILED", False)
    boxes = "holdfast.methods.tree_search.boxes"
    for name in [name for name in sys.modules if name.startswith(boxes)]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module(f"{boxes}.prove")


@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("library", ["lightgbm", "forest"])
def test_answers_are_the_same_without_a_compiler(
    library: str, norm: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(5)
    schema = hf.Schema.infer(WHOLE, integers=["n", "m", "k"], rules=["k <= n"], max_changes=3)
    model = hf.Model.of(fitted(library, rng, WHOLE, 2), schema, classes=[0, 1])
    people = WHOLE.sample(40, random_state=0)
    plain = without_a_compiler(monkeypatch)
    search = hf.TreeSearch(norm=norm, beam=1, depth=4, proof_nodes=plain.PLAIN)
    fast = search.explain(model, people, 1)
    monkeypatch.setattr("holdfast.methods.tree_search.search.improve", plain.improve)
    slow = search.explain(model, people, 1)
    assert fast.least_cost is not None
    assert slow.least_cost is not None
    assert fast.found.sum() > 5
    assert torch.equal(fast.x_cf, slow.x_cf)
    assert torch.equal(fast.least_cost.nan_to_num(-1), slow.least_cost.nan_to_num(-1))
    assert not caplog.records
    for _ in range(2):  # said once
        hf.TreeSearch(norm=norm).explain(model, people.head(1), 1)
    assert len(caplog.records) <= 1
    assert all("holdfast[fast]" in record.message for record in caplog.records)
