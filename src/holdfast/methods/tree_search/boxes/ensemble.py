"""The leaves of a model as boxes of moves, in flat arrays: what does not depend on a person."""

from typing import NamedTuple

import numpy as np

from holdfast._core.types import Array, Ints, Mask
from holdfast.methods.tree_search.moves import CellMoves
from holdfast.methods.tree_search.single_changes import LeafTable
from holdfast.models.compiled.tree_leaves import FeatureLeaves


class Ensemble(NamedTuple):
    """Leaf l limits `feature[e]` for ptr[l] <= e < ptr[l + 1]: to the moves first .. last of a
    line, or to those that `sets` has at `set_at[e]`, one byte for each of the feature's moves."""

    start: Ints  # (F + 1,) the first move of each feature
    line: Mask  # (F,) do all leaves let stretches of neighbouring cells through?
    gap: Ints  # (F,) the move that is a missing number, or -1
    ptr: Ints  # (L + 1,)
    feature: Ints  # (E,)
    first: Ints  # (E,)
    last: Ints  # (E,)
    set_at: Ints  # (E,) -1 where first and last say all
    sets: Mask
    tree: Ints  # (L,) rising


class Limits(NamedTuple):
    """What the leaves that test one feature let through of it."""

    leaf: Ints
    feature: Ints
    first: Ints
    last: Ints
    set_at: Ints
    sets: Mask
    line: bool
    gap: int


def ensemble_of(table: LeafTable, moves: CellMoves) -> Ensemble:
    """The leaves of a table over the features that have moves."""
    limits = list[Limits]()
    for i, (f, (a, _)) in enumerate(zip(table.features, moves.spans, strict=True)):
        limits.append(_limits(f, i, a, sum(len(part.sets) for part in limits)))
    leaf = _joined([part.leaf for part in limits])
    order = np.argsort(leaf, kind="stable")
    count = np.bincount(leaf, minlength=len(table.leaves.tree))
    return Ensemble(
        np.array([0, *(b for _, b in moves.spans)], dtype=np.int64),
        np.array([part.line for part in limits], dtype=bool),
        np.array([part.gap for part in limits], dtype=np.int64),
        np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        _joined([part.feature for part in limits])[order],
        _joined([part.first for part in limits])[order],
        _joined([part.last for part in limits])[order],
        _joined([part.set_at for part in limits])[order],
        np.concatenate([np.zeros(0, bool), *(part.sets for part in limits)]).astype(bool),
        table.leaves.tree.numpy().astype(np.int64),
    )


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _limits(f: FeatureLeaves, place: int, start: int, sets_before: int) -> Limits:
    """Those of the feature at a place whose moves begin at `start`."""
    inside: Mask = f.inside.numpy()
    leaf = np.flatnonzero(~inside.all(axis=1)).astype(np.int64)
    inside = inside[leaf]
    gap = start + f.cells.count - 1 if f.cells.has_gap else -1
    numbers = inside[:, :-1] if f.cells.has_gap else inside
    first, last = _ends(numbers)
    width = numbers.sum(axis=1)
    line = f.cells.cuts is not None and bool((width == np.maximum(last - first + 1, 0)).all())
    plain = line and gap < 0
    set_at = np.full(len(leaf), -1) if plain else sets_before + np.arange(len(leaf)) * len(inside.T)
    return Limits(
        leaf,
        np.full(len(leaf), place),
        start + first,
        start + last,
        set_at.astype(np.int64),
        np.zeros(0, bool) if plain else inside.ravel(),
        line,
        gap,
    )


def _ends(inside: Mask) -> tuple[Ints, Ints]:
    """(leaves, cells) -> the first and the last cell that each lets through; 0 and -1: none."""
    some = inside.any(axis=1)
    first = np.where(some, inside.argmax(axis=1), 0)
    last = np.where(some, inside.shape[1] - 1 - inside[:, ::-1].argmax(axis=1), -1)
    return first.astype(np.int64), last.astype(np.int64)


def values_of(table: LeafTable, weights: Array) -> Array:
    """(leaves, f) what each leaf adds to some functions of the model's outputs."""
    leaves = table.leaves
    return np.ascontiguousarray(leaves.value.numpy() @ weights.T / leaves.share)
