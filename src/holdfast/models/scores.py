"""Scores and the predicted class: which is ahead, by how much, and what the probabilities were before it was put there.

Light on purpose, like `Conversion`: every use of the library needs them, few need `models.compiled`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# By which a predicted class is put ahead, relative to the scores: hardly; for searches, by more than they must spare.
HARDLY, CLEARLY = 1e-9, 1e-4


@dataclass(frozen=True)
class Conversion:
    """Was a model compiled into an equivalent scorer of encoded rows? `text` says into which, or why not."""

    exact: bool
    text: str

    def __bool__(self) -> bool:
        return self.exact

    def __str__(self) -> str:
        return self.text


def lead(scores: Tensor, labels: Tensor) -> Tensor:
    """(n,) by how much the score of each row's label is ahead of the best other."""
    own = torch.nn.functional.one_hot(labels, scores.shape[1]) > 0
    return scores[own] - scores.masked_fill(own, -torch.inf).amax(1)


def decided(scores: Tensor, labels: Tensor, by: float = HARDLY) -> Tensor:
    """The scores (n, k) with the predicted class (n,) in front: where another is, or is level, it is put just ahead."""
    best, own = scores.amax(1), scores.gather(1, labels[:, None]).squeeze(1)
    front = torch.where(lead(scores, labels) > 0, own, best + by * best.abs().clamp_min(1.0))
    return scores.scatter(1, labels[:, None], front[:, None])


def undecided(scores: Tensor) -> Tensor:
    """Logarithms (n, k) of probabilities as they were before the predicted class was put ahead: it has what the others
    leave."""
    first = scores.argmax(1, keepdim=True)
    others = scores.exp().scatter(1, first, 0.0).sum(1, keepdim=True)
    return scores.scatter(1, first, (1 - others).clamp_min(torch.finfo(scores.dtype).tiny).log())


def probabilities(scores: Tensor, offset: Sequence[float], *, defers_to_predict: bool = False) -> Tensor:
    """(n, k) what the model itself takes for the probabilities of the classes; see `Model`."""
    own = undecided(scores.double()) if defers_to_predict else scores.double()
    return torch.softmax(own - torch.tensor(offset, dtype=torch.float64) if any(offset) else own, 1)
