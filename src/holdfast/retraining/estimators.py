"""Scikit-learn-style estimators as recipes use them: cloned, seeded and fitted; written down and
read by name."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from holdfast._core.checks import did_you_mean, optional, untyped
from holdfast._core.progress import Progress
from holdfast.errors import ModelError, SettingError
from holdfast.models.base import Inputs
from holdfast.models.compiled.decision_rule import core, name_of
from holdfast.models.compiled.preprocessing import type_name
from holdfast.retraining.fitted import FittedEstimator
from holdfast.retraining.outcomes import class_numbers, plain
from holdfast.schema.schema import Schema


class Estimator(Protocol):
    """A scikit-learn-style classifier or regressor."""

    def fit(self, *args: Any, **kwargs: Any) -> Any: ...

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


@dataclass(frozen=True)
class EstimatorFit:
    """One estimator to clone and fit.

    Args:
        X, y, rows: the table and its outcomes, and the positions of the rows to learn from, in this
            order.
        classes: their names in the order of the scores; none for a regressor.
        settings: in place of the estimator's own.
        params: what else `fit` is given, such as weights; values given per row of X are taken for
            the rows to learn from.
    """

    estimator: Any
    inputs: Inputs
    X: pd.DataFrame
    y: "pd.Series[Any]"
    schema: Schema
    classes: Sequence[Any]
    seed: int
    rows: npt.NDArray[np.int64] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self) -> FittedEstimator:
        """The clone, seeded wherever it has a `random_state`, and fitted."""
        table = self.X
        outcome = self.y
        if self.rows is not None:
            table = table.iloc[self.rows]
            outcome = outcome.iloc[self.rows]
        given: Any = (
            table if self.inputs == "frame" else self.schema.encode(table, torch.float64).numpy()
        )
        if not self.classes:
            return self._of(self._fitted(given, outcome.to_numpy()))
        names = list(self.classes)
        numbers = list(range(len(self.classes)))
        by_name = (outcome.to_numpy(), names)
        by_number = (class_numbers(outcome, names).numpy(), numbers)
        # Some libraries take only the numbers 0 .. k - 1, not names, and these may number the names
        # in any order.
        unsorted = all(isinstance(name, str) for name in names) and names != sorted(names)
        numbered = unsorted or type_name(core(self.estimator)).startswith("xgboost.")
        ways = (
            [by_name]
            if set(names) == set(numbers)
            else [by_number, by_name]
            if numbered
            else [by_name, by_number]
        )
        failed = list[ModelError]()
        for y, learns in ways:
            try:
                return self._named(self._fitted(given, y), learns)
            except ModelError as error:
                failed.append(error)
        raise failed[0]

    def _fitted(self, rows: Any, y: Any) -> Any:
        clone = untyped("sklearn.base").clone(self.estimator)
        states = [name for name in clone.get_params() if name.split("__")[-1] == "random_state"]
        clone.set_params(**dict.fromkeys(states, self.seed % (1 << 32)), **self.settings)
        own_rows = np.arange(len(self.X)) if self.rows is None else self.rows
        params = {
            name: of_rows(value, own_rows, len(self.X)) for name, value in self.params.items()
        }
        try:
            if isinstance(clone, OwnFit):
                return clone.made(rows, y, self.seed, params)
            clone.fit(rows, y, **params)
            # only here does a threshold on a class known by another name fail
            clone.predict(rows[:1])
            return clone
        except (TypeError, ValueError) as error:
            hint = (
                "; if it takes encoded rows, make it with hf.Recipe(estimator=..., "
                "inputs='encoded')"
            )
            what = f"the estimator ({name_of(clone)}) could not be fitted: {error}"
            raise ModelError(what + (hint if self.inputs == "frame" else "")) from error

    def _named(self, clone: Any, learns: list[Any]) -> FittedEstimator:
        """A fitted classifier that was to learn these classes, under the recipe's names."""
        names = list(self.classes)
        if not hasattr(clone, "classes_"):
            raise ModelError(
                f"the estimator ({name_of(clone)}) learns no classes; it is neither a classifier "
                "nor a regressor"
            )
        learnt = [plain(c) for c in clone.classes_]
        called = [names[learns.index(c)] if c in learns else c for c in learnt]
        if set(learnt) != set(learns):
            raise SettingError(f"the estimator learnt the classes {called}, expected {names}")
        if learnt == learns:
            return self._of(clone)
        if not hasattr(clone, "predict_proba"):
            raise SettingError(
                f"the estimator has the classes in the order {called}, expected {names}"
            )
        return self._of(InOrder(clone, tuple(names)))

    def _of(self, fitted: Any) -> FittedEstimator:
        return FittedEstimator(fitted, self.schema, tuple(self.classes), self.inputs)


