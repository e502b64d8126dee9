"""A schema as plain values, the content of its TOML file: fields at their defaults are left out."""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, cast

import numpy as np

from holdfast._core.checks import did_you_mean
from holdfast._core.files import read_bytes, whole_file
from holdfast.errors import FileError, SchemaError
from holdfast.schema.feature import Feature
from holdfast.schema.rule import Rule

SETTINGS = ("feature", "rules", "max_changes")
MOST_BYTES = 1 << 28  # of a file
# The default of each field, whose type is that of the field; "name" has none.
FIELDS: dict[str, Any] = {
    spec.name: "" if spec.default is MISSING else spec.default for spec in fields(Feature)
}


def plain(feature: Feature) -> dict[str, Any]:
    """The fields of a feature that differ from their defaults, as lists, strings and numbers."""
    entry = dict[str, Any]()
    for name, default in FIELDS.items():
        value = getattr(feature, name)
        if name == "name" or value != default:
            entry[name] = [*value] if isinstance(value, tuple) else value
    return entry


def parsed(content: Mapping[str, Any]) -> tuple[tuple[Feature, ...], tuple[Rule, ...], int]:
    """The features, rules and limit that `content` holds, checked."""
    if not isinstance(content, Mapping):
        raise SchemaError(f"a schema is a table of settings, got {content!r}")
    for key in content:
        if key not in SETTINGS:
            raise SchemaError(
                f"unknown setting {key!r} in the schema; {did_you_mean(key, SETTINGS)}"
            )
    features = content.get("feature", [])
    rules = content.get("rules", [])
    if not _is_list(features, Mapping):
        raise SchemaError("a schema file holds a list of [[feature]] tables")
    if not _is_list(rules, str):
        raise SchemaError(f"`rules` must be a list of strings, got {rules!r}")
    return (
        tuple(map(_feature, features)),
        tuple(map(Rule.parse, rules)),
        content.get("max_changes", 0),
    )


def read(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(read_bytes(path, MOST_BYTES).decode())
    except FileNotFoundError:
        raise FileError(f"no schema file at {str(path)!r}") from None
    except (OSError, ValueError, RecursionError) as error:  # also numbers of too many digits
        raise FileError(f"cannot read schema {str(path)!r} as TOML: {error}") from None


def write(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write the content of a TOML file."""
    import tomli_w

    with whole_file(path) as file:
        file.write(tomli_w.dumps(content).encode())


def check_fields(name: object, entry: Mapping[str, Any]) -> None:
    """Raise a `SchemaError` if an entry sets a field that no feature has."""
    for key in entry:
        if key not in FIELDS:
            raise SchemaError(
                f"feature {name!r}: unknown field {key!r}; {did_you_mean(key, FIELDS)}"
            )


def _feature(entry: Mapping[str, Any]) -> Feature:
    """A feature whose dtype can really hold its values: a file may say anything."""
    name = entry.get("name")
    check_fields(name, entry)
    if not isinstance(name, str):
        raise SchemaError(f"a feature needs a name, got {dict(entry)!r}")
    for key, value in entry.items():
        if not _fits(value, FIELDS[key]):
            raise SchemaError(f"feature {name!r}: {key} = {value!r} is of the wrong type")
    try:
        feature = Feature(**{key: _converted(value, FIELDS[key]) for key, value in entry.items()})
        numbers = np.arange(max(len(feature.levels), 1.0))
        comes_back = bool((feature.numbers(feature.values(numbers, None)) == numbers).all())
    except SchemaError:
        raise
    except Exception as error:
        raise SchemaError(f"feature {name!r}: {error}") from None
    if not comes_back:
        raise SchemaError(f"feature {name!r}: dtype {feature.dtype!r} cannot hold its values")
    return feature


def _is_list(value: object, kind: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(item, kind) for item in cast(list[object], value))


def _fits(value: Any, default: object) -> bool:
    """Is a value of a TOML file of the type of this default? An integer may stand for a float, a
    boolean may not."""
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(default, tuple):
        return isinstance(value, type(default))
    if not default:
        return _is_list(value, str | int | float | bool)
    if not _is_list(value, object) or len(value) != 2:
        return False
    return all(map(_fits, value, cast(Any, default)))


def _converted(value: Any, default: object) -> Any:
    """As the field holds it; TOML has lists, and integers without limit."""
    if isinstance(default, tuple):
        return tuple(map(_converted, value, cast(Any, default))) if default else tuple(value)
    return float(value) if isinstance(default, float) else value
