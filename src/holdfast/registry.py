"""The methods by name, and how to build one from strings: 'min-cost' with 'steps=200'.

The command line, a service and configuration files all choose methods in these words.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Union, cast, get_args, get_origin, get_type_hints

from holdfast.errors import HoldfastError, SettingError, did_you_mean

if TYPE_CHECKING:
    import holdfast as hf
    from holdfast._core.params import Settings
    from holdfast.explainer import Explainer
    from holdfast.images.explainer import ImageExplainer

METHODS = {
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
    "prototype": ("holdfast.methods.prototype", "Prototype"),
    "roar": ("holdfast.methods.roar", "ROAR"),
    "rbr": ("holdfast.methods.rbr", "RBR"),
    "cf-model": ("holdfast.methods.amortized.cf_model", "CFModel"),
    "vae-cf": ("holdfast.methods.amortized.vae_cf", "VAECF"),
    "learned-recourse": ("holdfast.methods.amortized.learned_recourse", "LearnedRecourse"),
}

IMAGE_METHODS = {
    "deduce": ("holdfast.images.deduce", "DeDUCE"),
    "jsma": ("holdfast.images.jsma", "JSMA"),
    "greedy-ensemble": ("holdfast.images.greedy_ensemble", "GreedyEnsemble"),
    "prototype": ("holdfast.images.prototype", "Prototype"),
    "revise": ("holdfast.images.revise", "REVISE"),
}


def method_class(name: str) -> "type[Explainer]":
    """The class behind a name such as 'min-cost'."""
    if name not in METHODS:
        _raise_unknown(name, METHODS, IMAGE_METHODS, "images")
    module, cls = METHODS[name]
    return getattr(importlib.import_module(module), cls)


def image_method_class(name: str) -> "type[ImageExplainer]":
    """The class behind a name such as 'deduce'."""
    if name not in IMAGE_METHODS:
        _raise_unknown(name, IMAGE_METHODS, METHODS, "tables")
    module, cls = IMAGE_METHODS[name]
    return getattr(importlib.import_module(module), cls)


def _raise_unknown(name: str, known: Iterable[str], others: Iterable[str], kind: str) -> NoReturn:
    if name in others:
        raise SettingError(f"method {name!r} is for {kind}, which the model is not for; use one of {', '.join(known)}")
    raise SettingError(f"unknown method {name!r}; {did_you_mean(name, known)}")


def list_methods(
    *, gradients: bool | None = None, data: bool | None = None, regression: bool | None = None
) -> "dict[str, type[Explainer]]":
    """All methods, or those that need (or do not need) gradients or data, or that work (or do not) on models that
    estimate a number."""
    found = {name: method_class(name) for name in METHODS}
    return {
        name: cls
        for name, cls in found.items()
        if gradients in (None, cls.needs_grad)
        and data in (None, cls.needs_data)
        and regression in (None, cls.regression)
    }


def list_image_methods() -> "dict[str, type[ImageExplainer]]":
    """All methods for images."""
    return {name: image_method_class(name) for name in IMAGE_METHODS}


def describe(name: str, cls: "type[Explainer | ImageExplainer]", kind: str = "tables") -> dict[str, Any]:
    """What there is to know about a method, as plain values."""
    defaults = {f.name: None if f.default is MISSING else f.default for f in fields(cast(Any, cls))}
    return {
        "name": name,
        "class": cls.__name__,
        "for": kind,
        "title": cls.title,
        "needs_gradients": cls.needs_grad,
        "needs_data": cls.needs_data,
        "paper": cls.paper,
        "settings": defaults,
    }


def describe_all() -> list[dict[str, Any]]:
    """Of every method for tables, then of those for images."""
    tables = [describe(name, cls) for name, cls in list_methods().items()]
    return tables + [describe(name, cls, "images") for name, cls in list_image_methods().items()]


def configured(method: str, assignments: Sequence[str]) -> "hf.Explainer":
    """A method by name with settings such as 'steps=200', read as the field's type says."""
    explainer = method_class(method)()
    for assignment in assignments:
        _set(explainer, method, *key_and_value(assignment))
    return explainer


def configured_for_images(method: str, assignments: Sequence[str]) -> "ImageExplainer":
    """The same of a method for images."""
    explainer = image_method_class(method)()
    for assignment in assignments:
        _set(explainer, method, *key_and_value(assignment))
    return explainer


