"""What each person can reach: the set of encoded rows that keep to the schema, and the way back
into it.

    feasible(x) = { z :  lo <= z <= hi       bounds, fixed and one-way columns, allowed levels
                         z on the grid       integers, booleans, ranks, steps
                         one level per category
                         a missing number stays, or is filled in
                         at most max_changes features differ from x
                         A z <= b }          linear rules, where no column of theirs is missing

`project` returns the nearest such point, batched. It is exact in every part; where parts interact
(rules with grids or with max_changes) it returns a point that satisfies all of them, near but not
always nearest.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from holdfast.schema.encoding import Encoding
from holdfast.schema.rule_projection import into_rules

# from so many rows on, one category after the other is faster than all at once, padded to one
# length
MANY = 128


def stays_missing(u: Tensor, w: Tensor, x: Tensor, v: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """Which missing numbers stay so: of (x, 1) and (v, 0) the former is the nearer to (u, w), or
    nothing else is open.

    (u - x)^2 + (w - 1)^2 <= (u - v)^2 + w^2, written so that it does not overflow; lo and hi are
    the limits of w.
    """
    return (lo > 0.5) | ((hi > 0.5) & ((v - x) * (2 * u - x - v) <= 2 * w - 1))


@dataclass(frozen=True)
class FeasibleSet:
    """What the people `x` (n, d) can reach."""

    x: Tensor
    lo: Tensor
    hi: Tensor
    encoding: Encoding
    # (n, d) where rows go whose rules cannot be kept otherwise: x, or the nearest that keeps them
    fallback: Tensor

    @classmethod
    def of(cls, x: Tensor, encoding: Encoding) -> "FeasibleSet":
        lo = torch.maximum(encoding.low, torch.minimum(encoding.seen_low, x))
        hi = torch.minimum(encoding.high, torch.maximum(encoding.seen_high, x))
        apart = lo > hi  # the data never visited what the bounds allow: the bounds decide
        if apart.any():
            lo = torch.where(apart, encoding.low, lo)
            hi = torch.where(apart, encoding.high, hi)
        if "missing" in encoding.used:
            hi = torch.where(encoding.missing, torch.maximum(hi, x), hi)
        if "up" in encoding.used:
            lo = torch.where(encoding.known(x, encoding.up), torch.maximum(lo, x), lo)
        if "down" in encoding.used:
            hi = torch.where(encoding.known(x, encoding.down), torch.minimum(hi, x), hi)
        if "fixed" in encoding.used:
            lo = torch.where(encoding.fixed, x, lo)
            hi = torch.where(encoding.fixed, x, hi)
        feasible = cls(x, lo, hi, encoding, x)
        return (
            replace(feasible, fallback=feasible._nearest_fallback())
            if len(encoding.rules)
            else feasible
        )

    def __getitem__(self, rows: Tensor | slice) -> "FeasibleSet":
        return FeasibleSet(
            self.x[rows], self.lo[rows], self.hi[rows], self.encoding, self.fallback[rows]
        )

    def __len__(self) -> int:
        return len(self.x)

    def repeat(self, times: int) -> "FeasibleSet":
        """Each person `times` times in a row, for methods that weigh many candidates per person."""
        return self[torch.arange(len(self), device=self.x.device).repeat_interleave(times)]

    @cached_property
    def is_box(self) -> bool:
        """Nothing but an interval per column: projecting is clamping."""
        encoding = self.encoding
        return not (
            encoding.has_grid
            or encoding.groups.numel()
            or encoding.max_changes
            or len(encoding.rules)
        )

    @cached_property
    def movable(self) -> Tensor:
        """(n, d) columns that may change at all."""
        return self.hi > self.lo

    @cached_property
    def widths(self) -> Tensor:
        """(n, d) how far each column can go; an open interval counts as four encoded units."""
        wide = self.hi - self.lo
        return torch.where(wide.isfinite(), wide, 4.0)

    @cached_property
    def weights(self) -> Tensor:
        """(n, d) cost of one unit of change, written out: broadcasting it at every step costs
        more."""
        return self.encoding.weight.expand_as(self.x).contiguous()

    @cached_property
    def outside(self) -> Tensor:
        """(n, d) columns in which the person's own value may not stay."""
        return (self.x < self.lo) | (self.x > self.hi)

    def freeze(self, columns: Tensor) -> "FeasibleSet":
        """The same with some columns (n, d) held at the person's own value."""
        return replace(
            self, lo=torch.where(columns, self.x, self.lo), hi=torch.where(columns, self.x, self.hi)
        )

    def clamp(self, z: Tensor) -> Tensor:
        """Into the intervals only: the relaxed set that a search with gradients moves in."""
        return torch.clamp(z, self.lo, self.hi)

    def contains(self, z: Tensor) -> Tensor:
        """(n,) do rows `z` keep to the intervals, the rules and max_changes?"""
        encoding = self.encoding
        kept = ((z >= self.lo) & (z <= self.hi)).all(1)
        if len(encoding.rules):
            kept &= (encoding.excess(z) <= 0).all(1)
        return (
            kept & (self._changes(z).sum(1) <= encoding.max_changes)
            if encoding.max_changes
            else kept
        )

    def project(self, z: Tensor) -> Tensor:
        """Nearest reachable point to each row of `z` (n, d)."""
        y = self.clamp(z)
        if self.is_box:
            return y
        y = self._one_level(self._fill_in(self._snap(y), z), z)
        free = torch.ones_like(y, dtype=torch.bool)
        if self.encoding.max_changes:
            free = self._most_moved(y, z, self.encoding.per_feature(self.outside.to(y.dtype)) > 0)
            y = torch.where(free, y, self.x)
        return self._keep_rules(y, z, free) if len(self.encoding.rules) else y

    def _snap(self, y: Tensor) -> Tensor:
        """To the grid, or to the person's own value where that is nearer."""
        encoding = self.encoding
        if not encoding.has_grid:
            return y
        columns, tick, origin = encoding.gridded
        all_ = len(columns) == y.shape[1]
        part = y if all_ else y.index_select(1, columns)
        lo = self.lo if all_ else self.lo.index_select(1, columns)
        hi = self.hi if all_ else self.hi.index_select(1, columns)
        x = self.x if all_ else self.x.index_select(1, columns)
        near = torch.round((part + origin) / tick) * tick - origin
        near = torch.minimum(torch.maximum(near, lo), hi)
        own = torch.clamp(x, lo, hi)
        # the two may differ by rounding only
        stays = (part - own).abs() <= (part - near).abs() + 1e-5 * tick
        snapped = torch.where(stays, own, near)
        return snapped if all_ else y.scatter(1, columns.expand(len(y), -1), snapped)

    def _fill_in(self, y: Tensor, z: Tensor) -> Tensor:
        """Missing numbers stay missing, or become what they are in y, whichever is nearer to z."""
        value, says = self.encoding.gaps
        if not says.numel():
            return y
        x = self.x[:, value]
        v = y[:, value]
        u = z[:, value]
        w = z[:, says]
        stays = stays_missing(u, w, x, v, self.lo[:, says], self.hi[:, says])
        return y.index_copy(1, value, torch.where(stays, x, v)).index_copy(
            1, says, stays.to(y.dtype)
        )

    def _one_level(self, y: Tensor, z: Tensor) -> Tensor:
        """The strongest level of each category that the person may take."""
        groups = self.encoding.groups
        if not groups.numel():
            return y
        # Where all is open, which the least of all limits tells at once, nothing need be masked.
        open_ = (
            z if self.hi.numel() and self.hi.min() > 0 else torch.where(self.hi > 0, z, -torch.inf)
        )
        if len(z) < MANY:
            # (n, G, L)
            open_ = torch.cat([open_, open_.new_full((len(z), 1), -torch.inf)], 1)[:, groups]
            column = (
                groups.expand(len(z), -1, -1).gather(2, open_.argmax(2, keepdim=True)).squeeze(2)
            )
        else:
            column = torch.stack(
                [open_[:, a:b].max(1).indices + a for a, b in self.encoding.spans], 1
            )
        numbers = self.encoding.numbers.expand(len(z), -1)
        return (
            torch.zeros_like(y).scatter_(1, numbers, y.gather(1, numbers)).scatter_(1, column, 1.0)
        )

    def _changes(self, z: Tensor) -> Tensor:
        """(n, features) which features differ from the person's own."""
        return self.encoding.per_feature((z != self.x).to(z.dtype)) > 0

    def _most_moved(self, y: Tensor, z: Tensor, must: Tensor) -> Tensor:
        """(n, d) columns of the max_changes features whose change to `y` brings the row nearest to
        `z`; features that `must` change (n, features) go first."""
        encoding = self.encoding
        # (z - x)^2 - (z - y)^2, written so that it neither cancels nor overflows
        gain = encoding.per_feature(
            torch.where(y != self.x, (y - self.x) * (2 * z - self.x - y), 0.0)
        )
        return self._best_features(torch.where(must, torch.inf, gain))

    def _best_features(self, score: Tensor) -> Tensor:
        """(n, d) columns of the max_changes features with the highest scores (n, features)."""
        best = score.topk(min(self.encoding.max_changes, self.encoding.features), 1).indices
        return (torch.zeros_like(score).scatter_(1, best, 1.0) > 0)[:, self.encoding.owner]

    # ---- rules

    def _nearest_fallback(self) -> Tensor:
        """The nearest row to each person's own that keeps the rules.

        With a limit on changes it matters which features move. Those are tried that move most
        without the limit, and then each feature of a rule in turn with the next ones.
        """
        encoding = self.encoding
        fallback = self.project(self.x)
        if not encoding.max_changes:
            return fallback
        ruled = sorted({int(feature) for feature in encoding.owner[encoding.in_rule]})
        for first in (None, *ruled):
            lost = (~self.contains(fallback)).nonzero().squeeze(1)
            if not len(lost):
                break
            fallback[lost] = self[lost]._with_features(first)
        return fallback

    def _with_features(self, first: int | None) -> Tensor:
        """The person's own row, or, where rules do not hold, that with as many features moved as
        may be."""
        encoding = self.encoding
        loose = replace(self, encoding=replace(encoding, max_changes=0))
        size = encoding.per_feature((loose.project(self.x) - self.x).abs())
        if first is not None:
            size[:, first] = torch.finfo(size.dtype).max
        must = encoding.per_feature(self.outside.to(size.dtype)) > 0
        free = self._best_features(torch.where(must, torch.inf, size))
        own = self._one_level(self._fill_in(self._snap(self.clamp(self.x)), self.x), self.x)
        return self._keep_rules(torch.where(free, own, self.x), self.x, free)

    def _keep_rules(self, y: Tensor, z: Tensor, free: Tensor) -> Tensor:
        """`y`, which has all but the rules, or where those do not hold, near `z` where they do;
        only columns that are `free` (n, d) move."""
        broken = (self.encoding.excess(y) > 0).any(1)
        if not broken.any():
            return y
        out = y.clone()
        out[broken] = self[broken]._into_rules(y[broken], z[broken], free[broken])
        return out

    def _into_rules(self, y: Tensor, aim: Tensor, free: Tensor) -> Tensor:
        value, says = self.encoding.gaps
        encoding = self.encoding
        # What stays missing has no value to move.
        free = free.index_copy(1, value, free[:, value] & (y[:, says] <= 0.5))
        lo = torch.where(free, self.lo, self.x)
        hi = torch.where(free, self.hi, self.x)
        z = into_rules(torch.where(encoding.in_rule, aim, y), lo, hi, encoding.parts)
        on_grid = encoding.in_rule & (encoding.grid > 0)
        if on_grid.any():
            z = torch.where(on_grid, self._snap(z), z)
            # Numbers off the grid make up for what rounding did.
            z = into_rules(
                z, torch.where(on_grid, z, lo), torch.where(on_grid, z, hi), encoding.parts
            )
            z = torch.where(on_grid, self._snap(self._step_into_rules(z, lo, hi)), z)
        lost = (encoding.excess(z) > 0).any(1, keepdim=True)
        return torch.where(lost, self.to_fallback(y), z)

    def _step_into_rules(self, z: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """Where rounding broke a rule, take steps along the grid until it holds."""
        encoding = self.encoding
        # twice: mending one rule may break another
        for r, (columns, weights, _) in [*enumerate(encoding.parts)] * 2:
            for j, a in zip(columns, weights, strict=True):
                over = encoding.excess(z)[:, r]
                if encoding.grid[j] == 0 or not (over > 0).any():
                    continue
                ticks = (z[:, j] - over / a + encoding.origin[j]) / encoding.grid[j]
                whole = torch.floor(ticks + 1e-4) if a > 0 else torch.ceil(ticks - 1e-4)
                moved = torch.minimum(
                    torch.maximum(whole * encoding.grid[j] - encoding.origin[j], lo[:, j]), hi[:, j]
                )
                z = z.index_copy(1, j[None], torch.where(over > 0, moved, z[:, j])[:, None])
        return z

    def to_fallback(self, y: Tensor) -> Tensor:
        """`y` with the columns of all rules as they are at the fallback."""
        encoding = self.encoding
        value, says = encoding.gaps
        # and what says that a number is missing
        ruled = encoding.in_rule.index_copy(0, says, encoding.in_rule[value])
        z = torch.where(ruled, self.fallback, y)
        if not encoding.max_changes:
            return z
        must = self._changes(torch.where(ruled | self.outside, z, self.x))
        return torch.where(self._most_moved(z, y, must), z, self.x)
