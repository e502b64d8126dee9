"""Where counterfactuals may go while a network learns from them; rows are in the last axis, as in
`nn.stack`."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from holdfast.schema.encoding import Encoding

RUNS = 8  # slices; while they are few, they cost less than numbers of columns


@dataclass(frozen=True, eq=False)
class Domain:
    """Limits (d, 1) of all columns, and the numbers of those that may not change, only rise, or
    only fall.

    Paper: altmeyer2025 Definition 3.1, Section 3.2.
    """

    low: Tensor
    high: Tensor
    fixed: Tensor
    up: Tensor
    down: Tensor
    # of categories with one level at every step, not a mixture
    encoding: Encoding | None = None

    @classmethod
    def of(
        cls,
        x: Tensor,
        encoding: Encoding | None = None,
        *,
        spread: float = 2.0,
        categories: bool = False,
    ) -> "Domain":
        """The limits of a schema where it has any; elsewhere the range of rows x (n, d), widened to
        mean -+ spread sd. Categories are respected, or their columns are numbers like all
        others."""
        mean = x.mean(0)
        sd = x.std(0) if len(x) > 1 else torch.zeros_like(x[0])
        low = torch.minimum(mean - spread * sd, x.amin(0))
        high = torch.maximum(mean + spread * sd, x.amax(0))
        if encoding is None:
            no_columns = torch.zeros(0, dtype=torch.int64)
            return cls(low[:, None], high[:, None], no_columns, no_columns, no_columns)
        bounds = encoding.low.to(x.dtype), encoding.high.to(x.dtype)
        low = torch.where(encoding.one_hot | bounds[0].isinf(), low, bounds[0])
        high = torch.where(encoding.one_hot | bounds[1].isinf(), high, bounds[1])
        ways = [flag.nonzero().squeeze(1) for flag in (encoding.fixed, encoding.up, encoding.down)]
        return cls(low[:, None], high[:, None], *ways, encoding=encoding if categories else None)

    @cached_property
    def box(self) -> tuple[float, float] | None:
        """The limits if all columns share them: clamping is then one pass instead of two."""
        same = bool((self.low == self.low[0]).all() and (self.high == self.high[0]).all())
        return (float(self.low[0]), float(self.high[0])) if same else None

    @cached_property
    def size(self) -> float:
        """No column inside the limits is further from 0."""
        return max(float(self.low.abs().max()), float(self.high.abs().max()))

    @cached_property
    def binds(self) -> bool:
        """Is there a column that may not change freely?"""
        return bool(len(self.fixed) + len(self.up) + len(self.down))

    @cached_property
    def _held(self) -> tuple[list[slice | Tensor], list[slice | Tensor], list[slice | Tensor]]:
        """Columns that are fixed, may only rise, or may only fall, for indexing."""
        return runs(self.fixed), runs(self.up), runs(self.down)

    @cached_property
    def _binary(self) -> Tensor:
        """Columns outside categories with two values and none in between."""
        e = self.encoding
        if e is None:
            return torch.zeros(0, dtype=torch.int64)
        return (
            ((e.grid > 0) & ((e.high - e.low - e.grid).abs() < 1e-4 * e.grid)).nonzero().squeeze(1)
        )

    def clamp_(self, x: Tensor) -> Tensor:
        """Into the limits, in place."""
        if self.box is not None:
            return x.clamp_(*self.box)
        return torch.maximum(torch.minimum(x, self.high, out=x), self.low, out=x)

    def step_(self, to: Tensor, x: Tensor) -> Tensor:
        """Where a step from x to `to` may lead, in its place."""
        self.hold_(self.clamp_(to), x)
        return to

    def shown(self, x: Tensor) -> Tensor:
        """The rows that networks see: the same, except that categories, if respected, have their
        largest level."""
        if self.encoding is None:
            return x
        out = self.encoding.hard(x.mT).mT.contiguous()
        binary = self._binary
        if len(binary):
            low = self.low[binary]
            high = self.high[binary]
            out[:, binary] = torch.where(2 * out[:, binary] < low + high, low, high)
        return out

    def hold_(self, to: Tensor, x: Tensor) -> None:
        """Move rows, in place, to where they can be reached from x, column by column:

        to_d := x_d    where d is fixed,  may only fall and to_d > x_d,  or may only rise and
                       to_d < x_d
        """
        fixed, up, down = self._held
        for columns in fixed:
            to[:, columns] = x[:, columns]
        for columns in up:
            to[:, columns] = torch.maximum(to[:, columns], x[:, columns])
        for columns in down:
            to[:, columns] = torch.minimum(to[:, columns], x[:, columns])


def runs(columns: Tensor) -> list[slice | Tensor]:
    """Columns (c,) in rising order as a few slices, or as they are if there would be many."""
    parts = columns.tensor_split((columns.diff() != 1).nonzero()[:, 0] + 1) if len(columns) else ()
    return (
        [slice(int(part[0]), int(part[-1]) + 1) for part in parts]
        if len(parts) <= RUNS
        else [columns]
    )
