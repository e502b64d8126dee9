"""How an estimator gets from scores to a class, as its own `predict` decides.

Most give the class with the largest score. Some do not; their scores are corrected here, so that
everywhere else the largest score is the predicted class:

    a threshold t on p_1:    s_1 = log p_1 - log t / (1 - t)
                             an offset of class 1; p stays softmax(s - offset)
    votes of pairs:          s_i = wins of class i, and a fraction for how clear they are
    a label and no score:    s = log of 1 for that class, of 0 for the others
    anything else:           s = log p, and the predicted class is put just ahead
                             its p is what the others leave of 1
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.checks import listed
from holdfast._core.types import Array
from holdfast.errors import ModelError
from holdfast.models.compiled import from_boosters
from holdfast.models.compiled.column_names import unwrapped
from holdfast.models.compiled.preprocessing import type_name
from holdfast.models.scores import Outputs

Offset = Sequence[float]  # of the classes

FARTHEST = 700.0  # the largest offset: its exponential is still a number
THRESHOLDS = ("sklearn.FixedThresholdClassifier", "sklearn.TunedThresholdClassifierCV")


def core(model: Any) -> Any:
    """The estimator that gives the scores: the last of a pipeline, the best of a search."""
    model = unwrapped(model)
    return core(model.steps[-1][1]) if type_name(model) == "sklearn.Pipeline" else model


def name_of(model: Any) -> str:
    """What messages call a model: 'SVC in a Pipeline'."""
    if isinstance(model, from_boosters.Boosted | from_boosters.BoostedNumbers):
        return f"{'XGBoost' if from_boosters.is_xgboost(model.booster) else 'LightGBM'} Booster"
    inner = type(core(model)).__name__
    outer = type(model).__name__
    return outer if inner == outer else f"{inner} in a {outer}"


def is_regressor(model: Any) -> bool:
    """Is it a regressor in scikit-learn's style?"""
    if hasattr(model, "predict_proba") or not hasattr(model, "predict"):
        return False
    if hasattr(model, "__sklearn_tags__"):
        return model.__sklearn_tags__().estimator_type == "regressor"
    return getattr(model, "_estimator_type", None) == "regressor"


@dataclass(frozen=True)
class ScoreSource:
    """The function that gives a model's scores, what they are, and what to add to them."""

    call: Callable[[Any], Any]
    outputs: Outputs
    offset: tuple[float, ...] = ()
    labels_only: bool = False


def score_source(model: Any, classes: Sequence[Any] | None, outputs: Outputs | None) -> ScoreSource:
    """Where the scores of an estimator or a function come from; `outputs` is what the user gave, if
    anything."""
    found = _score_source(model, classes, outputs)
    if outputs and outputs != found.outputs:
        what = "a value" if found.outputs == "value" else found.outputs
        raise ModelError(f"{name_of(model)} returns {what}, not {outputs}; leave outputs out")
    return found


def _score_source(
    model: Any, classes: Sequence[Any] | None, outputs: Outputs | None
) -> ScoreSource:
    # Trees come before `predict_proba`: their sums say more than probabilities rounded to 0 and
    # 1.
    has_scores = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    inner = core(model)
    only_predicts = hasattr(model, "predict") and not has_scores
    if is_regressor(model) or (outputs == "value" and only_predicts):
        return ScoreSource(model.predict, "value")
    if from_boosters.has_margins(inner):
        return _of_trees(model, inner, outputs)
    if hasattr(model, "predict_proba") and not (
        outputs == "logits" and hasattr(model, "decision_function")
    ):
        return ScoreSource(model.predict_proba, "probabilities", offset_of(inner, "probabilities"))
    if hasattr(model, "decision_function"):
        count = len(getattr(model, "classes_", ()))
        pairs = count > 2 and getattr(inner, "decision_function_shape", "") == "ovo"
        call = partial(_wins, model.decision_function, count) if pairs else model.decision_function
        return ScoreSource(call, "logits", offset_of(inner, "logits"))
    if only_predicts and classes is not None:
        names = getattr(model, "classes_", classes)
        return ScoreSource(partial(_certain, model, names), "probabilities", labels_only=True)
    if only_predicts:
        raise ModelError(
            f"{name_of(model)} has `predict` and nothing else, and does not say what it is; pass "
            "classes=[...] if it predicts classes, outputs='value' if it is a regression model"
        )
    if not callable(model):
        raise ModelError(
            f"cannot use a {name_of(model)}: it is not a torch module and not a regressor, has "
            "neither predict_proba, decision_function nor predict, and cannot be called"
        )
    return ScoreSource(model, outputs or "probabilities")


