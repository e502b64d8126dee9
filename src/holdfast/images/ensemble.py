"""Ensembles of image classifiers: many small networks, trained together as one tensor program.

Schut et al., "Generating Interpretable Counterfactual Explanations By Implicit Minimisation of
Epistemic and Aleatoric Uncertainties", 2021: networks d - 80 - 80 - k whose hidden layers are
Linear, ReLU, BatchNorm, each trained with Adam on clean images and on images moved one step uphill
(Goodfellow et al. 2015):

    x' = clip(x + attack sign(grad_x ce(x, y)), 0, 1)         minimise  1/2 ce(x, y) + 1/2 ce(x', y)

Members differ in their first weights and in the order of the images. What the ensemble says is the
mean of its members' probabilities (Lakshminarayanan et al. 2017):

    p(c | x) = 1/M sum_m softmax(z_m(x))_c,         scores: log p
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast._core.checks import require_integer
from holdfast._core.progress import Progress
from holdfast._core.rows import limited_threads
from holdfast.errors import ModelError, SettingError
from holdfast.images.classifier import Held, ImageClassifier, TrainingImages
from holdfast.images.loop import Epoch, accuracy, batched, check_converged, line
from holdfast.images.model import ImageModel
from holdfast.models.scores import Outputs, to_scores
from holdfast.nn.stack import lent_generator, padded, row_block
from holdfast.retraining.loop import Loop, Orders, Variation, derived, redrawn

# of batch normalisation, as torch has them
EPS = 1e-5
MOMENTUM = 0.1


class Pool(nn.Module, ABC):
    """Several classifiers as one: images (n, c, h, w) -> log of the mean of their probabilities (n,
    k)."""

    @abstractmethod
    def each(self, x: Tensor) -> Tensor:
        """(M, n, k) the logits of every member."""

    def forward(self, x: Tensor) -> Tensor:
        return pooled(self.each(x))


def pooled(logits: Tensor) -> Tensor:
    """(M, n, k) logits of members -> (n, k) log of their mean probabilities."""
    return logits.log_softmax(2).logsumexp(0) - math.log(len(logits))


def member_logits(model: ImageModel, x: Tensor) -> Tensor:
    """(M, n, k) logits of the members of a model in eval_mode; any other model is its own
    member."""
    return model.module.each(x) if isinstance(model.module, Pool) else model(x)[None]


class Several(Pool):
    """Networks of any kind, one after the other."""

    def __init__(self, models: Sequence[ImageModel]) -> None:
        super().__init__()
        self.members = nn.ModuleList([m.module for m in models])
        self.outputs: list[Outputs] = [m.outputs for m in models]

    def each(self, x: Tensor) -> Tensor:
        return torch.stack(
            [to_scores(net(x), o) for net, o in zip(self.members, self.outputs, strict=True)]
        )


class Stacked(Pool):
    """M networks of Linear and ReLU layers in turn, one product for all of them in each layer."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.depth = len(layers)
        for i, (w, b) in enumerate(layers):
            self.register_buffer(f"weight{i}", w)  # (M, out, in)
            self.register_buffer(f"bias{i}", b)  # (M, out)
        # Products of few rows, and the remainder of many, are added up in another order.
        self.block = row_block(min(w[0].numel() for w, _ in layers))

    def each(self, x: Tensor) -> Tensor:
        rows = padded(x.flatten(1), self.block)  # (n, d), the same for all
        w, b = self._layer(0)
        # (M, n, out)
        h = F.linear(rows, w.flatten(0, 1), b.flatten()).view(len(rows), *b.shape).transpose(0, 1)
        for i in range(1, self.depth):
            w, b = self._layer(i)
            h = torch.baddbmm(b[:, None], F.relu(h), w.mT)
        return h[:, : len(x)]

    def _layer(self, i: int) -> tuple[Tensor, Tensor]:
        return self.get_buffer(f"weight{i}"), self.get_buffer(f"bias{i}")


