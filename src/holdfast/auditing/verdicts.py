"""Which model accepts which answer: every answer of any method before every model of a bank."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast._core.progress import Progress
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import SettingError
from holdfast.models.base import Model, ModelLike
from holdfast.retraining.bank import ModelBank
from holdfast.target import BoundTarget

Array = np.ndarray[Any, Any]
Rule = Literal["target", "class"]
RULES: tuple[Rule, ...] = ("target", "class")
COMPARED = 256  # audited rows by which models are told apart, if there are more


def existing(
    cfs: Counterfactuals, models: Model | ModelLike | Sequence[Model | ModelLike]
) -> ModelBank:
    """A bank of models that exist."""
    return ModelBank.of(models, family="release", schema=cfs.schema, classes=cfs.classes or None)


def verdicts(cfs: Counterfactuals, bank: ModelBank, bar: Progress, rule: Rule = "target") -> Array:
    """(M, n) does model m give answer i the wanted outcome? The bar moves by one per group."""
    return verdicts_and_scores(cfs, bank, asked(cfs, rule), bar)[0][0]


def verdicts_and_scores(
    cfs: Counterfactuals,
    bank: ModelBank,
    goal: BoundTarget,
    bar: Progress,
    spreads: Sequence[float | None] = (None,),
) -> tuple[Array, Tensor]:
    """(S, M, n) the same at several distances from the model in use, the bank's own where a spread
    is None; and what the models give to some of the answers (M, s, k)."""
    met = list[Array]()
    compared = list[Tensor]()
    x = {cfs.x_cf.dtype: cfs.x_cf}
    in_use = None if bank.around is None else scores_in_use(bank.around, cfs)
    rows = torch.linspace(0, max(len(cfs) - 1, 0), min(len(cfs), COMPARED)).long()
    for group in bank.groups:
        if group.dtype not in x:
            x[group.dtype] = cfs.schema.encode(cfs.after, group.dtype)
        scores = group.scores(cfs.after, x[group.dtype])  # (M, n, k)
        places = [group if s is None else replace(group, spread=s) for s in spreads]
        met.append(np.stack([p.met(goal, scores, bank.around, in_use).numpy() for p in places]))
        compared.append(scores[:, rows].double())
        bar.step(1)
    return np.concatenate(met, 1), torch.cat(compared)


def scores_in_use(model: Model, cfs: Counterfactuals) -> Tensor:
    """(n, k) what the model in use gives to the answers, by which stretched judges are set
    apart."""
    with model.eval_mode():
        return model.score_frame(cfs.after)


def asked(cfs: Counterfactuals, rule: Rule) -> BoundTarget:
    """What answers are judged by."""
    if rule not in RULES:
        raise SettingError(f"rule must be 'target' or 'class', got {rule!r}")
    if rule == "target":
        return cfs.goal
    if cfs.is_regression:
        raise SettingError(
            "rule='class' is about classes, and a regression model has none; without rule=, "
            "the range that was asked for decides"
        )
    return cfs.goal.by_class()


def by_row(cfs: Counterfactuals, answers: Array) -> Array:
    """(.., n) flags of answers -> (.., rows): is it so for any answer of the row?"""
    if not len(cfs):
        return answers
    order = np.argsort(cfs.source, kind="stable")
    first = np.unique(cfs.source[order], return_index=True)[1]
    return np.logical_or.reduceat(answers[..., order], first, axis=-1)
