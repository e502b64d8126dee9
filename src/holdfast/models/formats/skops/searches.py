"""Searches in the schema of a skops file, and the models they found, which are all that is read of
them.

    GridSearchCV and the like      their `best_estimator_`
    TunedThresholdClassifierCV     a FixedThresholdClassifier of its `estimator_`, its
                                   `best_threshold_`, and the label that its scorer takes as
                                   positive

A search holds scorers, splitters and distributions: code by name, which no prediction needs. Of the
scorer of a threshold only its label is read, which is written in the file, or is the default of a
function of scikit-learn.
"""

import json
from inspect import signature
from typing import Any, cast

from holdfast._core.checks import untyped
from holdfast.errors import FileError, UnsafeFileError

MOST_DEPTH = 200
_THRESHOLDS = "sklearn.model_selection._classification_threshold"
_KEPT = ("response_method", "n_features_in_", "feature_names_in_", "_sklearn_version")


def found(value: Any, depth: int = 0) -> Any:
    """A part of the schema with what its searches found; the same value if it has no
    search."""
    if depth > MOST_DEPTH:
        raise FileError("schema.json is nested too deeply")
    if isinstance(value, list):
        items = cast(list[Any], value)
        new = [found(item, depth + 1) for item in items]
        return items if all(a is b for a, b in zip(new, items, strict=True)) else new
    if not isinstance(value, dict):
        return value
    entry = cast(dict[str, Any], value)
    held = content_of(entry) if entry.get("__loader__") == "ObjectNode" else None
    place = str(entry.get("__module__"))
    name = str(entry.get("__class__"))
    if (
        held is not None
        and place.startswith("sklearn.model_selection._search")
        and name.endswith("SearchCV")
    ):
        best = held.get("best_estimator_")
        return found(best, depth + 1) if isinstance(best, dict) else entry
    if held is not None and (place, name) == (_THRESHOLDS, "TunedThresholdClassifierCV"):
        # What was not fitted is left for the list of types to refuse.
        return (
            found(_fixed(entry, held), depth + 1)
            if {"estimator_", "best_threshold_"} <= held.keys()
            else entry
        )
    changed = {key: found(inner, depth + 1) for key, inner in entry.items()}
    return entry if all(changed[key] is entry[key] for key in entry) else changed


def content_of(entry: dict[str, Any]) -> dict[str, Any] | None:
    """The attributes of an object, each an entry."""
    inner = entry.get("content")
    held = cast(dict[str, Any], inner).get("content") if isinstance(inner, dict) else None
    return cast(dict[str, Any], held) if isinstance(held, dict) else None


def _fixed(entry: dict[str, Any], held: dict[str, Any]) -> dict[str, Any]:
    """The entry of a classifier that puts the threshold found on the model
    fitted."""
    attributes = {
        "estimator": held["estimator_"],
        "estimator_": held["estimator_"],
        "threshold": held["best_threshold_"],
        "pos_label": _positive(held.get("_curve_scorer")),
        **{name: held[name] for name in _KEPT if name in held},
    }
    names = _entry("list", "ListNode", [_entry("str", "TypeNode") for _ in attributes])
    content = {**_entry("dict", "DictNode", attributes), "key_types": names}
    return {**entry, "__class__": "FixedThresholdClassifier", "content": content}


def _entry(kind: str, loader: str, content: Any = None) -> dict[str, Any]:
    """An entry without a number, so that skops never takes it for another one."""
    more = {} if content is None else {"content": content}
    return {"__module__": "builtins", "__class__": kind, "__loader__": loader, **more}


def _positive(scorer: Any) -> dict[str, Any]:
    """The entry of the label that a scorer takes as positive, found as the scorer itself does,
    without calling anything."""
    # The label is written in the file, or is the default of a function that scikit-learn lists
    # among its metrics: looked up by name, never imported from where the file says.
    try:
        content = content_of(scorer) or {}
        given = content["_kwargs"]["content"]
        function = content["_score_func"]
        label = given.get("pos_label")
        name = str(function["__class__"])
        place = str(function["__module__"])
    except (KeyError, TypeError, AttributeError):
        raise FileError(
            "a TunedThresholdClassifierCV of the skops file has a scorer that is damaged"
        ) from None
    if label is not None:
        return label
    metrics = untyped("sklearn.metrics")
    known = getattr(metrics, name) if name in metrics.__all__ else None
    if function.get("__loader__") != "FunctionNode" or getattr(known, "__module__", None) != place:
        raise UnsafeFileError(
            "the skops file holds a TunedThresholdClassifierCV whose scorer calls "
            f"{place}.{name}, which would have to be run to know the label that it takes as "
            "positive; nothing of the file was run. Name the label, with make_scorer(..., "
            "pos_label=...), before fitting, or, if you made the file yourself, pass trust=True "
            "(--trust-model-code)"
        )
    parameter = signature(cast(Any, known)).parameters.get("pos_label")
    return _entry("str", "JsonNode", json.dumps(parameter.default if parameter else None))
