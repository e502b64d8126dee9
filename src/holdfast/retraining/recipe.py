"""A recipe says how a model is made, so that it can be made again: `recipe.fit(X, y, schema)` makes
the model, `ModelBank.retrain(recipe, ...)` makes many."""

import copy
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from holdfast._core.checks import did_you_mean
from holdfast._core.files import read_bytes, whole_file
from holdfast._core.progress import Progress
from holdfast._core.types import Outcomes
from holdfast.errors import FileError, HoldfastError, ModelError, SettingError
from holdfast.models.base import Inputs, Model
from holdfast.models.black_box import BlackBox
from holdfast.models.compiled.decision_rule import is_regressor
from holdfast.models.torch_model import TorchModel
from holdfast.nn.architecture import build, describe, flat_layers, mlp
from holdfast.nn.stack import ModelStack, lent_generator
from holdfast.retraining.estimators import (
    Estimator,
    EstimatorFit,
    InOrder,
    named_estimator,
    weight_name,
    written_settings,
)
from holdfast.retraining.loop import RobustLoop, Start, Variation, fit_stack, glorot, redrawn
from holdfast.retraining.outcomes import ClassNames, class_names, class_numbers, numbers, outcomes
from holdfast.retraining.row_facts import weights_of
from holdfast.schema.schema import Schema

DTYPES = {"float32": torch.float32, "float64": torch.float64}
GRAPHS = "holdfast.models.formats.onnx"
SAY_HOW = "pass recipe= (--recipe FILE) to say how it is made"
MOST_BYTES = 1 << 24  # of a file
_LOOP = tuple(f.name for f in fields(RobustLoop))


