"""The nodes of all trees of a model, whatever library made them, as tests on the columns of a
table.

A node sends a row to the left if its input is low enough. Every library compares in its own
precision, behind a pipeline that scales in its own; but all of these steps rise, so for a column of
numbers there is one encoded value x* such that a row goes left exactly if x <= x*. It is found by
bisection over all doubles, with the library's own arithmetic. For a column of levels the node is
tried once with each level. Only integers remain: the rank of an encoded value among all x* of its
column, or the position of a level; a node becomes the set of codes that go right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast._core.types import Array, Ints, Mask
from holdfast.models.compiled.preprocessing import Column, Raw
from holdfast.models.scores import Outputs

ZERO = float(np.float32(1e-35))  # LightGBM takes numbers up to this size for zero
LAST = np.finfo(np.float64).max


@dataclass(frozen=True)
class Nodes:
    """All trees one after the other. A row with input v goes left at a node if v <= threshold (v <
    threshold where `strict`), compared in `precision`; if v is missing, `missing_left` decides; at
    a node in `sets`, if v is in the set.
    """

    roots: Ints  # (trees,)
    left: Ints  # (nodes,) -1 at a leaf
    right: Ints
    column: Ints  # (nodes,) which input of the model
    threshold: Array
    missing_left: Mask
    value: Array  # (nodes, k) what a leaf adds, to output `adds_to` or, where that is -1, to all
    adds_to: Ints  # (trees,)
    start: Array  # (outputs,)
    precision: Any
    strict: bool = False
    share: float = 1.0  # the sum is divided by it
    outputs: Outputs = "logits"
    sets: dict[int, Array] = field(default_factory=dict[int, Array])
    sets_left: bool = True  # do the members of a set go left, or right?
    # (nodes,) zeros count as missing too: numbers up to the size of
    zero_missing: Mask | None = None
    zero: float = ZERO

    def goes_left(self, v: Array, at: Ints) -> Mask:
        """(n,) values, (n,) nodes without sets."""
        v = v.astype(self.precision).astype(np.float64)
        t = self.threshold[at]
        missing = np.isnan(v)
        if self.zero_missing is not None:
            missing |= self.zero_missing[at] & (np.abs(v) <= self.zero)
        return np.where(missing, self.missing_left[at], v < t if self.strict else v <= t)

    def leaves(self) -> Ints:
        """(trees,) how many leaves each has."""
        ends = np.append(self.roots[1:], len(self.left))
        is_leaf = np.concatenate([[0], np.cumsum(self.left < 0)])
        return is_leaf[ends] - is_leaf[self.roots]


@dataclass(frozen=True)
class Codes:
    """How the encoded columns of one column of the table become a code."""

    at: slice
    # sorted x*: the code is how many lie below the value; None: the number of the largest column
    cuts: Array | None
    count: int  # how many codes there are
    # the encoded column that is 1 where the number is missing; its code is then
    indicator: int | None = None
    missing_code: int = 0  # the first of all, or the last
    # for numbers, the last one of the table on this side of each cut, NaN next to zero
    ends: Array | None = None


def code_columns(
    nodes: Nodes, columns: Sequence[Column], raws: Sequence[Raw]
) -> tuple[list[Codes], dict[int, tuple[int, Mask]]]:
    """The codes of every column that a node tests; and for each node the place of its column, and
    which codes go right."""
    inner = np.flatnonzero(nodes.left >= 0)
    # Nodes that send missing numbers to the left and those that send them to the right have their
    # own codes, with the code for missing first or last: then a node is one comparison.
    by_raw: dict[tuple[int, bool], list[int]] = {}
    missing_left = _missing_left(nodes, columns, raws, inner)
    for i, left in zip(inner.tolist(), missing_left.tolist(), strict=True):
        by_raw.setdefault((columns[int(nodes.column[i])].raw, left), []).append(i)
    codes: list[Codes] = []
    rights: dict[int, tuple[int, Mask]] = {}
    for (raw, missing_first), its_nodes in sorted(by_raw.items()):
        place = len(codes)
        at = np.array(its_nodes)
        levels = raws[raw].levels
        if levels is None:
            code, who = _number_codes(nodes, columns, raws[raw], at, missing_first)
        else:
            code = level_codes(raws[raw])
            who = _of_levels(nodes, columns, at, len(levels))
        codes.append(code)
        for node, right in zip(its_nodes, who, strict=True):
            rights[node] = place, right
    return codes, rights


def _number_codes(
    nodes: Nodes, columns: Sequence[Column], raw: Raw, at: Ints, missing_first: bool
) -> tuple[Codes, list[Mask]]:
    """The codes of a column of numbers, and for each of the nodes `at` which of them go right."""
    edges = _cuts(nodes, columns, raw, at)
    low, cut, high = (edge for edge, _ in edges)
    cuts, first_of = np.unique(np.concatenate([low, cut, high]), return_index=True)
    ends = np.concatenate([last for _, last in edges])[first_of]
    finite = np.abs(cuts) < LAST  # the others separate nothing
    cuts = cuts[finite]
    ends = ends[finite]
    count = len(cuts) + 1 + (raw.indicator is not None)
    codes = Codes(raw.at, cuts, count, raw.indicator, 0 if missing_first else count - 1, ends)
    ranks = np.arange(len(cuts) + 1)
    last_left = _ranks_of(cuts, cut)
    before_zero = _ranks_of(cuts, low)
    last_zero = _ranks_of(cuts, high)
    rights = list[Mask]()
    for j, node in enumerate(at.tolist()):
        right = ranks > last_left[j]
        if nodes.zero_missing is not None and nodes.zero_missing[node]:
            is_zero = (ranks > before_zero[j]) & (ranks <= last_zero[j])
            right = np.where(is_zero, not nodes.missing_left[node], right)
        if raw.indicator is not None:
            right = np.append(False, right) if missing_first else np.append(right, True)
        rights.append(right)
    return codes, rights


def _ranks_of(cuts: Array, edges: Array) -> Ints:
    """The place of each edge among the cuts; -1 where it comes before all numbers."""
    return np.where(edges > -LAST, np.searchsorted(cuts, edges), -1)


def _missing_left(nodes: Nodes, columns: Sequence[Column], raws: Sequence[Raw], at: Ints) -> Mask:
    """(nodes,) does a missing number go left at these nodes? False if none can be missing."""
    column = nodes.column[at]
    gaps = np.array([raws[c.raw].indicator is not None for c in columns], dtype=bool)
    became = np.full(len(columns), np.nan)
    for i in map(int, np.unique(column[gaps[column]])):
        became[i] = columns[i].of_missing
    return gaps[column] & nodes.goes_left(became[column], at)


def level_codes(raw: Raw) -> Codes:
    """Positions of levels: that of the largest one-hot column, or a rank, which is a rounded
    number."""
    assert raw.levels is not None
    assert raw.feature is not None
    count = len(raw.levels)
    if raw.feature.is_category:
        return Codes(raw.at, None, count)
    return Codes(
        raw.at, bisect(lambda x: raw.decoded(x) <= np.arange(count - 1.0), count - 1), count
    )


def _of_levels(nodes: Nodes, columns: Sequence[Column], at: Ints, count: int) -> list[Mask]:
    """For each node, which levels go right."""
    tables = {int(c): columns[int(c)].values() for c in np.unique(nodes.column[at])}
    out: list[Mask] = []
    for node in map(int, at):
        v = tables[int(nodes.column[node])]
        if node in nodes.sets:
            left: Mask = np.isin(v, nodes.sets[node]) == nodes.sets_left
            left[np.isnan(v)] = nodes.missing_left[node]
        else:
            left = nodes.goes_left(v, np.full(count, node))
        out.append(~left)
    return out


# encoded values up to which something holds, and the last numbers of the table there
Edge = tuple[Array, Array]


def _cuts(nodes: Nodes, columns: Sequence[Column], raw: Raw, at: Ints) -> tuple[Edge, Edge, Edge]:
    """(nodes,) x* of each, and where zero begins and ends for nodes that take it as missing."""
    column = nodes.column[at]

    def inputs(v: Array) -> Array:
        out = np.empty(len(v))
        for c in np.unique(column):
            here = column == c
            out[here] = columns[int(c)].number(v[here]).astype(nodes.precision)
        return out

    t = nodes.threshold[at]
    cut = _edge(raw, lambda v: inputs(v) < t if nodes.strict else inputs(v) <= t, len(at))
    if nodes.zero_missing is None or not nodes.zero_missing[at].any():
        empty = cut[0][:0], cut[1][:0]
        return empty, cut, empty
    z = nodes.zero
    return (
        _edge(raw, lambda v: inputs(v) < -z, len(at)),
        cut,
        _edge(raw, lambda v: inputs(v) <= z, len(at)),
    )


def _edge(raw: Raw, holds: Callable[[Array], Mask], n: int) -> Edge:
    """(n,) the encoded value up to which a falling condition on numbers of the table holds.

    Encoding a number and decoding it again may change its last digit. Wherever decoded numbers
    begin to fail, the edge lies between the encodings of the last number for which the condition
    holds and of the next one the table can hold, so rows of a table are on the right side.
    """
    edge = bisect(lambda x: holds(raw.decoded(x)), n)
    f = raw.feature
    with np.errstate(over="ignore", invalid="ignore"):  # of edges at either end of all numbers
        if f is None or f.kind != "real" or not raw.by_table:
            return edge, raw.decoded(edge)
        last = f.stored(bisect(lambda v: holds(f.stored(v)), n))
        here = (last - f.center) / f.scale
        beyond = ((last + f.digit(last)) - f.center) / f.scale
        between = np.maximum(np.minimum(edge, np.nextafter(beyond, -np.inf)), here)
        # The smallest numbers of all are encoded like zero, which is the one tables have.
        zero = -f.center / f.scale
        blurred = here == zero
        between = np.where(blurred & ~holds(np.zeros(n)), np.nextafter(zero, -np.inf), between)
    return np.where(np.abs(last) < LAST, between, edge), np.where(blurred, np.nan, last)


def bisect(holds: Callable[[Array], Mask], n: int) -> Array:
    """(n,) the largest double for which a falling condition holds; the lowest of all if it never
    does."""
    top = LAST.view(np.int64)
    # the order of doubles is that of integers with their bits
    low = np.full(n, -top)
    high = np.full(n, top)
    with np.errstate(over="ignore", invalid="ignore"):
        done = holds(_double(high))
        while (low < high - 1).any():
            middle = low + ((high >> 1) - (low >> 1))
            yes = holds(_double(middle))
            low = np.where(yes, middle, low)
            high = np.where(yes, high, middle)
    return np.where(done, LAST, _double(low))


def _double(order: Ints) -> Array:
    """Integer -> the double at that place, counted from zero."""
    return np.where(order >= 0, np.abs(order).view(np.float64), -np.abs(order).view(np.float64))
