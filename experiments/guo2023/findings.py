"""What follows from the tables: the paper's claims about robust validity, and what decides them.

Differences are taken seed by seed, with a 95 % interval over seeds.
"""

from collections.abc import Iterator, Mapping
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
    gains = differences(printed, plain)
    if not gains:
        return statement, UNKNOWN, ""
    interval = interval_of(gains)
    if interval is None:
        return statement, "one seed", f"{gains[0]:+.3f}"
    inside = interval[0] <= told <= interval[1]
    return statement, "reproduced" if inside else "**not reproduced**", _of(gains, interval)


def compared(
    tables: Table, dataset: str, group: str, beside: str, words: str
) -> tuple[str, str, str]:
    """Whether one row has another robust validity than a second, at equal epochs."""
    statement = f"{dataset}: {words[0].lower()}{words[1:]}"
    gains = differences(_record(tables, dataset, group), _record(tables, dataset, beside))
    if not gains:
        return statement, UNKNOWN, ""
    interval = interval_of(gains)
    if interval is None:
        return statement, "one seed", f"{gains[0]:+.3f}"
    if interval[0] > 0:
        verdict = "more robust"
    elif interval[1] < 0:
        verdict = "less robust"
    else:
        verdict = "not sure to"
    return statement, verdict, _of(gains, interval)


def kept_in_range(tables: Table, dataset: str) -> tuple[str, str, str]:
    """What is left of the printed algorithm's robust validity inside the range of the data."""
    raw = _record(tables, dataset, methods.PRINTED)
    inside = _record(tables, dataset, methods.PRINTED, IN_RANGE)
    statement = f"{dataset}: answers as printed hold as often inside the range of the data"
    losses = differences(inside, raw)
    if not losses:
        return statement, UNKNOWN, ""
    interval = interval_of(losses)
    if interval is None:
        return statement, "one seed", f"{losses[0]:+.3f}"
    return statement, "**no**" if interval[1] < 0 else "no loss seen", _of(losses, interval)


def differences(one: Record, other: Record) -> list[float]:
    """Of the seeds that both have."""
    mine = dict(zip(one.seeds, one.by_seed, strict=True))
    theirs = dict(zip(other.seeds, other.by_seed, strict=True))
    return [mine[seed] - theirs[seed] for seed in mine if seed in theirs]


def _of(values: list[float], interval: tuple[float, float]) -> str:
    return f"{fmean(values):+.3f} ({interval[0]:+.3f} to {interval[1]:+.3f}), {len(values)} seeds"
