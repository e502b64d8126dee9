"""Small images and networks that tests of image methods share."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from holdfast.counterfactuals import Run
from holdfast.images.classifier import SpectralResNet
from holdfast.images.greedy import GreedyPixels, Slopes
from holdfast.images.model import ImageModel
from holdfast.images.result import ImageCounterfactuals
from holdfast.nn.stack import lent_generator
from holdfast.target import BoundTarget

COLUMNS = [  # of the table of answers
    "row",
    "label",
    "target",
    "status",
    "probability",
    "pixels",
    "l1",
    "iterations",
    "reason",
]


@cache
def digits() -> tuple[Tensor, Tensor]:
    """1797 handwritten digits of 8 x 8 pixels."""
    data: Any = load_digits()
    return torch.tensor(data.images[:, None] / 16, dtype=torch.float32), torch.tensor(data.target)


@cache
def patches() -> tuple[Tensor, Tensor]:
    """60 coloured images of 64 x 64 pixels: noise, and a bright square in one of three channels."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    x = torch.rand(60, 3, 64, 64, generator=g) * 0.3
    for i, place in enumerate(torch.randint(0, 40, (60, 2), generator=g).tolist()):
        x[i, y[i], place[0] : place[0] + 24, place[1] : place[1] + 24] += 0.6
    return x, y


class CNN(nn.Module):
    """A classifier as other people write them: its features are what `pool` returns."""

    def __init__(self, channels: int = 1, classes: int = 10) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 12, 3, stride=2, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.AvgPool2d(2)
        self.head = nn.Linear(48, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.pool(self.relu(self.second(self.relu(self.first(x)))))
        return self.head(h.view(h.size(0), -1))


def trained(net: nn.Module, x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    optimizer: Any = torch.optim.Adam(net.parameters(), lr=0.01)
    order = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=order).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
    for p in net.parameters():
        p.grad = None
    return net.eval()


@cache
def cnn() -> ImageModel:
    """A network of digits that is not ours."""
    x, y = digits()
    with lent_generator(0):
        net = CNN()
    return ImageModel.of(trained(net, x[:600], y[:600], 20), (1, 8, 8), features="pool")


@cache
def spectral() -> ImageModel:
    """A network of digits of ours."""
    x, y = digits()
    return (
        SpectralResNet(width=4, stages=2, depth=1, epochs=6, batch_size=32)
        .fit(x[:600], y[:600], threads=1)
        .model_
    )


@cache
def colour() -> ImageModel:
    """A network of coloured images of ours."""
    x, y = patches()
    net = SpectralResNet(width=3, stages=3, depth=1, epochs=6, batch_size=10, lr=0.05)
    return net.fit(x, y, threads=1).model_


def linear(
    weight: Tensor, bias: Tensor | None = None, size: tuple[int, int, int] | None = None
) -> ImageModel:
    """Scores W x + b (k, d) of images of one row of d pixels, whose features are the pixels."""
    layer = nn.Linear(weight.shape[1], len(weight))
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.zeros(len(weight)) if bias is None else bias)
    return ImageModel.of(
        nn.Sequential(nn.Flatten(), layer), size or (1, 1, weight.shape[1]), features="0"
    )


@dataclass(eq=False, repr=False, kw_only=True)
class Scripted(GreedyPixels):
    """A greedy search whose gradients are written down, step by step; for one pair at a time."""

    script: Any = ()
    calls: int = 0

    def look(self, model: ImageModel, x: Tensor, goal: BoundTarget) -> tuple[Tensor, Slopes]:
        g = torch.tensor([self.script[min(self.calls, len(self.script) - 1)]]).expand(len(x), -1)
        self.calls += 1
        return model(x), lambda: (g, g.abs())


RUN = Run(
    "DeDUCE",
    "DeDUCE(mu=2)",
    "all",
    7,
    1.5,
    "abc",
    "images of 1 x 3 x 4",
    "0",
    "2024-01-01T00:00:00+00:00",
)


def pairs_by_hand(
    classes: tuple[Any, ...] = (0, 1, 2), channels: int = 1, codes: tuple[int, ...] = (0, 1, 2, 0)
) -> ImageCounterfactuals:
    """Two images of 3 x 4 pixels and four pairs: found, already met, not found, found.

    The first pair makes pixel (0, 1) brighter by 1 and (2, 3) darker by 0.4; the last makes (1, 0)
    brighter by 0.2.
    """
    x = torch.zeros(4, channels, 3, 4)
    x[:, :, 2, 3] = 0.4
    x_cf = x.clone()
    x_cf[0, -1, 0, 1] = 1.0
    x_cf[0, 0, 2, 3] = 0.0
    x_cf[2, 0] = 0.5
    x_cf[3, 0, 1, 0] = 0.2
    p = torch.tensor([[0.3, 0.6, 0.1], [0.2, 0.1, 0.7], [0.5, 0.3, 0.2], [0.05, 0.05, 0.9]])
    goal = BoundTarget(torch.tensor([1, 2, 1, 2]), 1.0, 0.0, True, 3)
    reasons = [
        "",
        "the model gives the wanted class already",
        "the best attempt has probability 0.30; wait",
        "",
    ]
    return ImageCounterfactuals(
        x=x,
        x_cf=x_cf,
        scores=p.log(),
        goal=goal,
        status_codes=np.array(codes),
        reasons=reasons,
        source=np.array([0, 0, 1, 1]),
        own=np.array([0, 0, 2, 0]),
        iterations=np.array([5, 0, 700, 2]),
        passes=123,
        classes=classes,
        run=RUN,
    )
