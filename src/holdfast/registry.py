"""The methods by name, which one suits a model, and how to build one from strings: 'min-cost' with
'steps=200'.

    build_method("min-cost", ["steps=200"])
    default_method(model)
    list_methods(gradients=False)

The command line, a service and configuration files all choose methods in these words; for the other
strings that they are given there are `Target.parse`, `Model.load` and `datasets.read_table`.
"""

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from holdfast._core.checks import did_you_mean
from holdfast._core.params import Settings
from holdfast.errors import HoldfastError, SettingError

if TYPE_CHECKING:
    from holdfast.explainer import Explainer
    from holdfast.images.explainer import ImageExplainer
    from holdfast.models.base import Model

S = TypeVar("S", bound=Settings)
Table = dict[str, tuple[str, str]]  # name -> module, class

_IMAGE_CLASSES = {
    "deduce": "DeDUCE",
    "jsma": "JSMA",
    "greedy-ensemble": "GreedyEnsemble",
    "prototype": "Prototype",
    "revise": "REVISE",
}
IMAGE_METHODS: Table = {
    k: (f"holdfast.images.{k.replace('-', '_')}", cls) for k, cls in _IMAGE_CLASSES.items()
}
METHODS: Table = {
    "descent": ("holdfast.methods.descent", "Descent"),
    "min-cost": ("holdfast.methods.min_cost", "MinCost"),
    "min-epsilon-pgd": ("holdfast.methods.min_epsilon_pgd", "MinEpsilonPGD"),
    "growing-spheres": ("holdfast.methods.growing_spheres", "GrowingSpheres"),
    "nearest-neighbor": ("holdfast.methods.nearest_neighbor", "NearestNeighbor"),
    "tree-search": ("holdfast.methods.tree_search.search", "TreeSearch"),
    "omniscient": ("holdfast.methods.omniscient", "Omniscient"),
    "latent-search": ("holdfast.methods.latent_search", "LatentSearch"),
    "cchvae": ("holdfast.methods.cchvae", "CCHVAE"),
    "revise": ("holdfast.methods.revise", "REVISE"),
    "eccco": ("holdfast.methods.eccco", "ECCCo"),
    "gravitational": ("holdfast.methods.gravitational", "Gravitational"),
    "claproar": ("holdfast.methods.claproar", "ClaPROAR"),
    "stable-neighbor-search": ("holdfast.methods.stable_neighbor_search", "StableNeighborSearch"),
    "survival-search": ("holdfast.methods.survival_search.search", "SurvivalSearch"),
    "prototype": ("holdfast.methods.prototype", "Prototype"),
    "roar": ("holdfast.methods.roar", "ROAR"),
    "rbr": ("holdfast.methods.rbr", "RBR"),
    "cf-model": ("holdfast.methods.amortized.cf_model", "CFModel"),
    "vae-cf": ("holdfast.methods.amortized.vae_cf", "VAECF"),
    "learned-recourse": ("holdfast.methods.amortized.learned_recourse", "LearnedRecourse"),
}


def method_class(name: str) -> "type[Explainer]":
    """The class behind a name such as 'min-cost'."""
    return _class(name, METHODS, IMAGE_METHODS, "images")


def image_method_class(name: str) -> "type[ImageExplainer]":
    """The class behind a name such as 'deduce'."""
    return _class(name, IMAGE_METHODS, METHODS, "tables")


def _class(name: str, known: Table, others: Table, kind: str) -> Any:
    if name in known:
        module, cls = known[name]
        return getattr(importlib.import_module(module), cls)
    if name in others:
        raise SettingError(
            f"method {name!r} is for {kind}, which the model is not for; use one of "
            f"{', '.join(known)}"
        )
    raise SettingError(f"unknown method {name!r}; {did_you_mean(name, known)}")


def default_method(model: "Model", path: str | os.PathLike[str] | None = None) -> str:
    """The method where none is named: the recourse network that was trained with the model, if
    the model's file at `path` has one; else 'min-cost', or 'tree-search' for a model without
    gradients."""
    from holdfast.methods.amortized._recourse_network import holds_recourse

    if path is not None and holds_recourse(path):
        return "learned-recourse"
    return "min-cost" if model.has_grad else "tree-search"


def list_methods(
    *, gradients: bool | None = None, data: bool | None = None, regression: bool | None = None
) -> "dict[str, type[Explainer]]":
    """The methods for tables by name, all or some.

    Args:
        gradients: those that need gradients of the model, or (False) those that do not.
        data: those that must be fitted to data first, or not.
        regression: those that work on regression models too, or not.

    >>> import holdfast as hf
    >>> sorted(hf.list_methods(gradients=False, data=False))
    ['growing-spheres', 'survival-search', 'tree-search']
    """
    wanted = {"needs_grad": gradients, "needs_data": data, "regression": regression}
    methods = {name: method_class(name) for name in METHODS}
    return {
        k: c
        for k, c in methods.items()
        if all(v in (None, getattr(c, fact)) for fact, v in wanted.items())
    }


def list_image_methods() -> "dict[str, type[ImageExplainer]]":
    """All methods for images."""
    return {name: image_method_class(name) for name in IMAGE_METHODS}


def describe(
    name: str, cls: "type[Explainer | ImageExplainer]", kind: str = "tables"
) -> dict[str, Any]:
    """Everything about a method, as plain values."""
    defaults = {f.name: None if f.default is MISSING else f.default for f in fields(cast(Any, cls))}
    needs = {"needs_gradients": cls.needs_grad, "needs_data": cls.needs_data}
    words = {"name": name, "class": cls.__name__, "for": kind, "title": cls.title}
    return words | needs | {"paper": cls.paper, "settings": defaults}


