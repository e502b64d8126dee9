"""What changes, one record per change: its values as in the table, and as people read them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.render.sentences import headings, moves

if TYPE_CHECKING:
    from holdfast.counterfactuals import Counterfactuals

WAYS = {1: "raised", -1: "lowered", 0: "switched"}


@dataclass(frozen=True)
class Change:
    """One feature that changes.

    Args:
        feature: its name in the table.
        before, after: its values in the table.
        label: the feature as people read it.
        was, becomes: the values as people read them, the latter with its unit.
        way: raised, lowered, switched.
    """

    feature: str
    before: Any
    after: Any
    label: str
    was: str
    becomes: str
    way: str


def changes_of(cfs: "Counterfactuals") -> list[tuple[Change, ...]]:
    """What each answer changes, largest first; nothing where there is no answer."""
    labels = dict(zip(cfs.schema.names, headings(cfs.schema.features), strict=True))
    sized = list[tuple[int, float, Change]]()
    for move in moves(cfs, cfs.answered):
        name = move.feature.name
        values = zip(
            move.rows.tolist(),
            move.size.tolist(),
            cfs.before[name].iloc[move.rows].tolist(),
            cfs.after[name].iloc[move.rows].tolist(),
            move.before,
            move.after,
            move.way.tolist(),
            strict=True,
        )
        for i, size, before, after, was, becomes, way in values:
            change = Change(
                name, before, after, labels[name], was, f"{becomes}{move.unit}", WAYS[way]
            )
            sized.append((i, -size, change))
    out: list[list[Change]] = [[] for _ in range(len(cfs))]
    for i, _, change in sorted(sized, key=lambda one: one[:2]):
        out[i].append(change)
    return [tuple(changes) for changes in out]


def changed_labels(cfs: "Counterfactuals", changes: Iterable[Sequence[Change]]) -> list[str]:
    """The features that any of these answers change, as people read them, in the schema's
    order."""
    used = {change.label for of_one in changes for change in of_one}
    return [label for label in headings(cfs.schema.features) if label in used]
