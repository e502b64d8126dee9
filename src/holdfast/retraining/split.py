"""Disjoint parts of a bank: the models that guide a search, those that calibrate it, and those that
audit its answers."""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from holdfast._core.checks import did_you_mean, require_integer
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from holdfast.retraining.bank import ModelBank
    from holdfast.retraining.model_group import ModelGroup

Counts = int | Mapping[str, int]  # this many models of every family, or of each by name


class BankSplit(NamedTuple):
    """Parts of one bank that share no model; a part for which no model was asked is an empty
    bank.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> recipe = hf.Recipe(hidden=(8,), epochs=2)
    >>> bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families={"retrain": 6})
    >>> parts = bank.split(guide=3, audit=2)
    >>> len(parts.guide), len(parts.calibration), len(parts.audit)
    (3, 0, 2)
    """

    guide: "ModelBank"
    calibration: "ModelBank"
    audit: "ModelBank"


def in_turn(groups: Sequence["ModelGroup"]) -> dict[str, list[int]]:
    """The positions of every family's models; several architectures take turns, so a part of the
    family has some of each."""
    by_family = dict[str, list[range]]()
    first = 0
    for group in groups:
        by_family.setdefault(group.family, []).append(range(first, first + len(group)))
        first += len(group)
    return {
        name: [i for i in chain.from_iterable(zip_longest(*places)) if i is not None]
        for name, places in by_family.items()
    }


def disjoint(bank: "ModelBank", wanted: Mapping[str, Counts]) -> list[list[int]]:
    """Positions of the models of each part, by the part's name: the first ones for the first part,
    and so on. A model made from the same as another counts as that one, and goes nowhere."""
    places = in_turn(bank.groups)
    origins = bank.origins()
    asked = {part: _counts(part, counts, list(places)) for part, counts in wanted.items()}
    if not any(any(counts.values()) for counts in asked.values()):
        raise SettingError("a split needs at least one model in some part")
    # the first model of each origin
    once = {origin: i for i, origin in reversed(list(enumerate(origins)))}
    left = {name: [i for i in some if once[origins[i]] == i] for name, some in places.items()}
    for name, different in left.items():
        needed = {part: counts[name] for part, counts in asked.items() if counts[name]}
        if sum(needed.values()) > len(different):
            words = ", ".join(f"{count} for {part}" for part, count in needed.items())
            what = (
                f"the bank has {len(different)} different models of the family {name!r}, the "
                "split needs"
            )
            fix = f"retrain it with families={{{name!r}: {sum(needed.values())}}}"
            raise SettingError(f"{what} {sum(needed.values())} ({words}); {fix}, or ask for fewer")
    parts = list[list[int]]()
    for counts in asked.values():
        parts.append(sorted(i for name, count in counts.items() for i in left[name][:count]))
        left = {name: some[counts[name] :] for name, some in left.items()}
    return parts


def _counts(part: str, counts: Counts, families: Sequence[str]) -> dict[str, int]:
    """How many models of every family a part asks for."""
    if not isinstance(counts, Mapping):
        require_integer(part, counts, 0)
        return dict.fromkeys(families, int(counts))
    for name, count in counts.items():
        if name not in families:
            raise SettingError(
                f"{part}: the bank has no family {name!r}; {did_you_mean(name, families)}"
            )
        require_integer(f"{part}[{name!r}]", count, 0)
    return {name: int(counts.get(name, 0)) for name in families}
