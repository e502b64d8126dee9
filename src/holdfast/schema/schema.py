"""The columns of a table in order; the only place that knows how a table becomes a tensor and back.

Tables may have columns that the schema does not know, such as an id: they are never looked at, and
carried through.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.checks import did_you_mean, listed
from holdfast._core.types import Array, Mask
from holdfast.errors import SchemaError
from holdfast.schema import toml
from holdfast.schema.columns import column_names, repeated
from holdfast.schema.encoding import Encoding
from holdfast.schema.feasible import FeasibleSet
from holdfast.schema.feature import KINDS, Feature
from holdfast.schema.infer import InferSettings, inferred
from holdfast.schema.places import Places
from holdfast.schema.rule import Rule

Row = Mapping[str, object] | pd.Series  # one row of a table
MOST_NAMES = 6  # of columns, where a schema is printed
# what columns of other kinds than numbers hold
NOT_NUMBERS = {"date": "dates", "category": "levels", "ordered": "levels"}


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
    >>> people = pd.DataFrame(
    ...     {"age": [23, 45, 61], "savings": [0.5, 3.0, 8.5], "job": ["clerk", "none", "cook"]}
    ... )
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
        if not self.features:
            raise SchemaError("a schema needs at least one feature")
        most = self.max_changes
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise SchemaError(f"max_changes must be an integer, 0 (no limit) or more, got {most!r}")
        # No tensor can be compared with a larger one.
        if most >= 2**63:
            raise SchemaError(
                "max_changes is more than 2**63, which cannot be counted; 0 means no limit"
            )
        twice = repeated(self.names)
        if twice:
            raise SchemaError(f"duplicate feature name(s) {listed(twice)}; rename one of them")
        for rule in self.rules:
            self._check_rule(rule)

    def _check_rule(self, rule: Rule) -> None:
        """A rule is about columns that exist and hold numbers."""
        for name in rule.weights:
            if name not in self.names:
                advice = did_you_mean(name, self.names)
                raise SchemaError(f"rule {rule.text!r}: unknown column {name!r}; {advice}")
            content = NOT_NUMBERS.get(self[name].kind)
            if content is not None:
                raise SchemaError(
                    f"rule {rule.text!r}: column {name!r} holds {content}, not numbers"
                )

    def __repr__(self) -> str:
        kinds = Counter(feature.kind for feature in self.features)
        count = len(self.features)
        parts = [", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])]
        for change in ("fixed", "up", "down"):
            names = [feature.name for feature in self.features if feature.change == change]
            if names:
                more = len(names) - MOST_NAMES
                shown = ", ".join(names[:MOST_NAMES])
                parts.append(f"{change}: {shown}" + (f" and {more} more" if more > 0 else ""))
        if self.rules:
            parts.append(listed((rule.text for rule in self.rules), 2))
        if self.max_changes:
            parts.append(f"at most {self.max_changes} changes")
        return f"<Schema {count} feature{'s' * (count > 1)}: {'; '.join(parts)}>"

    # ---- making one

    @staticmethod
    def infer(frame: pd.DataFrame, **settings: Unpack[InferSettings]) -> "Schema":
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
            scaling: "standard" (zero mean, unit variance), "minmax" (to [0, 1]), "robust" (median
                and quartiles, for columns with a few huge values) or "none".
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
            self[name]  # raises an error if there is no such feature
            toml.check_fields(name, entry)
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
            if f.is_category:
                out += [f"{f.name}={level}" for level in f.levels]
            else:
                out.append(f.name)
            if f.missing:
                out.append(f"{f.name}=(missing)")
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
        for name, value in cells.items():
            if isinstance(value, Sized) and not isinstance(value, str):
                raise SchemaError(
                    f"a dict or Series is one row, but {name!r} holds several values; more rows "
                    "make a pd.DataFrame"
                )
        # pandas would make a column of objects of a number that is missing, and of a level
        index = [rows.name] if isinstance(rows, pd.Series) and rows.name is not None else None
        table = pd.DataFrame([cells], index=cast(Any, index)).infer_objects()
        for f in self.features:
            if f.name in table:
                column = table[f.name]
                if f.kind in ("real", "integer") and column.isna().all():
                    column = column.astype(np.float64)
                table[f.name] = f.held(column)
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
            if len(rows):
                out[f.name] = f.replaced(like[f.name], rows, numbers[rows, i])
        return pd.DataFrame(out, index=like.index, columns=like.columns)

    def encode(self, frame: pd.DataFrame, dtype: torch.dtype = torch.float32) -> Tensor:
        """n rows -> (n, width)."""
        return self.encode_numbers(self.read(frame), dtype)

    def encode_numbers(self, numbers: Array, dtype: torch.dtype = torch.float32) -> Tensor:
        """(n, features) numbers -> (n, width)."""
        return torch.tensor(self._places.encode(numbers), dtype=dtype)

    def decode_numbers(self, z: Tensor) -> Array:
        """(n, width) -> (n, features) numbers, integers where they must be."""
        if z.ndim != 2 or z.shape[1] != self.width:
            raise SchemaError(
                f"expected encoded rows of shape (n, {self.width}), got {tuple(z.shape)}"
            )
        return self._places.decode(z.detach().double().numpy())

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
        if not features:
            return frame
        return frame.assign(**{f.name: f.held(frame[f.name]) for f in features})

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
        step."""
        return all(f.kind == "real" for f in self.features) and bool(
            (frame.dtypes == np.float64).all()
        )

    @cached_property
    def _places(self) -> Places:
        return Places.of(self.features, self.slices)

    # ---- what a person may do

    def encoding(self, dtype: torch.dtype = torch.float32) -> Encoding:
        """The schema as tensors."""
        if dtype not in self._encodings:
            encoding = Encoding.of(self.features, self.rules, self.max_changes, dtype)
            self._encodings[dtype] = encoding
        return self._encodings[dtype]

    @cached_property
    def _encodings(self) -> dict[torch.dtype, Encoding]:
        """Those that have been requested so far."""
        return {}

    def feasible(self, x: Tensor) -> FeasibleSet:
        """What the people `x` (n, width) can reach; see `holdfast.schema.feasible`."""
        return FeasibleSet.of(x, self.encoding(x.dtype))

    def project(self, z: Tensor, x: Tensor) -> Tensor:
        """Nearest to `z` among the points that `x` can reach, row by row."""
        return self.feasible(x).project(z)

    # ---- files

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fields at their defaults left out; what the TOML file holds."""
        content = dict[str, Any]()
        if self.max_changes:
            content["max_changes"] = self.max_changes
        if self.rules:
            content["rules"] = [rule.text for rule in self.rules]
        return content | {"feature": [toml.plain(feature) for feature in self.features]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Schema":
        """The schema of which `to_dict` gave this content."""
        return cls(*toml.parsed(content))

    def save(self, path: str | Path) -> None:
        """Write as TOML."""
        toml.write(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a TOML file written by `save` or by hand."""
        return cls.from_dict(toml.read(path))

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
