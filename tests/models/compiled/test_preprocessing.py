"""Pipelines before an estimator, column by column."""

import numpy as np
import pandas as pd
import torch
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.model_selection._search_successive_halving import HalvingGridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from support.compiled import check, quietly
from support.versions import MAX_ABS_CLIPS

torch.set_num_threads(1)


def test_scalers_of_sparse_matrices_multiply() -> None:
    """Thresholds lie between values, and scikit-learn scales sparse columns by x * (1 / s), not by
    x / s."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"a": rng.normal(0, 3, 300), "b": rng.normal(5, 2, 300), "k": rng.choice(list("xyz"), 300)}
    )
    y = ((table["a"] > 0) ^ (table["b"] > 5)).astype(int) ^ (rng.random(300) < 0.1)
    for scaler in (
        StandardScaler(with_mean=False),
        MaxAbsScaler(),
        RobustScaler(with_centering=False),
    ):
        parts = [("k", OneHotEncoder(), ["k"]), ("rest", "passthrough", ["a", "b"])]
        prepare = make_pipeline(ColumnTransformer(parts, sparse_threshold=1.0), scaler)
        made = make_pipeline(prepare, RandomForestClassifier(10, random_state=0)).fit(table, y)
        divided = prepare[0].transform(table).toarray() / scaler.scale_
        assert (divided != prepare.transform(table).toarray()).any()  # it does matter
        check(hf.Model.of(made, hf.Schema.infer(table)), table)


def test_searches_over_settings_and_frozen_estimators_are_compiled() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "c"])
    y = (table["a"] + table["b"] ** 2 > 0.5).astype(int)
    schema = hf.Schema.infer(table)
    line = make_pipeline(StandardScaler(), LogisticRegression())
    depths = {"max_depth": [2, 3]}
    grid = GridSearchCV(line, {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(table, y)
    drawn_ = RandomizedSearchCV(
        DecisionTreeClassifier(), depths, n_iter=2, cv=2, random_state=0
    ).fit(table, y)
    halving = HalvingGridSearchCV(DecisionTreeClassifier(), depths, cv=2, random_state=0).fit(
        table, y
    )
    scaler = StandardScaler().set_output(transform="pandas").fit(table)
    frozen = make_pipeline(FrozenEstimator(scaler), FrozenEstimator(grid)).fit(table, y)
    number = GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=2).fit(table, table["a"])
    for search in (grid, drawn_, halving, FrozenEstimator(grid), frozen, number):
        model = hf.Model.of(search, schema)
        check(model, table)
    assert model.is_regression


def test_a_scaler_that_clips_is_flat_outside_its_range() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "a": rng.normal(size=120),
            "b": np.where(rng.random(120) < 0.3, np.nan, rng.normal(size=120)),
        }
    )
    y = (table["a"] + table["b"].fillna(0) > 0).astype(int)
    wider = hf.Schema.infer(pd.concat([table, table * 3, table * -3]))
    scalers = [MinMaxScaler(clip=True)]
    if MAX_ABS_CLIPS:
        scalers.append(MaxAbsScaler(clip=True))
    for scaler in scalers:
        made = make_pipeline(
            scaler,
            SimpleImputer(),
            MLPClassifier((4,), solver="lbfgs", max_iter=20, random_state=0),
        )
        model = hf.Model.of(quietly(made, table, y), wider)
        check(model, pd.concat([table, table * 3]))
        far = pd.DataFrame({"a": [9.0, -9.0, 0.1], "b": [0.1, 0.2, 9.0]})
        with model.eval_mode():
            _, pull = model.vjp(wider.encode(far, torch.float64))
            slope = pull(torch.tensor([[0.0, 1.0]] * 3, dtype=torch.float64))
        assert slope[[0, 1, 2], [0, 0, 1]].tolist() == [0, 0, 0]
        assert (slope[[0, 1, 2], [1, 1, 0]] != 0).all()