def _of_trees(model: Any, inner: Any, outputs: Outputs | None) -> ScoreSource:
    """The same for a classifier of XGBoost or LightGBM, `inner`, bare or behind a pipeline."""
    if from_boosters.is_own(inner) and outputs is None:
        raise ModelError(
            f"{name_of(model)} has an objective of your own, so only you know what it gives; if "
            "its sum of trees is the score of a class, pass outputs='logits'"
        )
    if outputs == "logits" or from_boosters.is_raw(inner):
        return ScoreSource(
            from_boosters.margins(unwrapped(model), inner), "logits", from_boosters.half(inner)
        )
    alone = from_boosters.is_one_against_all(inner)
    return ScoreSource(
        partial(_shares, model.predict_proba) if alone else model.predict_proba, "probabilities"
    )


def _shares(call: Callable[[Any], Any], rows: Any) -> Array:
    """Probabilities of each class against all others, as shares of their sum."""
    p = np.asarray(call(rows), dtype=np.float64)
    return p / p.sum(1, keepdims=True).clip(np.finfo(np.float64).tiny)


def _wins(call: Callable[[Any], Any], k: int, rows: Any) -> Array:
    """Decisions between pairs (0, 1), (0, 2) .. (k-2, k-1) as scores: wins, plus less than half a
    win for how clear they are."""
    d = np.asarray(call(rows), dtype=np.float64)  # (n, pairs)
    won = np.zeros((len(d), k))
    clear = np.zeros((len(d), k))
    for by, i, j in zip(d.T, *np.triu_indices(k, 1), strict=True):
        won[:, i] += by > 0
        won[:, j] += by <= 0
        clear[:, i] += by
        clear[:, j] -= by
    return won + clear / (3 * (np.abs(clear) + 1))


def _certain(model: Any, classes: Sequence[Any], rows: Any) -> Array:
    """Predicted labels as probabilities of 1 and 0."""
    return np.eye(len(classes))[_predicted(model, classes, rows).numpy()]


def offset_of(model: Any, outputs: Outputs) -> tuple[float, ...]:
    """What to add to the scores of two classes for a threshold that an estimator may put on one of
    them."""
    threshold = threshold_of(model)
    if threshold is None:
        return ()
    inner = behind(model)
    last = core(behind(model))
    exponential = (
        type_name(last) == "sklearn.GradientBoostingClassifier" and last.loss == "exponential"
    )
    if model.response_method != "decision_function" and hasattr(inner, "predict_proba"):
        p = threshold
        threshold = -math.inf if p <= 0 else math.inf if p >= 1 else math.log(p) - math.log1p(-p)
    # then log p / (1 - p) is twice what `decision_function` gives
    elif outputs == "probabilities" and exponential:
        threshold *= 2.0
    shift = float(np.clip(-threshold, -FARTHEST, FARTHEST))
    scorer = getattr(model, "_curve_scorer", None)
    # A tuned threshold is on the class that its scorer is about; by default the second.
    positive: Any = getattr(model, "pos_label", None) if scorer is None else scorer._get_pos_label()
    return (0.0, -shift if positive is not None and positive == model.classes_[0] else shift)


def threshold_of(model: Any) -> float | None:
    """The threshold that an estimator puts on another's score of one class, if it is such an
    estimator."""
    at: Any = getattr(model, "best_threshold_", getattr(model, "threshold", "auto"))
    return None if type_name(model) not in THRESHOLDS or at == "auto" else float(at)


def behind(model: Any) -> Any:
    """The fitted estimator inside one with a threshold."""
    return getattr(model, "estimator_", model.estimator)


# rows -> (n,) places of the predicted labels among the model's classes
DecisionRule = Callable[[Any], Tensor]


def decision_rule(model: Any) -> DecisionRule | None:
    """The model's own `predict`, if it has that and classes."""
    classes = getattr(model, "classes_", None)
    inner = core(model)
    # With the user's own objective, LightGBM's classifiers predict sums of trees, not
    # classes.
    sums = from_boosters.is_own(inner) and type_name(inner).startswith("lightgbm.")
    decides = hasattr(model, "predict") and not is_regressor(model) and not sums
    return partial(_predicted, model, classes) if classes is not None and decides else None


def _predicted(model: Any, classes: Sequence[Any], rows: Any) -> Tensor:
    index = pd.Index(list(classes), dtype=object)
    labels = np.asarray(model.predict(rows), dtype=object)
    if labels.ndim != 1:
        raise ModelError(
            f"{name_of(model)} predicts {labels.shape[1:]} labels for each row, expected one"
        )
    found = index.get_indexer(pd.Index(labels, dtype=object)).astype(np.int64)
    if (found < 0).any():
        what = f"{name_of(model)} predicts {labels[found.argmin()]!r}"
        raise ModelError(f"{what}, which is not among its classes: {listed(index)}")
    return torch.tensor(found)
