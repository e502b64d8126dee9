"""From scores to a class: behind a threshold, among ties, by votes of pairs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import make_scorer, precision_score
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import holdfast as hf
from holdfast.errors import ModelError
from holdfast.models.compiled.decision_rule import name_of
from holdfast.models.scores import decided
from holdfast.render.charts.theme import decision_level
from holdfast.target import Status
from support.classifiers import NAMES, ROWS, TABLES, OwnCutoff


def thresholded(
    threshold: float, inner: Any = None, positive: int = 1
) -> tuple[Any, hf.Model, pd.DataFrame]:
    X, y = TABLES[2]
    inner = LogisticRegression() if inner is None else inner
    estimator = FixedThresholdClassifier(inner, threshold=threshold, pos_label=positive)
    model = hf.Model.of(estimator.fit(X, y), hf.Schema.infer(X))
    return estimator, model, ROWS[estimator.predict(ROWS) == 0].head(20)


@pytest.mark.parametrize(
    ("threshold", "positive", "least"), [(0.9, 1, 0.9), (0.2, 1, 0.2), (0.7, 0, 0.3)]
)
def test_gradients_aim_at_the_threshold_and_probabilities_stay_the_models_own(
    threshold: float, positive: int, least: float
) -> None:
    estimator, model, asked = thresholded(threshold, positive=positive)
    assert model.conversion, model.conversion
    near = hf.MinCost().explain(model, asked, 1)
    assert near.found.all()
    assert near.probability.to_numpy() == pytest.approx(
        estimator.predict_proba(near.to_frame())[:, 1]
    )
    assert near.probability.to_numpy() == pytest.approx(np.full(20, least), abs=1e-3)
    assert decision_level(near.goal) == pytest.approx(least)


def test_a_probability_is_asked_for_beside_the_threshold() -> None:
    estimator, model, asked = thresholded(0.8)
    for probability, least in ((0.95, 0.95), (0.6, 0.8)):
        cfs = hf.MinCost().explain(model, asked, hf.Target(1, probability=probability))
        assert cfs.found.all()
        assert estimator.predict_proba(cfs.to_frame())[:, 1] == pytest.approx(
            np.full(20, least), abs=1e-3
        )
    back = hf.MinCost().explain(
        model, ROWS[estimator.predict(ROWS) == 1].head(5), hf.Target(0, probability=0.7)
    )
    assert estimator.predict_proba(back.to_frame())[:, 0] == pytest.approx(
        np.full(5, 0.7), abs=1e-3
    )


@pytest.mark.parametrize("count", [2, 3])
def test_a_probability_below_one_half_is_what_is_asked_for(count: int) -> None:
    """And not replaced by one that makes the class the predicted one."""
    X, y = TABLES[count]
    estimator = LogisticRegression().fit(X, y)
    model = hf.Model.of(estimator, hf.Schema.infer(X))
    asked = ROWS[estimator.predict_proba(ROWS)[:, 1] < 0.25]
    cfs = hf.MinCost().explain(model, asked, hf.Target(1, probability=0.3))
    assert cfs.found.all()
    assert estimator.predict_proba(cfs.to_frame())[:, 1] == pytest.approx(
        np.full(len(asked), 0.3), abs=5e-3
    )
    assert (estimator.predict(cfs.to_frame()) != 1).any()


@pytest.mark.parametrize(
    "inner",
    [RandomForestClassifier(9, max_depth=5, random_state=0), xgboost.XGBClassifier(n_estimators=9)],
)
@pytest.mark.parametrize("threshold", [0.25, 0.8])
def test_trees_behind_a_threshold_are_compiled(inner: Any, threshold: float) -> None:
    estimator, model, asked = thresholded(threshold, inner)
    assert model.conversion, model.conversion
    cfs = hf.TreeSearch().explain(model, asked, 1)
    assert cfs.found.mean() > 0.8
    assert (estimator.predict(cfs.to_frame()[cfs.found]) == 1).all()
    assert cfs.probability[cfs.found].to_numpy() == pytest.approx(
        estimator.predict_proba(cfs.to_frame()[cfs.found])[:, 1], abs=1e-6
    )


def test_thresholds_at_the_ends() -> None:
    for threshold, said in ((0.0, 1), (1.5, 0)):
        X, y = TABLES[2]
        estimator = FixedThresholdClassifier(LogisticRegression(), threshold=threshold).fit(X, y)
        model = hf.Model.of(estimator, hf.Schema.infer(X))
        assert (model.predict(ROWS) == said).all()
        assert (
            not hf.GrowingSpheres(samples=20, rings=3)
            .explain(model, ROWS.head(3), 1 - said)
            .found.any()
        )


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
        (
            lambda t: FixedThresholdClassifier(
                machine(), threshold=t, response_method="decision_function"
            ),
            (0.6, 0.601),
        ),
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
def test_behind_a_threshold_rows_ask_for_what_they_want(
    inner: str, threshold: float, tmp_path: Path
) -> None:
    """Each is answered as it is alone, and has both the class and the probability."""
    estimator, model, _ = thresholded(threshold, MIXTURES[inner]())
    said = estimator.predict(ROWS)
    asked = ROWS.head(24)
    each = np.arange(24) % 2
    methods: list[hf.Explainer] = [hf.TreeSearch(), hf.GrowingSpheres(samples=100)]
    methods += (
        [hf.MinCost(), hf.Descent(lam=0.01, steps=500), hf.ROAR(delta=0.01).fit(model, ROWS)]
        if model.has_grad
        else []
    )
    for method in methods:
        for wish, wanted in ((None, 1 - said[:24]), (each.tolist(), each)):
            cfs = method.explain(model, asked, hf.Target(wish, probability=0.7))
            own = estimator.predict_proba(cfs.after)[np.arange(24), wanted]
            assert cfs.found.sum() > 4, (type(method).__name__, cfs.status["reason"].tolist())
            assert (own[cfs.found] > 0.7).all()
            assert (estimator.predict(cfs.after) == wanted)[cfs.found].all()
            assert cfs.probability.to_numpy() == pytest.approx(own, abs=1e-6)
            for i in (0, 1, 2):
                alone = method.explain(
                    model, asked.iloc[[i]], hf.Target(int(wanted[i]), probability=0.7)
                )
                assert alone.status_codes[0] == cfs.status_codes[i]
                assert alone.after.to_numpy() == pytest.approx(
                    cfs.after.iloc[[i]].to_numpy(), abs=1e-3
                )
    cfs.save(tmp_path / "answers.parquet")
    again = hf.Counterfactuals.load(tmp_path / "answers.parquet")
    assert again.goal.met(again.scores).tolist() == cfs.goal.met(cfs.scores).tolist()
    assert decision_level(again.goal) == decision_level(cfs.goal)


def test_walks_towards_a_class_behind_a_threshold() -> None:
    X, y = TABLES[2]
    for threshold, least in ((0.2, [0.8, 0.7]), (0.8, [0.7, 0.8])):
        estimator, model, _ = thresholded(threshold)
        method = hf.ECCCo(steps=2000, lr=0.05, tau=0.5).fit(model, X, y)
        asked = ROWS.head(16)
        wanted = np.arange(16) % 2
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
def test_where_predict_is_asked_probabilities_stay_the_models_own(
    k: int, probability: float
) -> None:
    X, y = TABLES[k]
    estimators: list[Any] = [machine()] + [OwnCutoff(0.3), OwnCutoff(0.7)] * (k == 2)
    for estimator in estimators:
        model = hf.Model.of(estimator.fit(X, y), hf.Schema.infer(X))
        assert model.defers_to_predict, model.conversion
        said = estimator.predict(ROWS)
        p = estimator.predict_proba(ROWS)
        for wish in (1, None):
            cfs = hf.GrowingSpheres(samples=200).explain(
                model, ROWS, hf.Target(wish, probability=probability)
            )
            after, now = estimator.predict_proba(cfs.after), estimator.predict(cfs.after)
            own = after[:, 1] if wish else 1 - after[np.arange(len(ROWS)), said]
            assert cfs.probability.to_numpy() == pytest.approx(own, abs=1e-9)
            got = cfs.status_codes != Status.NOT_FOUND
            right = (now == 1 if wish else now != said) | (probability < 0.5)
            assert ((own > probability) & right)[got].all()
            assert cfs.found.any()
            already = (p[:, 1] if wish else 1 - p[np.arange(len(ROWS)), said]) > probability
            already &= (said == 1 if wish else np.zeros(len(ROWS), dtype=bool)) | (
                probability < 0.5
            )
            assert ((cfs.status_codes == Status.ALREADY_MET) == already).all()
        plain = hf.GrowingSpheres(samples=200).explain(model, ROWS, 1)
        assert plain.probability.to_numpy() == pytest.approx(
            estimator.predict_proba(plain.after)[:, 1], abs=1e-9
        )


@pytest.mark.parametrize("positive", ["bad", "good"])
def test_a_tuned_threshold_is_on_the_class_of_its_scorer(positive: str) -> None:
    X, y = TABLES[2]
    score = make_scorer(precision_score, pos_label=positive, zero_division=0.0)
    estimator = TunedThresholdClassifierCV(
        LogisticRegression(), scoring=score, thresholds=[0.3, 0.301]
    )
    estimator.fit(X, np.where(y == 1, "good", "bad"))
    model = hf.Model.of(estimator, hf.Schema.infer(X))
    assert model.conversion, model.conversion
    cfs = hf.MinCost().explain(model, ROWS[estimator.predict(ROWS) == "bad"].head(10), "good")
    assert cfs.probability.to_numpy() == pytest.approx(
        np.full(10, 0.7 if positive == "bad" else 0.3), abs=3e-3
    )


@pytest.mark.parametrize("outputs", [None, "logits"])
def test_a_threshold_on_the_sum_of_exponential_boosting(outputs: Any) -> None:
    X, y = TABLES[2]
    inner = GradientBoostingClassifier(loss="exponential", n_estimators=8, random_state=0)
    estimator = FixedThresholdClassifier(
        inner, threshold=0.3, response_method="decision_function"
    ).fit(X, y)
    model = hf.Model.of(estimator, hf.Schema.infer(X), outputs=outputs)
    assert model.conversion or outputs, model.conversion
    assert not model.defers_to_predict
    assert (model.predict(ROWS) == estimator.predict(ROWS)).all()


def test_answers_behind_a_threshold_survive_a_file(tmp_path: Path) -> None:
    _, model, asked = thresholded(0.9)
    cfs = hf.MinCost().explain(model, asked, 1)
    cfs.save(tmp_path / "answers.parquet")
    again = hf.Counterfactuals.load(tmp_path / "answers.parquet")
    assert again.probability.to_numpy() == pytest.approx(cfs.probability.to_numpy())


def test_ties_are_decided_by_the_estimator() -> None:
    X = pd.DataFrame({"a": np.repeat([0.0, 1.0, 2.0], 10)})
    y = np.r_[np.zeros(10), np.tile([0, 1], 5), np.ones(10)].astype(int)
    estimator = GradientBoostingClassifier(n_estimators=3, init="zero").fit(X, y)
    model = hf.Model.of(estimator, hf.Schema.infer(X))
    rows = pd.DataFrame({"a": [0.0, 1.0, 2.0]})
    assert estimator.decision_function(rows)[1] == 0
    assert (model.predict(rows) == estimator.predict(rows)).all()
    for wanted in (0, 1):
        met = hf.TreeSearch().explain(model, rows, wanted).status_codes == Status.ALREADY_MET
        assert (met == (estimator.predict(rows) == wanted)).all()


def test_pairs_are_never_taken_for_classes() -> None:
    X, y = make_classification(200, 4, n_informative=4, n_redundant=0, n_classes=4, random_state=1)
    frame = pd.DataFrame(X, columns=NAMES)
    estimator = SVC(decision_function_shape="ovo").fit(frame, y)  # six columns
    model = hf.Model.of(estimator, hf.Schema.infer(frame))
    assert len(model.classes) == 4
    assert (model.predict(ROWS) == estimator.predict(ROWS)).all()
    same = SVC().fit(frame, y).decision_function(frame)
    assert torch.softmax(model.score_frame(frame), 1).numpy() == pytest.approx(
        torch.softmax(
            decided(torch.tensor(same), torch.tensor(estimator.predict(frame))), 1
        ).numpy()
    )


class OnlyLabels:
    def predict(self, X: pd.DataFrame) -> Any:
        return np.where(X["a"] > 0, "yes", "no")


def test_labels_without_classes_need_their_names() -> None:
    X, _ = TABLES[2]
    schema = hf.Schema.infer(X)
    with pytest.raises(
        ModelError, match=r"OnlyLabels has `predict` and nothing else.*pass classes="
    ):
        hf.Model.of(OnlyLabels(), schema)
    model = hf.Model.of(OnlyLabels(), schema, classes=["no", "yes"])
    assert (model.predict(X) == OnlyLabels().predict(X)).all()
    with pytest.raises(
        ModelError, match="predicts 'no', which is not among its classes: 'maybe', 'yes'"
    ):
        hf.Model.of(OnlyLabels(), schema, classes=["maybe", "yes"])


def test_messages_name_the_estimator_in_a_pipeline() -> None:
    X, y = TABLES[2]
    pipeline = make_pipeline(StandardScaler(), RidgeClassifier()).fit(X, y)
    assert name_of(pipeline) == "RidgeClassifier in a Pipeline"
    with pytest.raises(
        ModelError, match="RidgeClassifier in a Pipeline returns logits, not probabilities"
    ):
        hf.Model.of(pipeline, hf.Schema.infer(X), outputs="probabilities")
    with pytest.raises(
        ModelError, match=r"the model \(RidgeClassifier in a Pipeline\) needs 2 column"
    ):
        hf.Model.of(pipeline, hf.Schema.infer(X[["a", "b"]]))
