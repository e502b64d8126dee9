"""Ties: what the model's own `predict` accepts with nothing to spare is an answer, and what it
refuses is none."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import FixedThresholdClassifier

import holdfast as hf
from holdfast.methods.tree_search.ties import Ties, first_of_best
from holdfast.models.black_box import CompiledModel
from support.tables import problem_of

ALL = 50_000  # a beam that holds every candidate of a small table


def table(classes: int, rows: int = 60) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(classes)
    X = pd.DataFrame(rng.random((rows, 2)), columns=["a", "b"])
    score = X["a"] + X["b"] + rng.normal(0, 0.25, rows)
    return X, np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))


def wrapped(estimator: Any, X: pd.DataFrame) -> CompiledModel:
    model = hf.Model.of(estimator, hf.Schema.infer(X))
    assert isinstance(model, CompiledModel)
    return model


def least_costs(model: CompiledModel, X: pd.DataFrame, accepted: Any) -> Any:
    """(n,) the least l1 of all cells in the middle of which `accepted` says so of a table."""
    encoding = model.schema.encoding(torch.float64)
    trees = model.thresholds
    assert trees is not None
    ends = list[Any]()
    for j, cells in enumerate(trees.cells):
        low = float(encoding.seen_low[j])
        high = float(encoding.seen_high[j])
        cuts = np.asarray(cells.cuts)
        ends.append(np.concatenate([[low], cuts[(cuts > low) & (cuts < high)], [high]]))
    middles = np.meshgrid(*((e[:-1] + e[1:]) / 2 for e in ends), indexing="ij")
    ok = accepted(
        model.schema.decode(torch.tensor(np.stack([m.ravel() for m in middles], 1)))
    ).reshape(middles[0].shape)
    out = list[float]()
    for row in model.schema.encode(X, torch.float64).numpy():
        a, b = (
            np.maximum(np.maximum(e[:-1] - v, v - e[1:]), 0) for e, v in zip(ends, row, strict=True)
        )
        out.append((a[:, None] + b)[ok].min(initial=np.inf))
    return np.array(out)


def level(model: CompiledModel, cfs: hf.Counterfactuals) -> Any:
    """(n,) which answers are ties, by the probabilities of the model itself."""
    p = np.sort(model.wrapped.predict_proba(cfs.after), 1)
    return np.isclose(p[:, -1], p[:, -2], atol=1e-12)


@pytest.mark.parametrize(("classes", "kind"), [(2, "forest"), (3, "forest"), (2, "threshold")])
def test_the_smallest_answers_of_a_forest_of_full_trees_are_those_of_its_own_predict(
    classes: int, kind: str
) -> None:
    X, y = table(classes, rows=60 if classes == 2 else 36)
    estimator: Any = RandomForestClassifier(10, random_state=0).fit(X, y)
    if kind == "threshold":  # says class 1 from one half on, where the forest itself says class 0
        estimator = FixedThresholdClassifier(
            estimator, threshold=0.5, response_method="predict_proba"
        ).fit(X, y)
    model = wrapped(estimator, X)
    decided = estimator.predict(X)
    tied = list[bool]()
    for label in range(classes):
        refused = X[decided != label]
        cfs = hf.TreeSearch(norm=1, beam=ALL).explain(model, refused, label)
        assert cfs.found.all()
        assert (estimator.predict(cfs.after) == label).all()
        best = least_costs(
            model, refused, lambda frame, label=label: estimator.predict(frame) == label
        )
        assert np.allclose(cfs.cost("l1"), best, atol=1e-6)
        tied.append(bool(level(model, cfs).any()))
    # the first class wins all ties, the last one none
    wins = [True, *[classes > 2] * (classes - 2), False]
    assert tied == (wins if kind == "forest" else wins[::-1])


def test_a_share_that_was_asked_for_is_not_met_by_itself() -> None:
    X, y = table(2)
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    model = wrapped(forest, X)
    p = forest.predict_proba(X)[:, 0]
    for share in (0.5, 0.6):
        refused = X[p <= share - 0.05]
        cfs = hf.TreeSearch(norm=1, beam=ALL).explain(
            model, refused, hf.Target(0, probability=share)
        )
        best = least_costs(
            model,
            refused,
            lambda frame, share=share: forest.predict_proba(frame)[:, 0] > share + 1e-9,
        )
        assert np.allclose(cfs.cost("l1"), best, atol=1e-6)


def test_both_ends_of_a_range_belong_to_it() -> None:
    X, y = table(3)
    forest = RandomForestRegressor(4, random_state=0).fit(X, y)
    model = wrapped(forest, X)
    estimate = forest.predict(X)
    asked = X[estimate < 1.0]
    cfs = hf.TreeSearch(norm=1, beam=ALL).explain(model, asked, hf.Target.between(1.0, 1.25))
    best = least_costs(
        model, asked, lambda frame: (forest.predict(frame) >= 1.0) & (forest.predict(frame) <= 1.25)
    )
    assert np.allclose(cfs.cost("l1"), best, atol=1e-6)
    assert (forest.predict(cfs.after) == 1.0).any()


def test_the_rule_of_a_tie_is_found_by_asking_the_model() -> None:
    X, y = table(3)
    model = wrapped(RandomForestClassifier(10, random_state=0).fit(X, y), X)
    problem = problem_of(model, model.schema.encode(X, torch.float64), 1)
    ties = Ties()
    scores = torch.log(
        torch.tensor(
            [[0.5, 0.5, 1e-9], [1e-9, 0.5, 0.5], [0.5, 0.5, 0.5], [0.1, 0.4, 0.4]]
        ).double()
    )
    assert first_of_best(scores).tolist() == [0, 1, 0, 1]
    wins, open_ = ties.of(problem, torch.ones(4, dtype=torch.int64), scores)
    assert wins.tolist() == [False, True, False, True]
    assert not open_.any()
    assert ties.known == {(1, 0): False, (1, 1): True}
    # A forest of few rows has too few ties to tell: each is asked about.
    assert Ties({(1, 0): None}).of(problem, torch.ones(1, dtype=torch.int64), scores[:1])[1].all()


def test_what_the_last_digit_decides_is_asked_about_one_by_one() -> None:
    """Leaves of thirds and sevenths: sums that are level to us are not always level to the
    forest."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 12, (120, 2)), columns=["a", "b"])
    forest = RandomForestClassifier(6, max_leaf_nodes=6, random_state=0).fit(
        X, (X["a"] + rng.integers(0, 9, 120)) > 9
    )
    model = wrapped(forest, X)
    decided = forest.predict(X)
    cells = pd.DataFrame([(a, b) for a in range(12) for b in range(12)], columns=["a", "b"])
    verdict = forest.predict(cells)
    x = model.schema.encode(cells, torch.float64)
    for label in (False, True):
        refused = X[decided != label]
        cfs = hf.TreeSearch(norm=1, beam=ALL).explain(model, refused, label)
        assert cfs.found.all()
        apart = torch.cdist(
            model.schema.encode(refused, torch.float64), x[torch.tensor(verdict == label)], p=1
        )
        assert np.allclose(cfs.cost("l1"), apart.amin(1).numpy(), atol=1e-6)
