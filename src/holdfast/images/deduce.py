"""DeDUCE: sparse counterfactual images that stay where the target class is at home in feature
space.

Höltgen, Schut, Brauner and Gal, "DeDUCE: Generating Counterfactual Explanations At Scale", 2021.

    ce(x) = -log f(x)_t          f: class probabilities, t: the wanted class
    ld(x) = log p_t(f_Z(x))      p_t: Gaussian of the features f_Z of class t

    (4)   g = grad (lambda ce - ld)
    (5)   g = mu grad ce / ce - grad ld / |ld|       the default, with mu = 1
    (6)   g_k = g + m g_{k-1}                        m = 0.6; see `GreedyPixels.momentum_applies_to`

All are gradients of a loss to be minimised: a step goes against their sign. The features come from
a network whose convolutions have bounded norms, so that distances between features say something
about distances between images.
"""

import warnings
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from holdfast._core.types import Outcomes
from holdfast.errors import ModelError, SettingError
from holdfast.images.greedy import GreedyPixels, Slopes
from holdfast.images.model import ImageModel, ImageModelLike, ImagesLike
from holdfast.images.spectral.jacobian import lipschitz, spectrally_normalised
from holdfast.models.density import FeatureDensity, Gaussians
from holdfast.target import BoundTarget

UNBOUNDED = "this network has no spectral normalisation"
TINY = 1e-12  # |ld| passes through 0 on the way from far to near


def relative_gradient(ce_ld: tuple[Tensor, Tensor], mu: float) -> tuple[Tensor, Tensor]:
    """Weights of grad ce and grad ld in (5), both (n,); the divisors count as constants.

    Paper: hoeltgen2021 Eq. 5.
    """
    ce, ld = ce_ld
    return mu / ce.clamp_min(TINY), -1 / ld.abs().clamp_min(TINY)


@dataclass(eq=False, repr=False, kw_only=True)
class DeDUCE(GreedyPixels):
    """Few pixels, one at a time, towards the wanted class and to where its training images are in
    feature space.

    Args:
        mu: weight of the class loss in the relative gradient (5).
        lam: weight of the class loss in the plain gradient (4), which is used if this is given;
            with 0 only the density counts.
        momentum: share of the accumulated gradient that is kept.
        delta, limit, pixels, min_probability, max_iter, momentum_applies_to, shortcut, compact: see
            `GreedyPixels`.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits(n_class=2)
    >>> images, labels = digits.images / 16, digits.target
    >>> net = hf.images.SpectralResNet(width=4, stages=1, epochs=5, batch_size=32)
    >>> net = net.fit(images, labels)
    >>> cfs = hf.DeDUCE().fit(net, images, labels).explain(net, images[:2], "all")
    >>> cfs.found.tolist()
    [True, True]

    Paper: hoeltgen2021 Algorithm 1, Eq. 4.
    """

    title: ClassVar[str] = "few pixels, towards the wanted class and its density in feature space"
    paper: ClassVar[str] = "Höltgen et al. 2021"
    when: ClassVar[str] = (
        "few pixels should change, and the model should find the answer typical of the wanted class"
    )
    cost: ClassVar[str] = "up to max_iter gradient passes"
    needs_data: ClassVar[bool] = True

    momentum: float = 0.6
    mu: float = 1.0
    lam: float | None = None

    def fit(
        self,
        model: ImageModelLike,
        images: ImagesLike | None = None,
        labels: Outcomes | None = None,
    ) -> Self:
        """Fit the densities of the classes to training images, or take those that came with the
        model's file.

        A network without spectral normalisation gets a warning, with its accuracy and how much
        features can change with an image.
        """
        net = ImageModel.of(model)
        warning = f"{UNBOUNDED}, so near features need not mean near images"
        if images is None:
            if net.density is None:
                raise SettingError(
                    "DeDUCE needs images and their labels: .fit(model, images, labels)"
                )
            self.density_ = net.density
            if not spectrally_normalised(net):
                warnings.warn(warning, stacklevel=2)
            return self
        if labels is None:
            raise SettingError(
                "DeDUCE needs the labels of the images as well: .fit(model, images, labels)"
            )
        self.density_ = FeatureDensity(net).fit(images, labels)
        # Without bounded norms an image far from all others can have features near theirs. The user
        # sees by how much, since such a network may still do.
        if not spectrally_normalised(net):
            norms = lipschitz(net, images)
            warning += (
                f": around {norms.images} of the images features change up to {norms.largest:.3g} "
                "times as much"
            )
            warning += f" as the image (median {norms.median:.3g})"
            accuracy = net.accuracy(images, labels)
            warnings.warn(f"{warning}; accuracy on these images {accuracy:.4f}", stacklevel=2)
        return self

    def check(self, model: ImageModel) -> None:
        super().check(model)
        if not self.mu >= 0:
            raise SettingError(f"mu must be at least 0, got {self.mu}")
        if not (self.lam is None or self.lam >= 0):
            raise SettingError(f"lam must be at least 0, got {self.lam}")
        if not model.has_features:
            raise ModelError(
                "DeDUCE needs features: hf.images.ImageModel.of(module, size, features=NAME)"
            )
        own = len(model.classes), model.feature_count
        k, f = self.gaussians.mean.shape
        sizes = f"of {k} classes and {f} features, the model has {own[0]} and {own[1]}"
        if (k, f) != own:
            raise SettingError(f"the densities are {sizes}; fit again with this model")

    @property
    def gaussians(self) -> Gaussians:
        return self.density_.gaussians_

    def look(self, model: ImageModel, x: Tensor, goal: BoundTarget) -> tuple[Tensor, Slopes]:
        z, scores, pull = model.vjp(x)
        assert z is not None

        def slopes() -> tuple[Tensor, Tensor]:
            ce, by_scores = cross_entropy(scores, goal.label)
            ld, by_features = self.gaussians.of_class(z, goal.label)
            if self.lam is not None:
                a = torch.full_like(ce, self.lam)
                b = torch.full_like(ld, -1.0)
            else:
                a, b = relative_gradient((ce, ld), self.mu)
            g = pull(b[:, None] * by_features, a[:, None] * by_scores).flatten(1)
            return g, g.abs()

        return scores, slopes


def cross_entropy(scores: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """ce = -log softmax(scores)_t (n,), and its gradient softmax - e_t (n, k)."""
    logp = scores.log_softmax(1)
    own = label[:, None]
    p = logp.exp()
    return -logp.gather(1, own).squeeze(1), p.scatter_add(
        1, own, -torch.ones_like(own, dtype=p.dtype)
    )
