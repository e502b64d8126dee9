"""Metrics: small functions from answers to one value per row. Lower is better unless said
otherwise.

Rows that needed nothing (already met) and rows without an answer get a missing value from every
metric but `validity`, so a mean speaks of answers only; `validity` says how many there
are.

    >>> import holdfast as hf
    >>> data = hf.datasets.linearly_separable(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=[], epochs=20, lr=0.1)
    >>> cfs = hf.Descent().explain(model, data.X[model.predict(data.X) == "no"].head(5), "yes")
    >>> hf.metrics.validity(cfs).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    >>> bool((hf.metrics.cost(cfs, "l2") <= hf.metrics.cost(cfs, "l1")).all())
    True
    >>> hf.metrics.distance_to_data(cfs, data.X, data.y, nearest=3).isna().sum()
    np.int64(0)
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast._core.checks import untyped
from holdfast._core.rows import chunks, rows_per_chunk
from holdfast.counterfactuals import Counterfactuals
from holdfast.distances import Distance, distance_of
from holdfast.errors import SettingError
from holdfast.evaluation._outcomes import known_outcomes
from holdfast.target import IntervalTarget, Status

__all__ = [
    "cost",
    "distance_to_data",
    "estimate",
    "outlier_factor",
    "probability",
    "sparsity",
    "validity",
]


def __dir__() -> list[str]:
    return __all__


PAIRS = 1 << 24  # distances held at once


def _answers_only(cfs: Counterfactuals, values: Any) -> "pd.Series[float]":
    return pd.Series(np.asarray(values, dtype=np.float64), index=cfs.after.index).where(cfs.found)


def validity(cfs: Counterfactuals) -> "pd.Series[float]":
    """1 where an answer was found, 0 where not, missing where none was needed. Higher is better.

    Paper: krishna2024 Metric validity.
    """
    needed = cfs.status_codes != Status.ALREADY_MET
    return pd.Series(cfs.found.astype(np.float64), index=cfs.after.index).where(needed)


def cost(
    cfs: Counterfactuals, norm: str | Distance = "l1", *, units: str = "encoded"
) -> "pd.Series[float]":
    """Size of the change; see `Counterfactuals.cost`.

    Paper: krishna2024 Metric cost.
    """
    return _answers_only(cfs, cfs.cost(norm, units=units))


def sparsity(cfs: Counterfactuals) -> "pd.Series[float]":
    """Share of the features that stay as they are. Higher is better."""
    return 1 - cost(cfs, "l0") / len(cfs.schema.features)


def probability(cfs: Counterfactuals) -> "pd.Series[float]":
    """Probability of the wanted outcome. Higher is better."""
    return _answers_only(cfs, cfs.probability)


def estimate(cfs: Counterfactuals) -> "pd.Series[float]":
    """The number that a regression model estimates for the answer."""
    return _answers_only(cfs, cfs.estimate)


def distance_to_data(
    cfs: Counterfactuals,
    X: pd.DataFrame,
    y: ArrayLike,
    *,
    nearest: int | None = 1,
    norm: float | str | Distance = 1,
) -> "pd.Series[float]":
    """Mean distance from each answer to the `nearest` data rows of the wanted class (None: to all
    of them); for a regression model, to those whose outcome is in the range."""
    answers = cfs.schema.encode(cfs.after, torch.float64)
    out = np.full(len(cfs), np.nan)
    for rows, data in _by_class(cfs, X, y):
        k = len(data) if nearest is None else min(nearest, len(data))
        parts = (
            distance_of(norm).between(part, data)
            for part in chunks(answers[rows], rows_per_chunk(len(data), PAIRS))
        )
        out[rows] = torch.cat(
            [part.topk(k, 1, largest=False).values.mean(1) for part in parts]
        ).numpy()
    return _answers_only(cfs, out)


def outlier_factor(
    cfs: Counterfactuals, X: pd.DataFrame, y: ArrayLike, *, neighbors: int = 20
) -> "pd.Series[float]":
    """Local outlier factor of each answer among the data of the wanted class: about 1 inside, more
    outside."""
    sklearn = untyped("sklearn.neighbors")
    answers = cfs.schema.encode(cfs.after, torch.float64)
    out = np.full(len(cfs), np.nan)
    for rows, data in _by_class(cfs, X, y):
        if len(data) > 1:
            factor = sklearn.LocalOutlierFactor(
                n_neighbors=min(neighbors, len(data) - 1), novelty=True
            )
            out[rows] = -factor.fit(data.numpy()).score_samples(answers[rows].numpy())
    return _answers_only(cfs, out)


def _by_class(cfs: Counterfactuals, X: pd.DataFrame, y: Any) -> list[tuple[Any, Tensor]]:
    """For each class that answers got: which answers, and the data of that class."""
    x = cfs.schema.encode(X, torch.float64)
    if isinstance(cfs.goal, IntervalTarget):
        y = known_outcomes(X, y, None)
        if not pd.api.types.is_numeric_dtype(y):
            raise SettingError(f"outcomes of a regression model are numbers, got {y.dtype}")
        inside = y.between(cfs.goal.low, cfs.goal.high)
        found = np.flatnonzero(cfs.found)
        data = x[torch.tensor(inside.to_numpy())]
        return [(found, data)] if len(found) and len(data) else []
    y = known_outcomes(X, y, cfs.classes)
    got = cfs.scores.argmax(1).numpy() if len(cfs) else np.zeros(0, dtype=np.int64)
    classes = [
        (np.flatnonzero((got == i) & cfs.found), y == name) for i, name in enumerate(cfs.classes)
    ]
    pairs = [(rows, x[torch.tensor(own.to_numpy())]) for rows, own in classes]
    return [(rows, data) for rows, data in pairs if len(rows) and len(data)]
