"""LightGBM models, read from their text format (`lightgbm_text`) by LightGBM's own reader, after we
have checked the text and written it anew."""

import contextlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from holdfast._core.checks import optional
from holdfast.errors import FileError
from holdfast.models.formats.lightgbm_text import NUMBERS, parse, written
from holdfast.models.formats.loaded import Description, LoadedModel
from holdfast.models.formats.sandbox import try_in_child
from holdfast.models.formats.tree_checks import columns_of

if TYPE_CHECKING:
    from holdfast.schema.schema import Schema

BARE = r"Column_\d+"  # the names given to unnamed columns


def checked(data: bytes, schema: "Schema | None") -> bytes:
    """Text for LightGBM's own reader, written anew from what was checked; if the model takes the
    table, its columns must be those of the schema."""
    return _checked(parse(data), schema)


def _checked(model: dict[str, Any], schema: "Schema | None") -> bytes:
    if schema is not None:
        columns_of(model["names"], schema, BARE)
    return written(model).encode()


def load(
    data: bytes, schema: "Schema", *, trust: bool = False, inputs: str | None = None
) -> LoadedModel:
    """LightGBM's own booster, read from text that was checked, and tried in a child process."""
    model = parse(data)
    text = _checked(model, schema)
    optional("lightgbm", "trees")
    if not trust:
        try_in_child("lightgbm", text)
    return LoadedModel(
        made(text), None if model["objective"][0] in NUMBERS else range(max(model["classes"], 2))
    )


def made(text: bytes) -> Any:
    """The booster in text that was checked."""
    return _loaded(text.decode())


def estimator(text: bytes, classes: Sequence[Any]) -> Any:
    """LightGBM's own classifier of these classes, or its regressor if there are none, with the
    booster in text that was checked. It learns all it knows of itself from a few rows; then it gets
    the booster."""
    booster = made(text)
    library = optional("lightgbm", "trees")
    objective = text.decode().partition("\nobjective=")[2].split()[0]
    kind = library.LGBMClassifier if classes else library.LGBMRegressor
    labels: Sequence[Any] = list(classes) or [1.0, 2.0]
    rows: Any = np.zeros((len(labels), booster.num_feature()))
    if not all(re.fullmatch(BARE, name) for name in booster.feature_name()):
        rows = pd.DataFrame(rows, columns=booster.feature_name())
    out = kind(n_estimators=1, objective=objective, min_child_samples=1, n_jobs=1, verbose=-1).fit(
        rows, labels
    )
    out._Booster = booster
    return out


def _loaded(text: str) -> Any:
    try:
        return optional("lightgbm", "trees").Booster(model_str=text)
    except Exception as error:
        raise FileError(f"LightGBM cannot read the file: {error}") from None


def try_out(text: bytes) -> None:
    """Load the model that `load` wrote, and predict two rows of zeros."""
    booster = made(text)
    with contextlib.suppress(Exception):  # it may need columns of categories; only a crash counts
        booster.predict(np.zeros((2, booster.num_feature())), num_threads=1)


def describe(data: bytes) -> Description:
    model = parse(data)
    details = {"trees": len(model["trees"]), "objective": model["objective"][0]}
    return Description.of_trees(
        model["names"], None if details["objective"] in NUMBERS else model["classes"], details
    )
