"""Classifiers of images: a batch of images in, class scores and the features behind them out.

Any torch classifier works. Its features are what a named layer returns, averaged over places if it
is a map; the residual networks of `holdfast.images.resnet` know theirs. As for tables, scores are
logits.
"""

import hashlib
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Union, cast

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from holdfast._core.checks import did_you_mean
from holdfast._core.rows import RowBlocks, chunks
from holdfast._core.types import Outcomes
from holdfast.errors import HoldfastError, ModelError, SettingError
from holdfast.images._stored import Size as Size
from holdfast.images._stored import filled, laid_out, part_of, read_network, write_network
from holdfast.images._stored import holds_images as holds_images
from holdfast.images.resnet import ResNet, Shape
from holdfast.models.density import FeatureDensity, HasImageModel
from holdfast.models.scores import Outputs, looks_like_probabilities, to_scores

# bytes from 0 to 255, or numbers from 0 to 1: (n, h, w) or (n, c, h, w)
ImagesLike = npt.ArrayLike | Tensor
ImageModelLike = Union["ImageModel", nn.Module, HasImageModel]  # what `ImageModel.of` takes
# weights on features (n, f) and scores (n, k) -> gradient by images
Pull = Callable[[Tensor | None, Tensor], Tensor]
BATCH = 500  # images that are only scored at once


def as_images(images: ImagesLike, size: Size | None = None) -> Tensor:
    """Images (n, c, h, w) with values from 0 to 1 in single precision, copied.

    Args:
        images: bytes from 0 to 255, or numbers from 0 to 1; an array or tensor (n, h, w) or (n, c,
            h, w).
        size: what each image must be, if known.
    """
    # the result can be differentiated by, wherever this is called
    with torch.inference_mode(False), torch.no_grad():
        return _checked(images if isinstance(images, Tensor) else _from_array(images), size)


def _from_array(images: ImagesLike) -> Tensor:
    """Any array as a tensor: read-only, flipped, or with bytes in another order."""
    try:
        array: NDArray[Any] = np.asarray(images)
    except ValueError:
        raise SettingError(
            "these images do not form one array; are they of different sizes?"
        ) from None
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise SettingError(
            f"images are bytes (uint8) or numbers between 0 and 1, got {array.dtype}; cast them "
            "first"
        )
    if array.dtype != np.uint8:
        with np.errstate(over="ignore"):  # inf is refused like any other number above 1
            array = array.astype(np.float32, copy=False)
    return torch.as_tensor(np.require(array, requirements=["C", "W"]))


def _checked(x: Tensor, size: Size | None) -> Tensor:
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4:
        shapes = "(n, height, width) or (n, channels, height, width)"
        raise SettingError(f"expected images of shape {shapes}, got {tuple(x.shape)}")
    if size is not None and tuple(x.shape[1:]) != size:
        raise SettingError(
            f"expected images of {words(size)}, got {words(cast(Size, tuple(x.shape[1:])))}"
        )
    if x.dtype == torch.uint8:
        return x.detach().float() / 255
    if not x.is_floating_point():
        raise SettingError(
            f"images are bytes (uint8) or numbers between 0 and 1, got {x.dtype}; cast them first"
        )
    x = x.detach().float().clone()
    if x.numel() and not (float(x.min()) >= 0 and float(x.max()) <= 1):
        low = float(x.min())
        high = float(x.max())
        if low != low:
            raise SettingError(f"{int(x.isnan().sum())} values of the images are non-finite (NaN)")
        raise SettingError(
            f"images must have values between 0 and 1, got {low:g} to {high:g}; divide them by 255?"
        )
    return x


def words(size: Size) -> str:
    """'1 x 28 x 28'"""
    return " x ".join(map(str, size))


def padded(x: Tensor) -> Tensor:
    """`x` with black images appended, so that convolutions give each image the same bits in any
    batch.

    Kernels treat single images, and the remainder when a batch is shared out among threads, in
    another order; for products of matrices see `RowBlocks`.
    """
    missing = -len(x) % max(4, 2 * torch.get_num_threads())
    return x if missing == 0 else torch.cat([x, x.new_zeros(missing, *x.shape[1:])])


