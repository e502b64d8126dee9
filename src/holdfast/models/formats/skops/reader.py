"""skops files: scikit-learn estimators as data, of types on a short list, checked before and after
they are made.

Three steps, each of which refuses: (1) `schema.json` names every type in the file; all of them must
be on the list (`skops.allowed`), with the loader they belong to, before skops sees the file; (2)
skops loads it in a child process with limits on time and memory, where a crash harms nobody; (3)
the estimator is made here, and whatever compiled code would follow without looking is checked
(`skops.estimators`). Of a search only the model it found is read (`skops.searches`).
"""

import contextlib
import io
import json
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from holdfast._core.checks import listed, optional, untyped
from holdfast.errors import FileError, UnsafeFileError
from holdfast.models.formats.limits import parse_json, unzip
from holdfast.models.formats.loaded import Description, LoadedModel
from holdfast.models.formats.sandbox import try_in_child
from holdfast.models.formats.skops.allowed import ALLOWED, check_type
from holdfast.models.formats.skops.estimators import check_estimator
from holdfast.models.formats.skops.searches import MOST_DEPTH, content_of, found

# by name only, which is all that skops compares; the loaders are compared here
TRUSTED = list(ALLOWED)
# Estimators that answer with another one they hold.
WRAPPERS = ("FrozenEstimator", "FixedThresholdClassifier")


def check_file(data: bytes) -> dict[str, Any]:
    """The schema of a skops file all of whose types are on the list; anything else is refused."""
    entries = unzip(data, "the skops file")
    schema = _schema(entries)
    protocol = schema.get("protocol")
    # in the first one, functions were named in another place
    if not isinstance(protocol, int) or protocol < 1:
        raise FileError(
            f"the skops file has protocol {protocol!r}, which is too old; save it again with "
            "skops 0.12"
        )
    for name, loader in _types(schema):
        check_type(name, loader)
    _check_twins(schema, entries)
    for tree in (e for e in _entries(schema) if e.get("__loader__") == "TreeNode"):
        _check_tree_entry(tree, entries)
    return schema


def _schema(entries: dict[str, bytes]) -> dict[str, Any]:
    if "schema.json" not in entries:
        raise FileError("the zip file has no schema.json, so it is not a skops file")
    schema = parse_json(entries["schema.json"], "schema.json")
    if not isinstance(schema, dict):
        raise FileError("schema.json holds no object")
    return cast(dict[str, Any], schema)


def without_searches(data: bytes) -> bytes:
    """The file with every search replaced by the model it found; as it is if it has no
    search."""
    schema = _schema(entries := unzip(data, "the skops file"))
    best = found(schema)
    if best is schema:
        return data
    head = {key: schema[key] for key in ("protocol", "_skops_version") if key in schema}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in entries.items():
            archive.writestr(
                name, json.dumps({**best, **head}) if name == "schema.json" else content
            )
    return out.getvalue()


def _check_twins(schema: dict[str, Any], files: dict[str, bytes]) -> None:
    """skops makes an object once per number, so two entries of one number must say the same."""
    seen: dict[int, Any] = {}
    for entry in _entries(schema):
        number = entry.get("__id__")
        # 1, 1.0 and true would be one number to skops
        if number is not None and type(number) is not int:
            raise FileError(
                f"schema.json has an object of the number {number!r}, which is not an integer"
            )
        if number is not None and not _alike(seen.setdefault(number, entry), entry, files):
            raise FileError(f"schema.json has two different objects of the number {number}")


