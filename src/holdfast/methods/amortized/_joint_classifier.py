"""Classifiers that also give recourse, as scikit-learn knows classifiers: fit, predict, save."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from holdfast._core.checks import did_you_mean, untyped
from holdfast._core.params import Settings
from holdfast._core.progress import Progress
from holdfast._core.types import Outcomes
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import FileError, SettingError
from holdfast.methods.amortized import _recourse_network
from holdfast.methods.amortized._joint_loop import Joint, JointStack, fit_joint
from holdfast.methods.amortized._recourse_network import RecourseNetwork, network_of
from holdfast.methods.amortized.learned_recourse import LearnedRecourse
from holdfast.models.base import Model
from holdfast.models.io import load_model
from holdfast.models.torch_model import TorchModel
from holdfast.retraining.outcomes import class_names, class_numbers, outcomes, plain
from holdfast.schema.schema import Schema

Table = pd.DataFrame | npt.NDArray[Any]
# What a file may name -> where it is, to be read when it is named.
MODULES = {
    name: f"holdfast.methods.amortized.{name.lower()}" for name in ("CounterNet", "RoCourseNet")
}


class JointClassifier(Settings):
    """Prediction and recourse trained together; subclasses are dataclasses of their settings.

    Learnt: `model_` (a `Model`), `recourse_` (an explainer), `schema_`, `classes_`.
    """

    _estimator_type: ClassVar[str] = "classifier"

    seed: int

    @abstractmethod
    def how(self) -> Joint:
        """The settings of the training."""

    def fit(
        self, X: Table, y: Outcomes, schema: Schema | None = None, *, progress: bool = False
    ) -> Self:
        """Train on a table and its outcomes.

        Args:
            X: a table, or an array of numbers, whose columns get the names x0, x1, ..
            y: one outcome per row.
            schema: how rows become numbers and what may change; None infers it from the table.
            progress: show a bar on stderr.
        """
        if not isinstance(schema, Schema | None):
            raise SettingError(f"schema must be a Schema or None, got {type(schema).__name__}")
        how = self.how()
        frame, column = self._training_table(X, y)
        names = class_names(frame, column, None)
        schema = Schema.infer(frame) if schema is None else schema
        # Weights made in the caller's inference mode could never be changed again.
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            Progress(progress, type(self).__name__) as bar,
        ):
            bar.total(1)
            x = schema.encode(frame)
            labels = class_numbers(column, names)
            seeds = (int(self.seed),)
            stack = fit_joint(
                how, x, labels, schema.encoding(), classes=len(names), seeds=seeds, bar=bar
            )
            self.model_, self.recourse_ = as_model(stack, 0, how, schema, names)
        self.schema_ = schema
        self.classes_ = np.array(names)
        return self

    def predict_proba(self, X: Table) -> np.ndarray[Any, Any]:
        """(n, classes) probabilities."""
        frame = self._table(X)
        with self.model_.eval_mode():
            return torch.softmax(self.model_.score_frame(frame).double(), 1).numpy()

    def predict(self, X: Table) -> np.ndarray[Any, Any]:
        """(n,) classes."""
        best = self.predict_proba(X).argmax(1)  # first, as it says so when nothing has been learnt
        return self.classes_[best]

    def score(self, X: Table, y: Outcomes, sample_weight: Any = None) -> float:
        """The share of right predictions."""
        return float(
            untyped("sklearn.metrics").accuracy_score(
                y, self.predict(X), sample_weight=sample_weight
            )
        )

    def recourse(self, X: Table, target: Any = None, **call: Any) -> Counterfactuals:
        """An answer for every row, in one pass.

        Args:
            X: rows as in `fit`.
            target: the wanted class (one, or one per row), a `Target`, or None for any other class.
            call: seed, batch_size, threads, .. as in `Explainer.explain`.
        """
        frame = self._table(X)
        settings: dict[str, Any] = {"batch_size": 1 << 14, **call}
        return self.recourse_.explain(self.model_, frame, target, **settings)

    # ---- scikit-learn

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = untyped("sklearn.utils")
        target = tags.TargetTags(required=True)
        inputs = tags.InputTags()
        return tags.Tags(
            "classifier", target, classifier_tags=tags.ClassifierTags(), input_tags=inputs
        )

    def _training_table(self, X: Any, y: Any) -> "tuple[pd.DataFrame, pd.Series[Any]]":
        """The rows to learn from and their outcomes."""
        if y is None:
            raise SettingError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        validation = untyped("sklearn.utils.validation")
        if not isinstance(y, pd.Series):
            y = validation.column_or_1d(y, warn=True)
        if isinstance(X, pd.DataFrame):
            validation.validate_data(self, X, skip_check_array=True)
            frame = _with_string_names(X)
        else:
            rows, y = validation.validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
            frame = _with_names(rows)
        untyped("sklearn.utils.multiclass").check_classification_targets(y)
        return frame, outcomes(frame, cast("pd.Series[Any]", y))

    def _table(self, X: Any) -> pd.DataFrame:
        """The rows to answer."""
        validation = untyped("sklearn.utils.validation")
        validation.check_is_fitted(self)
        if isinstance(X, pd.DataFrame):
            validation.validate_data(self, X, reset=False, skip_check_array=True)
            return _with_string_names(X)
        return _with_names(validation.validate_data(self, X, reset=False, dtype=np.float64))

    # ---- files

    def save(self, path: str | Path) -> None:
        """Model and recourse network in one safetensors file that runs no code; `Model.load` reads
        the model."""
        untyped("sklearn.utils.validation").check_is_fitted(self)
        settings = {name: _written(value) for name, value in self.get_params().items()}
        named = list(getattr(self, "feature_names_in_", ()))  # none: learnt from an array
        about = {"kind": type(self).__name__, "settings": settings, "named": named}
        _recourse_network.save(
            path, cast(TorchModel, self.model_), self.recourse_.generator_, about
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        content, _ = _recourse_network.read(path)
        kind = str(content["kind"])
        if kind not in MODULES:
            raise FileError(
                f"{str(path)!r} holds an unknown kind {kind!r}; known: {', '.join(MODULES)}"
            )
        found: type[JointClassifier] = getattr(import_module(MODULES[kind]), kind)
        if not issubclass(found, cls):
            raise FileError(f"{str(path)!r} holds a {kind}, not a {cls.__name__}")
        net = found._with_settings(path, content["settings"])
        net.model_ = load_model(Path(path), None, trust=False)
        net.recourse_ = LearnedRecourse.of(_recourse_network.load(path, net.model_))
        net.schema_ = net.model_.schema
        net.classes_ = np.array(net.model_.classes)
        learnt = cast(Any, net)  # what scikit-learn's validation would have set
        learnt.n_features_in_ = len(net.schema_.features)
        if content["named"]:
            learnt.feature_names_in_ = np.array(content["named"], dtype=object)
        return net

    @classmethod
    def _with_settings(cls, path: str | Path, settings: dict[str, Any]) -> Self:
        """An unfitted one with the settings of a file."""
        known = [f.name for f in fields(cast(Any, cls))]
        for name in settings:
            if name not in known:
                raise FileError(
                    f"{str(path)!r} has an unknown setting {name!r}; {did_you_mean(name, known)}"
                )
        net = cls(
            **{
                n: tuple(cast(list[Any], v)) if isinstance(v, list) else v
                for n, v in settings.items()
            }
        )
        try:
            net.how()
        except SettingError as error:
            raise FileError(f"{str(path)!r} has a setting that cannot be: {error}") from None
        return net


def _with_names(rows: Any) -> pd.DataFrame:
    """An array as a table."""
    return pd.DataFrame(rows, columns=[f"x{i}" for i in range(rows.shape[1])])


def _with_string_names(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose columns are numbered, as pandas does by itself, gets the numbers as strings."""
    if all(isinstance(name, str) for name in frame.columns):
        return frame
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def check_types(net: JointClassifier) -> None:
    """Raise an error that names the first setting of another type than its default has."""
    for spec in fields(cast(Any, net)):
        value = getattr(net, spec.name)
        default = spec.default
        if isinstance(default, tuple):
            fits = isinstance(value, Iterable) and not isinstance(value, str)
            fits = fits and all(_is_a(Integral, width) for width in cast(Iterable[Any], value))
            words = "a list of integers"
        else:
            kind, words = _KINDS[type(default)]
            fits = isinstance(value, kind) if kind in (bool, str) else _is_a(kind, value)
        if not fits:
            raise SettingError(f"{spec.name} must be {words}, got {value!r}")
    # Draws are keyed by it as a float64.
    if not abs(net.seed) < 1 << 53:
        raise SettingError(f"seed must be below 2^53, got {net.seed}")


_KINDS: dict[type, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "an integer"),
    float: (Real, "a number"),
    str: (str, "a string"),
}


def _is_a(kind: Any, value: Any) -> bool:
    """A number of that kind; True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def as_model(
    stack: JointStack, i: int, how: Joint, schema: Schema, classes: list[Any]
) -> tuple[Model, LearnedRecourse]:
    """Network i of a stack as a model, and its recourse."""
    module = network_of(stack.net, stack.theta, i, how.dropout)
    model = Model.of(module, schema, classes=classes)
    # A hidden layer ends with its dropout: three modules each.
    features = tuple(3 * layer - 1 for layer in stack.features)
    layers = network_of(stack.gen, stack.theta_g, i, how.dropout)
    return model, LearnedRecourse.of(
        RecourseNetwork(layers, features, model.fingerprint(), stack.target_columns)
    )


def _written(value: Any) -> Any:
    """A setting as JSON can hold it."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_written(part) for part in cast(Iterable[Any], value)]
    return plain(value)
