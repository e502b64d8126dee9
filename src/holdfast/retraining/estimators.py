"""Scikit-learn-style classifiers as recipes have them: cloned, seeded and fitted; written down and read by name."""

import inspect
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pandas as pd
import torch

from holdfast.errors import ModelError, SettingError, did_you_mean, require, untyped
from holdfast.models.base import Inputs, Model
from holdfast.retraining.outcomes import plain
from holdfast.schema.schema import Schema


class Estimator(Protocol):
    """A scikit-learn-style classifier."""

    def fit(self, *args: Any, **kwargs: Any) -> Any: ...

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


@dataclass(frozen=True)
class EstimatorFit:
    """One estimator to clone and fit: all a worker process needs."""

    estimator: Any
    inputs: Inputs
    X: pd.DataFrame
    y: "pd.Series[Any]"
    schema: Schema
    classes: Sequence[Any]
    seed: int

    def __call__(self) -> Model:
        """The clone, seeded wherever it has a `random_state`, and fitted."""
        clone, names = untyped("sklearn.base").clone(self.estimator), list(self.classes)
        states = [name for name in clone.get_params() if name.split("__")[-1] == "random_state"]
        clone.set_params(**dict.fromkeys(states, self.seed % (1 << 32)))
        rows: Any = self.X if self.inputs == "frame" else self.schema.encode(self.X, torch.float64).numpy()
        kind = type(clone).__name__
        try:
            clone.fit(rows, self.y.to_numpy())
        except (TypeError, ValueError) as error:
            raise ModelError(f"the estimator ({kind}) could not be fitted: {error}") from error
        if not hasattr(clone, "classes_"):
            raise ModelError(f"the estimator ({kind}) learns no classes; a recipe needs a classifier")
        learnt = [plain(c) for c in clone.classes_]
        require(set(learnt) == set(names), f"the estimator learnt the classes {learnt}, expected {names}")
        if learnt == names:
            return Model.of(clone, self.schema, inputs=self.inputs)
        if not hasattr(clone, "predict_proba"):
            raise SettingError(f"the estimator has the classes in the order {learnt}, expected {names}")
        return Model.of(InOrder(clone, tuple(names)), self.schema, inputs=self.inputs)


def fit_all(fits: Sequence[EstimatorFit], workers: int) -> tuple[Model, ...]:
    """The fitted estimators, in a pool of processes if there is more than one worker."""
    if workers > 1:
        with ProcessPoolExecutor(min(workers, len(fits))) as processes:
            return tuple(processes.map(EstimatorFit.__call__, fits))
    return tuple(fit() for fit in fits)


@dataclass(frozen=True)
class InOrder:
    """An estimator whose classes are in another order than it learnt them."""

    estimator: Any
    classes_: tuple[Any, ...]

    def predict_proba(self, rows: Any) -> Any:
        learnt = [plain(c) for c in self.estimator.classes_]
        return self.estimator.predict_proba(rows)[:, [learnt.index(c) for c in self.classes_]]


# ---- files


def named_estimator(name: str, settings: dict[str, Any]) -> Any:
    """One of scikit-learn's own classifiers; a file cannot name anything else."""
    known = classifiers()
    require(name in known, f"unknown estimator {name!r} in the recipe; {did_you_mean(name, known)}")
    return known[name](**settings)


def classifiers() -> dict[str, Any]:
    """scikit-learn's own classifiers by name."""
    return dict(cast(list[tuple[str, Any]], untyped("sklearn.utils").all_estimators(type_filter="classifier")))


def written_settings(estimator: Any) -> dict[str, Any]:
    """The settings of an estimator that a file can hold; an error rather than a file that makes another model."""
    kind = cast(Any, type(estimator))
    if classifiers().get(kind.__name__) is not kind:
        raise SettingError(f"cannot write down a {kind.__name__}; only scikit-learn's own classifiers can be")
    defaults = {name: p.default for name, p in inspect.signature(kind).parameters.items()}
    out = dict[str, Any]()
    for name, value in estimator.get_params(deep=False).items():
        if value is defaults[name] or (isinstance(value, str | float | int) and value == defaults[name]):
            continue
        many = isinstance(value, list | tuple)
        values = [plain(v) for v in (cast(list[Any], value) if many else [value])]
        if not all(isinstance(v, bool | int | float | str) for v in values):
            raise SettingError(f"cannot write down {name}={value!r} of a {kind.__name__}")
        out[name] = values if many else values[0]
    return out
