"""The usual metrics of answers in one report: values per row, and means with bootstrap
intervals."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from holdfast._core.result import as_json, write_csv
from holdfast.counterfactuals import Counterfactuals
from holdfast.datasets import records
from holdfast.errors import SettingError
from holdfast.evaluation import metrics
from holdfast.evaluation._saved import read_marked, write_as, write_marked
from holdfast.models.density import FeatureDensity

Array = np.ndarray[Any, Any]

RESAMPLES = 1000


@dataclass(frozen=True)
class Report:
    """Metrics, one value per row; missing where a metric says nothing about the row.

    Args:
        values: (n, metrics).
        about: what the values describe; goes into `to_dict`.
        level: of the bootstrap intervals.

    >>> import holdfast as hf, pandas as pd
    >>> report = hf.Report(pd.DataFrame({"cost": [1.0, 2.0, None]}))
    >>> report.table().loc["cost", ["mean", "rows"]].tolist()
    [1.5, 2.0]
    >>> print(report.to_markdown().splitlines()[0])
    | metric | mean | 95% interval | rows |
    """

    values: pd.DataFrame
    about: dict[str, Any] = field(default_factory=dict[str, Any])
    level: float = 0.95

    def table(self, by: Any = None, *, seed: int = 0) -> pd.DataFrame:
        """Mean, bootstrap interval and number of rows of each metric; with `by`, for each group of
        rows."""
        if by is None:
            return self._table(self.values, seed)
        groups = self.values.groupby(np.asarray(by), sort=True)
        return pd.concat(
            {name: self._table(group, seed) for name, group in groups}, names=["group", "metric"]
        )

    def _table(self, values: pd.DataFrame, seed: int) -> pd.DataFrame:
        lines = dict[str, tuple[float, float, float, int]]()
        for name in values.columns:
            column = values[name].dropna().to_numpy(np.float64)
            mean = float(column.mean()) if len(column) else np.nan
            lines[str(name)] = mean, *interval(column, self.level, seed), len(column)
        table = pd.DataFrame.from_dict(
            lines, orient="index", columns=["mean", "low", "high", "rows"]
        )
        return table.astype({"rows": int}).rename_axis("metric")

    def summary(self) -> str:
        """One line: how many rows, and the mean of every metric."""
        means = "; ".join(f"{name} {mean:.4g}" for name, mean in self.table()["mean"].items())
        rows = f"{len(self.values):,} row{'s' * (len(self.values) != 1)}"
        return f"{rows}: {means or 'no metrics'}"

    def plot(self) -> Any:
        """Means with their intervals, a line per metric; needs the `plot` extra."""
        from holdfast.render.charts.report import report_chart

        return report_chart(self.table(), self.level)

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page with the means and their picture; needs the `plot` extra."""
        from holdfast.render.result_page import result_page

        facts = [(name.capitalize(), str(value)) for name, value in self.about.items()]
        drawn = bool(self.table()["mean"].notna().any())
        return result_page(
            Path(path),
            title="Metrics",
            headline=self.summary(),
            chart=self.plot() if drawn else None,
            caption="The mean of each metric over the rows, and its interval.",
            table=self.table(),
            facts=facts,
        )

    def to_markdown(self) -> str:
        """Means and intervals as a table of Markdown."""
        lines = [f"| metric | mean | {self.level:.0%} interval | rows |", "|---|---:|---:|---:|"]
        for name, row in self.table().iterrows():
            lines.append(
                f"| {name} | {row['mean']:.4g} | {row['low']:.4g} to {row['high']:.4g} | "
                f"{row['rows']:.0f} |"
            )
        return "\n".join(lines)

    def to_html(self) -> str:
        """Means and intervals as an HTML table."""
        return self.table().to_html(float_format=lambda v: f"{v:.4g}", border=0)

    _repr_html_ = to_html

    # ---- files

    def to_dict(self) -> dict[str, Any]:
        """Means, intervals and what the report is about, as plain values, unrounded."""
        return {"about": self.about, "level": self.level, "metrics": by_name(self.table())}

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, also written to a file if a path is given."""
        return as_json(self.to_dict(), path)

    def save(self, path: str | Path) -> None:
        """Write the extension's format: .parquet has everything, for `load`; .json what `to_json`
        gives, and .csv what `table` gives."""
        content = {"about": self.about, "level": self.level}
        write_as(
            path,
            {
                ".parquet": lambda file: write_marked(file, self.values, "Report", content),
                ".json": self.to_json,
                ".csv": lambda file: write_csv(self.table(), file),
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Read a .parquet file written by `save`."""
        return read_marked(
            path,
            "Report",
            lambda values, content: cls(values, dict(content["about"]), float(content["level"])),
        )

    def __repr__(self) -> str:
        return self.table().to_string(float_format=lambda v: f"{v:.4g}")


