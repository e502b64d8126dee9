"""Retrained models led away from the model in use: judges that lie as far from it as models of new
data will.

With f the scores of the model in use, f_m those of a retrained model, and s how many times as far
it should lie, the score of the judge is

    f_m + (s - 1) (f_m - f*),        f* the surer of f and the mean of the f_m

which for f* = f is f + s (f_m - f). Retrained trees are smoother than the ones in use, so their
mean may be surer of a plan than the model itself; led away from f it would be surer still, only
because s is large. Scores are taken in the unit in which the noise of training adds up: logits or,
for models that count votes, such as forests, shares. See `next_training` for s.
"""

from dataclasses import replace

import torch
from torch import Tensor

from holdfast.models.base import Model
from holdfast.target import BoundTarget


def stretched_scores(
    own: Tensor, scores: Tensor, spread: float, goal: BoundTarget, *, shares: bool
) -> Tensor:
    """(M, n, k) scores of judges, from those of the model in use (n, k) and of retrained models (M,
    n, k).

    Args:
        goal: tells which is surer.
    """
    own = own.to(scores.dtype)
    if shares:
        own = torch.softmax(own, -1)
        scores = torch.softmax(scores, -1)
    middle = scores.mean(0)
    surer = _logits(own, shares=shares), _logits(middle, shares=shares)
    own_is_surer = goal.gap(surer[0]) >= goal.gap(surer[1])
    centre = torch.where(own_is_surer[:, None], own, middle)
    return _logits(scores + (spread - 1) * (scores - centre), shares=shares)


def _logits(values: Tensor, *, shares: bool) -> Tensor:
    return values.clamp_min(torch.finfo(values.dtype).tiny).log() if shares else values


def stretched_margins(own: Tensor, margins: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """(M, ..) margins of judges, from those of the model in use (..) and of retrained models (M,
    ..); and where the model in use is surer than their mean (..).

    Args:
        spread: (M,) how many times as far each should lie.
    """
    s = spread.to(margins.dtype).view(-1, *[1] * (margins.ndim - 1))
    own_is_surer = own >= middle_of(margins, spread)
    centre = torch.where(own_is_surer, own, middle_of(margins, spread))
    return margins + (s - 1) * (margins - centre), own_is_surer


def stretched_weights(
    own: Tensor, margins: Tensor, spread: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights (M, n) on the margins of judges -> weights on the margins of retrained models (M, n),
    and on that of the model in use (n,): the derivative of `stretched_margins`."""
    s = spread.to(weights.dtype)[:, None]
    own_is_surer = stretched_margins(own, margins, spread)[1]
    on_centre = -((s - 1) * weights).sum(0)  # (n,)
    led = (s != 1).to(weights.dtype)
    on_each = torch.where(own_is_surer, 0.0, on_centre / led.sum())
    return s * weights + led * on_each, torch.where(own_is_surer, on_centre, 0.0)


def middle_of(margins: Tensor, spread: Tensor) -> Tensor:
    """The mean margin of the models that are led away."""
    led = spread != 1
    return margins.mean(0) if bool(led.all()) else margins[led].mean(0)


def asked_of_stretched(
    goal: BoundTarget, around: Model, model: Model, spread: float
) -> BoundTarget:
    """What is asked of a judge: its threshold lies as far from the model in use's as its scores
    do."""
    pairs = zip(around.offset, model.offset, strict=False)
    offset = tuple(a + spread * (b - a) for a, b in pairs)
    return replace(goal.asked_of(model), offset=offset, defers_to_predict=False)
