"""Classifiers of all kinds: the class is the one that the estimator itself predicts, and so is what counts as found."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
import xgboost
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    RidgeClassifierCV,
    SGDClassifier,
)
from sklearn.metrics import make_scorer, precision_score
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from holdfast.errors import ModelError, SchemaError, TargetError
from holdfast.models.compiled.decision_rule import name_of
from holdfast.models.scores import decided, probabilities
from holdfast.nn.architecture import mlp
from holdfast.render.charts.theme import decision_level
from holdfast.target import Status
from support.law_table import MODELS, people

NAMES = list("abcd")
ROWS = pd.DataFrame(np.random.default_rng(0).normal(0, 1.5, (300, 4)), columns=NAMES)


def table(classes: int) -> tuple[pd.DataFrame, Any]:
    X, y = make_classification(
        200, 4, n_informative=3, n_redundant=0, n_classes=classes, n_clusters_per_class=1, class_sep=0.7, random_state=1
    )
    return pd.DataFrame(X, columns=NAMES), y


TABLES = {k: table(k) for k in (2, 3)}


class OwnCutoff(ClassifierMixin, BaseEstimator):
    """A user's class, with a cutoff in `predict` that nobody else knows of."""

    def __init__(self, at: float = 0.56) -> None:
        self.at = at

    def fit(self, X: pd.DataFrame, y: Any) -> "OwnCutoff":
        self.inner_ = LogisticRegression().fit(X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict_proba(self, X: pd.DataFrame) -> Any:
        return self.inner_.predict_proba(X)

    def predict(self, X: pd.DataFrame) -> Any:
        return self.classes_[(self.predict_proba(X)[:, 1] > self.at).astype(int)]


def voters() -> list[tuple[str, Any]]:
    return [("line", LogisticRegression()), ("bayes", GaussianNB()), ("tree", DecisionTreeClassifier(max_depth=3))]


def few(maker: Any, **settings: Any) -> Callable[[], Any]:
    return lambda: maker(n_estimators=8, **settings)


ZOO: dict[str, Callable[[], Any]] = {
    "LogisticRegression": LogisticRegression,
    "LogisticRegressionCV": lambda: LogisticRegressionCV(
        Cs=3, l1_ratios=(0,), scoring="accuracy", use_legacy_attributes=False
    ),
    "LinearSVC": LinearSVC,
    "SVC": SVC,
    "SVC linear": lambda: SVC(kernel="linear"),
    "SVC pairs": lambda: SVC(decision_function_shape="ovo"),
    "SVC ties broken": lambda: SVC(break_ties=True),
    "NuSVC": lambda: NuSVC(nu=0.1),
    "GaussianNB": GaussianNB,
    "BernoulliNB": BernoulliNB,
    "KNeighbors": lambda: KNeighborsClassifier(4),
    "KNeighbors by distance": lambda: KNeighborsClassifier(6, weights="distance"),
    "NearestCentroid": NearestCentroid,
    "DecisionTree": lambda: DecisionTreeClassifier(max_depth=4),
    "RandomForest": lambda: RandomForestClassifier(10, max_depth=4, random_state=0),
    "RandomForest with ties": lambda: RandomForestClassifier(4, random_state=0),
    "ExtraTrees": lambda: ExtraTreesClassifier(8, max_depth=5, random_state=0),
    "GradientBoosting": few(GradientBoostingClassifier),
    "GradientBoosting from zero": few(GradientBoostingClassifier, init="zero"),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(max_iter=8),
    "AdaBoost": few(AdaBoostClassifier),
    "Bagging": few(BaggingClassifier, random_state=0),
    "Bagging of machines": lambda: BaggingClassifier(LinearSVC(), n_estimators=4, random_state=0),
    "SGD hinge": lambda: SGDClassifier(random_state=0),
    "SGD log_loss": lambda: SGDClassifier(loss="log_loss", random_state=0),
    "SGD modified_huber": lambda: SGDClassifier(loss="modified_huber", random_state=0),
    "SGD passive-aggressive": lambda: SGDClassifier(
        loss="hinge", penalty=None, learning_rate="pa1", eta0=1.0, random_state=0
    ),
    "Perceptron": Perceptron,
    "Ridge": RidgeClassifier,
    "RidgeCV": RidgeClassifierCV,
    "LDA": LinearDiscriminantAnalysis,
    "QDA": QuadraticDiscriminantAnalysis,
    "Calibrated": lambda: CalibratedClassifierCV(LinearSVC(), cv=2),
    "Calibrated steps": lambda: CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=2),
    "Voting hard": lambda: VotingClassifier(voters()),
    "Voting soft": lambda: VotingClassifier(voters(), voting="soft"),
    "Voting in a pipeline": lambda: make_pipeline(StandardScaler(), VotingClassifier(voters())),
    "Stacking": lambda: StackingClassifier(voters(), cv=2),
    "Stacking under Ridge": lambda: StackingClassifier(voters(), RidgeClassifier(), cv=2),
    "OneVsRest": lambda: OneVsRestClassifier(LogisticRegression()),
    "OneVsRest of machines": lambda: OneVsRestClassifier(LinearSVC()),
    "OneVsOne": lambda: OneVsOneClassifier(LinearSVC()),
    "OutputCode": lambda: OutputCodeClassifier(LogisticRegression(), random_state=0),
    "GridSearchCV": lambda: GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=2),
    "GridSearchCV of pairs": lambda: GridSearchCV(
        make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")), {"svc__C": [1, 2]}, cv=2
    ),
    "MLP": lambda: MLPClassifier((8,), solver="lbfgs", max_iter=1000, random_state=0),
    "LabelSpreading": LabelSpreading,
    "Frozen": lambda: FrozenEstimator(LogisticRegression().fit(*TABLES[2])),
    "XGB": few(xgboost.XGBClassifier, n_jobs=1),
    "XGBRF": few(xgboost.XGBRFClassifier, n_jobs=1),
    "LGBM": few(lightgbm.LGBMClassifier, n_jobs=1, verbose=-1),
}
OF_TWO: dict[str, Callable[[], Any]] = {
    "GaussianProcess": GaussianProcessClassifier,
    "cutoff of a user": OwnCutoff,
    "threshold": lambda: FixedThresholdClassifier(LogisticRegression(), threshold=0.8),
    "threshold on the first class": lambda: FixedThresholdClassifier(RidgeClassifier(), threshold=0.3, pos_label=0),
    "threshold on a lead": lambda: FixedThresholdClassifier(LinearSVC(), threshold=0.7),
    "threshold on a lead beside probabilities": lambda: FixedThresholdClassifier(
        LogisticRegression(), threshold=1.2, response_method="decision_function"
    ),
    "threshold on boosted trees": lambda: FixedThresholdClassifier(
        GradientBoostingClassifier(n_estimators=8), threshold=0.3, pos_label=0
    ),
    "threshold on a forest": lambda: FixedThresholdClassifier(RandomForestClassifier(9, max_depth=5), threshold=0.7),
    "threshold on a deep forest": lambda: FixedThresholdClassifier(RandomForestClassifier(150), threshold=0.4),
    "threshold on a network": lambda: FixedThresholdClassifier(
        MLPClassifier((8,), solver="lbfgs", max_iter=100, random_state=0), threshold=0.7
    ),
    "threshold on neighbours": lambda: FixedThresholdClassifier(KNeighborsClassifier(7), threshold=0.7),
    "threshold in a pipeline": lambda: make_pipeline(
        StandardScaler(), FixedThresholdClassifier(LogisticRegression(), threshold=0.8)
    ),
    "pipeline behind a threshold": lambda: FixedThresholdClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()), threshold=0.2
    ),
    "tuned threshold": lambda: TunedThresholdClassifierCV(LogisticRegression(), scoring="balanced_accuracy"),
    "tuned threshold on the first class": lambda: TunedThresholdClassifierCV(
        LogisticRegression(), scoring=make_scorer(precision_score, pos_label=0, zero_division=0.0), thresholds=5
    ),
    "XGB logitraw": few(xgboost.XGBClassifier, objective="binary:logitraw", n_jobs=1),
    "XGB hinge": few(xgboost.XGBClassifier, objective="binary:hinge", n_jobs=1),
}
OF_THREE: dict[str, Callable[[], Any]] = {
    "LGBM one against all": few(lightgbm.LGBMClassifier, objective="multiclassova", n_jobs=1, verbose=-1),
}
CASES = [(name, k) for k, more in ((2, OF_TWO), (3, OF_THREE)) for name in ZOO | more]