def _alike(a: Any, b: Any, files: dict[str, bytes]) -> bool:
    """The same except for the numbers of what is inside, each of which is compared in its turn, and
    the names of files."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        one = _bare(cast(dict[str, Any], cast(Any, a)), files)
        two = _bare(cast(dict[str, Any], b), files)
        return one.keys() == two.keys() and all(_alike(v, two[k], files) for k, v in one.items())
    if isinstance(a, list):
        items = cast(list[Any], a)
        return len(items) == len(b) and all(
            _alike(x, y, files) for x, y in zip(items, b, strict=True)
        )
    return bool(a == b)


def _bare(entry: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    """An entry without its number, and with the content of its file for the name."""
    return {
        k: files.get(str(v), v) if k == "file" else v for k, v in entry.items() if k != "__id__"
    }


def _check_tree_entry(tree: dict[str, Any], entries: dict[str, bytes]) -> None:
    """The sizes of a tree, which scikit-learn believes while it makes it."""
    try:
        columns, classes, outputs = tree["__reduce__"]["args"]["content"]
        state = tree["content"]["content"]
        count = int(state["node_count"]["content"])
        nodes = _values(state["nodes"], entries) or []
        made_for = _values(classes, entries) or []
        fits = int(outputs["content"]) == 1 == len(made_for) and 1 <= int(made_for[0]) < 1 << 20
        fits = fits and 1 <= count == len(nodes) and 1 <= int(columns["content"]) < 1 << 31
    except (KeyError, ValueError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise FileError("a tree of the skops file has sizes that do not fit")


def _entries(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in the schema, however deep, outermost first."""
    todo: list[tuple[Any, int]] = [(schema, 0)]
    while todo:
        value, depth = todo.pop()
        if depth > MOST_DEPTH:
            raise FileError("schema.json is nested too deeply")
        if isinstance(value, dict):
            yield cast(dict[str, Any], value)
            value = list(cast(dict[str, Any], value).values())
        if isinstance(value, list):
            todo += [(inner, depth + 1) for inner in reversed(cast(list[Any], value))]


