"""One person's plan: the record from which tables, pages, letters and JSON are made."""

import hashlib
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from holdfast.auditing import certificates
from holdfast.render.changes import Change, changes_of
from holdfast.render.charts.theme import row_names
from holdfast.render.html import places
from holdfast.render.sentences import sentences
from holdfast.target import Status

if TYPE_CHECKING:
    from holdfast.counterfactuals import Counterfactuals
    from holdfast.plans.plans import Plans

# None: too few models for any certificate
CERTIFIED = {True: "certified", False: "not certified", None: ""}
BLOCK = 1000  # plans that are made at once


@dataclass(frozen=True)
class Plan:
    """What one person is told, and what is known of it.

    Args:
        id: a short hash of the person's row and key, the plan, the target and the model: the same
            plan has it whenever and by whomever it is judged.
        subject: the key of the person's row in the table, as it is.
        before, after: the row as it is, and the row to hand in.
        changes: what changes, largest first.
        sentence: the same in words.
        cost: of all changes, 0 where nothing has to change; None where there is no plan.
        accepted: how many judges accept it; None where there is no plan.
        judges: how many there are.
        bound: the share of all such models that accept it, at least, with the asked confidence;
            None where there is no plan.
        certified: is that as much as was asked for? None: there are too few judges to say.
        status: found, already met, not found, fragile or impossible.
        reason: why, where it is not found.
        model, bank: fingerprints of the model in use and of the judges.
        number, several: which of how many plans of the person it is.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recourse = hf.Recourse(hf.Recipe(hidden=(), epochs=20, lr=0.1), data.X, data.y)
    >>> refused = data.X[recourse.model.predict(data.X) == "no"].head(5)
    >>> plan = next(iter(recourse.plans(refused, "yes")))
    >>> plan.subject in refused.index, plan.status, plan.certified
    (True, 'found', True)
    """

    id: str
    subject: Hashable
    before: dict[str, Any]
    after: dict[str, Any]
    changes: tuple[Change, ...]
    sentence: str
    cost: float | None
    accepted: int | None
    judges: int
    bound: float | None
    certified: bool | None
    status: str
    reason: str
    model: str
    bank: str
    number: int = 1
    several: int = 1

    @property
    def name(self) -> str:
        """The person, for people."""
        return row_names(pd.Index([self.subject], tupleize_cols=isinstance(self.subject, tuple)))[0]

    @property
    def survival(self) -> float | None:
        """The share of the judges that accept it."""
        return None if self.accepted is None else self.accepted / self.judges

    @property
    def holds_on(self) -> str:
        """'99 of 101'; '' where there is no plan."""
        return "" if self.accepted is None else certificates.holds_on(self.accepted, self.judges)

    @property
    def bound_in_words(self) -> str:
        """'at least 95.4%', by the bound; '' where there is no plan."""
        return "" if self.bound is None else f"at least {certificates.rounded_down(self.bound)}"

    @property
    def verdict(self) -> str:
        """Whether it is certified, in words; '' where nobody can say or there is no plan."""
        return "" if self.accepted is None else CERTIFIED[self.certified]

    @property
    def place(self) -> str:
        """'2 of 3' where a person has several plans, else ''."""
        return f"{self.number} of {self.several}" if self.several > 1 else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON knows: what is missing or infinite is None, and dates are
        strings."""
        return {
            "id": self.id,
            "subject": plain(self.subject),
            "plan": self.sentence,
            "changes": [
                {"feature": one.feature, "before": plain(one.before), "after": plain(one.after)}
                for one in self.changes
            ],
            "before": {name: plain(value) for name, value in self.before.items()},
            "after": {name: plain(value) for name, value in self.after.items()},
            "cost": self.cost,
            "accepted": self.accepted,
            "judges": self.judges,
            "survival": self.survival,
            "bound": self.bound,
            "certified": self.certified,
            "status": self.status,
            "reason": self.reason,
            "model": self.model,
            "bank": self.bank,
            "number": self.number,
            "several": self.several,
        }


@dataclass(frozen=True)
class PlanColumns:
    """What records and tables of n plans are made from, column by column: tables of many people
    take no loop over them."""

    sentence: list[str]
    cost: npt.NDArray[np.floating[Any]]  # nan where there is no plan
    accepted: npt.NDArray[np.int64]
    bound: npt.NDArray[np.floating[Any]]
    certified: Sequence[bool | None]
    status: list[str]
    answered: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, plans: "Plans") -> "PlanColumns":
        cfs = plans.cfs
        certified: Sequence[bool | None] = [None] * len(cfs)
        if not plans.too_few():
            certified = plans.certified.tolist()
        return cls(
            sentence=sentences(cfs).tolist(),
            cost=cfs.cost("weighted").to_numpy(),
            accepted=plans.audit.held.sum(0),
            bound=plans.bound.to_numpy(),
            certified=certified,
            status=[Status(int(code)).words for code in cfs.status_codes],
            answered=cfs.answered,
        )

    def table(self, judges: int, index: pd.Index) -> pd.DataFrame:
        """One line per plan."""
        held = [certificates.holds_on(k, judges) for k in self.accepted.tolist()]
        survival = self.accepted / judges
        columns = {
            "plan": self.sentence,
            "cost": self.cost,
            "holds_on": np.where(self.answered, held, ""),
            "survival": np.where(self.answered, survival, np.nan),
            "bound": self.bound,
            "certified": pd.Series(
                list(self.certified), index, dtype=object if None in self.certified else bool
            ),
            "status": self.status,
        }
        return pd.DataFrame(columns, index)


def each_plan(plans: "Plans") -> Iterator[Plan]:
    """All plans as records, which are made as they are asked for."""
    for first in range(0, len(plans), BLOCK):
        yield from plans_at(plans, np.arange(first, min(first + BLOCK, len(plans))))


def plans_at(plans: "Plans", rows: npt.NDArray[np.int64]) -> list[Plan]:
    """The plans of these positions as records, all of them made column by column."""
    some = plans[rows]
    cfs = some.cfs
    columns = PlanColumns.of(some)
    number, several = places(plans.cfs)
    known: dict[str, Any] = {"judges": len(some.audit.held), "model": cfs.run.model}
    known["bank"] = some.audit.bank
    facts: dict[str, Sequence[Any]] = {
        "id": _ids(cfs),
        "subject": cfs.after.index.tolist(),
        "before": _rows(cfs.before),
        "after": _rows(cfs.after),
        "changes": changes_of(cfs),
        "sentence": columns.sentence,
        "cost": _where(~np.isnan(columns.cost), columns.cost),
        "accepted": _where(columns.answered, columns.accepted),
        "bound": _where(columns.answered, columns.bound),
        "certified": columns.certified,
        "status": columns.status,
        "reason": cfs.reasons,
        "number": number[rows].tolist(),
        "several": several[rows].tolist(),
    }
    lines = zip(*facts.values(), strict=True)
    return [Plan(**known, **dict(zip(facts, line, strict=True))) for line in lines]


def _where(there: npt.NDArray[np.bool_], values: npt.NDArray[Any]) -> list[Any]:
    """Values as plain ones, None where there is none."""
    pairs = zip(there.tolist(), values.tolist(), strict=True)
    return [value if known else None for known, value in pairs]


def _ids(cfs: "Counterfactuals") -> list[str]:
    """A short hash of each plan: not of who judges it, so that it stays when others look again."""
    before = pd.util.hash_pandas_object(cfs.before, index=True).tolist()
    after = pd.util.hash_pandas_object(cfs.after, index=False).tolist()
    start = f"{cfs.run.model} {cfs.run.target}"
    texts = [f"{start} {a:016x} {b:016x}" for a, b in zip(before, after, strict=True)]
    return [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows by the names of their columns."""
    names = [str(name) for name in table.columns]
    columns = [table[name].tolist() for name in table.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if isinstance(value, tuple):
        return [plain(part) for part in cast(tuple[Any, ...], value)]
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool) else _written(value)


def _written(value: Any) -> str:
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)
