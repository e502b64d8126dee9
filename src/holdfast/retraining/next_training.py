"""The next training: how far a model of new data lies from the model in use.

Let the margins of models that learn from n rows of a population lie sigma / sqrt(n) around their
mean. The model in use is one such model, the next one is another. Bootstraps of the rows in use lie
as far around the model *in use*. A plan that a share h of them accepts is z_h deviations inside
their middle, and the mean of the population may be z_gamma deviations nearer to the edge than that
middle. To be inside for models of new data, whatever rows came first except for a share 1 - gamma
of unlucky tables, it must be z_h + z_gamma deviations inside. So judges must lie

    s(h, gamma) = 1 + z_gamma / z_h

times as far from the model in use as bootstraps. Two kinds of judges do:

    stretch    the margin of a bootstrap m, led away from that of the model in use:  g + s (g_m - g)
    fresh      models of m = n / s^2 rows drawn with replacement: deviations grow with 1 / sqrt(m)

That holds where models differ by their rows alone. In networks, and other models that draw random
numbers, part of the deviations comes from their seeds. Each bootstrap draws its own seed, so their
middle is free of that part, and only the other part can be nearer to the edge than it seems. With r
the share of the variance that comes from rows,

    s(h, gamma, r) = 1 + sqrt(r) z_gamma / z_h

and models of fewer rows, whose seeds deviate as before, must deviate by their rows so much more
that

    s^2 r + 1 - r = s(h, gamma, r)^2

A plan is not a point that was there before the table: it is found where the model in use is
generous, partly by accident (the winner's curse). So b deviations are added: (sqrt(r) z_gamma + b)
/ z_h replaces the fraction. The b needed was measured with large tables as populations, see
`benchmarks/next_training.py`: it is less for networks, whose bootstraps' middle is free of the
accidents of seeds, than for other models. For the same reason a plan is chosen with a reserve: of
those likely to be certified, one that still would be if judges lay RESERVE deviations further away
(`auditing.choice`). The certificate itself does not ask for a reserve.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast._core.checks import untyped
from holdfast.errors import SettingError

USUAL_SPREAD = 2.0  # s(h, h) for any share h
# How many deviations too generous the model in use is where plans are found; settled, like the
# reserve below, on tables of the populations of `benchmarks/next_training.py` with numbers below
# 400, before any table from 400 on was drawn.
ALLOWANCES = {"network": 0.15, "other": 0.25}
RESERVE = 1.0  # deviations beyond what judges ask for; plans are chosen with these where possible
LEAST_FROM_ROWS = 0.05  # a measured share is never taken to be less
TINY = 1e-12
LEAST_OF_A_CLASS = 10  # rows of the rarest class that a model of fewer rows can expect to see
LEAST_ROWS = 30
SHUFFLED = 7  # shuffles of the columns, which tell how many equal rows to expect
MANY_EQUAL = 0.1  # from this share of rows that equal another one, somebody should ask why

Unit = Literal["logits", "shares", "classes"]


def spread_for(
    hold: float, confidence: float, from_rows: float = 1.0, allowance: float = 0.0
) -> float:
    """How many times as far from the model in use as bootstraps judges must lie.

    Args:
        hold, confidence: of the certificate.
        from_rows: r, the share of the variance of retrained models that comes from their rows, see
            `share_from_rows`.
        allowance: b, by how many deviations a model in use is too generous where plans are found.

    >>> [round(spread_for(hold, 0.95), 2) for hold in (0.8, 0.9, 0.95, 0.99)]
    [2.95, 2.28, 2.0, 1.71]
    """
    if hold <= 0.5:
        what = f"hold must be above 0.5 to speak of models of new data, got {hold:g}"
        raise SettingError(
            f"{what}; ask for more, or pass family='retrain' for models of the same table"
        )
    quantile: Any = untyped("scipy.stats").norm.ppf
    further = math.sqrt(from_rows) * max(0.0, float(quantile(confidence))) + allowance
    return 1 + further / float(quantile(hold))


def spread_of_rows(
    hold: float, confidence: float, from_rows: float = 1.0, allowance: float = 0.0
) -> float:
    """The same for the rows alone: how many times as far models of fewer rows must deviate by
    these.

    >>> round(spread_of_rows(0.95, 0.95), 2), round(spread_of_rows(0.95, 0.95, from_rows=0.5), 2)
    (2.0, 2.2)
    """
    whole = spread_for(hold, confidence, from_rows, allowance)
    return math.sqrt((whole**2 - 1 + from_rows) / from_rows)


def spread_with_reserve(spread: float, hold: float) -> float:
    """How many times as far the jury that chooses is led away, to see which plans have a reserve.

    >>> round(spread_with_reserve(2.0, 0.95), 2)
    2.61
    """
    quantile: Any = untyped("scipy.stats").norm.ppf
    return spread + RESERVE / float(quantile(hold))


def share_from_rows(again: Tensor, retrained: Tensor, unit: Unit) -> float:
    """Which part of the variance of retrained models comes from their rows rather than their
    seeds.

    Args:
        again: (S, n, k) scores of models trained again on the same rows with other
            seeds.
        retrained: (M, n, k) scores of models of rows drawn again, with other seeds.
        unit: in which they differ: logits (for a regression, the numbers themselves), shares of
            votes, or classes alone.
    """
    if unit == "classes":
        by_rows = _disagreement(retrained)
        ratio = (_disagreement(again) / by_rows) ** 2 if by_rows else 1.0
    else:
        variances = [_variance(scores, unit) for scores in (again, retrained)]
        ratio = float((variances[0] / variances[1].clamp_min(TINY)).median())
    return float(np.clip(1 - ratio, LEAST_FROM_ROWS, 1.0))


def _variance(scores: Tensor, unit: Unit) -> Tensor:
    """(n,) how far models differ about each row."""
    values = scores.detach().double()
    if unit == "shares":
        values = torch.softmax(values, -1)
    if values.shape[-1] > 1:
        # a constant added to all logits changes nothing
        values = values - values.mean(-1, keepdim=True)
    return values.var(0).sum(-1)


def _disagreement(scores: Tensor) -> float:
    """How often two of the models give a row different classes."""
    models, _, k = scores.shape
    votes = torch.nn.functional.one_hot(scores.argmax(-1), k).double().sum(0)
    same = (votes * (votes - 1)).sum(-1) / (models * (models - 1))
    return float(1 - same.mean())


def fresh_rows(rows: int, spread: float, per_class: Sequence[int]) -> int:
    """m = n / spread^2, the rows that a model of the family `fresh` learns from, or an error if
    they are too few.

    Args:
        rows: n, the rows of the table.
        spread: how far the models should deviate, as a multiple of how far bootstraps do.
        per_class: how many rows each class has; none for a regression.
    """
    count = math.floor(rows / spread**2)
    rarest = min((n for n in per_class if n), default=rows)
    expected = count * rarest / rows
    if count < LEAST_ROWS or (len(per_class) and expected < LEAST_OF_A_CLASS):
        what = f"models of the family 'fresh' would learn from {count} of {rows} rows"
        rare = f", {expected:.3g} of them of the rarest class" if len(per_class) else ""
        raise SettingError(
            f"{what}{rare}, which is too few; use the family 'stretch', or ask for less"
        )
    return count


def many_equal_rows(values: np.ndarray[Any, Any]) -> float:
    """The share of rows that equal another one, if chance does not explain it; 0.0 if it
    does.

    Args:
        values: (n, d) numbers, one for each different value of a column.
    """
    if len(values) < 2 or not values.shape[1]:
        return 0.0
    random = np.random.default_rng(0)
    seen = _share_of_equals(values)
    by_chance = np.mean(
        [_share_of_equals(random.permuted(values, axis=0)) for _ in range(SHUFFLED)]
    )
    return seen if seen > MANY_EQUAL and seen > 2 * by_chance + MANY_EQUAL else 0.0


def _share_of_equals(values: np.ndarray[Any, Any]) -> float:
    counts = np.unique(values, axis=0, return_counts=True)[1]
    return float(counts[counts > 1].sum() / len(values))


def same_steps(epochs: int, batch_size: int, rows: int, fewer: int) -> int:
    """Epochs on fewer rows with as many gradient steps: a model of fewer rows must not be a less
    trained one."""
    steps = epochs * math.ceil(rows / batch_size)
    return max(1, round(steps / math.ceil(fewer / batch_size)))


def class_counts(labels: Tensor, classes: int) -> list[int]:
    """How many rows each class has; none for a regression."""
    return [int(count) for count in labels.bincount(minlength=classes)] if classes else []
