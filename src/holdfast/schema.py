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

    def encode(self, frame: pd.DataFrame, dtype: torch.dtype = torch.float32) -> Tensor:
        """n rows -> (n, width). Anything that does not fit is an error that names the column and the fix."""
        self.check_columns(frame)
        parts = [f.encode(frame[f.name]) for f in self.features]
        return torch.tensor(np.concatenate(parts, axis=1), dtype=dtype)

    def decode(self, z: Tensor, like: pd.DataFrame | None = None) -> pd.DataFrame:
        """(n, width) -> n rows. With `like`, its index, column order and dtypes, and its values in every cell
        that did not change, to the last bit."""
        numbers = self._numbers(z)
        if like is None:
            parts = {f.name: f.values(v, None) for f, v in zip(self.features, numbers, strict=True)}
            return pd.DataFrame(parts)
        changed = self._changed(z, self.encode(like, z.dtype))
        return self._write(numbers, changed, like)

    def hand_in(self, z: Tensor, before: pd.DataFrame) -> pd.DataFrame:
        """The rows that people starting from `before` would hand in to get to `z`: decoded, with every limit
        and rule kept exactly in the user's units, not just to rounding."""
        x = self.encode(before, torch.float64)
        same = z.double() == self.encode(before, z.dtype).double()
        numbers = self._numbers(self.reach(x).project(torch.where(same, x, z.double())))
        kept = self._numbers(x)
        for i, f in enumerate(self.features):
            if f.is_category or f.change == "fixed":
                continue
            value = np.clip(numbers[i], *f.limits)
            if f.grid:
                value = np.where(value == kept[i], value, np.round(value / f.grid) * f.grid)
            if f.change == "up":
                value = np.maximum(value, kept[i])
            if f.change == "down":
                value = np.minimum(value, kept[i])
            numbers[i] = value
        self._polish_rules(numbers, kept)
        asked = ~same.all(1).numpy()  # a row of which nothing is asked is handed in as it is
        changed = [(v != k) & asked for v, k in zip(numbers, kept, strict=True)]
        return self._write(numbers, changed, before)

    def _polish_rules(self, numbers: list[Array], kept: list[Array]) -> None:
        """Rounding may leave a rule over its bound by a last digit: take it off a column that has room."""
        place = {f.name: i for i, f in enumerate(self.features)}
        for rule in self.rules:
            for name, weight in rule.weights.items():
                i, f = place[name], self[name]
                over = rule_excess(rule, numbers, place)
                small = (over > 0) & (over < 1e-3 * abs(weight) * f.scale)
                if f.change == "fixed" or f.grid or not small.any():
                    continue
                # A hair more than the excess, so that adding up the rule again cannot round it back.
                moved = numbers[i] - over / weight * (1 + 1e-9) - np.spacing(np.abs(numbers[i])) * np.sign(weight)
                low, high = f.limits
                fits = (moved >= low) & (moved <= high)
                fits &= (moved >= kept[i]) if f.change == "up" else (moved <= kept[i]) if f.change == "down" else True
                numbers[i] = np.where(small & fits & (numbers[i] != kept[i]), moved, numbers[i])

    def _numbers(self, z: Tensor) -> list[Array]:
        """Per feature one number per row: value, rank, or level position."""
        if z.ndim != 2 or z.shape[1] != self.width:
            raise SchemaError(f"expected encoded rows of shape (n, {self.width}), got {tuple(z.shape)}")
        rows = z.detach().double().numpy()
        out: list[Array] = []
        for f, s in zip(self.features, self.slices, strict=True):
            if f.is_category:
                out.append(rows[:, s].argmax(1).astype(np.float64))
                continue
            values = rows[:, s.start] * f.scale + f.center
            if f.grid:
                values = np.round(values / f.grid) * f.grid if f.kind != "real" else values
            if f.kind == "ordered":
                values = np.clip(values, 0, len(f.levels) - 1)
            out.append(values)
        return out

    def _changed(self, z: Tensor, x: Tensor) -> list[Mask]:
        """Per feature: which rows of `z` differ from `x`."""
        different = (z != x).numpy()
        return [different[:, s].any(1) for s in self.slices]

    def _write(self, numbers: list[Array], changed: list[Mask], like: pd.DataFrame) -> pd.DataFrame:
        place = {f.name: i for i, f in enumerate(self.features)}
        out: dict[Any, Any] = {}
        for name in like.columns:
            i = place[str(name)]
            old = like[name].reset_index(drop=True)
            new = self.features[i].values(numbers[i], old) if changed[i].any() else old
            if new.dtype != old.dtype:  # a category that the table's own dtype did not list
                old = old.astype(new.dtype)
            out[name] = new.where(changed[i], old).array
        return pd.DataFrame(out, index=like.index, columns=like.columns)

    # ---- what a person may do

    def layout(self, dtype: torch.dtype = torch.float32) -> Layout:
        """The schema as tensors."""
        cache = cast(dict[torch.dtype, Layout], self.__dict__.setdefault("_layouts", {}))
        if dtype not in cache:
            cache[dtype] = _layout(self, dtype)
        return cache[dtype]

    def reach(self, x: Tensor) -> Reach:
        """What the people `x` (n, width) can reach; see `holdfast.reach`."""
        return Reach.of(x, self.layout(x.dtype))

    def project(self, z: Tensor, x: Tensor) -> Tensor:
        """Nearest to `z` among the points that `x` can reach, row by row."""
        return self.reach(x).project(z)

    def blocked(self, frame: pd.DataFrame) -> "pd.Series[str]":
        """For each person why nothing can be reached at all, or ''."""
        x = self.encode(frame, torch.float64)
        reach = self.reach(x)
        reason = pd.Series([""] * len(frame), dtype=object)
        forced = np.zeros(len(frame), dtype=np.int64)
        for f, s in zip(self.features, self.slices, strict=True):
            column = frame[f.name].reset_index(drop=True)
            if f.is_category:
                here = x[:, s].argmax(1).numpy()
                outside = ~f.may_become()[here] & (here < len(f.levels))
            else:
                low, high = f.limits
                value = f.numbers(frame[f.name])
                outside = (value < low) | (value > high)
            stuck = outside & (reach.lo[:, s] >= reach.hi[:, s]).all(1).numpy()
            forced += outside
            hit = stuck & (reason == "").to_numpy()
            says = f"{f.label or f.name} is {{}}, outside what the schema allows, and is {_MOVES[f.change]}"
            reason[hit] = [says.format(v) for v in column[hit]]
        if self.max_changes:
            many = (forced > self.max_changes) & (reason == "").to_numpy()
            reason[many] = f"more than max_changes = {self.max_changes} values lie outside what the schema allows"
        at = self.layout(torch.float64)
        least = torch.minimum(at.rules[:, None] * reach.lo, at.rules[:, None] * reach.hi).nan_to_num(-torch.inf)
        for rule, low, bound in zip(self.rules, least.sum(2), at.bounds, strict=True):
            hit = (low > bound + 1e-9).numpy() & (reason == "").to_numpy()
            reason[hit] = f"rule {rule.text!r} cannot be kept from here"
        return pd.Series(reason.to_numpy(), index=frame.index, dtype=object)

    def violations(self, before: pd.DataFrame, after: pd.DataFrame) -> "pd.Series[str]":
        """For each answer the first promise it breaks, or ''. Shares no code with the projection: it reads the
        two tables as a person would, so that a mistake there cannot hide itself here."""
        broken = pd.Series([""] * len(after), dtype=object)
        changes = np.zeros(len(after), dtype=np.int64)

        def note(bad: Any, what: str) -> None:
            broken[np.asarray(bad) & (broken == "").to_numpy()] = what

        values = {f.name: f.numbers(after[f.name]) for f in self.features}
        for f in self.features:
            was, now = f.numbers(before[f.name]), values[f.name]
            moved = was != now
            changes += moved
            if f.is_category:
                note(~np.r_[f.may_become(), f.missing][now.astype(int)] & (moved | (now < len(f.levels))),
                     f"{f.name}: a level that is not allowed")
                note(moved & (now >= len(f.levels)), f"{f.name}: became missing")
            else:
                low, high = f.limits
                note((now < low) | (now > high), f"{f.name}: outside {low:g} to {high:g}")
                if f.grid:
                    note(moved & (np.abs(now / f.grid - np.round(now / f.grid)) > 1e-9), f"{f.name}: between steps")
            note(moved & (f.change == "fixed"), f"{f.name}: fixed, but changed")
            note((now < was) & (f.change == "up"), f"{f.name}: may only rise, but fell")
            note((now > was) & (f.change == "down"), f"{f.name}: may only fall, but rose")
        if self.max_changes:
            note(changes > self.max_changes, f"more than {self.max_changes} changes")
        for rule in self.rules:
            total = sum(w * values[n] for n, w in rule.weights.items())
            note(total > rule.bound, f"rule {rule.text!r} broken")
        return pd.Series(broken.to_numpy(), index=after.index, dtype=object)

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
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise FileError(f"cannot read schema {str(path)!r} as TOML: {error}") from None
        return cls.from_dict(content)

    def fingerprint(self) -> str:
        """A short hash of everything above, for provenance."""
        return hashlib.sha256(repr(self.to_dict()).encode()).hexdigest()[:16]


