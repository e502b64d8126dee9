"""Survival search against closed forms, brute force over all reachable rows, and counts by hand."""

import copy
import itertools
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from scipy.optimize import brentq
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.naive_bayes import GaussianNB
from torch import nn

import holdfast as hf
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast.methods.survival_search.donors import DONORS, LIKELY, donors_of
from holdfast.methods.survival_search.guide import guide_of
from holdfast.methods.survival_search.problem import SurvivalProblem
from holdfast.problem import TimeBudget
from holdfast.retraining.model_group import ModelGroup

GRID = pd.DataFrame(
    list(itertools.product(range(6), range(5), range(4), ["a", "b", "c"])), columns=list("uvwk")
)


def learnt(seed: int) -> np.ndarray:
    """Outcomes that no two models learn alike."""
    noise = np.random.default_rng(seed).normal(scale=1.5, size=len(GRID))
    score = GRID["u"] - 2 + GRID["v"] / 2 + (GRID["k"] == "b") - GRID["w"] / 2 + noise
    return np.where(score > 1.2, 1, 0)


@cache
def small_world(kind: str) -> tuple[hf.Model, hf.ModelBank]:
    """A model over a table of 360 possible rows, and three relatives."""
    schema = hf.Schema.infer(GRID, integers=["u", "v", "w"])

    def model(seed: int) -> hf.Model:
        if kind == "xgboost":
            estimator: Any = xgboost.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1)
        else:
            estimator = RandomForestClassifier(7, max_depth=4, random_state=seed)
        return hf.Recipe(estimator=estimator, inputs="encoded").fit(GRID, learnt(seed), schema)

    return model(0), hf.ModelBank.of([model(seed) for seed in (1, 2, 3)])


def bound(model: hf.Model, bank: hf.ModelBank, c: float, rows: pd.DataFrame) -> np.ndarray:
    """S_c by the definition, from the estimators' own probabilities."""

    def margin(one: hf.Model) -> np.ndarray:
        x = one.schema.encode(rows, torch.float64).numpy()
        return 2 * one.wrapped.predict_proba(x)[:, 1].astype(np.float64) - 1

    g = np.stack([margin(bank.model(i)) for i in range(len(bank))])
    return np.minimum(margin(model), g.mean(0) - c * g.std(0, ddof=1))


@pytest.mark.parametrize("kind", ["xgboost", "forest"])
@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("c", [0.5, 2.0])
def test_no_reachable_row_that_holds_is_cheaper(kind: str, norm: int, c: float) -> None:
    model, bank = small_world(kind)
    people = GRID[model.predict(GRID).to_numpy() == 0].iloc[::5]
    method = hf.SurvivalSearch(bank, safety=c, norm=norm, beam=400, depth=4)
    plans = method.explain(model, people, 1)
    holds = bound(model, bank, c, GRID) > 1e-4
    x = model.schema.encode(people, torch.float64)
    z = model.schema.encode(GRID, torch.float64)
    far = (x[:, None] - z).abs().sum(2).numpy()  # (people, rows)
    changed = np.stack([(person != GRID).sum(axis=1).to_numpy() for _, person in people.iterrows()])
    price = changed * 1000 + far if norm == 0 else far
    best = np.where(holds, price, np.inf).min(1)
    assert holds.any(), "the world has rows that hold"
    assert (plans.found == np.isfinite(best)).all()
    own = plans.cost("l0").to_numpy() * 1000 * (norm == 0) + plans.cost("l1").to_numpy()
    np.testing.assert_allclose(own[plans.found], best[plans.found], rtol=0, atol=1e-5)


@cache
def six_columns() -> tuple[pd.DataFrame, hf.Model, hf.ModelBank]:
    """Forests that are sure only where many of six columns are large."""
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 6)), columns=list("abcdef"))
    made = [
        hf.Recipe(estimator=RandomForestClassifier(20, max_depth=6), inputs="encoded").fit(
            table, (table.sum(axis=1) > 0).astype(int), hf.Schema.infer(table), seed=i
        )
        for i in range(4)
    ]
    return table, made[0], hf.ModelBank.of(made[1:])


def test_people_may_change_more_features_where_a_few_are_not_enough() -> None:
    table, model, bank = six_columns()
    far = table[(table < 0).sum(axis=1) >= 5].head(8)
    target = hf.Target(1, probability=0.8)
    plans = hf.SurvivalSearch(bank, safety=1.0, depth=1).explain(model, far, target)
    changed = plans.cost("l0")[plans.found]
    assert len(changed) >= 6
    assert changed.max() > 1
    assert changed.max() <= 3  # three times the depth