class TrainableNetworks:
    """M networks of Linear, ReLU, BatchNorm, ..., Linear while they learn: all tensors have M in
    front."""

    def __init__(self, sizes: Sequence[int], seeds: Sequence[int]) -> None:
        self.pairs = list(itertools.pairwise(sizes))
        self.count = len(seeds)
        with lent_generator(0):  # layers draw weights when they are made
            one = architecture(sizes)
        drawn = [redrawn(one, seed) for seed in seeds]
        self.state = {name: torch.stack([tensors[name] for tensors in drawn]) for name in drawn[0]}
        self.parameters = [self.state[name].requires_grad_() for name, _ in one.named_parameters()]

    def __call__(self, x: Tensor) -> Tensor:
        """(M, n, k) logits of each member's own images (M, n, d); batches are normalised by their
        own statistics."""
        # images in the last axis: statistics are over it, and each (member, unit) is a channel
        h = x.mT
        for i in range(len(self.pairs)):
            h = torch.baddbmm(
                self.state[f"{3 * i}.bias"][:, :, None], self.state[f"{3 * i}.weight"], h
            )
            if i < len(self.pairs) - 1:
                h = self._normalised(3 * i + 2, h.relu())
        return h.mT

    def _normalised(self, layer: int, h: Tensor) -> Tensor:
        named = {name: self.state[f"{layer}.{name}"].flatten() for name in NORM}
        out = F.batch_norm(
            h.flatten(0, 1)[None],
            named["running_mean"],
            named["running_var"],
            named["weight"],
            named["bias"],
            training=True,
            momentum=MOMENTUM,
            eps=EPS,
        )
        return out.view(h.shape)

    def folded(self) -> Stacked:
        """What they compute once trained: batch normalisation is written into the layer behind it.

        W (s h + t) + b  =  (W s) h + (W t + b),      s = g / sqrt(v + e),  t = beta - m s
        """
        state = {k: v.detach() for k, v in self.state.items()}
        layers = list[tuple[Tensor, Tensor]]()
        for i in range(len(self.pairs)):
            w = state[f"{3 * i}.weight"]
            b = state[f"{3 * i}.bias"]
            if i:
                norm = {name: state[f"{3 * i - 1}.{name}"] for name in NORM}
                s = norm["weight"] / (norm["running_var"] + EPS).sqrt()
                t = norm["bias"] - norm["running_mean"] * s
                b = b + torch.bmm(w, t[:, :, None])[:, :, 0]
                w = w * s[:, None]
            layers.append((w.clone(), b.clone()))
        return Stacked(layers).eval()


NORM = ("weight", "bias", "running_mean", "running_var")


def architecture(sizes: Sequence[int]) -> nn.Sequential:
    """One member."""
    layers = list[nn.Module]()
    for a, b in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(a, b), nn.ReLU(), nn.BatchNorm1d(b, eps=EPS, momentum=MOMENTUM)]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


