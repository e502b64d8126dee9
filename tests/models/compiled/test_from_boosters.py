"""XGBoost's and LightGBM's models, bare and as estimators."""

from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.linear_model import SGDClassifier

import holdfast as hf
from holdfast.errors import ModelError
from support.classifiers import ROWS, TABLES
from support.compiled import check, outcome
from support.versions import supported

torch.set_num_threads(1)


@pytest.mark.parametrize("settings_", [{}, {"zero_as_missing": True}, {"use_missing": False}])
def test_what_lightgbm_takes_for_missing(settings_: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"a": rng.integers(-2, 3, 300).astype(float), "b": rng.normal(size=300)})
    y = (np.abs(table["a"]) + table["b"] > 1.0).astype(int)
    fitted = lightgbm.LGBMClassifier(
        n_estimators=5, min_child_samples=2, verbose=-1, n_jobs=1, **settings_
    ).fit(table, y)
    model = hf.Model.of(fitted, hf.Schema.infer(table))
    check(model, table)
    x = model.schema.encode(table, torch.float64)
    assert torch.equal(model(x).argmax(1), model.score_frame(table).argmax(1))


def test_what_lightgbm_takes_for_zero() -> None:
    rng = np.random.default_rng(0)
    zero = float(np.float32(1e-35))
    table = pd.DataFrame(
        {"a": rng.normal(size=400) * rng.integers(0, 2, 400), "b": rng.normal(size=400)}
    )
    y = ((table["a"] < 0) ^ (table["b"] > 0)).astype(int)
    fitted = lightgbm.LGBMClassifier(
        n_estimators=10, min_child_samples=2, verbose=-1, n_jobs=1
    ).fit(table, y)
    cuts = {n["threshold"] for n in _splits(fitted)}
    assert {-zero, zero} <= cuts  # its bin of zeros
    model = hf.Model.of(fitted, hf.Schema.infer(table, scaling="none"))
    assert model.conversion, model.conversion.text
    ends = [v for z in (-zero, zero) for v in (np.nextafter(z, -1), z, np.nextafter(z, 1))]
    near = pd.DataFrame({"a": [*ends, -0.0, 0.0], "b": 0.3})
    own = fitted.predict_proba(near)
    assert torch.softmax(
        model(model.schema.encode(near, torch.float64)), 1
    ).numpy() == pytest.approx(own, abs=1e-12)


def _splits(fitted: Any) -> list[Any]:
    found = []
    stack = [t["tree_structure"] for t in fitted.booster_.dump_model()["tree_info"]]
    while stack:
        node = stack.pop()
        if "split_feature" in node:
            found.append(node)
            stack += [node["left_child"], node["right_child"]]
    return found


def test_bare_boosters_and_early_stopping() -> None:
    rng = np.random.default_rng(2)
    table = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    y = (table["a"] + rng.normal(0, 2, 200) > 0).astype(int)
    schema = hf.Schema.infer(table)
    data = xgboost.DMatrix(table, y)
    booster = xgboost.train({"objective": "binary:logistic", "max_depth": 3, "nthread": 1}, data, 5)
    model = hf.Model.of(booster, schema, classes=["no", "yes"])
    check(model, table)
    assert ((model.predict(table) == "yes") == (booster.predict(data) > 0.5)).all()
    light = lightgbm.train(
        {"objective": "binary", "sigmoid": 2.0, "verbose": -1, "num_threads": 1},
        lightgbm.Dataset(table, y),
        5,
    )
    model = hf.Model.of(light, schema)
    check(model, table)
    assert np.allclose(torch.softmax(model.score_frame(table), 1)[:, 1], light.predict(table))
    early = xgboost.XGBClassifier(
        n_estimators=60, learning_rate=1.0, early_stopping_rounds=2, n_jobs=1
    )
    early.fit(table[:120], y[:120], eval_set=[(table[120:], y[120:])], verbose=False)
    assert early.best_iteration + 1 < early.get_booster().num_boosted_rounds()
    check(hf.Model.of(early, schema), table)
    stopped = lightgbm.LGBMClassifier(n_estimators=60, learning_rate=1.0, verbose=-1, n_jobs=1)
    held_out = supported(stopped.fit, eval_X=table[120:], eval_y=y[120:])
    if not held_out:  # before LightGBM 4.7
        held_out = {"eval_set": [(table[120:], y[120:])]}
    stopped.fit(
        table[:120],
        y[:120],
        **held_out,
        callbacks=[lightgbm.early_stopping(2, verbose=False)],
    )
    check(hf.Model.of(stopped, schema), table)
    assert hf.Model.of(
        xgboost.train({"objective": "reg:squarederror", "nthread": 1}, data, 2), schema
    ).is_regression
    ranks = lightgbm.train(
        {"objective": "lambdarank", "verbose": -1, "num_threads": 1},
        lightgbm.Dataset(table, y, group=[len(table)]),
        2,
    )
    with pytest.raises(hf.HoldfastError, match="neither a classifier nor a regression model"):
        hf.Model.of(ranks, schema)


