"""Metrics: small functions from answers to one value per row. Lower is better unless said otherwise.

Rows that asked for nothing (already met) and rows without an answer get a missing value from every metric but
`validity`, so that a mean speaks of answers only; how many there are is what `validity` says.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.rows import chunks
from holdfast.counterfactuals import Counterfactuals
from holdfast.distances import Distance, distance_of
from holdfast.errors import SettingError, untyped
from holdfast.evaluation.report import Report
from holdfast.models.density import FeatureDensity
from holdfast.target import IntervalTarget, Status

PAIRS = 1 << 24  # distances held at once


def _answers_only(cfs: Counterfactuals, values: Any) -> "pd.Series[float]":
    return pd.Series(np.asarray(values, dtype=np.float64), index=cfs.after.index).where(cfs.found)


def validity(cfs: Counterfactuals) -> "pd.Series[float]":
    """1 where an answer was found, 0 where not, missing where none was needed. Higher is better."""
    needed = cfs.status_codes != Status.ALREADY_MET
    return pd.Series(cfs.found.astype(np.float64), index=cfs.after.index).where(needed)


def cost(cfs: Counterfactuals, norm: str | Distance = "l1", *, units: str = "encoded") -> "pd.Series[float]":
    """Size of the change; see `Counterfactuals.cost`."""
    return _answers_only(cfs, cfs.cost(norm, units=units))


def sparsity(cfs: Counterfactuals) -> "pd.Series[float]":
    """Share of the features that stay as they are. Higher is better."""
    return 1 - cost(cfs, "l0") / len(cfs.schema.features)


def confidence(cfs: Counterfactuals) -> "pd.Series[float]":
    """Probability of the wanted outcome. Higher is better."""
    return _answers_only(cfs, cfs.confidence)


def estimate(cfs: Counterfactuals) -> "pd.Series[float]":
    """The number that a regression model estimates for the answer."""
    return _answers_only(cfs, cfs.estimate)


def distance_to_data(
    cfs: Counterfactuals,
    X: pd.DataFrame,
    y: "pd.Series[Any]",
    *,
    nearest: int | None = 1,
    norm: float | str | Distance = 1,
) -> "pd.Series[float]":
    """Mean distance from each answer to the `nearest` data rows of the wanted class (None: to all of them); of a
    regression model, to those whose outcome is in the range."""
    x = cfs.schema.encode(X, torch.float64)
    answers = cfs.schema.encode(cfs.after, torch.float64)
    out = np.full(len(cfs), np.nan)
    for rows, data in _by_class(cfs, x, y):
        k = len(data) if nearest is None else min(nearest, len(data))
        near: list[Tensor] = []
        for part in chunks(answers[rows], max(1, PAIRS // len(data))):
            near.append(distance_of(norm).between(part, data).topk(k, 1, largest=False).values.mean(1))
        out[rows] = torch.cat(near).numpy()
    return _answers_only(cfs, out)


def outlier_factor(
    cfs: Counterfactuals, X: pd.DataFrame, y: "pd.Series[Any]", *, neighbors: int = 20
) -> "pd.Series[float]":
    """Local outlier factor of each answer among the data of the wanted class: about 1 inside, more outside."""
    sklearn = untyped("sklearn.neighbors")
    x = cfs.schema.encode(X, torch.float64)
    answers = cfs.schema.encode(cfs.after, torch.float64)
    out = np.full(len(cfs), np.nan)
    for rows, data in _by_class(cfs, x, y):
        if len(data) > 1:
            judge = sklearn.LocalOutlierFactor(n_neighbors=min(neighbors, len(data) - 1), novelty=True)
            out[rows] = -judge.fit(data.numpy()).score_samples(answers[rows].numpy())
    return _answers_only(cfs, out)


def _by_class(cfs: Counterfactuals, x: Tensor, y: "pd.Series[Any]") -> list[tuple[Any, Tensor]]:
    """For each class that answers got: which answers, and the data of that class."""
    if len(x) != len(y):
        raise SettingError(f"need one outcome per data row, got {len(y)} for {len(x)}")
    if isinstance(cfs.goal, IntervalTarget):
        found, data = np.flatnonzero(cfs.found), x[torch.tensor(y.between(cfs.goal.low, cfs.goal.high).to_numpy())]
        return [(found, data)] if len(found) and len(data) else []
    got = cfs.scores.argmax(1).numpy() if len(cfs) else np.zeros(0, dtype=np.int64)
    pairs: list[tuple[Any, Tensor]] = []
    for i, name in enumerate(cfs.classes):
        rows, data = np.flatnonzero((got == i) & cfs.found), x[torch.tensor((y == name).to_numpy())]
        if len(rows) and len(data):
            pairs.append((rows, data))
    return pairs


def evaluate(
    cfs: Counterfactuals,
    X: pd.DataFrame | None = None,
    y: "pd.Series[Any] | None" = None,
    *,
    density: FeatureDensity | None = None,
) -> Report:
    """The usual metrics in one report; those about plausibility need data and its outcomes, or a fitted density.

    Args:
        density: adds how much answers are at home among the model's features (higher is better), and the share of those
            that are strange to it.
    """
    values = {"validity": validity(cfs)}
    values |= {"estimate": estimate(cfs)} if cfs.is_regression else {"confidence": confidence(cfs)}
    values["sparsity"] = sparsity(cfs)
    values |= {f"cost {n}": cost(cfs, n) for n in ("l0", "l1", "l2", "linf", "weighted")}
    values["cost l1, raw units"] = cost(cfs, "l1", units="raw")
    if X is not None and y is not None:
        values["distance to data"] = distance_to_data(cfs, X, y)
        values["outlier factor"] = outlier_factor(cfs, X, y)
    if density is not None:
        values["log-density"] = density(cfs)
        values["strange"] = _answers_only(cfs, density.strange(cfs.after))
    about = {"method": cfs.run.settings, "target": cfs.run.target, "rows": len(cfs), "seconds": cfs.run.seconds}
    return Report(pd.DataFrame(values), about)