@dataclass(eq=False, repr=False, kw_only=True)
class ImageEnsemble(ImageClassifier):
    """Many small networks, trained together; `ImageEnsemble.of([...])` makes one of existing
    networks.

    Args:
        members: how many networks.
        hidden: sizes of their hidden layers.
        epochs, batch_size, lr: of Adam on the cross-entropy, for each member.
        attack: size of the step by which images move uphill in training; 0 trains on clean images
            alone.
        seed: weights and orders of the members are derived from it.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits(n_class=2)
    >>> images, labels = digits.images / 16, digits.target
    >>> nets = hf.images.ImageEnsemble(members=2, hidden=(16,), epochs=20).fit(images, labels)
    >>> nets.score(images, labels) > 0.9
    True
    """

    members: int = 10
    hidden: tuple[int, ...] = (80, 80)
    epochs: int = 50
    batch_size: int = 128
    lr: float = 1e-3
    attack: float = 0.15
    seed: int = 0

    @staticmethod
    def of(networks: Sequence[Any]) -> ImageModel:
        """An ensemble of classifiers of the same images and classes: `ImageModel`s, or what
        `ImageModel.of` takes."""
        models = [ImageModel.of(net) for net in networks]
        if not models:
            raise ModelError("an ensemble needs at least one network, got none")
        first = models[0]
        for i, other in enumerate(models):
            if (other.size, other.classes) != (first.size, first.classes):
                each = [f"{model.size} and {list(model.classes)}" for model in (other, first)]
                must = (
                    "members of an ensemble must take the same images and know the same classes "
                    "in the same order"
                )
                raise ModelError(f"{must}; number {i} has {each[0]}, the first {each[1]}")
        return ImageModel.of(Several(models), first.size, classes=first.classes)

    def check(self) -> None:
        for name, value in [
            ("members", self.members),
            *[("a hidden layer", h) for h in self.hidden],
        ]:
            require_integer(name, value)
        if not 0 <= self.attack <= 1:
            raise SettingError(f"attack must lie between 0 and 1, got {self.attack}")
        if not isinstance(self.seed, int):
            raise SettingError(f"seed must be an integer, got {self.seed!r}")
        if not self.loop().batch_size >= 2:
            raise SettingError(
                "batch_size must be at least 2: batches are normalised by their own spread"
            )

    def loop(self) -> Loop:
        """How the members are trained."""
        return Loop(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)

    def learnt(
        self, data: TrainingImages, bar: Progress, threads: int
    ) -> tuple[ImageModel, list[Epoch]]:
        seeds = tuple(derived(self.seed, 3 + i) for i in range(self.members))
        nets = TrainableNetworks([data.x[0].numel(), *self.hidden, len(data.names)], seeds)
        x = data.x.flatten(1)
        plan = Variation(seeds, seeds)
        with limited_threads(threads):
            history = fit_members(
                nets, x, data.y, self.loop(), plan, self.attack, data.held_out, bar
            )
        return ImageModel.of(nets.folded(), data.x.shape[1:], classes=data.names), history


def fit_members(
    nets: TrainableNetworks,
    x: Tensor,
    y: Tensor,
    loop: Loop,
    plan: Variation,
    attack: float,
    held: Held | None,
    bar: Progress,
) -> list[Epoch]:
    """Train networks on images (n, d) and their classes (n,); every member goes its own way, as if
    it were alone."""
    optimizer: Any = torch.optim.Adam(nets.parameters, lr=loop.lr, eps=loop.adam_eps, fused=True)
    orders = Orders(plan, len(x))
    history = list[Epoch]()
    count = nets.count * len(x)
    parts = batched(torch.arange(len(x)), int(loop.batch_size))
    bar.total(loop.epochs)
    for epoch in range(loop.epochs):
        # (M, n)
        loss = 0.0
        right = 0
        order = orders.next().expand(nets.count, -1)
        for part in parts:
            rows = order[:, part]
            value, hits = step(nets, optimizer, x[rows], y[rows], attack)
            loss = loss + value * len(part)
            right = right + hits
            bar.step(1 / len(parts))
        check_converged(nets.parameters, loop.lr)
        known = accuracy(nets.folded(), *held) if held else None
        history.append(Epoch(epoch + 1, loss / count, right / count, known))
        bar.say(line(history[-1]))
    return history


def step(
    nets: TrainableNetworks, optimizer: Any, x: Tensor, y: Tensor, attack: float
) -> tuple[float, int]:
    """One step on batches (M, b, d): the members' summed loss on clean images, and how many of
    those they got right.

    One pass gives the gradient by the clean images and the one by the weights.
    """
    x = x.requires_grad_(attack > 0)
    optimizer.zero_grad(set_to_none=True)
    logits = nets(x)
    loss: Any = ce(logits, y)
    (loss * (0.5 if attack else 1.0)).backward()
    if attack:
        assert x.grad is not None
        moved = (x.detach() + attack * x.grad.sign()).clamp_(0, 1)
        harder: Any = 0.5 * ce(nets(moved), y)
        harder.backward()
    optimizer.step()
    return float(loss.detach()), int((logits.detach().argmax(2) == y).sum())


def ce(logits: Tensor, y: Tensor) -> Tensor:
    """The sum over members of their mean cross-entropy, logits (M, b, k) and classes (M, b)."""
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1]
