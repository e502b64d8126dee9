"""A folder of models made before: retraining again reads them, and goes on where it was
stopped.

Every file is a bank of some models (`retraining.store`), in a folder for what they learnt from and
the versions of the libraries that made them. A model is known by its origin, whatever it was asked
for together with. A file is written under another name first, so it is there wholly or not at all.
One that is damaged is set aside under the ending .damaged, and one that cannot be read, such as
another user's, is left as it is; their models are made again. Models that cannot be kept are used
all the same.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from holdfast._core.progress import Progress
from holdfast.errors import FileError, ModelError
from holdfast.models.compiled.decision_rule import core
from holdfast.models.compiled.preprocessing import type_name
from holdfast.models.formats import safetensors
from holdfast.nn.module_stack import stack_of
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.fitted import FittedEstimators
from holdfast.retraining.loop import Variation
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.store import MARK, load_bank, save_bank

FORMAT = 1  # of these files, and of making models from a recipe: no other is read
PART = 25  # models of a file
Place = tuple[ModelGroup, int]  # where a model is: which one of a group


def cached(
    folder: str | Path,
    run: BaseRun,
    variation: Variation,
    make: Callable[[Variation], ModelGroup],
    bar: Progress,
) -> ModelGroup:
    """The models of a variation: those in the folder, and the others, which are made and kept
    there."""
    place = Path(folder) / _key(run)
    origins = run.origins(variation)
    found = _read(place, set(origins), run)
    keep = True
    bar.step(sum(origin in found for origin in origins))
    first = {origin: i for i, origin in reversed(list(enumerate(origins)))}  # one of any copies
    missing = sorted(i for origin, i in first.items() if origin not in found)
    for at in range(0, len(missing), PART):
        group = make(variation[missing[at : at + PART]])
        found |= {origin: (group, j) for j, origin in enumerate(group.origins)}
        keep = keep and _keep(place, group, run)
    return _gathered([found[origin] for origin in origins], origins)


def _key(run: BaseRun) -> str:
    """A short hash of what models learn from and who makes them; the rest is in their origins."""
    libraries = (
        {"torch"}
        if run.recipe.estimator is None
        else {"scikit-learn", _library(run.recipe.estimator)}
    )
    versions = [(name, _version(name)) for name in sorted(libraries)]
    digest = hashlib.sha256(f"{FORMAT} {versions} {run.schema.encoding_key} {run.classes}".encode())
    for part in (run.X, run.y.to_frame("outcome")):
        digest.update(f"{list(part.columns)} {[str(dtype) for dtype in part.dtypes]}".encode())
        digest.update(pd.util.hash_pandas_object(part, index=False).to_numpy().tobytes())
    return digest.hexdigest()[:16]


def _library(estimator: Any) -> str:
    name = type_name(core(estimator)).partition(".")[0]
    return "scikit-learn" if name == "sklearn" else name


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:  # a class of the user's own
        return ""


def _read(place: Path, wanted: set[str], run: BaseRun) -> dict[str, Place]:
    """Where the wanted models are, among those in the folder, by their origins."""
    found = dict[str, Place]()
    for path in sorted(place.glob("*.safetensors")):
        if not _is_readable(path):
            continue
        try:
            if not path.is_file():
                raise FileError("it is not a regular file")
            content = json.loads(safetensors.metadata_of(path)[MARK])
            held = {str(origin) for group in content["groups"] for origin in group["origins"]}
            if not held & wanted - set(found):
                continue
            for group in load_bank(path, trust=True, schema=run.schema).groups:
                _check_kind(group, run)
                found |= {
                    origin: (group, j) for j, origin in enumerate(group.origins) if origin in wanted
                }
        except Exception as error:  # the file may say anything
            _warn(f"{str(path)!r} in the cache is damaged, so its models are made again: {error}")
            with suppress(OSError):
                os.replace(path, path.with_suffix(".damaged"))
    return found


def _is_readable(path: Path) -> bool:
    """May this process read a file? What it may not read is another's, and not damaged."""
    try:
        os.close(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)))
    except OSError as error:
        _warn(
            f"{str(path)!r} in the cache cannot be read, so its models are made again: "
            f"{error.strerror or error}"
        )
        return False
    return True


def _check_kind(group: ModelGroup, run: BaseRun) -> None:
    """An error unless these can be models of the recipe, each with its origin."""
    if (group.networks is None) == (run.recipe.estimator is None):
        raise FileError("its models are of another kind than those of the recipe")
    if len(group.origins) != len(group):
        raise FileError(f"it has {len(group)} models, and {len(group.origins)} origins")


def _warn(text: str) -> None:
    """Tell whoever asked for the models."""
    warnings.warn(text, stacklevel=6)


def _keep(place: Path, group: ModelGroup, run: BaseRun) -> bool:
    """Write some models; False if they cannot be written."""
    name = hashlib.sha256(" ".join(group.origins).encode()).hexdigest()[:16]
    path = place / f"{name}.safetensors"
    try:
        place.mkdir(parents=True, exist_ok=True)
        save_bank(ModelBank((group,), run.schema, run.classes, None, run.seed), path)
    except (FileExistsError, NotADirectoryError) as error:  # the folder is none
        raise FileError(f"cannot write to the cache {str(place)!r}: {error}") from None
    except (ModelError, FileError, OSError) as error:
        _warn(f"the cache cannot keep these models: {error}")
        return False
    return True


def _gathered(places: Sequence[Place], origins: tuple[str, ...]) -> ModelGroup:
    """One group of models from several, of one architecture, in this order."""
    first = places[-1][0]  # preferably one made just now, not one that was read
    if first.networks is None:
        fitted = [
            group.estimators.fitted[j]
            for group, j in places
            if isinstance(group.estimators, FittedEstimators)
        ]
        return ModelGroup(first.family, estimators=FittedEstimators(fitted), origins=origins)
    whole = stack_of(first.networks.module(0), len(places))
    states = {
        id(group): list(group.networks.state().values())
        for group, _ in places
        if group.networks is not None
    }
    for k, value in enumerate(whole.state().values()):
        value.copy_(torch.stack([states[id(group)][k][j] for group, j in places]))
    return ModelGroup(first.family, whole, origins=origins)
