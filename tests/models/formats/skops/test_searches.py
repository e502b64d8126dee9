"""Searches in skops files: the models that they found."""

from collections.abc import Callable
from typing import Any

import pytest
import skops.io
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from holdfast.errors import FileError, UnsafeFileError
from holdfast.models.formats.skops import reader as own
from support.skops_files import TABLE, TWO, crafted, refused, saved


def test_a_search_inside_a_pipeline_is_its_best_model() -> None:
    search = GridSearchCV(LogisticRegression(), {"C": [0.01, 2]}, cv=3)
    pipeline = make_pipeline(StandardScaler(), search).fit(TABLE, TWO)
    data = own.without_searches(skops.io.dumps(pipeline))
    own.check_file(data)
    made = own.made(data)
    assert type(made.steps[-1][1]) is LogisticRegression
    assert (made.predict_proba(TABLE) == pipeline.predict_proba(TABLE)).all()
    assert own.without_searches(saved("SVC()")[1]) == saved("SVC()")[1]


def gain(truth: Any, guess: Any) -> float:
    """A score of the user's own, which the file names."""
    raise AssertionError("nothing of the file may be called")


def tuned(**settings: Any) -> TunedThresholdClassifierCV:
    return TunedThresholdClassifierCV(LogisticRegression(), cv=2, **settings).fit(TABLE, TWO)


def test_a_tuned_threshold_is_read_as_the_one_it_found() -> None:
    """With the label that its scorer takes as positive: named, or the default of a function of
    scikit-learn."""
    one_or_two = TWO + 1  # where the 1 that f1 takes as positive is the first class
    for scoring, y, label in (
        ("f1", TWO, 1),
        ("f1", one_or_two, 1),
        ("balanced_accuracy", one_or_two, None),
        (make_scorer(f1_score, pos_label=0), TWO, 0),
    ):
        model = TunedThresholdClassifierCV(LogisticRegression(), scoring=scoring, cv=2).fit(
            TABLE, y
        )
        data = own.without_searches(skops.io.dumps(model))
        assert not [
            name
            for name, _ in own._types(own.check_file(data))
            if "scorer" in name or "metrics" in name
        ]
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
        UnsafeFileError,
        match=r"scorer calls .*gain, .*make_scorer\(\.\.\., pos_label=\.\.\.\).*trust=True",
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
        own.check_file(
            own.without_searches(crafted(data, without("estimator_", "TunedThresholdClassifierCV")))
        )
    for attribute, owner in (
        ("_curve_scorer", "TunedThresholdClassifierCV"),
        ("_kwargs", "_CurveScorer"),
    ):
        with pytest.raises(FileError, match="a scorer that is damaged"):
            own.without_searches(crafted(data, without(attribute, owner)))
    frozen = skops.io.dumps(FrozenEstimator(LogisticRegression().fit(TABLE, TWO)))
    refused(crafted(frozen, without("estimator", "FrozenEstimator")), "no estimator in it")
