"""Estimators of every library, made again: under the names of the classes, from `fit` to the
audit."""

from typing import Any

import numpy as np
import pytest
import torch
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.ensemble import RandomForestRegressor as Forest
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn
from xgboost import XGBClassifier, XGBRegressor

import holdfast as hf
from holdfast.errors import ModelError, SettingError
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.families import FOR_ESTIMATORS, FOR_NETWORKS, family
from holdfast.retraining.loop import Variation
from holdfast.retraining.recipe import Recipe
from support.households import NUMBERS, SCHEMA, WEALTH, N, X, Y, piped

torch.set_num_threads(1)
KINDS: dict[str, Any] = {
    "logistic": piped(LogisticRegression()),
    "forest": piped(RandomForestClassifier(5)),
    "histogram": piped(HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5)),
    "boosting": piped(GradientBoostingClassifier(n_estimators=5)),
    "xgboost": piped(XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1)),
    "lightgbm": piped(LGBMClassifier(n_estimators=5, min_child_samples=5, n_jobs=1, verbose=-1)),
    "calibrated xgboost": piped(
        CalibratedClassifierCV(XGBClassifier(n_estimators=3, n_jobs=1), cv=2)
    ),
    "threshold": FixedThresholdClassifier(
        piped(LogisticRegression()), threshold=0.3, pos_label="yes"
    ),
    "encoded xgboost": Recipe(estimator=XGBClassifier(n_estimators=5, n_jobs=1), inputs="encoded"),
    "network": Recipe(hidden=(6,), epochs=5, lr=0.05, batch_size=16),
    "module": Recipe(
        module=nn.Sequential(nn.Linear(SCHEMA.width, 5), nn.Tanh(), nn.Linear(5, 2)),
        lr=0.05,
        epochs=5,
    ),
}


# also with the classes in another order
TURNED = ("logistic", "xgboost", "lightgbm", "threshold", "network")


@pytest.mark.parametrize(
    ("name", "classes"), [*((name, None) for name in KINDS), *((n, ["yes", "no"]) for n in TURNED)]
)
def test_named_classes_from_fit_to_audit(name: str, classes: Any) -> None:
    recipe = Recipe.of(KINDS[name])
    model = recipe.fit(X, Y, SCHEMA, classes=classes)
    assert model.classes == tuple(classes or ["no", "yes"])
    assert set(model.predict(X)) == {"no", "yes"}
    bank = ModelBank.retrain(recipe, X, Y, SCHEMA, families={"retrain": 3}, classes=classes)
    assert bank.classes == model.classes
    refused = X[model.predict(X) == "no"][:3]
    cfs = hf.GrowingSpheres().explain(model, refused, "yes")
    # The audit is a count by hand, with the models' own predictions.
    kept = np.array([bank.model(i).predict(cfs.after) == "yes" for i in range(3)])
    assert hf.audit(cfs, bank).survival()[cfs.found].tolist() == kept.mean(0)[cfs.found].tolist()
    # the estimators', in the order they have learnt
    if recipe.estimator is not None and recipe.inputs == "frame":
        own = [bank.model(i).wrapped.predict(cfs.after) for i in range(3)]
        wanted = (
            "yes" if "yes" in list(bank.model(0).wrapped.classes_) else bank.classes.index("yes")
        )
        assert ((np.array(own) == wanted) == kept).all()


def test_a_fitted_pipeline_is_made_again_from_its_settings() -> None:
    fitted = piped(XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1)).fit(
        X, (Y == "yes").astype(int)
    )
    before = fitted.predict_proba(X)
    bank = ModelBank.retrain(fitted, X, Y, SCHEMA, families={"seed": 1, "retrain": 2})
    assert np.array_equal(fitted.predict_proba(X), before)
    again = bank.model(0)  # with another seed of which XGBoost makes nothing here
    assert again.inputs == "frame"
    assert np.array_equal(again.wrapped.predict_proba(X), before)
    assert again.wrapped is not fitted
    assert not torch.equal(bank.scores(X)[1], bank.scores(X)[2])


def test_a_model_brings_its_names() -> None:
    numbers = (Y == "yes").astype(int)
    for wrapped in (piped(LogisticRegression()), piped(XGBClassifier(n_estimators=3, n_jobs=1))):
        model = hf.Model.of(wrapped.fit(X, numbers), SCHEMA, classes=["refused", "granted"])
        for outcome in (numbers, numbers.map({0: "refused", 1: "granted"})):
            bank = ModelBank.retrain(model, X, outcome, SCHEMA, families={"seed": 1})
            assert bank.classes == ("refused", "granted")
            bank.check_fits(model)
            assert torch.allclose(bank.scores(X)[0], model.score_frame(X))
    network = hf.Model.of(nn.Linear(SCHEMA.width, 2), SCHEMA, classes=["refused", "granted"])
    made = ModelBank.retrain(network, X, numbers, SCHEMA, families={"seed": 1})
    assert made.classes == ("refused", "granted")
    with pytest.raises(SettingError, match="do not make at least two known classes"):
        ModelBank.retrain(network, X, Y, SCHEMA, families={"seed": 1})