_MOVES = {"fixed": "fixed", "up": "only allowed to rise", "down": "only allowed to fall", "free": "not movable"}


def rule_excess(rule: Rule, numbers: list[Array], place: Mapping[str, int]) -> Array:
    """By how much each row is over the rule's bound."""
    return sum((w * numbers[place[n]] for n, w in rule.weights.items()), np.zeros(len(numbers[0]))) - rule.bound


def _layout(schema: Schema, dtype: torch.dtype) -> Layout:
    owner = np.repeat(np.arange(len(schema.features)), [f.width for f in schema.features])
    d = len(owner)
    columns: dict[str, Array] = {
        name: np.zeros(d) for name in ("center", "low", "seen_low", "fixed", "up", "down", "missing", "grid")
    } | {name: np.ones(d) for name in ("scale", "high", "seen_high", "weight")}
    groups: list[range] = []
    for f, s in zip(schema.features, schema.slices, strict=True):
        columns["weight"][s] = f.weight
        for word in ("fixed", "up", "down"):
            columns[word][s] = f.change == word
        if f.is_category:
            columns["high"][s] = f.may_become()
            columns["missing"][s.stop - 1] = f.missing
            groups.append(range(s.start, s.stop))
            continue
        columns["center"][s], columns["scale"][s], columns["grid"][s] = f.center, f.scale, f.grid / f.scale
        ranks = (0.0, len(f.levels) - 1.0) if f.kind == "ordered" else (0.0, 1.0)
        seen = ranks if f.kind in ("ordered", "boolean") else f.seen
        for name, value in zip(("low", "high", "seen_low", "seen_high"), (*f.limits, *seen), strict=True):
            columns[name][s] = (value - f.center) / f.scale
    rules = np.zeros((len(schema.rules), d))
    bounds = np.array([r.bound for r in schema.rules])
    for i, rule in enumerate(schema.rules):
        for name, weight in rule.weights.items():
            at = schema.slices[schema.names.index(name)].start
            rules[i, at] = weight * schema[name].scale
            bounds[i] -= weight * schema[name].center
    size = np.linalg.norm(rules, axis=1, keepdims=True) if len(rules) else np.ones((0, 1))
    most = max((len(g) for g in groups), default=0)
    padded = [[*g, *[d] * (most - len(g))] for g in groups]

    def tensor(values: Any) -> Tensor:
        return torch.as_tensor(values, dtype=dtype)

    flags = {name: torch.as_tensor(columns.pop(name) > 0) for name in ("fixed", "up", "down", "missing")}
    return Layout(
        **{name: tensor(value) for name, value in columns.items()},
        **flags,
        groups=torch.as_tensor(padded, dtype=torch.int64).reshape(len(groups), most),
        owner=torch.as_tensor(owner),
        rules=tensor(rules / size),
        bounds=tensor(bounds / size[:, 0]),
        max_changes=schema.max_changes,
    )


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
    return Feature(**values)


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
