"""Compiled estimators: the same scores and classes as the library, also at thresholds and next to them."""

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from hypothesis import Phase, event, given, reject, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.model_selection._search_successive_halving import HalvingGridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from holdfast.models.black_box import BlackBox, CompiledModel
from holdfast.models.compiled.build import probes, table_probes
from holdfast.models.compiled.preprocessing import Column, Raw
from holdfast.models.compiled.tree_nodes import Nodes, bisect, code_columns
from holdfast.models.compiled.tree_program import Ranks, TreeProgram
from support.tables import mixed_schema, mixed_table

torch.set_num_threads(1)
Maker = Callable[[], Any]

SMOOTH: dict[str, Maker] = {
    "logistic": lambda: LogisticRegression(max_iter=2000),
    "linear svc": lambda: LinearSVC(),
    "svc": lambda: SVC(kernel="linear"),
    "sgd": lambda: SGDClassifier(random_state=0, max_iter=2000),
    "sgd log": lambda: SGDClassifier(loss="log_loss", random_state=0, max_iter=2000),
    "ridge": lambda: RidgeClassifier(),
    "mlp": lambda: MLPClassifier((7,), solver="lbfgs", max_iter=15, random_state=0),
    "mlp tanh": lambda: MLPClassifier((5, 3), "tanh", solver="lbfgs", max_iter=15, random_state=0),
    "mlp logistic": lambda: MLPClassifier((4,), "logistic", solver="lbfgs", max_iter=15, random_state=0),
    "mlp identity": lambda: MLPClassifier((4, 3), "identity", solver="lbfgs", max_iter=15, random_state=0),
}
TREES: dict[str, Maker] = {
    "forest": lambda: RandomForestClassifier(5, max_depth=4, random_state=0),
    "deep forest": lambda: RandomForestClassifier(3, bootstrap=False, max_features=1, random_state=0),
    "extra trees": lambda: ExtraTreesClassifier(5, random_state=0),
    "tree": lambda: DecisionTreeClassifier(random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=4, random_state=0),
    "hist": lambda: HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=2, early_stopping=False),
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1),
    "xgboost deep": lambda: xgboost.XGBClassifier(n_estimators=3, max_depth=9, min_child_weight=0, n_jobs=1),
    "lightgbm": lambda: lightgbm.LGBMClassifier(n_estimators=4, min_child_samples=2, verbose=-1, n_jobs=1),
}
TAKES_GAPS = ("forest", "deep forest", "extra trees", "tree", "hist", "xgboost", "xgboost deep", "lightgbm")
EXAMPLES = 2  # pipelines drawn anew for each model in every run
LEVELS = [f"l{i}" for i in range(40)]
NUMBERS = ["real", "float32", "int", "bool", "constant", "Int64", "Float64", "boolean"]
HOLES = ["float holes", "float32 holes", "Int64 holes", "Float64 holes"]
NAMED = ["text", "gaps", "order", "boolean gaps", "whole"]

drawn = settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate])


