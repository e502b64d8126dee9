"""A small GAN of 8 x 8 digits for the tests of the GAN and of the scores that it gives."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from experiments.hoeltgen2021.wgan import WGAN


@cache
def digits() -> Tensor:
    return torch.as_tensor(load_digits().images / 16).float()[:, None]


@cache
def small_gan() -> WGAN:
    """Two hundred updates on 8 x 8 digits."""
    gan = WGAN(latent=8, updates=200, critic_steps=1, batch_size=32, width=8, lr=5e-3, average=0.9)
    return gan.fit(digits()[:500], threads=1)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
