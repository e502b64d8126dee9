"""Residual networks for small images, and the plain form that a search evaluates.

The spectral one is the ResNet-18 of DeDUCE (Höltgen et al. 2021): a 3 x 3 stem without pooling,
four stages of two blocks, widths w, 2w, 4w, 8w (w = 64 in the paper), LeakyReLU, shortcuts that
average pairs of pixels (keep every second one where the size is odd) and fill up channels with
zeros, and convolutions of bounded operator norm. The plain one is the usual ResNet-18: a 7 x 7 stem
with stride 2 and max-pooling, ReLU, 1 x 1 convolutions as shortcuts.

After training, `folded` writes normalisation into the weights: `ResNet` has convolutions with
biases and nothing else.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import ModelError
from holdfast.images._stored import filled, laid_out
from holdfast.images.spectral.norm import SpectralConv2d


@dataclass(frozen=True)
class Shape:
    """What describes a residual network besides its tensors."""

    channels: int
    size: int | tuple[int, int]  # height and width of an image; one number for both
    classes: int
    width: int = 64  # channels of the first stage
    coefficient: float | None = 4.0  # bound of the operator norms; None for the plain network
    stages: int = 4
    depth: int = 2  # blocks of a stage

    def __post_init__(self) -> None:
        numbers: dict[str, Any] = {
            k: getattr(self, k) for k in ("channels", "classes", "width", "stages", "depth")
        }
        sized = len(self.sides) == 2
        if not sized:
            raise ModelError(
                f"size must be a number, or height and width of an image, got {self.size}"
            )
        numbers |= {"height": self.sides[0], "width of images": self.sides[1]}
        for name, value in numbers.items():
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 14:
                raise ModelError(
                    f"{name} of a residual network must be an integer of at least 1, got {value!r}"
                )
        if self.stages > 8 or self.depth > 64:
            raise ModelError(
                f"{self.stages} stages of {self.depth} blocks are more than a residual network "
                "may have"
            )
        if self.coefficient is not None and not 0 < self.coefficient < float("inf"):
            raise ModelError(f"coefficient must be a positive number, got {self.coefficient!r}")

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of an image."""
        # a list, from a file
        both = self.size if isinstance(self.size, tuple | list) else (self.size, self.size)
        return cast(tuple[int, int], tuple(both))

    @property
    def spectral(self) -> bool:
        return self.coefficient is not None

    @property
    def features(self) -> int:
        """How many features there are before the last layer."""
        return self.width << (self.stages - 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def blocks(self) -> "list[Plan]":
        """Inputs, outputs, stride and size of the inputs of every block."""
        out = list[Plan]()
        inputs = self.width
        size = self.sides
        if not self.spectral:
            size = halved(halved(size))
        for stage in range(self.stages):
            for i in range(self.depth):
                outputs = self.width << stage
                stride = 2 if stage and not i else 1
                out.append((inputs, outputs, stride, size))
                inputs = outputs
                size = halved(size) if stride == 2 else size
        return out


def halved(size: tuple[int, int]) -> tuple[int, int]:
    height, width = size
    return (height + 1) // 2, (width + 1) // 2


Plan = tuple[int, int, int, tuple[int, int]]
Conv = Callable[..., nn.Module]


class ResidualBlock(nn.Module):
    """x -> act(W2 act(W1 x) + shortcut(x)), each W with batch normalisation (training) or a bias
    (folded)."""

    def __init__(self, conv: Conv, plan: Plan, *, spectral: bool) -> None:
        super().__init__()
        inputs, outputs, self.stride, size = plan
        self.more = outputs - inputs
        self.spectral = spectral
        self.first = conv(inputs, outputs, 3, self.stride, size)
        self.second = conv(outputs, outputs, 3, 1, halved(size) if self.stride == 2 else size)
        needed = not spectral and (self.stride > 1 or self.more > 0)
        self.side = conv(inputs, outputs, 1, self.stride, size) if needed else None

    def forward(self, x: Tensor) -> Tensor:
        slope = 0.01 if self.spectral else 0.0
        h = self.second(F.leaky_relu(self.first(x), slope, inplace=True))
        return F.leaky_relu(h + self.shortcut(x), slope, inplace=True)

    def shortcut(self, x: Tensor) -> Tensor:
        if self.side is not None:
            return self.side(x)
        if self.stride == 2:
            x = F.avg_pool2d(x, [2 - n % 2 for n in x.shape[2:]], stride=2)
        return F.pad(x, (0, 0, 0, 0, 0, self.more)) if self.more else x


class ResNet(nn.Module):
    """Images (n, c, h, w) -> class scores (n, k); `features` gives what the last layer sees (n,
    f)."""

    def __init__(self, shape: Shape, conv: Conv | None = None) -> None:
        super().__init__()
        conv = conv or _biased
        self.shape = shape
        kernel = 3 if shape.spectral else 7
        stride = 1 if shape.spectral else 2
        self.stem = conv(shape.channels, shape.width, kernel, stride, shape.sides)
        self.blocks = nn.ModuleList(
            [ResidualBlock(conv, plan, spectral=shape.spectral) for plan in shape.blocks()]
        )
        self.head = nn.Linear(shape.features, shape.classes)

    def features(self, x: Tensor) -> Tensor:
        slope = 0.01 if self.shape.spectral else 0.0
        h = F.leaky_relu(
            self.stem(x.contiguous(memory_format=torch.channels_last)), slope, inplace=True
        )
        if not self.shape.spectral:
            h = F.max_pool2d(h, 3, 2, 1)
        for block in self.blocks:
            h = block(h)
        return h.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def _biased(
    inputs: int, outputs: int, kernel: int, stride: int, size: tuple[int, int]
) -> nn.Module:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)


def trainable(shape: Shape) -> ResNet:
    """The network to train: every convolution has batch normalisation behind it and, if asked for,
    a bounded norm."""

    def conv(
        inputs: int, outputs: int, kernel: int, stride: int, size: tuple[int, int]
    ) -> nn.Module:
        if shape.coefficient is None:
            made: nn.Module = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        else:
            made = SpectralConv2d(
                inputs, outputs, kernel, stride=stride, size=size, coefficient=shape.coefficient
            )
        return nn.Sequential(made, nn.BatchNorm2d(outputs))

    return laid_out(ResNet(shape, conv))


def folded(net: ResNet) -> ResNet:
    """The trained network with spectral and batch normalisation written into weights and biases.

    (W x - m) g / sqrt(v + e) + b  =  (g / sqrt(v + e)) W x  +  b - m g / sqrt(v + e)
    """
    state = dict[str, Tensor]()
    parts: dict[str, nn.Module] = dict(cast(Any, net).named_modules())
    for name, part in parts.items():
        if isinstance(part, nn.Sequential) and isinstance(part[-1], nn.BatchNorm2d):
            conv = part[0]
            norm = cast(Any, part[-1])
            weight = (
                conv.normalised() if isinstance(conv, SpectralConv2d) else cast(Tensor, conv.weight)
            )
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            state[f"{name}.weight"] = (weight * scale[:, None, None, None]).detach()
            state[f"{name}.bias"] = (norm.bias - norm.running_mean * scale).detach()
    state |= {f"head.{k}": v.detach().clone() for k, v in net.head.state_dict().items()}
    return laid_out(filled(lambda: ResNet(net.shape), state))
