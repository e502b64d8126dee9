"""Estimators of every type on the list as skops files, and files crafted from them."""

import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from scipy.stats import loguniform
from sklearn import dummy, ensemble, linear_model, naive_bayes, svm, tree
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import (
    TransformedTargetRegressor,
    make_column_selector,
    make_column_transformer,
)
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.feature_selection import VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    KFold,
    RandomizedSearchCV,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TunedThresholdClassifierCV,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)

from holdfast.errors import FileError
from holdfast.models.formats.skops import reader as own
from support.versions import supported

RNG = np.random.default_rng(0)
NUMBERS = ["a", "b", "c"]
TABLE = pd.DataFrame(RNG.normal(size=(80, 3)), columns=NUMBERS)
TWO = (TABLE["a"] + TABLE["b"] ** 2 > 0.5).astype(int)
THREE = np.digitize(TABLE["a"], [-0.5, 0.5])
VALUE = 3 * TABLE["a"] + TABLE["b"] + 20
TEXTS = TABLE.assign(
    job=RNG.choice(["x", "y", "z"], 80, p=[0.5, 0.4, 0.1]), size=RNG.choice(["s", "m"], 80)
)
LEVELS = TEXTS.astype({"job": "category", "size": "category"})
PAIR = [("line", LogisticRegression()), ("tree", tree.DecisionTreeClassifier(max_depth=2))]
PAIR_OF_NUMBERS = [("line", LinearRegression()), ("tree", tree.DecisionTreeRegressor(max_depth=2))]
SMALL: dict[str, Any] = {"hidden_layer_sizes": (4,), "max_iter": 300, "random_state": 0}
QUICK: dict[str, Any] = {"max_iter": 3, "min_samples_leaf": 5}
FEW: dict[str, Any] = {"n_estimators": 2, "max_depth": 3, "random_state": 0}
CLASSIFIERS = [
    LogisticRegression(),
    linear_model.LogisticRegressionCV(
        cv=StratifiedKFold(3),
        **supported(linear_model.LogisticRegressionCV, use_legacy_attributes=False),
    ),
    linear_model.RidgeClassifier(),
    linear_model.RidgeClassifierCV(),
    linear_model.Perceptron(),
    *[
        linear_model.SGDClassifier(loss=loss, random_state=0)
        for loss in ("hinge", "squared_hinge", "modified_huber", "log_loss")
    ],
    svm.LinearSVC(),
    svm.SVC(kernel="linear"),
    svm.SVC(),
    svm.NuSVC(kernel="poly"),
    LinearDiscriminantAnalysis(),
    QuadraticDiscriminantAnalysis(),
    naive_bayes.GaussianNB(),
    naive_bayes.BernoulliNB(),
    dummy.DummyClassifier(),
    MLPClassifier(**SMALL),
    MLPClassifier(**SMALL, solver="sgd"),
    tree.DecisionTreeClassifier(max_depth=3),
    tree.ExtraTreeClassifier(max_depth=3),
    ensemble.RandomForestClassifier(**FEW),
    ensemble.ExtraTreesClassifier(**FEW),
    ensemble.GradientBoostingClassifier(**FEW),
    ensemble.GradientBoostingClassifier(**FEW, init="zero"),
    ensemble.GradientBoostingClassifier(**FEW, loss="exponential"),
    ensemble.HistGradientBoostingClassifier(**QUICK),
    ensemble.AdaBoostClassifier(n_estimators=2),
    ensemble.BaggingClassifier(n_estimators=2),
    ensemble.VotingClassifier(PAIR, voting="soft"),
    ensemble.StackingClassifier(PAIR, cv=3),
    CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=3),
    CalibratedClassifierCV(svm.LinearSVC(), method="isotonic", cv=3),
    GridSearchCV(LogisticRegression(), {"C": [1, 2]}, cv=3, scoring="roc_auc"),
    RandomizedSearchCV(
        LogisticRegression(), {"C": loguniform(0.1, 1)}, n_iter=2, cv=3, random_state=0
    ),
    FixedThresholdClassifier(LogisticRegression(), threshold=0.3),
    FixedThresholdClassifier(svm.LinearSVC()),
    FixedThresholdClassifier(
        LogisticRegression(), threshold=0.7, pos_label=0, response_method="decision_function"
    ),
    FixedThresholdClassifier(
        make_pipeline(StandardScaler(), ensemble.RandomForestClassifier(**FEW)), threshold=0.6
    ),
    FixedThresholdClassifier(
        FrozenEstimator(LogisticRegression().fit(TABLE, TWO)), threshold=np.float64(0.2)
    ),
    TunedThresholdClassifierCV(LogisticRegression(), cv=2),
    TunedThresholdClassifierCV(svm.LinearSVC(), cv=2),
    TunedThresholdClassifierCV(
        ensemble.HistGradientBoostingClassifier(**QUICK), scoring="f1", cv=2
    ),
    TunedThresholdClassifierCV(
        LogisticRegression(),
        scoring=make_scorer(f1_score, pos_label=0),
        cv=StratifiedShuffleSplit(2, random_state=0),
        store_cv_results=True,
    ),
    TunedThresholdClassifierCV(LogisticRegression().fit(TABLE, TWO), cv="prefit", refit=False),
    TunedThresholdClassifierCV(GridSearchCV(LogisticRegression(), {"C": [1, 2]}, cv=2), cv=2),
    GridSearchCV(
        make_pipeline(
            StandardScaler(), FixedThresholdClassifier(ensemble.RandomForestClassifier(**FEW))
        ),
        {"fixedthresholdclassifier__threshold": [0.7]},
        cv=2,
    ),
    GridSearchCV(
        make_pipeline(StandardScaler(), TunedThresholdClassifierCV(LogisticRegression(), cv=2)),
        {"tunedthresholdclassifiercv__cv": [2, 3]},
        cv=2,
        scoring="f1",
    ),
    FrozenEstimator(LogisticRegression().fit(TABLE, TWO)),
    FrozenEstimator(make_pipeline(StandardScaler(), svm.SVC(kernel="linear")).fit(TABLE, TWO)),
    make_pipeline(
        FrozenEstimator(StandardScaler().fit(TABLE)), tree.DecisionTreeClassifier(max_depth=3)
    ),
    make_pipeline(FrozenEstimator(StandardScaler().fit(TABLE)), LogisticRegression()),
    CalibratedClassifierCV(FrozenEstimator(naive_bayes.GaussianNB().fit(TABLE, TWO)), cv=3),
]
OF_THREE = [
    svm.SVC(),
    svm.SVC(kernel="linear"),
    ensemble.GradientBoostingClassifier(**FEW),
    ensemble.HistGradientBoostingClassifier(**QUICK),
    linear_model.SGDClassifier(loss="log_loss", random_state=0),
]
REGRESSORS = [
    LinearRegression(),
    linear_model.Ridge(),
    linear_model.RidgeCV(cv=KFold(3)),
    linear_model.Lasso(),
    linear_model.LassoCV(cv=3),
    linear_model.ElasticNet(),
    linear_model.ElasticNetCV(cv=3),
    linear_model.Lars(),
    linear_model.LassoLars(),
    linear_model.BayesianRidge(),
    linear_model.ARDRegression(),
    linear_model.HuberRegressor(),
    linear_model.TheilSenRegressor(random_state=0),
    linear_model.QuantileRegressor(),
    *[
        linear_model.SGDRegressor(loss=loss, random_state=0)
        for loss in ("squared_error", "huber", "epsilon_insensitive", "squared_epsilon_insensitive")
    ],
    linear_model.PoissonRegressor(),
    linear_model.GammaRegressor(),
    linear_model.TweedieRegressor(),
    linear_model.TweedieRegressor(power=1.5),
    svm.LinearSVR(max_iter=10_000),
    svm.SVR(kernel="linear"),
    svm.SVR(),
    svm.NuSVR(),
    dummy.DummyRegressor(),
    MLPRegressor(**SMALL, early_stopping=True),
    tree.DecisionTreeRegressor(max_depth=3),
    tree.ExtraTreeRegressor(max_depth=3),
    ensemble.RandomForestRegressor(**FEW),
    ensemble.ExtraTreesRegressor(**FEW),
    *[
        ensemble.GradientBoostingRegressor(**FEW, loss=loss)
        for loss in ("squared_error", "absolute_error", "huber", "quantile")
    ],
    *[
        ensemble.HistGradientBoostingRegressor(
            **QUICK, loss=loss, quantile=0.5 if loss == "quantile" else None
        )
        for loss in ("squared_error", "absolute_error", "gamma", "poisson", "quantile")
    ],
    ensemble.AdaBoostRegressor(n_estimators=2),
    ensemble.BaggingRegressor(n_estimators=2),
    ensemble.VotingRegressor(PAIR_OF_NUMBERS),
    ensemble.StackingRegressor(PAIR_OF_NUMBERS, cv=3),
    TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp),
]
STEPS = [
    MinMaxScaler(),
    RobustScaler(),
    MaxAbsScaler(),
    Normalizer(),
    Binarizer(),
    PowerTransformer(),
    QuantileTransformer(n_quantiles=20),
    QuantileTransformer(n_quantiles=20, output_distribution="normal"),
    KBinsDiscretizer(3, **supported(KBinsDiscretizer, quantile_method="averaged_inverted_cdf")),
    SplineTransformer(),
    PolynomialFeatures(),
    SimpleImputer(add_indicator=True),
    PCA(2),
    VarianceThreshold(),
    make_union(StandardScaler(), MinMaxScaler()),
    *[FunctionTransformer(f) for f in (np.absolute, np.cbrt, np.exp, np.expm1, np.square)],
    make_pipeline(
        FunctionTransformer(np.exp), *[FunctionTransformer(f) for f in (np.sqrt, np.log1p)]
    ),
    make_pipeline(*[FunctionTransformer(f) for f in (np.exp, np.log2, np.exp, np.log10)]),
]
HOT = {
    "one-hot": OneHotEncoder(),
    "dense": OneHotEncoder(sparse_output=False),
    "dropped": OneHotEncoder(drop="first"),
    "rare": OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=20, drop="if_binary"),
    "given": OneHotEncoder(categories=[["z", "y", "x"], ["s", "m"]]),
}


