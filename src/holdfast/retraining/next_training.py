"""The next training: how far from the model in use a model of new data lies.

Let the margins of models that learn from n rows of a population lie sigma / sqrt(n) around their mean. The model in
use is one such model, the next one is another. Bootstraps of the rows in use lie as far around the model *in use*. A
plan that a share h of them accepts is z_h deviations inside their middle, and the mean of the population may be z_gamma
deviations nearer to the edge than that middle is. To be inside for models of new data, whatever rows came first but for
a share 1 - gamma of unlucky tables, it must be z_h + z_gamma deviations inside. So judges must lie

    s(h, gamma) = 1 + z_gamma / z_h

times as far from the model in use as bootstraps do. Two kinds of judges do so:

    stretch    the margin of a bootstrap m, led away from that of the model in use:  g + s (g_m - g)
    fresh      models of m = n / s^2 rows drawn with replacement, as deviations grow with 1 / sqrt(m)
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from holdfast.errors import SettingError, untyped

USUAL_SPREAD = 2.0  # s(h, h) of any share h
LEAST_OF_A_CLASS = 10  # rows of the rarest class that a model of fewer rows can expect to see
LEAST_ROWS = 30
SHUFFLED = 7  # of columns, by which it is known how many equal rows are to be expected
MANY_EQUAL = 0.1  # a share of rows that are equal to others from which on somebody should ask why


def spread_for(hold: float, confidence: float) -> float:
    """How many times as far as bootstraps judges must lie from the model in use.

    >>> [round(spread_for(hold, 0.95), 2) for hold in (0.8, 0.9, 0.95, 0.99)]
    [2.95, 2.28, 2.0, 1.71]
    """
    if hold <= 0.5:
        what = f"hold must be above 0.5 to speak of models of new data, got {hold:g}"
        raise SettingError(f"{what}; ask for more, or pass family='retrain' for models of the same table")
    quantile: Any = untyped("scipy.stats").norm.ppf
    return float(1 + max(0.0, quantile(confidence)) / quantile(hold))


def fresh_rows(rows: int, spread: float, per_class: Sequence[int]) -> int:
    """m = n / spread^2, the rows that a model of the family `fresh` learns from; an error where they are too few.

    Args:
        rows: n, those of the table.
        spread: how far the models are to deviate, as a multiple of how far bootstraps do.
        per_class: how many rows of each class there are; none of a regression.
    """
    count = math.floor(rows / spread**2)
    rarest = min((n for n in per_class if n), default=rows)
    expected = count * rarest / rows
    if count < LEAST_ROWS or (len(per_class) and expected < LEAST_OF_A_CLASS):
        what = f"models of the family 'fresh' would learn from {count} of {rows} rows"
        rare = f", {expected:.3g} of them of the rarest class" if len(per_class) else ""
        raise SettingError(f"{what}{rare}, which is too few; use the family 'stretch', or ask for less")
    return count


def many_equal_rows(values: np.ndarray[Any, Any]) -> float:
    """The share of rows that are equal to another one, where chance does not explain it; 0.0 where it does.

    Args:
        values: (n, d) numbers, one for each different value of a column.
    """
    if len(values) < 2 or not values.shape[1]:
        return 0.0
    random = np.random.default_rng(0)
    seen = _share_of_equals(values)
    by_chance = np.mean([_share_of_equals(random.permuted(values, axis=0)) for _ in range(SHUFFLED)])
    return seen if seen > MANY_EQUAL and seen > 2 * by_chance + MANY_EQUAL else 0.0


def _share_of_equals(values: np.ndarray[Any, Any]) -> float:
    counts = np.unique(values, axis=0, return_counts=True)[1]
    return float(counts[counts > 1].sum() / len(values))


def same_steps(epochs: int, batch_size: int, rows: int, fewer: int) -> int:
    """Epochs on fewer rows with as many gradient steps: a model of fewer rows must not be one that is less trained."""
    steps = epochs * math.ceil(rows / batch_size)
    return max(1, round(steps / math.ceil(fewer / batch_size)))


def class_counts(labels: Tensor, classes: int) -> list[int]:
    """How many rows there are of each class; none of a regression."""
    return [int(count) for count in labels.bincount(minlength=classes)] if classes else []
