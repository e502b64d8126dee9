"""What operators check before they compute: that the file asks for something supported here, and
that it is not too large."""

import math
from collections.abc import Callable
from typing import Any, cast

from torch import Tensor

from holdfast.errors import FileError
from holdfast.models.formats.onnx.graph import Node

Operator = Callable[..., Any]
MOST = 1 << 28  # elements of a tensor


def room(node: Node, *shape: int) -> None:
    """An error if a tensor of this shape would be too large."""
    if math.prod(shape) > MOST:
        raise FileError(
            f"operator {node.op} makes a tensor of shape {shape}, more than {MOST:,} numbers"
        )


def unsupported(node: Node, what: str) -> FileError:
    """The error for what an operator asks and is not supported here."""
    return FileError(f"operator {node.op}: {what}")


def numbers(node: Node, given: Tensor | None, name: str) -> list[int] | None:
    """Axes, shapes and the like: an input in later versions, an attribute in earlier ones."""
    if given is None:
        return list(node.integers(name)) if name in node.attributes else None
    if given.is_floating_point() or given.ndim > 1 or given.numel() > 16:
        raise unsupported(node, f"{name} are not integers")
    return [int(v) for v in cast(list[Any], cast(Any, given).reshape(-1).tolist())]


def one(f: Callable[[Node, Tensor], Tensor]) -> Operator:
    """An operator of one tensor; for the type checker."""
    return f