def table_of(data: st.DataObject, rows: int = 70) -> pd.DataFrame:
    """Columns of drawn kinds, at least one of numbers."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16), "seed"))
    kinds = data.draw(st.lists(st.sampled_from([*NUMBERS, *HOLES, *NAMED]), max_size=5), "kinds")
    center, dtype = data.draw(st.sampled_from([(0.0, "float64"), (4e4, "float64"), (3.0, "float32")]), "first")
    out: dict[str, Any] = {"n": rng.normal(center, 3.0, rows).round(2).astype(dtype)}
    for i, kind in enumerate(kinds):
        some = rng.choice(LEVELS[: data.draw(st.sampled_from([1, 2, 3, 5, 40]), "levels")], rows)
        gone = rng.random(rows) < 0.2
        whole, real = rng.integers(-3, 9, rows), rng.exponential(2.0, rows)
        out[f"c{i} {kind}"] = {
            "real": lambda r=real: r,
            "float32": lambda r=real: r.astype("float32"),
            "int": lambda w=whole: w.astype(rng.choice(["int8", "int64"])),
            "bool": lambda g=gone: g,
            "constant": lambda: np.full(rows, 3.0),
            "Int64": lambda w=whole: pd.array(w, dtype=rng.choice(["Int8", "Int64"])),
            "Float64": lambda r=real: pd.array(r, dtype=rng.choice(["Float32", "Float64"])),
            "boolean": lambda g=gone: pd.array(g, dtype="boolean"),
            "float holes": lambda g=gone, r=real: np.where(g, np.nan, r),
            "float32 holes": lambda g=gone, r=real: np.where(g, np.nan, r).astype("float32"),
            "Int64 holes": lambda g=gone, w=whole: pd.Series(w, dtype="Int64").mask(g),
            "Float64 holes": lambda g=gone, r=real: pd.Series(r, dtype="Float64").mask(g),
            "text": lambda s=some: s,
            "gaps": lambda g=gone, s=some: pd.Categorical(np.where(g, None, s)),
            "order": lambda s=some: pd.Categorical(s, sorted(set(s)), ordered=True),
            "boolean gaps": lambda g=gone, w=whole: np.where(g, None, w > 2),
            "whole": lambda w=whole: pd.Categorical(w % 4),
        }[kind]()
    return pd.DataFrame(out)


def outcome(table: pd.DataFrame, k: int) -> np.ndarray:
    """Classes that lean on every column."""
    total = np.zeros(len(table))
    for name in table:
        v = pd.factorize(table[name])[0].astype(float)
        total += (v - v.mean()) / (v.std() + 1e-9)
    return np.searchsorted(np.quantile(total, np.arange(1, k) / k), total)


ENCODERS: list[Maker] = [
    lambda: OneHotEncoder(handle_unknown="ignore"),
    lambda: OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float32),
    lambda: OneHotEncoder(drop="if_binary", sparse_output=False),
    lambda: OneHotEncoder(drop="first", sparse_output=False),
    lambda: OneHotEncoder(drop="first", max_categories=3),
    lambda: OneHotEncoder(min_frequency=0.3, handle_unknown="infrequent_if_exist"),
    lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2),
    lambda: OrdinalEncoder(max_categories=3, encoded_missing_value=-2),
]
SCALERS: list[Maker] = [
    lambda: "passthrough",
    StandardScaler,
    MinMaxScaler,
    RobustScaler,
    MaxAbsScaler,
    lambda: StandardScaler(with_mean=False),
    lambda: MinMaxScaler((-1, 2), clip=True),
]
LAST_SCALERS: list[Maker] = [
    lambda: "passthrough",
    lambda: StandardScaler(with_mean=False),
    lambda: RobustScaler(with_centering=False),
    lambda: MaxAbsScaler(clip=True),
]
FILLS: list[dict[str, Any]] = [
    {"strategy": "mean"},
    {"strategy": "median"},
    {"strategy": "most_frequent"},
    {"strategy": "constant", "fill_value": -1},
]


def of_levels(data: st.DataObject) -> Any:
    encoder = data.draw(st.sampled_from(ENCODERS), "encoder")()
    if data.draw(st.booleans(), "fill levels"):
        return encoder
    fill = data.draw(st.sampled_from([{"strategy": "constant", "fill_value": "?"}, {"strategy": "most_frequent"}]))
    return Pipeline([("fill", SimpleImputer(**fill)), ("code", encoder)])


def of_numbers(data: st.DataObject, takes_gaps: bool) -> Any:
    """Numbers scaled in some way, or not, all of them or only the first; filled in before or after."""
    scaler = data.draw(st.sampled_from(SCALERS), "scaler")()
    if scaler != "passthrough" and data.draw(st.booleans(), "only the first"):
        scaler = ColumnTransformer([("first", scaler, [0])], remainder="passthrough")
    if takes_gaps and data.draw(st.booleans(), "keep gaps"):
        return scaler
    steps = [("fill", SimpleImputer(**data.draw(st.sampled_from(FILLS), "fill"))), ("scale", scaler)]
    return Pipeline(steps if data.draw(st.booleans(), "fill first") else steps[::-1])


def prepared(data: st.DataObject, table: pd.DataFrame, *, sparse: bool = True, takes_gaps: bool = False) -> Any:
    """A drawn pipeline for the table: levels one-hot or as ranks, numbers scaled in some way, sparse or a frame."""
    levels = [c for c in table if c.split(" ", 1)[-1] in NAMED]
    numbers = [c for c in table if c not in levels]
    threshold = data.draw(st.sampled_from([0.0, 1.0]), "sparse") if sparse else 0.0
    first, second = ("levels", of_levels(data), levels), ("numbers", of_numbers(data, takes_gaps), numbers)
    rest: Any = "drop"
    if data.draw(st.booleans(), "numbers are the rest"):
        parts, rest = [first], second[1]
    else:
        parts = [first, second] if data.draw(st.booleans(), "levels first") else [second, first]
    whole = ColumnTransformer([p for p in parts if p[2]], remainder=rest, sparse_threshold=threshold)
    return make_pipeline(whole, data.draw(st.sampled_from(LAST_SCALERS), "last scaler")())


def trained(data: st.DataObject, name: str, make: Maker, k: int) -> tuple[Any, pd.DataFrame]:
    """A drawn pipeline that ends in the model, and the table, in another order and with more columns than it knows."""
    table = table_of(data)
    steps = prepared(data, table, sparse=name != "hist", takes_gaps=name in TAKES_GAPS)
    estimator = make_pipeline(steps, make())
    if data.draw(st.booleans(), "frames inside"):
        estimator.set_output(transform="pandas")
    known = table.head(50) if "handle_unknown" in str(steps) else table  # other levels are unknown to the encoder
    try:
        quietly(estimator, known, outcome(known, k))
    except (ValueError, TypeError) as error:  # not every drawn pipeline is one that scikit-learn takes
        event(f"{type(error).__name__}: {str(error)[:60]}")
        reject()
    turned = [*table.columns[::-1], "unused"]
    return estimator, table.assign(unused=np.arange(len(table)) % 3)[turned]


def quietly(estimator: Any, X: Any, y: Any) -> Any:
    """Fitted, without the advice to train longer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def check(model: hf.Model, table: pd.DataFrame) -> None:
    """The compiled scorer and the library, on rows of the table, at thresholds and beside them."""
    assert isinstance(model, CompiledModel), model.conversion.text
    schema, scorer = model.schema, model.scorer
    rows, x = table, schema.encode(table, torch.float64)
    by_codes = scorer.trees is not None and isinstance(scorer.run, TreeProgram) and model.inputs == "frame"
    with model.eval_mode():
        compiled, original = model(x), model.score_frame(rows, x)
        assert torch.equal(model(x[3:4]), compiled[3:4])  # whatever the batch
        if by_codes:
            numbers = table_probes(schema, scorer.trees.ends)
            rows, x = schema.table(numbers), schema.encode_numbers(numbers, torch.float64)
            compiled, original = torch.cat([compiled, model(x)]), torch.cat([original, model.score_frame(rows, x)])
        else:
            x = probes(schema, scorer.cuts)
            compiled, original = torch.cat([compiled, model(x)]), torch.cat([original, BlackBox.__call__(model, x)])
    if model.outputs == "probabilities":
        assert (torch.softmax(compiled, 1) - torch.softmax(original, 1)).abs().max() < 1e-6
    else:
        assert ((compiled - original).abs() / original.abs().clamp_min(1)).max() < 1e-6
    chosen = original.gather(1, compiled.argmax(1, keepdim=True)).squeeze(1)
    assert (chosen >= original.amax(1) - 1e-12 * original.abs().amax(1).clamp_min(1)).all()  # classes may be level