def _types(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every type that the schema names, with the loader that would make it."""
    names = ("__module__", "__class__", "__loader__")
    for entry in (e for e in _entries(schema) if any(name in e for name in names)):
        words = [entry.get(name) for name in names]
        if not all(isinstance(w, str) for w in words):
            raise UnsafeFileError(f"schema.json holds a type that is not named in words: {words}")
        yield f"{words[0]}.{words[1]}", cast(str, words[2])


def checked(data: bytes, schema: Any = None) -> bytes:
    """The file without searches, all of whose types are on the list."""
    data = without_searches(data)
    check_file(data)
    return data


def load(
    data: bytes, schema: Any = None, *, trust: bool = False, inputs: str | None = None
) -> LoadedModel:
    """The estimator in the bytes of a skops file."""
    if not trust:
        data = checked(data)
        optional("skops.io", "files")
        try_in_child("skops", data)
    return LoadedModel(made(data, trust=trust))


def try_out(data: bytes) -> None:
    """Make the estimator and let it predict."""
    estimator = made(data)
    with contextlib.suppress(Exception):  # it may need a table with names; only a crash counts
        exercise(estimator)


def made(data: bytes, *, trust: bool = False) -> Any:
    """The estimator, made in this process and, unless it is trusted, checked."""
    skops = optional("skops.io", "files")
    try:
        trusted = skops.get_untrusted_types(data=data) if trust else TRUSTED
        if unknown := sorted(set(skops.get_untrusted_types(data=data)) - set(trusted)):
            raise UnsafeFileError(
                f"the skops file holds types that are not known to be safe: {listed(unknown)}"
            )
        estimator = skops.loads(data, trusted=trusted)
    except FileError:
        raise
    except Exception as error:  # the file may put anything together
        raise FileError(f"skops cannot load the file: {type(error).__name__}: {error}") from None
    if not trust:
        check_estimator(estimator)  # before anything of it is called
    if not hasattr(estimator, "predict"):
        raise FileError(
            f"the skops file holds a {type(estimator).__name__}, which is not an estimator that "
            "predicts"
        )
    return estimator


def exercise(estimator: Any) -> None:
    """Let the last step of an estimator predict two rows of zeros; in a child process, where a
    crash harms nobody."""
    last = _last(estimator)
    call = getattr(last, "predict_proba", None) or last.predict
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows of zeros have no names
        call(np.zeros((2, int(last.n_features_in_))))


def _last(estimator: Any) -> Any:
    """The model at the end of pipelines, and behind thresholds and what is frozen."""
    if type(estimator).__name__ in WRAPPERS:
        return _last(getattr(estimator, "estimator_", estimator.estimator))
    return _last(estimator.steps[-1][1]) if hasattr(estimator, "steps") else estimator


def describe(data: bytes) -> Description:
    """The type of the estimator and what it says of its columns and classes, from the schema
    alone."""
    data = without_searches(data)
    schema = check_file(data)
    entries = unzip(data, "the skops file")
    *before, last = _steps(schema)
    outputs = _outputs(last)
    classes = _first(schema, "classes_", entries) if outputs != "value" else None
    names = _first(schema, "feature_names_in_", entries)
    count = next((e.get("content") for e in _attributes(schema, "n_features_in_")), None)
    inputs = [str(n) for n in names] if names else [f"{count} columns"] if count is not None else []
    objects = (
        name for name, loader in _types(schema) if loader == "ObjectNode" and "._loss" not in name
    )
    held = {name.rpartition(".")[2] for name in objects if name.startswith("sklearn.")}
    details = {"estimator": schema["__class__"], "types": sorted(held)}
    return Description(
        inputs, classes, outputs, _is_smooth(before, last, len(classes or [])), details
    )


def _steps(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of the steps of a pipeline, those of inner ones too, and at the end that of the
    model."""
    name = str(entry.get("__class__"))
    inner = content_of(entry) or {}
    if name in WRAPPERS:
        return _steps(inner.get("estimator_") or inner["estimator"])
    held = {"Pipeline": "steps", "ColumnTransformer": "transformers_"}.get(name)
    steps = (
        [e for step in inner[held]["content"] for e in _steps(step["content"][1])] if held else []
    )
    return steps if name == "Pipeline" else [*steps, entry]


def _outputs(model: dict[str, Any]) -> str:
    """What `Model.of` will make of a model: probabilities, scores, or a number."""
    cls = getattr(untyped(model["__module__"]), model["__class__"])
    if issubclass(cls, untyped("sklearn.base").RegressorMixin):
        return "value"
    return (
        "probabilities" if hasattr(cls, "predict_proba") and _has_probabilities(model) else "scores"
    )


def _has_probabilities(model: dict[str, Any]) -> bool:
    """Some only have them by a setting."""
    if model["__class__"] == "SGDClassifier":
        return _setting(model, "loss") in ("log_loss", "modified_huber")
    return model["__class__"] not in ("SVC", "NuSVC") or _setting(model, "probability") is True


def _is_smooth(before: list[dict[str, Any]], model: dict[str, Any], classes: int) -> bool:
    """Will it be differentiable once compiled? By the classes alone; `models.compiled` looks at the
    model itself."""
    from holdfast.models.compiled.build import LINEAR, STRAIGHT
    from holdfast.models.compiled.preprocessing import STEPS

    name = model["__class__"]
    if name == "SVC" and (
        _setting(model, "kernel") != "linear" or _has_probabilities(model) or classes > 2
    ):
        return False
    if name == "SGDClassifier" and _setting(model, "loss") == "modified_huber":
        return False
    # "passthrough" and "drop" are strings
    known = {step.partition(".")[2] for step in STEPS} | {"str", "NoneType"}
    smooth = name in (*LINEAR, *STRAIGHT, "MLPClassifier", "MLPRegressor")
    return smooth and all(step["__class__"] in known and _is_plain(step) for step in before)


def _is_plain(step: dict[str, Any]) -> bool:
    """Without the settings that cannot be compiled."""
    own_function = (content_of(step) or {}).get("func", {}).get("__loader__") == "FunctionNode"
    return not own_function and not _setting(step, "add_indicator") and not _setting(step, "clip")


def _setting(entry: dict[str, Any], name: str) -> Any:
    """A plain value among the attributes of an object."""
    found = (content_of(entry) or {}).get(name, {})
    return json.loads(found["content"]) if found.get("__loader__") == "JsonNode" else None


def _first(schema: dict[str, Any], name: str, entries: dict[str, bytes]) -> list[Any] | None:
    """The values of the outermost attribute of this name."""
    return next(
        (v for v in (_values(e, entries) for e in _attributes(schema, name)) if v is not None), None
    )


def _attributes(schema: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Nodes of this name anywhere in the schema, outermost first."""
    return (entry[name] for entry in _entries(schema) if isinstance(entry.get(name), dict))


def _values(entry: dict[str, Any], entries: dict[str, bytes]) -> list[Any] | None:
    """The content of an array: in an entry of its own, or, if strings, in the schema."""
    if isinstance(entry.get("file"), str) and entry["file"] in entries:
        try:
            return np.load(io.BytesIO(entries[entry["file"]]), allow_pickle=False).ravel().tolist()
        except Exception:  # whatever is in the entry
            return None
    content: Any = entry.get("content")
    while isinstance(content, dict):
        content = cast(dict[str, Any], content).get("content")
    if not isinstance(content, list):
        return None
    items = [
        cast(dict[str, Any], c).get("content")
        for c in cast(list[Any], content)
        if isinstance(c, dict)
    ]
    return (
        [str(v).strip('"') for v in items]
        if items and not any(isinstance(v, list | dict) for v in items)
        else None
    )
