"""Every type that a skops file may hold: it loads and predicts the same, and crafted ones are refused."""

import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
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
from sklearn.neighbors import KNeighborsClassifier
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

import holdfast as hf
from holdfast.errors import FileError, UnsafeFileError
from holdfast.models.formats.skops import reader as own
from holdfast.models.formats.skops.allowed import ALLOWED, PLAIN

RNG = np.random.default_rng(0)
NUMBERS = ["a", "b", "c"]
TABLE = pd.DataFrame(RNG.normal(size=(80, 3)), columns=NUMBERS)
TWO, THREE = (TABLE["a"] + TABLE["b"] ** 2 > 0.5).astype(int), np.digitize(TABLE["a"], [-0.5, 0.5])
VALUE = 3 * TABLE["a"] + TABLE["b"] + 20
TEXTS = TABLE.assign(job=RNG.choice(["x", "y", "z"], 80, p=[0.5, 0.4, 0.1]), size=RNG.choice(["s", "m"], 80))
LEVELS = TEXTS.astype({"job": "category", "size": "category"})

PAIR = [("line", LogisticRegression()), ("tree", tree.DecisionTreeClassifier(max_depth=2))]
PAIR_OF_NUMBERS = [("line", LinearRegression()), ("tree", tree.DecisionTreeRegressor(max_depth=2))]
SMALL: dict[str, Any] = {"hidden_layer_sizes": (4,), "max_iter": 300, "random_state": 0}
QUICK: dict[str, Any] = {"max_iter": 3, "min_samples_leaf": 5}
FEW: dict[str, Any] = {"n_estimators": 2, "max_depth": 3, "random_state": 0}

