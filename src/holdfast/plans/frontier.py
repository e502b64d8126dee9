"""What certainty costs: for every person the cheapest plan for each share of models that is to
accept it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from holdfast._core.parquet import content_of, damage_named, read_sealed
from holdfast._core.result import as_json, write_csv
from holdfast.auditing import files
from holdfast.auditing.audit import Audit
from holdfast.datasets.tables import records

NONE = -1
HOLDS = (0.8, 0.9, 0.95, 0.99)  # the shares that are asked for, left out
# the column and the metadata of a Parquet file
CHOSEN_BY = "holdfast:chosen_by"
MARK = b"holdfast-frontier"


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """For every person and share the cheapest of several plans that so many retrained models
    accept.

    Args:
        chosen_by: several plans for each person, by `SurvivalSearch` with several safety margins,
            put before calibration models: the plan for a share is the cheapest one that so many of
            these accept.
        judged_by: the same plans before audit models, which had no part in that choice.
        holds: shares of models, rising.

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
    holds: tuple[float, ...]

    @cached_property
    def chosen(self) -> npt.NDArray[np.int64]:
        """(people, holds) the position of each plan among all of them; -1 where none is accepted
        so often."""
        cfs = self.chosen_by.cfs
        people = np.unique(cfs.source)
        cost = np.where(cfs.answered, cfs.cost("weighted").to_numpy(), np.inf)
        survival = self.chosen_by.survival().fillna(-1.0).to_numpy()
        out = np.full((len(people), len(self.holds)), NONE)
        for j, hold in enumerate(self.holds):
            price = np.where(survival >= hold, cost, np.inf)
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
        """One line per person, one column per share; missing where no plan reaches it."""
        cost = np.append(self.chosen_by.cfs.cost("weighted").to_numpy(), np.nan)
        return pd.DataFrame(cost[self.chosen], self.index, list(self.holds))

    def table(self) -> pd.DataFrame:
        """One line per person and share that is to hold: the plan, its cost, its survival by models
        that did not choose it, and the bound that survival exceeds with 95% confidence."""
        cfs = self.judged_by.cfs
        seen = self.judged_by.table()
        lines = pd.DataFrame(
            {
                "plan": cfs.sentences().to_numpy(),
                "cost": cfs.cost("weighted").to_numpy(),
                "survival": seen["survival"].to_numpy(),
                "bound": seen["bound"].to_numpy(),
            }
        )
        parts = list[pd.DataFrame]()
        for j, hold in enumerate(self.holds):
            one = lines.reindex(self.chosen[:, j]).set_axis(self.index)
            one["plan"] = one["plan"].fillna("No plan is accepted so often.")
            one.insert(0, "hold", hold)
            parts.append(one)
        people = len(self.index)
        order = np.arange(people).repeat(len(self.holds))
        place = order + np.tile(np.arange(len(self.holds)), people) * people
        return pd.concat(parts).iloc[place] if parts else lines

    def summary(self) -> str:
        """What each share costs in the median, of the people who can reach it."""
        costs = self.costs()
        reached = costs.notna().sum()
        middle = costs.median()
        lines = [
            f"{100 * hold:g}%: median cost {middle[hold]:.3g}, reached by {reached[hold]} of "
            f"{len(costs)}"
            for hold in self.holds
        ]
        return "\n".join(["What certainty costs", *lines])

    def __repr__(self) -> str:
        return self.summary()

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pictures, as plain values."""
        lines = self.table()
        lines.insert(0, "person", [str(name) for name in lines.index])
        return {
            "holds": list(self.holds),
            "asked": self.judged_by.asked,
            "judges": len(self.judged_by.held),
            "summary": self.summary(),
            "people": records(lines),
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, written to a file where there is one to write to."""
        return as_json(self.to_dict(), path)

    def plot(self) -> Any:
        """Cost against the share that is to hold, one line per person and a thick one for the
        median; needs the `plot` extra."""
        from holdfast.render.charts.frontier import frontier_chart

        return frontier_chart(self)

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page: what each share costs, the picture and the table; needs the
        `plot` extra."""
        from holdfast.render.result_page import frontier_page

        return frontier_page(self, Path(path))

    # ---- files

    def save(self, path: str | Path) -> None:
        """Write the format of the extension: .parquet has everything, for `load`; .json what
        `to_json` gives, and .csv what `table` gives."""
        path = Path(path)
        ending = files.known_ending(path, (".parquet", ".json", ".csv"))
        if ending == ".json":
            self.to_json(path)
        elif ending == ".csv":
            write_csv(self.table(), path)
        else:
            content = {"holds": list(self.holds), "chosen by": files.facts_of(self.chosen_by)}
            files.write(path, self.judged_by, {CHOSEN_BY: self.chosen_by.held}, {MARK: content})

    @classmethod
    def load(cls, path: str | Path) -> "Frontier":
        """Read a .parquet file written by `save`."""
        otherwise = "holds an audit and no frontier; it was not written by Frontier.save"
        table = read_sealed(path, MARK, otherwise)
        with damage_named(path):
            content: dict[str, Any] = content_of(table, MARK)
            judged_by = Audit(*files.arguments_in(table))
            verdicts = files.column(table, CHOSEN_BY)
            chosen_by = files.arguments_of(judged_by.cfs, verdicts, content["chosen by"])
            holds = tuple(float(hold) for hold in content["holds"])
            return cls(Audit(*chosen_by), judged_by, holds)
