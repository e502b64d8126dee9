"""How real images look: two scores that ask different models, and how well a score tells data
from anything else.

    reconstruction    |x - dec(enc(x))|_1 of an autoencoder of the data          lower is more real
    log_density       log p(z) of the classifier's features, z, under those
                      of its training data                                       higher is more real

    auroc    probability that an image from outside scores as less real than one from inside,
             ties counting half

A score that cannot tell digits from letters says little about digits that a method made up, so look
at `auroc` first.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast.errors import SettingError
from holdfast.images.model import ImagesLike, as_images
from holdfast.images.result import ImageCounterfactuals
from holdfast.target import Status

if TYPE_CHECKING:
    from holdfast.models.density import FeatureDensity

LOWER_IS_BETTER = {"reconstruction": True, "log_density": False}


class Reconstructs(Protocol):
    """What is asked of an autoencoder; `ConvVAE` is one."""

    def reconstruct(self, images: ImagesLike) -> Tensor: ...


def realism(
    images: ImagesLike,
    *,
    vae: Reconstructs | None = None,
    density: "FeatureDensity | None" = None,
) -> pd.DataFrame:
    """One line per image, one column per score whose model is given.

    Args:
        images: what `hf.images.ImageModel` takes, or `ImageCounterfactuals`, whose answers are then
            scored; pairs without one have missing values.
        vae: a fitted `ConvVAE`, or anything else with a `reconstruct`.
        density: a fitted `FeatureDensity` of the classifier.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits(n_class=2)
    >>> images, labels = digits.images / 16, digits.target
    >>> vae = hf.images.ConvVAE(epochs=1).fit(images)
    >>> hf.images.realism.realism(images[:2], vae=vae).shape
    (2, 1)
    """
    if vae is None and density is None:
        raise SettingError("nothing to score with; give at least one of vae and density")
    index = slice(None)
    if isinstance(images, ImageCounterfactuals):
        index = images.status_codes != Status.NOT_FOUND
        n = len(images)
        x = images.x_cf[torch.tensor(index)]
    else:
        x = as_images(images)
        n = len(x)
    columns = dict[str, Any]()
    if vae is not None:
        columns["reconstruction"] = (vae.reconstruct(x) - x).abs().flatten(1).sum(1).numpy()
    if density is not None:
        columns["log_density"] = density.log_density(x).to_numpy()
    rows = pd.RangeIndex(n)
    return pd.DataFrame(columns, index=rows[index], dtype=float).reindex(rows)


def auroc(
    inside: Sequence[float] | Any, outside: Sequence[float] | Any, higher_means_outside: bool = True
) -> float:
    """How well a score tells images from outside the data from those inside: 1 always, 0.5 not at
    all.

    (sum of the ranks of `outside` among all - m (m + 1) / 2) / (n m)

    with n scores inside and m outside; ties share their ranks.

    Args:
        inside, outside: scores of images of the data, and of something else.
        higher_means_outside: False for scores that are higher for the data, such as a density.

    >>> import holdfast as hf
    >>> hf.images.auroc([0.1, 0.2, 0.3], [0.25, 0.9])
    0.8333333333333334

    Paper: hoeltgen2021 Metric AUROC.
    """
    parts = [np.asarray(values, dtype=float).reshape(-1) for values in (inside, outside)]
    for name, values in zip(("inside", "outside"), parts, strict=True):
        if not len(values):
            raise SettingError(f"auroc needs scores on both sides, but {name} has none")
        if np.isnan(values).any():
            raise SettingError(
                f"{int(np.isnan(values).sum())} scores of {name} are missing; leave them out first"
            )
    n, m = map(len, parts)
    ranks = pd.Series(np.concatenate(parts)).rank().to_numpy()
    share = float((ranks[n:].sum() - m * (m + 1) / 2) / (n * m))
    return share if higher_means_outside else 1 - share