def test_boosters_find_their_columns_by_name_or_else_by_place() -> None:
    rng = np.random.default_rng(2)
    table = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    y = (table["a"] - 2 * table["c"] > 0).astype(int)
    turned = table[["c", "a", "b"]]
    settings = {"objective": "binary", "verbose": -1, "num_threads": 1}
    booster = xgboost.train(
        {"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(table, y), 3
    )
    light = lightgbm.train(settings, lightgbm.Dataset(table, y), 3)
    for made, wanted in (
        (booster, booster.predict(xgboost.DMatrix(table))),
        (light, light.predict(table)),
    ):
        model = hf.Model.of(made, hf.Schema.infer(turned))
        check(model, turned)
        assert np.allclose(torch.softmax(model.score_frame(turned), 1)[:, 1], wanted)
        assert (model.predict(table) == model.predict(turned)).all()
    unnamed = lightgbm.train(settings, lightgbm.Dataset(table.to_numpy(), y), 3)
    model = hf.Model.of(unnamed, hf.Schema.infer(table))
    check(model, table)
    assert np.allclose(torch.softmax(model.score_frame(table), 1)[:, 1], unnamed.predict(table))
    soft = lightgbm.train(
        {**settings, "objective": "cross_entropy"}, lightgbm.Dataset(table, y * 0.8 + 0.1), 3
    )
    model = hf.Model.of(soft, hf.Schema.infer(table))
    check(model, table)
    assert np.allclose(torch.softmax(model.score_frame(table), 1)[:, 1], soft.predict(table))
    other = lightgbm.train(
        {**settings, "objective": "cross_entropy_lambda"}, lightgbm.Dataset(table, y), 3
    )
    with pytest.raises(hf.HoldfastError, match="neither a classifier nor a regression model"):
        hf.Model.of(other, hf.Schema.infer(table))


def test_one_against_all() -> None:
    """Probabilities that are sigmoids divided by their sum."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(150, 3)), columns=["a", "b", "c"])
    fitted = SGDClassifier(loss="log_loss", alpha=0.1, random_state=0).fit(table, outcome(table, 3))
    model = hf.Model.of(fitted, hf.Schema.infer(table))
    check(model, table)
    assert model.has_grad


def test_booleans_that_may_be_missing_reach_lightgbm() -> None:
    rng = np.random.default_rng(0)
    flag = pd.Series(rng.random(200) > 0.5, dtype="boolean").mask(rng.random(200) < 0.3)
    table = pd.DataFrame({"a": rng.normal(size=200), "b": flag})
    y = (table["a"] + flag.astype(float).fillna(0.5) > 0.5).astype(int)
    made = lightgbm.LGBMClassifier(n_estimators=5, min_child_samples=2, verbose=-1, n_jobs=1).fit(
        table, y
    )
    check(hf.Model.of(made, hf.Schema.infer(table)), table)


def logistic(margin: Any, data: Any) -> tuple[Any, Any]:
    p = 1 / (1 + np.exp(-margin))
    return p - data.get_label(), p * (1 - p)


def test_boosters_with_an_objective_of_the_users() -> None:
    X, y = TABLES[2]
    schema = hf.Schema.infer(X)
    names = ["denied", "approved"]
    of_xgboost = xgboost.train({"nthread": 1}, xgboost.DMatrix(X, y), 8, obj=logistic)
    settings = {"objective": logistic, "verbose": -1, "num_threads": 1}
    of_lightgbm = lightgbm.train(settings, lightgbm.Dataset(X, y), 8)
    with pytest.raises(ModelError, match=r"regression model has no classes.*outputs='logits'"):
        hf.Model.of(of_xgboost, schema, classes=names)
    with pytest.raises(ModelError, match=r"'none' is neither a classifier.*outputs='logits'"):
        hf.Model.of(of_lightgbm, schema, classes=names)
    margins = [
        of_xgboost.predict(xgboost.DMatrix(ROWS), output_margin=True),
        of_lightgbm.predict(ROWS),
    ]
    for booster, margin in zip((of_xgboost, of_lightgbm), margins, strict=True):
        model = hf.Model.of(booster, schema, classes=names, outputs="logits")
        assert (model.predict(ROWS) == np.where(margin > 0, "approved", "denied")).all()
        cfs = hf.TreeSearch().explain(model, ROWS[margin < 0].head(5), "approved")
        assert cfs.found.all()
    assert hf.Model.of(of_lightgbm, schema, outputs="value").is_regression
    classifier = xgboost.train(
        {"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(X, y), 2
    )
    with pytest.raises(ModelError, match="XGBoost Booster returns logits, not probabilities"):
        hf.Model.of(classifier, schema, outputs="probabilities")


@pytest.mark.parametrize("maker", [xgboost.XGBClassifier, lightgbm.LGBMClassifier])
def test_classifiers_with_an_objective_of_the_users(maker: Any) -> None:
    def objective(y: Any, margin: Any) -> tuple[Any, Any]:
        p = 1 / (1 + np.exp(-margin))
        return p - y, p * (1 - p)

    X, y = TABLES[2]
    schema = hf.Schema.infer(X)
    quiet = {"verbose": -1} if maker is lightgbm.LGBMClassifier else {}
    estimator = maker(n_estimators=40, objective=objective, n_jobs=1, **quiet).fit(X, y)
    with pytest.raises(
        ModelError, match=r"Classifier has an objective of your own.*pass outputs='logits'"
    ):
        hf.Model.of(estimator, schema)
    model = hf.Model.of(estimator, schema, outputs="logits")
    if maker is xgboost.XGBClassifier:
        assert (model.predict(ROWS) == estimator.predict(ROWS)).all()
    else:  # which predicts sums of trees
        assert (model.predict(ROWS) == (estimator.predict(ROWS, raw_score=True) > 0)).all()
    assert (
        hf.GrowingSpheres()
        .explain(model, ROWS[(model.predict(ROWS) == 0).to_numpy()].head(5), 1)
        .found.all()
    )


def test_a_booster_of_one_class_against_all() -> None:
    X, y = TABLES[3]
    settings = {
        "objective": "multiclassova",
        "num_class": 3,
        "verbose": -1,
        "num_threads": 1,
        "sigmoid": 2.0,
    }
    booster = lightgbm.train(settings, lightgbm.Dataset(X, y), 8)
    p = np.asarray(booster.predict(ROWS))
    model = hf.Model.of(booster, hf.Schema.infer(X))
    assert torch.softmax(model.score_frame(ROWS), 1).numpy() == pytest.approx(
        p / p.sum(1, keepdims=True)
    )
