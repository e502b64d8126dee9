"""Are the retrained models of a bank those of the model in use?

A certificate is about what the model in use becomes when it is trained again. Retrained models can
say that only where they are made as it was: by the same settings, from the same rows, with the same
weights. Made again on the very rows in use, with other seeds, a model is one of a kind with the one
in use. So a few are made (`seed_and_order`), and with p_m(x) the probabilities that model m gives
to a training row x, and sd(x) how far bootstraps lie apart,

    d(f) = rms_x( p_f(x) - mean_m p_m(x) ) / rms_x sd(x)

must be for the model in use about what it is for each of those made again, compared with the
others. Where it is larger, the bank is of another model. Of a bank that is ready-made it is not
known how to make models again: the model in use must then lie no further from the middle of the
bank than every one of its own models does.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast.models.base import Model
from holdfast.retraining.bank import ModelBank

AGAIN = 16  # models that are made again on the same rows
DRAWN_AGAIN = 32  # models of rows drawn again, where judges are of another kind
ROWS = 500  # training rows by which models are compared
# How far the model may lie from those made again: so much more than they lie from one another, in
# units of how far bootstraps lie apart.
FACTOR = 1.5
TOLERANCE = 0.35
SHIFT = 4.0  # deviations of the mean prediction from which on rows must have counted differently
KNOWS_LESS = 0.1  # a share of outcomes that the model predicts worse than models made again


@dataclass(frozen=True)
class Likeness:
    """How near the model in use is to models made again, and what that means.

    Args:
        distance: of the model in use from the models made again, in units of how far bootstraps lie
            apart.
        among: the largest such distance of one of these from the others.
        agreement: the share of training rows to which model and bank give the same outcome, in the
            mean over the bank.
        among_bank: the same share of two models of the bank.
        accepted_as_they_are: of the people that the model refuses, the share that models of the
            bank accept as they are; nan where nobody is refused.
        cause: why the model is another one, likely; '' where it is like them.
        made_again: whether models were made again to compare with; else the bank's own models take
            their place.
    """

    distance: float
    among: float
    agreement: float
    among_bank: float
    accepted_as_they_are: float
    cause: str = ""
    made_again: bool = True

    @property
    def limit(self) -> float:
        """The largest distance at which they are models of one kind."""
        return FACTOR * self.among + TOLERANCE if self.made_again else self.among

    @property
    def alike(self) -> bool:
        """Are they models of one kind?"""
        return self.distance <= self.limit

    def words(self) -> str:
        """Why nothing can be certified; '' where it can."""
        if self.alike:
            return ""
        others = (
            "trained again on the same rows a model lies"
            if self.made_again
            else "their middle lies"
        )
        return (
            "the retrained models were not made as the model in use was: they agree with it on "
            f"{self.agreement:.0%} of the training rows, and with one another on "
            f"{self.among_bank:.0%}; {others} {self.distance:.2g} deviations of retraining away "
            f"from it ({self.limit:.2g} is the limit). {self.cause}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def likeness(
    model: Model,
    bank: ModelBank,
    again: ModelBank | None,
    X: pd.DataFrame,
    y: "pd.Series[Any] | None",
) -> Likeness:
    """Compare the model in use with retrained models.

    Args:
        bank: bootstraps, by which it is known how far retrained models lie apart.
        again: models made again on the same rows, with other seeds; None where it is not known how
            to make them.
        X, y: the rows that they were trained on, and the outcomes in the names of the model's
            classes, if known.
    """
    rows = np.linspace(0, len(X) - 1, min(ROWS, len(X))).astype(int)
    table = X.iloc[rows]
    with model.eval_mode():
        in_use = estimates(model.score_frame(table)[None])[0]
    retrained = estimates(bank.scores(table))
    others = retrained if again is None else estimates(again.scores(table))
    spread = float(retrained.var(0).mean().sqrt().clamp_min(1e-9))
    distance = _rms(in_use - others.mean(0)) / spread
    without_each = (others.sum(0) - others) / (len(others) - 1)
    among = max(_rms(gap) / spread for gap in others - without_each)
    agreement = _agreement(in_use, retrained, model.is_regression)
    found = Likeness(distance, among, *agreement, made_again=again is not None)
    if found.alike:
        return found
    shift = float(in_use.mean(0).sub(retrained.mean((0, 1))).abs().max())
    usual_shift = float(retrained.mean(1).std(0).max().clamp_min(1e-9))
    knows_less = 0.0 if y is None else _knows_less(in_use, others, y.iloc[rows], model)
    cause = cause_of(shift / usual_shift, knows_less, is_regression=model.is_regression)
    return replace(found, cause=cause)


def _knows_less(in_use: Tensor, others: Tensor, y: "pd.Series[Any]", model: Model) -> float:
    """By how much the others know outcomes better than the model in use."""
    by_others = [_predicted(one, y, model) for one in others]
    return float(np.mean(by_others)) - _predicted(in_use, y, model)


def estimates(scores: Tensor) -> Tensor:
    """(M, n, k) scores -> probabilities; of a regression the numbers themselves."""
    scores = scores.detach().double()
    return torch.softmax(scores, -1) if scores.shape[-1] > 1 else scores


def cause_of(shift: float, knows_less: float, *, is_regression: bool) -> str:
    """What probably made the model a different one, and what to pass."""
    if knows_less > KNOWS_LESS:
        return (
            "It does not know these outcomes as models trained on them do: were X and y its "
            "training rows, in the same order, and nothing of y among its columns?"
        )
    if not is_regression and shift > SHIFT:
        return (
            "Its predictions are shifted as a whole, as by row weights or a balance of "
            "classes: pass sample_weight= or fit_params= to Banks, as they were given to fit."
        )
    return (
        "Other settings, steps or rows may be the reason: pass recipe= or fit= to Banks to say how "
        "it was trained, and X and y that it was trained on."
    )


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _agreement(
    in_use: Tensor, retrained: Tensor, is_regression: bool
) -> tuple[float, float, float]:
    """Agreement with the bank, agreement in the bank, and how many refused people the bank accepts
    as they are."""
    if is_regression:
        return float("nan"), float("nan"), float("nan")
    predicted = in_use.argmax(-1)
    by_bank = retrained.argmax(-1)
    same = float((by_bank == predicted).double().mean())
    votes = torch.nn.functional.one_hot(by_bank, in_use.shape[-1]).double().sum(0)  # (n, k)
    m = len(by_bank)
    pairs = float(((votes * (votes - 1)).sum(-1) / (m * (m - 1))).mean()) if m > 1 else 1.0
    changed = (by_bank != predicted).double().mean(0)
    rare = predicted != int(torch.mode(predicted).values)
    return same, pairs, float(changed[rare].mean()) if bool(rare.any()) else float("nan")


def _predicted(estimate: Tensor, outcomes: "pd.Series[Any]", model: Model) -> float:
    """The share of outcomes that are predicted; of a regression, the share of their variance that
    is explained."""
    if model.is_regression:
        seen = torch.tensor(outcomes.to_numpy(dtype=np.float64))
        return float(1 - (estimate.squeeze(-1) - seen).square().mean() / seen.var().clamp_min(1e-9))
    place = {name: i for i, name in enumerate(model.classes)}
    seen = torch.tensor([place[v] for v in outcomes])
    return float((estimate.argmax(-1) == seen).double().mean())
