"""Judges of the next training: closed forms of the rule, and what is drawn of rows that belong
together."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from sklearn.linear_model import LinearRegression, LogisticRegression

import holdfast as hf
from holdfast.auditing.audit import audit_at
from holdfast.errors import SettingError
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.families import family
from holdfast.retraining.next_training import (
    LEAST_FROM_ROWS,
    RESERVE,
    fresh_rows,
    many_equal_rows,
    same_steps,
    share_from_rows,
    spread_for,
    spread_of_rows,
    spread_with_reserve,
)
from holdfast.retraining.row_facts import blocks_of, groups_of, weights_of

RNG = np.random.default_rng(3)
N = 240
X = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N)})
Y = pd.Series(np.where(X["a"] + X["b"] + RNG.normal(size=N) > 0, "yes", "no"))
SCHEMA = hf.Schema.infer(X)
NETWORK = hf.Recipe(hidden=(), epochs=6, batch_size=32, lr=0.05)
LOGISTIC = hf.Recipe(estimator=LogisticRegression(), inputs="frame")


def run_of(recipe: Any, **more: Any) -> BaseRun:
    return BaseRun.of(recipe, X, Y, SCHEMA, **more)


# ---- the rule


@pytest.mark.parametrize(
    ("hold", "confidence", "spread"), [(0.95, 0.95, 2), (0.9, 0.95, 2.28), (0.8, 0.95, 2.95)]
)
def test_the_spread_of_the_paper(hold: float, confidence: float, spread: float) -> None:
    assert spread_for(hold, confidence) == pytest.approx(spread, abs=0.005)


@pytest.mark.parametrize(("hold", "confidence"), [(0.95, 0.95), (0.9, 0.8), (0.99, 0.9)])
def test_false_certificates_of_gaussian_margins_are_as_rare_as_promised(
    hold: float, confidence: float
) -> None:
    """Plans where exactly `hold` of the models of the population accept, seen from the model of
    one table each: the rule certifies 1 - confidence of them; of those that are a little worse,
    fewer."""
    random = np.random.default_rng(0)
    draws = 200_000
    # of the model in use; the population deviates by 1
    margins = random.normal(norm.ppf(hold), 1, draws)
    certified = margins - spread_for(hold, confidence) * norm.ppf(hold) > 0
    error = 4 * np.sqrt(confidence * (1 - confidence) / draws)
    assert certified.mean() == pytest.approx(1 - confidence, abs=error)


def test_stretched_judges_of_a_linear_model_follow_the_rule() -> None:
    """The whole way of a margin: a mean of n numbers, its bootstraps, led away from it by the
    bank's own code."""
    random = np.random.default_rng(1)
    tables = 1500
    n = 60
    models = 200
    hold = 0.9
    confidence = 0.9
    goal = hf.Target("yes").bind(
        hf.Model.of(LogisticRegression().fit(X, Y), SCHEMA), torch.zeros(tables, 2)
    )
    # plans that exactly `hold` of the population's models accept
    truth = norm.ppf(hold) / np.sqrt(n)
    values = random.normal(truth, 1, (tables, n))
    own = values.mean(1)
    rows = random.integers(n, size=(models, n))
    bootstraps = values[:, rows].mean(2).T  # (models, tables)
    from holdfast.retraining.stretch import stretched_scores

    def scores(margins: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.stack(
            [torch.zeros(margins.shape, dtype=torch.float64), torch.tensor(margins)], -1
        )

    judged = stretched_scores(
        scores(own), scores(bootstraps), spread_for(hold, confidence), goal, shares=False
    )
    certified = ((judged[..., 1] > 0).double().mean(0) >= hold).double().mean()
    # bootstraps of 60 rows are a little narrow
    assert float(certified) == pytest.approx(1 - confidence, abs=0.035)


@pytest.mark.parametrize("from_rows", [1.0, 0.6, 0.2])
@pytest.mark.parametrize("rule", [spread_for, spread_of_rows])
def test_seeds_are_no_bad_luck_of_the_table(from_rows: float, rule: Any) -> None:
    """Models differ by rows and by seeds. The middle of the judges has the luck of the rows in use
    and of no seed, and they lie around it as far as each rule says: plans at exactly `hold` are
    certified for 1 - confidence of tables."""
    random = np.random.default_rng(2)
    draws = 200_000
    hold = 0.9
    confidence = 0.95
    middle = random.normal(norm.ppf(hold), np.sqrt(from_rows), draws)
    spread = rule(hold, confidence, from_rows)
    deviation = spread if rule is spread_for else np.sqrt(spread**2 * from_rows + 1 - from_rows)
    certified = middle > deviation * norm.ppf(hold)
    error = 4 * np.sqrt(confidence * (1 - confidence) / draws)
    assert certified.mean() == pytest.approx(1 - confidence, abs=error)


def test_the_allowance_is_that_many_deviations() -> None:
    """A middle that is b deviations too generous, of models that differ by their rows alone."""
    hold = 0.95
    confidence = 0.9
    allowance = 0.5
    z = spread_for(hold, confidence, 1.0, allowance) * norm.ppf(hold) - norm.ppf(hold)
    assert norm.sf(z - allowance) == pytest.approx(1 - confidence)


@pytest.mark.parametrize("unit", ["logits", "shares"])
@pytest.mark.parametrize("from_rows", [0.9, 0.5])
def test_the_share_of_rows_is_measured(unit: Any, from_rows: float) -> None:
    random = torch.Generator().manual_seed(0)
    lead = torch.randn(400, generator=random)
    by_rows = 0.1 * np.sqrt(from_rows) * torch.randn(200, 400, generator=random)
    by_seeds = 0.1 * np.sqrt(1 - from_rows) * torch.randn(200, 400, generator=random)
    again = torch.stack([torch.zeros(200, 400), lead + by_seeds], -1)
    drawn = torch.stack([torch.zeros(200, 400), lead + by_seeds.flip(0) + by_rows], -1)
    assert share_from_rows(again, drawn, unit) == pytest.approx(from_rows, abs=0.05)
    assert share_from_rows(again + 7, drawn + 7, unit) == pytest.approx(
        share_from_rows(again, drawn, unit)
    )


def test_the_share_of_rows_of_models_that_say_classes_alone() -> None:
    """By hand: of two models made again a fifth disagree about a row, of two drawn again two
    fifths."""
    again = torch.zeros(5, 10, 2)
    drawn = torch.zeros(5, 10, 2)
    again[..., 0] = 1
    drawn[..., 0] = 1
    again[0, :5, 1] = 2  # one of five models differs about half of the rows: 4 of 10 pairs
    drawn[0, :, 1] = 2
    assert share_from_rows(again, drawn, "classes") == pytest.approx(1 - (0.2 / 0.4) ** 2)
    assert share_from_rows(drawn, drawn, "classes") == LEAST_FROM_ROWS
    assert share_from_rows(again[1:], drawn, "classes") == 1


def test_the_spread_needs_a_promise_about_most_models() -> None:
    with pytest.raises(SettingError, match=r"hold must be above 0\.5"):
        spread_for(0.5, 0.95)


# ---- models of fewer rows


def test_fresh_models_learn_from_fewer_rows() -> None:
    run = run_of(LOGISTIC, spread=2.0)
    (variation,) = family("fresh")(run, range(5))
    assert variation.rows is not None
    assert variation.rows.shape == (5, N // 4)
    assert len({tuple(rows.tolist()) for rows in variation.rows}) == 5
    again = family("fresh")(run, range(2, 4))[0]
    assert again.rows is not None
    assert torch.equal(again.rows, variation.rows[2:4])  # model by model the same


def test_a_network_of_fewer_rows_makes_as_many_steps() -> None:
    run = run_of(NETWORK, spread=2.0)
    (variation,) = family("fresh")(run, range(3))
    assert variation.epochs is not None
    steps = NETWORK.epochs * -(-N // NETWORK.batch_size)
    assert variation.epochs[0] * -(-(N // 4) // NETWORK.batch_size) == pytest.approx(steps, abs=1)
    assert same_steps(epochs=10, batch_size=100, rows=1000, fewer=250) == round(100 / 3)
    bank = hf.ModelBank.retrain(NETWORK, X, Y, SCHEMA, families={"fresh": 3})
    assert bank.families == {"fresh": 3}
    assert (bank.predict(X) == Y.to_numpy()).mean() > 0.6


def test_a_network_learns_from_the_rows_that_it_is_given() -> None:
    """The same rows in the same order, as positions and as a table of their own, train the same
    network."""
    run = run_of(NETWORK, spread=2.0)
    (variation,) = family("fresh")(run, range(1))
    assert variation.rows is not None
    rows = variation.rows[0].numpy()
    stack = NETWORK.train(run.x, run.labels, 2, variation, hf_quiet())
    from dataclasses import replace

    alone = replace(variation, rows=None)
    other = NETWORK.train(run.x[rows], run.labels[rows], 2, alone, hf_quiet())
    torch.testing.assert_close(stack.theta, other.theta)


def hf_quiet() -> Any:
    from holdfast._core.progress import Progress

    return Progress(False, "")


@pytest.mark.parametrize(
    ("rows", "per_class", "enough"),
    [(1000, [67, 933], True), (1000, [30, 970], False), (80, [], False)],
)
def test_fresh_rows_are_never_fewer_than_the_classes_allow(
    rows: int, per_class: list[int], enough: bool
) -> None:
    if enough:
        assert fresh_rows(rows, 2.0, per_class) == rows // 4
        return
    with pytest.raises(SettingError, match="too few; use the family 'stretch'"):
        fresh_rows(rows, 2.0, per_class)


def test_every_fresh_model_sees_every_class() -> None:
    rare = Y.copy()
    rare[:] = "no"
    rare.iloc[:40] = "yes"
    run = BaseRun.of(LOGISTIC, X, rare, SCHEMA, spread=2.0)
    (variation,) = family("fresh")(run, range(30))
    assert variation.rows is not None
    assert all(bool((run.labels[rows].bincount(minlength=2) > 0).all()) for rows in variation.rows)


# ---- rows that belong together


def test_groups_are_drawn_whole() -> None:
    people = np.repeat(np.arange(N // 3), 3)
    run = run_of(LOGISTIC, groups=people)
    (variation,) = family("retrain")(run, range(4))
    assert variation.emphasis is not None
    times = variation.emphasis.numpy().reshape(4, N // 3, 3)
    assert (times == times[:, :, :1]).all()
    assert (times[:, :, 0].sum(1) == N // 3).all()
    (fewer,) = family("fresh")(run, range(4))
    assert fewer.rows is not None
    drawn = pd.Series(people[fewer.rows[0].numpy()[: N // 4 // 3 * 3]]).value_counts()
    assert (drawn % 3 == 0).all()


def test_one_row_each_is_drawn_as_without_groups() -> None:
    """Groups of one row are rows: the same draws, and the same models."""
    alone = family("bootstrap")(run_of(LOGISTIC), range(3))[0].emphasis
    groups = family("bootstrap")(run_of(LOGISTIC, groups=np.arange(N)), range(3))[0].emphasis
    assert alone is not None
    assert groups is not None
    assert torch.equal(alone, groups)


def test_times_are_drawn_in_blocks() -> None:
    months = np.arange(N) // 8
    assert torch.equal(blocks_of(months, N), torch.tensor(months))
    few = blocks_of(np.repeat([2020, 2021], N // 2), N)
    assert len(few.unique()) == 24
    assert bool((few.diff() >= 0).all())
    every = blocks_of(RNG.permutation(N), N)
    assert every.bincount().tolist() == [N // 24] * 24


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(N), "all rows are in one group"),
        (np.zeros(3), r"one value for each of 240 rows, got shape \(3,\)"),
        ([None, *range(N - 1)], "1 rows have no group"),
        ("person", "the table has no column 'person' for groups"),
    ],
)
def test_groups_that_cannot_be(groups: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        run_of(LOGISTIC, groups=groups)


def test_groups_may_be_a_column_that_is_no_feature() -> None:
    table = X.assign(person=np.repeat(np.arange(N // 2), 2))
    bank = hf.ModelBank.retrain(
        LOGISTIC, table, Y, SCHEMA, families={"retrain": 2}, groups="person"
    )
    other = hf.ModelBank.retrain(
        LOGISTIC, X, Y, SCHEMA, families={"retrain": 2}, groups=table["person"]
    )
    np.testing.assert_array_equal(bank.scores(X), other.scores(X))
    assert groups_of(["x", "y", "x"], 3).tolist() == [0, 1, 0]


# ---- rows that count differently


def test_weights_are_drawn_with_the_rows() -> None:
    weight = RNG.uniform(0.2, 5, N)
    bank = hf.ModelBank.retrain(
        LOGISTIC, X, Y, SCHEMA, families={"retrain": 1}, sample_weight=weight
    )
    (variation,) = family("retrain")(run_of(LOGISTIC), range(1))
    assert variation.emphasis is not None
    times = variation.emphasis[0].numpy()
    by_hand = LogisticRegression().fit(X, Y, sample_weight=times * weight)
    np.testing.assert_allclose(
        bank.scores(X)[0, :, 1] - bank.scores(X)[0, :, 0], by_hand.decision_function(X), atol=1e-3
    )


def test_a_network_counts_rows_by_their_weights() -> None:
    """Rows of weight 0 might as well not be there."""
    weight = np.repeat([1.0, 0.0], N // 2)
    recipe = hf.Recipe(hidden=(), epochs=40, batch_size=N, lr=0.05)
    weighted = recipe.fit(X, Y, SCHEMA, sample_weight=weight)
    half = recipe.fit(X.head(N // 2), Y.head(N // 2), SCHEMA)
    torch.testing.assert_close(
        weighted(SCHEMA.encode(X)), half(SCHEMA.encode(X)), atol=1e-4, rtol=0
    )


def test_fit_parameters_reach_the_estimator_with_their_rows() -> None:
    seen = list[dict[str, Any]]()

    class Remembers(LogisticRegression):
        def fit(
            self, X: Any, y: Any, sample_weight: Any = None, tag: str = "", marks: Any = None
        ) -> Any:
            seen.append({"rows": np.asarray(X)[:, 0], "tag": tag, "marks": marks})
            return super().fit(X, y, sample_weight)

    recipe = hf.Recipe(estimator=Remembers(), inputs="frame")
    params = {"tag": "kept", "marks": X["a"].tolist()}
    hf.ModelBank.retrain(
        recipe, X, Y, SCHEMA, families={"retrain": 2}, fit_params=params, workers=1
    )
    assert [s["tag"] for s in seen] == ["kept", "kept"]
    assert all(np.array_equal(s["rows"], s["marks"]) for s in seen)


@pytest.mark.parametrize("weight", [np.ones(3), -np.ones(N), np.zeros(N), ["x"] * N, [np.nan] * N])
def test_weights_that_cannot_be(weight: Any) -> None:
    with pytest.raises(SettingError, match="sample_weight must"):
        weights_of(weight, N)


def test_fit_parameters_are_for_estimators() -> None:
    with pytest.raises(SettingError, match="fit_params are for estimators"):
        run_of(NETWORK, fit_params={"verbose": 1})


# ---- what may be wrong with rows


def test_equal_rows_are_noticed_where_chance_does_not_explain_them() -> None:
    numbers = np.random.default_rng(0).normal(size=(100, 3))
    assert many_equal_rows(np.repeat(numbers, 3, axis=0)) == 1.0
    assert many_equal_rows(numbers) == 0.0
    # there are only eight of them
    assert many_equal_rows(np.random.default_rng(0).integers(2, size=(300, 3))) == 0.0


# ---- stretched banks


@pytest.mark.parametrize("recipe", [NETWORK, LOGISTIC], ids=["network", "estimator"])
def test_a_spread_of_one_is_retrain(recipe: hf.Recipe) -> None:
    model = recipe.fit(X, Y, SCHEMA)
    bank = hf.ModelBank.retrain(recipe, X, Y, SCHEMA, families={"retrain": 12})
    cfs = hf.MinCost().explain(model, X[model.predict(X) == "no"].head(9), "yes")
    plain = hf.audit(cfs, bank)
    for spread in (1.0, 1 + 1e-12):
        np.testing.assert_array_equal(hf.audit(cfs, bank.stretched(model, spread)).held, plain.held)


@pytest.mark.parametrize("recipe", [NETWORK, LOGISTIC], ids=["network", "estimator"])
def test_stretched_judges_by_the_definition(recipe: hf.Recipe) -> None:
    """f_m + (s - 1)(f_m - f*), with f* the surer of the model in use and the mean of the others."""
    model = recipe.fit(X, Y, SCHEMA)
    bank = hf.ModelBank.retrain(recipe, X, Y, SCHEMA, families={"retrain": 20})
    cfs = hf.MinCost().explain(
        model, X[model.predict(X) == "no"].head(20), hf.Target("yes", margin=0.3)
    )
    held = hf.audit(cfs, bank.stretched(model, 2.5), rule="class").held
    lead = (bank.scores(cfs.after)[..., 1] - bank.scores(cfs.after)[..., 0]).double().numpy()
    scores = model.score_frame(cfs.after).detach()
    own = (scores[:, 1] - scores[:, 0]).double().numpy()
    centre = np.maximum(own, lead.mean(0))
    judged = lead + 1.5 * (lead - centre)
    clear = np.abs(judged) > 1e-4
    np.testing.assert_array_equal(held[clear], (judged > 0)[clear])
    assert held.mean() < hf.audit(cfs, bank, rule="class").held.mean()


@pytest.mark.parametrize("recipe", [NETWORK, LOGISTIC], ids=["network", "estimator"])
def test_juries_at_several_distances_are_asked_once(
    recipe: hf.Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is what an audit by judges at that distance gives, and the models score once."""
    model = recipe.fit(X, Y, SCHEMA)
    bank = hf.ModelBank.retrain(recipe, X, Y, SCHEMA, families={"retrain": 12}).stretched(model, 2)
    cfs = hf.MinCost().explain(model, X[model.predict(X) == "no"].head(9), "yes")
    expected = [hf.audit(cfs, bank.stretched(model, spread)).held for spread in (2, 3.5)]
    asked = list[int]()
    scores = type(bank.groups[0]).scores

    def counting(*given: Any) -> torch.Tensor:
        asked.append(1)
        return scores(*given)

    monkeypatch.setattr(type(bank.groups[0]), "scores", counting)
    juries = audit_at(cfs, bank, (2, 3.5))
    assert len(asked) == len(bank.groups)
    assert [jury.spread for jury in juries] == [2, 3.5]
    for jury, held in zip(juries, expected, strict=True):
        np.testing.assert_array_equal(jury.held, held)
    assert juries[1].held.sum() < juries[0].held.sum()


def test_the_reserve_is_one_deviation_of_a_bootstrap() -> None:
    """A plan that exactly the share `hold` of judges accepts lies z deviations of judges inside; of
    one with a reserve the same is true RESERVE deviations further away."""
    hold = 0.9
    z = norm.ppf(hold)
    spread = spread_for(hold, 0.95)
    assert spread_with_reserve(spread, hold) * z == pytest.approx(spread * z + RESERVE)


def test_history_is_not_stretched_and_names_say_what_judges_are() -> None:
    bank = hf.ModelBank.retrain(
        LOGISTIC,
        X,
        Y,
        SCHEMA,
        families={"retrain": 3, "history": 2},
        time=np.repeat([1, 2, 3], N // 3),
    )
    model = LOGISTIC.fit(X, Y, SCHEMA)
    stretched = bank.stretched(model, 2.0)
    assert stretched.families == {"stretch": 3, "history": 2}
    assert {group.family: group.spread for group in stretched.groups} == {
        "stretch": 2.0,
        "history": 1.0,
    }
    assert stretched.fingerprint() != bank.fingerprint()


def test_a_stretched_bank_is_the_same_after_saving(tmp_path: Any) -> None:
    model = NETWORK.fit(X, Y, SCHEMA)
    bank = hf.ModelBank.retrain(NETWORK, X, Y, SCHEMA, families={"retrain": 5}).stretched(
        model, 2.0
    )
    bank.save(tmp_path / "a.bank")
    loaded = hf.ModelBank.load(tmp_path / "a.bank")
    cfs = hf.MinCost().explain(model, X[model.predict(X) == "no"].head(9), "yes")
    np.testing.assert_array_equal(hf.audit(cfs, bank).held, hf.audit(cfs, loaded).held)
    assert loaded.families == {"stretch": 5}


def test_a_regression_is_stretched_by_its_numbers() -> None:
    worth = pd.Series(3 * X["a"] + RNG.normal(size=N))
    recipe = hf.Recipe(estimator=LinearRegression(), inputs="frame")
    model = recipe.fit(X, worth, SCHEMA)
    bank = hf.ModelBank.retrain(recipe, X, worth, SCHEMA, families={"retrain": 10})
    target = hf.Target.between(4.0, None)
    cfs = hf.MinCost().explain(model, X.head(8), target)
    held = hf.audit(cfs, bank.stretched(model, 2.0)).held
    each = bank.scores(cfs.after)[..., 0].double().numpy()
    own = model.score_frame(cfs.after)[:, 0].detach().double().numpy()
    judged = each + (each - np.maximum(own, each.mean(0)))
    clear = np.abs(judged - 4) > 1e-6
    np.testing.assert_array_equal(held[clear], (judged >= 4)[clear])
