"""A GAN of images: a generator of what training images look like, and a critic whose features tell
images apart.

    critic       maximise  E D(x) - E D(G(z))        x: training images, z ~ N(0, I),
    generator    maximise  E D(G(z))                 D spectrally normalised

Arjovsky et al. 2017 (Wasserstein GAN); Miyato et al. 2018 (spectral normalisation). The networks
are those with which Höltgen et al. 2021 score how real counterfactual images look (`anogan`); they
trained for about 380,000 updates. Adam without momentum, betas (0, 0.9), gives recognisable digits
in a few thousand. A running mean of the generator's weights is kept, as the weights themselves keep
circling.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from experiments.hoeltgen2021.wgan_networks import (
    Critic,
    Features,
    Generator,
    folded,
    kept_features,
)
from holdfast._core.progress import Progress
from holdfast._core.rows import chunks, limited_threads, pad_rows
from holdfast.errors import SettingError
from holdfast.images._stored import StoredSettings, filled, part_of
from holdfast.images.loop import check_converged, step
from holdfast.images.model import BATCH, ImagesLike, Size, as_images, padded, words
from holdfast.nn.stack import lent_generator

BETAS = (0.0, 0.9)
EVERY = 100  # updates between two lines of the history


@dataclass(frozen=True)
class Update:
    """How training went up to an update of the generator."""

    update: int
    # mean of E D(x) - E D(G(z)) since the line before: how far apart the critic finds the two
    distance: float


@dataclass(eq=False, repr=False, kw_only=True)
class WGAN(StoredSettings):
    """A generator of images like those it was shown, and a critic.

    Args:
        latent: numbers that an image is generated from.
        updates: of the generator.
        critic_steps: updates of the critic before each of them.
        batch_size: images of a step, both shown and generated.
        lr: step of Adam, falling to 0 in a straight line.
        width: channels before the last layer of the generator; there are up to 4 times as many in
            earlier ones.
        average: share of the running mean of the generator's weights that an update keeps; 0 takes
            the last weights.
        seed: weights, images and latent points are drawn from it.

    Paper: hoeltgen2021 Metric AGAN.
    """

    latent: int = 64
    updates: int = 5000
    critic_steps: int = 4
    batch_size: int = 64
    lr: float = 5e-4
    width: int = 64
    average: float = 0.99
    seed: int = 0

    def fit(
        self,
        images: ImagesLike,
        progress: bool = False,
        *,
        threads: int = 0,
        watch: Callable[[Self], None] | None = None,
    ) -> Self:
        """Train on images (n, h, w) or (n, c, h, w); the same seed gives the same networks.

        Args:
            images: bytes, or numbers from 0 to 1.
            progress: show a bar on stderr.
            threads: how many threads torch may use meanwhile; 0 keeps your setting.
            watch: called every 100 updates with this GAN as it stands, for looking at images or
                saving it.
        """
        self.check()
        with torch.inference_mode(False), torch.enable_grad(), limited_threads(threads):
            x = as_images(images)
            if len(x) < 2:
                raise SettingError(f"a GAN needs at least 2 images, got {len(x)}")
            self.size_ = cast(Size, tuple(x.shape[1:]))
            with Progress(progress, "WGAN") as bar:
                self._train(x, bar, watch)
        return self

    def _train(self, x: Tensor, bar: Progress, watch: Callable[[Self], None] | None) -> None:
        random = torch.Generator().manual_seed(self.seed)
        with lent_generator(self.seed):
            G = Generator(self.size_, self.latent, self.width, normalised=True)
            D = Critic(self.size_)
        mean = RunningMean(G, self.average)
        by_g = _adam(G, self.lr)
        by_d = _adam(D, self.lr)
        self.history_: list[Update] = []
        gaps = list[float]()

        def drawn() -> Tensor:
            return torch.randn(self.batch_size, self.latent, generator=random)

        bar.total(self.updates)
        for update in range(1, self.updates + 1):
            for group in (*by_g.param_groups, *by_d.param_groups):
                group["lr"] = self.lr * (1 - (update - 1) / self.updates)
            for _ in range(self.critic_steps):
                real = x[torch.randint(len(x), (self.batch_size,), generator=random)]
                with torch.no_grad():
                    fake = G(drawn())
                # Each batch is normalised by its own spread.
                gap = D(real).mean() - D(fake).mean()
                step(by_d, -gap)
                gaps.append(float(gap.detach()))
            D.requires_grad_(False)
            step(by_g, -D(G(drawn())).mean())
            D.requires_grad_(True)
            mean.follow(G)
            bar.step(1)
            if update % EVERY == 0 or update == self.updates:
                self.history_.append(Update(update, sum(gaps) / len(gaps)))
                gaps.clear()
                bar.say(f"update {update}: distance {self.history_[-1].distance:.4f}")
                self._keep(folded(mean.net), kept_features(D))
                if watch is not None:
                    watch(self)

    def _keep(self, generator: Generator, features: Features) -> None:
        check_converged(
            (*generator.state_dict().values(), *features.state_dict().values()), self.lr
        )
        self.generator_ = generator
        self.features_ = features

    def generate(self, z: Tensor) -> Tensor:
        """Images (n, c, h, w) of latent points (n, latent), each on its own; differentiable by the
        points."""
        net = self._fitted()[0]
        fits = z.ndim == 2 and z.shape[1] == self.latent
        if not fits:
            raise SettingError(f"expected latent points (n, {self.latent}), got {tuple(z.shape)}")
        return net(pad_rows(z))[: len(z)]

    def critic_features(self, x: Tensor) -> Tensor:
        """f_D: what the critic makes of images (n, c, h, w), each on its own; differentiable by the
        images."""
        net = self._fitted()[1]
        if tuple(x.shape[1:]) != self.size_:
            raise SettingError(
                f"expected images of {words(self.size_)}, got shape {tuple(x.shape)}"
            )
        return net(padded(x))[: len(x)]

    def sample(self, count: int, seed: int = 0) -> Tensor:
        """Images (count, c, h, w) of latent points drawn from a seed."""
        z = torch.randn(count, self.latent, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            return torch.cat(
                [self.generate(part) for part in chunks(z, BATCH)] or [self.generate(z)]
            )

    def _fitted(self) -> tuple[Generator, Features]:
        if not hasattr(self, "generator_"):
            raise SettingError("this WGAN has not been fitted; call .fit(images) first")
        return self.generator_, self.features_

    def check(self) -> None:
        self.check_integers("latent", "updates", "critic_steps", "width", most=1 << 40)
        self.check_integers("batch_size", least=2)  # batches are normalised by their own spread
        self.check_training()
        if not 0 <= self.average < 1:
            raise SettingError(f"average must lie in [0, 1), got {self.average}")

    def learnt(self) -> tuple[Size, list[Any], dict[str, Tensor]]:
        parts = dict(zip(("generator", "features"), self._fitted(), strict=True))
        tensors = {
            f"{part}.{name}": v
            for part, net in parts.items()
            for name, v in net.state_dict().items()
        }
        return self.size_, [[line.update, line.distance] for line in self.history_], tensors

    def restore(self, size: Size, history: list[Any], tensors: dict[str, Tensor]) -> None:
        self.size_ = size
        self.history_ = [Update(int(update), float(distance)) for update, distance in history]
        generator = part_of(tensors, "generator.")
        features = part_of(tensors, "features.")
        made = filled(lambda: Generator(size, self.latent, self.width, normalised=False), generator)
        self._keep(made, filled(lambda: Features(size[0], spectral=False), features))


def _adam(net: nn.Module, lr: float) -> Any:
    return torch.optim.Adam(net.parameters(), lr=lr, betas=BETAS, fused=True)


class RunningMean:
    """A generator whose numbers follow those of another, m <- a m + (1 - a) w; a is smaller in the
    first updates."""

    def __init__(self, net: Generator, share: float) -> None:
        self.net = copy.deepcopy(net)
        self.share = share
        self.count = 0

    def follow(self, net: Generator) -> None:
        self.count += 1
        share = min(self.share, self.count / (self.count + 10))
        for mean, now in zip(
            self.net.state_dict().values(), net.state_dict().values(), strict=True
        ):
            if mean.is_floating_point():  # all but the count of batches
                mean.lerp_(now.detach(), 1 - share)
