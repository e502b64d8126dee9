"""Classifiers that also give recourse, in scikit-learn's style: fit, predict, save."""

from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.checks import did_you_mean, untyped
from holdfast._core.progress import Progress
from holdfast._core.types import Outcomes
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import FileError, SettingError
from holdfast.methods.amortized import _recourse_network
from holdfast.methods.amortized._joint_loop import JointStack, fit_joint
from holdfast.methods.amortized._joint_settings import JointSettings
from holdfast.methods.amortized._recourse_network import RecourseNetwork, network_of
from holdfast.methods.amortized.learned_recourse import LearnedRecourse
from holdfast.methods.amortized.virtual_shift import Shift
from holdfast.models.base import Model
from holdfast.models.io import load_model
from holdfast.models.torch_model import TorchModel
from holdfast.retraining.outcomes import ClassNames, class_names, class_numbers, outcomes, plain
from holdfast.schema.schema import Schema

Table = pd.DataFrame | npt.NDArray[Any]
# What a file may name -> its module, imported only when it is named.
MODULES = {
    name: f"holdfast.methods.amortized.{name.lower()}" for name in ("CounterNet", "RoCourseNet")
}


class JointClassifier(JointSettings):
    """Prediction and recourse trained together; the settings are fields, see `JointSettings`.

    Learnt: `model_` (a `Model`), `recourse_` (an explainer), `schema_`, `classes_`.
    """

    _estimator_type: ClassVar[str] = "classifier"

    def fit(
        self,
        X: Table,
        y: Outcomes,
        schema: Schema | None = None,
        *,
        classes: ClassNames | None = None,
        progress: bool = False,
    ) -> Self:
        """Train on a table and its outcomes.

        Args:
            X: a table, or an array of numbers, whose columns get the names x0, x1, ..
            y: one outcome per row.
            schema: how rows become numbers and what may change; None infers it from the table.
            classes: names of the classes in the order of the probabilities; None sorts the values
            of
                `y`.
            progress: show a bar on stderr.
        """
        if not isinstance(schema, Schema | None):
            raise SettingError(f"schema must be a Schema or None, got {type(schema).__name__}")
        settings = self.checked()
        frame, column = self._training_table(X, y)
        names = class_names(frame, column, classes)
        schema = Schema.infer(frame) if schema is None else schema
        # Weights made in the caller's inference mode could never be changed again.
        with torch.inference_mode(False), torch.no_grad():
            labels = class_numbers(column, names)
            stack = self._trained(settings, frame, labels, len(names), schema, progress)
            self.model_, self.recourse_ = as_model(stack, 0, settings.dropout, schema, names)
        self.schema_ = schema
        self.classes_ = np.array(names)
        return self

    def _trained(
        self,
        settings: JointSettings,
        frame: pd.DataFrame,
        labels: Tensor,
        classes: int,
        schema: Schema,
        progress: bool,
    ) -> JointStack:
        """A stack of one network."""
        with Progress(progress, type(self).__name__) as bar:
            bar.total(1)
            return fit_joint(
                settings,
                schema.encode(frame),
                labels,
                schema.encoding(),
                classes=classes,
                seeds=(int(settings.seed),),
                bar=bar,
            )

    def predict_proba(self, X: Table) -> np.ndarray[Any, Any]:
        """(n, classes) probabilities."""
        frame = self._table(X)
        with self.model_.eval_mode():
            return torch.softmax(self.model_.score_frame(frame).double(), 1).numpy()

    def predict(self, X: Table) -> np.ndarray[Any, Any]:
        """(n,) classes."""
        best = self.predict_proba(X).argmax(1)  # first: an error if nothing has been learnt
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
        settings = {name: _written(value) for name, value in self.get_params(deep=False).items()}
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
    def _with_settings(cls, path: str | Path, written: dict[str, Any]) -> Self:
        """An unfitted one with the settings of a file."""
        try:
            settings = _read_fields(cls, written)
            if settings.get("shift") is not None:
                settings["shift"] = Shift(**_read_fields(Shift, settings["shift"]))
            net = cls(**settings)
            net.checked()
        except (SettingError, TypeError) as error:
            raise FileError(f"{str(path)!r} has a setting that cannot be: {error}") from None
        return net


def _read_fields(cls: Any, written: dict[str, Any]) -> dict[str, Any]:
    """Settings of a class, read from JSON, where tuples have become lists."""
    names = [spec.name for spec in fields(cls)]
    for name in written:
        if name not in names:
            raise SettingError(f"there is no {name!r}; {did_you_mean(name, names)}")
    return {
        name: tuple(cast(list[Any], value)) if isinstance(value, list) else value
        for name, value in written.items()
    }


def _with_names(rows: Any) -> pd.DataFrame:
    """An array as a table."""
    return pd.DataFrame(rows, columns=[f"x{i}" for i in range(rows.shape[1])])


def _with_string_names(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with numbered columns, pandas' default, gets the numbers as strings."""
    if all(isinstance(name, str) for name in frame.columns):
        return frame
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def as_model(
    stack: JointStack, i: int, dropout: float, schema: Schema, classes: list[Any]
) -> tuple[Model, LearnedRecourse]:
    """Network i of a stack as a model, and its recourse."""
    module = network_of(stack.net, stack.theta, i, dropout)
    model = Model.of(module, schema, classes=classes)
    # A hidden layer ends with its dropout: three modules each.
    features = tuple(3 * layer - 1 for layer in stack.features)
    layers = network_of(stack.gen, stack.theta_g, i, dropout)
    return model, LearnedRecourse.of(
        RecourseNetwork(layers, features, model.fingerprint(), stack.target_columns)
    )


def _written(value: Any) -> Any:
    """A setting as JSON can hold it."""
    if isinstance(value, Shift):
        return {name: plain(part) for name, part in value.to_dict().items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_written(part) for part in cast(Iterable[Any], value)]
    return plain(value)