class ImageModel:
    """A classifier of images with the names of its classes. Build it with `ImageModel.of(...)`.

    >>> import holdfast as hf
    >>> from torch import nn
    >>> module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> names = ["cat", "dog", "fox"]
    >>> model = hf.images.ImageModel.of(module, (1, 8, 8), features="2", classes=names)
    >>> model.classes, model.feature_count
    (('cat', 'dog', 'fox'), 16)
    """

    def __init__(
        self,
        module: nn.Module,
        size: Size,
        *,
        layer: str | None,
        classes: Sequence[Any] | None,
        outputs: Outputs,
        coefficient: float | None,
    ) -> None:
        self.module = module
        self.size = size
        self.layer = layer
        self.outputs: Outputs = outputs
        # bound of the convolutions' operator norms, if they have one
        self.coefficient = coefficient
        self.density: FeatureDensity | None = None  # of its features, if its file has them
        self._seen: list[Tensor] = []
        with self.eval_mode():
            z, scores = self._probe()
        self.feature_count = 0 if z is None else z.shape[1]
        k = scores.shape[1]
        names = list(range(k)) if classes is None else list(classes)
        if len(names) != k or len(set(names)) != k:
            raise ModelError(
                f"the model has {k} classes, so it needs {k} different names, got {names}"
            )
        self.classes = tuple(cast(Any, c).item() if isinstance(c, np.generic) else c for c in names)

    @staticmethod
    def of(
        module: Any,
        size: Size | Sequence[int] | None = None,
        *,
        features: str | None = None,
        classes: Sequence[Any] | None = None,
        outputs: Outputs = "logits",
    ) -> "ImageModel":
        """Wrap a torch classifier of images.

        Args:
            module: a `torch.nn.Module` from images (n, c, h, w) with values from 0 to 1 to (n, k);
                or anything with a `model_`, such as a fitted `SpectralResNet`.
            size: channels, height and width of an image; our own networks know theirs.
            features: the name of the layer whose outputs are the features, as in
                `dict(module.named_modules())`; only methods that look at the density of features
                need it.
            classes: names of the classes in the order of the scores; by default 0, 1, 2, ...
            outputs: what the module returns, "logits" (log-probabilities count as such) or
                "probabilities".
        """
        # What is wrapped already, or holds a model, comes back as it is, so every function can take
        # a module, an estimator or a model alike.
        if isinstance(module, ImageModel):
            return module
        own = getattr(module, "model_", None)
        if isinstance(own, ImageModel):
            return own
        if not isinstance(module, nn.Module):
            name = type(module).__name__
            fitted = "; call .fit(images, labels) first" if hasattr(module, "fit") else ""
            raise ModelError(f"expected a torch module that classifies images, got {name}{fitted}")
        if isinstance(module, ResNet):
            size = module.shape.channels, *module.shape.sides
            bound = module.shape.coefficient
            return ImageModel(
                module, size, layer=None, classes=classes, outputs="logits", coefficient=bound
            )
        if size is None or len(size) != 3 or not all(isinstance(s, int) and s >= 1 for s in size):
            raise ModelError(f"size must say channels, height and width of an image, got {size}")
        if outputs not in ("logits", "probabilities"):
            raise ModelError(f"outputs must be 'logits' or 'probabilities', got {outputs!r}")
        known: dict[str, nn.Module] = dict(cast(Any, module).named_modules())
        if features is not None and (features not in known or not features):
            raise ModelError(
                f"the module has no layer {features!r}; "
                f"{did_you_mean(features, [k for k in known if k])}"
            )
        c, h, w = size
        return ImageModel(
            module, (c, h, w), layer=features, classes=classes, outputs=outputs, coefficient=None
        )

    @property
    def has_features(self) -> bool:
        """Is it known which layer has the features?"""
        return self.layer is not None or isinstance(self.module, ResNet)

    def _probe(self) -> tuple[Tensor | None, Tensor]:
        """Features and scores of a few grey images, or an error that says what does not fit."""
        # Here a misfit is named in words; in a search it would be a shape error from somewhere
        # inside torch.
        x = torch.linspace(0, 1, 8)[:, None, None, None].expand(8, *self.size).contiguous()
        try:
            z, raw = self._forward(x)
        except HoldfastError:
            raise
        except Exception as error:
            raise ModelError(
                f"the module cannot take images of {words(self.size)}: {error}"
            ) from error
        if not isinstance(raw, Tensor):
            raise ModelError(
                f"the module returns a {type(raw).__name__}, expected a tensor of scores (n, k)"
            )
        if z is not None and len(z) != 8:
            raise ModelError(
                f"layer {self.layer!r} returns {len(z)} rows for 8 images, expected one per image"
            )
        if raw.ndim != 2 or len(raw) != 8 or raw.shape[1] < 2:
            raise ModelError(
                f"the module maps 8 images to shape {tuple(raw.shape)}, expected (8, k) with k >= 2"
            )
        if not bool(raw.isfinite().all()):
            raise ModelError(
                "the module returned non-finite scores; look for NaN or inf in its weights"
            )
        if self.outputs == "logits" and looks_like_probabilities(raw):
            raise ModelError(
                "the module's outputs look like probabilities; pass outputs='probabilities'"
            )
        if self.outputs == "probabilities" and not bool(((raw >= 0) & (raw <= 1 + 1e-6)).all()):
            raise ModelError(
                "outputs='probabilities', but the module returned values outside [0, 1]"
            )
        return z, to_scores(raw, self.outputs)

    def _forward(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        with RowBlocks():
            if isinstance(self.module, ResNet):
                z = self.module.features(x)
                return z, self.module.head(z)
            raw = self.module(x.clone())  # modules may normalise in place
        if self.layer is None:
            return None, raw
        hint = "features must come from one that it uses"
        if not self._seen:
            raise ModelError(f"the module does not use its layer {self.layer!r}; {hint}")
        return self._seen.pop(), raw

    def _hook(self, _: nn.Module, __: Any, out: Any) -> None:
        """Keep what the layer returns, but not the tensor itself, which the next layer may change
        in place."""
        if not isinstance(out, Tensor) or out.ndim not in (2, 4):
            what = (
                f"shape {tuple(out.shape)}"
                if isinstance(out, Tensor)
                else f"a {type(out).__name__}"
            )
            raise ModelError(
                f"layer {self.layer!r} returns {what}, expected (n, f) or a map (n, f, height, "
                "width)"
            )
        self._seen = [out.clone() if out.ndim == 2 else out.flatten(2).mean(2)]

    @contextmanager
    def eval_mode(self) -> Generator[None]:
        """The module ready to be evaluated many times, and handed back exactly as it was."""
        training = {m: m.training for m in self.module.modules()}
        wanted = [p for p in self.module.parameters() if p.requires_grad]
        hook = (
            None
            if self.layer is None
            else self.module.get_submodule(self.layer).register_forward_hook(self._hook)
        )
        try:
            self.module.eval()
            for p in wanted:
                p.requires_grad_(False)
            with torch.inference_mode(False), torch.no_grad():
                yield
        finally:
            if hook is not None:
                hook.remove()
            self._seen = []
            for p in wanted:
                p.requires_grad_(True)
            for m, mode in training.items():
                m.training = mode

    # What follows is for a model in eval_mode.

    def __call__(self, x: Tensor) -> Tensor:
        """Scores (n, k) of images; differentiable by them where gradients are on."""
        return to_scores(self._forward(padded(x))[1], self.outputs)[: len(x)]

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (n, f) and scores (n, k)."""
        z, raw = self._forward(padded(x))
        if z is None:
            hint = "Wrap the module: hf.images.ImageModel.of(module, size, features=NAME)"
            raise ModelError(f"which layer has the features? {hint}")
        return z[: len(x)], to_scores(raw, self.outputs)[: len(x)]

    def vjp(self, x: Tensor) -> tuple[Tensor | None, Tensor, Pull]:
        """Features, scores, and the function from weights on both to gradients by the images."""
        n = len(x)
        rows = padded(x).detach().requires_grad_()
        with torch.enable_grad():
            z, raw = self._forward(rows)
            scores = to_scores(raw, self.outputs)

        def pull(by_features: Tensor | None, by_scores: Tensor) -> Tensor:
            outs = [scores]
            weights = [_fill(by_scores, scores)]
            if by_features is not None:
                outs = [*outs, cast(Tensor, z)]
                weights = [*weights, _fill(by_features, cast(Tensor, z))]
            return torch.autograd.grad(outs, rows, weights)[0][:n]

        return None if z is None else z.detach()[:n], scores.detach()[:n], pull

    # ---- for everybody

    def scores(self, images: ImagesLike) -> Tensor:
        """Scores (n, k) of any number of images."""
        return self._in_parts(images, self)

    def features(self, images: ImagesLike) -> Tensor:
        """Features (n, f) of any number of images."""
        return self._in_parts(images, lambda x: self.both(x)[0])

    def _in_parts(self, images: ImagesLike, of: Callable[[Tensor], Tensor]) -> Tensor:
        x = as_images(images, self.size)
        with self.eval_mode():
            if not len(x):  # not every module takes an empty batch
                return of(x.new_zeros(1, *self.size))[:0]
            return torch.cat([of(x[rows]) for rows in chunks(torch.arange(len(x)), BATCH)])

    def predict(self, images: ImagesLike) -> NDArray[Any]:
        """The class of each image."""
        # numpy would make strings of numbers
        mixed = len({isinstance(c, str) for c in self.classes}) > 1
        names: NDArray[Any] = np.array(self.classes, dtype=object if mixed else None)
        return names[self.scores(images).argmax(1).numpy()]

    def accuracy(self, images: ImagesLike, labels: Outcomes) -> float:
        """Share of images that get their class."""
        predicted = self.predict(images)
        given = np.asarray(labels)
        if predicted.shape != given.shape or not len(predicted):
            raise SettingError(
                f"accuracy needs images and one label for each, got {len(predicted)} and "
                f"{given.shape}"
            )
        return float((predicted == given).mean())

    def place(self, label: Any) -> int:
        """The number of a class."""
        for i, known in enumerate(self.classes):
            if known == label and isinstance(known, str) == isinstance(label, str):
                return i
        raise SettingError(f"the model has no class {label!r}; {did_you_mean(label, self.classes)}")

    def fingerprint(self) -> str:
        """A short hash of what the model computes, for provenance."""
        shape = self.module.shape if isinstance(self.module, ResNet) else ""
        about = f"{self.module} {shape} {self.size} {self.outputs} {self.classes} {self.layer}"
        digest = hashlib.sha256(about.encode())
        for name, value in sorted(self.module.state_dict().items()):
            raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(name.encode() + raw.numpy().tobytes())
        return digest.hexdigest()[:16]

    def save(self, path: str | Path, *, density: FeatureDensity | None = None) -> None:
        """Tensors, architecture and class names in one safetensors file that runs no code; residual
        networks only.

        Args:
            density: also keep these densities of the features, so that DeDUCE needs no training
                images; by default those in `density`, if there are any.
        """
        if not isinstance(self.module, ResNet):
            name = type(self.module).__name__
            raise ModelError(
                f"only our residual networks can be saved, not a {name}; save its state_dict "
                "yourself"
            )
        hint = "save what `holdfast.images.resnet.folded` makes of it"
        if not isinstance(self.module.stem, nn.Conv2d):
            raise ModelError(f"this network is still to be trained; {hint}")
        tensors = {f"net.{k}": v for k, v in self.module.state_dict().items()}
        content = {"shape": self.module.shape.to_dict(), "classes": list(self.classes)}
        density = density or self.density
        if density is not None:
            tensors |= {DENSITY + k: v for k, v in density.tensors().items()}
        write_network(path, tensors, content)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "ImageModel":
        """Read what `save` wrote."""
        return read_network(path, _built)


DENSITY = "density."


def _built(content: dict[str, Any], tensors: dict[str, Tensor]) -> ImageModel:
    """The model of a file."""
    shape = Shape(**content["shape"])
    net = laid_out(filled(lambda: ResNet(shape), part_of(tensors, "net.")))
    model = ImageModel.of(net, classes=content["classes"])
    kept = part_of(tensors, DENSITY)
    model.density = FeatureDensity.from_tensors(model, kept) if kept else None
    return model


def _fill(weights: Tensor, like: Tensor) -> Tensor:
    """Weights, with zero rows for the images that fill up a batch."""
    return nn.functional.pad(weights.to(like.dtype), (0, 0, 0, len(like) - len(weights)))
