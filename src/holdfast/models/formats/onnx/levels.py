"""Columns of categories in a graph, as weights of their levels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.errors import FileError
from holdfast.models.formats.onnx.graph import Node


@dataclass(frozen=True)
class LevelColumns:
    """(n, columns) categories: for each column the weights (n, levels) of its levels, and the
    levels."""

    columns: tuple[tuple[Tensor, tuple[Any, ...]], ...]

    def numbers(self, node: Node, dtype: torch.dtype = torch.float32) -> Tensor:
        """(n, columns) the levels as numbers, weighted."""
        out = [
            w @ torch.tensor(as_numbers(node, levels), dtype=w.dtype) for w, levels in self.columns
        ]
        return torch.stack(out, 1).to(dtype)

    def map(self, f: Callable[[Any], list[float]], dtype: torch.dtype = torch.float32) -> Tensor:
        """(n, columns, m): each level becomes m numbers."""
        tables = [
            (w, torch.tensor([f(v) for v in levels], dtype=w.dtype)) for w, levels in self.columns
        ]
        return torch.stack([w @ table for w, table in tables], 1).to(dtype)


def as_numbers(node: Node, levels: tuple[Any, ...]) -> list[float]:
    try:
        return [float(v) for v in levels]
    except ValueError:
        raise FileError(
            f"operator {node.op} takes numbers, not strings such as {levels[0]!r}"
        ) from None