CLASSIFIERS = [
    LogisticRegression(), linear_model.LogisticRegressionCV(cv=StratifiedKFold(3), use_legacy_attributes=False),
    linear_model.RidgeClassifier(),
    linear_model.RidgeClassifierCV(), linear_model.Perceptron(),
    *[linear_model.SGDClassifier(loss=loss, random_state=0) for loss in
      ("hinge", "squared_hinge", "modified_huber", "log_loss")],
    svm.LinearSVC(), svm.SVC(kernel="linear"), svm.SVC(), svm.NuSVC(kernel="poly"),
    LinearDiscriminantAnalysis(), QuadraticDiscriminantAnalysis(), naive_bayes.GaussianNB(), naive_bayes.BernoulliNB(),
    dummy.DummyClassifier(), MLPClassifier(**SMALL), MLPClassifier(**SMALL, solver="sgd"),
    tree.DecisionTreeClassifier(max_depth=3), tree.ExtraTreeClassifier(max_depth=3),
    ensemble.RandomForestClassifier(**FEW), ensemble.ExtraTreesClassifier(**FEW),
    ensemble.GradientBoostingClassifier(**FEW), ensemble.GradientBoostingClassifier(**FEW, init="zero"),
    ensemble.GradientBoostingClassifier(**FEW, loss="exponential"), ensemble.HistGradientBoostingClassifier(**QUICK),
    ensemble.AdaBoostClassifier(n_estimators=2), ensemble.BaggingClassifier(n_estimators=2),
    ensemble.VotingClassifier(PAIR, voting="soft"), ensemble.StackingClassifier(PAIR, cv=3),
    CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=3),
    CalibratedClassifierCV(svm.LinearSVC(), method="isotonic", cv=3),
    GridSearchCV(LogisticRegression(), {"C": [1, 2]}, cv=3, scoring="roc_auc"),
    RandomizedSearchCV(LogisticRegression(), {"C": loguniform(0.1, 1)}, n_iter=2, cv=3, random_state=0),
    FixedThresholdClassifier(LogisticRegression(), threshold=0.3), FixedThresholdClassifier(svm.LinearSVC()),
    FixedThresholdClassifier(LogisticRegression(), threshold=0.7, pos_label=0, response_method="decision_function"),
    FixedThresholdClassifier(make_pipeline(StandardScaler(), ensemble.RandomForestClassifier(**FEW)), threshold=0.6),
    FixedThresholdClassifier(FrozenEstimator(LogisticRegression().fit(TABLE, TWO)), threshold=np.float64(0.2)),
    TunedThresholdClassifierCV(LogisticRegression(), cv=2), TunedThresholdClassifierCV(svm.LinearSVC(), cv=2),
    TunedThresholdClassifierCV(ensemble.HistGradientBoostingClassifier(**QUICK), scoring="f1", cv=2),
    TunedThresholdClassifierCV(LogisticRegression(), scoring=make_scorer(f1_score, pos_label=0),
                               cv=StratifiedShuffleSplit(2, random_state=0), store_cv_results=True),
    TunedThresholdClassifierCV(LogisticRegression().fit(TABLE, TWO), cv="prefit", refit=False),
    TunedThresholdClassifierCV(GridSearchCV(LogisticRegression(), {"C": [1, 2]}, cv=2), cv=2),
    GridSearchCV(make_pipeline(StandardScaler(), FixedThresholdClassifier(ensemble.RandomForestClassifier(**FEW))),
                 {"fixedthresholdclassifier__threshold": [0.7]}, cv=2),
    GridSearchCV(make_pipeline(StandardScaler(), TunedThresholdClassifierCV(LogisticRegression(), cv=2)),
                 {"tunedthresholdclassifiercv__cv": [2, 3]}, cv=2, scoring="f1"),
    FrozenEstimator(LogisticRegression().fit(TABLE, TWO)),
    FrozenEstimator(make_pipeline(StandardScaler(), svm.SVC(kernel="linear")).fit(TABLE, TWO)),
    make_pipeline(FrozenEstimator(StandardScaler().fit(TABLE)), tree.DecisionTreeClassifier(max_depth=3)),
    make_pipeline(FrozenEstimator(StandardScaler().fit(TABLE)), LogisticRegression()),
    CalibratedClassifierCV(FrozenEstimator(naive_bayes.GaussianNB().fit(TABLE, TWO)), cv=3),
]  # fmt: skip
OF_THREE = [
    svm.SVC(), svm.SVC(kernel="linear"), ensemble.GradientBoostingClassifier(**FEW),
    ensemble.HistGradientBoostingClassifier(**QUICK), linear_model.SGDClassifier(loss="log_loss", random_state=0),
]  # fmt: skip
REGRESSORS = [
    LinearRegression(), linear_model.Ridge(), linear_model.RidgeCV(cv=KFold(3)), linear_model.Lasso(),
    linear_model.LassoCV(cv=3), linear_model.ElasticNet(), linear_model.ElasticNetCV(cv=3), linear_model.Lars(),
    linear_model.LassoLars(), linear_model.BayesianRidge(), linear_model.ARDRegression(),
    linear_model.HuberRegressor(), linear_model.TheilSenRegressor(random_state=0), linear_model.QuantileRegressor(),
    *[linear_model.SGDRegressor(loss=loss, random_state=0) for loss in
      ("squared_error", "huber", "epsilon_insensitive", "squared_epsilon_insensitive")],
    linear_model.PoissonRegressor(), linear_model.GammaRegressor(), linear_model.TweedieRegressor(),
    linear_model.TweedieRegressor(power=1.5),
    svm.LinearSVR(max_iter=10_000), svm.SVR(kernel="linear"), svm.SVR(), svm.NuSVR(), dummy.DummyRegressor(),
    MLPRegressor(**SMALL, early_stopping=True), tree.DecisionTreeRegressor(max_depth=3),
    tree.ExtraTreeRegressor(max_depth=3), ensemble.RandomForestRegressor(**FEW), ensemble.ExtraTreesRegressor(**FEW),
    *[ensemble.GradientBoostingRegressor(**FEW, loss=loss) for loss in
      ("squared_error", "absolute_error", "huber", "quantile")],
    *[ensemble.HistGradientBoostingRegressor(**QUICK, loss=loss, quantile=0.5 if loss == "quantile" else None)
      for loss in ("squared_error", "absolute_error", "gamma", "poisson", "quantile")],
    ensemble.AdaBoostRegressor(n_estimators=2), ensemble.BaggingRegressor(n_estimators=2),
    ensemble.VotingRegressor(PAIR_OF_NUMBERS), ensemble.StackingRegressor(PAIR_OF_NUMBERS, cv=3),
    TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp),
]  # fmt: skip
STEPS = [
    MinMaxScaler(), RobustScaler(), MaxAbsScaler(), Normalizer(), Binarizer(), PowerTransformer(),
    QuantileTransformer(n_quantiles=20), QuantileTransformer(n_quantiles=20, output_distribution="normal"),
    KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), SplineTransformer(), PolynomialFeatures(),
    SimpleImputer(add_indicator=True), PCA(2), VarianceThreshold(), make_union(StandardScaler(), MinMaxScaler()),
    *[FunctionTransformer(f) for f in (np.absolute, np.cbrt, np.exp, np.expm1, np.square)],
    make_pipeline(FunctionTransformer(np.exp), *[FunctionTransformer(f) for f in (np.sqrt, np.log1p)]),
    make_pipeline(*[FunctionTransformer(f) for f in (np.exp, np.log2, np.exp, np.log10)]),
]  # fmt: skip
HOT = {
    "one-hot": OneHotEncoder(), "dense": OneHotEncoder(sparse_output=False), "dropped": OneHotEncoder(drop="first"),
    "rare": OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=20, drop="if_binary"),
    "given": OneHotEncoder(categories=[["z", "y", "x"], ["s", "m"]]),
}  # fmt: skip