def test_settings_that_name_classes_are_kept() -> None:
    weighted = piped(LogisticRegression(class_weight={"no": 1.0, "yes": 9.0}))
    for classes in (["no", "yes"], ["yes", "no"]):
        model = Recipe.of(weighted).fit(X, Y, SCHEMA, classes=classes)
        assert (model.predict(X).to_numpy() == weighted.fit(X, Y).predict(X)).all()
    numbers = (Y == "yes").astype(int)
    heavy = piped(LogisticRegression(class_weight={0: 1.0, 1: 9.0}))
    turned = Recipe.of(heavy).fit(X, numbers, SCHEMA, classes=[1, 0])
    assert (turned.predict(X).to_numpy() == heavy.fit(X, numbers).predict(X)).all()
    threshold = FixedThresholdClassifier(
        piped(LogisticRegression()), threshold=0.1, pos_label="yes"
    )
    model = Recipe.of(threshold).fit(X, Y, SCHEMA, classes=["yes", "no"])
    assert (model.predict(X).to_numpy() == threshold.fit(X, Y).predict(X)).all()


def test_the_first_error_is_told() -> None:
    with pytest.raises(
        ModelError,
        match=r"\(LogisticRegression in a Pipeline\) could not be fitted.*inputs='encoded'",
    ):
        Recipe.of(make_pipeline(LogisticRegression())).fit(X, Y, SCHEMA)


def test_origins_know_every_setting_and_nothing_else() -> None:
    numbers = (Y == "yes").astype(int)
    plain = piped(XGBClassifier(n_estimators=2, n_jobs=1))
    alike = [plain, piped(XGBClassifier(n_estimators=2, n_jobs=2, random_state=5)).fit(X, numbers)]
    others = [
        piped(XGBClassifier(n_estimators=3)),
        piped(XGBClassifier(n_estimators=2, tree_method="exact")),
        piped(XGBClassifier(n_estimators=2, monotone_constraints=[0, 0, 0, 1, 0])),
        make_pipeline(plain[0], FunctionTransformer(lambda v: v + 1), plain[1]),
        make_pipeline(plain[0], FunctionTransformer(lambda v: v + 2), plain[1]),
    ]
    origins = [
        BaseRun.of(e, X, Y, SCHEMA).origins(Variation((0,), (0,)))[0] for e in (*alike, *others)
    ]
    assert origins[0] == origins[1]
    assert len(set(origins)) == 1 + len(others)


# ---- other settings


def settings(name: str, estimator: Any, count: int = 60) -> list[dict[str, Any]]:
    run = BaseRun.of(estimator, X, Y, SCHEMA, None, 7)
    (variation,) = family(name)(run, range(count))
    assert variation.settings is not None
    assert variation.kept is variation.emphasis is variation.labels is None
    assert set(variation.order) == {7}
    assert len(set(variation.weights)) == (count if name == "depth" else 1)
    return [dict(each) for each in variation.settings]


@pytest.mark.parametrize(
    ("estimator", "key", "value"),
    [
        (RandomForestClassifier(40), "n_estimators", 40),
        (HistGradientBoostingClassifier(max_iter=40), "max_iter", 40),
        (XGBClassifier(), "n_estimators", 100),
        (piped(LGBMClassifier(n_estimators=40)), "lgbmclassifier__n_estimators", 40),
        (
            CalibratedClassifierCV(GradientBoostingClassifier(n_estimators=40)),
            "estimator__n_estimators",
            40,
        ),
    ],
)
def test_trees_are_half_to_one_and_a_half_times_as_many(
    estimator: Any, key: str, value: int
) -> None:
    counts = [each.pop(key) for each in settings("trees", estimator)]
    assert all(isinstance(count, int) for count in counts)
    assert min(counts) < 0.53 * value
    assert max(counts) > 1.47 * value
    assert abs(np.mean(counts) / value - 1) < 0.02


def test_depth_and_learning_rate() -> None:
    depths = [each["max_depth"] for each in settings("depth", XGBClassifier())]
    assert set(depths) == set(range(3, 10))
    # its max_depth of -1 is no limit
    assert set(settings("depth", LGBMClassifier())[0]) == {"num_leaves"}
    assert (
        min(
            each["max_leaf_nodes"]
            for each in settings("depth", RandomForestClassifier(max_leaf_nodes=2))
        )
        == 2
    )
    rates = [each["learning_rate"] for each in settings("learning_rate", XGBClassifier())]
    assert min(rates) < 0.155
    assert max(rates) > 0.445
    assert set(settings("learning_rate", MLPClassifier())[0]) == {"learning_rate_init"}
    assert len(set(rates)) == 60


