"""Where to ask a model of which no thresholds are known, or too many."""

import numpy as np

from holdfast._core.types import Array
from holdfast.models.base import Model
from holdfast.models.compiled.tree_leaves import Cells
from holdfast.schema.encoding import Encoding
from holdfast.schema.feature import Feature

UNKNOWN = 2.0  # encoded end of a range that nobody knows


def cells_at_quantiles(
    model: Model, thresholds: list[Cells] | None, data: Array | None, count: int
) -> list[Cells]:
    """At most `count` cells of each feature; of data (n, d), or where there are none of the range.

    Args:
        thresholds: what is known of a model's own; it does not look at features that are missing.
    """
    encoding = model.schema.encoding(model.dtype)
    cells = list[Cells]()
    for i, (feature, columns) in enumerate(
        zip(model.schema.features, model.schema.slices, strict=True)
    ):
        if feature.is_category:
            cells.append(Cells(i, columns, None))
            continue
        cuts = next((c.cuts for c in thresholds or () if c.feature == i), None)
        if thresholds is not None and cuts is None:
            continue  # no tree asks about it
        if cuts is None:
            cuts = _without_thresholds(feature, columns, encoding, data, count)
        elif len(cuts) > count:
            cuts = _quantiles(cuts, count)
        cells.append(Cells(i, columns, cuts, feature.has_gaps))
    return cells


def _without_thresholds(
    feature: Feature, columns: slice, encoding: Encoding, data: Array | None, count: int
) -> Array:
    """Between the values of a coarse grid, else at quantiles of the data."""
    low = float(encoding.seen_low[columns.start])
    high = float(encoding.seen_high[columns.start])
    low = low if np.isfinite(low) else -UNKNOWN
    high = high if np.isfinite(high) else UNKNOWN
    tick = float(encoding.grid[columns.start])
    if tick > 0 and (high - low) / tick < count:
        return np.arange(low, high, tick) + tick / 2
    if data is not None and feature.has_gaps:  # the last column of the feature says "missing"
        data = data[data[:, columns.stop - 1] <= 0.5]
    if data is None or not len(data):
        return _quantiles(np.array([low, high]), count)
    return _quantiles(data[:, columns.start], count)


def _quantiles(values: Array, count: int) -> Array:
    return np.unique(np.quantile(values, (np.arange(count) + 0.5) / count))
