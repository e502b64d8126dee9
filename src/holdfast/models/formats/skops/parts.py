"""What an object of a skops file says of itself, before scikit-learn has looked at any of it."""

from typing import Any, cast

import numpy as np

from holdfast.errors import FileError


def attributes(part: Any) -> dict[str, Any]:
    """What the file gives an object, and nothing that its class computes."""
    return cast(dict[str, Any], vars(part))


def shape_of(array: Any) -> tuple[int, ...] | None:
    """The shape of an array; None for anything else."""
    return cast(Any, array).shape if isinstance(array, np.ndarray) else None


def column_count(part: Any) -> int:
    """How many columns an estimator lets pass: scikit-learn compares them with this number, if it
    is there."""
    columns = attributes(part).get("n_features_in_")
    if not isinstance(columns, int) or columns < 1:
        raise FileError(
            f"the {type(part).__name__} in the file has no number of columns, but {columns!r}"
        )
    return columns


def misfit(part: Any, what: str) -> FileError:
    """The error for an estimator that has `what` in it."""
    return FileError(f"the {type(part).__name__} in the file has {what}")
