"""Numbers for the files of results, and cells and tables for the pages: what all papers share."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Value = float | Sequence[float | None] | None  # a number, or its mean and standard deviation


# ---- numbers that JSON has


def known(value: Any, digits: int = 4) -> float | None:
    """A rounded number, None if it is not finite."""
    return round(float(value), digits) if np.isfinite(value) else None


def plain(values: Any, digits: int = 4) -> Any:
    """An array as nested lists of numbers, None where one is not finite."""
    return [plain(part, digits) for part in values] if np.ndim(values) else known(values, digits)


def mean_sd(values: Any, *, sample: bool = False) -> list[float | None]:
    """[mean, standard deviation] of all values, [] if there are none.

    Args:
        sample: the unbiased standard deviation, which is None for a single value.
    """
    flat = np.asarray(values, dtype=np.float64).ravel()
    if not flat.size:
        return []
    return [
        known(flat.mean()),
        known(flat.std(ddof=int(sample))) if flat.size > int(sample) else None,
    ]


# ---- markdown


def cell(measured: Value, reported: Value = None, digits: int = 2) -> str:
    """`0.41 ± 0.04`, or `0.41` for a single number, or `-` for none; reported figures follow in
    brackets."""
    return (
        _text(measured, digits)
        if reported is None
        else f"{_text(measured, digits)} ({_text(reported, digits)})"
    )


def _text(value: Value, digits: int) -> str:
    parts = [*value] if isinstance(value, Sequence) else [value]
    mean = parts[0] if parts else None
    sd = parts[1] if len(parts) > 1 else None
    if mean is None:
        return "-"
    return f"{mean:.{digits}f}" if sd is None else f"{mean:.{digits}f} ± {sd:.{digits}f}"


def verdict(holds: bool | None) -> str:
    """Whether a claim holds; None: nothing decides it."""
    return {True: "yes", False: "**no**", None: "open"}[holds]


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a markdown table."""
    head = list(head)
    return [_line(head), "|" + "---|" * len(head), *map(_line, rows)]


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def section(title: str, *parts: str | Iterable[str]) -> list[str]:
    """A heading with paragraphs and tables below it, separated by empty lines."""
    lines = [title]
    for part in parts:
        lines += ["", *([part] if isinstance(part, str) else part)]
    return [*lines, ""]