def accepted(model: hf.Model, rows: pd.DataFrame) -> np.ndarray:
    """What the estimator itself says the chance of 1 is."""
    return model.wrapped.predict_proba(model.schema.encode(rows, torch.float64).numpy())[:, 1]


def test_people_become_like_sure_rows_where_growing_stops_short() -> None:
    """All of eight columns have to be large: no few of them help."""
    table = pd.DataFrame(np.random.default_rng(1).normal(size=(600, 8)), columns=list("abcdefgh"))
    outcome = (table.min(axis=1) > -1).astype(int)
    made = [
        hf.Recipe(estimator=RandomForestClassifier(20), inputs="encoded").fit(
            table, outcome, hf.Schema.infer(table, fixed=["h"]), seed=i
        )
        for i in range(4)
    ]
    model = made[0]
    bank = hf.ModelBank.of(made[1:])
    far = table[((table < -1).sum(axis=1) >= 3) & (table["h"] > 0)].head(8)
    target = hf.Target(1, probability=0.8)
    method = hf.SurvivalSearch(bank, safety=2.0, depth=1, beam=2)
    grown = method.explain(model, far, target)
    fitted = (
        hf.SurvivalSearch(bank, safety=2.0, depth=1, beam=2)
        .fit(model, table)
        .explain(model, far, target)
    )
    assert fitted.found[grown.found].all()
    by_donors = fitted.found & ~grown.found
    assert by_donors.any()
    # Of three models none lies 2 deviations from their mean: all of them accept.
    rows = fitted.to_frame()[by_donors]
    assert all(bool((accepted(bank.model(i), rows) > 0.8).all()) for i in range(3))
    # What is not needed of a donor is given back: nobody has to take over all of one.
    assert fitted.cost("l0")[by_donors].max() < 7


def test_donors_by_the_definition() -> None:
    table, model, bank = six_columns()
    data = hf.NearestNeighbor().fit(model, table)
    x = model.schema.encode(table.head(3), model.dtype)
    goal = hf.Target(1).bind(model, model(x))
    problem = SurvivalProblem(
        model,
        x,
        goal,
        model.schema.feasible(x),
        RowRandom.of(0, x),
        TimeBudget(None, Progress(False, "")),
        guide_of(bank),
        torch.zeros(len(x), dtype=torch.float64),
    )
    [(people, donors)] = donors_of(problem, data)
    assert people.tolist() == [0, 1, 2]
    wanted = table[(model.predict(table) == 1).to_numpy()]
    lead = np.stack([2 * accepted(bank.model(i), wanted) - 1 for i in range(3)])
    likely = np.argsort(-accepted(model, wanted), kind="stable")[:LIKELY]
    ahead = lead.mean(0)[likely] / np.maximum(lead.std(0, ddof=1)[likely], 1e-6)
    assert len(donors) == DONORS
    place = {
        tuple(row): i
        for i, row in enumerate(model.schema.encode(wanted.iloc[likely], model.dtype).tolist())
    }
    found = ahead[[place[tuple(row)] for row in donors.tolist()]]
    np.testing.assert_allclose(found, np.sort(ahead)[::-1][:DONORS], rtol=1e-4)