def agrees(estimator: Any, k: int) -> hf.Model:
    """The laws of this file, on rows near the data and far from it."""
    X, _ = TABLES[k]
    model = hf.Model.of(estimator, hf.Schema.infer(X, fixed=["d"]))
    said = np.asarray(estimator.predict(ROWS))
    assert (model.predict(ROWS) == said).all()
    assert (model.predict(X) == estimator.predict(X)).all()
    asked, wanted = ROWS[said != 1].head(10), 1
    methods: list[hf.Explainer] = [hf.GrowingSpheres(samples=100, rings=20)]
    methods += [hf.MinEpsilonPGD(radius=8.0, radii=6, steps=20)] if model.has_grad else []
    for method in methods:
        cfs = method.explain(model, asked, wanted)
        assert cfs.found.mean() > 0.5, (type(method).__name__, cfs.status["reason"].tolist())
        assert ((estimator.predict(cfs.to_frame()) == wanted) == cfs.found).all()
        assert (method.explain(model, ROWS[said == 1].head(5), wanted).status_codes == Status.ALREADY_MET).all()
    away = methods[0].explain(model, asked)
    assert ((estimator.predict(away.to_frame()) != estimator.predict(asked)) == away.found).all()
    return model


@pytest.mark.parametrize(("name", "k"), CASES)
def test_the_class_is_what_the_estimator_predicts(name: str, k: int) -> None:
    agrees((ZOO | OF_TWO | OF_THREE)[name]().fit(*TABLES[k]), k)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.filterwarnings("ignore:The `probability` parameter was deprecated:FutureWarning")
