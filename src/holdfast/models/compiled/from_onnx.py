"""The trees of an ONNX graph with nothing else, as `onnx.runtime` has read and checked them."""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from holdfast._core.types import Array, Ints
from holdfast.models.compiled.from_sklearn import Kernel
from holdfast.models.compiled.preprocessing import RefusedError
from holdfast.models.compiled.tree_nodes import Nodes

# tests of a node; 0 is <=, and the last ones compare two numbers for equality
LT = 1
GTE = 2
GT = 3


def graph(model: Any) -> tuple[Nodes, Kernel]:
    """A `FlatGraph`: every test becomes v <= threshold, with the sides swapped if it tests for
    higher values."""
    if model.trees is None:
        raise RefusedError("the graph is more than trees over columns of the table")
    trees = model.trees
    forest = trees.forest
    test: Ints = forest.mode.numpy()
    roots: Ints = forest.roots.numpy()
    yes: Ints = forest.left.numpy()
    no: Ints = forest.right.numpy()
    threshold: npt.NDArray[Any] = forest.values.numpy()
    inner = yes != np.arange(len(test))  # a leaf leads to itself
    strict = (test == LT) | (test == GTE)
    _check(test[inner], roots, yes, no, below=threshold[inner & strict])
    turned = (test == GTE) | (test == GT)
    # v < t is v <= the number next to t
    below = np.nextafter(threshold, -np.inf, dtype=threshold.dtype)
    exact = threshold.dtype == np.float64 and model.exact
    left = np.where(inner, np.where(turned, no, yes), -1)
    right = np.where(inner, np.where(turned, yes, no), -1)
    nodes = Nodes(
        roots=roots,
        left=left,
        right=right,
        column=forest.feature.numpy(),
        missing_left=forest.missing.numpy() != turned,
        threshold=np.where(strict, below, threshold).astype(np.float64),
        adds_to=np.full(len(roots), -1),
        value=forest.leaf[:, : len(trees.base)].numpy(),
        start=trees.base.numpy(),
        share=float(trees.share),
        precision=np.float64 if exact else np.float32,
        outputs=model.outputs,
    )
    return nodes, partial(_kernel, trees)


def _check(test: Ints, roots: Ints, yes: Ints, no: Ints, below: npt.NDArray[Any]) -> None:
    """Raise a `RefusedError` if `Nodes` cannot express what a forest does.

    Args:
        test: of the inner nodes.
        roots, yes, no: of the forest.
        below: numbers that inputs have to be below.
    """
    if (test > GT).any():
        raise RefusedError("a node tests whether two numbers are equal")
    tree = np.searchsorted(roots, np.arange(len(yes)), "right")
    if (tree[yes] != tree).any() or (tree[no] != tree).any():
        raise RefusedError("the nodes of its trees are not one tree after the other")
    if np.isneginf(below).any():  # no number is next to it
        raise RefusedError("a node tests whether a number is below minus infinity")


def _kernel(trees: Any, inputs: Any) -> Array:
    return trees.sums(torch.as_tensor(inputs)).numpy()