@pytest.mark.parametrize("name", SMOOTH)
@drawn
@given(data=st.data())
def test_smooth_models_equal_the_library_and_have_gradients(name: str, data: st.DataObject) -> None:
    k = 2 if name in ("svc", "sgd log") else data.draw(st.sampled_from([2, 3]))
    estimator, table = trained(data, name, SMOOTH[name], k)
    schema = hf.Schema.infer(table)
    model = hf.Model.of(estimator, schema)
    check(model, table)
    assert model.has_grad
    z = schema.encode(table, torch.float64)[:9] + 0.123  # off the kinks
    v = torch.tensor([[1.0, -0.5, 2.0][:k]], dtype=torch.float64).repeat(len(z), 1)
    with model.eval_mode():
        scores, pull = model.vjp(z)
        gradient, step = pull(v), 1e-6
        for j in range(schema.width):
            e = torch.zeros(schema.width, dtype=torch.float64)
            e[j] = step
            slope = ((model(z + e) - model(z - e)) * v).sum(1) / (2 * step)
            assert torch.allclose(slope, gradient[:, j], rtol=1e-4, atol=1e-5 * float(scores.abs().max() + 1))


@pytest.mark.parametrize("name", TREES)
@drawn
@given(data=st.data())
def test_trees_equal_the_library(name: str, data: st.DataObject) -> None:
    estimator, table = trained(data, name, TREES[name], data.draw(st.sampled_from([2, 3])))
    model = hf.Model.of(estimator, hf.Schema.infer(table))
    check(model, table)
    assert not model.has_grad
    assert torch.allclose(
        torch.softmax(model.score_frame(table), 1), torch.tensor(estimator.predict_proba(table)).double()
    )


