"""A recipe: how a model is made, so that it can be made again.

A network's recipe is its layers and the settings of the training loop; an estimator's recipe is the estimator
itself, unfitted. `recipe.fit(X, y, schema)` makes the model, `ModelBank.retrain(recipe, ...)` makes many.
"""

import copy
import inspect
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import tomli_w
import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast.errors import FileError, HoldfastError, ModelError, SettingError, did_you_mean, untyped
from holdfast.models.base import Inputs, Model
from holdfast.models.black_box import BlackBox
from holdfast.models.torch_model import TorchModel
from holdfast.nn.architecture import build, describe, flat_layers, mlp
from holdfast.nn.stack import ModelStack, lent_generator
from holdfast.retraining.loop import RobustLoop, Variation, fit_stack, glorot, redrawn
from holdfast.schema.schema import Schema

DTYPES = {"float32": torch.float32, "float64": torch.float64}
_LOOP = tuple(f.name for f in fields(RobustLoop))


@dataclass(frozen=True, kw_only=True)
class Recipe(RobustLoop):
    """How a model is made.

    Args:
        hidden: widths of a plain ReLU network (Glorot-uniform weights, zero biases).
        module: layers of your own instead; every layer draws its initial weights in its own way.
        estimator: a scikit-learn-style estimator instead; it is cloned, never fitted itself.
        inputs: what the estimator takes: the raw table ("frame") or encoded rows.
        epochs, batch_size, lr, weight_decay, adam_eps, optimizer: the training loop of networks.
        epsilon, attack, attack_steps, attack_norm, attack_box: adversarial training, see `RobustLoop`; every family of
            a bank is then trained that way.
    """

    hidden: tuple[int, ...] = (64, 32)
    module: nn.Module | None = None
    estimator: Any = None
    inputs: Inputs = "frame"

    def __post_init__(self) -> None:
        super().__post_init__()
        widths: Any = self.hidden
        if isinstance(widths, str) or not hasattr(widths, "__iter__"):
            raise SettingError(f"hidden must be a list of widths, got {widths!r}")
        object.__setattr__(self, "hidden", tuple(widths))
        if self.inputs not in ("frame", "encoded"):
            raise SettingError(f"inputs must be 'frame' or 'encoded', got {self.inputs!r}")
        if self.module is not None and self.estimator is not None:
            raise SettingError("a recipe has a module or an estimator, not both")
        if self.estimator is not None and self.epsilon:
            raise SettingError("only networks can be trained adversarially; this recipe is an estimator's")
        if any(not isinstance(h, Integral) or h < 1 for h in self.hidden):
            raise SettingError(f"hidden widths must be whole numbers of at least 1, got {list(self.hidden)}")
        last = flat_layers(self.module)[-1:] if self.module is not None else []
        if any(isinstance(m, nn.Softmax | nn.Sigmoid) for m in last):
            raise SettingError(
                f"the module ends in {type(last[0]).__name__}, but is trained on its logits; leave that layer out"
            )

    @classmethod
    def of(cls, model: Any, **settings: Any) -> "Recipe":
        """The recipe of a torch module, a scikit-learn-style estimator, or a `Model` that wraps one."""
        if isinstance(model, Recipe):
            return replace(model, **settings)
        if isinstance(model, Model) and model.is_regression:
            raise SettingError(
                "recipes train classifiers, and this model estimates a number; it cannot be retrained yet"
            )
        if isinstance(model, BlackBox):
            settings = {"inputs": model.inputs, **settings}
            model = model.wrapped
        if isinstance(model, TorchModel):
            if model.outputs != "logits":
                raise SettingError(
                    "the model returns probabilities, but is trained on its logits; leave the last step out"
                )
            model = model.module
        if isinstance(model, nn.Module):
            return cls(module=model, **settings)
        if not isinstance(model, type) and hasattr(model, "fit") and hasattr(model, "get_params"):
            return cls(estimator=model, **settings)
        raise SettingError(
            f"cannot make a {type(model).__name__} again: a recipe needs a torch module, or an estimator with fit"
        )

    def network(self, inputs: int, classes: int) -> nn.Module:
        """The architecture for rows of `inputs` columns; its tensors are still to be filled."""
        if self.module is not None:
            return self.module
        with torch.device("meta"):  # layers draw from the global generator when they are made; these must not
            return mlp(inputs, self.hidden, classes).to_empty(device="cpu")

    def check(self, schema: Schema, classes: Sequence[Any]) -> None:
        """Raise an error if a module of your own does not take these rows or return these classes."""
        if self.module is None:
            return
        try:
            Model.of(self.module, schema, classes=classes)
        except ModelError as error:
            raise ModelError(f"the recipe's module cannot be trained here: {error}") from None

    def start(self, module: nn.Module) -> Callable[[int], dict[str, Tensor]]:
        """Seed -> initial tensors."""
        return (lambda seed: glorot(module, seed)) if self.module is None else (lambda seed: redrawn(module, seed))

    def train(self, x: Tensor, labels: Tensor, classes: int, plan: Variation, bar: Progress) -> ModelStack:
        """The networks of a plan."""
        module = self.network(x.shape[1], classes)
        return fit_stack(module, self.start(module), x, labels, plan, self, bar)

    def fit(
        self,
        X: pd.DataFrame,
        y: "pd.Series[Any]",
        schema: Schema,
        *,
        classes: Sequence[Any] | None = None,
        seed: int = 0,
        progress: bool = False,
    ) -> Model:
        """Make the model.

        Args:
            X, y: the rows and their classes.
            schema: how the rows become numbers.
            classes: the class names in the order of the scores; None sorts what is in `y`.
            seed: initial weights and the order of the rows come from it; your own generators stay as they are.
        """
        y = outcomes(X, y)
        names = class_names(X, y, classes)
        if self.estimator is not None:
            return fitted_estimator(self, X, y, schema, names, seed)
        self.check(schema, names)
        with Progress(progress, "training") as bar:
            bar.total(1)
            x = schema.encode(X)
            models = self.train(x, class_numbers(y, names), len(names), Variation((seed,), (seed,)), bar)
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
            return {
                "estimator": type(self.estimator).__name__,
                "settings": written(self.estimator),
                "inputs": self.inputs,
            }
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
            known = (*_LOOP, *(("layers", "dtype") if "layers" in content else ("hidden", "estimator")))
        strange = [key for key in content if key not in known]
        if strange:
            raise SettingError(f"unknown setting {strange[0]!r} in the recipe; {did_you_mean(strange[0], known)}")
        settings = dict(content)
        try:
            if "estimator" in settings:
                made = named_estimator(settings["estimator"], settings.get("settings", {}))
                return cls(estimator=made, inputs=settings.get("inputs", "encoded"))
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
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise FileError(f"cannot write {str(path)!r}: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> "Recipe":
        """Read a TOML file with `hidden` (or `layers`), `epochs`, `batch_size`, `lr`; or `estimator`, `settings`."""
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise FileError(f"cannot read {str(path)!r}: {error}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FileError(f"{str(path)!r} is no TOML: {error}") from None
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
        if any(list(m.parameters()) and not isinstance(m, nn.Linear) for m in layers):
            raise SettingError("only networks whose parameters are all in Linear layers can be made wider")
        out = list[nn.Module]()
        for layer in layers:
            if isinstance(layer, nn.Linear):
                a = layer.in_features if layer is linear[0] else wide(layer.in_features)
                b = layer.out_features if layer is linear[-1] else wide(layer.out_features)
                kind, bias = layer.weight.dtype, layer.bias is not None
                layer = nn.Linear(a, b, bias=bias, device="meta", dtype=kind).to_empty(device="cpu")
            out.append(copy.deepcopy(layer))
        return replace(self, module=nn.Sequential(*out))


def class_names(X: pd.DataFrame, y: "pd.Series[Any]", classes: Sequence[Any] | None) -> list[Any]:
    """The classes in the order of the scores."""
    if len(X) != len(y) or not len(X):
        raise SettingError(f"need as many outcomes as rows and at least one, got {len(y)} for {len(X)} rows")
    if bool(y.isna().any()):
        raise SettingError(f"{int(y.isna().sum())} outcomes are missing; leave those rows out")
    seen = [plain(v) for v in y.unique()]
    names = [plain(v) for v in (sorted(seen) if classes is None else classes)]
    strange = [v for v in seen if v not in names]
    if strange or len(set(names)) < max(2, len(names)):
        raise SettingError(f"outcomes {strange or names} do not make at least two known classes {names}")
    return names


def outcomes(X: pd.DataFrame, y: Any) -> "pd.Series[Any]":
    """The outcomes as a column beside the rows, matched by position; an index in another order is no accident."""
    if not isinstance(y, pd.Series):
        values = np.asarray(y)
        if values.ndim != 1:
            raise SettingError(f"outcomes must be one per row, got shape {values.shape}")
        return pd.Series(values, index=X.index if len(values) == len(X) else None)
    column = cast("pd.Series[Any]", y)
    mine, theirs = X.index, column.index
    if len(mine) == len(theirs) and not mine.equals(theirs) and sorted(map(str, mine)) == sorted(map(str, theirs)):
        raise SettingError("rows and outcomes have the same index in another order; align them first")
    return column


@dataclass(frozen=True)
class InOrder:
    """An estimator whose classes are told in another order than it learnt them."""

    estimator: Any
    classes_: tuple[Any, ...]

    def predict_proba(self, rows: Any) -> Any:
        own = [plain(c) for c in self.estimator.classes_]
        return self.estimator.predict_proba(rows)[:, [own.index(c) for c in self.classes_]]


def plain(value: Any) -> Any:
    """A number of Python's own for one of NumPy's."""
    return value.item() if hasattr(value, "item") else value


def class_numbers(y: "pd.Series[Any]", names: Sequence[Any]) -> Tensor:
    place = {name: i for i, name in enumerate(names)}
    return torch.tensor([place[v] for v in y])


def fitted_estimator(
    recipe: Recipe, X: pd.DataFrame, y: "pd.Series[Any]", schema: Schema, names: Sequence[Any], seed: int
) -> Model:
    """A clone of the estimator, seeded wherever it has a `random_state`, and fitted."""
    clone = untyped("sklearn.base").clone(recipe.estimator)
    states = [name for name in clone.get_params() if name.split("__")[-1] == "random_state"]
    clone.set_params(**dict.fromkeys(states, seed % (1 << 32)))
    rows: Any = X if recipe.inputs == "frame" else schema.encode(X, torch.float64).numpy()
    kind = type(clone).__name__
    try:
        clone.fit(rows, y.to_numpy())
    except (TypeError, ValueError) as error:
        raise ModelError(f"the estimator ({kind}) could not be fitted: {error}") from error
    if not hasattr(clone, "classes_"):
        raise ModelError(f"the estimator ({kind}) learns no classes; a recipe needs a classifier")
    own = [plain(c) for c in clone.classes_]
    if set(own) != set(names):
        raise SettingError(f"the estimator learnt the classes {own}, expected {list(names)}")
    if own != list(names):
        if not hasattr(clone, "predict_proba"):
            raise SettingError(f"the estimator has the classes in the order {own}, expected {list(names)}")
        return Model.of(InOrder(clone, tuple(names)), schema, inputs=recipe.inputs)
    return Model.of(clone, schema, inputs=recipe.inputs)


def named_estimator(name: str, settings: dict[str, Any]) -> Any:
    """One of scikit-learn's own classifiers; a file cannot name anything else."""
    known = classifiers()
    if name not in known:
        raise SettingError(f"unknown estimator {name!r} in the recipe; {did_you_mean(name, known)}")
    return known[name](**settings)


def classifiers() -> dict[str, Any]:
    """scikit-learn's own classifiers by name."""
    return dict(cast(list[tuple[str, Any]], untyped("sklearn.utils").all_estimators(type_filter="classifier")))


def written(estimator: Any) -> dict[str, Any]:
    """The settings of an estimator that a file can hold; an error rather than a file that makes another model."""
    kind = cast(Any, type(estimator))
    if classifiers().get(kind.__name__) is not kind:
        raise SettingError(f"cannot write down a {kind.__name__}; only scikit-learn's own classifiers can be")
    usual = {name: p.default for name, p in inspect.signature(kind).parameters.items()}
    out = dict[str, Any]()
    for name, value in estimator.get_params(deep=False).items():
        if value is usual[name] or (isinstance(value, str | float | int) and value == usual[name]):
            continue
        many = isinstance(value, list | tuple)
        values = [plain(v) for v in (cast(list[Any], value) if many else [value])]
        if not all(isinstance(v, bool | int | float | str) for v in values):
            raise SettingError(f"cannot write down {name}={value!r} of a {kind.__name__}")
        out[name] = values if many else values[0]
    return out


def train_network(
    X: pd.DataFrame,
    y: "pd.Series[Any]",
    schema: Schema,
    *,
    classes: Sequence[Any] | None = None,
    hidden: Sequence[int] = (64, 32),
    seed: int = 0,
    progress: bool = False,
    **loop: Any,
) -> Model:
    """Train a plain ReLU network and wrap it: `Recipe(hidden=hidden, **loop).fit(...)`."""
    recipe = Recipe(hidden=tuple(hidden), **loop)
    return recipe.fit(X, y, schema, classes=classes, seed=seed, progress=progress)
