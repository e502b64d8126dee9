"""Autoencoders of images, for methods that ask what an image of the data looks like.

    autoencoder    minimise  mean |x - dec(enc(x))|^2                over pixels
    vae            minimise  sum_pixels |x - dec(z)|^2 + w KL        z = m + s e,  e ~ N(0, 1)
                   KL( N(m, s^2) | N(0, 1) ) = 1/2 sum_i m_i^2 + s_i^2 - 1 - log s_i^2

`ConvAutoencoder` is the one behind the prototypes of Van Looveren & Klaise 2021: its code is a map
of half the size. It is at home on values from -0.5 to 0.5, so it subtracts a half on the way in and
adds it on the way out. `ConvVAE` (Kingma & Welling 2014) is that of REVISE as Höltgen et al. 2021
ran it. Both are trained by Adam.

The VAE ends in a sigmoid. Digits are mostly black, and the first steps can push it so far down that
it has no slope left and stays black; so its last bias begins at the mean brightness of the images.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast._core.checks import trained_part
from holdfast._core.progress import Progress
from holdfast._core.rows import COLUMN_BLOCK, RowBlocks, chunks
from holdfast.errors import SettingError
from holdfast.images._stored import StoredSettings, filled, laid_out
from holdfast.images.loop import check_converged, step
from holdfast.images.model import BATCH, ImagesLike, Size, as_images, padded, words
from holdfast.nn.stack import lent_generator

MIDDLE = 0.5  # the grey that is 0 for the autoencoder
DARKEST = 1e-3  # the least mean brightness the VAE begins with; 1 minus it is the most


class Codec(nn.Module, ABC):
    """Images (n, c, h, w) with values from 0 to 1 to codes, and back."""

    encoder: nn.Sequential
    decoder: nn.Sequential

    def __init__(self, size: Size, code: tuple[int, ...]) -> None:
        super().__init__()
        # the shapes of an image and of its code
        self.size = size
        self.code = code

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """The codes (n, *code) of images."""

    @abstractmethod
    def decode(self, z: Tensor) -> Tensor:
        """The images that codes stand for."""


class MapAutoencoder(Codec):
    """Convolutions of 3 x 3 around one pooling; the code is a single map of half the height and
    width."""

    def __init__(self, size: Size, width: int) -> None:
        c, h, w = size
        super().__init__(size, (1, -(-h // 2), -(-w // 2)))
        self.encoder = nn.Sequential(
            _conv(c, width),
            _relu(),
            _conv(width, width),
            _relu(),
            nn.MaxPool2d(2, ceil_mode=True),
            _conv(width, 1),
        )
        self.decoder = nn.Sequential(
            _conv(1, width),
            _relu(),
            nn.Upsample(scale_factor=2),
            _conv(width, width),
            _relu(),
            _conv(width, c),
        )

    def encode(self, x: Tensor) -> Tensor:
        return self.encoder(_laid_out(x - MIDDLE))

    def decode(self, z: Tensor) -> Tensor:
        _, h, w = self.size  # an odd number of lines grew by one
        return self.decoder(_laid_out(z))[:, :, :h, :w] + MIDDLE


class VariationalAutoencoder(Codec):
    """Convolutions of 5 x 5 that halve the image twice, a linear layer to the code, and the way
    back.

    Along one axis: h pixels -> s = ceil(h / 4) in the middle -> 2 s - 1 -> 4 s - 1 -> h, filled up
    (or cut) at the top and left. For 28 x 28 that is 7, 13, 27 and 28.
    """

    def __init__(self, size: Size, latent: int) -> None:
        super().__init__(size, (latent,))
        c, h, w = size
        middle = -(-h // 4), -(-w // 4)
        # Transposed convolutions lead to 4 s - 1 pixels a side; zeros at the top and left fill up
        # what is missing, and a negative number cuts off the excess.
        top = h - (4 * middle[0] - 1)
        left = w - (4 * middle[1] - 1)
        flat = 64 * math.prod(middle)
        self.encoder = nn.Sequential(
            nn.Conv2d(c, 32, 5, 2, 2),
            _relu(),
            nn.Conv2d(32, 64, 5, 2, 2),
            _relu(),
            nn.Flatten(),
            nn.Linear(flat, 2 * latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, flat),
            _relu(),
            nn.Unflatten(1, (64, *middle)),
            LaidOut(),
            nn.ConvTranspose2d(64, 32, 5, 2, 2),
            _relu(),
            nn.ConvTranspose2d(32, 32, 5, 2, 1),
            _relu(),
            nn.ZeroPad2d((left, 0, top, 0)),
            nn.ConvTranspose2d(32, c, 3, 1, 1),
            Sigmoid(),
        )

    def distribution(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """m and log s^2 of the codes, both (n, latent)."""
        with RowBlocks():
            m, v = self.encoder(_laid_out(x)).chunk(2, 1)
        return m, v

    def encode(self, x: Tensor) -> Tensor:
        return self.distribution(x)[0]

    def decode(self, z: Tensor) -> Tensor:
        first = cast(nn.Linear, self.decoder[0])
        missing = -self.code[0] % COLUMN_BLOCK
        with RowBlocks():  # columns of zeros change no sum
            h = F.linear(F.pad(z, (0, missing)), F.pad(first.weight, (0, missing)), first.bias)
        return self.decoder[1:](h)

    def begin_at(self, brightness: Tensor) -> None:
        """Let every image begin with a mean brightness (c,)."""
        last = cast(nn.ConvTranspose2d, self.decoder[-2])
        with torch.no_grad():
            cast(Tensor, last.bias).copy_(brightness.clamp(DARKEST, 1 - DARKEST).logit())


class Sigmoid(nn.Module):
    """1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2.

    torch's own gives numbers at the end of a tensor other last bits, so if its values do not fill
    whole lanes, an image would depend on its place in the batch.
    """

    def forward(self, x: Tensor) -> Tensor:
        return (x / 2).tanh() / 2 + 0.5


class LaidOut(nn.Module):
    """The same numbers, channels last in memory."""

    def forward(self, x: Tensor) -> Tensor:
        return _laid_out(x)


def _laid_out(x: Tensor) -> Tensor:
    """Channels last in memory, where convolutions are fastest."""
    return x.contiguous(memory_format=torch.channels_last)


def _conv(inputs: int, outputs: int) -> nn.Module:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


class ImageCoder(StoredSettings):
    """What both share: how they are trained, used and stored."""

    epochs: int
    batch_size: int

    net_: Codec
    history_: tuple[float, ...]  # mean loss of each epoch

    @abstractmethod
    def network(self, size: Size) -> Codec:
        """The network for images of this size, before training."""

    @abstractmethod
    def loss(self, net: Codec, x: Tensor, epoch: int, generator: torch.Generator) -> Tensor:
        """The loss of a batch, a mean over images."""

    def prepare(self, net: Codec, x: Tensor) -> None:
        """Where training begins, for these images."""
        return

    def check(self) -> None:
        self.check_integers("epochs", "batch_size")
        self.check_training()

    def fit(self, images: ImagesLike, progress: bool = False) -> Self:
        """Train on images; the same seed gives the same weights.

        Args:
            images: bytes, or numbers from 0 to 1, (n, h, w) or (n, c, h, w).
            progress: show a bar and a line per epoch on stderr.
        """
        self.check()
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            Progress(progress, type(self).__name__) as bar,
        ):
            x = as_images(images)
            if not len(x):
                raise SettingError(f"{type(self).__name__} needs images to learn from, got none")
            generator = torch.Generator().manual_seed(self.seed)
            with lent_generator(int(torch.randint(1 << 62, (), generator=generator))):
                net = laid_out(self.network(cast(Size, tuple(x.shape[1:]))))
            self.prepare(net, x)
            self.history_ = self._train(net, x, generator, bar)
        self.net_ = net.eval().requires_grad_(False)
        return self

    def _train(
        self, net: Codec, x: Tensor, generator: torch.Generator, bar: Progress
    ) -> tuple[float, ...]:
        optimizer = torch.optim.Adam(net.parameters(), lr=self.lr)
        batches = -(-len(x) // self.batch_size)
        history = list[float]()
        bar.total(self.epochs)
        for epoch in range(self.epochs):
            total = 0.0
            for rows in chunks(torch.randperm(len(x), generator=generator), self.batch_size):
                value = self.loss(net, x[rows], epoch, generator)
                step(optimizer, value)
                total += float(value.detach()) * len(rows)
                bar.step(1 / batches)
            history.append(total / len(x))
            bar.say(f"epoch {epoch + 1}: loss {history[-1]:.5g}")
        check_converged(net.parameters(), self.lr)
        return tuple(history)

    # ---- use

    @property
    def size(self) -> Size:
        """Channels, height and width of an image."""
        return self.fitted().size

    def fitted(self) -> Codec:
        """The trained network, or an error that says what to do."""
        return trained_part(self, "net_", ".fit(images)")

    def encode(self, x: Any) -> Tensor:
        """Images -> codes (n, *code); an image's code does not depend on the others."""
        net = self.fitted()
        return in_parts(net.encode, as_images(x, net.size))

    def decode(self, z: Tensor) -> Tensor:
        """Codes (n, *code) -> images (n, c, h, w)."""
        net = self.fitted()
        shape = ", ".join(map(str, net.code))
        if tuple(z.shape[1:]) != net.code:
            raise SettingError(f"expected codes of shape (n, {shape}), got {tuple(z.shape)}")
        return in_parts(net.decode, z.detach().float())

    def reconstruct(self, images: ImagesLike) -> Tensor:
        """What becomes of images on the way to their codes and back."""
        return self.decode(self.encode(images))

    # ---- files

    def learnt(self) -> tuple[Size, list[Any], dict[str, Tensor]]:
        net = self.fitted()
        return net.size, list(self.history_), net.state_dict()

    def restore(self, size: Size, history: list[Any], tensors: dict[str, Tensor]) -> None:
        self.net_ = laid_out(filled(lambda: self.network(size), tensors))
        self.history_ = tuple(map(float, history))


