"""What each person can reach: the set of encoded rows that keep to the schema, and the way back into it.

    reach(x) = { z :  lo <= z <= hi            bounds, fixed columns, one-way columns, allowed levels
                      z on the grid            whole numbers, booleans, ranks, steps
                      one level per category
                      a missing number stays, or is filled in
                      at most max_changes features differ from x
                      A z <= b }               linear rules between columns, where none of them is missing

`project` returns the nearest such point, batched. It is exact in every part; where parts interact (rules
with grids or with max_changes) it returns a point that satisfies all of them, near but not always nearest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.feature import Array, Feature, Rule
from holdfast.geometry import pad_rows
from holdfast.linear import Part, excess, into_rules

MANY = 128  # from so many rows on, one category after the other is faster than all at once, padded to one length
SAFE = 40.0  # logits up to this size need no shift before exp: neither it nor its sums overflow or vanish


@dataclass(frozen=True)
class Layout:
    """The schema as tensors, in the dtype and on the device of the rows."""

    center: Tensor  # (d,) encoded = (value - center) / scale; 0 and 1 in one-hot columns
    scale: Tensor
    low: Tensor  # (d,) hard limits of answers, encoded
    high: Tensor
    seen_low: Tensor  # (d,) range of the data, encoded
    seen_high: Tensor
    fixed: Tensor  # (d,) bool
    up: Tensor
    down: Tensor
    missing: Tensor  # (d,) bool, says that a category or a number is missing: it may stay, never be asked for
    stand_in: Tensor  # (d,) what the column of a number holds while it is missing
    grid: Tensor  # (d,) distance between allowed values, encoded; 0 for any number
    origin: Tensor  # (d,) grid values are whole multiples of `grid` minus this
    weight: Tensor  # (d,) cost of one unit of change
    groups: Tensor  # (categories, most levels) column numbers, padded with d
    owner: Tensor  # (d,) which feature a column belongs to
    rules: Tensor  # (r, d) and
    bounds: Tensor  # (r,): rules @ z <= bounds
    max_changes: int

    @classmethod
    def of(cls, features: Sequence[Feature], rules: Sequence[Rule], max_changes: int, dtype: torch.dtype) -> "Layout":
        owner = np.repeat(np.arange(len(features)), [f.width for f in features])
        d, start = len(owner), 0
        first: dict[str, int] = {}
        columns: dict[str, Array] = {
            name: np.zeros(d)
            for name in ("center", "low", "seen_low", "fixed", "up", "down", "missing", "grid", "origin", "stand_in")
        } | {name: np.ones(d) for name in ("scale", "high", "seen_high", "weight")}
        groups: list[range] = []
        for f in features:
            s = slice(start, start + f.width)
            first[f.name], start = start, s.stop
            columns["weight"][s] = f.weight
            for word in ("fixed", "up", "down"):
                columns[word][s] = f.change == word
            if f.is_category:
                columns["high"][s] = f.may_become()
                columns["missing"][s.stop - 1] = f.missing
                groups.append(range(s.start, s.stop))
                continue
            if f.has_gaps:  # the column that says whether the number is missing
                says = s.stop - 1
                columns["missing"][says], columns["grid"][says], columns["high"][says] = 1.0, 1.0, 0.0
                columns["up"][says], columns["down"][says] = 0.0, 0.0
                columns["stand_in"][s.start] = (f.stand_in - f.center) / f.scale
                s = slice(s.start, says)
            columns["center"][s], columns["scale"][s], columns["grid"][s] = f.center, f.scale, f.grid / f.scale
            columns["origin"][s] = f.center % f.grid / f.scale if f.grid else 0.0
            seen = f.inward(f.seen[0], 1), f.inward(f.seen[1], -1)
            if f.kind in ("ordered", "boolean"):
                seen = 0.0, max(len(f.levels) - 1.0, 1.0)
            for name, value in zip(("low", "high", "seen_low", "seen_high"), (*f.limits, *seen), strict=True):
                columns[name][s] = (value - f.center) / f.scale
        rows = np.zeros((len(rules), d))
        bounds = np.array([r.bound for r in rules])
        for i, rule in enumerate(rules):
            for f in features:
                weight = rule.weights.get(f.name, 0.0)
                rows[i, first[f.name]] += weight * f.scale
                bounds[i] -= weight * f.center
        size = np.linalg.norm(rows, axis=1, keepdims=True) if len(rows) else np.ones((0, 1))
        most = max((len(g) for g in groups), default=0)
        padded = [[*g, *[d] * (most - len(g))] for g in groups]

        def tensor(values: Any) -> Tensor:
            return torch.as_tensor(values, dtype=dtype)

        flags = {name: torch.as_tensor(columns.pop(name) > 0) for name in ("fixed", "up", "down", "missing")}
        return cls(
            **{name: tensor(value) for name, value in columns.items()},
            **flags,
            groups=torch.as_tensor(padded, dtype=torch.int64).reshape(len(groups), most),
            owner=torch.as_tensor(owner),
            rules=tensor(rows / size),
            bounds=tensor(bounds / size[:, 0]),
            max_changes=max_changes,
        )

    @cached_property
    def one_hot(self) -> Tensor:
        """(d,) is the column part of a category?"""
        inside = torch.zeros(len(self.center) + 1, dtype=torch.bool, device=self.center.device)
        inside[self.groups.flatten()] = True
        return inside[:-1]

    @cached_property
    def numbers(self) -> Tensor:
        """The columns that belong to no category."""
        return (~self.one_hot).nonzero().squeeze(1)

    @cached_property
    def features(self) -> int:
        return int(self.owner[-1]) + 1

    @cached_property
    def diagonal(self) -> float:
        """Length of the diagonal of the data's range; an open end counts as two units."""
        wide = (self.seen_high - self.seen_low).double()
        return float(torch.where(wide.isfinite(), wide, 2.0).square().sum().sqrt())

    @cached_property
    def has_grid(self) -> bool:
        return bool(self.grid.any())

    @cached_property
    def gridded(self) -> tuple[Tensor, Tensor, Tensor]:
        """The columns with a grid, their grid and its origin."""
        columns = (self.grid > 0).nonzero().squeeze(1)
        return columns, self.grid[columns], self.origin[columns]

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """First column of each category, and the one after its last."""
        return [(int(group[0]), int(group[0]) + int((group < len(self.center)).sum())) for group in self.groups]

    @cached_property
    def used(self) -> set[str]:
        """Which of the flags some column has."""
        return {name for name in ("missing", "up", "down", "fixed") if bool(getattr(self, name).any())}

    @cached_property
    def gaps(self) -> tuple[Tensor, Tensor]:
        """The columns of numbers that may be missing, and those that say so."""
        says = (self.missing & ~self.one_hot).nonzero().squeeze(1)
        return says - 1, says

    def whole(self, z: Tensor) -> Tensor:
        """(n, d) with every number either there or missing, and what stands for it in place of a missing one."""
        value, says = self.gaps
        if not says.numel():
            return z
        gone = z[:, says] > 0.5
        z = z.index_copy(1, value, torch.where(gone, self.stand_in[value], z[:, value]))
        return z.index_copy(1, says, gone.to(z.dtype))

    def known(self, x: Tensor, flag: Tensor) -> Tensor:
        """(n, d) the columns with a flag (d,), but not those of numbers that are missing in x."""
        value, says = self.gaps
        return flag.expand_as(x).index_copy(1, value, flag[value] & (x[:, says] <= 0.5)) if says.numel() else flag

    @cached_property
    def in_rule(self) -> Tensor:
        """(d,) is the column part of a rule?"""
        return (self.rules != 0).any(0)

    @cached_property
    def parts(self) -> list[Part]:
        """Each rule as its columns, their weights and its bound."""
        return [(a.nonzero().squeeze(1), a[a != 0], b) for a, b in zip(self.rules, self.bounds, strict=True)]

    def excess(self, z: Tensor) -> Tensor:
        """(n, d) rows -> (n, r) by how much each rule is over its bound; nothing is known of one about a missing
        number, so it counts as kept."""
        over, (value, says) = excess(z, self.parts), self.gaps
        if not says.numel():
            return over
        about = (self.rules[:, value] != 0).to(z.dtype)  # (r, gaps)
        return torch.where((z[:, says] > 0.5).to(z.dtype) @ about.T > 0, -torch.inf, over)

    def per_feature(self, columns: Tensor) -> Tensor:
        """(n, d) values per column -> (n, features) sums."""
        return columns.new_zeros(len(columns), self.features).index_add_(1, self.owner, columns)

    # ---- one-hot columns relaxed

    @cached_property
    def _together(self) -> tuple[Tensor, Tensor]:
        """(d, d) do two columns belong to the same category, and (d,) the one-hot columns; both as numbers.

        A product with the former adds up the levels of all categories at once; a number stands alone.
        """
        same = (self.owner[:, None] == self.owner).to(self.scale.dtype)
        return same, self.one_hot.to(self.scale.dtype)

    def _totals(self, values: Tensor) -> Tensor:
        """(..., d) for each column the sum over the levels of its category; a row's does not depend on other rows."""
        rows = values.reshape(-1, values.shape[-1])
        return (pad_rows(rows) @ self._together[0])[: len(rows)].view(values.shape)

    def softmax(self, z: Tensor, open_: Tensor | None = None) -> Tensor:
        """(..., d) with a softmax over the levels of each category; number columns as they are.

        Args:
            z: rows.
            open_: (..., d) 1 for levels that take part and 0 for others; at least one of each category must.
        """
        if not (self.groups.numel() and z.numel()):
            return z
        logits = z * self._together[1]
        low, high = torch.aminmax(logits.detach())
        if not (low.item() > -SAFE and high.item() < SAFE):  # exp could leave the range of float32
            logits = logits if open_ is None else torch.where(open_ > 0, logits, -torch.inf)
            logits = logits - self._tops(logits)
        e = logits.exp()
        e = e if open_ is None else e * open_
        return torch.where(self.one_hot, e / self._totals(e), z)

    def _tops(self, z: Tensor) -> Tensor:
        """(..., d) the greatest value in the category of each column, 0 for numbers."""
        top = torch.zeros_like(z)
        for group in self.groups:
            columns = group[group < len(self.center)]
            top[..., columns] = z[..., columns].amax(-1, keepdim=True).detach()
        return top

    def hard(self, z: Tensor) -> Tensor:
        """(..., d) with 1 in the column of each category's largest level and 0 in its others; numbers as they are."""
        if not self.groups.numel():
            return z
        column = torch.stack([z[..., a:b].argmax(-1) + a for a, b in self.spans], -1)
        return torch.where(self.one_hot, 0.0, z).scatter(-1, column, 1.0)

    def softmax_pull(self, soft: Tensor, g: Tensor) -> Tensor:
        """(..., d) the gradient by z of what has the gradient `g` by soft = softmax(z).

        s_j (g_j - sum_l s_l g_l) in the columns of a category, l over its levels; g_j in those of numbers.
        """
        if not self.groups.numel():
            return g
        return torch.where(self.one_hot, soft * (g - self._totals(soft * g)), g)