@dataclass(frozen=True, kw_only=True)
class Recipe(RobustLoop):
    """How a model is made: layers and training loop of a network, or an estimator to clone.

    Args:
        hidden: widths of a plain ReLU network (Glorot-uniform weights, zero biases).
        module: layers of your own instead; every layer draws its initial weights in its own way.
        estimator: a scikit-learn-style classifier or regressor instead; it is cloned, never fitted
            itself.
        inputs: what the estimator takes: the raw table ("frame") or encoded rows.
        epochs, batch_size, lr, weight_decay, adam_eps, optimizer: the training loop of networks.
        epsilon, attack, attack_steps, attack_norm, attack_box: adversarial training, see
            `RobustLoop`; every family of a bank is then trained that way.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> recipe = hf.Recipe(hidden=(8,), epochs=5)
    >>> model = recipe.fit(data.X, data.y, data.schema, seed=1)
    >>> model.classes
    ('no', 'yes')
    >>> again = recipe.fit(data.X, data.y, data.schema, seed=1)
    >>> again.fingerprint() == model.fingerprint()
    True
    """

    hidden: tuple[int, ...] = (64, 32)
    module: nn.Module | None = None
    estimator: Estimator | None = None
    inputs: Inputs = "frame"

    def __post_init__(self) -> None:
        super().__post_init__()
        widths: Any = self.hidden
        if isinstance(widths, str) or not hasattr(widths, "__iter__"):
            raise SettingError(f"hidden must be a list of widths, got {widths!r}")
        # Python's way to set fields of a frozen class when it is made
        object.__setattr__(self, "hidden", tuple(widths))
        if self.inputs not in ("frame", "encoded"):
            raise SettingError(f"inputs must be 'frame' or 'encoded', got {self.inputs!r}")
        if self.module is not None and self.estimator is not None:
            raise SettingError("a recipe has a module or an estimator, not both")
        if self.estimator is not None and self.epsilon:
            raise SettingError(
                "only networks can be trained adversarially; this recipe is an estimator's"
            )
        if not all(isinstance(h, Integral) and int(h) >= 1 for h in self.hidden):
            raise SettingError(
                f"hidden widths must be integers of at least 1, got {list(self.hidden)}"
            )
        for last in flat_layers(self.module)[-1:] if self.module is not None else ():
            if isinstance(last, nn.Softmax | nn.Sigmoid):
                raise SettingError(
                    f"the module ends in {type(last).__name__}, but is trained on its logits; "
                    "leave that layer out"
                )

    @classmethod
    def of(cls, model: "RecipeLike", **settings: Any) -> "Recipe":
        """The recipe of a torch module, a scikit-learn-style estimator, or a `Model` that wraps
        one."""
        # Take off what wraps an estimator: a recipe fits it anew, on its own tables.
        if isinstance(model, Recipe):
            return replace(model, **settings)
        inner: Any = model
        if isinstance(inner, BlackBox):
            settings = {"inputs": inner.inputs, **settings}
            inner = inner.wrapped.estimator if isinstance(inner.wrapped, InOrder) else inner.wrapped
        if isinstance(inner, TorchModel):
            _check_trainable(inner)
            inner = inner.module
        if isinstance(inner, nn.Module):
            return cls(module=inner, **settings)
        from holdfast.retraining.from_files import (
            booster_of,
            forgot,
            is_forgetful,
            lightgbm_estimator,
        )

        if is_forgetful(inner):
            raise forgot(inner)
        if (booster := booster_of(inner)) is not None:
            return cls(estimator=lightgbm_estimator(booster), **settings)
        if not isinstance(inner, type) and hasattr(inner, "fit") and hasattr(inner, "get_params"):
            return cls(estimator=inner, **settings)
        raise SettingError(
            f"cannot make a {type(inner).__name__} again: a recipe needs a torch module, or an "
            f"estimator with fit; {SAY_HOW}"
        )

    @property
    def is_regression(self) -> bool:
        """Does it make models that estimate a number?"""
        return self.estimator is not None and is_regressor(self.estimator)

    def names(self, X: pd.DataFrame, y: "pd.Series[Any]", classes: ClassNames | None) -> list[Any]:
        """The names of the classes in the order of the scores; none for a regression, whose
        outcomes are numbers."""
        if not self.is_regression:
            return class_names(X, y, classes)
        if classes is not None and len(classes):
            raise SettingError(
                f"a regressor has no classes, got {list(classes)}; leave classes out"
            )
        numbers(X, y)
        return []

    def network(self, inputs: int, classes: int) -> nn.Module:
        """The architecture for rows of `inputs` columns; its tensors are still to be filled."""
        if self.module is not None:
            return self.module
        # layers draw from the global generator when they are made; these must not
        with torch.device("meta"):
            return mlp(inputs, self.hidden, classes).to_empty(device="cpu")

    def check(self, schema: Schema, classes: Sequence[Any]) -> None:
        """Raise an error if a module of your own does not take these rows or return these
        classes."""
        if self.module is None:
            return
        try:
            Model.of(self.module, schema, classes=classes)
        except ModelError as error:
            raise ModelError(f"the recipe's module cannot be trained here: {error}") from None

    def start(self, module: nn.Module) -> Start:
        """Seed -> initial tensors."""
        return (
            (lambda seed: glorot(module, seed))
            if self.module is None
            else (lambda seed: redrawn(module, seed))
        )

    def train(
        self, x: Tensor, labels: Tensor, classes: int, variation: Variation, bar: Progress
    ) -> ModelStack:
        """The networks of a variation."""
        module = self.network(x.shape[1], classes)
        return fit_stack(module, self.start(module), x, labels, variation, self, bar)

    def fit(
        self,
        X: pd.DataFrame,
        y: Outcomes,
        schema: Schema,
        *,
        classes: ClassNames | None = None,
        seed: int = 0,
        sample_weight: ArrayLike | None = None,
        fit_params: Mapping[str, Any] | None = None,
        progress: bool = False,
    ) -> Model:
        """Make the model.

        Args:
            X, y, schema: n rows and their n classes (numbers, for a regressor), and how the rows
                become numbers.
            classes: the class names in the order of the scores; None sorts what is in `y`.
            seed: initial weights and the order of the rows come from it; your own generators stay
                as they are.
            sample_weight: how much each row counts; by default all alike.
            fit_params: what else an estimator's `fit` is given.
            progress: show a bar on stderr.
        """
        weight = None if sample_weight is None else weights_of(sample_weight, len(X))
        column = outcomes(X, y)
        names = self.names(X, column, classes)
        if self.estimator is not None:
            params = {} if weight is None else {weight_name(self.estimator): weight.numpy()}
            given = params | dict(fit_params or {})
            return EstimatorFit(
                self.estimator, self.inputs, X, column, schema, names, seed, params=given
            )().model
        if fit_params:
            raise SettingError("fit_params are for estimators; a network learns by its recipe")
        self.check(schema, names)
        with Progress(progress, "training") as bar:
            bar.total(1)
            labels = class_numbers(column, names)
            first = Variation((seed,), (seed,))
            if weight is not None:
                first = replace(first, emphasis=(weight / weight.mean()).float()[None])
            models = self.train(schema.encode(X), labels, len(names), first, bar)
        return Model.of(self.as_module(models, 0), schema, classes=names)

    def as_module(self, models: ModelStack, i: int) -> nn.Module:
        """Model i of a stack; layers of your own come back as they were."""
        if self.module is None:
            return models.module(i)
        net = copy.deepcopy(self.module)
        own = dict(zip(net.state_dict(), models.module(i).state_dict().values(), strict=True))
        net.load_state_dict(own)
        return net.eval()

    # ---- files

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in a recipe file."""
        if self.estimator is not None:
            name = type(self.estimator).__name__
            settings = written_settings(self.estimator)
            return {"estimator": name, "settings": settings, "inputs": self.inputs}
        shape: dict[str, Any] = {"hidden": list(self.hidden)}
        if self.module is not None:
            shape = {"layers": describe(self.module)}
            kinds = {p.dtype for p in self.module.parameters()} - {torch.float32}
            if kinds:
                shape["dtype"] = str(kinds.pop()).removeprefix("torch.")
        return {**shape, **{name: getattr(self, name) for name in _LOOP}}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Recipe":
        known: tuple[str, ...] = ("estimator", "settings", "inputs")
        if "estimator" not in content:
            known = (
                *_LOOP,
                *(("layers", "dtype") if "layers" in content else ("hidden", "estimator")),
            )
        unknown = [key for key in content if key not in known]
        if unknown:
            raise SettingError(
                f"unknown setting {unknown[0]!r} in the recipe; {did_you_mean(unknown[0], known)}"
            )
        settings = dict(content)
        try:
            if "estimator" in settings:
                estimator = named_estimator(settings["estimator"], settings.get("settings", {}))
                return cls(estimator=estimator, inputs=settings.get("inputs", "encoded"))
            if "layers" in settings:
                with lent_generator(0):  # layers draw weights when they are made
                    settings["module"] = build(settings.pop("layers"))
                settings["module"].to(DTYPES[settings.pop("dtype", "float32")])
            return cls(**settings)
        except HoldfastError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise SettingError(f"the recipe cannot be read: {error}") from None

    def save(self, path: str | Path) -> None:
        """A TOML file."""
        text = tomli_w.dumps(self.to_dict())
        with whole_file(path) as file:
            file.write(text.encode())

    @classmethod
    def load(cls, path: str | Path) -> "Recipe":
        """Read a TOML file with `hidden` (or `layers`), `epochs`, `batch_size`, `lr`; or
        `estimator`, `settings`."""
        try:
            content = tomllib.loads(read_bytes(path, MOST_BYTES).decode())
        except FileError:
            raise
        except OSError as error:
            raise FileError(f"cannot read {str(path)!r}: {error}") from None
        except (ValueError, RecursionError) as error:  # also numbers of too many digits
            raise FileError(f"{str(path)!r} is not TOML: {error}") from None
        return cls.from_dict(content)

    def widened(self, factor: float) -> "Recipe":
        """The same recipe with hidden layers `factor` times as wide."""
        if self.estimator is not None:
            raise SettingError("only networks can be made wider; this recipe is an estimator's")

        def wide(h: int) -> int:
            return max(1, round(h * factor))

        if self.module is None:
            return replace(self, hidden=tuple(wide(h) for h in self.hidden))
        layers = flat_layers(self.module)
        linear = [m for m in layers if isinstance(m, nn.Linear)]
        if not all(isinstance(m, nn.Linear) or not list(m.parameters()) for m in layers):
            raise SettingError(
                "only networks whose parameters are all in Linear layers can be made wider"
            )
        out = list[nn.Module]()
        for layer in layers:
            if isinstance(layer, nn.Linear):
                a = layer.in_features if layer is linear[0] else wide(layer.in_features)
                b = layer.out_features if layer is linear[-1] else wide(layer.out_features)
                kind = layer.weight.dtype
                bias = layer.bias is not None
                layer = nn.Linear(a, b, bias=bias, device="meta", dtype=kind).to_empty(device="cpu")
            out.append(copy.deepcopy(layer))
        return replace(self, module=nn.Sequential(*out))


def _check_trainable(model: TorchModel) -> None:
    """Raise a `SettingError` if training could not make such a network."""
    if model.is_regression:
        raise SettingError(
            "networks are trained as classifiers, and this one is a regression model; an "
            "estimator can be both"
        )
    if any(type(part).__module__.startswith(GRAPHS) for part in model.module.modules()):
        raise SettingError(f"cannot make the graph of an ONNX file again; {SAY_HOW}")
    if model.outputs != "logits":
        raise SettingError(
            "the model returns probabilities, but is trained on its logits; leave the last step out"
        )


RecipeLike = Recipe | nn.Module | Model | Estimator  # what `Recipe.of` takes


def train_network(
    X: pd.DataFrame,
    y: Outcomes,
    schema: Schema,
    *,
    classes: ClassNames | None = None,
    hidden: Sequence[int] = (64, 32),
    seed: int = 0,
    progress: bool = False,
    **loop: Any,
) -> Model:
    """Train a plain ReLU network and wrap it.

    Args:
        X, y, schema, classes, seed, progress: as for `Recipe.fit`.
        hidden: widths of the hidden layers.
        loop: epochs, batch_size, lr and other settings of a `Recipe`.

    Returns:
        The model of `Recipe(hidden=hidden, **loop)`.

    >>> import holdfast as hf
    >>> data = hf.datasets.german_credit().take(range(200))
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=5)
    >>> model.predict(data.X).shape
    (200,)
    """
    recipe = Recipe(hidden=tuple(hidden), **loop)
    return recipe.fit(X, y, schema, classes=classes, seed=seed, progress=progress)