NATIVE: dict[str, Maker] = {
    "hist": lambda: HistGradientBoostingClassifier(max_iter=6, min_samples_leaf=2, early_stopping=False),
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=5, max_depth=3, enable_categorical=True, n_jobs=1),
    "lightgbm": lambda: lightgbm.LGBMClassifier(
        n_estimators=5, min_child_samples=2, min_data_per_group=1, cat_smooth=1.0, cat_l2=0.1, verbose=-1, n_jobs=1
    ),
}


@pytest.mark.parametrize("levels", [3, 40])
@pytest.mark.parametrize("name", NATIVE)
def test_categories_and_missing_values_of_the_libraries_themselves(name: str, levels: int) -> None:
    rng = np.random.default_rng(levels)
    code = rng.integers(0, levels, 300)
    gone = rng.random(300) < 0.2
    table = pd.DataFrame(
        {
            "n": rng.normal(size=300),
            "c": pd.Categorical(np.where(gone, None, np.array([f"l{i}" for i in range(levels)], dtype=object)[code])),
            "d": pd.Categorical(rng.choice([3, 1, 7], 300)),
        }
    )
    y = ((code * 7 % 5 < 2) ^ gone ^ (table["n"] > 0.3)).astype(int)
    model = hf.Model.of(NATIVE[name]().fit(table, y), hf.Schema.infer(table))
    check(model, table)