def evaluate(
    cfs: Counterfactuals,
    X: pd.DataFrame | None = None,
    y: ArrayLike | None = None,
    *,
    density: FeatureDensity | None = None,
) -> Report:
    """The usual metrics in one report; those about plausibility need data and its outcomes, or a
    fitted density.

    Args:
        cfs: answers of any method.
        X, y: (m,) data rows and their outcomes: classes of the model, or numbers for a regression
            model.
        density: adds how much at home answers are among the model's features (higher is better),
            and the share of strange ones.

    Returns:
        A `Report`: one value per row and metric, and their means with bootstrap intervals.

    >>> import holdfast as hf
    >>> data = hf.datasets.linearly_separable(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=[], epochs=20, lr=0.1)
    >>> cfs = hf.Descent().explain(model, data.X[model.predict(data.X) == "no"].head(5), "yes")
    >>> report = hf.evaluate(cfs, data.X, data.y)
    >>> report.table().loc["validity", "mean"]
    np.float64(1.0)
    >>> list(report.values.columns[-2:])
    ['distance to data', 'outlier factor']
    """
    both = (X is None) == (y is None)
    if not both:
        raise SettingError(
            "distances to data need rows and their outcomes: pass both X and y, or neither"
        )
    # Only what the arguments can tell: every column that is there has numbers.
    values = {"validity": metrics.validity(cfs)}
    values |= (
        {"estimate": metrics.estimate(cfs)}
        if cfs.is_regression
        else {"probability": metrics.probability(cfs)}
    )
    values["sparsity"] = metrics.sparsity(cfs)
    values |= {f"cost {n}": metrics.cost(cfs, n) for n in ("l0", "l1", "l2", "linf", "weighted")}
    values["cost l1, raw units"] = metrics.cost(cfs, "l1", units="raw")
    if X is not None and y is not None:
        values["distance to data"] = metrics.distance_to_data(cfs, X, y)
        values["outlier factor"] = metrics.outlier_factor(cfs, X, y)
    if density is not None:
        values["log-density"] = density(cfs)
        strange = np.asarray(density.strange(cfs.after), dtype=np.float64)
        values["strange"] = pd.Series(strange, index=cfs.after.index).where(cfs.found)
    about = {
        "method": cfs.run.settings,
        "target": cfs.run.target,
        "rows": len(cfs),
        "seconds": cfs.run.seconds,
    }
    return Report(pd.DataFrame(values), about)


def by_name(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The lines of a table by their names, in JSON's types."""
    return dict(zip(map(str, table.index), records(table), strict=True))


def interval(values: Array, level: float, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean, with its own generator."""
    if not len(values):
        return np.nan, np.nan
    means = np.concatenate([counts @ values for counts in _resamples(len(values), seed)]) / len(
        values
    )
    return _middle(means, level)


def gap(a: Array, b: Array, level: float, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of mean(a) - mean(b) for two figures of the same cases, each a
    mean over the cases that have it."""

    def mean(counts: Array, v: Array) -> Array:
        return counts @ np.nan_to_num(v) / (counts @ np.isfinite(v))

    with np.errstate(invalid="ignore"):  # a resample without any of the cases
        parts = (
            [mean(counts, a) - mean(counts, b) for counts in _resamples(len(a), seed)]
            if len(a)
            else []
        )
    differences = np.concatenate([np.zeros(0), *parts])
    return _middle(differences[np.isfinite(differences)], level)


def _resamples(n: int, seed: int) -> Iterator[Array]:
    """(50, n) how often each of n cases is drawn; multinomial, so resamples need not be written
    out."""
    rng = np.random.default_rng(seed)
    return (rng.multinomial(n, np.full(n, 1 / n), 50) for _ in range(RESAMPLES // 50))


def _middle(values: Array, level: float) -> tuple[float, float]:
    if not len(values):
        return np.nan, np.nan
    tail = (1 - level) / 2
    return float(np.quantile(values, tail)), float(np.quantile(values, 1 - tail))
