"""Where features sit among the encoded columns: (n, features) numbers to (n, width) and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast._core.types import Array, Mask
from holdfast.schema.feature import Feature


@dataclass(frozen=True)
class Places:
    """The encoded columns of all features, and how the number-like ones are scaled."""

    width: int
    slices: Sequence[slice]  # the encoded columns of each feature
    number: Any  # which features are number-like, and
    column: Any  # their encoded columns
    category: Any  # which features are categories, and
    first: Any  # their first encoded columns
    center: Array
    scale: Array
    integer: Mask
    holds: Array  # (2, .) the lowest and the highest number that each can hold
    stand_in: Array  # what stands for a missing number
    gap: Any  # which features are numbers that may be missing, and
    says: Any  # the encoded columns that say so

    @classmethod
    def of(cls, features: Sequence[Feature], slices: Sequence[slice]) -> "Places":
        placed = [*zip(range(len(features)), features, slices, strict=True)]
        numbers = [(i, f, s) for i, f, s in placed if not f.is_category]
        categories = [(i, s.start) for i, f, s in placed if f.is_category]
        gaps = [(i, s.stop - 1) for i, f, s in numbers if f.has_gaps]
        return cls(
            width=slices[-1].stop,
            slices=slices,
            number=np.array([i for i, _, _ in numbers], dtype=np.int64),
            column=np.array([s.start for _, _, s in numbers], dtype=np.int64),
            category=np.array([i for i, _ in categories], dtype=np.int64),
            first=np.array([start for _, start in categories], dtype=np.int64),
            center=np.array([f.center for _, f, _ in numbers]),
            scale=np.array([f.scale for _, f, _ in numbers]),
            integer=np.array([f.kind not in ("real", "date") for _, f, _ in numbers], dtype=bool),
            holds=np.array([f.holds for _, f, _ in numbers]).reshape(-1, 2).T,
            stand_in=np.array([f.stand_in if f.has_gaps else np.nan for _, f, _ in numbers]),
            gap=np.array([i for i, _ in gaps], dtype=np.int64),
            says=np.array([says for _, says in gaps], dtype=np.int64),
        )

    def encode(self, numbers: Array) -> Array:
        """(n, features) numbers -> (n, width)."""
        encoded = np.zeros((len(numbers), self.width))
        values = numbers[:, self.number]
        if len(self.gap):
            encoded[:, self.says] = np.isnan(numbers[:, self.gap])
            values = np.where(np.isnan(values), self.stand_in, values)
        encoded[:, self.column] = (values - self.center) / self.scale
        levels = numbers[:, self.category].astype(np.int64) + self.first
        np.put_along_axis(encoded, levels, 1.0, axis=1)
        return encoded

    def decode(self, encoded: Array) -> Array:
        """(n, width) -> (n, features) numbers, integers where they must be."""
        numbers = np.empty((len(encoded), len(self.slices)))
        values = encoded[:, self.column] * self.scale + self.center
        whole = np.clip(np.round(values), *self.holds)
        numbers[:, self.number] = np.where(self.integer, whole, values)
        for i in self.category:
            numbers[:, i] = encoded[:, self.slices[i]].argmax(1)
        if len(self.gap):
            is_missing = encoded[:, self.says] > 0.5
            numbers[:, self.gap] = np.where(is_missing, np.nan, numbers[:, self.gap])
        return numbers
