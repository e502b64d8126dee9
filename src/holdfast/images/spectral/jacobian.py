"""How much features can change with an image: the norm of their derivative, image by image.

    |J|_2 = max over |v| = 1 of |J v|,    J = d features / d image

by power iteration, v <- J^T J v / |J^T J v|.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from holdfast.distances import l2
from holdfast.errors import SettingError
from holdfast.images.model import ImageModel, ImagesLike, as_images, padded


@dataclass(frozen=True)
class Norms:
    """What was measured."""

    median: float
    largest: float
    images: int


def lipschitz(model: ImageModel, images: ImagesLike, *, most: int = 64, steps: int = 15) -> Norms:
    """Norms of the derivative of the features at the first `most` images.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits(n_class=2)
    >>> images, labels = digits.images / 16, digits.target
    >>> net = hf.images.PlainResNet(width=4, stages=1, epochs=3, batch_size=32).fit(images, labels)
    >>> hf.images.lipschitz(net.model_, images, most=8).images
    8
    """
    given = as_images(images, model.size)[:most]
    if not len(given):
        raise SettingError("norms are measured at images, and there are none")
    x = padded(given)
    with model.eval_mode(), torch.enable_grad():
        x = x.requires_grad_()
        z, _ = model.both(x)
        # J^T w is linear in w, so its derivative gives J v
        w = torch.zeros_like(z, requires_grad=True)
        (pulled,) = torch.autograd.grad(z, x, w, create_graph=True)
        v = _unit(torch.ones_like(x) + x.detach())
        size = torch.zeros(len(x))
        for _ in range(steps):
            (jv,) = torch.autograd.grad(pulled, w, v, retain_graph=True)
            size = l2.value(jv.flatten(1))
            (v,) = torch.autograd.grad(z, x, jv, retain_graph=True)
            v = _unit(v)
    size = size[: len(given)].detach()
    return Norms(float(size.median()), float(size.max()), len(size))


def _unit(v: Tensor) -> Tensor:
    return l2.ascent(v.flatten(1)).view_as(v)


def spectrally_normalised(model: ImageModel) -> bool:
    """Are the norms of all convolutions bounded? Without convolutions: of all layers but the
    last."""
    if model.coefficient is not None:
        return True
    layers = list(model.module.modules())
    counted = [m for m in layers if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)]
    counted = counted or [m for m in layers if isinstance(m, nn.Linear)][:-1]
    return bool(counted) and all(_bounded(m) for m in counted)


def _bounded(layer: nn.Module) -> bool:
    """torch's own spectral normalisation, in either of its forms."""
    parts = getattr(layer, "parametrizations", None)
    names = (
        {type(p).__name__ for p in parts["weight"]}
        if parts is not None and "weight" in parts
        else set[str]()
    )
    hooks: Any = cast(Any, layer)._forward_pre_hooks.values()
    return bool({"_SpectralNorm"} & names) or any(type(h).__name__ == "SpectralNorm" for h in hooks)
