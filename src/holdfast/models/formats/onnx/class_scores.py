"""What the classifiers of `ai.onnx.ml` give: class scores and class names."""

from typing import Any

import torch
from torch import Tensor

from holdfast.models.formats.onnx.graph import Node
from holdfast.models.formats.onnx.op_checks import unsupported


def after(node: Node, scores: Tensor, all_positive: bool = False) -> Tensor:
    """(n, k) sums -> what the classifier returns; one column of two classes becomes two."""
    how = node.get("post_transform", "NONE")
    if how not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise unsupported(node, f"post_transform {how!r} is not supported")
    if scores.shape[1] == 1 and len(labels(node)) == 2:
        if how == "LOGISTIC":
            return torch.sigmoid(torch.cat([-scores, scores], 1))
        return torch.cat([1 - scores if all_positive else -scores, scores], 1)
    return (
        torch.softmax(scores, 1)
        if how == "SOFTMAX"
        else torch.sigmoid(scores)
        if how == "LOGISTIC"
        else scores
    )


def labels(node: Node) -> list[Any]:
    """The names of the classes that a classifier or a ZipMap knows."""
    for name in ("classlabels_strings", "classlabels_ints", "classlabels_int64s"):
        if name in node.attributes:
            return list(node.strings(name) if name.endswith("strings") else node.integers(name))
    return []