def stays_missing(u: Tensor, w: Tensor, x: Tensor, v: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """Which missing numbers stay so: of (x, 1) and (v, 0) the former is the nearer to (u, w), or nothing else is open.

    (u - x)^2 + (w - 1)^2 <= (u - v)^2 + w^2, written so that it does not overflow; lo and hi are the limits of w.
    """
    return (lo > 0.5) | ((hi > 0.5) & ((v - x) * (2 * u - x - v) <= 2 * w - 1))


@dataclass(frozen=True)
class Reach:
    """What the people `x` (n, d) can reach."""

    x: Tensor
    lo: Tensor
    hi: Tensor
    layout: Layout
    home: Tensor  # (n, d) where to retreat to when rules cannot be kept otherwise: x, or the nearest that keeps them

    @classmethod
    def of(cls, x: Tensor, layout: Layout) -> "Reach":
        lo = torch.maximum(layout.low, torch.minimum(layout.seen_low, x))
        hi = torch.minimum(layout.high, torch.maximum(layout.seen_high, x))
        apart = lo > hi  # the data never visited what the bounds allow: the bounds decide
        if apart.any():
            lo, hi = torch.where(apart, layout.low, lo), torch.where(apart, layout.high, hi)
        if "missing" in layout.used:
            hi = torch.where(layout.missing, torch.maximum(hi, x), hi)
        if "up" in layout.used:
            lo = torch.where(layout.known(x, layout.up), torch.maximum(lo, x), lo)
        if "down" in layout.used:
            hi = torch.where(layout.known(x, layout.down), torch.minimum(hi, x), hi)
        if "fixed" in layout.used:
            lo, hi = torch.where(layout.fixed, x, lo), torch.where(layout.fixed, x, hi)
        reach = cls(x, lo, hi, layout, x)
        return replace(reach, home=reach._nearest_home()) if len(layout.rules) else reach

    def __getitem__(self, rows: Tensor | slice) -> "Reach":
        return Reach(self.x[rows], self.lo[rows], self.hi[rows], self.layout, self.home[rows])

    def __len__(self) -> int:
        return len(self.x)

    def repeat(self, times: int) -> "Reach":
        """Each person `times` times in a row, for methods that weigh many candidates per person."""
        return self[torch.arange(len(self), device=self.x.device).repeat_interleave(times)]

    @cached_property
    def is_box(self) -> bool:
        """Nothing but an interval per column: projecting is clamping."""
        at = self.layout
        return not (at.has_grid or at.groups.numel() or at.max_changes or len(at.rules))

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
        """(n, d) cost of one unit of change, written out: broadcasting it at every step costs more."""
        return self.layout.weight.expand_as(self.x).contiguous()

    @cached_property
    def outside(self) -> Tensor:
        """(n, d) columns in which the person's own value may not stay."""
        return (self.x < self.lo) | (self.x > self.hi)

    def hold(self, columns: Tensor) -> "Reach":
        """The same with some columns (n, d) held at the person's own value."""
        return replace(self, lo=torch.where(columns, self.x, self.lo), hi=torch.where(columns, self.x, self.hi))

    def clamp(self, z: Tensor) -> Tensor:
        """Into the intervals only: the relaxed set that a search with gradients moves in."""
        return torch.clamp(z, self.lo, self.hi)

    def keeps(self, z: Tensor) -> Tensor:
        """(n,) do rows `z` keep to the intervals, the rules and max_changes?"""
        at = self.layout
        kept = ((z >= self.lo) & (z <= self.hi)).all(1)
        if len(at.rules):
            kept &= (at.excess(z) <= 0).all(1)
        return kept & (self._changes(z).sum(1) <= at.max_changes) if at.max_changes else kept

    def project(self, z: Tensor) -> Tensor:
        """Nearest reachable point to each row of `z` (n, d)."""
        y = self.clamp(z)
        if self.is_box:
            return y
        y = self._one_level(self._fill_in(self._snap(y), z), z)
        free = torch.ones_like(y, dtype=torch.bool)
        if self.layout.max_changes:
            free = self._most_moved(y, z, self.layout.per_feature(self.outside.to(y.dtype)) > 0)
            y = torch.where(free, y, self.x)
        return self._keep_rules(y, z, free) if len(self.layout.rules) else y

    def _snap(self, y: Tensor) -> Tensor:
        """To the grid, or to the person's own value where that is nearer."""
        at = self.layout
        if not at.has_grid:
            return y
        columns, tick, origin = at.gridded
        all_ = len(columns) == y.shape[1]
        part, lo, hi, x = (v if all_ else v.index_select(1, columns) for v in (y, self.lo, self.hi, self.x))
        near = torch.round((part + origin) / tick) * tick - origin
        near = torch.minimum(torch.maximum(near, lo), hi)
        own = torch.clamp(x, lo, hi)
        stays = (part - own).abs() <= (part - near).abs() + 1e-5 * tick  # the two may differ by rounding only
        snapped = torch.where(stays, own, near)
        return snapped if all_ else y.scatter(1, columns.expand(len(y), -1), snapped)

    def _fill_in(self, y: Tensor, z: Tensor) -> Tensor:
        """Missing numbers stay missing, or become what they are in y, whichever is nearer to z."""
        value, says = self.layout.gaps
        if not says.numel():
            return y
        x, v, u, w = self.x[:, value], y[:, value], z[:, value], z[:, says]
        stays = stays_missing(u, w, x, v, self.lo[:, says], self.hi[:, says])
        return y.index_copy(1, value, torch.where(stays, x, v)).index_copy(1, says, stays.to(y.dtype))

    def _one_level(self, y: Tensor, z: Tensor) -> Tensor:
        """The strongest level of each category that the person may take."""
        groups = self.layout.groups
        if not groups.numel():
            return y
        # Where all is open, which the least of all limits tells at once, nothing need be masked.
        open_ = z if self.hi.numel() and self.hi.min() > 0 else torch.where(self.hi > 0, z, -torch.inf)
        if len(z) < MANY:
            open_ = torch.cat([open_, open_.new_full((len(z), 1), -torch.inf)], 1)[:, groups]  # (n, G, L)
            column = groups.expand(len(z), -1, -1).gather(2, open_.argmax(2, keepdim=True)).squeeze(2)
        else:
            column = torch.stack([open_[:, a:b].max(1).indices + a for a, b in self.layout.spans], 1)
        numbers = self.layout.numbers.expand(len(z), -1)
        return torch.zeros_like(y).scatter_(1, numbers, y.gather(1, numbers)).scatter_(1, column, 1.0)

    def _changes(self, z: Tensor) -> Tensor:
        """(n, features) which features differ from the person's own."""
        return self.layout.per_feature((z != self.x).to(z.dtype)) > 0

    def _most_moved(self, y: Tensor, z: Tensor, must: Tensor) -> Tensor:
        """(n, d) columns of the max_changes features whose change to `y` brings the row nearest to `z`; features
        that `must` change (n, features) go first."""
        at = self.layout
        # (z - x)^2 - (z - y)^2, written so that it neither cancels nor overflows
        gain = at.per_feature(torch.where(y != self.x, (y - self.x) * (2 * z - self.x - y), 0.0))
        best = torch.where(must, torch.inf, gain).topk(min(at.max_changes, at.features), 1).indices
        return (torch.zeros_like(gain).scatter_(1, best, 1.0) > 0)[:, at.owner]

    # ---- rules

    def _nearest_home(self) -> Tensor:
        """The nearest row to each person's own that keeps the rules.

        With a limit on changes it matters which features move. Those are tried that move most without the limit, and
        then each feature of a rule in turn with the next ones.
        """
        at, home = self.layout, self.project(self.x)
        if not at.max_changes:
            return home
        ruled = sorted({int(feature) for feature in at.owner[at.in_rule]})
        for first in (None, *ruled):
            lost = (~self.keeps(home)).nonzero().squeeze(1)
            if not len(lost):
                break
            home[lost] = self[lost]._with_features(first)
        return home

    def _with_features(self, first: int | None) -> Tensor:
        """The person's own row, or, where rules do not hold, that with as many features moved as may be."""
        at = self.layout
        loose = replace(self, layout=replace(at, max_changes=0))
        size = at.per_feature((loose.project(self.x) - self.x).abs())
        if first is not None:
            size[:, first] = torch.finfo(size.dtype).max
        must = at.per_feature(self.outside.to(size.dtype)) > 0
        best = torch.where(must, torch.inf, size).topk(min(at.max_changes, at.features), 1).indices
        free = (torch.zeros_like(size).scatter_(1, best, 1.0) > 0)[:, at.owner]
        own = self._one_level(self._fill_in(self._snap(self.clamp(self.x)), self.x), self.x)
        return self._keep_rules(torch.where(free, own, self.x), self.x, free)

    def _keep_rules(self, y: Tensor, z: Tensor, free: Tensor) -> Tensor:
        """`y`, which has all but the rules, or where those do not hold, near `z` where they do; only columns that
        are `free` (n, d) move."""
        broken = (self.layout.excess(y) > 0).any(1)
        if not broken.any():
            return y
        out = y.clone()
        out[broken] = self[broken]._into_rules(y[broken], z[broken], free[broken])
        return out

    def _into_rules(self, y: Tensor, aim: Tensor, free: Tensor) -> Tensor:
        at, (value, says) = self.layout, self.layout.gaps
        free = free.index_copy(
            1, value, free[:, value] & (y[:, says] <= 0.5)
        )  # what stays missing has no value to move
        lo, hi = torch.where(free, self.lo, self.x), torch.where(free, self.hi, self.x)
        z = into_rules(torch.where(at.in_rule, aim, y), lo, hi, at.parts)
        on_grid = at.in_rule & (at.grid > 0)
        if on_grid.any():
            z = torch.where(on_grid, self._snap(z), z)
            # Numbers off the grid make up for what rounding did.
            z = into_rules(z, torch.where(on_grid, z, lo), torch.where(on_grid, z, hi), at.parts)
            z = torch.where(on_grid, self._snap(self._step_into_rules(z, lo, hi)), z)
        lost = (at.excess(z) > 0).any(1, keepdim=True)
        return torch.where(lost, self.retreat(y), z)

    def _step_into_rules(self, z: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """Where rounding broke a rule, take whole steps along the grid until it holds."""
        at = self.layout
        for r, (columns, weights, _) in [*enumerate(at.parts)] * 2:  # twice: mending one rule may break another
            for j, a in zip(columns, weights, strict=True):
                over = at.excess(z)[:, r]
                if at.grid[j] == 0 or not (over > 0).any():
                    continue
                ticks = (z[:, j] - over / a + at.origin[j]) / at.grid[j]
                whole = torch.floor(ticks + 1e-4) if a > 0 else torch.ceil(ticks - 1e-4)
                moved = torch.minimum(torch.maximum(whole * at.grid[j] - at.origin[j], lo[:, j]), hi[:, j])
                z = z.index_copy(1, j[None], torch.where(over > 0, moved, z[:, j])[:, None])
        return z

    def retreat(self, y: Tensor) -> Tensor:
        """`y` with the columns of all rules as they are at home."""
        at = self.layout
        ruled = at.in_rule.index_copy(0, at.gaps[1], at.in_rule[at.gaps[0]])  # with what says that a number is missing
        z = torch.where(ruled, self.home, y)
        if not at.max_changes:
            return z
        must = self._changes(torch.where(ruled | self.outside, z, self.x))
        return torch.where(self._most_moved(z, y, must), z, self.x)
