"""AnoGAN: how far an image is from the nearest one that a GAN of the training images can generate.

Schlegl et al., "Unsupervised Anomaly Detection with Generative Adversarial Networks to Guide Marker
Discovery", 2017; as a score of realism by Höltgen et al. 2021 (DeDUCE).

    A(x) = min_z  |G(z) - x|_1 + weight |f_D(G(z)) - f_D(x)|_1

with sums over pixels and features, and weight = 0.1.

The lower, the more the image looks like those the GAN was trained on. The minimum is sought by
descent from several z ~ N(0, I), and the least of the final losses counts. The search is rough, so
two runs from different points differ: report the spread. In the authors' code the step that falls
tenfold near the end of a descent stays that small in the next one, so all but the first hardly
move; here every restart has the whole schedule, as all descend side by side.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, get_args

import torch
from torch import Tensor

from holdfast._core.checks import require_integer
from holdfast._core.params import Settings
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import chunks, limited_threads
from holdfast.errors import SettingError
from holdfast.images.model import ImagesLike, as_images

Optimizer = Literal["sgd", "adam"]


class Gan(Protocol):
    """What is asked of a GAN; `WGAN` is one. Both functions are differentiable and treat each row
    on its own."""

    latent: int

    def generate(self, z: Tensor) -> Tensor: ...
    def critic_features(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class AnoGANScores:
    """What the search found for n images."""

    score: Tensor  # (n,) A(x), the lower the more real
    losses: Tensor  # (n, restarts) the final loss of every descent
    # (n, latent) where the least of them was found: generate(z) is the image's nearest relative
    z: Tensor

    @property
    def spread(self) -> Tensor:
        """(n,) how far apart the final losses are."""
        return self.losses.amax(1) - self.losses.amin(1)


@dataclass(eq=False, repr=False, kw_only=True)
class AnoGAN(Settings):
    """How the nearest image is searched for; the defaults are those of Höltgen et al. 2021, with 5
    restarts for their 3.

    Args:
        steps: of each descent.
        lr: the step.
        restarts: how many latent points each image starts from.
        weight: of the critic's features.
        optimizer: "sgd" (plain gradient descent), or "adam".
        drop: share of the steps after which the step is divided by 10.
        batch_size: latent points that are moved at once, which bounds the memory; scores do not
            depend on it.
        seed: starting points are derived from it and the contents of each image, nothing else.
    """

    steps: int = 4000
    lr: float = 0.03
    restarts: int = 5
    weight: float = 0.1
    optimizer: Optimizer = "sgd"
    drop: float = 0.8
    batch_size: int = 120
    seed: int = 0

    @classmethod
    def fast(cls) -> Self:
        """Few, large steps of Adam: a twelfth of the time of three descents as in the paper, and
        scores as low.

        On 20 digits and a WGAN of 400 updates the mean score was 17.36, and 17.43 with the paper's
        4000 steps; descents of the same image ended 0.4 apart in both, so more restarts bring
        little.
        """
        return cls(steps=300, lr=0.3, restarts=3, optimizer="adam")

    def check(self) -> None:
        """Raise an error if the settings cannot work."""
        for name in ("steps", "restarts", "batch_size"):
            require_integer(name, getattr(self, name))
        if not 0 < self.lr < math.inf:
            raise SettingError(f"lr must be positive, got {self.lr}")
        if not 0 <= self.weight < math.inf:
            raise SettingError(f"weight must be at least 0, got {self.weight}")
        if not 0 < self.drop <= 1:
            raise SettingError(
                f"drop must be a share of the steps between 0 and 1, got {self.drop}"
            )
        known = get_args(Optimizer)
        if self.optimizer not in known:
            raise SettingError(
                f"optimizer must be one of {', '.join(known)}, got {self.optimizer!r}"
            )


def anogan_score(
    gan: Gan,
    images: ImagesLike,
    settings: AnoGAN | None = None,
    *,
    progress: bool = False,
    threads: int = 0,
) -> AnoGANScores:
    """A(x) of every image.

    Args:
        gan: a fitted `WGAN`, or anything with its `latent`, `generate` and `critic_features`.
        images: bytes, or numbers from 0 to 1, (n, h, w) or (n, c, h, w).
        settings: how to search; by default `AnoGAN.fast()`. The paper's own are `AnoGAN()`.
        progress: show a bar on stderr.
        threads: how many threads torch may use meanwhile; 0 keeps your setting.

    Paper: hoeltgen2021 Metric AGAN.
    """
    how = settings or AnoGAN.fast()
    how.check()
    x = as_images(images, getattr(gan, "size_", None))
    random = RowRandom.of(how.seed, x)
    r = how.restarts
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        limited_threads(threads),
        Progress(progress, "AnoGAN") as bar,
    ):
        # An image gets the same starting points however many restarts there are.
        # (n, r, latent)
        starts = torch.stack([random.normal(gan.latent, draw=i) for i in range(r)], 1)
        parts = chunks(torch.arange(len(x)), max(1, how.batch_size // r))
        bar.total(max(1, len(parts)))
        found = [
            descend(gan, x[rows].repeat_interleave(r, 0), starts[rows].flatten(0, 1), how, bar)
            for rows in parts
        ]
        ends = [end for end, _ in found] or [starts]
        final_losses = [losses for _, losses in found] or [x.new_zeros(0)]
        z = torch.cat(ends).view(-1, r, gan.latent)
        losses = torch.cat(final_losses).view(-1, r)
        least, best = losses.min(1)
        return AnoGANScores(least, losses, z[torch.arange(len(z)), best])


def descend(gan: Gan, x: Tensor, z: Tensor, how: AnoGAN, bar: Progress) -> tuple[Tensor, Tensor]:
    """Where descents from z (n, latent) towards images (n, c, h, w) end, and the loss there
    (n,)."""
    z = z.clone().requires_grad_()
    wanted = gan.critic_features(x)
    make: Any = torch.optim.SGD if how.optimizer == "sgd" else torch.optim.Adam
    optimizer = make([z], lr=how.lr)
    for step in range(how.steps):
        if step == round(how.drop * how.steps):
            optimizer.param_groups[0]["lr"] = how.lr / 10
        with torch.enable_grad():
            (z.grad,) = torch.autograd.grad(loss(gan, z, x, wanted, how.weight).sum(), z)
        optimizer.step()
        bar.step(1 / how.steps)
    z = z.detach()
    return z, loss(gan, z, x, wanted, how.weight)


def loss(gan: Gan, z: Tensor, x: Tensor, wanted: Tensor, weight: float) -> Tensor:
    """(n,) |G(z) - x|_1 + weight |f_D(G(z)) - wanted|_1.

    Paper: hoeltgen2021 Eq. 7.
    """
    image = gan.generate(z)
    features = gan.critic_features(image)
    return (image - x).abs().flatten(1).sum(1) + weight * (features - wanted).abs().flatten(1).sum(
        1
    )