def zoo() -> Iterator[tuple[str, Any, pd.DataFrame, Any]]:
    """A name, an estimator, its table and what it learns."""
    for estimators, y, of in (
        (CLASSIFIERS, TWO, ""),
        (OF_THREE, THREE, " of three"),
        (REGRESSORS, VALUE, ""),
    ):
        for estimator in estimators:
            yield f"{' '.join(str(estimator).split())}{of}", estimator, TABLE, y
    for step in STEPS:
        yield (
            f"{' '.join(str(step).split())} before",
            make_pipeline(step, LogisticRegression(max_iter=500)),
            TABLE,
            TWO,
        )
    for name, encoder in HOT.items():
        columns = make_column_transformer((encoder, ["job", "size"]), (StandardScaler(), NUMBERS))
        yield name, make_pipeline(columns, LogisticRegression()), TEXTS, TWO
    ranks = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    columns = make_column_transformer((ranks, ["job", "size"]), remainder="passthrough")
    yield "remainder", make_pipeline(columns, ensemble.RandomForestClassifier(**FEW)), TEXTS, TWO
    columns = make_column_transformer((OneHotEncoder(), ["job", "size"]), ("passthrough", NUMBERS))
    yield "passthrough", make_pipeline(columns, LogisticRegression()), TEXTS, TWO
    for kind in (np.number, np.floating):
        others = make_column_selector(dtype_exclude=kind)
        numbers = make_column_selector(dtype_include=kind)
        columns = make_column_transformer((OneHotEncoder(), others), (StandardScaler(), numbers))
        yield f"selected {kind.__name__}", make_pipeline(columns, LogisticRegression()), TEXTS, TWO
    by_job = (TEXTS["job"] == "x").astype(int)
    yield "categories", ensemble.HistGradientBoostingClassifier(**QUICK), LEVELS, by_job
    yield "categories, a number", ensemble.HistGradientBoostingRegressor(**QUICK), LEVELS, VALUE


ZOO = {name: (estimator, table, y) for name, estimator, table, y in zoo()}


@cache
def saved(name: str) -> tuple[Any, bytes]:
    """The fitted estimator and its file."""
    estimator, table, y = ZOO[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps on few rows
        return estimator.fit(table, y), skops.io.dumps(estimator)


def crafted(data: bytes, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> bytes:
    """A file whose schema and entries were changed."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    schema = json.loads(entries["schema.json"])
    change(schema, entries)
    entries["schema.json"] = json.dumps(schema).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for name, content in entries.items():
            new.writestr(name, content)
    return out.getvalue()


def refused(data: bytes, words: str) -> None:
    own.check_file(data)
    with pytest.raises(FileError, match=words):
        own.made(data)
