"""What single moves do to every model of a stack, beside what the models say themselves."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.ensemble import RandomForestClassifier

import holdfast as hf
from holdfast.methods.survival_search.bank_changes import union_cells
from holdfast.methods.survival_search.leaf_stack import LeafStack, PersonalLeaves
from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves
from holdfast.models.scores import to_scores

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "a": RNG.normal(size=120),
        "b": RNG.integers(0, 9, 120),
        "k": RNG.choice(["x", "y", "z"], 120),
        "c": np.where(RNG.random(120) < 0.2, np.nan, RNG.normal(size=120)),
    }
)
KINDS = ["xgboost", "forest", "several classes"]


def models_of(kind: str, count: int) -> list[hf.Model]:
    """Models that differ in their rows."""
    table = TABLE if kind != "forest" else TABLE.drop(columns="c")
    schema = hf.Schema.infer(table)
    out = list[hf.Model]()
    for seed in range(count):
        rows = np.random.default_rng(seed).integers(len(table), size=len(table))
        score = table["a"] + (table["k"] == "x") + table["b"] / 4 - 1
        y: Any = (score.iloc[rows] > 0).astype(int) + (score.iloc[rows] > 1.2) * (
            kind == "several classes"
        )
        trees: Any = xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1)
        forest = RandomForestClassifier(5, max_depth=3, random_state=seed)
        recipe = hf.Recipe(estimator=forest if kind == "forest" else trees, inputs="encoded")
        out.append(recipe.fit(table.iloc[rows], y, schema))
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_model_is_asked_about_every_move(kind: str, dtype: torch.dtype) -> None:
    models = models_of(kind, 4)
    schema = models[0].schema
    indexes = [m.thresholds for m in models if m.thresholds is not None]
    assert len(indexes) == 4
    x = schema.encode(TABLE[schema.names].head(9), torch.float64)
    moves = CellMoves.of(union_cells(models)[0], schema, torch.float64)
    personal = PersonalMoves.of(moves, schema.feasible(x))
    leaves = PersonalLeaves(LeafStack(indexes, dtype), personal)
    # Two candidates of every person: as they are, and with a random move; then some moves of each.
    rng = np.random.default_rng(1)
    person = torch.arange(9).repeat_interleave(2)
    taken = personal.own[person]
    for i in range(1, 18, 2):
        open_ = personal.price[person[i]].isfinite().nonzero().squeeze(1).numpy()
        move = int(rng.choice(open_))
        taken[i, moves.feature[move]] = move
    tried = personal.price[person].isfinite() & torch.tensor(rng.random((18, len(moves))) < 0.4)
    move, state = tried.T.nonzero(as_tuple=True)
    raw = leaves.raw(person, taken, state, move)  # (4, p, k)
    z = personal.after(personal.rows(person[state], taken[state]), person[state], move)
    for i, model in enumerate(models):
        found = to_scores(raw[i].double(), indexes[i].outputs)
        said = model(z)
        close = 1e-9 if dtype == torch.float64 else 1e-4
        probabilities = (torch.softmax(v, 1) for v in (found, said))
        torch.testing.assert_close(*probabilities, atol=close, rtol=0)


def test_sums_in_single_precision_do_not_depend_on_what_else_is_asked() -> None:
    models = models_of("xgboost", 12)
    schema = models[0].schema
    indexes = [m.thresholds for m in models if m.thresholds is not None]
    x = schema.encode(TABLE.head(11), torch.float64)
    personal = PersonalMoves.of(
        CellMoves.of(union_cells(models)[0], schema, torch.float64), schema.feasible(x)
    )
    leaves = PersonalLeaves(LeafStack(indexes, torch.float32), personal)
    people = torch.arange(11)
    tried = personal.price.isfinite()
    move, state = tried.T.nonzero(as_tuple=True)
    all_at_once = leaves.raw(people, personal.own, state, move)
    for i in (0, 7):
        some = (state == i).nonzero().squeeze(1)
        alone = leaves.raw(
            people[i : i + 1], personal.own[i : i + 1], torch.zeros_like(some), move[some]
        )
        assert torch.equal(alone, all_at_once[:, some])