Coder = TypeVar("Coder", bound=ImageCoder)


def ready_for(coder: Coder, images: ImagesLike) -> Coder:
    """The coder, if it has learnt from images; else a copy of it that has learnt from these."""
    return coder if hasattr(coder, "net_") else copy.copy(coder).fit(images)


def check_takes(coder: ImageCoder, name: str, size: Size) -> None:
    """Raise an error unless the coder is for images of a model's size."""
    if words(coder.size) != words(size):
        raise SettingError(
            f"the {name} is for images of {words(coder.size)}, the model takes {words(size)}"
        )


def in_parts(of: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """of(x), as many rows at once as memory allows, each row with the same bits in any
    batch."""
    with torch.inference_mode(False), torch.no_grad():
        return torch.cat(
            [of(padded(x[rows]))[: len(rows)] for rows in chunks(torch.arange(len(x)), BATCH)]
            or [of(x)]
        )


@dataclass(eq=False, repr=False, kw_only=True)
class ConvAutoencoder(ImageCoder):
    """A small autoencoder whose code is a map of half the image's height and width.

    Args:
        epochs, batch_size, lr: of Adam.
        width: channels of the hidden layers.
        seed: weights and the order of the images are drawn from it.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> images = load_digits(n_class=2).images / 16
    >>> hf.images.ConvAutoencoder(epochs=1).fit(images).reconstruct(images[:2]).shape
    torch.Size([2, 1, 8, 8])
    """

    epochs: int = 4
    batch_size: int = 128
    lr: float = 1e-3
    width: int = 16
    seed: int = 0

    def check(self) -> None:
        super().check()
        self.check_integers("width", most=1 << 12)

    def network(self, size: Size) -> Codec:
        return MapAutoencoder(size, self.width)

    def loss(self, net: Codec, x: Tensor, epoch: int, generator: torch.Generator) -> Tensor:
        return F.mse_loss(net.decode(net.encode(x)), x)


@dataclass(eq=False, repr=False, kw_only=True)
class ConvVAE(ImageCoder):
    """A variational autoencoder; an image's code is the mean m, so nothing is random after
    training.

    Args:
        latent: how many numbers a code has.
        epochs, batch_size, lr: of Adam.
        weight: w, of the divergence.
        warm_up: let w grow from a hundredth of `weight`, by a fiftieth with each epoch.
        seed: weights, the order of the images and e are drawn from it.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> images = load_digits(n_class=2).images / 16
    >>> vae = hf.images.ConvVAE(epochs=1).fit(images)
    >>> vae.encode(images[:2]).shape, vae.reconstruct(images[:2]).shape
    (torch.Size([2, 32]), torch.Size([2, 1, 8, 8]))
    """

    latent: int = 32
    epochs: int = 20
    batch_size: int = 128
    lr: float = 1e-3
    weight: float = 1.0
    warm_up: bool = False
    seed: int = 0

    def check(self) -> None:
        super().check()
        self.check_integers("latent", most=1 << 12)
        if not 0 <= self.weight < math.inf:
            raise SettingError(f"weight must be 0 or more, got {self.weight}")

    def network(self, size: Size) -> Codec:
        return VariationalAutoencoder(size, self.latent)

    def prepare(self, net: Codec, x: Tensor) -> None:
        cast(VariationalAutoencoder, net).begin_at(x.mean((0, 2, 3)))

    def share(self, epoch: int) -> float:
        """w in an epoch, counted from 0."""
        return self.weight * (min(0.01 + epoch / 50, 1.0) if self.warm_up else 1.0)

    def loss(self, net: Codec, x: Tensor, epoch: int, generator: torch.Generator) -> Tensor:
        m, v = cast(VariationalAutoencoder, net).distribution(x)
        z = m + (v / 2).exp() * torch.randn(m.shape, generator=generator)
        return (
            F.mse_loss(net.decode(z), x, reduction="sum") + self.share(epoch) * divergence(m, v)
        ) / len(x)


def divergence(m: Tensor, v: Tensor) -> Tensor:
    """KL( N(m, e^v) | N(0, 1) ), summed over all codes."""
    return (m.square() + v.exp() - 1 - v).sum() / 2
