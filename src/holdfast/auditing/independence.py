"""Which models of a bank may judge: none that guided the search, and each only once.

Models are compared by what they compute. A copy is a model that gives the same scores as another,
on the audited rows and on rows spread over the data's range, and learnt from the same rows: a
thousand seeds of an estimator that ignores its seed are one model. Models that learnt from other
rows are draws of their own even where they come out the same, as trees often do when one row is
left out: counting those once would give rare models too much weight. A model that comes out the
same as the one that the answers were made for is such a draw, too.
"""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import SettingError
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.families import FAMILIES
from holdfast.retraining.model_group import ModelGroup, sample_of, signature

Array = np.ndarray[Any, Any]

# How near the scores of two models on the probe rows must be to count as one model, relative to
# their size: a guide may have been made again elsewhere, from a recipe that is spelt differently.
SAME = 1e-4
EXACTLY = 1e-9  # the same for copies: models that differ at all must not count as one
FIRST_LOOK = 16  # scores to compare first, which tell most models apart
PROBES = 256  # rows spread over the data's range
MOSTLY = 0.9  # above this share of one model, a family makes nothing but copies


def refuse_guides(cfs: Counterfactuals, bank: ModelBank) -> None:
    """An error if a model of the bank guided the search: it was made from the same, or it gives the
    same scores."""
    origins = bank.origins()
    seen = np.isin(origins, list(cfs.run.guided_by))
    rows_of_guides = {sample_of(origin) for origin in cfs.run.guided_by}
    known = "" not in rows_of_guides
    other_rows = [
        bool(rows) and known and rows not in rows_of_guides for rows in map(sample_of, origins)
    ]
    if cfs.run.signatures and not all(other_rows):
        scores = bank.signatures().numpy()
        guides = np.array(cfs.run.signatures)
        apart = np.abs(scores[:, None] - guides).max(2) / (1 + np.abs(guides).max(1))  # (M, guides)
        seen |= (apart < SAME).any(1) & ~np.array(other_rows)
    if seen.any():
        raise SettingError(
            f"{int(seen.sum())} of the bank's {len(bank)} models guided the search for these "
            "answers, so they cannot certify them; retrain a bank with another seed for the audit"
        )


def counted(bank: ModelBank, scores: Tensor) -> tuple[Array, Array]:
    """(M,) which models judge, and which of them repeat another one; an error where a family makes
    nothing but copies.

    A copy, by what it was made from, does not judge again. Of models made elsewhere nobody knows
    whether they are one model or several that came out the same: a repeated refusal counts, a
    repeated acceptance does not.

    Args:
        scores: (M, n, k) what the models give to audited rows.
    """
    first = originals(bank, scores)
    start = 0
    for group in bank.groups:
        most = int(np.unique(first[start : start + len(group)], return_counts=True)[1].max())
        if len(group) > 1 and most > MOSTLY * len(group):
            raise SettingError(_makes_copies(group, most))
        start += len(group)
    repeats = first != np.arange(len(bank))
    unknown = np.array([not rows for rows in bank.samples()])
    kept = ~repeats | unknown
    if not kept.all():
        warnings.warn(
            f"{int((~kept).sum())} models of the bank are copies of others and do not count",
            stacklevel=4,
        )
    if (repeats & kept).any():
        count = int((repeats & kept).sum())
        warnings.warn(
            f"{count} models compute the same as others, and nothing says that they were trained "
            "separately: their refusals count, their acceptance does not count again",
            stacklevel=4,
        )
    return kept, repeats[kept]


def originals(bank: ModelBank, scores: Tensor) -> Array:
    """(M,) the first model of the bank that each is a copy of; its own place if it copies none."""
    seen = signature(scores)
    places = np.arange(len(bank))
    made = np.array(
        [origin for group in bank.groups for origin in _known_origins(group)], dtype=object
    )
    rows = np.array(bank.samples(), dtype=object)
    same_rows = (rows[:, None] == rows) | (rows == "") | (rows == "")[:, None]
    alike = _near(seen[:, :: max(1, seen.shape[1] // FIRST_LOOK)]) & same_rows
    if (alike & (places[:, None] != places)).any():
        probes = signature(bank.scores(bank.schema.probes(PROBES)))
        alike &= _near(torch.cat([seen, probes], 1))
    alike |= (made[:, None] == made) & (made != "")
    return alike.argmax(1)


def _near(values: Tensor) -> Array:
    """(M, s) -> (M, M) which pairs are the same but for rounding."""
    if not values.shape[1]:
        return np.ones((len(values), len(values)), dtype=bool)
    return (torch.cdist(values, values, p=torch.inf) <= EXACTLY * values.abs().amax(1)).numpy()


def _known_origins(group: ModelGroup) -> list[str]:
    """What each model was made from, or its very weights; '' of estimators of which that is not
    known."""
    is_known = bool(group.origins) or group.networks is not None
    return [group.origin(i) if is_known else "" for i in range(len(group))]


def _makes_copies(group: ModelGroup, most: int) -> str:
    why = "what it varies makes no difference to them"
    if group.estimators and group.family.startswith("seed"):
        why = f"{group.estimators[0].name} does not use its random_state"
    fix = "use 'retrain' or 'bootstrap'" if group.family in FAMILIES else "keep one of them"
    what = f"{'all' if most == len(group) else most} of its {len(group)} models compute the same"
    return f"family {group.family!r} makes copies: {what}, as {why}; {fix}"
