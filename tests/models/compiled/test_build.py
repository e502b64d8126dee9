"""Compiled estimators: the same scores and classes as the library, also at thresholds and next to
them."""

import pickle
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
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
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
from support.compiled import Maker, check, outcome, quietly
from support.tables import mixed_schema, mixed_table
from support.versions import supported

torch.set_num_threads(1)


SMOOTH: dict[str, Maker] = {
    "logistic": lambda: LogisticRegression(max_iter=2000),
    "linear svc": lambda: LinearSVC(),
    "svc": lambda: SVC(kernel="linear"),
    "sgd": lambda: SGDClassifier(random_state=0, max_iter=2000),
    "sgd log": lambda: SGDClassifier(loss="log_loss", random_state=0, max_iter=2000),
    "ridge": lambda: RidgeClassifier(),
    "mlp": lambda: MLPClassifier((7,), solver="lbfgs", max_iter=15, random_state=0),
    "mlp tanh": lambda: MLPClassifier((5, 3), "tanh", solver="lbfgs", max_iter=15, random_state=0),
    "mlp logistic": lambda: MLPClassifier(
        (4,), "logistic", solver="lbfgs", max_iter=15, random_state=0
    ),
    "mlp identity": lambda: MLPClassifier(
        (4, 3), "identity", solver="lbfgs", max_iter=15, random_state=0
    ),
}
TREES: dict[str, Maker] = {
    "forest": lambda: RandomForestClassifier(5, max_depth=4, random_state=0),
    "deep forest": lambda: RandomForestClassifier(
        3, bootstrap=False, max_features=1, random_state=0
    ),
    "extra trees": lambda: ExtraTreesClassifier(5, random_state=0),
    "tree": lambda: DecisionTreeClassifier(random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=4, random_state=0),
    "hist": lambda: HistGradientBoostingClassifier(
        max_iter=5, min_samples_leaf=2, early_stopping=False
    ),
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1),
    "xgboost deep": lambda: xgboost.XGBClassifier(
        n_estimators=3, max_depth=9, min_child_weight=0, n_jobs=1
    ),
    "lightgbm": lambda: lightgbm.LGBMClassifier(
        n_estimators=4, min_child_samples=2, verbose=-1, n_jobs=1
    ),
}
TAKES_GAPS = (
    "forest",
    "deep forest",
    "extra trees",
    "tree",
    "hist",
    "xgboost",
    "xgboost deep",
    "lightgbm",
)
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
    center, dtype = data.draw(
        st.sampled_from([(0.0, "float64"), (4e4, "float64"), (3.0, "float32")]), "first"
    )
    out: dict[str, Any] = {"n": rng.normal(center, 3.0, rows).round(2).astype(dtype)}
    for i, kind in enumerate(kinds):
        some = rng.choice(LEVELS[: data.draw(st.sampled_from([1, 2, 3, 5, 40]), "levels")], rows)
        gone = rng.random(rows) < 0.2
        whole = rng.integers(-3, 9, rows)
        real = rng.exponential(2.0, rows)
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


ENCODERS: list[Maker] = [
    lambda: OneHotEncoder(handle_unknown="ignore"),
    lambda: OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float32),
    lambda: OneHotEncoder(drop="if_binary", sparse_output=False),
    lambda: OneHotEncoder(drop="first", sparse_output=False),
    lambda: OneHotEncoder(drop="first", max_categories=3),
    lambda: OneHotEncoder(min_frequency=0.3, handle_unknown="infrequent_if_exist"),
    lambda: OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
    ),
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
    lambda: MaxAbsScaler(**supported(MaxAbsScaler, clip=True)),
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
    fill = data.draw(
        st.sampled_from(
            [{"strategy": "constant", "fill_value": "?"}, {"strategy": "most_frequent"}]
        )
    )
    return Pipeline([("fill", SimpleImputer(**fill)), ("code", encoder)])


