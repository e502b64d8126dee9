"""What each person can reach: the set of encoded rows that keep to the schema, and the way back into it.

    reach(x) = { z :  lo <= z <= hi            bounds, fixed columns, one-way columns, allowed levels
                      z on the grid            whole numbers, booleans, ranks, steps
                      one level per category
                      at most max_changes features differ from x
                      A z <= b }               linear rules between columns

`project` returns the nearest such point, batched. It is exact in every part; where parts interact (rules
with grids or with max_changes) it returns a point that satisfies all of them, near but not always nearest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.feature import Array, Feature, Rule

RULE_SLACK = 1e-6  # rules are kept by this much in encoded units, so that rounding cannot break them
DYKSTRA_ROUNDS = 60


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
    missing: Tensor  # (d,) bool, the level of a missing category: it may stay, never be asked for
    grid: Tensor  # (d,) distance between allowed values, encoded; 0 for any number
    weight: Tensor  # (d,) cost of one unit of change
    groups: Tensor  # (categories, most levels) column numbers, padded with d
    owner: Tensor  # (d,) which feature a column belongs to
    rules: Tensor  # (r, d) and
    bounds: Tensor  # (r,): rules @ z <= bounds
    max_changes: int

    @classmethod
    def of(
        cls, features: Sequence[Feature], rules: Sequence[Rule], max_changes: int, dtype: torch.dtype
    ) -> "Layout":
        owner = np.repeat(np.arange(len(features)), [f.width for f in features])
        d, start = len(owner), 0
        first: dict[str, int] = {}
        columns: dict[str, Array] = {
            name: np.zeros(d) for name in ("center", "low", "seen_low", "fixed", "up", "down", "missing", "grid")
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
            columns["center"][s], columns["scale"][s], columns["grid"][s] = f.center, f.scale, f.grid / f.scale
            ranks = (0.0, len(f.levels) - 1.0) if f.kind == "ordered" else (0.0, 1.0)
            seen = ranks if f.kind in ("ordered", "boolean") else f.seen
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
    def features(self) -> int:
        return int(self.owner[-1]) + 1

    @cached_property
    def has_grid(self) -> bool:
        return bool(self.grid.any())

    @cached_property
    def tick(self) -> Tensor:
        """(d,) the grid without zeros, to divide by."""
        return torch.where(self.grid > 0, self.grid, 1.0)

    @cached_property
    def origin(self) -> Tensor:
        """(d,) 0 in the user's units lies at -origin: there the grid is anchored."""
        return self.center / self.scale

    def per_feature(self, columns: Tensor) -> Tensor:
        """(n, d) values per column -> (n, features) sums."""
        return columns.new_zeros(len(columns), self.features).index_add_(1, self.owner, columns)


