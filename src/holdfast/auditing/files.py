"""Audits as Parquet files: those of the answers, with the verdicts beside them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from holdfast import counterfactuals
from holdfast._core.checks import untyped
from holdfast._core.parquet import content_of, write_sealed
from holdfast.auditing.verdicts import Array, Rule, asked
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import FileError

if TYPE_CHECKING:
    from holdfast.auditing.audit import Audit

# the column and the metadata of a Parquet file
HELD = "holdfast:held"
MARK = b"holdfast-audit"


def facts_of(audit: "Audit") -> dict[str, Any]:
    """Everything but the answers and the verdicts, as plain values."""
    repeats = [] if audit.repeats is None else np.flatnonzero(audit.repeats).tolist()
    return {
        "family": audit.family.tolist(),
        "bank": audit.bank,
        "rule": audit.rule,
        "repeats": repeats,
        "spread": audit.spread,
    }


def arguments_of(cfs: Counterfactuals, verdicts: Array, facts: dict[str, Any]) -> tuple[Any, ...]:
    """What an `Audit` is made from, by a column of a file (n M,) and what `facts_of` gave; an error
    of any kind where they do not fit."""
    family = np.array(facts["family"])
    rule = cast(Rule, facts["rule"])
    asked(cfs, rule)
    repeats = np.zeros(len(family), dtype=bool)
    repeats[np.array(facts["repeats"], dtype=np.int64)] = True
    held = verdicts.reshape(len(cfs), len(family)).T
    return cfs, held, family, str(facts["bank"]), rule, repeats, float(facts["spread"])


def write(
    path: Path,
    audit: "Audit",
    verdicts: Mapping[str, Array] | None = None,
    contents: Mapping[bytes, Any] | None = None,
) -> None:
    """Write an audit, and more about its answers, as one Parquet file.

    Args:
        verdicts: of other models, (M, n) each, by the name of the column.
        contents: plain values, by the name of the entry in the metadata.
    """
    pa = untyped("pyarrow")
    lists: dict[str, Array] = {HELD: audit.held, **(verdicts or {})}
    try:
        table, content = audit.cfs.to_arrow()
        for name, held in lists.items():
            by_answer = pa.FixedSizeListArray.from_arrays(pa.array(held.T.ravel()), len(held))
            table = table.append_column(name, by_answer)
    except Exception as error:  # a column of Parquet holds one type
        raise FileError(f"cannot write {str(path)!r}: {error}; try a .json file") from None
    marked = {counterfactuals.MARK: content, MARK: facts_of(audit)}
    write_sealed(path, table, {**marked, **(contents or {})})


def arguments_in(table: Any) -> tuple[Any, ...]:
    """What an `Audit` is made from, by an Arrow table as `read_sealed` gives it; an error of any
    kind where its parts do not fit together."""
    cfs = Counterfactuals.from_arrow(table)
    return arguments_of(cfs, column(table, HELD), content_of(table, MARK))


def column(table: Any, name: str) -> Array:
    """(n M,) the verdicts of an Arrow table, answer by answer."""
    flat = table[name].combine_chunks().flatten()
    return np.array(flat.to_numpy(zero_copy_only=False), dtype=bool)


def known_ending(path: Path, endings: Sequence[str]) -> str:
    """The ending of a file to write, or an error that names those that can be written."""
    ending = path.suffix.lower()
    if ending not in endings:
        raise FileError(
            f"cannot write {str(path)!r}: the extension must be one of {', '.join(endings)}"
        )
    return ending