def zoo() -> Iterator[tuple[str, Any, pd.DataFrame, Any]]:
    """A name, an estimator, its table and what it learns."""
    for estimators, y, of in ((CLASSIFIERS, TWO, ""), (OF_THREE, THREE, " of three"), (REGRESSORS, VALUE, "")):
        for estimator in estimators:
            yield f"{' '.join(str(estimator).split())}{of}", estimator, TABLE, y
    for step in STEPS:
        yield f"{' '.join(str(step).split())} before", make_pipeline(step, LogisticRegression(max_iter=500)), TABLE, TWO
    for name, encoder in HOT.items():
        columns = make_column_transformer((encoder, ["job", "size"]), (StandardScaler(), NUMBERS))
        yield name, make_pipeline(columns, LogisticRegression()), TEXTS, TWO
    ranks = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    columns = make_column_transformer((ranks, ["job", "size"]), remainder="passthrough")
    yield "remainder", make_pipeline(columns, ensemble.RandomForestClassifier(**FEW)), TEXTS, TWO
    columns = make_column_transformer((OneHotEncoder(), ["job", "size"]), ("passthrough", NUMBERS))
    yield "passthrough", make_pipeline(columns, LogisticRegression()), TEXTS, TWO
    for kind in (np.number, np.floating):
        others, numbers = make_column_selector(dtype_exclude=kind), make_column_selector(dtype_include=kind)
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


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child process does the same as its parent, and takes a second each time; other tests have it."""
    monkeypatch.setattr(own, "try_in_child", lambda kind, data: own.try_out(data))


@pytest.mark.parametrize("name", ZOO)
def test_every_type_on_the_list_loads_and_predicts_the_same(name: str, tmp_path: Path, no_child: None) -> None:
    (estimator, data), (_, table, _) = saved(name), ZOO[name]
    (tmp_path / "m.skops").write_bytes(data)
    model = hf.Model.load(tmp_path / "m.skops", hf.Schema.infer(table))
    assert model.predict(table).tolist() == estimator.predict(table).tolist()
    said = own.describe(data)
    assert said.gradients == model.has_grad, getattr(model, "conversion", "")
    assert said.outputs == {"logits": "scores"}.get(model.outputs, model.outputs)
    assert said.classes == (list(model.classes) or None)


def test_all_types_on_the_list_are_tried() -> None:
    schemas = (own.check_file(own.without_searches(saved(name)[1])) for name in ZOO)
    tried = {name for schema in schemas for name, _ in own._types(schema)}
    listed = set(ALLOWED) - set(PLAIN)
    here = {n for n in listed if hasattr(import_module(n.rpartition(".")[0]), n.rpartition(".")[2])}
    assert here <= tried
    assert len(listed - here) <= 1  # of another version of scikit-learn


# ---- crafted files


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


def with_array(data: bytes, attribute: str, array: Callable[[Any], Any]) -> bytes:
    """Another array for every attribute of this name."""

    def change(schema: dict[str, Any], entries: dict[str, bytes]) -> None:
        files = {e[attribute]["file"] for e in own._entries(schema) if "file" in e.get(attribute, {})}
        assert files
        for name in files:
            out = io.BytesIO()
            np.save(out, array(np.load(io.BytesIO(entries[name]))))
            entries[name] = out.getvalue()

    return crafted(data, change)


def with_value(data: bytes, attribute: str, value: Any, owner: str = "") -> bytes:
    """Another plain value for every attribute of this name, or one that the object did not have."""
    entry = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": json.dumps(value)}

    def change(schema: dict[str, Any], entries: dict[str, bytes]) -> None:
        found = [e for e in own._entries(schema) if attribute in e and "__loader__" in str(e[attribute])]
        if owner:
            objects = [e for e in own._entries(schema) if e.get("__class__") == owner]
            found = [e["content"]["content"] for e in objects]
            for e in objects:
                e["content"]["key_types"]["content"].append(
                    {"__class__": "str", "__module__": "builtins", "__loader__": "TypeNode", "__id__": 10**15}
                )
        assert found
        for i, e in enumerate(found):
            e[attribute] = {**entry, "__id__": 10**15 + 1 + i}

    return crafted(data, change)


def refused(data: bytes, words: str) -> None:
    own.check_file(data)
    with pytest.raises(FileError, match=words):
        own.made(data)


def nodes(change: Callable[[Any], None]) -> Callable[[Any], Any]:
    def one(array: Any) -> Any:
        change(array)
        return array

    return one


def as_categories(array: Any) -> None:
    array["is_categorical"], array["bitset_idx"] = 1, 0


def far(field: str, value: int) -> Callable[[Any], Any]:
    def one(array: Any) -> Any:
        array[field][(array["is_leaf"] == 0) & (array["is_categorical"] != 0)] = value
        return array

    return one


HIST, CATEGORIES = "HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5)", "categories"
BOOSTED = "GradientBoostingClassifier(n_estimators=2, random_state=0)"
FIXED = "FixedThresholdClassifier(estimator=LogisticRegression(), threshold=0.3)"
STACKED = next(name for name in ZOO if name.startswith("StackingClassifier"))


def test_a_column_of_numbers_split_as_a_category_is_refused() -> None:
    data = saved(HIST)[1]
    for sets in ("raw_left_cat_bitsets", "binned_left_cat_bitsets"):
        data = with_array(data, sets, lambda _: np.zeros((1, 8), np.uint32))
    refused(with_array(data, "nodes", nodes(as_categories)), "column of numbers as if it were a category")


@pytest.mark.parametrize(
    ("name", "attribute", "change", "words"),
    [
        (CATEGORIES, "nodes", far("bitset_idx", 10**6), "a set is 1000000"),
        (CATEGORIES, "nodes", far("feature_idx", 10**6), "a column is 1000000"),
        (CATEGORIES, "nodes", lambda a: a[["left", "right", "is_leaf"]], "cannot load|damaged|another kind"),
        (CATEGORIES, "nodes", lambda a: a[None], "another kind|different lengths"),
        (CATEGORIES, "raw_left_cat_bitsets", lambda a: a[:, :4].copy(), "sets of shape"),
        (CATEGORIES, "raw_left_cat_bitsets", lambda a: a[:0].copy(), "different lengths|a set is"),
        (CATEGORIES, "binned_left_cat_bitsets", lambda a: np.concatenate([a, a]), "different lengths"),
        (CATEGORIES, "raw_left_cat_bitsets", lambda a: a.astype(np.float64), "sets of shape"),
        (CATEGORIES, "is_categorical_", lambda a: a[:-1].copy(), "which columns are categories"),
        (CATEGORIES, "is_categorical_", lambda a: ~a.astype(bool), "category|other columns"),
        (HIST, "is_categorical_", lambda a: np.zeros((3, 1), np.uint8), "which columns are categories"),
        ("SVC()", "support_vectors_", lambda a: a[:, :2].copy(), "a support_vectors_ of shape"),
        ("SVC()", "support_vectors_", lambda a: a[:2].copy(), "a support_vectors_ of shape"),
        ("SVC()", "_dual_coef_", lambda a: a[:, :2].copy(), "a _dual_coef_ of shape"),
        ("SVC()", "_intercept_", lambda a: a[:0].copy(), "a _intercept_ of shape"),
        ("SVC()", "_n_support", lambda a: a * 1000, "another number of support vectors"),
        ("SVC()", "_n_support", lambda a: np.array([-5, a.sum() + 5], a.dtype), "another number of support vectors"),
        ("SVC() of three", "_n_support", lambda a: a[:2].copy(), "a _n_support of shape"),
        ("SVR()", "_n_support", lambda a: a[:1].copy(), "a _n_support of shape"),
        ("SVC()", "_probA", lambda a: np.zeros(1), "a _probA and a _probB"),
    ],
)  # fmt: skip
def test_wild_arrays_are_refused(name: str, attribute: str, change: Callable[[Any], Any], words: str) -> None:
    refused(with_array(saved(name)[1], attribute, change), words)


@pytest.mark.parametrize(
    ("name", "attribute", "value", "words"),
    [
        ("SVC()", "kernel", "precomputed", "the kernel 'precomputed'"),
        ("SVC()", "_sparse", True, "a sparse matrix"),
        ("SVC()", "n_features_in_", 2, "a support_vectors_ of shape"),
        ("SVC()", "n_features_in_", None, "no number of columns"),
        ("one-hot", "_n_features_outs", [1, 1], "a level is"),
        ("dense", "_n_features_outs", [3], "lists of different lengths"),
        ("dropped", "_n_features_outs", [1, 1], "a level is"),
        ("rare", "_infrequent_indices", [[70], None], "a rare level is 70"),
        ("rare", "_infrequent_indices", [None, None], "rare levels in one list"),
        ("rare", "_default_to_infrequent_mappings", [[0, 9, 1], None], "a level is"),
        ("rare", "_default_to_infrequent_mappings", [[0, -9, 1], None], "a level is"),
        (CATEGORIES, "_transformer_to_input_indices", {"encoder": [3], "numerical": [0]}, "encoder of other columns"),
        (STACKED, "stack_method_", ["fit"], "methods to call"),
        (FIXED, "response_method", "fit", "a response_method that is not known: 'fit'"),
        (FIXED, "response_method", ["predict_proba", "fit"], "a response_method that is not known"),
        (FIXED, "threshold", "other", "the threshold 'other'"),
        (FIXED, "threshold", [0.5], "the threshold"),
        (FIXED, "pos_label", [1], "the label"),
        (BOOSTED, "n_outputs_", 2, "first guess"),
        (BOOSTED, "init_", "other", "first guess"),
        (f"{BOOSTED} of three", "n_classes_", 2, "first guess"),
        (f"{BOOSTED} of three", "n_trees_per_iteration_", 1, "first guess"),
        (f"{BOOSTED} of three", "_loss", None, "a loss NoneType"),
        ("SplineTransformer() before", "k", 50, "do not fit"),
        ("SplineTransformer() before", "k", -1, "the degree -1"),
        ("categories", "kw_args", {"copy": True}, "more for its function"),
    ],
)  # fmt: skip
def test_wild_values_are_refused(name: str, attribute: str, value: Any, words: str) -> None:
    refused(with_value(saved(name)[1], attribute, value), words)


@pytest.mark.parametrize(
    ("name", "owner", "attribute", "words"),
    [
        ("LogisticRegression()", "LogisticRegression", "predict_proba", "in place of its class's"),
        ("SVC()", "SVC", "_impl", "in place of its class's"),
        (FIXED, "FixedThresholdClassifier", "classes_", "in place of its class's"),
        ("FrozenEstimator(estimator=LogisticRegression())", "FrozenEstimator", "fit", "in place of its class's"),
        (HIST, "HistGradientBoostingClassifier", "_in_fit", "still learning"),
        (HIST, "TreePredictor", "predict", "in place of its class's"),
        (HIST, "_BinMapper", "make_known_categories_bitsets", "in place of its class's"),
    ],
)
def test_attributes_that_take_the_place_of_methods_are_refused(
    name: str, owner: str, attribute: str, words: str
) -> None:
    refused(with_value(saved(name)[1], attribute, "epsilon_svr", owner), words)


def test_levels_out_of_order_are_refused() -> None:
    """Numbers are found by halving the list: in one out of order, beyond its end."""
    table = TABLE.assign(n=RNG.choice([1, 2, 5], 80))
    columns = make_column_transformer((OneHotEncoder(), ["n"]), remainder="passthrough")
    data = skops.io.dumps(make_pipeline(columns, LogisticRegression()).fit(table, TWO))
    own.made(data)

    def mixed(order: list[Any]) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
        def change(schema: dict[str, Any], entries: dict[str, bytes]) -> None:
            (found,) = (e["categories_"] for e in own._entries(schema) if "categories_" in e)
            out = io.BytesIO()
            np.save(out, np.array(order))
            entries[found["content"][0]["file"]] = out.getvalue()

        return change

    for order in ([5, 1, 2], [5.0, np.nan, 1.0], ["9.0", "10.0", "1.0"]):
        refused(crafted(data, mixed(order)), "levels that are not in order")
    own.made(crafted(data, mixed(["z", "y", "x"])))


def test_functions_are_called_with_the_table_only() -> None:
    data = skops.io.dumps(make_pipeline(FunctionTransformer(np.square), LogisticRegression()).fit(TABLE, TWO))
    refused(with_value(data, "kw_args", {"out": [1]}), "more for its function than the table")

    def other(schema: dict[str, Any], entries: dict[str, bytes]) -> None:
        for e in own._entries(schema):
            if e.get("__loader__") == "PartialNode":
                e["content"]["func"] |= {"__module__": "numpy", "__class__": "square"}

    refused(crafted(saved(CATEGORIES)[1], other), "another function")
    own_function = make_pipeline(FunctionTransformer(np.sin), LogisticRegression()).fit(TABLE, TWO)
    with pytest.raises(UnsafeFileError, match=r"numpy\.sin"):
        own.check_file(skops.io.dumps(own_function))


def test_a_type_that_is_not_on_the_list_says_why_and_what_to_do() -> None:
    with pytest.raises(UnsafeFileError, match=r"KNeighborsClassifier.*compiled code follows.*trust=True.*ONNX"):
        own.check_file(skops.io.dumps(KNeighborsClassifier().fit(TABLE, TWO)))
    search = GridSearchCV(LogisticRegression(), {"C": [1, 2]}, cv=3, refit=False).fit(TABLE, TWO)
    with pytest.raises(UnsafeFileError, match="not refitted"):
        own.check_file(own.without_searches(skops.io.dumps(search)))


def test_a_refusal_is_in_plain_words() -> None:
    for estimator, words in (
        (
            KNeighborsClassifier().fit(TABLE, TWO),
            r"\.KNeighborsClassifier as an object, which is not on",
        ),
        (make_pipeline(FunctionTransformer(np.sin), LogisticRegression()).fit(TABLE, TWO), r"numpy\.sin as a function"),
    ):
        with pytest.raises(UnsafeFileError, match=words) as refusal:
            own.check_file(skops.io.dumps(estimator))
        assert "Node" not in str(refusal.value)


def test_files_of_the_first_protocol_are_refused() -> None:
    data = crafted(saved("LogisticRegression()")[1], lambda schema, _: schema.update(protocol=0))
    with pytest.raises(FileError, match="protocol 0"):
        own.check_file(data)


def test_a_search_inside_a_pipeline_is_its_best_model() -> None:
    search = GridSearchCV(LogisticRegression(), {"C": [0.01, 2]}, cv=3)
    pipeline = make_pipeline(StandardScaler(), search).fit(TABLE, TWO)
    data = own.without_searches(skops.io.dumps(pipeline))
    own.check_file(data)
    made = own.made(data)
    assert type(made.steps[-1][1]) is LogisticRegression
    assert (made.predict_proba(TABLE) == pipeline.predict_proba(TABLE)).all()
    assert own.without_searches(saved("SVC()")[1]) == saved("SVC()")[1]


# ---- thresholds


def gain(truth: Any, guess: Any) -> float:
    """A score of the user's own, which the file names."""
    raise AssertionError("nothing of the file may be called")