def test_a_machine_whose_probabilities_contradict_its_predictions(k: int, kernel: str) -> None:
    model = agrees(SVC(kernel=kernel, probability=True, random_state=0).fit(*TABLES[k]), k)
    assert "searches ask both" in str(model.conversion)
    sure = hf.GrowingSpheres().explain(model, ROWS[(model.predict(ROWS) != 1).to_numpy()].head(5), hf.Target(1, 0.8))
    assert sure.found.any()
    assert (sure.confidence[sure.found] > 0.8).all()
    assert (model.wrapped.predict_proba(sure.to_frame()[sure.found])[:, 1] > 0.8).all()
    assert (model.wrapped.predict(sure.to_frame()[sure.found]) == 1).all()


# ---- thresholds


def thresholded(threshold: float, inner: Any = None, positive: int = 1) -> tuple[Any, hf.Model, pd.DataFrame]:
    X, y = TABLES[2]
    inner = LogisticRegression() if inner is None else inner
    estimator = FixedThresholdClassifier(inner, threshold=threshold, pos_label=positive)
    model = hf.Model.of(estimator.fit(X, y), hf.Schema.infer(X))
    return estimator, model, ROWS[estimator.predict(ROWS) == 0].head(20)


@pytest.mark.parametrize(("threshold", "positive", "least"), [(0.9, 1, 0.9), (0.2, 1, 0.2), (0.7, 0, 0.3)])
def test_gradients_aim_at_the_threshold_and_probabilities_stay_the_models_own(
    threshold: float, positive: int, least: float
) -> None:
    estimator, model, asked = thresholded(threshold, positive=positive)
    assert model.conversion, model.conversion
    near = hf.MinCost().explain(model, asked, 1)
    assert near.found.all()
    assert near.confidence.to_numpy() == pytest.approx(estimator.predict_proba(near.to_frame())[:, 1])
    assert near.confidence.to_numpy() == pytest.approx(np.full(20, least), abs=1e-3)
    assert decision_level(near.goal) == pytest.approx(least)


def test_a_probability_is_asked_for_beside_the_threshold() -> None:
    estimator, model, asked = thresholded(0.8)
    for probability, least in ((0.95, 0.95), (0.6, 0.8)):
        cfs = hf.MinCost().explain(model, asked, hf.Target(1, probability=probability))
        assert cfs.found.all()
        assert estimator.predict_proba(cfs.to_frame())[:, 1] == pytest.approx(np.full(20, least), abs=1e-3)
    back = hf.MinCost().explain(model, ROWS[estimator.predict(ROWS) == 1].head(5), hf.Target(0, probability=0.7))
    assert estimator.predict_proba(back.to_frame())[:, 0] == pytest.approx(np.full(5, 0.7), abs=1e-3)


