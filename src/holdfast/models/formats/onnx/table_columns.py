"""A graph over the columns of the table, in the user's units, as a module over encoded rows.

Numbers are put back into their units, missing ones too (`onnx.missing`), and categories go in as
weights of their levels, so that it is differentiable by everything a search moves.
"""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from holdfast.errors import FileError
from holdfast.models.formats.onnx.graph import DTYPES, Node, Slot
from holdfast.models.formats.onnx.interpreter import Column, Interpreter, carry_out
from holdfast.models.formats.onnx.levels import LevelColumns
from holdfast.models.formats.onnx.missing import Gaps
from holdfast.models.formats.onnx.ops import OPERATORS
from holdfast.schema.schema import Schema

REAL = ("float", "double", "float16")
NEAR = 1e-6  # a number this near to an integer, in a column of integers, is that


class Columns(nn.Module):
    """A graph over the columns of the table, as a module over encoded rows."""

    def __init__(
        self, inner: Interpreter, schema: Schema, never_missing: Collection[str] = ()
    ) -> None:
        super().__init__()
        self.never_missing = frozenset(
            never_missing
        )  # columns of numbers: what marks those as missing is not looked at
        # The first parameter, in double precision, which makes the rows be encoded in it: no digit
        # is lost on the way.
        units = torch.tensor([(f.center, f.scale) for f in schema.features], dtype=torch.float64)
        self.center, self.scale = (
            nn.Parameter(column.clone(), requires_grad=False) for column in units.T
        )
        self.inner = inner
        self.schema = schema
        self.encoding = schema.encoding(torch.float64)
        self.together = len(inner.slots) == 1 and inner.slots[0].name not in schema.names

    def forward(self, z: Tensor) -> Tensor:
        slots = {s.name: s for s in self.inner.slots}
        if self.together:
            slot = self.inner.slots[0]
            parts = [self.column(z, i, slot) for i in range(len(self.schema.features))]
            if slot.element == "string" or any(isinstance(p, LevelColumns) for p in parts):
                raise FileError(
                    "the graph takes all columns in one input, which cannot hold strings and "
                    "numbers"
                )
            return self.inner.run({slot.name: carry_out(_SIDE_BY_SIDE, OPERATORS["Concat"], parts)})
        return self.inner.run(
            {n: self.column(z, i, slots[n]) for i, n in enumerate(self.schema.names) if n in slots}
        )

    def column(self, z: Tensor, i: int, slot: Slot) -> Column:
        """(n, 1) the values of a column in the user's units."""
        f = self.schema.features[i]
        s = self.schema.slices[i]
        if f.is_category:
            levels = LevelColumns(((z[:, s], (*f.levels, *(["nan"] * f.missing))),))
            return (
                levels
                if slot.element == "string" or not self.together
                else levels.numbers(_HAND_IN)
            )
        value = self.in_units(z[:, s.start : s.start + 1], i)
        if f.kind == "ordered":
            return LevelColumns(((hats(value, len(f.levels)), f.levels),))
        if slot.element == "string":
            raise FileError(
                f"the graph takes strings in {slot.name!r}, where the schema has numbers"
            )
        if f.has_gaps and f.name not in self.never_missing:
            if slot.element not in REAL:
                raise FileError(
                    f"the graph takes {slot.element} in {slot.name!r}, which has no missing numbers"
                )
            stand_in = self.in_units(self.encoding.stand_in[s.start], i).expand_as(value)
            parts = value, z[:, s.stop - 1 : s.stop], stand_in
            return Gaps(*(part.to(DTYPES[slot.element]) for part in parts))
        if slot.element == "bool":
            return value > 0.5
        # integers stay real, for gradients
        return value.to(DTYPES[slot.element]) if slot.element in REAL else value

    def in_units(self, encoded: Tensor, i: int) -> Tensor:
        value = encoded * self.scale[i] + self.center[i]
        if self.schema.features[i].kind == "real":
            return value
        nearest = value.round()
        return torch.where(
            (value - nearest).abs() < NEAR, value + (nearest - value).detach(), value
        )


def hats(value: Tensor, count: int) -> Tensor:
    """(n, 1) ranks -> (n, count) weights of the ranks, linear in between; at a rank the slope is
    that to both sides."""
    ranks = torch.arange(count, dtype=value.dtype)

    def hat(v: Tensor) -> Tensor:
        return torch.relu(1 - (v - ranks).abs())

    at = value.detach().clamp(0, count - 1)
    low = (at - 0.5).clamp_min(0)
    high = (at + 0.5).clamp_max(count - 1)
    slope = (hat(high) - hat(low)) / (high - low).clamp_min(0.5)
    return hat(at) + slope * (value - value.detach())


_HAND_IN = Node("input", 1, (), (), {})
_SIDE_BY_SIDE = Node("Concat", 13, (), (), {"axis": 1})


def no_gaps(inner: Interpreter, schema: Schema) -> dict[str, str]:
    """The columns in which the schema allows missing numbers and the graph does not, and why."""
    gaps = [f.name for f in schema.features if f.has_gaps]
    out = dict[str, str]()
    for name in gaps:
        alone = schema.without_gaps(other for other in gaps if other != name)
        encoding = alone.encoding(torch.float64)
        rows = alone.probe.clone()
        rows[:, encoding.gaps[1]] = 1.0
        try:
            with torch.no_grad():
                fine = bool(Columns(inner, alone)(encoding.whole(rows)).isfinite().all())
            if not fine:
                raise FileError("the graph then gives non-finite scores")
        except FileError as error:
            out[name] = str(error)
    return out
