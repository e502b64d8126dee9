"""Residual networks as estimators: images and labels in, a classifier of images out.

`SpectralResNet` is the network of DeDUCE (Höltgen et al. 2021), whose convolutions have operator
norms of at most `coefficient`; `PlainResNet` is the usual one that other methods are measured on.
The
paper's own is 64 channels wide and trains for 50 epochs (`SpectralResNet.paper()`), which asks for
a GPU; 16 channels are about 16 times cheaper.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast._core.checks import did_you_mean, listed, trained_part
from holdfast._core.params import Settings
from holdfast._core.progress import Progress, Shown
from holdfast._core.types import Outcomes
from holdfast.errors import SettingError
from holdfast.images.loop import Epoch, Schedule, fit_images
from holdfast.images.model import ImageModel, ImagesLike, as_images
from holdfast.images.resnet import Shape, folded, trainable
from holdfast.nn.stack import lent_generator
from holdfast.registry import parse_settings
from holdfast.retraining.outcomes import ClassNames, class_names, class_numbers

Labelled = tuple[Any, Any]  # images and their labels


class ImageClassifier(Settings, ABC):
    """What estimators of images share: `fit` sets `model_`, and the rest asks that."""

    model_: ImageModel
    history_: list[Epoch]

    def fit(
        self,
        images: ImagesLike,
        labels: Outcomes,
        *,
        classes: ClassNames | None = None,
        held_out: Labelled | None = None,
        progress: Shown = False,
        threads: int = 0,
    ) -> Self:
        """Train on images and their labels; the same seed gives the same model.

        Afterwards `model_` is the model with all normalisation written into its weights, and
        `history_` records the epochs. For an ensemble, loss and accuracy are means over its
        members, and accuracy on images held out is its own.

        Args:
            images: bytes, or numbers from 0 to 1, (n, h, w) or (n, c, h, w).
            labels: n names of classes, numbers or words.
            classes: the names in the order of the scores; None sorts what is in `labels`.
            held_out: images and labels to measure accuracy on after every epoch; nothing is learnt
                from them.
            progress: show a bar and a line per epoch on stderr, if it is a terminal; "lines" shows
                the lines in any case.
            threads: how many threads torch may use meanwhile; 0 keeps your setting.
        """
        self.check()
        with torch.inference_mode(False), torch.enable_grad():
            data = TrainingImages.of(images, labels, classes, held_out)
            with Progress(progress, type(self).__name__) as bar:
                self.model_, self.history_ = self.learnt(data, bar, threads)
        return self

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the settings cannot work."""

    @abstractmethod
    def learnt(
        self, data: "TrainingImages", bar: Progress, threads: int
    ) -> tuple[ImageModel, list[Epoch]]:
        """The trained model, and its epochs."""

    def predict(self, images: ImagesLike) -> NDArray[Any]:
        """The class of each image."""
        return self.fitted().predict(images)

    def score(self, images: ImagesLike, labels: Outcomes) -> float:
        """Share of images that get their class."""
        return self.fitted().accuracy(images, labels)

    @property
    def classes_(self) -> tuple[Any, ...]:
        """Names of the classes in the order of the scores."""
        return self.fitted().classes

    def fitted(self) -> ImageModel:
        """The model, once there is one."""
        return trained_part(self, "model_", ".fit(images, labels)")


@dataclass(eq=False, repr=False, kw_only=True)
class ResNetClassifier(ImageClassifier):
    """A residual network and how it is trained; see `SpectralResNet` and `PlainResNet`."""

    width: int = 16
    depth: int = 2
    stages: int = 4
    epochs: int = 5
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    drops: tuple[float, ...] = (0.5, 0.8)
    seed: int = 0

    @classmethod
    def paper(cls) -> Self:
        """The network as Höltgen et al. 2021 trained it."""
        return cls(width=64, epochs=50)

    def check(self) -> None:
        integer = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        if not integer:
            raise SettingError(f"seed must be an integer, got {self.seed!r}")
        self.schedule()
        if not self.batch_size >= 2:
            raise SettingError(
                "batch_size must be at least 2: batches are normalised by their own spread"
            )

    def schedule(self) -> Schedule:
        """The settings of the loop."""
        return Schedule(**{f.name: getattr(self, f.name) for f in fields(Schedule)})

    def learnt(
        self, data: "TrainingImages", bar: Progress, threads: int
    ) -> tuple[ImageModel, list[Epoch]]:
        _, channels, height, width = data.x.shape
        size = height if height == width else (height, width)
        bound = getattr(self, "coefficient", None)
        shape = Shape(channels, size, len(data.names), self.width, bound, self.stages, self.depth)
        with lent_generator(self.seed):
            net = trainable(shape)
        how: dict[str, Any] = {"held": data.held_out, "seed": self.seed, "threads": threads}
        history = fit_images(net, data.x, data.y, self.schedule(), bar=bar, **how)
        return ImageModel.of(folded(net), classes=data.names), history

    def save(self, path: str | Path) -> None:
        """Write the trained network to a file; `ImageModel.load` reads it."""
        self.fitted().save(path)


