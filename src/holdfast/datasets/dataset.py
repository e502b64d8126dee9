"""A table or a set of images with all there is to know about it, and the ways to divide it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast._core.checks import did_you_mean, listed
from holdfast.errors import SettingError
from holdfast.schema.schema import Schema

# These papers test on the last rows of a file (or of one of its parts) instead of on random ones.
LAST_ROWS = {"rocoursenet", "counterfactual-training"}


class _Parts(ABC):
    """Rows or images, each in one part of the whole."""

    name: str
    X: Any
    parts: "pd.Series[Any] | None"

    def __len__(self) -> int:
        return len(self.X)

    @abstractmethod
    def take(self, rows: Any) -> Self:
        """Some of them, by position."""

    def part(self, name: object) -> Self:
        """Those of one part: a year, a school, 'train' or 'test'."""
        if self.parts is None:
            raise SettingError(f"{self.name} has no parts")
        chosen = (self.parts == name).to_numpy()
        known = listed(self.parts.unique().tolist(), 20)
        if not bool(chosen.any()):
            raise SettingError(f"{self.name} has no part {name!r}; it has {known}")
        return self.take(np.flatnonzero(chosen))


@dataclass(frozen=True)
class Dataset(_Parts):
    """A table, its outcome, and what may change in it."""

    name: str
    X: pd.DataFrame
    y: "pd.Series[Any]"
    schema: Schema
    licence: str
    citation: str
    source: str = ""
    favourable: Any = None  # the outcome a person would want
    # rows of one group (of one recording) belong on one side of a split
    groups: "pd.Series[Any] | None" = None
    parts: "pd.Series[Any] | None" = None  # the part (year, school, ...) that each row is in
    # test rows of a paper, or their share
    papers: Mapping[str, float] = field(default_factory=dict[str, float])

    def split(
        self, test: float = 0.25, seed: int = 0, *, by_group: bool = False
    ) -> tuple["Dataset", "Dataset"]:
        """A random split into a part to learn from and a part to ask about.

        Args:
            test: rows to ask about: a share below 1, or their number.
            seed: where the random order comes from.
            by_group: keep the rows of a group (a recording) together; the test part then has at
                least `test` rows.
        """
        n = len(self.X)
        cut = _cut(n, test, self.name)
        if by_group:
            tested = self._whole_groups(n - cut, seed)
            return self.take(np.flatnonzero(~tested)), self.take(np.flatnonzero(tested))
        order = np.random.default_rng(seed).permutation(n)
        return self.take(order[:cut]), self.take(order[cut:])

    def _whole_groups(self, wanted: int, seed: int) -> NDArray[np.bool_]:
        """Which rows to ask about: whole groups in random order, until there are enough rows."""
        if self.groups is None:
            raise SettingError(f"{self.name} has no groups to split by")
        codes, names = pd.factorize(self.groups)
        order = np.random.default_rng(seed).permutation(len(names))
        sizes = np.bincount(codes, minlength=len(names))[order]
        return np.isin(codes, order[np.cumsum(sizes) - sizes < wanted])

    def paper_split(self, paper: str, seed: int = 0) -> tuple["Dataset", "Dataset"]:
        """A split of the size a paper uses; `papers` names those that are known for this table."""
        advice = did_you_mean(paper, self.papers)
        if paper not in self.papers:
            raise SettingError(f"no split of {self.name} is known for {paper!r}; {advice}")
        test = self.papers[paper]
        if paper not in LAST_ROWS:
            return self.split(test, seed)
        cut = _cut(len(self.X), test, self.name)
        return self.take(slice(cut)), self.take(slice(cut, None))

    def balanced(self, seed: int = 0) -> "Dataset":
        """As many random rows of every outcome as the rarest one has, in the order of the table."""
        rng = np.random.default_rng(seed)
        codes, classes = pd.factorize(self.y, sort=True)
        least = int(np.bincount(codes).min())
        rows = [
            rng.choice(np.flatnonzero(codes == k), least, replace=False)
            for k in range(len(classes))
        ]
        return self.take(np.sort(np.concatenate(rows)))

    def take(self, rows: Any) -> Self:
        """Some rows, by position."""
        groups = None if self.groups is None else self.groups.iloc[rows]
        parts = None if self.parts is None else self.parts.iloc[rows]
        return replace(
            self,
            X=cast(pd.DataFrame, self.X.iloc[rows]),
            y=self.y.iloc[rows],
            groups=groups,
            parts=parts,
        )


def _cut(n: int, test: float, name: str) -> int:
    """How many of n rows to learn from."""
    good = 0 < test < max(n, 1) and (test < 1 or test == int(test))
    if not good:
        raise SettingError(
            f"test must be a share between 0 and 1 or a number of rows below {n} of {name}, got "
            f"{test}"
        )
    return round(n * (1 - test)) if test < 1 else n - int(test)


@dataclass(frozen=True)
class Images(_Parts):
    """Grey images (n, height, width) from 0 to 255 and what they show."""

    name: str
    X: NDArray[np.uint8]
    y: "pd.Series[Any]"
    licence: str
    citation: str
    source: str = ""
    parts: "pd.Series[Any] | None" = None  # 'train' or 'test'

    def take(self, rows: Any) -> Self:
        """Some images, by position."""
        parts = None if self.parts is None else self.parts.iloc[rows]
        return replace(self, X=self.X[rows], y=self.y.iloc[rows], parts=parts)