@pytest.mark.parametrize("settings_", [{}, {"zero_as_missing": True}, {"use_missing": False}])
def test_what_lightgbm_takes_for_missing(settings_: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"a": rng.integers(-2, 3, 300).astype(float), "b": rng.normal(size=300)})
    y = (np.abs(table["a"]) + table["b"] > 1.0).astype(int)
    fitted = lightgbm.LGBMClassifier(n_estimators=5, min_child_samples=2, verbose=-1, n_jobs=1, **settings_).fit(
        table, y
    )
    model = hf.Model.of(fitted, hf.Schema.infer(table))
    check(model, table)
    x = model.schema.encode(table, torch.float64)
    assert torch.equal(model(x).argmax(1), model.score_frame(table).argmax(1))


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
        {"objective": "binary", "sigmoid": 2.0, "verbose": -1, "num_threads": 1}, lightgbm.Dataset(table, y), 5
    )
    model = hf.Model.of(light, schema)
    check(model, table)
    assert np.allclose(torch.softmax(model.score_frame(table), 1)[:, 1], light.predict(table))
    early = xgboost.XGBClassifier(n_estimators=60, learning_rate=1.0, early_stopping_rounds=2, n_jobs=1)
    early.fit(table[:120], y[:120], eval_set=[(table[120:], y[120:])], verbose=False)
    assert early.best_iteration + 1 < early.get_booster().num_boosted_rounds()
    check(hf.Model.of(early, schema), table)
    stopped = lightgbm.LGBMClassifier(n_estimators=60, learning_rate=1.0, verbose=-1, n_jobs=1)
    stopped.fit(
        table[:120], y[:120], eval_X=table[120:], eval_y=y[120:], callbacks=[lightgbm.early_stopping(2, verbose=False)]
    )
    check(hf.Model.of(stopped, schema), table)
    assert hf.Model.of(xgboost.train({"objective": "reg:squarederror", "nthread": 1}, data, 2), schema).is_regression
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
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(table, y), 3)
    light = lightgbm.train(settings, lightgbm.Dataset(table, y), 3)
    for made, wanted in ((booster, booster.predict(xgboost.DMatrix(table))), (light, light.predict(table))):
        model = hf.Model.of(made, hf.Schema.infer(turned))
        check(model, turned)
        assert np.allclose(torch.softmax(model.score_frame(turned), 1)[:, 1], wanted)
        assert (model.predict(table) == model.predict(turned)).all()
    unnamed = lightgbm.train(settings, lightgbm.Dataset(table.to_numpy(), y), 3)
    model = hf.Model.of(unnamed, hf.Schema.infer(table))
    check(model, table)
    assert np.allclose(torch.softmax(model.score_frame(table), 1)[:, 1], unnamed.predict(table))
    soft = lightgbm.train({**settings, "objective": "cross_entropy"}, lightgbm.Dataset(table, y * 0.8 + 0.1), 3)
    model = hf.Model.of(soft, hf.Schema.infer(table))
    check(model, table)
    assert np.allclose(torch.softmax(model.score_frame(table), 1)[:, 1], soft.predict(table))
    other = lightgbm.train({**settings, "objective": "cross_entropy_lambda"}, lightgbm.Dataset(table, y), 3)
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


def test_encoded_inputs() -> None:
    table = mixed_table(120)
    schema = mixed_schema(table)
    z = schema.encode(table, torch.float64).numpy()
    y = np.where(table["income"] > 3000, "good", "bad")
    for estimator in (LogisticRegression(max_iter=500), RandomForestClassifier(4, max_depth=3, random_state=0)):
        model = hf.Model.of(estimator.fit(z, y), schema, inputs="encoded")
        check(model, table)