def test_settings_reach_the_estimators() -> None:
    made = ModelBank.retrain(
        piped(XGBClassifier(n_estimators=8, max_depth=4, n_jobs=1)),
        X,
        Y,
        SCHEMA,
        families=dict.fromkeys(("trees", "depth", "learning_rate"), 2),
    )
    steps = [made.model(i).wrapped[-1] for i in range(6)]
    assert [step.n_estimators for step in steps] == [round(8 * f) for f in (1.118034, 0.736068)] + [
        8
    ] * 4
    assert [step.max_depth for step in steps[2:4]] == [round(4 * f) for f in (1.118034, 0.736068)]
    assert [step.learning_rate for step in steps[4:]] == pytest.approx(
        [0.3 * f for f in (1.118034, 0.736068)]
    )
    assert len(made.members()) == 6


@pytest.mark.parametrize(
    ("name", "estimator"),
    [
        ("trees", LogisticRegression()),
        ("depth", RandomForestClassifier()),
        ("learning_rate", SGDClassifier()),
        ("learning_rate", RandomForestClassifier()),
    ],
)
def test_estimators_without_the_setting_are_refused(name: str, estimator: Any) -> None:
    with pytest.raises(
        SettingError, match=f"family '{name}': the estimator has none of '.*' with a number"
    ):
        settings(name, estimator)


# ---- regression


@pytest.mark.parametrize(
    "estimator",
    [
        LinearRegression(),
        Forest(3),
        XGBRegressor(n_estimators=3, n_jobs=1),
        LGBMRegressor(n_estimators=3, min_child_samples=5, n_jobs=1, verbose=-1),
    ],
    ids=lambda e: type(e).__name__,
)
def test_regressors(estimator: Any) -> None:
    schema = hf.Schema.infer(NUMBERS)
    model = Recipe.of(estimator).fit(NUMBERS, WEALTH, schema)
    assert model.is_regression
    families = dict.fromkeys(
        (name for name in FOR_ESTIMATORS if name in FOR_NETWORKS and name != "history"), 1
    )
    bank = ModelBank.retrain(model, NUMBERS, WEALTH, schema, families=families, spread=1.5)
    assert repr(bank).endswith("regression)")
    bank.check_fits(model)
    assert bank.scores(NUMBERS).shape == (len(families), N, 1)
    assert np.array_equal(bank.predict(NUMBERS)[1], bank.model(1).predict(NUMBERS))
    assert len(bank.members()) == len(families)
    low = float(WEALTH.quantile(0.6))
    poor = NUMBERS[model.predict(NUMBERS) < low][:3]
    cfs = hf.GrowingSpheres().explain(model, poor, hf.Target.between(low, None))
    # seeds alone make copies of some
    drawn = bank.subset([name for name in families if not name.startswith("seed")])
    kept = drawn.predict(cfs.after) >= low
    assert hf.audit(cfs, drawn).survival()[cfs.found].tolist() == kept.mean(0)[cfs.found].tolist()


def test_numbers_swap_outcomes_as_label_noise() -> None:
    schema = hf.Schema.infer(NUMBERS)
    run = BaseRun.of(KNeighborsRegressor(1), NUMBERS, WEALTH, schema, None, 7)
    (variation,) = family("label_noise")(run, range(3))
    assert variation.labels is not None
    wrong = variation.labels != run.labels
    assert wrong.sum(1).tolist() == [2, 2, 2]
    assert torch.equal(variation.labels.sort(1).values, run.labels.sort().values.expand(3, -1))
    bank = ModelBank.retrain(
        KNeighborsRegressor(1), NUMBERS, WEALTH, schema, families={"label_noise": 1}, seed=7
    )
    assert np.array_equal(bank.predict(NUMBERS)[0], variation.labels[0].numpy())


def test_regressions_that_cannot_be() -> None:
    schema = hf.Schema.infer(NUMBERS)
    bank = ModelBank.retrain(LinearRegression(), NUMBERS, WEALTH, schema, families={"retrain": 1})
    with pytest.raises(
        ModelError,
        match="the bank holds regression models, and classifiers need a bank of their own",
    ):
        bank.check_fits(Recipe(hidden=(), epochs=1).fit(NUMBERS, Y, schema))
    with pytest.raises(SettingError, match="a regressor has no classes"):
        Recipe.of(LinearRegression()).fit(NUMBERS, WEALTH, schema, classes=[0, 1])
    for wrong in (WEALTH.where(WEALTH > 0), Y):
        with pytest.raises(SettingError, match="outcomes of a regression must be numbers"):
            Recipe.of(LinearRegression()).fit(NUMBERS, wrong, schema)
    tables = {"a": (NUMBERS[:40], WEALTH[:40]), "b": (NUMBERS[40:], WEALTH[40:])}
    made = ModelBank.from_tables(LinearRegression(), tables, schema)
    assert made.families == {"a": 1, "b": 1}