def tuned(**settings: Any) -> TunedThresholdClassifierCV:
    return TunedThresholdClassifierCV(LogisticRegression(), cv=2, **settings).fit(TABLE, TWO)


def test_a_tuned_threshold_is_read_as_the_one_it_found() -> None:
    """With the label that its scorer takes as positive: named, or the default of a function of scikit-learn."""
    one_or_two = TWO + 1  # where the 1 that f1 takes as positive is the first class
    for scoring, y, label in (("f1", TWO, 1), ("f1", one_or_two, 1), ("balanced_accuracy", one_or_two, None),
                              (make_scorer(f1_score, pos_label=0), TWO, 0)):  # fmt: skip
        model = TunedThresholdClassifierCV(LogisticRegression(), scoring=scoring, cv=2).fit(TABLE, y)
        data = own.without_searches(skops.io.dumps(model))
        assert not [name for name, _ in own._types(own.check_file(data)) if "scorer" in name or "metrics" in name]
        made = own.made(data)
        assert type(made) is FixedThresholdClassifier
        assert (made.threshold, made.pos_label) == (model.best_threshold_, label)
        assert made.predict(TABLE).tolist() == model.predict(TABLE).tolist()


def test_a_tuned_threshold_by_a_function_of_the_file_needs_its_label() -> None:
    def by_own(schema: dict[str, Any], entries: dict[str, bytes]) -> None:
        for e in own._entries(schema):
            if e.get("__loader__") == "FunctionNode":
                e |= {"__module__": gain.__module__, "__class__": "gain"}

    data = crafted(skops.io.dumps(tuned()), by_own)
    with pytest.raises(
        UnsafeFileError, match=r"scorer calls .*gain, .*make_scorer\(\.\.\., pos_label=\.\.\.\).*trust=True"
    ):
        own.without_searches(data)
    named = tuned(scoring=make_scorer(f1_score, pos_label=1))
    made = own.made(own.without_searches(crafted(skops.io.dumps(named), by_own)))
    assert made.predict(TABLE).tolist() == named.predict(TABLE).tolist()


