"""CounterNet and RoCourseNet as scikit-learn classifiers that also give recourse.

    net = RoCourseNet(seed=0).fit(X, y, schema=schema)
    net.predict(X);  net.recourse(X_denied);  net.save("net.safetensors")

`amortized._joint_loop` has the algorithm. The two differ in one step: RoCourseNet's generator is trained against the
model that Virtual Data Shift makes of the present one.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from holdfast._core.params import Settings
from holdfast._core.progress import Progress
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import FileError, HoldfastError, SettingError, did_you_mean, untyped
from holdfast.methods.amortized._joint_loop import Joint, JointStack, fit_joint
from holdfast.methods.amortized.learned_recourse import Generator, LearnedRecourse, filled, network
from holdfast.methods.amortized.virtual_shift import Shift
from holdfast.models.base import Model
from holdfast.models.io import load_model
from holdfast.models.torch_model import TorchModel
from holdfast.nn.architecture import build, describe
from holdfast.nn.stack_derivatives import SLOPE, Loss
from holdfast.retraining.outcomes import class_names, class_numbers, outcomes, plain
from holdfast.schema.schema import Schema

WIDTHS = ("encoder", "predictor", "generator")
_MARK, _PREFIX = "holdfast_generator", "generator."  # in a file: the text about the network, and its tensors


@dataclass(eq=False, repr=False)
class CounterNet(Settings):
    """Prediction and recourse trained together.

    Args:
        encoder, predictor, generator: widths of the layers.
        dropout: share of units left out while training.
        epochs, batch_size, lr: of the training, with Adam.
        l1, l2, l3: weights of prediction, validity and proximity.
        condition_on_target: tell the generator the class to reach, which else has to guess it from the prediction.
        clip_to_data, hard_categories: train on answers as they are handed out: numbers inside the range of the
            data, and one level of each category.
        loss: of the prediction, "squared" or "entropy".
        smooth_labels, clip: what the authors' older code also does, see `holdfast.methods.amortized._joint_loop.Joint`.
        seed: weights, order and dropout come from it; the caller's generators stay as they are.

    Learnt: `model_` (a `Model`), `recourse_` (an explainer), `schema_`, `classes_`.
    """

    _estimator_type: ClassVar[str] = "classifier"

    encoder: tuple[int, ...] = (200, 10)
    predictor: tuple[int, ...] = (10,)
    generator: tuple[int, ...] = (10,)
    dropout: float = 0.3
    epochs: int = 50
    batch_size: int = 128
    lr: float = 0.003
    l1: float = 1.0
    l2: float = 0.2
    l3: float = 0.1
    condition_on_target: bool = True
    clip_to_data: bool = True
    hard_categories: bool = True
    loss: Loss = "squared"
    smooth_labels: bool = False
    clip: float = 0.0
    seed: int = 0

    def how(self) -> Joint:
        """The settings of the training."""
        _check_types(self)
        names = {f.name for f in fields(Joint)} & {f.name for f in fields(self)}
        given = {name: getattr(self, name) for name in names}
        given |= {name: tuple(int(width) for width in given[name]) for name in WIDTHS}
        return Joint(**given, shift=self.shift())

    def shift(self) -> Shift | None:
        """The attack that the generator is trained against; a CounterNet has none."""
        return None

    def fit(self, X: Any, y: Any, schema: Schema | None = None, *, progress: bool = False) -> Self:
        """Train on a table and its outcomes.

        Args:
            X: a table, or an array of numbers, whose columns get the names x0, x1, ..
            y: one outcome per row.
            schema: how rows become numbers and what may change; None infers it from the table.
            progress: show a bar on stderr.
        """
        if schema is not None and not isinstance(schema, Schema):
            raise SettingError(f"schema must be a Schema or None, got {type(schema).__name__}")
        how = self.how()
        frame, y = self._learnt_from(X, y)
        names = class_names(frame, y, None)
        schema = Schema.infer(frame) if schema is None else schema
        # Weights made in the caller's inference mode could never be changed again.
        with torch.inference_mode(False), torch.no_grad(), Progress(progress, type(self).__name__) as bar:
            bar.total(1)
            x, at = schema.encode(frame), schema.encoding()
            stack = fit_joint(how, x, class_numbers(y, names), at, classes=len(names), seeds=(int(self.seed),), bar=bar)
            self.model_, self.recourse_ = as_model(stack, 0, how, schema, names)
        self.schema_, self.classes_ = schema, np.array(names)
        return self

    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:
        """(n, classes) probabilities."""
        frame = self._asked(X)
        with self.model_.eval_mode():
            return torch.softmax(self.model_.score_frame(frame).double(), 1).numpy()

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """(n,) classes."""
        best = self.predict_proba(X).argmax(1)  # first, as it says so when nothing has been learnt
        return self.classes_[best]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right predictions."""
        return float(untyped("sklearn.metrics").accuracy_score(y, self.predict(X), sample_weight=sample_weight))

    def recourse(self, X: Any, target: Any = None, **call: Any) -> Counterfactuals:
        """An answer for every row, in one pass.

        Args:
            X: rows as in `fit`.
            target: the wanted class (one, or one per row), a `Target`, or None for any other class.
            call: seed, batch_size, threads, .. as in `Explainer.explain`.
        """
        frame = self._asked(X)
        given: dict[str, Any] = {"batch_size": 1 << 14, **call}
        return self.recourse_.explain(self.model_, frame, target, **given)

    # ---- scikit-learn

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = untyped("sklearn.utils")
        return tags.Tags(
            estimator_type="classifier",
            target_tags=tags.TargetTags(required=True),
            classifier_tags=tags.ClassifierTags(),
            input_tags=tags.InputTags(),
        )

    def _learnt_from(self, X: Any, y: Any) -> "tuple[pd.DataFrame, pd.Series[Any]]":
        """The rows to learn from and their outcomes."""
        if y is None:
            raise SettingError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        validation = untyped("sklearn.utils.validation")
        if not isinstance(y, pd.Series):
            y = validation.column_or_1d(y, warn=True)
        if isinstance(X, pd.DataFrame):
            validation.validate_data(self, X, skip_check_array=True)
            frame = _with_text_names(X)
        else:
            rows, y = validation.validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
            frame = _named(rows)
        untyped("sklearn.utils.multiclass").check_classification_targets(y)
        column: Any = y
        return frame, outcomes(frame, column)

    def _asked(self, X: Any) -> pd.DataFrame:
        """The rows to answer."""
        validation = untyped("sklearn.utils.validation")
        validation.check_is_fitted(self)
        if isinstance(X, pd.DataFrame):
            validation.validate_data(self, X, reset=False, skip_check_array=True)
            return _with_text_names(X)
        return _named(validation.validate_data(self, X, reset=False, dtype=np.float64))

    # ---- files

    def save(self, path: str | Path) -> None:
        """Model and recourse network in one safetensors file that runs no code; `Model.load` reads the model."""
        untyped("sklearn.utils.validation").check_is_fitted(self)
        model, generator = cast(TorchModel, self.model_), self.recourse_.generator_
        tensors, metadata = model.contents()
        tensors |= {_PREFIX + name: value.clone() for name, value in generator.layers.state_dict().items()}
        settings = {name: _written(value) for name, value in self.get_params().items()}
        content = {
            "kind": type(self).__name__,
            "settings": settings,
            "layers": describe(generator.layers),
            "features": list(generator.features),
            "told": generator.told,
            "named": list(getattr(self, "feature_names_in_", ())),  # none: learnt from an array
        }
        try:
            untyped("safetensors.torch").save_file(tensors, path, metadata=metadata | {_MARK: json.dumps(content)})
        except Exception as error:  # safetensors has an error of its own, which is no OSError
            raise FileError(f"cannot write {str(path)!r}: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        content, _ = _read(path)
        net = _unfitted(path, content)
        if not isinstance(net, cls):
            raise FileError(f"{str(path)!r} holds a {type(net).__name__}, not a {cls.__name__}")
        net.model_ = load_model(Path(path), None, trust=False)
        net.recourse_ = LearnedRecourse.of(load_generator(path, net.model_))
        net.schema_, net.classes_ = net.model_.schema, np.array(net.model_.classes)
        learnt = cast(Any, net)  # what scikit-learn's validation would have set
        learnt.n_features_in_ = len(net.schema_.features)
        if content["named"]:
            learnt.feature_names_in_ = np.array(content["named"], dtype=object)
        return net


# Tables 4 and 5 of the paper.
PAPER: dict[str, dict[str, Any]] = {
    "loan": {"encoder": (200, 10), "predictor": (10,), "generator": (10,), "batch_size": 128, "l2": 0.2},
    "german": {"encoder": (100, 10), "predictor": (20,), "generator": (20,), "batch_size": 256, "l2": 1.0},
    "student": {"encoder": (50, 10), "predictor": (10,), "generator": (50,), "batch_size": 128, "l2": 0.2}
    | {"lr": 0.01, "eta": 0.01},
}


def _named(rows: Any) -> pd.DataFrame:
    """An array as a table."""
    return pd.DataFrame(rows, columns=[f"x{i}" for i in range(rows.shape[1])])


def _with_text_names(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose columns are numbered, as pandas does by itself, gets the numbers as texts."""
    if all(isinstance(name, str) for name in frame.columns):
        return frame
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def _check_types(net: CounterNet) -> None:
    """Raise an error that names the first setting of another type than its default has."""
    for spec in fields(net):
        value, default = getattr(net, spec.name), spec.default
        if isinstance(default, tuple):
            fits = isinstance(value, Iterable) and not isinstance(value, str)
            fits = fits and all(_is_a(Integral, width) for width in cast(Iterable[Any], value))
            words = "a list of whole numbers"
        else:
            kind, words = _KINDS[type(default)]
            fits = isinstance(value, kind) if kind in (bool, str) else _is_a(kind, value)
        if not fits:
            raise SettingError(f"{spec.name} must be {words}, got {value!r}")
    if abs(net.seed) >= 1 << 53:  # draws are keyed by it as a float64
        raise SettingError(f"seed must be below 2^53, got {net.seed}")


_KINDS: dict[type, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
}


def _is_a(kind: Any, value: Any) -> bool:
    """A number of that kind; True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def as_model(
    stack: JointStack, i: int, how: Joint, schema: Schema, classes: list[Any]
) -> tuple[Model, LearnedRecourse]:
    """Network i of a stack as a model, and its recourse."""
    one = stack.pick(torch.tensor([i]))
    module = filled(network(one.net.sizes, SLOPE, how.dropout), one.net.real(one.theta))
    layers = filled(network(one.gen.sizes, SLOPE, how.dropout), one.gen.real(one.theta_g))
    model = Model.of(module, schema, classes=classes)
    # A hidden layer ends with its dropout: three modules each.
    features = tuple(3 * at - 1 for at in one.features)
    return model, LearnedRecourse.of(Generator(layers, features, model.fingerprint(), one.told))


def _written(value: Any) -> Any:
    """A setting as JSON can hold it."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_written(part) for part in cast(Iterable[Any], value)]
    return plain(value)


def _unfitted(path: str | Path, content: dict[str, Any]) -> CounterNet:
    """The network that a file names, with its settings."""
    from holdfast.methods.amortized.rocoursenet import RoCourseNet  # a kind of CounterNet itself

    kinds = {kind.__name__: kind for kind in (CounterNet, RoCourseNet)}
    kind = kinds.get(str(content["kind"]))
    if kind is None:
        raise FileError(f"{str(path)!r} holds an unknown kind {content['kind']!r}; known: {', '.join(kinds)}")
    settings, known = content["settings"], [f.name for f in fields(kind)]
    for name in settings:
        if name not in known:
            raise FileError(f"{str(path)!r} has an unknown setting {name!r}; {did_you_mean(name, known)}")
    chosen: dict[str, Any] = {n: tuple(cast(list[Any], v)) if isinstance(v, list) else v for n, v in settings.items()}
    net = kind(**chosen)
    try:
        net.how()
    except SettingError as error:
        raise FileError(f"{str(path)!r} has a setting that cannot be: {error}") from None
    return net


def holds_recourse(path: str | Path) -> bool:
    """Is there a recourse network in the file?"""
    try:
        with untyped("safetensors").safe_open(path, framework="pt") as file:
            return _MARK in (file.metadata() or {})
    except Exception:  # no safetensors file at all: whoever reads the model says so better
        return False


_PARTS: dict[str, type] = {"kind": str, "settings": dict, "layers": list, "features": list, "told": int, "named": list}


def _read(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a file says about its recourse network, and the network's tensors."""
    try:
        with untyped("safetensors").safe_open(path, framework="pt") as file:
            metadata = cast(dict[str, str], file.metadata() or {})
            tensors = {n: file.get_tensor(n) for n in list(file.keys()) if n.startswith(_PREFIX)}
    except Exception as error:
        raise FileError(f"cannot read a recourse network from {str(path)!r}: {error}") from None
    if _MARK not in metadata:
        raise FileError(f"{str(path)!r} holds no recourse network; write one with `CounterNet.save`")
    try:
        content = json.loads(metadata[_MARK])
        wrong = [name for name, kind in _PARTS.items() if not isinstance(content[name], kind)]
    except Exception as error:
        raise _damaged(path, error) from None
    if wrong:
        raise FileError(f"{str(path)!r} is damaged: {wrong[0]!r} cannot be {content[wrong[0]]!r}")
    return content, tensors


def load_generator(path: str | Path, model: Model) -> Generator:
    """The recourse network in a file that `CounterNet.save` wrote, for the model it was trained with."""
    content, tensors = _read(path)
    try:
        with torch.device("meta"):  # no memory before the tensors are there: the sizes are only a claim of the file
            layers: nn.Sequential = build(content["layers"])
        layers.load_state_dict({name.removeprefix(_PREFIX): v for name, v in tensors.items()}, assign=True)
        layers.eval().requires_grad_(False)
        generator = Generator(layers, tuple(content["features"]), model.fingerprint(), content["told"])
        generator.check(model)
    except HoldfastError as error:
        raise FileError(f"{str(path)!r}: {error}") from None
    except Exception as error:  # the text in the file may say anything
        raise _damaged(path, error) from error
    return generator


def _damaged(path: str | Path, error: Exception) -> FileError:
    return FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})")
