"""The two networks of the GAN that judges images, for images of any size.

Generator    z (latent) -> 1 x 1 -> ... -> image: transposed convolutions, each but the last with
             batch normalisation and ReLU, then a sigmoid. At 28 x 28 the sizes are 1, 3, 6, 13, 28
             with 256, 128, 64 channels between.
Critic       image -> 16 -> 32 maps (5 x 5, stride 2) -> batch normalisation -> 1 number, spectrally
             normalised (Miyato et al. 2018) with LeakyReLU between; f_D is what the second
             convolution returns.

After training, `folded` writes batch normalisation into the generator's weights, and keeps only f_D
of the critic.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from experiments.hoeltgen2021.transposed import Pair, Transposed
from holdfast.images._stored import filled
from holdfast.images.model import Size

SLOPE = 0.2
MAPS = (16, 32)  # of the critic


def steps_up(size: int) -> list[Pair]:
    """Kernel and stride of the transposed convolutions that lead from 1 to `size`.

    Backwards from the image: 4 and 2 where the size is even, 3 and 2 where it is odd; what is small
    and even ends with stride 1. So 28 <- 13 <- 6 <- 3 <- 1, as the paper has it, 32 <- 15 <- 7 <- 3
    <- 1 and 8 <- 3 <- 1.
    """
    out = list[Pair]()
    while size > 1:
        if size % 2:
            pair = (3, 2)
        elif size > 6:
            pair = (4, 2)
        else:
            pair = (min(size, 4), 1)
        kernel, stride = pair
        out.insert(0, pair)
        size = (size - kernel) // stride + 1
    return out or [(1, 1)]


def plan(size: Size, latent: int, width: int) -> list[tuple[int, int, Pair, Pair]]:
    """Inputs, outputs, kernel and stride of every layer; `width` channels before the last, at most
    4 times as many."""
    tall = steps_up(size[1])
    wide = steps_up(size[2])
    depth = max(len(tall), len(wide))
    # where the other has to grow
    tall = [(1, 1)] * (depth - len(tall)) + tall
    wide = [(1, 1)] * (depth - len(wide)) + wide
    channels = [latent, *(width << min(2, depth - 2 - i) for i in range(depth - 1)), size[0]]
    return [
        (channels[i], channels[i + 1], (tall[i][0], wide[i][0]), (tall[i][1], wide[i][1]))
        for i in range(depth)
    ]


class Generator(nn.Module):
    """Latent points (n, latent) -> images (n, c, h, w)."""

    def __init__(self, size: Size, latent: int, width: int, *, normalised: bool) -> None:
        super().__init__()
        self.size = size
        self.latent = latent
        self.width = width
        layers = plan(size, latent, width)
        biased = [not normalised] * (len(layers) - 1) + [True]
        self.layers = nn.ModuleList(
            [Transposed(*layer, bias=b) for layer, b in zip(layers, biased, strict=True)]
        )
        self.norms = nn.ModuleList(
            [nn.BatchNorm1d(outputs) for _, outputs, _, _ in layers[:-1]] if normalised else []
        )

    def forward(self, z: Tensor) -> Tensor:
        h = z[:, None, None]  # (n, 1, 1, latent)
        for i, layer in enumerate(self.layers):
            if i:
                h = h.relu_()
            h = layer(h)
            if i < len(self.norms):
                h = self.norms[i](h.flatten(0, 2)).view_as(h)
        return h.sigmoid().permute(0, 3, 1, 2)


def folded(net: Generator) -> Generator:
    """The trained generator with batch normalisation written into weights and biases.

    (x W - m) g / sqrt(v + e) + b  =  x W (g / sqrt(v + e))  +  b - m g / sqrt(v + e)
    """
    state = {k: v.detach().clone() for k, v in net.layers.state_dict(prefix="layers.").items()}
    for i, norm in enumerate(cast(Any, net.norms)):
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        state[f"layers.{i}.weight"] = (state[f"layers.{i}.weight"] * scale).detach()
        state[f"layers.{i}.bias"] = (norm.bias - norm.running_mean * scale).detach()
    return filled(lambda: Generator(net.size, net.latent, net.width, normalised=False), state)


class Features(nn.Module):
    """f_D: images (n, c, h, w) -> maps (n, 32, h / 4, w / 4)."""

    def __init__(self, channels: int, *, spectral: bool) -> None:
        super().__init__()
        first = nn.Conv2d(channels, MAPS[0], 5, 2, 2, bias=False)
        second = nn.Conv2d(*MAPS, 5, 2, 2, bias=False)
        self.first = spectral_norm(first) if spectral else first
        self.second = spectral_norm(second) if spectral else second

    def forward(self, x: Tensor) -> Tensor:
        # With a single channel, the same numbers can be laid out in several ways, which
        # convolutions treat differently.
        x = x.flatten(1).view(x.shape).contiguous(memory_format=torch.channels_last)
        return self.second(F.leaky_relu(self.first(x), SLOPE, inplace=True))


class Critic(nn.Module):
    """Images (n, c, h, w) -> how real they look (n,), up to a constant."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        quarter = [-(-side // 4) for side in size[1:]]
        self.features = Features(size[0], spectral=True)
        self.norm = nn.BatchNorm2d(MAPS[1])
        self.last = spectral_norm(
            nn.Conv2d(MAPS[1], 1, (min(5, quarter[0]), min(5, quarter[1])), 2)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.leaky_relu(self.norm(self.features(x)), SLOPE)).mean((1, 2, 3))


def kept_features(critic: Critic) -> Features:
    """f_D of the trained critic, with spectral normalisation written into its weights."""
    training = critic.training
    f = cast(Any, critic.features)
    critic.eval()  # or reading a weight would move the estimate of its norm
    state = {
        f"{name}.weight": getattr(f, name).weight.detach().clone() for name in ("first", "second")
    }
    critic.train(training)
    return filled(lambda: Features(f.first.in_channels, spectral=False), state)
