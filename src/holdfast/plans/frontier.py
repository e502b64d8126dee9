"""What certainty costs: for every person the cheapest plan at each level of survival."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from holdfast.auditing.audit import Audit

NONE = -1


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """For every person and level the cheapest of several plans that so many retrained models
    accept.

    Args:
        chosen_by: several plans for each person, by `SurvivalSearch` with several c, put before
            calibration models: the plan at a level is the cheapest one that so many of these
            accept.
        judged_by: the same plans before audit models, which had no part in that choice.
        levels: shares of models, rising.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recourse = hf.Recourse(hf.Recipe(hidden=(), epochs=20, lr=0.1), data.X, data.y)
    >>> refused = data.X[recourse.model.predict(data.X) == "no"].head(5)
    >>> costs = recourse.frontier(refused, "yes").costs()
    >>> costs.columns.tolist(), bool((costs.diff(axis=1).iloc[:, 1:].fillna(0) >= 0).all(axis=None))
    ([0.8, 0.9, 0.95, 0.99], True)
    """

    chosen_by: Audit
    judged_by: Audit
    levels: tuple[float, ...]

    @cached_property
    def chosen(self) -> npt.NDArray[np.int64]:
        """(people, levels) the position of each plan among all of them; -1 where none is accepted
        so often."""
        cfs = self.chosen_by.cfs
        people = np.unique(cfs.source)
        cost = np.where(cfs.answered, cfs.cost("weighted").to_numpy(), np.inf)
        survival = self.chosen_by.survival().fillna(-1.0).to_numpy()
        out = np.full((len(people), len(self.levels)), NONE)
        for j, level in enumerate(self.levels):
            price = np.where(survival >= level, cost, np.inf)
            order = np.lexsort((price, cfs.source))  # the cheapest of each person comes first
            best = order[np.searchsorted(cfs.source[order], people)]
            out[:, j] = np.where(np.isfinite(price[best]), best, NONE)
        return out

    @property
    def index(self) -> pd.Index:
        """The names of the people, as in the table."""
        cfs = self.chosen_by.cfs
        return cfs.after.index[np.unique(cfs.source, return_index=True)[1]]

    def costs(self) -> pd.DataFrame:
        """One line per person, one column per level; missing where no plan reaches it."""
        cost = np.append(self.chosen_by.cfs.cost("weighted").to_numpy(), np.nan)
        return pd.DataFrame(cost[self.chosen], self.index, list(self.levels))

    def table(self) -> pd.DataFrame:
        """One line per person and level: the plan, its cost, and its survival by models that did
        not choose it, with its exact interval."""
        cfs = self.judged_by.cfs
        parts = list[pd.DataFrame]()
        seen = self.judged_by.table()
        lines = pd.DataFrame(
            {
                "plan": cfs.sentences().to_numpy(),
                "cost": cfs.cost("weighted").to_numpy(),
                **{name: seen[name].to_numpy() for name in ("survival", "low", "high")},
            }
        )
        for j, level in enumerate(self.levels):
            one = lines.reindex(self.chosen[:, j]).set_axis(self.index)
            one["plan"] = one["plan"].fillna("No plan is accepted so often.")
            one.insert(0, "level", level)
            parts.append(one)
        order = np.arange(len(self.index)).repeat(len(self.levels))
        place = order + np.tile(np.arange(len(self.levels)), len(self.index)) * len(self.index)
        return pd.concat(parts).iloc[place] if parts else lines

    def plot(self) -> Any:
        """Cost against level, one line per person and a thick one for the median; needs the `plot`
        extra."""
        from holdfast.render.charts.frontier import frontier_chart

        return frontier_chart(self)

    def describe(self) -> str:
        """What each level costs in the median, of the people who can reach it."""
        costs = self.costs()
        reached = costs.notna().sum()
        middle = costs.median()
        lines = [
            f"{100 * level:g}%: median cost {middle[level]:.3g}, reached by {reached[level]} of "
            f"{len(costs)}"
            for level in self.levels
        ]
        return "\n".join(["What certainty costs", *lines])

    def __repr__(self) -> str:
        return self.describe()