class OwnFit:
    """A function of the user's that fits a model, `fit(X, y, seed)`, in place of an
    estimator."""

    def __init__(self, fit: Callable[..., Any]) -> None:
        self.own = fit

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        return self.own(*args, **kwargs)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"fit": self.own} if not deep else {}

    def set_params(self, **params: Any) -> "OwnFit":
        return self

    def __sklearn_clone__(self) -> "OwnFit":
        return self

    def made(self, rows: Any, y: Any, seed: int, params: Mapping[str, Any]) -> Any:
        """What the function makes of these rows."""
        model = self.own(rows, y, seed, **params)
        if not hasattr(model, "predict"):
            what = f"fit(X, y, seed) must return a fitted estimator, got {type(model).__name__}"
            raise ModelError(f"{what}; end it with 'return model'")
        return model


def of_rows(value: Any, rows: npt.NDArray[np.int64], n: int) -> Any:
    """The entries of some rows, if a value has one for each of n; any other value as it is."""
    if type(value) in (str, dict) or not hasattr(value, "__len__") or len(value) != n:
        return value
    if hasattr(value, "iloc"):
        return value.iloc[rows]
    return value[rows] if hasattr(value, "dtype") else [value[i] for i in rows]


def weight_name(estimator: Any) -> str:
    """What `fit` calls the weights of rows; for a pipeline, what its last step calls them."""
    if type_name(estimator) == "sklearn.Pipeline":
        return f"{estimator.steps[-1][0]}__{weight_name(estimator.steps[-1][1])}"
    return "sample_weight"


def fit_all(fits: Sequence[EstimatorFit], workers: int, bar: Progress) -> list[FittedEstimator]:
    """The fitted estimators, each by one thread, and as many at once as there are workers. Threads,
    because slow libraries release Python's lock, and a process would have to import all of them
    first."""
    out = list[FittedEstimator]()
    if min(workers, len(fits)) == 1:
        for fit in fits:
            out.append(fit())
            bar.step(1)
        return out
    one: Any = untyped("threadpoolctl").threadpool_limits
    pool = ThreadPoolExecutor(
        min(workers, len(fits)), initializer=lambda: one(1, user_api="openmp")
    )
    try:
        with one(1, user_api="blas"):
            for fitted in pool.map(EstimatorFit.__call__, fits):
                out.append(fitted)
                bar.step(1)
    finally:
        pool.shutdown(cancel_futures=True)
    return out


@dataclass(frozen=True)
class InOrder:
    """An estimator whose classes are not in the order in which it learnt them."""

    estimator: Any
    classes_: tuple[Any, ...]

    def predict_proba(self, rows: Any) -> Any:
        learnt = [plain(c) for c in self.estimator.classes_]
        return self.estimator.predict_proba(rows)[:, [learnt.index(c) for c in self.classes_]]

    def predict(self, rows: Any) -> Any:
        return self.estimator.predict(rows)


def one_thread(estimator: Any) -> dict[str, Any]:
    """Settings that make an estimator and all inside it use one thread: others are fitted at the
    same time, and sums over several threads differ from those of one in the last bits."""
    params: dict[str, Any] = estimator.get_params()
    out = dict[str, Any]()
    for key, value in params.items():
        prefix, _, name = key.rpartition("__")
        library = type_name(params[prefix] if prefix else estimator).partition(".")[0]
        # for scikit-learn None means one
        many = value != 1 and (value is not None or library in ("xgboost", "lightgbm"))
        if name == "n_jobs" and many:
            out[key] = 1
    return out


# What XGBoost takes in place of None.
XGBOOST = {"n_estimators": 100, "max_depth": 6, "learning_rate": 0.3}