@pytest.mark.parametrize("count", [2, 3])
def test_a_probability_below_one_half_is_what_is_asked_for(count: int) -> None:
    """And not replaced by one that makes the class the predicted one."""
    X, y = TABLES[count]
    estimator = LogisticRegression().fit(X, y)
    model = hf.Model.of(estimator, hf.Schema.infer(X))
    asked = ROWS[estimator.predict_proba(ROWS)[:, 1] < 0.25]
    cfs = hf.MinCost().explain(model, asked, hf.Target(1, probability=0.3))
    assert cfs.found.all()
    assert estimator.predict_proba(cfs.to_frame())[:, 1] == pytest.approx(np.full(len(asked), 0.3), abs=5e-3)
    assert (estimator.predict(cfs.to_frame()) != 1).any()


@pytest.mark.parametrize(
    "inner", [RandomForestClassifier(9, max_depth=5, random_state=0), xgboost.XGBClassifier(n_estimators=9)]
)
@pytest.mark.parametrize("threshold", [0.25, 0.8])
def test_trees_behind_a_threshold_are_compiled(inner: Any, threshold: float) -> None:
    estimator, model, asked = thresholded(threshold, inner)
    assert model.conversion, model.conversion
    cfs = hf.TreeSearch().explain(model, asked, 1)
    assert cfs.found.mean() > 0.8
    assert (estimator.predict(cfs.to_frame()[cfs.found]) == 1).all()
    assert cfs.confidence[cfs.found].to_numpy() == pytest.approx(
        estimator.predict_proba(cfs.to_frame()[cfs.found])[:, 1], abs=1e-6
    )


def test_thresholds_at_the_ends() -> None:
    for threshold, said in ((0.0, 1), (1.5, 0)):
        X, y = TABLES[2]
        estimator = FixedThresholdClassifier(LogisticRegression(), threshold=threshold).fit(X, y)
        model = hf.Model.of(estimator, hf.Schema.infer(X))
        assert (model.predict(ROWS) == said).all()
        assert not hf.GrowingSpheres(samples=20, rings=3).explain(model, ROWS.head(3), 1 - said).found.any()


def test_models_that_differ_in_the_threshold_have_other_fingerprints() -> None:
    assert thresholded(0.8)[1].fingerprint() != thresholded(0.7)[1].fingerprint()


@pytest.mark.filterwarnings("ignore:The `probability` parameter was deprecated:FutureWarning")
def test_fingerprints_tell_apart_what_is_predicted_alone() -> None:
    X, y = TABLES[2]
    schema = hf.Schema.infer(X)

    def wrapped(estimator: Any) -> hf.Model:
        model = hf.Model.of(estimator.fit(X, y), schema)
        assert model.defers_to_predict, model.conversion
        return model

    for make, values in (
        (OwnCutoff, (0.3, 0.56)),
        (lambda t: FixedThresholdClassifier(machine(), threshold=t, response_method="decision_function"), (0.6, 0.601)),
    ):
        first, again, other = (wrapped(make(t)).fingerprint() for t in (values[0], *values))
        assert first == again != other


MIXTURES: dict[str, Callable[[], Any]] = {
    "line": LogisticRegression,
    "network": lambda: MLPClassifier((8,), solver="lbfgs", max_iter=100, random_state=0),
    "forest": lambda: RandomForestClassifier(9, max_depth=5, random_state=0),
    "boosted": lambda: xgboost.XGBClassifier(n_estimators=9, n_jobs=1),
}


@pytest.mark.parametrize("inner", MIXTURES)
@pytest.mark.parametrize("threshold", [0.2, 0.8])
def test_behind_a_threshold_rows_ask_for_what_they_want(inner: str, threshold: float, tmp_path: Path) -> None:
    """Each is answered as it is alone, and has both the class and the probability."""
    estimator, model, _ = thresholded(threshold, MIXTURES[inner]())
    said, asked = estimator.predict(ROWS), ROWS.head(24)
    each = np.arange(24) % 2
    methods: list[hf.Explainer] = [hf.TreeSearch(), hf.GrowingSpheres(samples=100)]
    methods += (
        [hf.MinCost(), hf.Descent(lam=0.01, steps=500), hf.ROAR(delta=0.01).fit(model, ROWS)] if model.has_grad else []
    )
    for method in methods:
        for wish, wanted in ((None, 1 - said[:24]), (each.tolist(), each)):
            cfs = method.explain(model, asked, hf.Target(wish, probability=0.7))
            own = estimator.predict_proba(cfs.after)[np.arange(24), wanted]
            assert cfs.found.sum() > 4, (type(method).__name__, cfs.status["reason"].tolist())
            assert (own[cfs.found] > 0.7).all()
            assert (estimator.predict(cfs.after) == wanted)[cfs.found].all()
            assert cfs.confidence.to_numpy() == pytest.approx(own, abs=1e-6)
            for i in (0, 1, 2):
                alone = method.explain(model, asked.iloc[[i]], hf.Target(int(wanted[i]), probability=0.7))
                assert alone.status_codes[0] == cfs.status_codes[i]
                assert alone.after.to_numpy() == pytest.approx(cfs.after.iloc[[i]].to_numpy(), abs=1e-3)
    cfs.save(tmp_path / "answers.parquet")
    again = hf.Counterfactuals.load(tmp_path / "answers.parquet")
    assert again.goal.met(again.scores).tolist() == cfs.goal.met(cfs.scores).tolist()
    assert decision_level(again.goal) == decision_level(cfs.goal)


