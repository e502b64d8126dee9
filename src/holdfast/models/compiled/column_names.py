"""Which columns of a table a fitted model was trained on, and in which order."""

from collections.abc import Sequence
from typing import Any

from holdfast.models.compiled.from_boosters import Boosted, BoostedNumbers, booster_names
from holdfast.models.compiled.preprocessing import is_passed, positions, type_name


def unwrapped(model: Any) -> Any:
    """The estimator behind a search over settings, or one that was frozen."""
    if hasattr(model, "best_estimator_"):
        return unwrapped(model.best_estimator_)
    return unwrapped(model.estimator) if type_name(model) == "sklearn.FrozenEstimator" else model


def _first(model: Any) -> Any:
    """The step of a pipeline that gets the table; for anything else, the model itself."""
    model = unwrapped(model)
    if type_name(model) != "sklearn.Pipeline":
        return model
    return next((_first(step) for _, step in model.steps if not is_passed(step)), model)


def trained_on(model: Any) -> list[str] | None:
    """The names of its columns, in its order; None if it does not know them."""
    if isinstance(model, Boosted | BoostedNumbers):
        return booster_names(model.booster)
    names = getattr(_first(model), "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def found_among(columns: Sequence[str], name: str) -> str | None:
    """The column of that name, where LightGBM writes 'a_b' for 'a b'."""
    return (
        name if name in columns else next((c for c in columns if c.replace(" ", "_") == name), None)
    )


def handed(model: Any, columns: Sequence[str]) -> list[str]:
    """The columns of a table that a model gets, in its order. All as they are if it has no names
    for them, or names for others too: LightGBM makes up its own for arrays, and a ColumnTransformer
    picks by name and may not miss one."""
    found = [found_among(columns, name) for name in trained_on(model) or []]
    known = [column for column in found if column is not None]
    return known if found and len(known) == len(found) else list(columns)


def lacking(model: Any, columns: Sequence[str]) -> list[str]:
    """The columns that a model reads and a table does not have."""
    names = trained_on(model) or []
    read = set(names)
    first = _first(model)
    if type_name(first) == "sklearn.ColumnTransformer":
        parts = [
            chosen
            for _, step, chosen in first.transformers_
            if not (isinstance(step, str) and step == "drop")
        ]
        read = {names[i] for chosen in parts for i in positions(chosen, names, len(names))}
    return [name for name in names if name in read and found_among(columns, name) is None]
