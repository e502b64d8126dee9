"""The encoding of a schema as tensors: where each feature lies, its scale, limits, grid, groups and
rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from holdfast._core.rows import pad_rows
from holdfast._core.types import Array
from holdfast.schema.feature import Feature
from holdfast.schema.rule import Rule
from holdfast.schema.rule_projection import Part, excess

# logits up to this size need no shift before exp: neither it nor its sums overflow or vanish
SAFE = 40.0
FLAGS = ("fixed", "up", "down", "missing")
# what columns hold of which nothing else is said
ZEROS = (*FLAGS, "center", "low", "seen_low", "grid", "origin", "stand_in")
ONES = ("scale", "high", "seen_high", "weight")


@dataclass(frozen=True)
class Encoding:
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
    # (d,) bool, says that a category or a number is missing: it may stay, never be asked for
    missing: Tensor
    stand_in: Tensor  # (d,) what the column of a number holds while it is missing
    grid: Tensor  # (d,) distance between allowed values, encoded; 0 for any number
    origin: Tensor  # (d,) grid values are integer multiples of `grid` minus this
    weight: Tensor  # (d,) cost of one unit of change
    groups: Tensor  # (categories, most levels) column numbers, padded with d
    owner: Tensor  # (d,) which feature a column belongs to
    rules: Tensor  # (r, d) and
    bounds: Tensor  # (r,): rules @ z <= bounds
    max_changes: int

    @classmethod
    def of(
        cls,
        features: Sequence[Feature],
        rules: Sequence[Rule],
        max_changes: int,
        dtype: torch.dtype,
    ) -> "Encoding":
        owner = np.repeat(np.arange(len(features)), [f.width for f in features])
        columns = {name: np.zeros(len(owner)) for name in ZEROS}
        columns |= {name: np.ones(len(owner)) for name in ONES}
        starts = np.cumsum([0, *(f.width for f in features)]).tolist()
        for feature, start in zip(features, starts, strict=False):
            _fill(columns, feature, start)
        groups = [
            range(start, start + feature.width)
            for feature, start in zip(features, starts, strict=False)
            if feature.is_category
        ]
        weights, bounds = _encoded_rules(features, rules, starts)
        flags = {name: torch.as_tensor(columns.pop(name) > 0) for name in FLAGS}
        return cls(
            **{name: torch.as_tensor(values, dtype=dtype) for name, values in columns.items()},
            **flags,
            groups=_padded(groups, len(owner)),
            owner=torch.as_tensor(owner),
            rules=torch.as_tensor(weights, dtype=dtype),
            bounds=torch.as_tensor(bounds, dtype=dtype),
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
        return [
            (int(group[0]), int(group[0]) + int((group < len(self.center)).sum()))
            for group in self.groups
        ]

    @cached_property
    def used(self) -> set[str]:
        """Which of the flags some column has."""
        return {
            name for name in ("missing", "up", "down", "fixed") if bool(getattr(self, name).any())
        }

    @cached_property
    def gaps(self) -> tuple[Tensor, Tensor]:
        """The columns of numbers that may be missing, and those that say so."""
        says = (self.missing & ~self.one_hot).nonzero().squeeze(1)
        return says - 1, says

    def whole(self, z: Tensor) -> Tensor:
        """(n, d) with every number either there or missing, and what stands for it in place of a
        missing one."""
        value, says = self.gaps
        if not says.numel():
            return z
        missing = z[:, says] > 0.5
        z = z.index_copy(1, value, torch.where(missing, self.stand_in[value], z[:, value]))
        return z.index_copy(1, says, missing.to(z.dtype))

    def known(self, x: Tensor, flag: Tensor) -> Tensor:
        """(n, d) the columns with a flag (d,), but not those of numbers that are missing in x."""
        value, says = self.gaps
        return (
            flag.expand_as(x).index_copy(1, value, flag[value] & (x[:, says] <= 0.5))
            if says.numel()
            else flag
        )

    @cached_property
    def in_rule(self) -> Tensor:
        """(d,) is the column part of a rule?"""
        return (self.rules != 0).any(0)

    @cached_property
    def parts(self) -> list[Part]:
        """Each rule as its columns, their weights and its bound."""
        return [
            (a.nonzero().squeeze(1), a[a != 0], b)
            for a, b in zip(self.rules, self.bounds, strict=True)
        ]

    def excess(self, z: Tensor) -> Tensor:
        """(n, d) rows -> (n, r) by how much each rule is over its bound; nothing is known of one
        about a missing number, so it counts as kept."""
        over = excess(z, self.parts)
        value, says = self.gaps
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
        """(d, d) do two columns belong to the same category, and (d,) the one-hot columns; both as
        numbers.

        A product with the former adds up the levels of all categories at once; a number stands
        alone.
        """
        same = (self.owner[:, None] == self.owner).to(self.scale.dtype)
        return same, self.one_hot.to(self.scale.dtype)

    def _totals(self, values: Tensor) -> Tensor:
        """(..., d) for each column the sum over the levels of its category; a row's does not depend
        on other rows."""
        rows = values.reshape(-1, values.shape[-1])
        return (pad_rows(rows) @ self._together[0])[: len(rows)].view(values.shape)

    def softmax(self, z: Tensor, open_: Tensor | None = None) -> Tensor:
        """(..., d) with a softmax over the levels of each category; number columns as they are.

        Args:
            z: rows.
            open_: (..., d) 1 for levels that take part and 0 for others; at least one of each
                category must.
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
        """(..., d) with 1 in the column of each category's largest level and 0 in its others;
        numbers as they are."""
        if not self.groups.numel():
            return z
        column = torch.stack([z[..., a:b].argmax(-1) + a for a, b in self.spans], -1)
        return torch.where(self.one_hot, 0.0, z).scatter(-1, column, 1.0)

    def softmax_pull(self, soft: Tensor, g: Tensor) -> Tensor:
        """(..., d) the gradient by z of what has the gradient `g` by soft = softmax(z).

        s_j (g_j - sum_l s_l g_l) in the columns of a category, l over its levels; g_j in those of
        numbers.
        """
        if not self.groups.numel():
            return g
        return torch.where(self.one_hot, soft * (g - self._totals(soft * g)), g)