def test_walks_towards_a_class_behind_a_threshold() -> None:
    X, y = TABLES[2]
    for threshold, least in ((0.2, [0.8, 0.7]), (0.8, [0.7, 0.8])):
        estimator, model, _ = thresholded(threshold)
        method = hf.ECCCo(steps=2000, lr=0.05, tau=0.5).fit(model, X, y)
        asked, wanted = ROWS.head(16), np.arange(16) % 2
        cfs = method.explain(model, asked, hf.Target(wanted.tolist(), probability=0.7))
        assert cfs.found.sum() > 4
        own = estimator.predict_proba(cfs.after)[np.arange(16), wanted]
        assert (own > np.array(least)[wanted])[cfs.found].all()
        assert (own < np.array(least)[wanted] + 0.1)[cfs.found].any()


def test_nothing_is_proved_behind_a_threshold_that_can_be_reached() -> None:
    estimator, model, _ = thresholded(0.7, RandomForestClassifier(5, max_depth=3, random_state=0))
    said = estimator.predict(ROWS)
    cfs = hf.TreeSearch().explain(model, ROWS, hf.Target(probability=0.8))
    proved = cfs.status["reason"].str.startswith("proved").to_numpy()
    assert (cfs.found | proved).all()
    wanted = 1 - said
    can = (estimator.predict_proba(ROWS) > 0.8) & (estimator.predict(ROWS)[:, None] == [0, 1])
    assert not (proved & can.any(0)[wanted]).any()


def machine() -> Any:
    return SVC(probability=True, random_state=0)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("probability", [0.3, 0.5, 0.7])
@pytest.mark.filterwarnings("ignore:The `probability` parameter was deprecated:FutureWarning")
def test_where_predict_is_asked_probabilities_stay_the_models_own(k: int, probability: float) -> None:
    X, y = TABLES[k]
    estimators: list[Any] = [machine()] + [OwnCutoff(0.3), OwnCutoff(0.7)] * (k == 2)
    for estimator in estimators:
        model = hf.Model.of(estimator.fit(X, y), hf.Schema.infer(X))
        assert model.defers_to_predict, model.conversion
        said, p = estimator.predict(ROWS), estimator.predict_proba(ROWS)
        for wish in (1, None):
            cfs = hf.GrowingSpheres(samples=200).explain(model, ROWS, hf.Target(wish, probability=probability))
            after, now = estimator.predict_proba(cfs.after), estimator.predict(cfs.after)
            own = after[:, 1] if wish else 1 - after[np.arange(len(ROWS)), said]
            assert cfs.confidence.to_numpy() == pytest.approx(own, abs=1e-9)
            got = cfs.status_codes != Status.NOT_FOUND
            right = (now == 1 if wish else now != said) | (probability < 0.5)
            assert ((own > probability) & right)[got].all()
            assert cfs.found.any()
            already = (p[:, 1] if wish else 1 - p[np.arange(len(ROWS)), said]) > probability
            already &= (said == 1 if wish else np.zeros(len(ROWS), dtype=bool)) | (probability < 0.5)
            assert ((cfs.status_codes == Status.ALREADY_MET) == already).all()
        plain = hf.GrowingSpheres(samples=200).explain(model, ROWS, 1)
        assert plain.confidence.to_numpy() == pytest.approx(estimator.predict_proba(plain.after)[:, 1], abs=1e-9)


