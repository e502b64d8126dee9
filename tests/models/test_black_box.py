"""Classifiers of all kinds: the class is the one that the estimator itself predicts, and so is what
counts as found."""

from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import pytest
import torch
import xgboost
from sklearn.calibration import CalibratedClassifierCV
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
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
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
from holdfast.target import Status
from support.classifiers import NAMES, ROWS, TABLES, OwnCutoff
from support.torch_models import TABLE
from support.versions import supported


def voters() -> list[tuple[str, Any]]:
    return [
        ("line", LogisticRegression()),
        ("bayes", GaussianNB()),
        ("tree", DecisionTreeClassifier(max_depth=3)),
    ]


def few(maker: Any, **settings: Any) -> Callable[[], Any]:
    return lambda: maker(n_estimators=8, **settings)


ZOO: dict[str, Callable[[], Any]] = {
    "LogisticRegression": LogisticRegression,
    "LogisticRegressionCV": lambda: LogisticRegressionCV(
        Cs=3,
        scoring="accuracy",
        **supported(LogisticRegressionCV, l1_ratios=(0,), use_legacy_attributes=False),
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
        make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")),
        {"svc__C": [1, 2]},
        cv=2,
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
    "threshold on the first class": lambda: FixedThresholdClassifier(
        RidgeClassifier(), threshold=0.3, pos_label=0
    ),
    "threshold on a lead": lambda: FixedThresholdClassifier(LinearSVC(), threshold=0.7),
    "threshold on a lead beside probabilities": lambda: FixedThresholdClassifier(
        LogisticRegression(), threshold=1.2, response_method="decision_function"
    ),
    "threshold on boosted trees": lambda: FixedThresholdClassifier(
        GradientBoostingClassifier(n_estimators=8), threshold=0.3, pos_label=0
    ),
    "threshold on a forest": lambda: FixedThresholdClassifier(
        RandomForestClassifier(9, max_depth=5), threshold=0.7
    ),
    "threshold on a deep forest": lambda: FixedThresholdClassifier(
        RandomForestClassifier(150), threshold=0.4
    ),
    "threshold on a network": lambda: FixedThresholdClassifier(
        MLPClassifier((8,), solver="lbfgs", max_iter=100, random_state=0), threshold=0.7
    ),
    "threshold on neighbours": lambda: FixedThresholdClassifier(
        KNeighborsClassifier(7), threshold=0.7
    ),
    "threshold in a pipeline": lambda: make_pipeline(
        StandardScaler(), FixedThresholdClassifier(LogisticRegression(), threshold=0.8)
    ),
    "pipeline behind a threshold": lambda: FixedThresholdClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()), threshold=0.2
    ),
    "tuned threshold": lambda: TunedThresholdClassifierCV(
        LogisticRegression(), scoring="balanced_accuracy"
    ),
    "tuned threshold on the first class": lambda: TunedThresholdClassifierCV(
        LogisticRegression(),
        scoring=make_scorer(precision_score, pos_label=0, zero_division=0.0),
        thresholds=5,
    ),
    "XGB logitraw": few(xgboost.XGBClassifier, objective="binary:logitraw", n_jobs=1),
    "XGB hinge": few(xgboost.XGBClassifier, objective="binary:hinge", n_jobs=1),
}
OF_THREE: dict[str, Callable[[], Any]] = {
    "LGBM one against all": few(
        lightgbm.LGBMClassifier, objective="multiclassova", n_jobs=1, verbose=-1
    ),
}
CASES = [(name, k) for k, more in ((2, OF_TWO), (3, OF_THREE)) for name in ZOO | more]


def agrees(estimator: Any, k: int) -> hf.Model:
    """The laws of this file, on rows near the data and far from it."""
    X, _ = TABLES[k]
    model = hf.Model.of(estimator, hf.Schema.infer(X, fixed=["d"]))
    said = np.asarray(estimator.predict(ROWS))
    assert (model.predict(ROWS) == said).all()
    assert (model.predict(X) == estimator.predict(X)).all()
    asked = ROWS[said != 1].head(10)
    wanted = 1
    methods: list[hf.Explainer] = [hf.GrowingSpheres(samples=100, rings=20)]
    methods += [hf.MinEpsilonPGD(radius=8.0, radii=6, steps=20)] if model.has_grad else []
    for method in methods:
        cfs = method.explain(model, asked, wanted)
        assert cfs.found.mean() > 0.5, (type(method).__name__, cfs.status["reason"].tolist())
        assert ((estimator.predict(cfs.to_frame()) == wanted) == cfs.found).all()
        assert (
            method.explain(model, ROWS[said == 1].head(5), wanted).status_codes
            == Status.ALREADY_MET
        ).all()
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
    sure = hf.GrowingSpheres().explain(
        model, ROWS[(model.predict(ROWS) != 1).to_numpy()].head(5), hf.Target(1, 0.8)
    )
    assert sure.found.any()
    assert (sure.probability[sure.found] > 0.8).all()
    assert (model.wrapped.predict_proba(sure.to_frame()[sure.found])[:, 1] > 0.8).all()
    assert (model.wrapped.predict(sure.to_frame()[sure.found]) == 1).all()