def test_a_damaged_or_unfitted_threshold_is_refused() -> None:
    def without(attribute: str, owner: str) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
        def change(schema: dict[str, Any], entries: dict[str, bytes]) -> None:
            for e in (e for e in own._entries(schema) if e.get("__class__") == owner):
                del e["content"]["content"][attribute]

        return change

    data = skops.io.dumps(tuned())
    with pytest.raises(UnsafeFileError, match="it was not fitted"):
        own.check_file(own.without_searches(crafted(data, without("estimator_", "TunedThresholdClassifierCV"))))
    for attribute, owner in (("_curve_scorer", "TunedThresholdClassifierCV"), ("_kwargs", "_CurveScorer")):
        with pytest.raises(FileError, match="a scorer that is damaged"):
            own.without_searches(crafted(data, without(attribute, owner)))
    frozen = skops.io.dumps(FrozenEstimator(LogisticRegression().fit(TABLE, TWO)))
    refused(crafted(frozen, without("estimator", "FrozenEstimator")), "no estimator in it")


def test_numbers_of_objects_that_only_look_different_are_refused() -> None:
    """1, 1.0 and true are one key of a dict, so skops would take one object for another."""
    data = saved("LogisticRegression()")[1]
    for number in (1.0, True, "1"):
        with pytest.raises(FileError, match="no whole number"):
            own.check_file(crafted(data, lambda schema, _, number=number: schema.update(__id__=number)))