def settings_of(estimator: Any, names: Sequence[str]) -> dict[str, float]:
    """The settings of these names, of an estimator and all inside it, that are positive numbers;
    `max_iter` only where it is a number of trees."""
    params: dict[str, Any] = estimator.get_params()
    out = dict[str, float]()
    for key, given in params.items():
        prefix, _, name = key.rpartition("__")
        owner = params[prefix] if prefix else estimator
        value = (
            XGBOOST.get(name)
            if given is None and type_name(owner).startswith("xgboost.")
            else given
        )
        number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        trees = name != "max_iter" or type(owner).__name__.startswith("HistGradientBoosting")
        if name in names and trees and number:
            out[key] = cast(float, value)
    return out


# settings that are overwritten, or change no model
IDLE = ("random_state", "n_jobs", "verbose", "verbosity")


def described(value: Any) -> str:
    """Every setting of an estimator, however deep, to tell two apart; its `repr` leaves out what is
    long."""
    if hasattr(value, "get_params") and not isinstance(value, type):
        settings: dict[str, Any] = value.get_params(deep=False)
        words = [
            f"{name}={described(v)}" for name, v in sorted(settings.items()) if name not in IDLE
        ]
        return f"{type(value).__module__}.{type(value).__qualname__}({', '.join(words)})"
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return f"{{{', '.join(f'{described(k)}: {described(v)}' for k, v in items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(described(v) for v in cast(list[Any], value))}]"
    if isinstance(value, np.ndarray | pd.Series | pd.DataFrame):
        return f"array {np.asarray(cast(Any, value)).tolist()!r}"
    if callable(value):
        code = getattr(value, "__code__", None)
        inside = f" {code.co_code.hex()} {code.co_consts!r} {code.co_names!r}" if code else ""
        module = getattr(value, "__module__", "")
        name = getattr(value, "__qualname__", repr(value))
        return f"{module}.{name}{inside}"
    return repr(value)


# ---- files


BOOSTERS = (
    "XGBClassifier",
    "XGBRegressor",
    "XGBRFClassifier",
    "XGBRFRegressor",
    "LGBMClassifier",
    "LGBMRegressor",
)


def named_estimator(name: str, settings: dict[str, Any]) -> Any:
    """One of scikit-learn's, XGBoost's or LightGBM's own classifiers and regressors; a file cannot
    name anything else."""
    if name in BOOSTERS:
        odd = [key for key, value in settings.items() if not is_plain(value)]
        if odd:
            raise SettingError(
                f"{odd[0] if odd else ''!r} of the {name} in the recipe is neither a number nor a "
                "string"
            )
        return getattr(
            optional("xgboost" if name.startswith("XGB") else "lightgbm", "trees"), name
        )(**settings)
    known = predictors()
    if name not in known:
        raise SettingError(
            f"unknown estimator {name!r} in the recipe; {did_you_mean(name, [*known, *BOOSTERS])}"
        )
    return known[name](**settings)


def predictors() -> dict[str, Any]:
    """scikit-learn's own classifiers and regressors by name."""
    kinds = ["classifier", "regressor"]
    return dict(
        cast(list[tuple[str, Any]], untyped("sklearn.utils").all_estimators(type_filter=kinds))
    )


def written_settings(estimator: Any) -> dict[str, Any]:
    """The settings of an estimator that a file can hold, or an error rather than a file that makes
    another model."""
    kind = cast(Any, type(estimator))
    if predictors().get(kind.__name__) is not kind:
        raise SettingError(
            f"cannot write down a {kind.__name__}; only scikit-learn's own estimators can be"
        )
    defaults = {name: p.default for name, p in inspect.signature(kind).parameters.items()}
    out = dict[str, Any]()
    for name, value in estimator.get_params(deep=False).items():
        if value is defaults[name] or (
            isinstance(value, str | float | int) and value == defaults[name]
        ):
            continue
        if not is_plain(value):
            raise SettingError(f"cannot write down {name}={value!r} of a {kind.__name__}")
        out[name] = (
            [plain(v) for v in cast(list[Any], value)]
            if isinstance(value, list | tuple)
            else plain(value)
        )
    return out


def is_plain(value: Any) -> bool:
    """Is it a value, or a list of values, that a file of words can hold?"""
    values = cast(list[Any], value) if isinstance(value, list | tuple) else [value]
    return all(isinstance(plain(v), bool | int | float | str) for v in values)
