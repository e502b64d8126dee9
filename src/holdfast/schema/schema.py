"""The columns of a table in order; the only place that knows how a table becomes a tensor and back.

Tables may have columns that the schema does not know, such as an id: they are never looked at, and
carried through.
"""

import hashlib
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.checks import did_you_mean, listed
from holdfast.errors import FileError, SchemaError
from holdfast.schema.encoding import Encoding
from holdfast.schema.feasible import FeasibleSet
from holdfast.schema.feature import KINDS, Array, Feature, Mask, Rule, column_names, repeated
from holdfast.schema.infer import Settings, inferred

Row = Mapping[str, object] | pd.Series  # one row of a table
MOST_NAMES = 6  # of columns, where a schema is printed


@dataclass(frozen=True, repr=False)
class Schema:
    """What the columns are, what a person may change, and how a row becomes numbers.

    Build it from data with `Schema.infer(frame, ...)`, read it with `Schema.load("schema.toml")`,
    or, for plain numbers, with `Schema.box(d, low, high)`.

    Args:
        features: the columns in order.
        rules: linear rules between columns, see `Rule`.
        max_changes: at most so many features may change; 0: any number.

    >>> import pandas as pd
    >>> import holdfast as hf
    >>> people = pd.DataFrame({"age": [23, 45, 61], "savings": [0.5, 3.0, 8.5], "job": ["clerk", "none", "cook"]})
    >>> schema = hf.Schema.infer(people, fixed=["age"], up=["savings"])
    >>> schema
    <Schema 3 features: 1 real, 1 integer, 1 category; fixed: age; up: savings>
    >>> schema.encode(people).shape  # one column for each level of a category
    torch.Size([3, 5])
    >>> schema.decode(schema.encode(people), people).equals(people)
    True
    """

    features: tuple[Feature, ...]
    rules: tuple[Rule, ...] = ()
    max_changes: int = 0  # 0: any number of features may change

    def __post_init__(self) -> None:
        if not bool(self.features):
            raise SchemaError("a schema needs at least one feature")
        most = self.max_changes
        names = self.names
        counts = isinstance(most, int) and not isinstance(most, bool) and most >= 0
        if not counts:
            raise SchemaError(f"max_changes must be an integer, 0 (no limit) or more, got {most!r}")
        # No tensor can be compared with a larger one.
        if not most < 2**63:
            raise SchemaError(
                "max_changes is more than 2**63, which cannot be counted; 0 is no limit"
            )
        twice = repeated(names)
        if twice:
            raise SchemaError(f"duplicate feature name(s) {listed(twice)}; rename one of them")
        for rule in self.rules:
            for name in rule.weights:
                if name not in names:
                    raise SchemaError(
                        f"rule {rule.text!r}: unknown column {name!r}; {did_you_mean(name, names)}"
                    )
                held = {"date": "dates", "category": "levels", "ordered": "levels"}.get(
                    self[name].kind
                )
                if held is not None:
                    raise SchemaError(
                        f"rule {rule.text!r}: column {name!r} holds {held}, not numbers"
                    )

    def __repr__(self) -> str:
        kinds = Counter(f.kind for f in self.features)
        parts = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
        for change in ("fixed", "up", "down"):
            names = [f.name for f in self.features if f.change == change]
            some = ", ".join(names[:MOST_NAMES]) + f" and {len(names) - MOST_NAMES} more" * (
                len(names) > MOST_NAMES
            )
            parts += f"; {change}: {some}" if names else ""
        parts += f"; {listed((r.text for r in self.rules), 2)}" if self.rules else ""
        parts += f"; at most {self.max_changes} changes" if self.max_changes else ""
        return f"<Schema {len(self.features)} feature{'s' * (len(self.features) > 1)}: {parts}>"

    # ---- making one

    @staticmethod
    def infer(frame: pd.DataFrame, **settings: Unpack[Settings]) -> "Schema":
        """Read kinds, levels, ranges and scaling off a table; say what may change. Columns of dates
        are fixed.

        Args:
            frame: the rows the model was trained on.
            fixed, up, down: columns that may not change, only rise, only fall.
            bounds: lowest and highest value an answer may have.
            integers: columns of integers that the table holds as floats.
            categories: columns of numbers that are really codes.
            ordered: levels of ordered categories, lowest first (ordered pandas categories need no
                mention).
            allowed: levels an answer may have.
            steps: answers in this column are multiples of it.
            weights: cost of one encoded unit of change.
            words: `label`, `unit` and `verbs` for sentences, per column.
            rules: linear rules such as "open_accounts <= total_accounts".
            max_changes: at most this many features may change; 0 for no limit.
            scaling: "standard" (zero mean, unit variance), "minmax" (to [0, 1]) or "none".
        """
        return Schema(*inferred(frame, **settings))

    @staticmethod
    def box(
        columns: int | Sequence[str], low: float = -math.inf, high: float = math.inf
    ) -> "Schema":
        """Plain real columns with common bounds and no scaling."""
        names = [f"x{i}" for i in range(columns)] if isinstance(columns, int) else list(columns)
        return Schema(tuple(Feature(n, bounds=(low, high), seen=(low, high)) for n in names))

    def change(self, **changes: Mapping[str, Any]) -> "Schema":
        """A copy with other fields for some features: `schema.change(age={"change": "fixed"})`."""
        for name, entry in changes.items():
            self[name]
            _check_fields(name, entry)
        return replace(
            self, features=tuple(replace(f, **changes.get(f.name, {})) for f in self.features)
        )

    def without_gaps(self, names: Iterable[str]) -> "Schema":
        """A copy in which numbers of these columns may not be missing."""
        return self.change(**{name: {"missing": False} for name in names})

    # ---- reading it

    @property
    def names(self) -> list[str]:
        """The columns of the table."""
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

    @cached_property
    def rounds(self) -> bool:
        """Does the table hold numbers with fewer digits than they are calculated with?"""
        return any(f.rounds for f in self.features)

    @property
    def width(self) -> int:
        """How many encoded columns a row has."""
        return self.slices[-1].stop

    @cached_property
    def columns(self) -> list[str]:
        """A name for each encoded column."""
        out: list[str] = []
        for f in self.features:
            missing = ["(missing)"] * f.missing
            out += [] if f.is_category else [f.name]
            out += [
                f"{f.name}={level}"
                for level in ([*f.levels, *missing] if f.is_category else missing)
            ]
        return out

    # ---- table <-> tensor

    def check_columns(self, frame: pd.DataFrame) -> None:
        """The table has each column of the schema once; others are not looked at."""
        present = column_names(frame)
        missing = [name for name in self.names if name not in present]
        if missing:
            extra = [name for name in present if name not in self.names]
            hint = f" ({did_you_mean(missing[0], extra)})" if extra else ""
            raise SchemaError(
                f"the table lacks {len(missing)} column(s) of the schema: {listed(missing)}{hint}"
            )

    def as_table(self, rows: pd.DataFrame | Row) -> pd.DataFrame:
        """A table as it is; one row, a dict or a Series, as a table of one row with the dtypes of
        the table that the schema was read off."""
        if isinstance(rows, pd.DataFrame):
            return rows
        if not isinstance(rows, Mapping | pd.Series):
            raise SchemaError(
                "expected a pandas DataFrame, or one row as a dict or Series, got "
                f"{type(rows).__name__}"
            )
        cells: dict[Any, Any] = dict(rows.items())
        several = [
            name
            for name, value in cells.items()
            if isinstance(value, Sized) and not isinstance(value, str)
        ]
        if several:
            what = f"{several[0]!r} holds several values; more rows make a pd.DataFrame"
            raise SchemaError(f"a dict or Series is one row, but {what}")
        index = [rows.name] if isinstance(rows, pd.Series) and rows.name is not None else None
        table = pd.DataFrame([cells], index=cast(Any, index)).infer_objects()
        for f in self.features:
            if f.name in table:
                missing_number = f.kind in ("real", "integer") and table[f.name].isna().all()
                table[f.name] = f.held(
                    table[f.name].astype(np.float64) if missing_number else table[f.name]
                )
        return table

    def read(self, frame: pd.DataFrame) -> Array:
        """The table as numbers (n, features): values, 0/1, ranks, level positions, NaN for a
        missing number. Anything that does not fit is an error that names the column and the fix."""
        self.check_columns(frame)
        known = frame if frame.columns.tolist() == self.names else frame[self.names]
        if self._all_floats(known):
            values = known.to_numpy()
            if np.isfinite(values).all():  # else the way below says which column is wrong
                return values
        columns = [f.numbers(frame[f.name]) for f in self.features]
        return np.stack(columns, axis=1) if len(frame) else np.zeros((0, len(columns)))

    def write(self, numbers: Array, like: pd.DataFrame, changed: Mask) -> pd.DataFrame:
        """`like` with the numbers of the `changed` cells (n, features): same index, column order
        and dtypes, and every other cell as it was to the last bit."""
        if len(like.columns) == len(self.features) and self._all_floats(like):
            order = [self.names.index(name) for name in like.columns]
            cells = np.where(changed[:, order], numbers[:, order], like.to_numpy())
            return pd.DataFrame(cells, index=like.index, columns=like.columns)
        out: dict[str, Any] = {name: like[name] for name in like.columns}
        for i, f in enumerate(self.features):
            rows = np.flatnonzero(changed[:, i])
            out[f.name] = (
                f.replaced(like[f.name], rows, numbers[rows, i]) if len(rows) else like[f.name]
            )
        return pd.DataFrame(out, index=like.index, columns=like.columns)

    def encode(self, frame: pd.DataFrame, dtype: torch.dtype = torch.float32) -> Tensor:
        """n rows -> (n, width)."""
        return self.encode_numbers(self.read(frame), dtype)

    def encode_numbers(self, numbers: Array, dtype: torch.dtype = torch.float32) -> Tensor:
        """(n, features) numbers -> (n, width)."""
        places = self._places
        out = np.zeros((len(numbers), self.width))
        values = numbers[:, places.number]
        if len(places.gap):
            out[:, places.says] = np.isnan(numbers[:, places.gap])
            values = np.where(np.isnan(values), places.stand_in, values)
        out[:, places.column] = (values - places.center) / places.scale
        np.put_along_axis(
            out, numbers[:, places.category].astype(np.int64) + places.first, 1.0, axis=1
        )
        return torch.tensor(out, dtype=dtype)

    def decode_numbers(self, z: Tensor) -> Array:
        """(n, width) -> (n, features) numbers, integers where they must be."""
        fits = z.ndim == 2 and z.shape[1] == self.width
        if not fits:
            raise SchemaError(
                f"expected encoded rows of shape (n, {self.width}), got {tuple(z.shape)}"
            )
        places = self._places
        rows = z.detach().double().numpy()
        out = np.empty((len(rows), len(self.features)))
        values = rows[:, places.column] * places.scale + places.center
        out[:, places.number] = np.where(
            places.integer, np.clip(np.round(values), *places.holds), values
        )
        for i in places.category:
            out[:, i] = rows[:, self.slices[i]].argmax(1)
        if len(places.gap):
            out[:, places.gap] = np.where(rows[:, places.says] > 0.5, np.nan, out[:, places.gap])
        return out

    def decode(self, z: Tensor, like: pd.DataFrame | None = None) -> pd.DataFrame:
        """(n, width) -> n rows. With `like`, its index, column order and dtypes, and its values in
        every cell that did not change, to the last bit."""
        numbers = self.decode_numbers(z)
        if like is None and all(
            f.kind == "real" and f.dtype in ("", "float64") for f in self.features
        ):
            return pd.DataFrame(numbers, columns=self.names)
        if like is None:
            return self.table(numbers)
        return self.write(numbers, like, self.changed_features(z, self.encode(like, z.dtype)))

    def table(self, numbers: Array) -> pd.DataFrame:
        """(n, features) numbers -> n rows, with the dtypes of the table that the schema was read
        off."""
        return pd.DataFrame(
            {f.name: f.values(numbers[:, i], None) for i, f in enumerate(self.features)}
        )

    def with_levels(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table with strings, and categories of other levels, as the categories that the schema
        was read off."""
        features = [f for f in self.features if f.has_levels_of_pandas]
        return (
            frame.assign(**{f.name: f.held(frame[f.name]) for f in features}) if features else frame
        )

    def changed_features(self, z: Tensor, x: Tensor) -> Mask:
        """(n, features) which features differ between encoded rows `z` and `x` (n, width)."""
        wanted = tuple(x.shape)
        got = tuple(z.shape)
        if wanted != got:
            raise SchemaError(
                f"expected encoded rows of shape {wanted}, one for each row, got {got}"
            )
        different: Mask = (z != x).numpy()
        return np.stack([different[:, s].any(1) for s in self.slices], axis=1)

    def _all_floats(self, frame: pd.DataFrame) -> bool:
        """Nothing but real numbers in double precision: such tables are read and written in one
        go."""
        return all(f.kind == "real" for f in self.features) and bool(
            (frame.dtypes == np.float64).all()
        )

    @cached_property
    def _places(self) -> "_Places":
        placed = [*zip(range(len(self.features)), self.features, self.slices, strict=True)]
        numbers = [(i, f, s) for i, f, s in placed if not f.is_category]
        categories = [(i, s.start) for i, f, s in placed if f.is_category]
        gaps = [(i, s.stop - 1) for i, f, s in numbers if f.has_gaps]
        return _Places(
            number=np.array([i for i, _, _ in numbers], dtype=np.int64),
            column=np.array([s.start for _, _, s in numbers], dtype=np.int64),
            category=np.array([i for i, _ in categories], dtype=np.int64),
            first=np.array([start for _, start in categories], dtype=np.int64),
            center=np.array([f.center for _, f, _ in numbers]),
            scale=np.array([f.scale for _, f, _ in numbers]),
            integer=np.array([f.kind not in ("real", "date") for _, f, _ in numbers], dtype=bool),
            holds=np.array([f.holds for _, f, _ in numbers]).reshape(-1, 2).T,
            stand_in=np.array([f.stand_in if f.has_gaps else np.nan for _, f, _ in numbers]),
            gap=np.array([i for i, _ in gaps], dtype=np.int64),
            says=np.array([says for _, says in gaps], dtype=np.int64),
        )

    # ---- what a person may do

    def encoding(self, dtype: torch.dtype = torch.float32) -> Encoding:
        """The schema as tensors."""
        cache = cast(dict[torch.dtype, Encoding], self.__dict__.setdefault("_encodings", {}))
        if dtype not in cache:
            cache[dtype] = Encoding.of(self.features, self.rules, self.max_changes, dtype)
        return cache[dtype]

    def feasible(self, x: Tensor) -> FeasibleSet:
        """What the people `x` (n, width) can reach; see `holdfast.schema.feasible`."""
        return FeasibleSet.of(x, self.encoding(x.dtype))

    def project(self, z: Tensor, x: Tensor) -> Tensor:
        """Nearest to `z` among the points that `x` can reach, row by row."""
        return self.feasible(x).project(z)

    # ---- files

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fields at their defaults left out; what the TOML file holds."""
        limits = {"max_changes": self.max_changes, "rules": [rule.text for rule in self.rules]}
        return {k: v for k, v in limits.items() if v} | {
            "feature": [_plain(f) for f in self.features]
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Schema":
        if not isinstance(content, Mapping):
            raise SchemaError(f"a schema is a table of settings, got {content!r}")
        known = ("feature", "rules", "max_changes")
        for key in content:
            if key not in known:
                raise SchemaError(
                    f"unknown setting {key!r} in the schema; {did_you_mean(key, known)}"
                )
        features = content.get("feature", [])
        rules = content.get("rules", [])
        if not _is_list(features, Mapping):
            raise SchemaError("a schema file holds a list of [[feature]] tables")
        if not _is_list(rules, str):
            raise SchemaError(f"`rules` must be a list of strings, got {rules!r}")
        return cls(
            tuple(map(_feature, features)),
            tuple(map(Rule.parse, rules)),
            content.get("max_changes", 0),
        )

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

    @cached_property
    def encoding_key(self) -> str:
        """A short hash of how rows become numbers, whatever may change in them."""
        parts = [(f.name, f.kind, f.levels, f.missing, f.center, f.scale) for f in self.features]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    @cached_property
    def probe(self) -> Tensor:
        """A few encoded rows spread over the data's range, always the same: models are told apart
        by their scores."""
        return self.probes(8)

    def probes(self, count: int) -> Tensor:
        """(count, d) such rows, as many as are wanted."""
        encoding = self.encoding(torch.float64)
        low = encoding.seen_low.clamp(-3, 3)
        high = encoding.seen_high.clamp(-3, 3)
        spread = torch.rand(
            count, self.width, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        )
        rows = encoding.whole(low + spread * (high - low))
        return self.feasible(rows).project(rows)


@dataclass(frozen=True)
class _Places:
    """Where features sit among the encoded columns, and how the number-like ones are scaled."""

    number: Any  # which features are number-like, and
    column: Any  # their encoded columns
    category: Any  # which features are categories, and
    first: Any  # their first encoded columns
    center: Array
    scale: Array
    integer: Mask
    holds: Array  # (2, .) the lowest and the highest number that each can hold
    stand_in: Array  # what stands for a missing number
    gap: Any  # which features are numbers that may be missing, and
    says: Any  # the encoded columns that say so


# The default of each field, whose type is that of the field; "name" has none.
_FIELDS: dict[str, Any] = {
    spec.name: "" if spec.default is MISSING else spec.default for spec in fields(Feature)
}


def _plain(feature: Feature) -> dict[str, Any]:
    values = {name: getattr(feature, name) for name in _FIELDS}
    changed = {
        name: value for name, value in values.items() if name == "name" or value != _FIELDS[name]
    }
    return {
        name: [*value] if isinstance(value, tuple) else value for name, value in changed.items()
    }


def _check_fields(name: object, entry: Mapping[str, Any]) -> None:
    for key in entry:
        if key not in _FIELDS:
            raise SchemaError(
                f"feature {name!r}: unknown field {key!r}; {did_you_mean(key, _FIELDS)}"
            )


def _feature(entry: Mapping[str, Any]) -> Feature:
    name = entry.get("name")
    _check_fields(name, entry)
    if not isinstance(name, str):
        raise SchemaError(f"a feature needs a name, got {dict(entry)!r}")
    for key, value in entry.items():
        fits = _fits(value, _FIELDS[key])
        if not fits:
            raise SchemaError(f"feature {name!r}: {key} = {value!r} is of the wrong type")
    try:
        feature = Feature(**{key: _converted(value, _FIELDS[key]) for key, value in entry.items()})
        numbers = np.arange(max(len(feature.levels), 1.0))
        held = bool((feature.numbers(feature.values(numbers, None)) == numbers).all())
    except SchemaError:
        raise
    except Exception as error:
        raise SchemaError(f"feature {name!r}: {error}") from None
    if not held:
        raise SchemaError(f"feature {name!r}: dtype {feature.dtype!r} cannot hold its values")
    return feature


def _is_list(value: object, kind: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, kind) for item in cast(list[object], value)
    )


def _fits(value: Any, default: object) -> bool:
    """Is a value of a TOML file of the type of this default? An integer may stand for a float, a
    boolean may not."""
    if not isinstance(default, tuple):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number if isinstance(default, float) else isinstance(value, type(default))
    if not default:
        return _is_list(value, str | int | float | bool)
    return (
        _is_list(value, object) and len(value) == 2 and all(map(_fits, value, cast(Any, default)))
    )


def _converted(value: Any, default: object) -> Any:
    """As the field holds it; TOML has lists, and integers without limit."""
    if isinstance(default, tuple):
        return tuple(map(_converted, value, cast(Any, default))) if default else tuple(value)
    return float(value) if isinstance(default, float) else value
