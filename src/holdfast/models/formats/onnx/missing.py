"""Numbers that may be missing, on their way through a graph.

An operator that knows nothing of them gets NaN. Until then a column carries an indicator of where
it is missing: where an imputer fills it in, that gives the straight line

    value + indicator (fill - stand-in)     indicator = 1 while it is missing, and the value is the
                                            stand-in then,

the same as in a compiled pipeline (`compiled.differentiable`): a search sees which way filling it
in would lead.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.models.formats.onnx.graph import ML, Node
from holdfast.models.formats.onnx.ops import Operator, unsupported


@dataclass(frozen=True)
class Gaps:
    """(n, columns) numbers, an indicator of those that are missing, and what stands for them."""

    value: Tensor
    indicator: Tensor
    stand_in: Tensor

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.value, self.indicator, self.stand_in

    def numbers(self) -> Tensor:
        """NaN where they are missing, which passes no gradient."""
        return self.value.masked_fill(self.indicator > 0.5, math.nan)

    def filled(self, fill: Tensor) -> Tensor:
        """The line above, written so that it is exact at both ends."""
        return (self.value - self.indicator * self.stand_in) + self.indicator * fill


def _moved(run: Operator, node: Node, x: Gaps, *where: Any) -> Gaps:
    """Operators that pick, put in order and shape, whatever the numbers are."""
    return Gaps(*(run(node, part, *where) for part in x.parts))


def _beside(run: Operator, node: Node, *columns: Any) -> Gaps:
    """Concat; other columns are never missing."""
    all_ = [c if isinstance(c, Gaps) else Gaps(c, torch.zeros_like(c), c) for c in columns]
    return Gaps(*(run(node, *parts) for parts in zip(*(c.parts for c in all_), strict=True)))


def _scaled(run: Operator, node: Node, *columns: Any) -> Tensor | Gaps:
    """Operators that treat every number on its own: stand-ins go the same way."""
    gaps = [c for c in columns if isinstance(c, Gaps)]
    value = run(node, *(c.parts[0] if isinstance(c, Gaps) else c for c in columns))
    stand_in = run(node, *(c.parts[2] if isinstance(c, Gaps) else c for c in columns))
    if len(gaps) > 1 or value.shape != gaps[0].value.shape:
        return run(node, *(c.numbers() if isinstance(c, Gaps) else c for c in columns))
    if not value.is_floating_point():
        raise unsupported(node, "integers cannot be missing")
    return Gaps(value, gaps[0].indicator.to(value.dtype), stand_in)


# Operators that take such columns as they are: (operator, node, what goes in) -> what comes out.
ON_GAPS: dict[str, Callable[..., Any]] = {
    "Identity": _moved,
    "Reshape": _moved,
    "Gather": _moved,
    "Slice": _moved,
    f"{ML}.ArrayFeatureExtractor": _moved,
    "Concat": _beside,
    "Cast": _scaled,
    "Add": _scaled,
    "Sub": _scaled,
    "Mul": _scaled,
    "Div": _scaled,
    f"{ML}.Scaler": _scaled,
}
