"""The trees of an ONNX graph that is nothing else, as `onnx.runtime` has read and checked them."""

from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from holdfast.models.compiled.from_sklearn import Kernel
from holdfast.models.compiled.preprocessing import RefusedError
from holdfast.models.compiled.tree_nodes import Nodes
from holdfast.schema.feature import Array

LT, GTE, GT = 1, 2, 3  # tests of a node; 0 is <=, and those after compare two numbers for equality


def graph(model: Any) -> tuple[Nodes, Kernel]:
    """A `FlatGraph`: every test becomes v <= threshold, with the sides changed where it tests for the higher values."""
    if model.trees is None:
        raise RefusedError("the graph is more than trees over columns of the table")
    trees, forest = model.trees, model.trees.forest
    test, tracks, roots, yes, no, threshold = (
        cast(npt.NDArray[Any], table.numpy())
        for table in (forest.mode, forest.missing, forest.roots, forest.left, forest.right, forest.values)
    )
    here = np.arange(len(test))
    inner = yes != here
    if (test[inner] > GT).any():
        raise RefusedError("a node tests whether two numbers are equal")
    tree = np.searchsorted(roots, here, "right")
    if (tree[yes] != tree).any() or (tree[no] != tree).any():
        raise RefusedError("the nodes of its trees are not one tree after the other")
    strict = (test == LT) | (test == GTE)
    if (inner & strict & np.isneginf(threshold)).any():  # there is no number next to it
        raise RefusedError("a node tests whether a number is below minus infinity")
    turned = (test == GTE) | (test == GT)
    below = np.nextafter(threshold, -np.inf, dtype=threshold.dtype)  # v < t is v <= the number next to t
    exact = threshold.dtype == np.float64 and model.exact
    nodes = Nodes(
        roots=roots,
        left=np.where(inner, np.where(turned, no, yes), -1),
        right=np.where(inner, np.where(turned, yes, no), -1),
        column=forest.feature.numpy(),
        threshold=np.where(strict, below, threshold).astype(np.float64),
        missing_left=tracks != turned,
        value=forest.leaf[:, : len(trees.base)].numpy(),
        adds_to=np.full(len(roots), -1),
        start=trees.base.numpy(),
        precision=np.float64 if exact else np.float32,
        share=float(trees.share),
        outputs=model.outputs,
    )
    return nodes, partial(_kernel, trees)


def _kernel(trees: Any, inputs: Any) -> Array:
    return trees.sums(torch.as_tensor(inputs)).numpy()