def _fill(columns: dict[str, Array], feature: Feature, start: int) -> None:
    """Write what is known of one feature into its encoded columns; the first one is `start`."""
    own = slice(start, start + feature.width)
    columns["weight"][own] = feature.weight
    for word in ("fixed", "up", "down"):
        columns[word][own] = feature.change == word
    if feature.is_category:
        columns["high"][own] = feature.may_become()
        columns["missing"][own.stop - 1] = feature.missing
        return
    if feature.has_gaps:
        _fill_gap(columns, feature, start, own.stop - 1)
    columns["center"][start] = feature.center
    columns["scale"][start] = feature.scale
    columns["grid"][start] = feature.grid / feature.scale
    if feature.grid:
        columns["origin"][start] = feature.center % feature.grid / feature.scale
    # An answer may take any rank and either truth value, whether the data has it or not.
    if feature.kind in ("ordered", "boolean"):
        seen = (0.0, max(len(feature.levels) - 1.0, 1.0))
    else:
        seen = (feature.inward(feature.seen[0], 1), feature.inward(feature.seen[1], -1))
    ends = ("low", "high", "seen_low", "seen_high")
    for name, value in zip(ends, (*feature.limits, *seen), strict=True):
        columns[name][start] = (value - feature.center) / feature.scale


def _fill_gap(columns: dict[str, Array], feature: Feature, start: int, says: int) -> None:
    """The column `says` tells whether the number in column `start` is missing."""
    columns["missing"][says] = 1.0
    columns["grid"][says] = 1.0
    columns["high"][says] = 0.0
    columns["up"][says] = 0.0
    columns["down"][says] = 0.0
    columns["stand_in"][start] = (feature.stand_in - feature.center) / feature.scale


def _encoded_rules(
    features: Sequence[Feature], rules: Sequence[Rule], starts: Sequence[int]
) -> tuple[Array, Array]:
    """Rules on encoded rows: weights (r, d) of length 1, and bounds (r,)."""
    weights = np.zeros((len(rules), starts[-1]))
    bounds = np.array([rule.bound for rule in rules])
    for i, rule in enumerate(rules):
        for feature, start in zip(features, starts, strict=False):
            weight = rule.weights.get(feature.name, 0.0)
            weights[i, start] += weight * feature.scale
            bounds[i] -= weight * feature.center
    if not rules:
        return weights, bounds
    size = np.linalg.norm(weights, axis=1, keepdims=True)
    return weights / size, bounds / size[:, 0]


def _padded(groups: Sequence[range], d: int) -> Tensor:
    """(categories, most levels) the columns of each category, padded with d."""
    most = max((len(group) for group in groups), default=0)
    padded = [[*group, *[d] * (most - len(group))] for group in groups]
    return torch.as_tensor(padded, dtype=torch.int64).reshape(len(groups), most)
