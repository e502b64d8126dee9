"""What is known about the rows of a table besides their features: how old they are, which belong
together, how much they count."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast._core.checks import did_you_mean
from holdfast.errors import SettingError
from holdfast.retraining.next_training import many_equal_rows
from holdfast.schema.schema import Schema

if TYPE_CHECKING:
    from holdfast.retraining.base_run import BaseRun

MOST_PERIODS = 12  # up to this many different values of a time, each is a period
TIME_BLOCKS = 24  # the fewest blocks of rows drawn together, if rows have a time


class BesideFeatures(TypedDict, total=False):
    """What may be said of rows beside their features: each by the name of a column, or row by
    row."""

    time: str | ArrayLike | None
    groups: str | ArrayLike | None
    sample_weight: str | ArrayLike | None


@dataclass(frozen=True)
class RowFacts:
    """What is known about the rows of a table besides their features.

    A name is a column's. If the schema does not have it, it is not a feature.
    """

    table: pd.DataFrame  # without the columns that are not features
    periods: Tensor | None
    blocks: Tensor | None
    weight: Tensor | None

    @classmethod
    def of(
        cls,
        X: pd.DataFrame,
        schema: Schema,
        time: str | ArrayLike | None = None,
        groups: str | ArrayLike | None = None,
        sample_weight: str | ArrayLike | None = None,
    ) -> "RowFacts":
        n = len(X)
        named = {"times": time, "groups": groups, "weights": sample_weight}
        values = {what: _column(X, what, given) for what, given in named.items()}
        no_features = {given for given in named.values() if isinstance(given, str)} - set(
            schema.names
        )
        periods = None if values["times"] is None else periods_of(values["times"], n)
        blocks = None
        if values["groups"] is not None:
            blocks = groups_of(values["groups"], n)
        elif values["times"] is not None:
            blocks = blocks_of(values["times"], n)
        return cls(
            table=X.drop(columns=list(no_features)) if no_features else X,
            periods=periods,
            blocks=blocks,
            weight=None if values["weights"] is None else weights_of(values["weights"], n),
        )


def _column(X: pd.DataFrame, what: str, given: str | ArrayLike | None) -> ArrayLike | None:
    """A column by its name, or the values given."""
    if not isinstance(given, str):
        return given
    if given not in X.columns:
        raise SettingError(
            f"the table has no column {given!r} for {what}; {did_you_mean(given, X.columns)}"
        )
    return X[given].to_numpy()


def groups_of(groups: ArrayLike, n: int) -> Tensor:
    """(n,) the number of each row's group."""
    values = pd.Series(np.asarray(groups)) if np.ndim(groups) == 1 else None
    if values is None or len(values) != n:
        shape = np.shape(groups)
        raise SettingError(
            f"groups must be the name of a column, or one value for each of {n} rows, got shape "
            f"{shape}"
        )
    missing = int(values.isna().sum())
    if missing:
        raise SettingError(
            f"{missing} rows have no group (missing values); give each a group of its own"
        )
    number = torch.tensor(pd.factorize(values)[0])
    if int(number.max()) < 1:
        raise SettingError("all rows are in one group; drawing groups again needs at least two")
    return number


def blocks_of(time: ArrayLike, n: int) -> Tensor:
    """(n,) the number of each row's block of time: rows of one time, or of neighbouring ones, are
    drawn together. If there are few different times, or as many as rows, a block is a part of the
    rows in the order of time."""
    values = pd.Series(np.asarray(time))
    if values.nunique() >= TIME_BLOCKS and 2 * values.nunique() <= n:
        return torch.tensor(pd.factorize(values)[0])
    order = values.argsort(kind="stable").to_numpy()
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    return torch.tensor(place * min(TIME_BLOCKS, n) // n)


def weights_of(weight: ArrayLike, n: int) -> Tensor:
    """(n,) how much each row counts."""
    try:
        values = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SettingError(f"sample_weight must be numbers: {error}") from None
    if values.shape != (n,):
        raise SettingError(
            f"sample_weight must have one number for each of {n} rows, got shape {values.shape}"
        )
    bad = int((~np.isfinite(values) | (values < 0)).sum())
    if bad or not values.any():
        raise SettingError(
            f"sample_weight must be 0 or more, and some of it above 0; {bad} numbers are not"
        )
    return torch.tensor(values)


def periods_of(time: ArrayLike, n: int) -> Tensor:
    """(n,) the number of each row's period: one for every value, or four of equal size if there are
    more than a few."""
    values = np.asarray(time)
    if values.shape != (n,):
        raise SettingError(
            f"time must be the name of a column, or have one value for each of the {n} rows, got "
            f"shape {values.shape}"
        )
    missing = int(pd.Series(values).isna().sum())
    if missing:
        raise SettingError(f"{missing} values of time are missing; leave those rows out")
    try:
        known, place = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise SettingError(f"values of time cannot be put in order: {error}") from None
    if len(known) > MOST_PERIODS:
        place = np.searchsorted(np.sort(place)[[n // 4, n // 2, 3 * n // 4]], place, side="right")
        place = np.unique(place, return_inverse=True)[1]
    if not place.max() > 0:
        raise SettingError("all rows have the same time; history needs at least two periods")
    return torch.tensor(place)


def warnings_about(run: "BaseRun") -> tuple[str, ...]:
    """What drawing single rows may miss in a table, in sentences: rows that belong together, rows
    of many times."""
    out = list[str]()
    if run.blocks is not None:
        return ()
    codes = [pd.factorize(run.X[name])[0] for name in run.X.columns] + [pd.factorize(run.y)[0]]
    equal = many_equal_rows(np.stack(codes, 1))
    if equal:
        what = f"{equal:.0%} of the training rows equal another one, more than chance explains"
        out.append(
            f"Beware: {what}; if rows belong together, such as those of one person, pass groups=."
        )
    times = [name for name in run.X.columns if pd.api.types.is_datetime64_any_dtype(run.X[name])]
    if times:
        what = (
            f"the column {times[0]!r} holds times, and rows are drawn as if their time did "
            "not matter"
        )
        out.append(
            f"Beware: {what}; pass time={times[0]!r} to draw rows of the same time together."
        )
    return tuple(out)
