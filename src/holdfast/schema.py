"""The columns of a table in order; the only place that knows how a table becomes a tensor and back."""

import hashlib
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast.errors import FileError, SchemaError, did_you_mean, listed
from holdfast.feature import Array, Feature, Mask, Rule
from holdfast.reach import Layout, Reach


@dataclass(frozen=True)
class Schema:
    """What the columns are, what a person may change, and how a row becomes numbers.

    Build it from data with `Schema.infer(frame, ...)`, read it with `Schema.load("schema.toml")`, or, for
    plain numbers, with `Schema.box(d, low, high)`.
    """

    features: tuple[Feature, ...]
    rules: tuple[Rule, ...] = ()
    max_changes: int = 0  # 0: any number of features may change

    def __post_init__(self) -> None:
        if not self.features:
            raise SchemaError("a schema needs at least one feature")
        if self.max_changes < 0:
            raise SchemaError(f"max_changes must be 0 (no limit) or more, got {self.max_changes}")
        names = self.names
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise SchemaError(f"duplicate feature name(s) {listed(twice)}; rename one of them")
        for rule in self.rules:
            for name in rule.weights:
                if name not in names:
                    raise SchemaError(f"rule {rule.text!r}: unknown column {name!r}; {did_you_mean(name, names)}")
                if self[name].kind in ("category", "ordered"):
                    raise SchemaError(f"rule {rule.text!r}: column {name!r} holds levels, not numbers")

    # ---- making one

    @staticmethod
    def infer(frame: pd.DataFrame, **settings: Any) -> "Schema":
        """Read kinds, levels, ranges and scaling off a table; see `holdfast.infer.infer_schema`."""
        from holdfast.infer import infer_schema

        return infer_schema(frame, **settings)

    @staticmethod
    def box(columns: int | Sequence[str], low: float = -math.inf, high: float = math.inf) -> "Schema":
        """Plain real columns with common bounds and no scaling."""
        names = [f"x{i}" for i in range(columns)] if isinstance(columns, int) else list(columns)
        return Schema(tuple(Feature(n, bounds=(low, high), seen=(low, high)) for n in names))

    def change(self, **changes: Mapping[str, Any]) -> "Schema":
        """A copy with other fields for some features: `schema.change(age={"change": "fixed"})`."""
        for name in changes:
            self[name]
        return replace(self, features=tuple(replace(f, **changes.get(f.name, {})) for f in self.features))

    # ---- reading it

    @property
    def names(self) -> list[str]:
        return [f.name for f in self.features]

    def __getitem__(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise SchemaError(f"unknown feature {name!r}; {did_you_mean(name, self.names)}")

    @cached_property
    def slices(self) -> list[slice]:
        """The encoded columns of each feature."""
        ends = np.cumsum([f.width for f in self.features]).tolist()
        return [slice(end - f.width, end) for f, end in zip(self.features, ends, strict=True)]

    @property
    def width(self) -> int:
        """How many encoded columns a row has."""
        return self.slices[-1].stop

    @cached_property
    def columns(self) -> list[str]:
        """A name for each encoded column."""
        out: list[str] = []
        for f in self.features:
            levels = [*f.levels, *["(missing)"] * f.missing]
            out += [f"{f.name}={level}" for level in levels] if f.is_category else [f.name]
        return out

    # ---- table <-> tensor

    def check_columns(self, frame: pd.DataFrame) -> None:
        """The table has each column of the schema once, and no other."""
        have = [str(c) for c in frame.columns]
        twice = sorted({c for c in have if have.count(c) > 1})
        if twice:
            raise SchemaError(f"duplicate column(s) {listed(twice)} in the table; rename or drop one of each")
        gone = [n for n in self.names if n not in have]
        extra = [c for c in have if c not in self.names]
        if gone:
            hint = f" ({did_you_mean(gone[0], extra)})" if extra else ""
            raise SchemaError(f"the table lacks {len(gone)} column(s) of the schema: {listed(gone)}{hint}")
        if extra:
            raise SchemaError(
                f"the table has {len(extra)} column(s) the schema does not know: {listed(extra)}; "
                "drop them, or infer the schema from a table that has them"
            )

    def read(self, frame: pd.DataFrame) -> Array:
        """The table as numbers (n, features): values, 0/1, ranks, level positions. Anything that does not fit is
        an error that names the column and the fix."""
        self.check_columns(frame)
        columns = [f.numbers(frame[f.name]) for f in self.features]
        return np.stack(columns, axis=1) if len(frame) else np.zeros((0, len(columns)))

    def write(self, numbers: Array, like: pd.DataFrame, changed: Mask) -> pd.DataFrame:
        """`like` with the numbers of the `changed` cells (n, features): same index, column order and dtypes, and
        every other cell as it was to the last bit."""
        out: dict[Any, Any] = {}
        for name in like.columns:
            i = self.names.index(str(name))
            old = like[name].reset_index(drop=True)
            if changed[:, i].any():
                new = self.features[i].values(numbers[:, i], old)
                # A level that the table's own category dtype did not list widens that dtype.
                old = new.where(changed[:, i], old if new.dtype == old.dtype else old.astype(new.dtype))
            out[name] = old.array
        return pd.DataFrame(out, index=like.index, columns=like.columns)

    def encode(self, frame: pd.DataFrame, dtype: torch.dtype = torch.float32) -> Tensor:
        """n rows -> (n, width)."""
        return self.encode_numbers(self.read(frame), dtype)

    def encode_numbers(self, numbers: Array, dtype: torch.dtype = torch.float32) -> Tensor:
        """(n, features) numbers -> (n, width)."""
        at = self._places
        out = np.zeros((len(numbers), self.width))
        out[:, at.column] = (numbers[:, at.number] - at.center) / at.scale
        np.put_along_axis(out, numbers[:, at.category].astype(np.int64) + at.first, 1.0, axis=1)
        return torch.tensor(out, dtype=dtype)

    def decode_numbers(self, z: Tensor) -> Array:
        """(n, width) -> (n, features) numbers, whole where they must be."""
        if z.ndim != 2 or z.shape[1] != self.width:
            raise SchemaError(f"expected encoded rows of shape (n, {self.width}), got {tuple(z.shape)}")
        at, rows = self._places, z.detach().double().numpy()
        out = np.empty((len(rows), len(self.features)))
        values = rows[:, at.column] * at.scale + at.center
        out[:, at.number] = np.where(at.whole, np.clip(np.round(values / at.grid) * at.grid, *at.ranks), values)
        for i in at.category:
            out[:, i] = rows[:, self.slices[i]].argmax(1)
        return out

    def decode(self, z: Tensor, like: pd.DataFrame | None = None) -> pd.DataFrame:
        """(n, width) -> n rows. With `like`, its index, column order and dtypes, and its values in every cell
        that did not change, to the last bit."""
        numbers = self.decode_numbers(z)
        if like is None:
            return pd.DataFrame({f.name: f.values(numbers[:, i], None) for i, f in enumerate(self.features)})
        different = (z != self.encode(like, z.dtype)).numpy()
        changed = np.stack([different[:, s].any(1) for s in self.slices], axis=1)
        return self.write(numbers, like, changed)

    def hand_in(self, z: Tensor, before: pd.DataFrame) -> pd.DataFrame:
        """The rows that people starting from `before` would hand in to get to `z`."""
        numbers, changed = self.settle(z, self.read(before))
        return self.write(numbers, before, changed)

    def settle(self, z: Tensor, kept: Array) -> tuple[Array, Mask]:
        """Rows z for people whose rows are `kept` (n, features), with every limit and rule kept exactly in the
        user's units, not just to rounding: the numbers, and which cells change."""
        at = self._places
        x = self.encode_numbers(kept, torch.float64)
        same = z.double() == x.to(z.dtype).double()
        numbers = self.decode_numbers(self.reach(x).project(torch.where(same, x, z.double())))
        own = self.decode_numbers(x)  # differs from `kept` by rounding only
        value = np.clip(numbers[:, at.number], *at.limits)
        value = np.where(at.stepped & (value != own[:, at.number]), np.round(value / at.grid) * at.grid, value)
        value = np.where(at.up, np.maximum(value, own[:, at.number]), value)
        value = np.where(at.down, np.minimum(value, own[:, at.number]), value)
        numbers[:, at.number] = np.where(at.fixed, own[:, at.number], value)
        keep_rules(self, numbers, own)
        asked = ~same.all(1).numpy()  # a row of which nothing is asked is handed in as it is
        return numbers, (numbers != own) & asked[:, None]

    @cached_property
    def _places(self) -> "_Places":
        return _Places.of(self)

    # ---- what a person may do

    def layout(self, dtype: torch.dtype = torch.float32) -> Layout:
        """The schema as tensors."""
        cache = cast(dict[torch.dtype, Layout], self.__dict__.setdefault("_layouts", {}))
        if dtype not in cache:
            cache[dtype] = Layout.of(self.features, self.rules, self.max_changes, dtype)
        return cache[dtype]

    def reach(self, x: Tensor) -> Reach:
        """What the people `x` (n, width) can reach; see `holdfast.reach`."""
        return Reach.of(x, self.layout(x.dtype))

    def project(self, z: Tensor, x: Tensor) -> Tensor:
        """Nearest to `z` among the points that `x` can reach, row by row."""
        return self.reach(x).project(z)

    # ---- files

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fields at their defaults left out; what the TOML file holds."""
        out: dict[str, Any] = {}
        if self.max_changes:
            out["max_changes"] = self.max_changes
        if self.rules:
            out["rules"] = [r.text for r in self.rules]
        out["feature"] = [_plain(f) for f in self.features]
        return out

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Schema":
        unknown = [k for k in content if k not in ("feature", "rules", "max_changes")]
        if unknown:
            hint = did_you_mean(unknown[0], ("feature", "rules", "max_changes"))
            raise SchemaError(f"unknown setting {unknown[0]!r} in the schema; {hint}")
        entries = content.get("feature", [])
        if not isinstance(entries, list) or not all(isinstance(e, Mapping) for e in cast(list[Any], entries)):
            raise SchemaError("a schema file holds a list of [[feature]] tables")
        rules, most = content.get("rules", []), content.get("max_changes", 0)
        if not isinstance(rules, list) or not all(isinstance(r, str) for r in cast(list[Any], rules)):
            raise SchemaError(f"`rules` must be a list of texts, got {rules!r}")
        if not isinstance(most, int) or isinstance(most, bool):
            raise SchemaError(f"`max_changes` must be a whole number, got {most!r}")
        features = tuple(_feature(cast(Mapping[str, Any], e)) for e in cast(list[Any], entries))
        return cls(features, tuple(Rule.parse(r) for r in cast(list[str], rules)), most)

    def save(self, path: str | Path) -> None:
        """Write as TOML."""
        import tomli_w

        Path(path).write_text(tomli_w.dumps(self.to_dict()), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a TOML file written by `save` or by hand."""
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileError(f"no schema file at {str(path)!r}") from None
        except (OSError, ValueError, RecursionError) as error:  # also numbers of too many digits
            raise FileError(f"cannot read schema {str(path)!r} as TOML: {error}") from None
        return cls.from_dict(content)

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of everything above, for provenance."""
        return hashlib.sha256(repr(self.to_dict()).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class _Places:
    """Where features sit among the encoded columns, and their limits, as arrays over the number-like ones."""

    number: Any  # which features are number-like, and
    column: Any  # their encoded columns
    category: Any  # which features are categories, and
    first: Any  # their first encoded columns
    center: Array
    scale: Array
    limits: tuple[Array, Array]
    ranks: tuple[Array, Array]  # ordered levels end; other numbers do not
    grid: Array  # 1 where there is none
    stepped: Mask
    whole: Mask  # whole by kind, not by an optional step
    fixed: Mask
    up: Mask
    down: Mask

    @classmethod
    def of(cls, schema: Schema) -> "_Places":
        number = [i for i, f in enumerate(schema.features) if not f.is_category]
        category = [i for i, f in enumerate(schema.features) if f.is_category]
        plain = [schema.features[i] for i in number]
        top = [len(f.levels) - 1.0 if f.kind == "ordered" else math.inf for f in plain]
        bottom = [0.0 if f.kind == "ordered" else -math.inf for f in plain]
        return cls(
            number=np.array(number, dtype=np.int64),
            column=np.array([schema.slices[i].start for i in number], dtype=np.int64),
            category=np.array(category, dtype=np.int64),
            first=np.array([schema.slices[i].start for i in category], dtype=np.int64),
            center=np.array([f.center for f in plain]),
            scale=np.array([f.scale for f in plain]),
            limits=(np.array([f.limits[0] for f in plain]), np.array([f.limits[1] for f in plain])),
            ranks=(np.array(bottom), np.array(top)),
            grid=np.array([f.grid or 1.0 for f in plain]),
            stepped=np.array([f.grid > 0 for f in plain], dtype=bool),
            whole=np.array([f.kind != "real" for f in plain], dtype=bool),
            fixed=np.array([f.change == "fixed" for f in plain], dtype=bool),
            up=np.array([f.change == "up" for f in plain], dtype=bool),
            down=np.array([f.change == "down" for f in plain], dtype=bool),
        )


def keep_rules(schema: Schema, numbers: Array, own: Array) -> None:
    """Rounding may leave a rule over its bound by a last digit: take it off a column that has room, in place."""
    place = {name: i for i, name in enumerate(schema.names)}
    for rule in schema.rules:
        for name, weight in rule.weights.items():
            i, f = place[name], schema[name]
            over = sum(w * numbers[:, place[n]] for n, w in rule.weights.items()) - rule.bound
            small = (over > 0) & (over < 1e-3 * abs(weight) * f.scale)
            if f.change == "fixed" or f.grid or not small.any():
                continue
            v = numbers[:, i]
            # A hair more than the excess, so that adding up the rule again cannot round it back.
            moved = v - over / weight * (1 + 1e-9) - np.spacing(np.abs(v)) * np.sign(weight)
            low, high = f.limits
            fits = (moved >= low) & (moved <= high)
            fits &= (moved >= own[:, i]) if f.change == "up" else True
            fits &= (moved <= own[:, i]) if f.change == "down" else True
            numbers[:, i] = np.where(small & fits, moved, v)


def _plain(feature: Feature) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for spec in fields(feature):
        value = getattr(feature, spec.name)
        if spec.default is MISSING or value != spec.default:
            out[spec.name] = list(value) if isinstance(value, tuple) else value
    return out


def _feature(entry: Mapping[str, Any]) -> Feature:
    known = [spec.name for spec in fields(Feature)]
    for key in entry:
        if key not in known:
            raise SchemaError(f"feature {entry.get('name', '?')!r}: unknown field {key!r}; {did_you_mean(key, known)}")
    if not isinstance(entry.get("name"), str):
        raise SchemaError(f"a feature needs a name, got {dict(entry)!r}")
    values: dict[str, Any] = {}
    for key, value in entry.items():
        default = next(spec.default for spec in fields(Feature) if spec.name == key)
        fits = _fits(value, "" if key == "name" else default)
        if not fits:
            raise SchemaError(f"feature {entry['name']!r}: {key} = {value!r} is of the wrong type")
        values[key] = tuple(cast(list[Any], value)) if isinstance(value, list) else value
    try:
        for key in ("bounds", "seen"):
            values |= {key: tuple(map(float, values[key]))} if key in values else {}
        for key in ("step", "center", "scale", "weight"):
            values |= {key: float(values[key])} if key in values else {}  # TOML has whole numbers without limit
        feature = Feature(**values)
        feature.values(np.arange(max(len(feature.levels), 1.0)), None)  # a dtype that can hold what it should
    except SchemaError:
        raise
    except Exception as error:
        raise SchemaError(f"feature {entry['name']!r}: {error}") from None
    return feature


def _fits(value: object, default: object) -> bool:
    if isinstance(default, tuple):
        if not isinstance(value, list):
            return False
        items = cast(list[object], value)
        if not default:
            return all(isinstance(v, str | int | float | bool) for v in items)
        kind = str if isinstance(default[0], str) else int | float
        return len(items) == 2 and all(isinstance(v, kind) and not isinstance(v, bool) for v in items)
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, type(default))
