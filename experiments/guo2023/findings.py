"""What follows from the tables: the paper's claims about robust validity, and what decides them.

Differences are taken seed by seed, with a 95 % interval over seeds.
"""

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean

from experiments.guo2023 import methods
from experiments.guo2023.measure import IN_RANGE, RAW
from experiments.guo2023.task import REAL
from experiments.records import Record, interval_of

Table = Mapping[tuple[str, str, str], Record]
ROBUST = "robust validity"
UNKNOWN = "not measured yet"


def findings(tables: Table) -> Iterator[tuple[str, str, str]]:
    """Statement, verdict, and what was measured."""
    for dataset in REAL:
        yield reached(tables, dataset)
    for dataset in REAL:
        yield gained(tables, dataset)
    for dataset in REAL:
        yield compared(tables, dataset, "softmax", "adam", "The softmax over categories changes it")
    for dataset in REAL:
        yield compared(tables, dataset, "defaults", "printed", "The class's defaults change it")
    for dataset in REAL:
        yield kept_in_range(tables, dataset)


def _record(tables: Table, dataset: str, group: str, convention: str = RAW) -> Record:
    return tables[dataset, methods.TITLES[group], f"{ROBUST}, {convention}"]


def reached(tables: Table, dataset: str) -> tuple[str, str, str]:
    """Is the paper's figure reproduced, and by how many seeds is it reached?"""
    one = _record(tables, dataset, methods.PRINTED)
    assert one.reported is not None
    told = one.reported[0]
    statement = f"{dataset}: RoCourseNet as printed has robust validity {told:.3f}"
    if one.measured is None or one.spread is None:
        return statement, UNKNOWN, ""
    reach = sum(value >= told for value in one.by_seed)
    low, high = one.spread
    words = (
        f"{one.measured:.3f} over {len(one.seeds)} seeds, from {low:.3f} to {high:.3f}; "
        f"{reach} of them reach it"
    )
    return statement, "reproduced" if one.verdict == "reproduced" else "**not reproduced**", words


def gained(tables: Table, dataset: str) -> tuple[str, str, str]:
    """What the attack adds to CounterNet, in the paper and here."""
    printed = _record(tables, dataset, methods.PRINTED)
    plain = _record(tables, dataset, "counternet")
    assert printed.reported is not None
    assert plain.reported is not None
    told = printed.reported[0] - plain.reported[0]
    statement = f"{dataset}: the attack adds {told:+.3f} to CounterNet's robust validity"

    def verdict(low: float, high: float) -> str:
        return "reproduced" if low <= told <= high else "**not reproduced**"

    return statement, *_decided(differences(printed, plain), verdict)


def compared(
    tables: Table, dataset: str, group: str, beside: str, words: str
) -> tuple[str, str, str]:
    """Whether one row has another robust validity than a second, at equal epochs."""
    statement = f"{dataset}: {words[0].lower()}{words[1:]}"
    one = _record(tables, dataset, group)
    other = _record(tables, dataset, beside)
    return statement, *_decided(differences(one, other), _direction)


def _direction(low: float, high: float) -> str:
    if low > 0:
        return "more robust"
    return "less robust" if high < 0 else "not sure to"


def kept_in_range(tables: Table, dataset: str) -> tuple[str, str, str]:
    """What is left of the printed algorithm's robust validity inside the range of the data."""
    raw = _record(tables, dataset, methods.PRINTED)
    inside = _record(tables, dataset, methods.PRINTED, IN_RANGE)
    statement = f"{dataset}: answers as printed hold as often inside the range of the data"

    def verdict(low: float, high: float) -> str:
        return "**no**" if high < 0 else "no loss seen"

    return statement, *_decided(differences(inside, raw), verdict)


def _decided(values: list[float], verdict: Callable[[float, float], str]) -> tuple[str, str]:
    """The verdict on the interval of a mean, and the words for it."""
    if not values:
        return UNKNOWN, ""
    interval = interval_of(values)
    if interval is None:
        return "one seed", f"{values[0]:+.3f}"
    low, high = interval
    words = f"{fmean(values):+.3f} ({low:+.3f} to {high:+.3f}), {len(values)} seeds"
    return verdict(low, high), words


def differences(one: Record, other: Record) -> list[float]:
    """Of the seeds that both have."""
    mine = dict(zip(one.seeds, one.by_seed, strict=True))
    theirs = dict(zip(other.seeds, other.by_seed, strict=True))
    return [mine[seed] - theirs[seed] for seed in mine if seed in theirs]
