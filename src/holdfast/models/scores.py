"""What models return as scores, and the predicted class: how far it leads, and its probability
before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Outputs = Literal["logits", "probabilities", "value"]
OUTPUTS: tuple[Outputs, ...] = ("logits", "probabilities", "value")
Inputs = Literal["frame", "encoded"]
# How far ahead a predicted class is put, relative to the scores: hardly at all; for searches, by
# more than they must spare.
HARDLY = 1e-9
CLEARLY = 1e-4


@dataclass(frozen=True)
class Conversion:
    """Was a model compiled into an equivalent scorer of encoded rows? `text` says into which, or
    why not."""

    exact: bool
    text: str

    def __bool__(self) -> bool:
        return self.exact

    def __str__(self) -> str:
        return self.text


def to_scores(raw: Tensor, outputs: Outputs) -> Tensor:
    """What a model returns -> logits (n, k) with k >= 2, or estimates (n, 1)."""
    raw = raw[:, None] if raw.ndim == 1 else raw
    if outputs == "value":
        return raw
    if outputs == "probabilities":
        p = raw
        tiny = torch.finfo(raw.dtype).tiny
        raw = p.clamp_min(tiny).log()
        raw = raw - (1 - p).clamp_min(tiny).log() if p.shape[1] == 1 else raw
    return torch.cat([torch.zeros_like(raw), raw], 1) if raw.shape[1] == 1 else raw


def looks_like_probabilities(raw: Tensor) -> bool:
    """All between 0 and 1, with rows that add up to 1 (a single column cannot be told from logits
    in that range)."""
    inside = bool(((raw >= 0) & (raw <= 1)).all())
    return (
        inside
        and raw.ndim == 2
        and raw.shape[1] > 1
        and bool(((raw.sum(1) - 1).abs() < 1e-4).all())
    )


def lead(scores: Tensor, labels: Tensor) -> Tensor:
    """(n,) how far the score of each row's label is ahead of the best other one."""
    own = torch.nn.functional.one_hot(labels, scores.shape[1]) > 0
    return scores[own] - scores.masked_fill(own, -torch.inf).amax(1)


def decided(scores: Tensor, labels: Tensor, by: float = HARDLY) -> Tensor:
    """The scores (n, k) with the predicted class (n,) in front: if another one leads, or is level,
    it is put just ahead."""
    best = scores.amax(1)
    own = scores.gather(1, labels[:, None]).squeeze(1)
    front = torch.where(lead(scores, labels) > 0, own, best + by * best.abs().clamp_min(1.0))
    return scores.scatter(1, labels[:, None], front[:, None])


def undecided(scores: Tensor) -> Tensor:
    """log p (n, k) as they were before the predicted class was put ahead: it has what the others
    leave."""
    first = scores.argmax(1, keepdim=True)
    others = scores.exp().scatter(1, first, 0.0).sum(1, keepdim=True)
    return scores.scatter(1, first, (1 - others).clamp_min(torch.finfo(scores.dtype).tiny).log())


def probabilities(
    scores: Tensor, offset: Sequence[float], *, defers_to_predict: bool = False
) -> Tensor:
    """(n, k) the class probabilities as the model itself gives them; see `Model`."""
    own = undecided(scores.double()) if defers_to_predict else scores.double()
    return torch.softmax(own - torch.tensor(offset, dtype=torch.float64) if any(offset) else own, 1)