def test_scalers_of_sparse_matrices_multiply() -> None:
    """Thresholds lie between values, and scikit-learn scales sparse columns by x * (1 / s), not by x / s."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(0, 3, 300), "b": rng.normal(5, 2, 300), "k": rng.choice(list("xyz"), 300)})
    y = ((table["a"] > 0) ^ (table["b"] > 5)).astype(int) ^ (rng.random(300) < 0.1)
    for scaler in (StandardScaler(with_mean=False), MaxAbsScaler(), RobustScaler(with_centering=False)):
        parts = [("k", OneHotEncoder(), ["k"]), ("rest", "passthrough", ["a", "b"])]
        prepare = make_pipeline(ColumnTransformer(parts, sparse_threshold=1.0), scaler)
        made = make_pipeline(prepare, RandomForestClassifier(10, random_state=0)).fit(table, y)
        divided = prepare[0].transform(table).toarray() / scaler.scale_
        assert (divided != prepare.transform(table).toarray()).any()  # it does matter
        check(hf.Model.of(made, hf.Schema.infer(table)), table)


def test_searches_over_settings_and_frozen_estimators_are_compiled() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "c"])
    y, schema = (table["a"] + table["b"] ** 2 > 0.5).astype(int), hf.Schema.infer(table)
    line, depths = make_pipeline(StandardScaler(), LogisticRegression()), {"max_depth": [2, 3]}
    grid = GridSearchCV(line, {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(table, y)
    drawn_ = RandomizedSearchCV(DecisionTreeClassifier(), depths, n_iter=2, cv=2, random_state=0).fit(table, y)
    halving = HalvingGridSearchCV(DecisionTreeClassifier(), depths, cv=2, random_state=0).fit(table, y)
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
        {"a": rng.normal(size=120), "b": np.where(rng.random(120) < 0.3, np.nan, rng.normal(size=120))}
    )
    y = (table["a"] + table["b"].fillna(0) > 0).astype(int)
    wider = hf.Schema.infer(pd.concat([table, table * 3, table * -3]))
    for scaler in (MinMaxScaler(clip=True), MaxAbsScaler(clip=True)):
        made = make_pipeline(scaler, SimpleImputer(), MLPClassifier((4,), solver="lbfgs", max_iter=20, random_state=0))
        model = hf.Model.of(quietly(made, table, y), wider)
        check(model, pd.concat([table, table * 3]))
        far = pd.DataFrame({"a": [9.0, -9.0, 0.1], "b": [0.1, 0.2, 9.0]})
        with model.eval_mode():
            _, pull = model.vjp(wider.encode(far, torch.float64))
            slope = pull(torch.tensor([[0.0, 1.0]] * 3, dtype=torch.float64))
        assert slope[[0, 1, 2], [0, 0, 1]].tolist() == [0, 0, 0]
        assert (slope[[0, 1, 2], [1, 1, 0]] != 0).all()


# ---- columns


UNORDERED: dict[str, Maker] = {
    "logistic": lambda: LogisticRegression(),
    "scaled": lambda: make_pipeline("passthrough", StandardScaler(), LogisticRegression()),
    "forest": lambda: RandomForestClassifier(3, random_state=0),
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=3, n_jobs=1),
    "lightgbm": lambda: lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1),
}


def people(rows: int = 150) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(rows, 3)) * [1, 10, 100], columns=["a", "b c", "d"])
    table["id"] = np.arange(rows)
    return table, (table["a"] + table["b c"] / 5 - table["d"] / 100 > 0).astype(int)


@pytest.mark.parametrize("name", UNORDERED)
def test_a_model_of_fewer_columns_or_in_another_order(name: str) -> None:
    table, y = people()
    some = table[["d", "a", "b c"]]
    made = UNORDERED[name]().fit(some, y)
    model = hf.Model.of(made, hf.Schema.infer(table))
    check(model, table)
    assert (model.predict(table) == made.predict(some)).all()
    cfs = hf.GrowingSpheres().explain(model, table.head(4), 1)
    assert (made.predict(cfs.to_frame()[some.columns][cfs.found]) == 1).all()


@pytest.mark.parametrize("by", [["d", "a"], [2, 0], slice("a", "b c")])
def test_columns_that_a_model_was_trained_on_but_does_not_read(by: Any) -> None:
    table, y = people()
    for rest in ("drop", "passthrough"):
        made = make_pipeline(ColumnTransformer([("s", StandardScaler(), by)], remainder=rest), LogisticRegression())
        made.fit(table, y)
        check(hf.Model.of(made, hf.Schema.infer(table[["id", "d", "b c", "a"]])), table)
        small = table[["d", "b c", "a"]]
        if rest == "drop":
            model = hf.Model.of(made, hf.Schema.infer(small))
            check(model, small)
            assert (model.predict(small) == made.predict(table)).all()
        else:
            with pytest.raises(hf.HoldfastError, match=r"needs 1 column\(s\) that the schema lacks: 'id'; infer the"):
                hf.Model.of(made, hf.Schema.infer(small))


@pytest.mark.parametrize("name", UNORDERED)
def test_a_model_says_which_columns_the_schema_lacks(name: str) -> None:
    table, y = people()
    made = UNORDERED[name]().fit(table[["d", "a", "id"]], y)
    with pytest.raises(hf.HoldfastError, match=r"needs 2 column\(s\) that the schema lacks: 'd', 'id'; infer"):
        hf.Model.of(made, hf.Schema.infer(table[["a"]]))


# ---- refused


def test_booleans_that_may_be_missing_reach_lightgbm() -> None:
    rng = np.random.default_rng(0)
    flag = pd.Series(rng.random(200) > 0.5, dtype="boolean").mask(rng.random(200) < 0.3)
    table = pd.DataFrame({"a": rng.normal(size=200), "b": flag})
    y = (table["a"] + flag.astype(float).fillna(0.5) > 0.5).astype(int)
    made = lightgbm.LGBMClassifier(n_estimators=5, min_child_samples=2, verbose=-1, n_jobs=1).fit(table, y)
    check(hf.Model.of(made, hf.Schema.infer(table)), table)


def _fit(estimator: Any) -> tuple[Any, hf.Schema]:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 3)), columns=["a", "b", "c"])
    table["n"] = np.arange(80) % 4
    return quietly(estimator, table, (table["a"] + table["b"] ** 2 > 0.5).astype(int)), hf.Schema.infer(table)


REFUSED: dict[str, tuple[Maker, str]] = {
    "calibrated": (lambda: CalibratedClassifierCV(LinearSVC(), cv=2), "CalibratedClassifierCV"),
    "voting": (lambda: VotingClassifier([("a", LogisticRegression())], voting="soft"), "VotingClassifier"),
    "kernel": (lambda: SVC(), "kernel 'rbf'"),
    "mixes": (lambda: make_pipeline(PCA(2), LogisticRegression()), "PCA"),
    "own function": (lambda: make_pipeline(FunctionTransformer(np.abs), LogisticRegression()), "function of your own"),
    "huber": (lambda: SGDClassifier(loss="modified_huber", random_state=0), "modified_huber"),
    "numbers as levels": (
        lambda: make_pipeline(
            ColumnTransformer([("n", OneHotEncoder(), ["n"])], remainder="passthrough"), LogisticRegression()
        ),
        "declare that column a category",
    ),
    "dart": (lambda: xgboost.XGBClassifier(booster="dart", n_estimators=2, n_jobs=1), "dart"),
    "zero is missing": (lambda: xgboost.XGBClassifier(missing=0.0, n_estimators=2, n_jobs=1), "missing"),
    "linear leaves": (
        lambda: lightgbm.LGBMClassifier(linear_tree=True, n_estimators=2, verbose=-1, n_jobs=1),
        "linear_tree",
    ),
    "start": (lambda: GradientBoostingClassifier(init=LogisticRegression(), n_estimators=2), "init"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_conversion_says_why(name: str) -> None:
    make, why = REFUSED[name]
    fitted, schema = _fit(make())
    model = hf.Model.of(fitted, schema)
    assert not model.conversion
    assert why in str(model.conversion)
    assert not model.has_grad
    assert model.predict(schema.decode(schema.probe)).isin([0, 1]).all()


def test_trees_too_large_for_a_byte_are_left_to_the_library() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(900, 2)), columns=["a", "b"])
    large = HistGradientBoostingClassifier(max_iter=1, max_leaf_nodes=None, min_samples_leaf=1, early_stopping=False)
    model = hf.Model.of(large.fit(table, rng.integers(0, 2, 900)), hf.Schema.infer(table))
    assert "more than 256" in str(model.conversion)


class Shifted(LogisticRegression):
    """Its class lives elsewhere, so it cannot be compiled."""


def test_a_compiled_form_that_differs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, schema = _fit(LogisticRegression())
    fitted.predict_proba = lambda X: np.full((len(X), 2), 0.5)  # not what its coefficients say
    model = hf.Model.of(fitted, schema)
    assert "differ by" in str(model.conversion)
    assert not model.has_grad
    other, _ = _fit(Shifted())
    assert "Shifted" in str(hf.Model.of(other, schema).conversion)
    plain, _ = _fit(LogisticRegression())
    assert str(hf.Model.of(plain, schema, convert=False).conversion) == "not asked for"


def test_the_estimator_is_left_as_it_was() -> None:
    for make in (*SMOOTH.values(), *TREES.values()):
        fitted, schema = _fit(make_pipeline(StandardScaler(), make()))
        before = pickle.dumps(fitted)
        model = hf.Model.of(fitted, schema)
        assert model.conversion, model.conversion.text
        hf.GrowingSpheres(samples=10, rings=2).explain(model, schema.decode(schema.probe), 1)
        assert pickle.dumps(fitted) == before


def test_gradient_methods_search_the_compiled_form_and_the_estimator_decides() -> None:
    """The nearest point of the other class of a linear model, by hand: along w, at distance |f| / |w|."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(200, 3)) * [1.0, 10.0, 0.1], columns=["a", "b", "c"])
    fitted = make_pipeline(StandardScaler(), LogisticRegression(C=10.0))
    fitted.fit(table, table["a"] + table["b"] / 10 - table["c"] * 5 > 0)
    schema = hf.Schema.infer(table)
    model = hf.Model.of(fitted, schema)
    rows = table[~fitted.predict(table)].head(7)
    cfs = hf.MinCost(norm=2).explain(model, rows, True)
    assert cfs.found.all()
    assert fitted.predict(cfs.after).all()
    f = np.abs(fitted.decision_function(rows)) / np.linalg.norm(fitted[-1].coef_)
    moved = (cfs.x_cf - cfs.x).square().sum(1).sqrt().numpy()
    assert (moved >= f * 0.98).all()
    assert (moved <= f * 1.1 + 1e-3).all()