def of_numbers(data: st.DataObject, takes_gaps: bool) -> Any:
    """Numbers scaled in some way, or not, all of them or only the first; filled in before or
    after."""
    scaler = data.draw(st.sampled_from(SCALERS), "scaler")()
    if scaler != "passthrough" and data.draw(st.booleans(), "only the first"):
        scaler = ColumnTransformer([("first", scaler, [0])], remainder="passthrough")
    if takes_gaps and data.draw(st.booleans(), "keep gaps"):
        return scaler
    steps = [
        ("fill", SimpleImputer(**data.draw(st.sampled_from(FILLS), "fill"))),
        ("scale", scaler),
    ]
    return Pipeline(steps if data.draw(st.booleans(), "fill first") else steps[::-1])


def prepared(
    data: st.DataObject, table: pd.DataFrame, *, sparse: bool = True, takes_gaps: bool = False
) -> Any:
    """A drawn pipeline for the table: levels one-hot or as ranks, numbers scaled in some way,
    sparse or a frame."""
    levels = [c for c in table if c.split(" ", 1)[-1] in NAMED]
    numbers = [c for c in table if c not in levels]
    threshold = data.draw(st.sampled_from([0.0, 1.0]), "sparse") if sparse else 0.0
    first = "levels", of_levels(data), levels
    second = "numbers", of_numbers(data, takes_gaps), numbers
    rest: Any = "drop"
    if data.draw(st.booleans(), "numbers are the rest"):
        parts = [first]
        rest = second[1]
    else:
        parts = [first, second] if data.draw(st.booleans(), "levels first") else [second, first]
    whole = ColumnTransformer(
        [p for p in parts if p[2]], remainder=rest, sparse_threshold=threshold
    )
    return make_pipeline(whole, data.draw(st.sampled_from(LAST_SCALERS), "last scaler")())


def trained(data: st.DataObject, name: str, make: Maker, k: int) -> tuple[Any, pd.DataFrame]:
    """A drawn pipeline that ends in the model, and the table, in another order and with more
    columns than it knows."""
    table = table_of(data)
    steps = prepared(data, table, sparse=name != "hist", takes_gaps=name in TAKES_GAPS)
    estimator = make_pipeline(steps, make())
    if data.draw(st.booleans(), "frames inside"):
        estimator.set_output(transform="pandas")
    # other levels are unknown to the encoder
    known = table.head(50) if "handle_unknown" in str(steps) else table
    try:
        quietly(estimator, known, outcome(known, k))
    # not every drawn pipeline is one that scikit-learn takes
    except (ValueError, TypeError) as error:
        event(f"{type(error).__name__}: {str(error)[:60]}")
        reject()
    turned = [*table.columns[::-1], "unused"]
    return estimator, table.assign(unused=np.arange(len(table)) % 3)[turned]


def far_from_zero(table: pd.DataFrame) -> bool:
    """Is a column of numbers a thousand times as far from zero as it is wide?"""
    numbers = table.select_dtypes("floating").astype(float)
    return bool((numbers.mean().abs() > 1000 * numbers.std()).any())


@pytest.mark.parametrize("name", SMOOTH)
@drawn
@given(data=st.data())
def test_smooth_models_equal_the_library_and_have_gradients(name: str, data: st.DataObject) -> None:
    k = 2 if name in ("svc", "sgd log") else data.draw(st.sampled_from([2, 3]))
    estimator, table = trained(data, name, SMOOTH[name], k)
    # libsvm adds up products of rows: its own scores have few digits there
    if name == "svc" and far_from_zero(table):
        reject()
    schema = hf.Schema.infer(table)
    model = hf.Model.of(estimator, schema)
    check(model, table)
    assert model.has_grad
    z = schema.encode(table, torch.float64)[:9] + 0.123  # off the kinks
    v = torch.tensor([[1.0, -0.5, 2.0][:k]], dtype=torch.float64).repeat(len(z), 1)
    with model.eval_mode():
        scores, pull = model.vjp(z)
        gradient = pull(v)
        step = 1e-6
        for j in range(schema.width):
            e = torch.zeros(schema.width, dtype=torch.float64)
            e[j] = step
            slope = ((model(z + e) - model(z - e)) * v).sum(1) / (2 * step)
            assert torch.allclose(
                slope, gradient[:, j], rtol=1e-4, atol=1e-5 * float(scores.abs().max() + 1)
            )


