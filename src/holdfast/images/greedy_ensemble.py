"""Greedy pixels on an ensemble: images of which many networks are very sure look like those they
were shown.

Schut et al. 2021. Where members disagree the ensemble is unsure, so asking for a high probability
keeps a search where the training images were:

    g = grad ce(1/M sum_m z_m(x), t)                 z_m: logits of member m, t: the wanted class
    stop when 1/M sum_m softmax(z_m(x))_t >= 0.99    for each image; the released loop stops a
                                                     whole batch as soon as every image has changed
                                                     its class
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.images.deduce import cross_entropy
from holdfast.images.ensemble import member_logits, pooled
from holdfast.images.greedy import GreedyPixels, Slopes
from holdfast.images.model import ImageModel, padded
from holdfast.target import BoundTarget


@dataclass(eq=False, repr=False, kw_only=True)
class GreedyEnsemble(GreedyPixels):
    """The pixel with the steepest loss of the mean logits, one at a time, until the ensemble is
    very sure.

    Any other model counts as an ensemble of one.

    Args:
        min_probability: mean probability of the wanted class over the members.
        delta, limit, pixels, max_iter, momentum, shortcut, compact: see `GreedyPixels`.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits(n_class=2)
    >>> images, labels = digits.images / 16, digits.target
    >>> nets = hf.images.ImageEnsemble(members=2, hidden=(16,), epochs=20).fit(images, labels)
    >>> hf.GreedyEnsemble(min_probability=0.9).explain(nets, images[:2], "all").found.tolist()
    [True, True]

    Paper: hoeltgen2021 Baseline Schut.
    """

    title: ClassVar[str] = "few pixels, until an ensemble of networks is very sure"
    paper: ClassVar[str] = "Schut et al. 2021"
    when: ClassVar[str] = (
        "few pixels should change, and an ensemble of networks should agree on the answer"
    )
    cost: ClassVar[str] = "up to max_iter gradient passes through each network of the ensemble"

    min_probability: float | None = 0.99
    max_iter: int = 5000

    def look(self, model: ImageModel, x: Tensor, goal: BoundTarget) -> tuple[Tensor, Slopes]:
        n = len(x)
        rows = padded(x).detach().requires_grad_()
        with torch.enable_grad():
            logits = member_logits(model, rows)[:, :n]  # (M, n, k)
            mean = logits.mean(0)

        def slopes() -> tuple[Tensor, Tensor]:
            weights = cross_entropy(mean.detach(), goal.label)[1]
            (g,) = torch.autograd.grad(mean, rows, weights)
            g = g[:n].flatten(1)
            return g, g.abs()

        return pooled(logits.detach()), slopes
