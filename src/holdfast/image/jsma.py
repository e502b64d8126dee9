"""Greedy pixel methods without a density: JSMA, and the greedy search on an ensemble.

JSMA as DeDUCE compares with it: the gradient of the cross-entropy of the wanted class, one pixel per step, and a pixel
is closed once a step leaves it at 0 or 1. The original (Papernot et al. 2016) only brightens, and chooses by saliency:

    a_i = d F_t / d x_i,    b_i = sum_{j != t} d F_j / d x_i
    S_i = 0 if a_i < 0 or b_i > 0,  else a_i |b_i|              of pairs of pixels: with a_i + a_j and b_i + b_j

Schut et al. 2021 take the mean logits of an ensemble trained on clean and attacked images, and ask for much confidence.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from holdfast.image.deduce import cross_entropy
from holdfast.image.greedy import GreedyPixels, Slopes
from holdfast.image.model import ImageModel
from holdfast.target import Goal


@dataclass(eq=False, repr=False, kw_only=True)
class JSMA(GreedyPixels):
    """The pixel with the steepest class loss, one at a time, until the wanted class is met.

    Args:
        saliency: "gradient" (as DeDUCE compares with it), or "original" (Papernot et al.: only brighter, by saliency).
        delta, limit, pixels, confidence, max_iter, lock_at_bounds, shortcut, compact: see `GreedyPixels`.
    """

    title: ClassVar[str] = "few pixels, by the gradient of the class loss or by saliency"
    paper: ClassVar[str] = "Papernot et al. 2016; Höltgen et al. 2021"
    advice: ClassVar[str] = "raise max_iter, or ask for less confidence"

    limit: int | None = None
    lock_at_bounds: bool = True
    saliency: Literal["gradient", "original"] = "gradient"

    def look(self, model: ImageModel, x: Tensor, goal: Goal) -> tuple[Tensor, Slopes]:
        _, scores, pull = model.vjp(x)

        def slopes() -> tuple[Tensor, Tensor]:
            g = pull(None, cross_entropy(scores, goal.label)[1]).flatten(1)
            return g, g.abs()

        return scores, slopes