# ---- parts


def test_bisection_finds_the_last_double() -> None:
    t = np.array([0.0, -0.0, 1.5, -2.25e-300, 1e300, np.pi])
    assert (bisect(lambda x: x <= t, 6) == t).all()
    below = bisect(lambda x: x < t, 6)
    assert (np.nextafter(below, np.inf) == t).all()
    single = bisect(lambda x: x.astype(np.float32) <= np.float32(0.1), 1)
    assert np.float32(single[0]) == np.float32(0.1)
    assert np.float32(np.nextafter(single[0], 1)) > np.float32(0.1)
    assert bisect(lambda x: x > np.inf, 1)[0] == -np.finfo(float).max
    assert bisect(lambda x: x < np.inf, 1)[0] == np.finfo(float).max


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    cuts=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40, unique=True),
    more=st.lists(st.floats(-2e6, 2e6), max_size=20),
)
def test_ranks_count_the_cuts_below(cuts: list[float], more: list[float]) -> None:
    sorted_cuts = np.unique(cuts)
    x = np.concatenate([sorted_cuts, np.nextafter(sorted_cuts, np.inf), np.nextafter(sorted_cuts, -np.inf), more])
    out = np.empty(len(x), dtype=np.uint8)
    Ranks(sorted_cuts, 0, np.uint8)(x[None], out)
    assert (out == (x[:, None] > sorted_cuts).sum(1)).all()