@dataclass(frozen=True)
class Reach:
    """What the people `x` (n, d) can reach."""

    x: Tensor
    lo: Tensor
    hi: Tensor
    layout: Layout

    @classmethod
    def of(cls, x: Tensor, layout: Layout) -> "Reach":
        lo = torch.maximum(layout.low, torch.minimum(layout.seen_low, x))
        hi = torch.minimum(layout.high, torch.maximum(layout.seen_high, x))
        apart = lo > hi  # the data never visited what the bounds allow: the bounds decide
        lo, hi = torch.where(apart, layout.low, lo), torch.where(apart, layout.high, hi)
        hi = torch.where(layout.missing, torch.maximum(hi, x), hi)
        lo = torch.where(layout.up, torch.maximum(lo, x), lo)
        hi = torch.where(layout.down, torch.minimum(hi, x), hi)
        lo, hi = torch.where(layout.fixed, x, lo), torch.where(layout.fixed, x, hi)
        return cls(x, lo, hi, layout)

    def __getitem__(self, rows: Tensor) -> "Reach":
        return Reach(self.x[rows], self.lo[rows], self.hi[rows], self.layout)

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

    def hold(self, columns: Tensor) -> "Reach":
        """The same with some columns (n, d) held at the person's own value."""
        return Reach(self.x, torch.where(columns, self.x, self.lo), torch.where(columns, self.x, self.hi), self.layout)

    def clamp(self, z: Tensor) -> Tensor:
        """Into the intervals only: the relaxed set that a search with gradients moves in."""
        return torch.clamp(z, self.lo, self.hi)

    def project(self, z: Tensor) -> Tensor:
        """Nearest reachable point to each row of `z` (n, d)."""
        y = self.clamp(z)
        if self.is_box:
            return y
        y = self._snap(y)
        y = self._one_level(y, z)
        lo, hi = self.lo, self.hi
        if self.layout.max_changes:
            kept = self._most_moved(y, z)
            y = torch.where(kept, y, self.x)
            lo, hi = torch.where(kept, lo, self.x), torch.where(kept, hi, self.x)
        return self._keep_rules(y, lo, hi) if len(self.layout.rules) else y

    def _snap(self, y: Tensor) -> Tensor:
        """To the grid; a value nearer to the person's own than half a step stays the person's own."""
        at = self.layout
        if not at.has_grid:
            return y
        near = torch.round((y + at.origin) / at.tick) * at.tick - at.origin
        near = torch.minimum(torch.maximum(near, self.lo), self.hi)
        near = torch.where((y - self.x).abs() < at.tick / 2, self.clamp(self.x), near)
        return torch.where(at.grid > 0, near, y)

    def _one_level(self, y: Tensor, z: Tensor) -> Tensor:
        """The strongest level of each category that the person may take."""
        groups = self.layout.groups
        if not groups.numel():
            return y
        open_ = torch.where(self.hi > 0, z, -torch.inf)
        open_ = torch.cat([open_, open_.new_full((len(z), 1), -torch.inf)], 1)[:, groups]  # (n, G, L)
        column = groups.expand(len(z), -1, -1).gather(2, open_.argmax(2, keepdim=True)).squeeze(2)
        y = torch.where(self.layout.one_hot, 0.0, y)
        return y.scatter(1, column, 1.0)

    def _most_moved(self, y: Tensor, z: Tensor) -> Tensor:
        """(n, d) columns of the features whose change to `y` brings the row nearest to `z`."""
        at = self.layout
        gain = at.per_feature(torch.where(y != self.x, (z - self.x).square() - (z - y).square(), -torch.inf))
        outside = at.per_feature(((self.x < self.lo) | (self.x > self.hi)).to(y.dtype)) > 0
        gain = torch.where(outside, torch.inf, gain)  # values that may not stay go first
        most = min(at.max_changes, at.features)
        chosen = torch.zeros_like(gain).scatter_(1, gain.topk(most, 1).indices, 1.0) > 0
        return chosen[:, at.owner]

    def _keep_rules(self, y: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """Nearest point of the box that keeps the rules (Dykstra), then onto the grid without breaking them."""
        at = self.layout
        broken = (y @ at.rules.T > at.bounds + RULE_SLACK / 2).any(1)
        if not broken.any():
            return y
        x, y0, lo, hi = self.x[broken], y[broken], lo[broken], hi[broken]
        z = self._dykstra(y0, lo, hi)
        push = at.rules.sum(0)  # which way a column must be rounded so that every rule it is in stays kept
        ticks = (z + at.origin) / at.tick
        whole = torch.where(push > 0, torch.floor(ticks + 1e-4), torch.ceil(ticks - 1e-4)) * at.tick - at.origin
        in_rule = (at.rules != 0).any(0)
        z = torch.where((at.grid > 0) & in_rule, torch.minimum(torch.maximum(whole, lo), hi), z)
        still = (z @ at.rules.T > at.bounds + RULE_SLACK).any(1, keepdim=True)
        z = torch.where(still & in_rule, torch.minimum(torch.maximum(x, lo), hi), z)  # ask for no change there
        out = y.clone()
        out[broken] = z
        return out

    def _dykstra(self, y: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        at = self.layout
        rules = torch.where((hi > lo)[:, None, :], at.rules, 0.0)  # (m, r, d) only what may move
        rest = at.bounds - ((at.rules - rules) * y[:, None, :]).sum(2) - RULE_SLACK  # (m, r)
        size = rules.square().sum(2).clamp_min(1e-12)
        corrections = torch.zeros_like(rules)
        box = torch.zeros_like(y)
        for _ in range(DYKSTRA_ROUNDS):
            for r in range(rules.shape[1]):
                v = y + corrections[:, r]
                over = ((rules[:, r] * v).sum(1) - rest[:, r]).clamp_min(0) / size[:, r]
                y = v - over[:, None] * rules[:, r]
                corrections[:, r] = v - y
            v = y + box
            y = torch.minimum(torch.maximum(v, lo), hi)
            box = v - y
        return y
