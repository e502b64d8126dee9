"""Banks as files: one safetensors file that runs no code, whatever the models are.

Networks are stacked tensors. Any other model is bytes in its library's format, as a tensor of
uint8: XGBoost's UBJSON, LightGBM's text, skops for scikit-learn. In a pipeline that ends in a
booster, skops has the steps before it, and the booster its own format. They are read under the
checks of single files, see `holdfast.models.formats`, and tried in one child process first.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from zipfile import ZIP_DEFLATED

import torch
from torch import Tensor

from holdfast._core.checks import optional
from holdfast._core.seal import sealed, unsealed
from holdfast.errors import FileError, HoldfastError, ModelError
from holdfast.models.base import Model
from holdfast.models.black_box import BlackBox
from holdfast.models.compiled.column_names import unwrapped
from holdfast.models.compiled.from_boosters import Boosted, BoostedNumbers, is_xgboost
from holdfast.models.compiled.preprocessing import type_name
from holdfast.models.formats import lightgbm, safetensors, sandbox, xgboost
from holdfast.models.formats.sandbox import Format
from holdfast.models.formats.skops import reader as skops
from holdfast.models.io import from_parts
from holdfast.models.torch_model import TorchModel
from holdfast.nn.architecture import build, describe, flat_layers
from holdfast.nn.module_stack import stack_of
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.estimators import BOOSTERS, InOrder
from holdfast.retraining.fitted import FittedEstimator, FittedEstimators
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.outcomes import plain
from holdfast.retraining.stored_recipe import (
    Parts,
    as_tensors,
    read_recipe,
    recipe_entry,
    steps_before,
)
from holdfast.schema.schema import Schema

MARK = "holdfast_bank"
FORMAT = 1
READERS: dict[str, Any] = {"skops": skops, "xgboost": xgboost, "lightgbm": lightgbm}
Packed = tuple[dict[str, Any], dict[str, Tensor]]


# ---- writing


def save_bank(bank: ModelBank, path: str | Path) -> None:
    """Write all models, the recipe and the schema to one file; if one cannot be written, the error
    comes before the file."""
    write_packed(packed(bank), path)


def write_packed(bank: Packed, path: str | Path) -> None:
    """Write what `packed` made of a bank."""
    content, tensors = bank
    safetensors.write(path, tensors, {MARK: content})


def packed(bank: ModelBank) -> Packed:
    """What a file holds of a bank: words, which are sealed, and tensors."""
    tensors = dict[str, Tensor]()
    groups = list[dict[str, Any]]()
    # The model in use, if judges are led away from it, is a group of its own after the others.
    around = () if bank.around is None else ModelBank.of(bank.around, family="in use").groups
    for i, group in enumerate((*bank.groups, *around)):
        entry, own = (
            _network_entry(group) if group.networks is not None else _entry(group, bank.schema)
        )
        about = {
            "family": group.family,
            "models": len(group),
            "origins": list(group.origins),
            "spread": group.spread,
        }
        groups.append(about | entry)
        tensors |= {f"{i}/{name}": value for name, value in own.items()}
    recipe, own = recipe_entry(bank.recipe)
    tensors |= {f"recipe/{name}": value for name, value in own.items()}
    content = {
        "groups": groups,
        "schema": bank.schema.to_dict(),
        "classes": list(bank.classes),
        "recipe": recipe,
        "seed": bank.seed,
        "around": bool(around),
    }
    return sealed("bank", FORMAT, content, safetensors.in_bytes(tensors)), tensors


def _network_entry(group: ModelGroup) -> tuple[dict[str, Any], dict[str, Tensor]]:
    assert group.networks is not None
    module = group.networks.module(0)
    state = group.networks.state()
    flat = [
        f"{j}.{name}" for j, layer in enumerate(flat_layers(module)) for name in layer.state_dict()
    ]
    names = zip(flat, module.state_dict(), strict=True)
    return {"architecture": describe(module)}, {new: state[old].contiguous() for new, old in names}


def _entry(group: ModelGroup, schema: Schema) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a file holds of models that are not a stack of networks: each in words, and in
    tensors."""
    how = list[dict[str, Any]]()
    tensors = dict[str, Tensor]()
    for j, model in enumerate(group.judges()):
        words, own = _written(model, schema, check=not j)
        how.append(words)
        tensors |= {f"{j}/{name}": value for name, value in own.items()}
    return {"how": how}, tensors