def test_labels_alone_have_no_probability_to_ask_for() -> None:
    X, y = TABLES[2]
    model = hf.Model.of(VotingClassifier(voters()).fit(X, y), hf.Schema.infer(X))
    asked = ROWS[(model.predict(ROWS) == 0).to_numpy()].head(5)
    for wish in (hf.Target(1, probability=0.7), hf.Target(1, margin=0.1)):
        with pytest.raises(TargetError, match="gives no scores"):
            hf.GrowingSpheres().explain(model, asked, wish)
    cfs = hf.NearestNeighbor().fit(model, X).explain(model, asked, 1)
    assert cfs.found.all()
    assert (cfs.probability == 1).all()


def test_where_everything_is_fixed_nothing_may_change() -> None:
    X, y = TABLES[2]
    for estimator in (LogisticRegression(), RandomForestClassifier(3, random_state=0)):
        model = hf.Model.of(estimator.fit(X, y), hf.Schema.infer(X, fixed=NAMES))
        asked = X[(model.predict(X) == 0).to_numpy()].head(3)
        methods = [
            hf.GrowingSpheres(),
            hf.TreeSearch(),
            *([hf.MinCost()] if model.has_grad else []),
        ]
        for method in methods:
            reasons = method.explain(model, asked, 1).status["reason"]
            assert (
                reasons == "nothing can be reached: every column is fixed, so nothing may change"
            ).all()


def test_one_row_is_a_table_of_one() -> None:
    X, y = TABLES[2]
    model = hf.Model.of(LogisticRegression().fit(X, y), hf.Schema.infer(X))
    for row in (X.iloc[0], X.iloc[0].to_dict()):
        cfs = hf.MinCost().explain(model, row, 1)
        assert (
            cfs.to_frame().to_numpy().tolist()
            == hf.MinCost().explain(model, X.head(1), 1).to_frame().to_numpy().tolist()
        )
        assert model.predict(row).tolist() == model.predict(X.head(1)).tolist()


def test_lists_in_a_column() -> None:
    X, _ = TABLES[2]
    with pytest.raises(SchemaError, match="column 'z' holds list values"):
        hf.Schema.infer(X.assign(z=[[1]] * len(X)))


def test_estimators_and_functions() -> None:
    numbers = TABLE[["income", "age"]].astype(float)
    schema = hf.Schema.infer(numbers)
    y = np.where(numbers["income"] > 3000, "good", "bad")
    fitted = LogisticRegression(max_iter=1000).fit(numbers, y)
    model = hf.Model.of(fitted, schema)
    assert model.classes == ("bad", "good")
    assert (model.predict(numbers) == fitted.predict(numbers)).all()
    assert torch.allclose(
        torch.softmax(model.score_frame(numbers), 1), torch.tensor(fitted.predict_proba(numbers))
    )
    ridge = hf.Model.of(RidgeClassifier().fit(numbers, y), schema)  # has decision_function only
    assert (ridge.predict(numbers) == RidgeClassifier().fit(numbers, y).predict(numbers)).all()
    encoded = hf.Model.of(lambda z: 1 / (1 + np.exp(-z[:, 0])), schema, inputs="encoded")
    assert torch.allclose(
        encoded.score_frame(numbers)[:, 1], schema.encode(numbers, torch.float64)[:, 0], atol=1e-8
    )
    with pytest.raises(ModelError, match="expected probabilities"):
        hf.Model.of(lambda frame: frame["income"].to_numpy(), schema)
    assert (
        hf.Model.of(
            lambda frame: frame["income"].to_numpy() - 3000, schema, outputs="logits"
        ).outputs
        == "logits"
    )
    with pytest.raises(ModelError, match="16 non-finite scores"):
        hf.Model.of(lambda frame: np.full(len(frame), np.nan), schema)
    with pytest.raises(ModelError, match="shape"):
        hf.Model.of(lambda frame: np.zeros((3, 2)), schema)