def test_one_column_in_closed_form() -> None:
    """Lines g_m(z) = a_m z + b_m: where mean - c sd crosses zero is a root that scipy finds too."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": np.linspace(-3.0, 3.0, 50)})
    schema = hf.Schema.infer(table, bounds={"income": (-50.0, 50.0)}, scaling="none")
    slopes = rng.uniform(0.5, 1.5, 6)
    offsets = rng.uniform(-1, 1, 6)

    def line(a: float, b: float) -> hf.Model:
        net = nn.Linear(1, 1)
        net.weight.data[:] = a
        net.bias.data[:] = b
        return hf.Model.of(net.double(), schema, classes=["no", "yes"])

    model = line(1.0, 0.2)
    bank = hf.ModelBank.of([line(float(a), float(b)) for a, b in zip(slopes, offsets, strict=True)])

    def least(c: float) -> float:
        def surest(z: float) -> float:
            margins = slopes * z + offsets
            return min(z + 0.2, margins.mean() - c * margins.std(ddof=1))

        return float(brentq(surest, -5, 50))

    people = table[(model.predict(table) == "no").to_numpy()]
    levels = (0.0, 1.0, 2.0)
    plans = hf.SurvivalSearch(bank, safety=levels).explain(model, people, "yes")
    assert plans.found.all()
    wanted = np.array([[max(least(c), least(0.0)) - z for c in levels] for z in people["income"]])
    np.testing.assert_allclose(plans.cost("l1").to_numpy().reshape(-1, 3), wanted, atol=2e-3)


@cache
def networks() -> tuple[hf.Model, hf.BankSplit, pd.DataFrame]:
    data = hf.datasets.overlapping(n=300)
    recipe = hf.Recipe(hidden=(8, 4), epochs=30, lr=0.03)
    bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families={"retrain": 90})
    model = recipe.fit(data.X, data.y, data.schema)
    refused = data.X[(model.predict(data.X) == "no").to_numpy()]
    return model, bank.split(guide=30, audit=60), refused.head(20)


def test_the_gradient_is_that_of_the_bound() -> None:
    model, parts, refused = networks()
    x = model.schema.encode(refused, torch.float32).double()
    scores = model(x.float())
    goal = hf.Target("yes", probability=0.7).bind(model, scores)

    def exactly(one: hf.Model) -> hf.Model:
        return hf.Model.of(copy.deepcopy(one.module).double(), model.schema, classes=model.classes)

    exact = exactly(model)
    twice = hf.ModelBank.of([exactly(parts.guide.model(i)) for i in range(5)])
    problem = SurvivalProblem(
        exact,
        x,
        goal,
        model.schema.feasible(x),
        None,
        TimeBudget(None, Progress(False, "")),
        guide_of(twice),
        torch.full((len(x),), 1.5, dtype=torch.float64),
    )
    with exact.eval_mode():
        value, gradient = problem.gap_and_gradient(x)
        torch.testing.assert_close(value, problem.gap(x))
        for j in range(x.shape[1]):
            step = torch.zeros_like(x)
            step[:, j] = 1e-6
            slope = (problem.gap(x + step) - problem.gap(x - step)) / 2e-6
            torch.testing.assert_close(gradient[:, j], slope, rtol=1e-4, atol=1e-5)


def test_plans_hold_where_smallest_answers_do_not() -> None:
    model, parts, refused = networks()
    smallest = hf.audit(hf.MinCost().explain(model, refused, "yes"), parts.audit).survival().mean()
    plans = hf.SurvivalSearch(parts.guide).explain(model, refused, "yes")
    assert smallest < 0.8
    assert hf.audit(plans, parts.audit).certified().all()


def test_more_certainty_costs_more() -> None:
    model, parts, refused = networks()
    cost = (
        hf.SurvivalSearch(parts.guide, safety=(3.0, 0.0, 1.5))
        .explain(model, refused, "yes")
        .cost("l1")
        .to_numpy()
    )
    by_level = cost.reshape(-1, 3)[:, [1, 2, 0]]
    assert (np.diff(by_level, axis=1) >= -1e-6).all()
    assert (by_level[:, 2] > by_level[:, 0]).all()


@pytest.mark.parametrize("p", [None, 0.8])
def test_margins_are_counted_from_what_was_asked(p: float | None) -> None:
    """Guides of trees give log-odds of the asked class minus those asked for; the bound squashes
    them."""
    wanted = np.log((p or 0.5) / (1 - (p or 0.5)))
    for kind in ("xgboost", "forest"):
        model, bank = small_world(kind)
        x = model.schema.encode(GRID, torch.float64)
        goal = hf.Target(1, probability=p).bind(model, model(x))
        prob = np.stack(
            [bank.model(i).wrapped.predict_proba(x.numpy())[:, 1].astype(float) for i in range(3)]
        )
        odds = np.log(prob.clip(1e-300) / (1 - prob).clip(1e-16))
        guide = guide_of(bank)
        margins = guide.margins(x, goal)
        np.testing.assert_allclose(margins.numpy(), odds - wanted, rtol=1e-5, atol=1e-5)
        judged = guide.judged(margins, margins[0])
        np.testing.assert_allclose(judged.numpy(), np.tanh((odds - wanted) / 2), atol=1e-5)


def test_fragile_answers_say_how_many_models_accept_them() -> None:
    data = hf.datasets.overlapping(n=300)
    recipe = hf.Recipe(hidden=(), epochs=30, lr=0.1)
    model = recipe.fit(data.X, data.y, data.schema)
    relatives = [recipe.fit(data.X, data.y, data.schema, seed=i) for i in (1, 2)]
    against = recipe.fit(data.X, np.where(data.y == "yes", "no", "yes"), data.schema)
    bank = hf.ModelBank.of([*relatives, against, against])
    refused = data.X[(model.predict(data.X) == "no").to_numpy()].head(6)
    plans = hf.SurvivalSearch(bank, safety=2.0).explain(model, refused, "yes")
    assert plans.status["status"].eq("fragile").all()
    assert plans.answered.all()
    assert not plans.found.any()
    assert (model.predict(plans.to_frame()) == "yes").all()
    share = (bank.predict(plans.to_frame()) == "yes").mean(0)
    assert plans.status["reason"].tolist() == [
        f"only {100 * s:.0f}% of the retrained models that guided the search accept it"
        for s in share
    ]
    assert plans.sentences().str.contains("but only").all()


def test_a_person_without_any_answer_is_impossible() -> None:
    model, bank = small_world("xgboost")
    fixed = model.with_schema(model.schema.change(**{name: {"change": "fixed"} for name in "uvk"}))
    accepts = model.predict(GRID).groupby([GRID[name] for name in "uvk"]).transform("max")
    refused = GRID[(accepts == 0).to_numpy()].iloc[::4]
    assert len(refused) > 4
    plans = hf.SurvivalSearch(bank).explain(fixed, refused, 1)
    assert plans.status["status"].eq("impossible").all()
    assert plans.status["reason"].str.startswith("proved").all()


def test_ranges_of_regression_models() -> None:
    data = hf.datasets.overlapping(n=300)
    rent = (
        data.X.iloc[:, 0] * 2
        + data.X.iloc[:, 1]
        + np.random.default_rng(0).normal(size=len(data.X)) / 4
    )
    recipe = hf.Recipe(estimator=RandomForestRegressor(20, max_depth=5, random_state=0, n_jobs=1))
    model = recipe.fit(data.X, rent, data.schema)
    bank = hf.ModelBank.retrain(recipe, data.X, rent, data.schema, families={"retrain": 30})
    parts = bank.split(guide=10, audit=20)
    low = float(rent.quantile(0.7))
    high = float(rent.quantile(0.95))
    people = data.X[(model.predict(data.X) < low - 1).to_numpy()].head(8)
    target = hf.Target.between(low, high)
    plain = hf.TreeSearch(norm=1).explain(model, people, target)
    plans = hf.SurvivalSearch(parts.guide).explain(model, people, target)
    assert plans.found.all()
    assert (
        hf.audit(plans, parts.audit).survival().mean()
        > 0.95
        > hf.audit(plain, parts.audit).survival().mean()
    )


def test_models_that_only_answer_when_asked() -> None:
    data = hf.datasets.overlapping(n=300)
    recipe = hf.Recipe(estimator=GaussianNB(), inputs="encoded")
    model = recipe.fit(data.X, data.y, data.schema)
    assert not model.conversion
    bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families={"retrain": 60})
    parts = bank.split(guide=20, audit=40)
    refused = data.X[(model.predict(data.X) == "no").to_numpy()].head(6)
    plans = hf.SurvivalSearch(parts.guide, safety=3.0, beam=2).explain(model, refused, "yes")
    assert plans.found.all()
    assert hf.audit(plans, parts.audit).survival().min() > 0.9


def test_errors_name_the_thing() -> None:
    model, parts, refused = networks()
    with pytest.raises(hf.HoldfastError, match="needs data"):
        hf.SurvivalSearch().explain(model, refused, "yes")
    with pytest.raises(hf.HoldfastError, match="at least 2 models"):
        hf.SurvivalSearch(parts.guide[:1]).explain(model, refused, "yes")
    with pytest.raises(hf.HoldfastError, match="safety must be 0 or more"):
        hf.SurvivalSearch(parts.guide, safety=-1.0).explain(model, refused, "yes")
    with pytest.raises(hf.HoldfastError, match="guided the search"):
        hf.audit(hf.SurvivalSearch(parts.guide).explain(model, refused, "yes"), parts.guide)
    assert isinstance(parts.guide.groups[0], ModelGroup)
