"""CounterNet and RoCourseNet as scikit-learn classifiers that also give recourse.

    net = RoCourseNet(seed=0).fit(X, y, schema=schema)
    net.predict(X);  net.recourse(X_denied);  net.save("net.safetensors")

`holdfast.train.joint` has the algorithm. The two differ in one step: RoCourseNet's generator is trained against the
model that Virtual Data Shift makes of the present one.
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from holdfast.errors import FileError, HoldfastError, SettingError, did_you_mean, untyped
from holdfast.model import Model, TorchModel, load_model
from holdfast.network import build, describe
from holdfast.progress import Progress
from holdfast.result import Counterfactuals
from holdfast.schema import Schema
from holdfast.settings import Settings
from holdfast.train.joint import Joint, JointStack, Schedule, fit_joint
from holdfast.train.learned import Generator, LearnedRecourse, filled, network
from holdfast.train.recipe import class_names, class_numbers, outcomes
from holdfast.train.second import SLOPE
from holdfast.train.shift import Shift

_MARK = "holdfast_generator"


@dataclass(eq=False, repr=False)
class CounterNet(Settings):
    """Prediction and recourse trained together.

    Args:
        encoder, predictor, generator: widths of the layers.
        dropout: share of units left out while training.
        epochs, batch_size, lr: of the training, with Adam.
        l1, l2, l3: weights of prediction, validity and proximity.
        smooth_labels, clip: what the authors' older code also does, see `holdfast.train.joint.Joint`.
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
    smooth_labels: bool = False
    clip: float = 0.0
    seed: int = 0

    def how(self) -> Joint:
        """The settings of the training."""
        names = {f.name for f in fields(Joint)} & {f.name for f in fields(self)}
        widths = ("encoder", "predictor", "generator")
        given = {name: getattr(self, name) for name in names}
        given |= {name: tuple(given[name]) for name in widths if hasattr(given[name], "__iter__")}
        return Joint(**given, shift=self.shift())

    def shift(self) -> Shift | None:
        """The attack that the generator is trained against; a CounterNet has none."""
        return None

    def fit(self, X: Any, y: Any, schema: Schema | None = None, *, progress: bool = False) -> Self:
        """Train on a table and its outcomes.

        Args:
            X: a table, or an array of numbers.
            y: one outcome per row.
            schema: how rows become numbers and what may change; None infers it from the table.
            progress: show a bar on stderr.
        """
        frame = self._frame(X, y)
        y = outcomes(frame, y)
        names = class_names(frame, y, None)
        how, schema = self.how(), schema or Schema.infer(frame)
        with Progress(progress, type(self).__name__) as bar:
            bar.total(1)
            x = schema.encode(frame)
            stack = fit_joint(
                how, x, class_numbers(y, names), schema.layout(), classes=len(names), seeds=(self.seed,), bar=bar
            )
        self.model_, self.recourse_ = as_model(stack, 0, how, schema, names)
        self.schema_, self.classes_ = schema, np.array(names)
        return self

    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:
        """(n, classes) probabilities."""
        frame = self._asked(X)
        with self.model_.borrowed():
            return torch.softmax(self.model_.judge(frame).double(), 1).numpy()

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """(n,) classes."""
        return self.classes_[self.predict_proba(X).argmax(1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right predictions."""
        right = self.predict(X) == np.asarray(y)
        return float(np.average(right, weights=sample_weight))

    def recourse(self, X: pd.DataFrame, target: Any = None, **call: Any) -> Counterfactuals:
        """An answer for every row, in one pass.

        Args:
            X: rows of the table.
            target: the wanted class (one, or one per row), a `Target`, or None for any other class.
            call: seed, batch_size, threads, .. as in `Explainer.explain`.
        """
        frame = self._asked(X)
        return self.recourse_.explain(self.model_, frame, target, **{"batch_size": 1 << 14, **call})

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

    def _frame(self, X: Any, y: Any) -> pd.DataFrame:
        """The rows to learn from."""
        check = untyped("sklearn.utils.validation").validate_data
        untyped("sklearn.utils.multiclass").check_classification_targets(y)
        if isinstance(X, pd.DataFrame):
            check(self, X, skip_check_array=True)
            return X
        rows, _ = check(self, X, y, dtype=np.float64, ensure_min_samples=2)
        return _named(rows)

    def _asked(self, X: Any) -> pd.DataFrame:
        untyped("sklearn.utils.validation").check_is_fitted(self)
        check = untyped("sklearn.utils.validation").validate_data
        if isinstance(X, pd.DataFrame):
            check(self, X, reset=False, skip_check_array=True)
            return X
        return _named(check(self, X, reset=False, dtype=np.float64))

    # ---- files

    def save(self, path: str | Path) -> None:
        """Model and recourse network in one safetensors file that runs no code; `Model.load` reads the model."""
        untyped("sklearn.utils.validation").check_is_fitted(self)
        model, generator = cast(TorchModel, self.model_), self.recourse_.generator_
        tensors, metadata = model.contents()
        tensors |= {f"generator.{name}": value.clone() for name, value in generator.layers.state_dict().items()}
        settings = {name: list(v) if isinstance(v, tuple) else v for name, v in self.get_params().items()}
        content = {
            "kind": type(self).__name__,
            "settings": settings,
            "layers": describe(generator.layers),
            "features": list(generator.features),
            "told": generator.told,
        }
        try:
            untyped("safetensors.torch").save_file(tensors, path, metadata=metadata | {_MARK: json.dumps(content)})
        except Exception as error:  # safetensors has an error of its own, which is no OSError
            raise FileError(f"cannot write {str(path)!r}: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        content, _ = _read(path)
        kinds = {kind.__name__: kind for kind in (CounterNet, RoCourseNet)}
        kind = kinds.get(content["kind"])
        if kind is None or not issubclass(kind, cls):
            raise FileError(f"{str(path)!r} holds a {content['kind']}, not a {cls.__name__}")
        known = [f.name for f in fields(kind)]
        for name in content["settings"]:
            if name not in known:
                raise FileError(f"{str(path)!r} has an unknown setting {name!r}; {did_you_mean(name, known)}")
        net = kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in content["settings"].items()})
        net.model_ = load_model(Path(path), None, trust=False)
        net.recourse_ = LearnedRecourse.of(load_generator(path, net.model_.fingerprint()))
        net.schema_, net.classes_ = net.model_.schema, np.array(net.model_.classes)
        net.n_features_in_ = len(net.schema_.features)
        net.feature_names_in_ = np.array(net.schema_.names, dtype=object)
        return cast(Self, net)


@dataclass(eq=False, repr=False)
class RoCourseNet(CounterNet):
    """Prediction and recourse trained together, the recourse against the worst small shift of the data.

    Args:
        epsilon: the largest shift of a number column, in encoded units.
        schedule: how epsilon grows over the epochs: "linear", "log", or "static".
        outer, inner: T steps of the shift, and K steps of retraining before each.
        eta, optimizer: step size and kind of the retraining.
        norm: "linf" or "l2".
        categories: "none" leaves categories as they are; "clamp"; "softmax" as in the authors' code.
        attack: "gradient", or "random" shifts (an ablation).

    The other settings are those of `CounterNet`.
    """

    epsilon: float = 0.1
    schedule: Schedule = "linear"
    outer: int = 7
    inner: int = 2
    eta: float = 0.03
    optimizer: Literal["adam", "sgd"] = "adam"
    norm: Literal["linf", "l2"] = "linf"
    categories: Literal["none", "clamp", "softmax"] = "none"
    attack: Literal["gradient", "random"] = "gradient"

    @classmethod
    def paper_tables(cls, dataset: Literal["loan", "german", "student"], **settings: Any) -> "RoCourseNet":
        """The settings behind the paper's tables, with the authors' softmax over shifted categories."""
        if dataset not in PAPER:
            raise SettingError(f"the paper has no dataset {dataset!r}; {did_you_mean(dataset, PAPER)}")
        chosen: dict[str, Any] = {**PAPER[dataset], "categories": "softmax", **settings}
        return cls(**chosen)

    def shift(self) -> Shift | None:
        if self.attack not in ("gradient", "random"):
            raise SettingError(f"attack must be 'gradient' or 'random', got {self.attack!r}")
        names = {f.name for f in fields(Shift)} & {f.name for f in fields(self)}
        return Shift(**{name: getattr(self, name) for name in names}, ascend=self.attack == "gradient")


# Tables 4 and 5 of the paper.
PAPER: dict[str, dict[str, Any]] = {
    "loan": {"encoder": (200, 10), "predictor": (10,), "generator": (10,), "batch_size": 128, "l2": 0.2},
    "german": {"encoder": (100, 10), "predictor": (20,), "generator": (20,), "batch_size": 256, "l2": 1.0},
    "student": {"encoder": (50, 10), "predictor": (10,), "generator": (50,), "batch_size": 128, "l2": 0.2}
    | {"lr": 0.01, "eta": 0.01},
}


def _named(rows: Any) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[f"x{i}" for i in range(rows.shape[1])])


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
    told = 0 if one.classes == 2 else one.classes
    return model, LearnedRecourse.of(Generator(layers, features, model.fingerprint(), told))


def _read(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with untyped("safetensors").safe_open(path, framework="pt") as file:
            metadata = cast(dict[str, str], file.metadata() or {})
            tensors = {n: file.get_tensor(n) for n in list(file.keys()) if n.startswith("generator.")}
    except Exception as error:
        raise FileError(f"cannot read a recourse network from {str(path)!r}: {error}") from None
    if _MARK not in metadata:
        raise FileError(f"{str(path)!r} holds no recourse network; write one with `CounterNet.save`")
    try:
        content = json.loads(metadata[_MARK])
        assert all(name in content for name in ("kind", "settings", "layers", "features", "told"))
    except Exception as error:
        raise FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})") from None
    return content, tensors


def load_generator(path: str | Path, model: str) -> Generator:
    """The recourse network in a file that `CounterNet.save` wrote, for the model with this fingerprint."""
    content, tensors = _read(path)
    try:
        with torch.device("meta"):  # no memory before the tensors are there: the sizes are only a claim of the file
            layers: nn.Sequential = build(content["layers"])
        layers.load_state_dict({name.removeprefix("generator."): v for name, v in tensors.items()}, assign=True)
        features = tuple(int(i) for i in content["features"])
        return Generator(layers.eval().requires_grad_(False), features, model, int(content["told"]))
    except HoldfastError:
        raise
    except Exception as error:  # the text in the file may say anything
        raise FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})") from error
