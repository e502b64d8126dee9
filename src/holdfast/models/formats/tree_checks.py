"""Decision trees from a file: every index is checked before any reader follows it.

Readers written for speed (scikit-learn's, XGBoost's, LightGBM's) go from node to child without
asking whether the child exists. A tree is safe to follow if all indices are in range, no node has
two parents, and the root has none: then every walk from the root ends in a leaf.
"""

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast._core.checks import did_you_mean
from holdfast.errors import FileError

if TYPE_CHECKING:
    from holdfast.schema.schema import Schema

MOST_NODES = 50_000_000


def integers(values: Any, what: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A list of integers as an array."""
    try:
        out = np.asarray(values)
        if out.size == 0:
            return np.zeros(0, np.int64)
        too_large = out.dtype.kind == "u" and out.max() > np.iinfo(np.int64).max
        if out.dtype.kind not in "iub" or out.ndim != 1 or too_large:
            raise FileError(f"{what} is not a list of integers")
        return out.astype(np.int64)
    except (ValueError, OverflowError, TypeError):
        raise FileError(f"{what} is not a list of integers") from None


def finite(values: Any, what: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A list of finite numbers as an array."""
    try:
        out = np.asarray(values, np.float64)
    except (ValueError, OverflowError, TypeError):
        raise FileError(f"{what} is not a list of numbers") from None
    if out.ndim != 1 or not np.isfinite(out).all():
        raise FileError(f"{what} is not a list of finite numbers")
    return out


def inside(values: Any, low: int, high: int, what: str) -> None:
    """All of low <= value < high."""
    values = np.asarray(values)
    bad = (values < low) | (values >= high)
    if bad.any():
        raise FileError(f"{what} is {values[bad][0]}, outside of {low} to {high - 1}")


def check_tree(left: Any, right: Any, inner: Any, what: str) -> None:
    """Children of the inner nodes: in range, of one parent each, and never the root (node 0)."""
    count = len(left)
    if not count:
        raise FileError(f"{what} has no nodes")
    if count > MOST_NODES:
        raise FileError(f"{what} has {count:,} nodes, more than {MOST_NODES:,}")
    if not len(left) == len(right) == len(inner):
        raise FileError(f"{what} has lists of different lengths")
    children = np.concatenate([np.asarray(left)[inner], np.asarray(right)[inner]])
    inside(children, 1, count, f"{what}: a child")
    if len(children) and np.bincount(children, minlength=count).max() > 1:
        raise FileError(f"{what}: a node is the child of two others, so that a walk may never end")


def same_lengths(what: str, **lists: Any) -> int:
    """The length that all the lists have."""
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise FileError(f"{what} has lists of different lengths: {lengths}")
    return next(iter(lengths.values()))


def columns_of(names: list[str], schema: "Schema", bare: str) -> list[str]:
    """The columns of the table in the model's order: by its names, unless they say
    nothing."""
    n = len(names)
    count = len(schema.names)
    if n != count:
        raise FileError(f"the model in the file takes {n} columns, but the schema has {count}")
    if all(re.fullmatch(bare, name) for name in names) and not set(names) <= set(schema.names):
        return list(schema.names)
    for name in names:
        if name not in schema.names:
            raise FileError(
                f"the model in the file takes a column {name!r}; {did_you_mean(name, schema.names)}"
            )
    return names