@pytest.mark.parametrize("positive", ["bad", "good"])
def test_a_tuned_threshold_is_on_the_class_of_its_scorer(positive: str) -> None:
    X, y = TABLES[2]
    score = make_scorer(precision_score, pos_label=positive, zero_division=0.0)
    estimator = TunedThresholdClassifierCV(LogisticRegression(), scoring=score, thresholds=[0.3, 0.301])
    estimator.fit(X, np.where(y == 1, "good", "bad"))
    model = hf.Model.of(estimator, hf.Schema.infer(X))
    assert model.conversion, model.conversion
    cfs = hf.MinCost().explain(model, ROWS[estimator.predict(ROWS) == "bad"].head(10), "good")
    assert cfs.confidence.to_numpy() == pytest.approx(np.full(10, 0.7 if positive == "bad" else 0.3), abs=3e-3)


@pytest.mark.parametrize("outputs", [None, "logits"])
def test_a_threshold_on_the_sum_of_exponential_boosting(outputs: Any) -> None:
    X, y = TABLES[2]
    inner = GradientBoostingClassifier(loss="exponential", n_estimators=8, random_state=0)
    estimator = FixedThresholdClassifier(inner, threshold=0.3, response_method="decision_function").fit(X, y)
    model = hf.Model.of(estimator, hf.Schema.infer(X), outputs=outputs)
    assert model.conversion or outputs, model.conversion
    assert not model.defers_to_predict
    assert (model.predict(ROWS) == estimator.predict(ROWS)).all()


def test_answers_behind_a_threshold_survive_a_file(tmp_path: Path) -> None:
    _, model, asked = thresholded(0.9)
    cfs = hf.MinCost().explain(model, asked, 1)
    cfs.save(tmp_path / "answers.parquet")
    again = hf.Counterfactuals.load(tmp_path / "answers.parquet")
    assert again.confidence.to_numpy() == pytest.approx(cfs.confidence.to_numpy())


def test_ties_are_decided_by_the_estimator() -> None:
    X = pd.DataFrame({"a": np.repeat([0.0, 1.0, 2.0], 10)})
    y = np.r_[np.zeros(10), np.tile([0, 1], 5), np.ones(10)].astype(int)
    estimator = GradientBoostingClassifier(n_estimators=3, init="zero").fit(X, y)
    model, rows = hf.Model.of(estimator, hf.Schema.infer(X)), pd.DataFrame({"a": [0.0, 1.0, 2.0]})
    assert estimator.decision_function(rows)[1] == 0
    assert (model.predict(rows) == estimator.predict(rows)).all()
    for wanted in (0, 1):
        met = hf.TreeSearch().explain(model, rows, wanted).status_codes == Status.ALREADY_MET
        assert (met == (estimator.predict(rows) == wanted)).all()


def test_the_predicted_class_is_put_just_ahead() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 0.0], [5.0, 1.0, 0.0]], dtype=torch.float64)
    right = decided(scores, torch.tensor([0, 1, 0]))
    assert right.argmax(1).tolist() == [0, 1, 0]
    assert torch.equal(right[2], scores[2])
    assert (right - scores).abs().sum(1)[1] < 1e-3
    p = probabilities(torch.tensor([[0.0, 3.0]]), (0.0, 2.0))
    assert p[0, 1] == pytest.approx(1 / (1 + np.exp(-1)))


# ---- classes


def test_names_in_another_order_are_refused(tmp_path: Path) -> None:
    X, y = TABLES[2]
    schema, named = hf.Schema.infer(X), np.where(y == 1, "good", "bad")
    estimator = LogisticRegression().fit(X, named)
    for wrapped in (estimator, make_pipeline(StandardScaler(), LogisticRegression()).fit(X, named)):
        with pytest.raises(ModelError, match=r"\['good', 'bad'\].*\['bad', 'good'\]; leave classes out"):
            hf.Model.of(wrapped, schema, classes=["good", "bad"])
    assert hf.Model.of(estimator, schema, classes=["bad", "good"]).classes == ("bad", "good")
    renamed = hf.Model.of(estimator, schema, classes=["denied", "approved"])
    assert (renamed.predict(X) == np.where(estimator.predict(X) == "good", "approved", "denied")).all()
    with pytest.raises(ModelError, match="another order"):
        hf.Model.of(RandomForestClassifier(2).fit(X, y == 1), schema, classes=[True, False])
    path = tmp_path / "model.skops"
    path.write_bytes(skops.io.dumps(estimator))
    with pytest.raises(ModelError, match="another order"):
        hf.Model.load(path, schema, classes=["good", "bad"])
    net = mlp(schema.width, (3,), 2)
    hf.Model.of(net, schema, classes=["bad", "good"]).save(tmp_path / "net.safetensors")
    with pytest.raises(ModelError, match="another order"):
        hf.Model.load(tmp_path / "net.safetensors", classes=["good", "bad"])
    assert hf.Model.load(tmp_path / "net.safetensors", classes=["no", "yes"]).classes == ("no", "yes")