def key_and_value(assignment: str) -> tuple[str, str]:
    """'steps=200' -> 'steps', '200'"""
    name, equals, text = assignment.partition("=")
    if not equals:
        raise SettingError(f"--set takes KEY=VALUE, got {assignment!r}")
    return name, text


def listed_names(texts: Sequence[str] | None) -> list[str]:
    """['age,sex', 'job'] -> 'age', 'sex', 'job': an option that may be repeated, and take several names at once."""
    return [name.strip() for text in texts or () for name in text.split(",") if name.strip()]


def chosen(kind: Any, what: str, known: Sequence[str], assignments: Sequence[str]) -> dict[str, Any]:
    """Settings such as 'epochs=20' of a class or a function, read as the types of its fields or arguments say."""
    hints, out = get_type_hints(kind), dict[str, Any]()
    for name, text in map(key_and_value, assignments):
        if name not in known:
            raise SettingError(f"{what} has no setting {name!r}; {did_you_mean(name, known)}")
        out[name] = value_of(name, text, hints[name])
    return out


def _set(explainer: "Settings", method: str, name: str, text: str) -> None:
    """Set one field; `start__norm` is the field `norm` of the method in the field `start`."""
    whole, (name, _, inner) = name, name.partition("__")
    known = explainer.get_params(deep=False)
    kind = get_type_hints(type(explainer)).get(name)
    helper = _helper(kind)
    nests = helper is not None or any(part in _by_name() for part in _parts(kind))
    if name not in known or (inner and not nests):
        raise SettingError(f"{method} has no setting {whole!r}; {did_you_mean(whole, known)}")
    if inner:
        if known[name] is None and helper is not None:
            explainer.set_params(**{name: helper()})
            known = explainer.get_params(deep=False)
        if not hasattr(known[name], "get_params"):
            raise SettingError(f"--set {whole}={text}: give --set {name}=METHOD first")
        _set(known[name], f"{method} {name}", inner, text)
        return
    explainer.set_params(**{name: value_of(name, text, kind)})


def _helper(kind: Any) -> "type[Settings] | None":
    """The class with settings of its own, such as an autoencoder, that a field is an instance of; not a method."""
    from holdfast._core.params import Settings

    found = [p for p in _parts(kind) if isinstance(p, type) and issubclass(p, Settings) and p not in _by_name()]
    return found[0] if found else None


def value_of(name: str, text: str, kind: Any) -> Any:
    """The text of a setting as a value of its type, or an error that says what is expected."""
    try:
        return parsed(text, kind)
    except HoldfastError:  # about the method or the file that the text names
        raise
    except ValueError:
        raise SettingError(f"--set {name}={text}: expected {type_words(kind)}") from None


def parsed(text: str, kind: Any) -> Any:
    """A text as a value of a type: int, float, bool, str, None, one of some values, or a union of these."""
    for part in _parts(kind):
        choices = _choices(part)
        for known in (text, text.lower()):
            if known in choices:
                return choices[known]
        if part in (int, float, str):
            try:
                return part(text)
            except ValueError:
                continue
        if get_origin(part) is tuple:
            return tuple(parsed(cell.strip(), get_args(part)[0]) for cell in text.strip("()[] ,").split(","))
        if part in (special := _by_name()):
            return special[part](text)
    raise ValueError(f"{text!r} is not {type_words(kind)}")


def _by_name() -> dict[Any, Callable[[str], Any]]:
    """Settings that are written as a name: another method, or the file of a bank."""
    import holdfast as hf

    return {hf.Explainer: lambda name: configured(name, ()), hf.ModelBank: hf.ModelBank.load}


def _parts(kind: Any) -> list[Any]:
    """The members of a union, None first: 'none' would also do as a text."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return sorted(members, key=lambda member: member is not NoneType)


def _choices(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return {str(value): value for value in get_args(kind)}
    booleans = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    return {bool: booleans, NoneType: {"none": None}}.get(kind, {})


def type_words(kind: Any) -> str:
    """A type as a person would put it."""
    plain: dict[Any, str] = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a text",
        NoneType: "none",
    }
    import holdfast as hf

    plain |= {hf.Explainer: "a method", hf.ModelBank: "the file of a bank", hf.distances.Distance: "a Distance"}
    parts = [
        f"one of {', '.join(map(str, get_args(part)))}"
        if get_origin(part) is Literal
        else "values with commas between them"
        if get_origin(part) is tuple
        else plain.get(part, "a value that only Python code can give")
        for part in _parts(kind)
    ]
    return " or ".join(parts)