def test_a_tree_by_hand() -> None:
    """a <= 1 ? (b <= 0 ? 10 : 20) : (b <= 2 ? 30 : (a <= 5 ? 40 : 50)), and a tree that is one leaf."""
    nodes = Nodes(
        roots=np.array([0, 9]),
        left=np.array([1, 2, -1, -1, 5, -1, 7, -1, -1, -1]),
        right=np.array([4, 3, -1, -1, 6, -1, 8, -1, -1, -1]),
        column=np.array([0, 1, 0, 0, 1, 0, 0, 0, 0, 0]),
        threshold=np.array([1.0, 0, 0, 0, 2, 0, 5, 0, 0, 0]),
        missing_left=np.zeros(10, dtype=bool),
        value=np.array([0.0, 0, 10, 20, 0, 30, 0, 40, 50, 7])[:, None],
        adds_to=np.array([0, 0]),
        start=np.array([1000.0]),
        precision=np.float64,
    )
    assert nodes.leaves().tolist() == [5, 1]
    schema = hf.Schema.box(2)
    raws = Raw.all_of(schema, False)
    columns = [Column(0, None), Column(1, None)]
    program = TreeProgram(nodes, *code_columns(nodes, columns, raws))
    rows = [[1, 0], [1, 0.1], [1.1, 2], [5, 2.1], [5.1, 2.1], [-9, -9], [9, -9]]
    got = program(torch.tensor(rows, dtype=torch.float64))
    assert got[:, 0].tolist() == [1017, 1027, 1037, 1047, 1057, 1017, 1037]
    assert program(torch.zeros(0, 2, dtype=torch.float64)).shape == (0, 1)