@pytest.mark.parametrize("name", TREES)
@drawn
@given(data=st.data())
def test_trees_equal_the_library(name: str, data: st.DataObject) -> None:
    estimator, table = trained(data, name, TREES[name], data.draw(st.sampled_from([2, 3])))
    model = hf.Model.of(estimator, hf.Schema.infer(table))
    check(model, table)
    assert not model.has_grad
    assert torch.allclose(
        torch.softmax(model.score_frame(table), 1),
        torch.tensor(estimator.predict_proba(table)).double(),
    )


NATIVE: dict[str, Maker] = {
    "hist": lambda: HistGradientBoostingClassifier(
        max_iter=6, min_samples_leaf=2, early_stopping=False
    ),
    "xgboost": lambda: xgboost.XGBClassifier(
        n_estimators=5, max_depth=3, enable_categorical=True, n_jobs=1
    ),
    "lightgbm": lambda: lightgbm.LGBMClassifier(
        n_estimators=5,
        min_child_samples=2,
        min_data_per_group=1,
        cat_smooth=1.0,
        cat_l2=0.1,
        verbose=-1,
        n_jobs=1,
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
            "c": pd.Categorical(
                np.where(gone, None, np.array([f"l{i}" for i in range(levels)], dtype=object)[code])
            ),
            "d": pd.Categorical(rng.choice([3, 1, 7], 300)),
        }
    )
    y = ((code * 7 % 5 < 2) ^ gone ^ (table["n"] > 0.3)).astype(int)
    model = hf.Model.of(NATIVE[name]().fit(table, y), hf.Schema.infer(table))
    check(model, table)


def test_encoded_inputs() -> None:
    table = mixed_table(120)
    schema = mixed_schema(table)
    z = schema.encode(table, torch.float64).numpy()
    y = np.where(table["income"] > 3000, "good", "bad")
    for estimator in (
        LogisticRegression(max_iter=500),
        RandomForestClassifier(4, max_depth=3, random_state=0),
    ):
        model = hf.Model.of(estimator.fit(z, y), schema, inputs="encoded")
        check(model, table)


def _fit(estimator: Any) -> tuple[Any, hf.Schema]:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 3)), columns=["a", "b", "c"])
    table["n"] = np.arange(80) % 4
    return quietly(
        estimator, table, (table["a"] + table["b"] ** 2 > 0.5).astype(int)
    ), hf.Schema.infer(table)


REFUSED: dict[str, tuple[Maker, str]] = {
    "calibrated": (lambda: CalibratedClassifierCV(LinearSVC(), cv=2), "CalibratedClassifierCV"),
    "voting": (
        lambda: VotingClassifier([("a", LogisticRegression())], voting="soft"),
        "VotingClassifier",
    ),
    "kernel": (lambda: SVC(), "kernel 'rbf'"),
    "mixes": (lambda: make_pipeline(PCA(2), LogisticRegression()), "PCA"),
    "own function": (
        lambda: make_pipeline(FunctionTransformer(np.abs), LogisticRegression()),
        "function of your own",
    ),
    "huber": (lambda: SGDClassifier(loss="modified_huber", random_state=0), "modified_huber"),
    "numbers as levels": (
        lambda: make_pipeline(
            ColumnTransformer([("n", OneHotEncoder(), ["n"])], remainder="passthrough"),
            LogisticRegression(),
        ),
        "declare that column a category",
    ),
    "dart": (lambda: xgboost.XGBClassifier(booster="dart", n_estimators=2, n_jobs=1), "dart"),
    "zero is missing": (
        lambda: xgboost.XGBClassifier(missing=0.0, n_estimators=2, n_jobs=1),
        "missing",
    ),
    "linear leaves": (
        lambda: lightgbm.LGBMClassifier(linear_tree=True, n_estimators=2, verbose=-1, n_jobs=1),
        "linear_tree",
    ),
    "start": (
        lambda: GradientBoostingClassifier(init=LogisticRegression(), n_estimators=2),
        "init",
    ),
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
    """The nearest point of the other class of a linear model, by hand: along w, at distance |f| /
    |w|."""
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
