"""Where a model's features are at home: one Gaussian per class.

    p_c = N(mu_c, Sigma_c)    mean and 1/(n - 1) covariance of the features of class c, in double
                              precision
    ld_c(z) = log p_c(z) = -1/2 |L_c^-1 (z - mu_c)|^2 - sum_i log (L_c)_ii - f/2 log 2 pi
    Sigma_c = L_c L_c^T

Mukhoti et al. 2021 (deep deterministic uncertainty). Features of small networks do not span their
space, so jitter is added to the diagonal: 1e-6 of its mean, doubled until every class has a
Cholesky factor; `jitter` keeps it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from holdfast._core.checks import listed, untyped
from holdfast._core.rows import chunks, pad_rows, rows_per_chunk
from holdfast.errors import ModelError, SettingError
from holdfast.models.base import Model
from holdfast.models.torch_model import TorchModel
from holdfast.nn.architecture import flat_layers

if TYPE_CHECKING:
    from holdfast._core.types import Outcomes
    from holdfast.counterfactuals import Counterfactuals
    from holdfast.images.model import ImageModel
    from holdfast.images.result import ImageCounterfactuals

Examples = pd.DataFrame | Tensor | npt.ArrayLike  # rows of a table, their encoding, or images
JITTER = 1e-6
MOST_DOUBLINGS = 40
CELLS = 1 << 25  # numbers held at once


@dataclass(frozen=True, eq=False)
class Gaussians:
    """One Gaussian per class, as numbers (k classes, f features)."""

    mean: Tensor  # (k, f)
    whiten: Tensor  # (k, f, f) inverse Cholesky factors
    constant: Tensor  # (k,) log-density at the mean
    jitter: float  # what was added to the diagonals

    @classmethod
    @torch.inference_mode(False)
    @torch.no_grad()
    def of(cls, z: Tensor, labels: Tensor, k: int) -> "Gaussians":
        """Fit to features (n, f) of classes (n,)."""
        z = z.detach().double()
        if z.ndim != 2 or len(z) != len(labels):
            raise SettingError(
                f"features {tuple(z.shape)} and labels {tuple(labels.shape)} do not belong together"
            )
        if not z.isfinite().all():
            raise SettingError(
                "some features are non-finite; look for NaN or inf in the model or the data"
            )
        counts = torch.bincount(labels, minlength=k)
        f = z.shape[1]
        few = int(counts.min())
        worst = int(counts.argmin())
        if not few >= 2:
            raise SettingError(f"class number {worst} has {few} rows; a Gaussian needs 2")
        mean = z.new_zeros(k, f).index_add_(0, labels, z) / counts[:, None]
        factor, jitter = _cholesky(
            torch.stack([torch.cov(z[labels == c].T).reshape(f, f) for c in range(k)])
        )
        eye = torch.eye(f, dtype=torch.float64).expand(k, -1, -1)
        whiten: Tensor = untyped("torch").linalg.solve_triangular(factor, eye, upper=False)
        constant = -factor.diagonal(0, 1, 2).log().sum(1) - f / 2 * math.log(2 * math.pi)
        return cls(mean, whiten.contiguous(), constant, jitter)

    def __len__(self) -> int:
        return len(self.mean)

    def of_class(self, z: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """ld (n,) of features (n, f) under the Gaussians of their classes (n,), and its gradient by
        them (n, f)."""
        size = rows_per_chunk(self.mean.shape[1] ** 2, CELLS, at_least=2)
        parts = [
            self._of_class(z[r], label[r]) for r in chunks(torch.arange(len(z)), size) or [slice(0)]
        ]
        return torch.cat([ld for ld, _ in parts]), torch.cat([by for _, by in parts])

    def _of_class(self, z: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        if len(z) == 1:  # a single product is added up in another order than one of many
            ld, by = self._of_class(z.expand(2, -1), label.expand(2))
            return ld[:1], by[:1]
        whiten = self.whiten[label]  # (n, f, f)
        y = torch.bmm(whiten, (z.double() - self.mean[label])[:, :, None])  # (n, f, 1)
        ld = self.constant[label] - 0.5 * y.square().sum((1, 2))
        return ld, -torch.bmm(y.transpose(1, 2), whiten).squeeze(1)

    def each(self, z: Tensor) -> Tensor:
        """(n, k) log-densities under every class."""
        parts = list[Tensor]()
        for rows in chunks(z, 128) or [z]:
            d = pad_rows(rows).double()[None] - self.mean[:, None]  # (k, b, f)
            # One product after the other: a small product of stacks is computed in another way,
            # with other last bits.
            y = torch.stack([by_class @ w.T for by_class, w in zip(d, self.whiten, strict=True)])
            parts.append((self.constant[:, None] - 0.5 * y.square().sum(2)).T[: len(rows)])
        return torch.cat(parts)

    def mixture(self, z: Tensor) -> Tensor:
        """(n,) log p(z); the lower, the less the model knows about the row."""
        return torch.logsumexp(self.each(z), 1) - math.log(len(self))


def _cholesky(spread: Tensor) -> tuple[Tensor, float]:
    """Factors of covariances (k, f, f), and the jitter that made them possible."""
    scale = float(spread.diagonal(0, 1, 2).mean())
    eye = torch.eye(spread.shape[1], dtype=spread.dtype)
    jitter = JITTER * (scale if scale > 0 else 1.0)
    for _ in range(MOST_DOUBLINGS):
        factor, failed = untyped("torch").linalg.cholesky_ex(spread + jitter * eye)
        if not bool(failed.any()):
            return factor, jitter
        jitter *= 2
    raise SettingError("the features have no usable covariance, whatever is added to its diagonal")


class HasImageModel(Protocol):
    """A fitted network of images."""

    model_: "ImageModel"


class FeatureDensity:
    """How much at home rows or images are among the features a model has seen: a plausibility
    metric, and a flag.

        log p(z) = log 1/k sum_c N(z; mu_c, Sigma_c)        z: the features of a row or image

    Features are what the last layer of an `nn.Sequential` sees, or the features of an `ImageModel`;
    for any other model of tables they are the encoded rows. As a metric, an answer is scored under
    the wanted class.

    Args:
        model: the model whose features are used, or a fitted network of images.
        strange_below: a row or image is called strange if its density is below that of all but this
        share of the data.

    Example:
        >>> import holdfast as hf
        >>> data = hf.datasets.moons()
        >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=2)
        >>> density = hf.FeatureDensity(model).fit(data.X, data.y)
        >>> far = data.X.head(2) + 100.0
        >>> bool(density.strange(far).all())
        True

    Paper: hoeltgen2021 Section 2.2 DDU.
    """

    higher_is_better = True

    def __init__(
        self, model: "Model | ImageModel | HasImageModel", *, strange_below: float = 0.01
    ) -> None:
        if not 0 < strange_below < 1:
            raise SettingError(
                f"strange_below must be a share of the data between 0 and 1, got {strange_below}"
            )
        self.model = model if isinstance(model, Model) else _image_model(model)
        self.strange_below = strange_below

    def fit(self, X: Examples, y: "Outcomes") -> "FeatureDensity":
        """Fit the Gaussians to n rows or images and their n classes."""
        classes = self.model.classes
        given = np.asarray(cast(Any, y))
        if given.ndim != 1:
            raise SettingError(f"y must have one class per row or image, got shape {given.shape}")
        place = {name: i for i, name in enumerate(classes)}
        for label in dict.fromkeys(given.tolist()):
            if label not in place:
                raise SettingError(f"the model has no class {label!r}; it has {list(classes)}")
        labels = torch.tensor([place[label] for label in given.tolist()], dtype=torch.int64)
        z = self.features(X)
        counts = torch.bincount(labels, minlength=len(classes))
        if int(counts.min()) < 2:
            raise SettingError(
                f"class {classes[int(counts.argmin())]!r} has {int(counts.min())} rows; every "
                "class of the model needs 2 to have a Gaussian"
            )
        self.gaussians_ = Gaussians.of(z, labels, len(place))
        self.limit_ = float(torch.quantile(self.gaussians_.mixture(z), self.strange_below))
        return self

    def features(self, X: Examples) -> Tensor:
        """(n, f) what the model makes of rows or images before its last layer."""
        if not isinstance(self.model, Model):
            return self.model.features(X)
        x = (
            X
            if isinstance(X, Tensor)
            else self.model.schema.encode(cast(pd.DataFrame, X), self.model.dtype)
        )
        layers = flat_layers(self.model.module) if isinstance(self.model, TorchModel) else []
        last = max((i for i, layer in enumerate(layers) if isinstance(layer, nn.Linear)), default=0)
        with self.model.eval_mode():
            return nn.Sequential(*layers[:last])(pad_rows(x))[: len(x)].double()

    def log_density(self, X: Examples) -> "pd.Series[float]":
        """log p(z) of each row or image."""
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.Series(self._fitted().mixture(self.features(X)).numpy(), index=index)

    def strange(self, X: Examples) -> "pd.Series[bool]":
        """Which rows or images are less at home than all but `strange_below` of the data."""
        return self.log_density(X) < self.limit_

    def __call__(self, cfs: "Counterfactuals | ImageCounterfactuals") -> "pd.Series[float]":
        """The metric: log-density of each answer under the wanted class; missing without an
        answer."""
        ld, _ = self._fitted().of_class(self.features(cfs.x_cf), cfs.goal.wanted(cfs.scores))
        index = getattr(getattr(cfs, "after", None), "index", None)  # images have no table
        return pd.Series(ld.numpy(), index=index).where(cfs.found)

    def tensors(self) -> dict[str, Tensor]:
        """What was learnt, by name, for a file."""
        g = self._fitted()
        numbers = torch.tensor([g.jitter, self.strange_below, self.limit_], dtype=torch.float64)
        return {"mean": g.mean, "whiten": g.whiten, "constant": g.constant, "numbers": numbers}

    @classmethod
    def from_tensors(
        cls, model: "Model | ImageModel", tensors: Mapping[str, Tensor]
    ) -> "FeatureDensity":
        """The density that `tensors` came from, for the model it was fitted to."""
        # A file may hold anything: nothing is computed before it fits.
        if set(tensors) != {"mean", "whiten", "constant", "numbers"}:
            raise SettingError(f"these are not the tensors of a density: {listed(sorted(tensors))}")
        mean = tensors["mean"].double()
        whiten = tensors["whiten"].double()
        constant = tensors["constant"].double()
        k, f = mean.shape if mean.ndim == 2 else (0, 0)
        sizes_fit = (
            whiten.shape == (k, f, f)
            and constant.shape == (k,)
            and tensors["numbers"].shape == (3,)
        )
        finite = all(bool(t.isfinite().all()) for t in tensors.values())
        if not (k and sizes_fit and finite):
            raise SettingError("the tensors of the density do not fit each other")
        jitter, strange_below, limit = (float(v) for v in tensors["numbers"])
        density = cls(model, strange_below=strange_below)
        classes = len(density.model.classes)
        features = getattr(density.model, "feature_count", f)
        if (k, f) != (classes, features):
            raise SettingError(
                f"the density has {k} classes and {f} features, the model {classes} and {features}"
            )
        density.gaussians_ = Gaussians(mean, whiten, constant, jitter)
        density.limit_ = limit
        return density

    def _fitted(self) -> Gaussians:
        if not hasattr(self, "gaussians_"):
            raise SettingError("this density has not been fitted; call .fit(X, y) first")
        return self.gaussians_


def _image_model(model: Any) -> "ImageModel":
    """An image model, or the one that a fitted network has."""
    net = getattr(model, "model_", model)
    if not hasattr(net, "has_features"):
        fitted = (
            " that has seen no images; call .fit(images, labels) first"
            if hasattr(model, "fit")
            else ""
        )
        raise ModelError(
            f"expected a hf.Model or a hf.images.ImageModel, got a {type(model).__name__}{fitted}"
        )
    if not net.has_features:
        raise ModelError(
            "which layer has the features? Use hf.images.ImageModel.of(module, size, features=NAME)"
        )
    return net
