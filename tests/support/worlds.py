"""Random tables, and random schemas with people."""

from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

import holdfast as hf
from holdfast.schema.rule import Rule

COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127),
    "uint8": st.integers(0, 255),
    "int64": st.integers(-(2**60), 2**60),
    "float32": st.floats(-1e6, 1e6, width=32),
    "float64": st.floats(-1e12, 1e12),
    "bool": st.booleans(),
    "Int64": st.integers(-1000, 1000),
    "boolean": st.booleans(),
    "str": st.sampled_from(["a", "b", "c<d>", "é", ""]),
    "object": st.sampled_from(["x", "y", None]),
    "category": st.sampled_from(["u", "v", "w"]),
    "codes": st.sampled_from([1, 2, 5]),
    "datetime64[us]": st.datetimes() | st.none(),
    "datetime64[ns, Europe/Berlin]": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
    | st.none(),
}


@st.composite
def tables(draw: Any) -> pd.DataFrame:
    """Any mix of dtypes, odd indexes, names with spaces."""
    n = draw(st.integers(1, 8))
    kinds = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=6))
    out: dict[str, Any] = {}
    for i, kind in enumerate(kinds):
        values = draw(st.lists(COLUMNS[kind], min_size=n, max_size=n))
        if all(v is None for v in values):
            values[0] = "x" if kind == "object" else datetime(2024, 2, 29, 12)
        dtype = {"codes": "category"}.get(kind, kind)
        out[f"{kind} {i}"] = pd.Series(values, dtype=dtype)
    frame = pd.DataFrame(out)
    index = draw(st.sampled_from(["plain", "strings", "same", "dates"]))
    if index == "strings":
        frame.index = pd.Index([f"r{i}" for i in range(n)])
    elif index == "same":
        frame.index = pd.Index([7] * n)
    elif index == "dates":
        frame.index = pd.date_range("2020-01-01", periods=n)
    return frame


KINDS = st.sampled_from(
    ["real", "float32", "step", "integer", "boolean", "ordered", "category", "date"]
)
CHANGES = st.sampled_from(["free", "free", "free", "fixed", "up", "down"])


@st.composite
def worlds(draw: Any) -> tuple[hf.Schema, pd.DataFrame]:
    """A schema with every kind of promise, and people."""
    n = draw(st.integers(1, 6))
    d = draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    features = []
    columns = {}
    numbers = []
    for i in range(d):
        kind = draw(KINDS)
        change = draw(CHANGES)
        name = f"c{i}"
        if kind == "category":
            levels = ("a", "b", "c", "d")
            some = draw(st.sampled_from([(), ("a", "b"), ("b", "c", "d")]))
            change = "fixed" if change == "fixed" else "free"
            features.append(
                hf.Feature(name, "category", change, levels=levels, allowed=some, dtype="str")
            )
            columns[name] = rng.choice(levels, n)
        elif kind == "ordered":
            levels = ("low", "mid", "high", "top")
            some = draw(st.sampled_from([(), ("mid", "high")]))
            features.append(
                hf.Feature(
                    name, "ordered", change, levels=levels, allowed=some, scale=3.0, dtype="str"
                )
            )
            columns[name] = rng.choice(levels, n)
        elif kind == "date":
            days = rng.integers(0, 20_000, n)
            features.append(
                hf.Feature(name, "date", "fixed", center=1e9, scale=3e8, dtype="datetime64[s]")
            )
            columns[name] = np.datetime64(0, "s") + days * np.timedelta64(86_400, "s")
        elif kind == "boolean":
            features.append(hf.Feature(name, "boolean", change, dtype="bool"))
            columns[name] = rng.random(n) > 0.5
        else:
            numbers.append(name)
            low, high = sorted(rng.normal(0, 5, 2).round(2))
            bounds = draw(st.sampled_from([(-np.inf, np.inf), (low - 3, high + 3), (low, np.inf)]))
            made = {
                "center": float(rng.normal()),
                "scale": float(rng.uniform(0.2, 4)),
                "seen": (-12.0, 12.0),
            }
            if kind == "integer":
                features.append(
                    hf.Feature(name, "integer", change, bounds=bounds, dtype="int16", **made)
                )
                columns[name] = rng.integers(-9, 9, n).astype("int16")
            else:
                step = 0.25 if kind == "step" else 0.0
                dtype = "float32" if kind == "float32" else "float64"
                features.append(
                    hf.Feature(name, "real", change, bounds=bounds, step=step, dtype=dtype, **made)
                )
                columns[name] = rng.normal(0, 4, n).astype(dtype)
    rules = []
    if len(numbers) >= 2:
        for _ in range(draw(st.integers(0, 2))):
            a, b = draw(st.permutations(numbers))[:2]
            rules.append(
                draw(st.sampled_from([f"{a} <= {b}", f"2 * {a} - {b} <= 3", f"{a} + {b} >= -20"]))
            )
    most = draw(st.sampled_from([0, 0, 1, 2, 3]))
    schema = hf.Schema(tuple(features), tuple(Rule.parse(r) for r in rules), most)
    people = pd.DataFrame(columns)
    if draw(st.booleans()):  # what the schema does not know
        people.insert(draw(st.integers(0, d)), "id", [f"p{i}" for i in range(n)])
    return schema, people