def test_pairs_are_never_taken_for_classes() -> None:
    X, y = make_classification(200, 4, n_informative=4, n_redundant=0, n_classes=4, random_state=1)
    frame = pd.DataFrame(X, columns=NAMES)
    estimator = SVC(decision_function_shape="ovo").fit(frame, y)  # six columns
    model = hf.Model.of(estimator, hf.Schema.infer(frame))
    assert len(model.classes) == 4
    assert (model.predict(ROWS) == estimator.predict(ROWS)).all()
    same = SVC().fit(frame, y).decision_function(frame)
    assert torch.softmax(model.score_frame(frame), 1).numpy() == pytest.approx(
        torch.softmax(decided(torch.tensor(same), torch.tensor(estimator.predict(frame))), 1).numpy()
    )


def test_one_class_says_so() -> None:
    X, _ = TABLES[2]
    tree = DecisionTreeClassifier().fit(X, np.zeros(len(X), dtype=int))
    with pytest.raises(ModelError, match="knows one class only, 0; train it"):
        hf.Model.of(tree, hf.Schema.infer(X))


# ---- labels and nothing else


def test_labels_alone_have_no_probability_to_ask_for() -> None:
    X, y = TABLES[2]
    model = hf.Model.of(VotingClassifier(voters()).fit(X, y), hf.Schema.infer(X))
    asked = ROWS[(model.predict(ROWS) == 0).to_numpy()].head(5)
    for wish in (hf.Target(1, probability=0.7), hf.Target(1, margin=0.1)):
        with pytest.raises(TargetError, match="gives no scores"):
            hf.GrowingSpheres().explain(model, asked, wish)
    cfs = hf.NearestNeighbor().fit(model, X).explain(model, asked, 1)
    assert cfs.found.all()
    assert (cfs.confidence == 1).all()


class OnlyLabels:
    def predict(self, X: pd.DataFrame) -> Any:
        return np.where(X["a"] > 0, "yes", "no")


def test_labels_without_classes_need_their_names() -> None:
    X, _ = TABLES[2]
    schema = hf.Schema.infer(X)
    with pytest.raises(ModelError, match=r"OnlyLabels has `predict` and nothing else.*pass classes="):
        hf.Model.of(OnlyLabels(), schema)
    model = hf.Model.of(OnlyLabels(), schema, classes=["no", "yes"])
    assert (model.predict(X) == OnlyLabels().predict(X)).all()
    with pytest.raises(ModelError, match="predicts 'no', which is not among its classes: 'maybe', 'yes'"):
        hf.Model.of(OnlyLabels(), schema, classes=["maybe", "yes"])


def test_messages_name_the_estimator_in_a_pipeline() -> None:
    X, y = TABLES[2]
    pipeline = make_pipeline(StandardScaler(), RidgeClassifier()).fit(X, y)
    assert name_of(pipeline) == "RidgeClassifier in a Pipeline"
    with pytest.raises(ModelError, match="RidgeClassifier in a Pipeline returns logits, not probabilities"):
        hf.Model.of(pipeline, hf.Schema.infer(X), outputs="probabilities")
    with pytest.raises(ModelError, match=r"the model \(RidgeClassifier in a Pipeline\) needs 2 column"):
        hf.Model.of(pipeline, hf.Schema.infer(X[["a", "b"]]))


# ---- boosted trees with objectives of their own


def logistic(margin: Any, data: Any) -> tuple[Any, Any]:
    p = 1 / (1 + np.exp(-margin))
    return p - data.get_label(), p * (1 - p)