def _written(
    model: Model, schema: Schema, *, check: bool
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if isinstance(model, TorchModel):
        tensors, content = model.contents()
        return {"torch": content["holdfast"]}, tensors
    kind = model.name if isinstance(model, BlackBox) else type(model).__name__
    try:
        if not isinstance(model, BlackBox):
            raise ModelError("it is neither a network nor an estimator")
        words, parts = _estimator_parts(model)
        for name, data in parts.items() if check else ():
            READERS[name].checked(data, schema if words["table"] else None)
    except (HoldfastError, NotImplementedError, TypeError, ValueError, AttributeError) as error:
        fix = "keep the recipe and the seed, and make the bank again"
        raise ModelError(
            f"a bank of models like this one ({kind}) cannot be saved: {error}; {fix}"
        ) from None
    return words | {"parts": list(parts)}, as_tensors(parts)


def _estimator_parts(model: BlackBox) -> tuple[dict[str, Any], Parts]:
    """An estimator in words and bytes.

    Boosters are written by their own libraries, in formats that are read without running code; the
    steps before one in a pipeline, and any other estimator, by skops.
    """
    # words say what wraps it, and the reader puts that around it again
    inner = model.wrapped
    words = dict[str, Any]()
    if isinstance(inner, InOrder):
        inner = inner.estimator
        words["in_order"] = True
    inner = unwrapped(inner)
    words |= {
        "inputs": model.inputs,
        "outputs": model.outputs,
        "bare": isinstance(inner, Boosted | BoostedNumbers),
    }
    steps = inner.steps if type_name(inner) == "sklearn.Pipeline" else [("", inner)]
    last = unwrapped(steps[-1][1])
    parts = Parts()
    words["table"] = model.inputs == "frame" and last is inner
    words["learnt"] = [plain(c) for c in getattr(last, "classes_", ())]
    booster = last.booster if words["bare"] else _booster(last)
    if booster is None:
        if callable(inner) and not hasattr(inner, "predict"):
            raise ModelError("a function cannot be written down")
        data = optional("skops.io", "files").dumps(inner, compression=ZIP_DEFLATED)
        return words, {"skops": skops.without_searches(data)}
    if last is not inner:
        parts["skops"] = steps_before(inner)
    if is_xgboost(booster):
        parts["xgboost"] = bytes(booster.save_raw("ubj"))
    else:
        parts["lightgbm"] = booster.model_to_string().encode()
    return words, parts


def _booster(estimator: Any) -> Any:
    """The booster inside an estimator of XGBoost or LightGBM; None for any other."""
    if type(estimator).__name__ not in BOOSTERS:
        return None
    return (
        estimator.get_booster()
        if type_name(estimator).startswith("xgboost.")
        else estimator.booster_
    )


# ---- reading


@dataclass(frozen=True)
class _Found:
    """A model in a file, not yet made."""

    words: dict[str, Any]
    parts: Parts
    is_checked: bool = False

    def checked(self, schema: Schema) -> "_Found":
        table = schema if self.words["table"] else None
        parts = self.parts.copy()
        for name, data in self.parts.items():
            parts[name] = READERS[name].checked(data, table)
        return _Found(self.words, parts, True)

    def made(self, schema: Schema, classes: tuple[Any, ...]) -> FittedEstimator:
        words = self.words
        last: Any = None
        if "xgboost" in self.parts:
            last = xgboost.made(self.parts["xgboost"], regression=not classes)
            last = last.get_booster() if words["bare"] else last
        elif "lightgbm" in self.parts:
            text = self.parts["lightgbm"]
            learnt = list(words["learnt"])
            last = lightgbm.made(text) if words["bare"] else lightgbm.estimator(text, learnt)
        inner = last
        if "skops" in self.parts:
            data = self.parts["skops"]
            own = optional("skops.io", "files").loads
            inner = skops.made(data) if self.is_checked else own(data, trusted=skops.TRUSTED)
            if last is not None:
                inner.steps[-1] = (inner.steps[-1][0], last)
        if words.get("in_order"):
            inner = InOrder(inner, classes)
        return FittedEstimator(inner, schema, classes, words["inputs"], words["outputs"])


def load_bank(
    path: str | Path,
    *,
    trust: bool = False,
    schema: Schema | None = None,
    digest: str | None = None,
) -> ModelBank:
    """Read a bank; on request under another schema with the same encoding, or only if it has a
    given digest. `trust` is for one's own files: only types on the list are made, whatever the
    file, and nothing else is checked before models are used."""
    if not Path(path).is_file():
        raise FileError(f"no bank at {str(path)!r}")
    try:
        metadata, tensors = safetensors.read(path)
        marked = json.loads(metadata[MARK])
        content = unsealed("bank", FORMAT, marked, safetensors.in_bytes(tensors))
        if digest not in (None, marked["digest"]):
            raise FileError("it is not the bank that was saved")
        schema = schema or Schema.from_dict(content["schema"])
        classes = tuple(content["classes"])
        own = [_own(tensors, str(i)) for i in range(len(content["groups"]))]
        found = [
            _found_in(entry, mine, schema)
            for entry, mine in zip(content["groups"], own, strict=True)
        ]
        recipe, tried = read_recipe(content["recipe"], _own(tensors, "recipe"))
        if not trust:
            found = [
                [m.checked(schema) if isinstance(m, _Found) else m for m in group]
                for group in found
            ]
            models = [model for group in found for model in group if isinstance(model, _Found)]
            sandbox.try_all_in_child(
                tried + [part for model in models for part in model.parts.items()]
            )
        groups = [
            _stack(entry, mine) if "how" not in entry else _group(entry, models, schema, classes)
            for entry, mine, models in zip(content["groups"], own, found, strict=True)
        ]
        bank = ModelBank(tuple(groups), schema, classes, recipe(), int(content["seed"]))
        if content["around"]:
            in_use = replace(bank, groups=bank.groups[-1:])
            bank = replace(bank, groups=bank.groups[:-1], around=in_use.model(0))
        return bank if trust else _checked(bank)
    except Exception as error:  # the file may say anything
        what = f"{type(error).__name__}: {error}"
        raise FileError(
            f"{str(path)!r} is not a readable bank ({what}); make one with `ModelBank.save`"
        ) from None


def _own(tensors: Mapping[str, Tensor], first: str) -> dict[str, Tensor]:
    """The tensors under a name."""
    return {
        name.partition("/")[2]: v for name, v in tensors.items() if name.partition("/")[0] == first
    }


def _found_in(
    entry: dict[str, Any], tensors: dict[str, Tensor], schema: Schema
) -> "list[_Found | Model]":
    """The models of a group that is not a stack of networks."""
    return [
        _found(words, _own(tensors, str(j)), schema) for j, words in enumerate(entry.get("how", ()))
    ]


def _found(words: dict[str, Any], tensors: dict[str, Tensor], schema: Schema) -> "_Found | Model":
    if "torch" in words:
        return from_parts("the bank", words["torch"], tensors, schema)
    for name, value in tensors.items():
        if not (name in READERS and value.dtype == torch.uint8 and value.ndim == 1):
            raise FileError(f"it has a model in an unknown format {name!r}")
    data: Parts = {cast(Format, name): value.numpy().tobytes() for name, value in tensors.items()}
    if set(data) != set(words["parts"]):
        raise FileError("a part of a model is missing")
    return _Found(words, data)


def _group(
    entry: dict[str, Any],
    found: Sequence["_Found | Model"],
    schema: Schema,
    classes: tuple[Any, ...],
) -> ModelGroup:
    if len(found) != entry["models"]:
        raise ModelError(
            f"family {entry['family']!r} has {len(found)} models, and says {entry['models']}"
        )
    origins = tuple(str(origin) for origin in entry["origins"])
    fitted = [model.made(schema, classes) for model in found if isinstance(model, _Found)]
    modules = tuple(model for model in found if isinstance(model, Model))
    if fitted and modules:
        raise ModelError(f"family {entry['family']!r} mixes kinds of models")
    return ModelGroup(
        str(entry["family"]), None, modules or FittedEstimators(fitted), origins, _spread(entry)
    )


def _checked(bank: ModelBank) -> ModelBank:
    """The bank itself; each of its models takes its rows and has its classes."""
    for group in bank.checked().groups:
        for model in group.judges():
            if tuple(model.classes) != bank.classes:
                raise ModelError(
                    f"a model of family {group.family!r} has the classes {list(model.classes)}"
                )
    return bank


def _stack(entry: dict[str, Any], own: dict[str, Tensor]) -> ModelGroup:
    """A group of networks."""
    with torch.device("meta"):  # the file only claims these sizes
        module = build(entry["architecture"])
    expected = {name: (entry["models"], *v.shape) for name, v in module.state_dict().items()}
    for name, shape in expected.items():
        if name not in own or tuple(own[name].shape) != shape:
            raise ModelError(
                f"tensor {name!r} of family {entry['family']!r} does not fit its architecture"
            )
    dtypes = {v.dtype for name, v in own.items() if name in expected and v.is_floating_point()}
    if len(dtypes) != 1:
        raise ModelError(f"family {entry['family']!r} mixes kinds of floating-point numbers")
    models = stack_of(module.to_empty(device="cpu").to(dtypes.pop()), int(entry["models"]))
    models.load(own)
    origins = tuple(str(origin) for origin in entry["origins"])
    return ModelGroup(str(entry["family"]), models, origins=origins, spread=_spread(entry))


def _spread(entry: dict[str, Any]) -> float:
    spread = float(entry["spread"])
    if not 1 <= spread < math.inf:
        raise ModelError(
            f"family {entry['family']!r} lies {spread} times as far from the model in use as it can"
        )
    return spread