@dataclass(eq=False, repr=False, kw_only=True)
class SpectralResNet(ResNetClassifier):
    """A residual network whose convolutions have bounded operator norms, so near features mean near
    images.

    Args:
        coefficient: bound of the operator norms; batch normalisation and the last layer are not
            bounded.
        width: channels of the first stage, doubled from stage to stage; depth: blocks of a stage;
            stages: how many.
        epochs, batch_size, lr, momentum, weight_decay: of stochastic gradient descent on the
            cross-entropy.
        drops: shares of the training after which the step is divided by 10.
        seed: weights and the order of the images are drawn from it.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits(n_class=2)
    >>> net = hf.images.SpectralResNet(width=4, stages=1, epochs=5, batch_size=32)
    >>> net = net.fit(digits.images / 16, digits.target)
    >>> net.score(digits.images / 16, digits.target) > 0.9
    True

    Paper: hoeltgen2021 Networks.
    """

    coefficient: float = 4.0


@dataclass(eq=False, repr=False, kw_only=True)
class PlainResNet(ResNetClassifier):
    """The usual residual network: a wide stem with stride and pooling, ReLU, and no bound on
    anything.

    Args:
        width, depth, stages, epochs, batch_size, lr, momentum, weight_decay, drops, seed: see
            `SpectralResNet`.

    >>> import holdfast as hf
    >>> hf.images.PlainResNet.paper()
    PlainResNet(width=64, epochs=50)

    Paper: hoeltgen2021 Networks.
    """


NETWORKS: dict[str, type[ResNetClassifier]] = {"spectral": SpectralResNet, "plain": PlainResNet}


def network_by_name(kind: str, assignments: Sequence[str], seed: int = 0) -> ResNetClassifier:
    """A network to be trained, "spectral" or "plain", with settings such as 'epochs=20'."""
    if kind not in NETWORKS:
        raise SettingError(f"unknown --kind {kind!r}; {did_you_mean(kind, NETWORKS)}")
    cls = NETWORKS[kind]
    known = [f.name for f in fields(cls) if f.name != "seed"]  # seed is an argument here
    return cls(**parse_settings(cls, f"a {kind} network", known, assignments), seed=seed)


Held = tuple[Tensor, Tensor]  # images held out, and the numbers of their classes


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """Images to learn from, what they show, as numbers and by name, and images held out."""

    x: Tensor
    y: Tensor  # (n,) numbers of their classes
    names: list[Any]
    held_out: Held | None

    @classmethod
    def of(
        cls,
        images: ImagesLike,
        labels: Outcomes,
        classes: ClassNames | None,
        held_out: Labelled | None,
    ) -> "TrainingImages":
        x = as_images(images)
        names, y = encoded(labels, len(x), classes)
        if held_out is None:
            return cls(x, y, names, None)
        more = as_images(held_out[0], (x.shape[1], x.shape[2], x.shape[3]))
        return cls(x, y, names, (more, places(held_out[1], names, len(more))))


def encoded(
    labels: Outcomes, n: int, classes: ClassNames | None = None
) -> tuple[list[Any], Tensor]:
    """The names of the classes, sorted unless they are given in an order, and the number of each
    label (n,)."""
    given = _one_each(labels, n)
    if not n >= 2:
        raise SettingError(f"a classifier needs at least 2 images, got {n}")
    if classes is not None:
        column = pd.Series(given)
        ordered = class_names(column.to_frame(), column, classes)
        return ordered, class_numbers(column, ordered)
    try:
        names, numbers = np.unique(given, return_inverse=True)
    except TypeError:
        kinds = sorted({type(v).__name__ for v in given.tolist()})
        raise SettingError(
            f"labels must be of one kind to be put in order, got {listed(kinds)}"
        ) from None
    if len(names) < 2:
        raise SettingError(
            f"a classifier needs at least 2 classes, but every label is {names.tolist()[0]!r}"
        )
    return names.tolist(), torch.as_tensor(numbers)


def places(labels: Outcomes, classes: list[Any], n: int) -> Tensor:
    """The number (n,) of each label among known classes."""
    known = {name: i for i, name in enumerate(classes)}
    given = _one_each(labels, n).tolist()
    strange = [label for label in dict.fromkeys(given) if label not in known]
    if strange:
        raise SettingError(
            f"no image to learn from has the label {strange[0]!r}; "
            f"{did_you_mean(strange[0], classes)}"
        )
    return torch.tensor([known[label] for label in given], dtype=torch.int64)


def _one_each(labels: Outcomes, n: int) -> NDArray[Any]:
    """(n,) labels, none missing."""
    given = np.asarray(labels)
    if given.shape != (n,):
        raise SettingError(f"expected one label per image, ({n},) in all, got shape {given.shape}")
    missing = np.asarray(pd.isna(given))
    if missing.any():
        raise SettingError(
            f"{int(missing.sum())} labels are missing, the first at place {int(missing.argmax())}"
        )
    return given