def test_boosters_with_an_objective_of_the_users() -> None:
    X, y = TABLES[2]
    schema, names = hf.Schema.infer(X), ["denied", "approved"]
    of_xgboost = xgboost.train({"nthread": 1}, xgboost.DMatrix(X, y), 8, obj=logistic)
    settings = {"objective": logistic, "verbose": -1, "num_threads": 1}
    of_lightgbm = lightgbm.train(settings, lightgbm.Dataset(X, y), 8)
    with pytest.raises(ModelError, match=r"regression model has no classes.*outputs='logits'"):
        hf.Model.of(of_xgboost, schema, classes=names)
    with pytest.raises(ModelError, match=r"'none' is neither a classifier.*outputs='logits'"):
        hf.Model.of(of_lightgbm, schema, classes=names)
    margins = [of_xgboost.predict(xgboost.DMatrix(ROWS), output_margin=True), of_lightgbm.predict(ROWS)]
    for booster, margin in zip((of_xgboost, of_lightgbm), margins, strict=True):
        model = hf.Model.of(booster, schema, classes=names, outputs="logits")
        assert (model.predict(ROWS) == np.where(margin > 0, "approved", "denied")).all()
        cfs = hf.TreeSearch().explain(model, ROWS[margin < 0].head(5), "approved")
        assert cfs.found.all()
    assert hf.Model.of(of_lightgbm, schema, outputs="value").is_regression
    classifier = xgboost.train({"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(X, y), 2)
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
    with pytest.raises(ModelError, match=r"Classifier has an objective of your own.*pass outputs='logits'"):
        hf.Model.of(estimator, schema)
    model = hf.Model.of(estimator, schema, outputs="logits")
    if maker is xgboost.XGBClassifier:
        assert (model.predict(ROWS) == estimator.predict(ROWS)).all()
    else:  # which predicts sums of trees
        assert (model.predict(ROWS) == (estimator.predict(ROWS, raw_score=True) > 0)).all()
    assert hf.GrowingSpheres().explain(model, ROWS[(model.predict(ROWS) == 0).to_numpy()].head(5), 1).found.all()


def test_a_booster_of_one_class_against_all() -> None:
    X, y = TABLES[3]
    settings = {"objective": "multiclassova", "num_class": 3, "verbose": -1, "num_threads": 1, "sigmoid": 2.0}
    booster = lightgbm.train(settings, lightgbm.Dataset(X, y), 8)
    p = np.asarray(booster.predict(ROWS))
    model = hf.Model.of(booster, hf.Schema.infer(X))
    assert torch.softmax(model.score_frame(ROWS), 1).numpy() == pytest.approx(p / p.sum(1, keepdims=True))


# ---- what else is said


def test_every_model_says_what_became_of_it() -> None:
    X, y = TABLES[2]
    schema = hf.Schema.infer(X)
    net = hf.Model.of(mlp(schema.width, (3,), 2), schema)
    assert net.conversion
    assert str(net.conversion) == "none needed: searches use the model itself"
    assert not hf.Model.of(LogisticRegression().fit(X, y), schema, convert=False).conversion


def test_where_everything_is_fixed_nothing_may_change() -> None:
    X, y = TABLES[2]
    for estimator in (LogisticRegression(), RandomForestClassifier(3, random_state=0)):
        model = hf.Model.of(estimator.fit(X, y), hf.Schema.infer(X, fixed=NAMES))
        asked = X[(model.predict(X) == 0).to_numpy()].head(3)
        methods = [hf.GrowingSpheres(), hf.TreeSearch(), *([hf.MinCost()] if model.has_grad else [])]
        for method in methods:
            reasons = method.explain(model, asked, 1).status["reason"]
            assert (reasons == "nothing can be reached: every column is fixed, so nothing may change").all()


def test_a_row_is_not_a_table() -> None:
    X, y = TABLES[2]
    model = hf.Model.of(LogisticRegression().fit(X, y), hf.Schema.infer(X))
    for use in (lambda: hf.MinCost().explain(model, X.iloc[0], 1), lambda: model.predict(X.iloc[0])):
        with pytest.raises(SchemaError, match=r"got Series; one row of a table is X\.loc\[\[i\]\]"):
            use()


def test_lists_in_a_column() -> None:
    X, _ = TABLES[2]
    with pytest.raises(SchemaError, match="column 'z' holds list values"):
        hf.Schema.infer(X.assign(z=[[1]] * len(X)))


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("callable", "counternet")])
def test_a_model_goes_to_another_process_and_back(name: str) -> None:
    model = MODELS[name]()
    again = pickle.loads(pickle.dumps(model))
    rows = people(model, 5)
    for one in (model, again):
        with one.eval_mode():
            assert torch.equal(one.score_frame(rows), model.score_frame(rows))
    assert again.fingerprint() == model.fingerprint()
