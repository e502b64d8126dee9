"""Models and methods as a comparison needs them: wrapped, of one encoding, fitted, and checked."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pandas as pd
import torch
from torch import nn

from experiments.altmeyer2025.repeats import Array
from holdfast._core.checks import require_integer
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.models.base import Model
from holdfast.retraining.outcomes import class_names, outcomes
from holdfast.schema.schema import Schema


def named_models(models: Any, names: Sequence[str] | None) -> dict[str, Any]:
    if isinstance(models, Mapping):
        if names is not None:
            raise SettingError("names are for a list of models; these have names already")
        out = {str(name): model for name, model in cast(Mapping[Any, Any], models).items()}
    else:
        each = list(cast(Sequence[Any], models)) if isinstance(models, Sequence) else [models]
        names = (
            [f"model {i}" for i in range(1, len(each) + 1)]
            if names is None
            else [str(name) for name in names]
        )
        same = len(set(names)) == len(each) == len(names)
        if not same:
            raise SettingError(
                f"need a name of its own for each of {len(each)} models, got {names}"
            )
        out = dict(zip(names, each, strict=True))
    if len(out) < 2:
        raise SettingError(f"need at least two models, the first to compare with; got {len(out)}")
    return out


def wrapped_models(
    named: dict[str, Any], X: pd.DataFrame, y: Any, schema: Schema | None
) -> tuple[dict[str, Model], "pd.Series[Any]"]:
    """All as models of one encoding and the same classes; and the outcomes beside the rows."""
    for name, model in named.items():
        estimates = isinstance(model, Model) and model.is_regression
        if estimates:
            raise SettingError(f"{name!r} is a regression model; only classifiers can be compared")
    y = outcomes(X, y)
    own = next((model.classes for model in named.values() if isinstance(model, Model)), None)
    classes = class_names(X, y, own)
    out = dict[str, Model]()
    for name, model in named.items():
        if isinstance(model, Model):
            out[name] = model
        elif isinstance(model, nn.Module):
            if schema is None:
                raise SettingError(
                    f"{name!r} is a bare torch module; pass schema=, or wrap it with hf.Model.of"
                )
            out[name] = Model.of(model, schema, classes=classes)
        else:
            kind = type(model).__name__
            raise SettingError(
                f"{name!r} is a {kind}, neither a Model nor a torch module; wrap it with "
                "hf.Model.of"
            )
    (first, plain), *rest = out.items()
    x = plain.schema.encode(X, torch.float64)
    for name, model in rest:
        if model.classes != plain.classes:
            raise SettingError(
                f"{first!r} has the classes {plain.classes}, {name!r} {model.classes}"
            )
        same = model.schema.names == plain.schema.names and model.schema.width == plain.schema.width
        same = same and torch.equal(model.schema.encode(X, torch.float64), x)
        if not same:
            raise SettingError(
                f"{first!r} and {name!r} encode rows differently, so distances do not compare; "
                "use one schema"
            )
    return out, y


def predicted_classes(model: Model, X: pd.DataFrame) -> Array:
    """(n,) numbers of the classes that the model gives."""
    with model.eval_mode():
        return model.score_frame(X).argmax(1).numpy()


def holding(model: Model, features: Sequence[str]) -> Model:
    """The same model for people who cannot change these features."""
    return model.with_schema(
        model.schema.change(**{name: {"change": "fixed"} for name in features})
    )


def fitted(method: Explainer, X: pd.DataFrame, y: "pd.Series[Any]", model: Model) -> Explainer:
    """The method, fitted for this model if it learns from data."""
    if not (method.needs_data or method.is_fitted):
        return method
    fresh: Any = type(method)(**method.get_params(deep=False))
    return fresh.fit(model, X, y)


def with_settings(method: Explainer, settings: dict[str, Any]) -> Explainer:
    """A copy with those settings that it has."""
    known = method.get_params(deep=False)
    return copy.copy(method).set_params(**{k: v for k, v in settings.items() if k in known})


def check_settings(
    method: Any, repeats: Any, rows: Any, energies: Any, attacks: Any, seed: Any
) -> None:
    if not isinstance(method, Explainer):
        raise SettingError(f"method must be an explainer, like hf.ECCCo(), got {method!r}")
    count = method.n_counterfactuals
    if count != 1:
        raise SettingError(
            f"a comparison takes one answer per row, {type(method).__name__} has {count}"
        )
    require_integer("repeats", repeats)
    require_integer("rows", rows)
    for name, values in {"energies": energies, "attacks": attacks}.items():
        wrong = [
            v for v in values if not (isinstance(v, int | float) and math.isfinite(v) and v >= 0)
        ]
        if wrong:
            raise SettingError(f"{name} must be numbers and at least 0, got {wrong[0]!r}")
    require_integer("seed", seed, 0)
    if len(energies) <= 0:
        raise SettingError("need at least one energy, like energies=[5.0]")
