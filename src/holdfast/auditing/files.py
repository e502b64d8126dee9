"""Audits as Parquet files: those of the answers, with the verdicts beside them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from holdfast._core.checks import untyped
from holdfast.auditing.verdicts import Array, Rule, asked
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import FileError

if TYPE_CHECKING:
    from holdfast.auditing.audit import Audit

Made = TypeVar("Made")


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


def add_column(path: Path, name: str, held: Array) -> None:
    """Write verdicts (M, n) beside the answers of a Parquet file, as a list for each answer."""
    pa = untyped("pyarrow")
    table: Any = untyped("pyarrow.parquet").read_table(path)
    by_answer = pa.FixedSizeListArray.from_arrays(pa.array(held.T.ravel()), len(held))
    untyped("pyarrow.parquet").write_table(table.append_column(name, by_answer), path)


def column(path: str | Path, name: str) -> Array:
    """(n M,) the verdicts of a file, answer by answer."""
    table: Any = untyped("pyarrow.parquet").read_table(path, columns=[name])
    flat = table[name].combine_chunks().flatten()
    return np.array(flat.to_numpy(zero_copy_only=False), dtype=bool)


def add_metadata(path: Path, mark: bytes, content: dict[str, Any]) -> None:
    """Write plain values into the metadata of a Parquet file."""
    parquet = untyped("pyarrow.parquet")
    table: Any = parquet.read_table(path)
    metadata = {**table.schema.metadata, mark: json.dumps(content).encode()}
    parquet.write_table(table.replace_schema_metadata(metadata), path)


def read_metadata(
    path: str | Path, mark: bytes, otherwise: str, build: Callable[[dict[str, Any]], Made]
) -> Made:
    """What `build` makes of the plain values that `add_metadata` wrote.

    Args:
        otherwise: what the file holds where nothing was written, for the error.
    """
    metadata: Any = untyped("pyarrow.parquet").read_schema(path).metadata or {}
    if mark not in metadata:
        raise FileError(f"{str(path)!r} holds {otherwise}")
    try:
        return build(json.loads(metadata[mark]))
    except Exception as error:  # the file may say anything
        raise FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})") from None


def known_ending(path: Path, endings: Sequence[str]) -> str:
    """The ending of a file to write, or an error that names those that can be written."""
    ending = path.suffix.lower()
    if ending not in endings:
        raise FileError(
            f"cannot write {str(path)!r}: the extension must be one of {', '.join(endings)}"
        )
    return ending
