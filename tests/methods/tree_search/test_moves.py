"""Every move leads into the cell that it claims, once its value is written into the table and read
again."""

from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

import holdfast as hf
from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves
from holdfast.methods.tree_search.single_changes import LeafChanges, LeafTable
from holdfast.models.compiled.tree_leaves import Cells
from holdfast.schema.user_units import settle
from support.tables import problem_of

ESTIMATORS: dict[str, Callable[[], Any]] = {
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=30, max_depth=4, n_jobs=1),
    "lightgbm": lambda: lightgbm.LGBMClassifier(
        n_estimators=20, num_leaves=8, n_jobs=1, verbose=-1
    ),
    "forest": lambda: RandomForestClassifier(10, max_depth=5, random_state=0),
    "hist": lambda: HistGradientBoostingClassifier(max_iter=15, max_leaf_nodes=8, random_state=0),
}


def moves_that_lead_elsewhere(model: hf.Model, X: pd.DataFrame) -> tuple[int, dict[str, int]]:
    """How many single moves the people of a table have, and how many of each column do not have,
    once they are written into the table, the score that the leaves promise: by the model itself."""
    trees = model.thresholds
    schema = model.schema
    assert trees is not None
    assert trees.leaves is not None
    problem = problem_of(model, schema.encode(X, model.dtype), model.classes[1])
    moves = CellMoves.of(trees.cells, schema, model.dtype)
    personal = PersonalMoves.of(moves, problem.feasible)
    changes = LeafChanges(
        problem, personal, LeafTable(trees.leaves, moves, trees.outputs), ties=False
    )
    open_ = personal.price.isfinite()
    promised = changes.gaps(torch.arange(len(X)), personal.own, open_)
    who, move = open_.nonzero(as_tuple=True)
    z = personal.after(personal.rows(who, personal.own[who]), who, move)
    after = schema.write(*_of(settle(schema, z, schema.read(X)[who.numpy()]), X.iloc[who.numpy()]))
    found = problem.goal[who].gap(model.score_frame(after))
    wrong = [
        schema.columns[int(c)]
        for c in moves.column[move[(promised[who, move] - found).abs() > 1e-4]]
    ]
    return len(who), {name: wrong.count(name) for name in wrong}


def _of(settled: tuple[Any, Any], before: pd.DataFrame) -> tuple[Any, pd.DataFrame, Any]:
    return settled[0], before, settled[1]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_recipes_over_encoded_rows_of_german_credit(kind: str) -> None:
    credit = hf.datasets.german_credit()
    train, test = credit.split()
    model = hf.Recipe(estimator=ESTIMATORS[kind](), inputs="encoded").fit(
        train.X, train.y, credit.schema
    )
    refused = test.X[(model.predict(test.X) == model.classes[0]).to_numpy()].head(20)
    count, wrong = moves_that_lead_elsewhere(model, refused)
    assert count > 500
    assert not wrong
    cfs = hf.TreeSearch().explain(model, refused, model.classes[1])
    assert len(cfs) == 20
    assert set(cfs.status["status"]) <= {"found", "impossible"}
    assert cfs.found.sum() >= 19


def mixed(rows: int = 150) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "months": rng.integers(4, 73, rows),
            "amount": 250 * rng.integers(1, 60, rows),  # in steps
            "rate": (rng.integers(0, 40, rows) / 8).astype("float32"),  # in steps
            "year": rng.normal(2000, 4, rows).astype("float32"),
            "large": rng.normal(1e5, 3, rows).astype("float32"),
            "small": rng.normal(0, 1e-4, rows).astype("float32"),
            "plain": rng.normal(0, 1, rows),
            "far": rng.normal(1e9, 1, rows),
            "code": rng.choice(list("abc"), rows),
        }
    )
    size = X.drop(columns="code").apply(lambda c: (c - c.mean()) / c.std()).sum(axis=1)
    return X, (size + rng.normal(0, 1, rows) > 0).astype(int)