def describe_all() -> list[dict[str, Any]]:
    """The same for every method for tables, then for images."""
    tables = [describe(name, cls) for name, cls in list_methods().items()]
    return tables + [describe(name, cls, "images") for name, cls in list_image_methods().items()]


# ---- building one from strings


def build_method(name: str, settings: Sequence[str] = ()) -> "Explainer":
    """A method with settings such as 'steps=200', read as the types of its fields say;
    'start__norm=1' is the setting `norm` of the method in the field `start`."""
    return _with_settings(method_class(name)(), name, settings)


def build_image_method(name: str, settings: Sequence[str] = ()) -> "ImageExplainer":
    """The same of a method for images."""
    return _with_settings(image_method_class(name)(), name, settings)


def _with_settings(method: S, name: str, settings: Sequence[str]) -> S:
    for setting in settings:
        _set(method, name, *split_setting(setting))
    return method


def split_setting(setting: str) -> tuple[str, str]:
    """'steps=200' -> 'steps', '200'"""
    name, equals, value = setting.partition("=")
    if not bool(equals):
        raise SettingError(f"a setting is written KEY=VALUE, got {setting!r}")
    return name, value


def split_names(values: Sequence[str] | None) -> list[str]:
    """['age,sex', 'job'] -> 'age', 'sex', 'job': an option that may be repeated, and take several
    names at once."""
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


def parse_settings(
    kind: Any, what: str, known: Sequence[str], settings: Sequence[str]
) -> dict[str, Any]:
    """Settings such as 'epochs=20' of a class or a function, read as the types of its fields or
    arguments say.

    Args:
        kind: the class or function.
        what: how messages call it.
        known: the settings that may be given.
        settings: KEY=VALUE each.
    """
    hints = get_type_hints(kind)
    out = dict[str, Any]()
    for name, value in map(split_setting, settings):
        if name not in known:
            raise SettingError(f"{what} has no setting {name!r}; {did_you_mean(name, known)}")
        out[name] = parse_setting(name, value, hints[name])
    return out


def _set(method: "Settings", what: str, name: str, value: str) -> None:
    """Set one field; `start__norm` is the field `norm` of the method in the field `start`."""
    field, _, inner = name.partition("__")
    params = method.get_params(deep=False)
    kind = get_type_hints(type(method)).get(field)
    helper = _helper(kind)
    nests = helper is not None or any(part in _by_name() for part in _parts(kind))
    exists = field in params and (nests or not inner)
    if not exists:
        raise SettingError(f"{what} has no setting {name!r}; {did_you_mean(name, params)}")
    if not inner:
        method.set_params(**{field: parse_setting(field, value, kind)})
        return
    if params[field] is None and helper is not None:
        method.set_params(**{field: helper()})
        params = method.get_params(deep=False)
    if not hasattr(params[field], "get_params"):
        raise SettingError(f"{name}={value}: give {field}=METHOD first")
    _set(params[field], f"{what} {field}", inner, value)


def _helper(kind: Any) -> "type[Settings] | None":
    """The class with settings of its own, such as an autoencoder, that a field is an instance of;
    not a method."""
    classes = (part for part in _parts(kind) if isinstance(part, type) and part not in _by_name())
    return next((cls for cls in classes if issubclass(cls, Settings)), None)


def parse_setting(name: str, value: str, kind: Any) -> Any:
    """The value of a setting as its type says, or an error that says what is expected."""
    try:
        return parse_value(value, kind)
    except HoldfastError:  # about the method or the file that is named
        raise
    except ValueError:
        raise SettingError(f"{name}={value}: expected {type_in_words(kind)}") from None


def parse_value(text: str, kind: Any) -> Any:
    """A string as a value of a type: int, float, bool, str, None, one of some values, or a union of
    these."""
    for part in _parts(kind):
        choices = _choices(part)
        for written in (text, text.lower()):
            if written in choices:
                return choices[written]
        if part in (int, float, str):
            try:
                return part(text)
            except ValueError:
                continue
        if get_origin(part) is tuple:
            return tuple(
                parse_value(cell.strip(), get_args(part)[0])
                for cell in text.strip("()[] ,").split(",")
            )
        if part in (by_name := _by_name()):
            return by_name[part](text)
    raise ValueError(f"{text!r} is not {type_in_words(kind)}")


def _by_name() -> dict[Any, Callable[[str], Any]]:
    """Settings that are written as a name: another method, or the file of a bank."""
    import holdfast as hf

    return {hf.Explainer: build_method, hf.ModelBank: hf.ModelBank.load}


def _parts(kind: Any) -> list[Any]:
    """The members of a union, None first: 'none' would also do as a string."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return sorted(members, key=lambda member: member is not NoneType)


def _choices(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return {str(value): value for value in get_args(kind)}
    booleans = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    return {bool: booleans, NoneType: {"none": None}}.get(kind, {})


def type_in_words(kind: Any) -> str:
    """A type as a person would put it."""
    import holdfast as hf

    words: dict[Any, str] = {
        int: "an integer",
        float: "a number",
        bool: "true or false",
        str: "a string",
        NoneType: "none",
        hf.Explainer: "a method",
        hf.ModelBank: "the file of a bank",
        hf.distances.Distance: "a Distance",
    }

    def in_words(part: Any) -> str:
        if get_origin(part) is Literal:
            return f"one of {', '.join(map(str, get_args(part)))}"
        if get_origin(part) is tuple:
            return "values with commas between them"
        return words.get(part, "a value that only Python code can give")

    return " or ".join(map(in_words, _parts(kind)))
