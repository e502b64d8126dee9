"""JSMA: few pixels, one or two at a time, towards the wanted class; no density.

In the form DeDUCE compares with: the gradient of the wanted class's cross-entropy, one pixel per
step, and a pixel is closed once a step leaves it at 0 or 1. The original (Papernot et al., "The
Limitations of Deep Learning in Adversarial Settings", 2016) only brightens, and chooses by
saliency, one pixel or the best of all pairs:

    a_i = d F_t / d x_i,    b_i = sum_{j != t} d F_j / d x_i,    F: logits, t: the wanted class
    S_i  = a_i |b_i|                     where a_i >= 0 and b_i <= 0, else 0
    S_ij = (a_i + a_j) |b_i + b_j|       where a_i + a_j >= 0 and b_i + b_j <= 0, else 0
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast._core.rows import CACHE_CELLS, rows_per_chunk
from holdfast.errors import SettingError
from holdfast.images.deduce import cross_entropy
from holdfast.images.greedy import GreedyPixels, Slopes
from holdfast.images.model import ImageModel, words
from holdfast.target import BoundTarget

MOST_VALUES = 1024  # of an image whose pairs are compared: half a million pairs


@dataclass(eq=False, repr=False, kw_only=True)
class JSMA(GreedyPixels):
    """The pixel with the steepest class loss, one at a time, until the wanted class is met.

    Args:
        saliency: "gradient" (as DeDUCE compares with it), or "original" (Papernot et al.: only
            brighter, by saliency; `pixels` is 1, or 2 for the best pair). The original paints
            pixels white at once: `delta=1`.
        delta, limit, pixels, min_probability, max_iter, lock_at_bounds, shortcut, compact: see
            `GreedyPixels`.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits(n_class=2)
    >>> net = hf.images.PlainResNet(width=4, stages=1, epochs=3, batch_size=32)
    >>> net = net.fit(digits.images / 16, digits.target)
    >>> hf.JSMA().explain(net, digits.images[:2] / 16, "all").found.tolist()
    [True, True]

    Paper: hoeltgen2021 Baseline JSMA.
    """

    title: ClassVar[str] = "few pixels, by the gradient of the class loss or by saliency"
    paper: ClassVar[str] = "Papernot et al. 2016; Höltgen et al. 2021"
    when: ClassVar[str] = "few pixels should change, and a saliency map should say which"
    cost: ClassVar[str] = (
        "up to max_iter gradient passes, each of two with the original saliency map"
    )
    advice: ClassVar[str] = "raise max_iter, or lower min_probability"

    limit: int | None = None
    lock_at_bounds: bool = True
    saliency: Literal["gradient", "original"] = "gradient"

    def check(self, model: ImageModel) -> None:
        super().check(model)
        kinds = ("gradient", "original")
        if self.saliency not in kinds:
            raise SettingError(f"saliency must be one of {kinds}, got {self.saliency!r}")
        if self.saliency == "original":
            if self.momentum != 0:
                raise SettingError(
                    f"saliency is not accumulated; set momentum=0, got {self.momentum}"
                )
            if self.pixels not in (1, 2):
                raise SettingError(f"saliency is of one pixel or of two, got pixels={self.pixels}")
            few = self.pixels == 1 or math.prod(model.size) <= MOST_VALUES
            pairs = f"too many pairs of pixels to compare (at most {MOST_VALUES} values)"
            if not few:
                raise SettingError(f"images of {words(model.size)} have {pairs}; set pixels=1")

    def look(self, model: ImageModel, x: Tensor, goal: BoundTarget) -> tuple[Tensor, Slopes]:
        return (
            self._by_saliency(model, x, goal)
            if self.saliency == "original"
            else self._by_loss(model, x, goal)
        )

    def _by_loss(self, model: ImageModel, x: Tensor, goal: BoundTarget) -> tuple[Tensor, Slopes]:
        _, scores, pull = model.vjp(x)

        def slopes() -> tuple[Tensor, Tensor]:
            g = pull(None, cross_entropy(scores, goal.label)[1]).flatten(1)
            return g, g.abs()

        return scores, slopes

    def _by_saliency(
        self, model: ImageModel, x: Tensor, goal: BoundTarget
    ) -> tuple[Tensor, Slopes]:
        rows = x.detach().requires_grad_()
        with torch.enable_grad():
            scores = model(rows)

        def slopes() -> tuple[Tensor, Tensor]:
            own = F.one_hot(goal.label, goal.k).to(scores.dtype)
            (a,) = torch.autograd.grad(scores, rows, own, retain_graph=True)
            (b,) = torch.autograd.grad(scores, rows, 1 - own)
            # White cannot become brighter. Every chosen pixel does: a loss that falls with each of
            # them.
            ab = torch.stack([a.masked_fill(x >= 1, -torch.inf), b], 1).flatten(2)  # (n, 2, d)
            return torch.full_like(ab[:, 0], -1.0), ab

        return scores.detach(), slopes

    def ranked(self, priority: Tensor, shut: Tensor) -> Tensor:
        if self.saliency != "original":
            return super().ranked(priority, shut)
        a = priority[:, 0].masked_fill(shut, -torch.inf)
        b = priority[:, 1]
        return saliency(a, b) if self.pixels == 1 else _first_two(*best_pair(a, b), like=a)


def saliency(a: Tensor, b: Tensor) -> Tensor:
    """S: the product where a >= 0 and b <= 0, else 0; a is -inf for pixels that are out."""
    return a.clamp_min(0) * (-b).clamp_min(0)


def best_pair(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) the largest S_ij over i < j, and (n, 2) which; of equal ones the first."""
    n, d = a.shape
    best = a.new_zeros(n)
    pair = torch.zeros(n, 2, dtype=torch.int64)
    block = rows_per_chunk(n * d, CACHE_CELLS)
    for i in range(0, d, block):
        left = [v[:, i : i + block, None] for v in (a, b)]
        # (n, block, d - i)
        s = saliency(*[u + v[:, None, i:] for u, v in zip(left, (a, b), strict=True)]).triu(1)
        value, where = s.flatten(1).max(1)
        better = value > best
        best = torch.where(better, value, best)
        here = torch.stack([where // (d - i), where % (d - i)], 1) + i
        pair = torch.where(better[:, None], here, pair)
    return best, pair


def _first_two(best: Tensor, pair: Tensor, *, like: Tensor) -> Tensor:
    """Priorities (n, d) that put the two pixels of a pair before all others, where a pair has any
    saliency."""
    order = torch.tensor([2.0, 1.0], dtype=like.dtype) * (best > 0)[:, None]
    return torch.zeros_like(like).scatter_(1, pair, order)