@pytest.mark.parametrize("scaling", ["standard", "minmax", "robust", "none"])
@pytest.mark.parametrize("inputs", ["encoded", "frame"])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_moves_of_integers_steps_and_float32(kind: str, inputs: Any, scaling: Any) -> None:
    X, y = mixed()
    X = X if inputs == "encoded" else X.drop(columns="code")
    schema = hf.Schema.infer(X, scaling=scaling, steps={"amount": 250, "rate": 0.125})
    rows = schema.encode(X, torch.float64).numpy() if inputs == "encoded" else X
    model = hf.Model.of(ESTIMATORS[kind]().fit(rows, y), schema, inputs=inputs)
    assert model.conversion, model.conversion.text
    count, wrong = moves_that_lead_elsewhere(model, X.head(15))
    assert count > 100
    assert not wrong


@st.composite
def cuts_of_a_column(draw: Any) -> tuple[hf.Feature, Any, torch.dtype]:
    """A column of any kind, cuts of a model over it, and the precision of encoded rows; cuts lie
    anywhere, or within a few last digits of values that the column can hold."""
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    kind, storage = draw(
        st.sampled_from([("real", "float64"), ("real", "float32"), ("integer", "int64")])
    )
    center = draw(st.sampled_from([0.0, 0.3, 2000.25, -1e5]))
    scale = draw(st.sampled_from([1.0, 0.37, 12.5]))
    step = draw(st.sampled_from([0.0, 1.0, 3.0] if kind == "integer" else [0.0, 0.25, 2.5]))
    f = hf.Feature(
        "a",
        kind,
        center=center,
        scale=scale,
        step=step,
        dtype=storage,
        seen=(center - 60, center + 60),
    )
    grid = f.grid or float(f.digit(np.array([max(abs(center), 1.0)]))[0]) * 4096
    ticks = draw(st.lists(st.integers(-20, 20), min_size=1, max_size=8, unique=True))
    beside = draw(st.lists(st.integers(-3, 3), min_size=len(ticks), max_size=len(ticks)))
    between = draw(
        st.lists(st.sampled_from([0.0, 0.5, 0.3]), min_size=len(ticks), max_size=len(ticks))
    )
    values = f.stored(np.round(center / grid) * grid + grid * (np.array(ticks) + np.array(between)))
    cuts = ((values - center) / scale).astype(np.float32 if dtype == torch.float32 else np.float64)
    for way in (-1, 1):
        for i in range(3):
            more = np.array(beside) * way > i
            cuts = np.where(more, np.nextafter(cuts, np.array(way * np.inf, cuts.dtype)), cuts)
    return f, np.unique(cuts.astype(np.float64)), dtype


@settings(max_examples=150, deadline=None)
@given(cuts_of_a_column(), st.integers(-40, 40))
def test_the_ends_of_any_cell_are_in_it_once_they_are_written(
    column: tuple[hf.Feature, Any, torch.dtype], at: int
) -> None:
    f, cuts, dtype = column
    schema = hf.Schema((f,))
    cells = Cells(0, slice(0, 1), cuts)
    person = f.stored(
        f.multiples(np.array([f.center + at])) if f.grid else np.array([f.center + at])
    )
    table = schema.table(person[:, None])
    x = schema.encode(table, dtype)
    personal = PersonalMoves.of(CellMoves.of([cells], schema, dtype), schema.feasible(x))
    who, move = personal.price.isfinite().nonzero(as_tuple=True)
    z = personal.after(personal.rows(who, personal.own[who]), who, move)
    numbers, changed = settle(schema, z, schema.read(table)[who.numpy()])
    after = schema.encode(schema.write(numbers, table.iloc[who.numpy()], changed), dtype)
    if not f.grid:  # cells with no room for a number that the table can hold are not promised
        low = np.append(-np.inf, cuts)
        high = np.append(cuts, np.inf)
        room = (high - low) * f.scale > 64 * f.digit(np.abs(np.array([f.center])) + 100)[0]
        room &= (high - low) > 64 * torch.finfo(dtype).eps * (
            np.abs(cuts).max(initial=1.0) + abs(f.center / f.scale)
        )
        wide = torch.tensor(room)[move]
        after = after[wide]
        move = move[wide]
    assert cells.of(after).tolist() == move.tolist()
