"""AnoGAN: the descent to the nearest image that a GAN can generate."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import holdfast as hf
from experiments.hoeltgen2021.anogan import AnoGAN, anogan_score, descend, loss
from experiments.hoeltgen2021.wgan import WGAN
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import limited_threads
from support.gans import digits, noise, small_gan

QUIET = Progress(False, "")


@dataclass
class Straight:
    """G(z) = A z as an image of 2 x 2, f_D the image itself or half of it: the loss is convex."""

    matrix: Tensor
    latent: int = 2
    calls: list[int] = field(default_factory=list)

    def generate(self, z: Tensor) -> Tensor:
        self.calls.append(len(z))
        return (z @ self.matrix.T).view(-1, 1, 2, 2)

    def critic_features(self, x: Tensor) -> Tensor:
        return x / 2


def straight() -> Straight:
    return Straight(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))


def test_known_minimum() -> None:
    """Paper: hoeltgen2021 Eq. 7, Metric AGAN."""
    # G(z) = (z1, z2, z1, 0). For x = (0.2, 0.7, 0.6, 0.3) any z1 in [0.2, 0.6] with z2 = 0.7 is
    # best: 0.4 + 0.3 pixel by pixel, and 0.1 / 2 of it again for the features.
    x = torch.tensor([[0.2, 0.7, 0.6, 0.3], [0.5, 0.1, 0.5, 0.0]]).view(2, 1, 2, 2)
    for how in (AnoGAN(steps=600, lr=0.01), AnoGAN(steps=250, lr=0.1, optimizer="adam")):
        found = anogan_score(straight(), x, how)
        torch.testing.assert_close(found.score, torch.tensor([0.7 * 1.05, 0.0]), atol=5e-3, rtol=0)
        assert found.losses.shape == (2, 5)
        assert torch.equal(found.score, found.losses.amin(1))
        assert torch.equal(found.spread, found.losses.amax(1) - found.losses.amin(1))
        assert found.spread.max() < 0.01  # convex: all descents end at the same loss
        torch.testing.assert_close(found.z[1], torch.tensor([0.5, 0.1]), atol=2e-3, rtol=0)


def by_hand(gan: Any, x: Tensor, z: Tensor, how: AnoGAN) -> Tensor:
    """The final loss of one descent, written down once more: the step falls after 80 % of this
    one's own steps."""
    wanted = gan.critic_features(x)
    lr = how.lr
    for k in range(how.steps):
        if k == round(0.8 * how.steps):
            lr = how.lr / 10
        z = z.detach().requires_grad_()
        image = gan.generate(z)
        value = (image - x).abs().sum() + how.weight * (
            gan.critic_features(image) - wanted
        ).abs().sum()
        z = z - lr * torch.autograd.grad(value, z)[0]
    return loss(gan, z.detach(), x, wanted, how.weight)


def test_every_restart_has_the_whole_step() -> None:
    gan = straight()
    how = AnoGAN(steps=20, lr=0.03, restarts=3)
    x = torch.tensor([0.2, 0.7, 0.6, 0.3]).view(1, 1, 2, 2)
    random = RowRandom.of(how.seed, x)
    alone = [by_hand(gan, x, random.normal(2, draw=i), how) for i in range(3)]
    found = anogan_score(gan, x, how)
    torch.testing.assert_close(found.losses[0], torch.cat(alone))
    # A far start shows the step: 16 steps of 0.03 and 4 of 0.003, times the slope 1.05 (2.1 along
    # z1).
    z = torch.tensor([[9.0, 9.0]])
    end, _ = descend(gan, x, z, how, QUIET)
    moved = (16 * 0.03 + 4 * 0.003) * 1.05
    torch.testing.assert_close(z - end, torch.tensor([[2 * moved, moved]]))


def test_more_restarts_only_add_descents() -> None:
    how = AnoGAN(steps=5, restarts=2, optimizer="adam", lr=0.1)
    few = anogan_score(small_gan(), digits()[:4], how)
    more = anogan_score(
        small_gan(), digits()[:4], AnoGAN(steps=5, restarts=5, optimizer="adam", lr=0.1)
    )
    assert torch.equal(more.losses[:, :2], few.losses)
    assert (more.score <= few.score).all()


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_scores_do_not_depend_on_neighbours_or_chunk(optimizer: Any) -> None:
    x = digits()[:7]
    base: dict[str, Any] = {"steps": 20, "restarts": 3, "optimizer": optimizer, "lr": 0.05}
    whole = anogan_score(small_gan(), x, AnoGAN(**base))
    for chunk in (1, 9):
        assert torch.equal(
            anogan_score(small_gan(), x, AnoGAN(**base, batch_size=chunk)).losses, whole.losses
        )
    for rows in ([3], [6, 0], [2, 2, 5]):
        part = anogan_score(small_gan(), x[rows], AnoGAN(**base))
        assert torch.equal(part.losses, whole.losses[rows])
        assert torch.equal(part.z, whole.z[rows])


def test_each_image_is_generated_by_itself() -> None:
    gan = small_gan()
    z = noise(33, 8)
    for threads in (1, 2):
        with limited_threads(threads):
            images = gan.generate(z)
            features = gan.critic_features(images)
            for n in (1, 2, 5, 20):
                assert torch.equal(gan.generate(z[:n]), images[:n])
                assert torch.equal(gan.critic_features(images[:n]), features[:n])
                assert torch.equal(gan.generate(z[n:]), images[n:])


def test_odd_sizes_generate_each_image_by_itself() -> None:
    # products of 9 columns
    gan = WGAN(latent=5, updates=1, batch_size=4, width=3).fit(torch.rand(4, 1, 9, 7))
    z = noise(30, 5)
    images = gan.generate(z)
    for n in (1, 3, 9, 17):
        assert torch.equal(gan.generate(z[:n]), images[:n])
        assert torch.equal(gan.generate(z[n:]), images[n:])


def test_descent_finds_what_was_generated_sooner_than_noise() -> None:
    gan = small_gan()
    noisy = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    how = AnoGAN(steps=60, lr=0.1, restarts=3, optimizer="adam")
    own = anogan_score(gan, gan.sample(6, seed=3), how)
    other = anogan_score(gan, noisy, how)
    assert own.score.max() < other.score.min()
    start = anogan_score(gan, noisy, AnoGAN(steps=1, lr=1e-9, restarts=3))
    assert (other.losses < start.losses).all()


def test_the_callers_world_stays() -> None:
    gan = small_gan()
    x = digits()[:3].clone()
    before = x.clone()
    state = torch.get_rng_state()
    threads = torch.get_num_threads()
    weights = {k: v.clone() for k, v in gan.generator_.state_dict().items()}
    how = AnoGAN(steps=3, restarts=2)
    a = anogan_score(gan, x, how, threads=1)
    with torch.inference_mode():
        b = anogan_score(gan, x, how)
    assert torch.equal(a.losses, b.losses)
    assert not a.losses.requires_grad
    assert not a.z.requires_grad
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()
    assert all(torch.equal(v, weights[k]) for k, v in gan.generator_.state_dict().items())
    assert all(p.grad is None for p in gan.generator_.parameters())


def test_bytes_floats_and_nothing() -> None:
    gan = small_gan()
    how = AnoGAN(steps=2, restarts=2)
    grey = (digits()[:2, 0] * 255).round().byte().numpy()
    assert torch.equal(
        anogan_score(gan, grey, how).score,
        anogan_score(gan, grey[:, None] / np.float32(255), how).score,
    )
    none = anogan_score(gan, digits()[:0], how)
    assert none.score.shape == (0,)
    assert none.losses.shape == (0, 2)
    assert none.z.shape == (0, 8)
    with pytest.raises(hf.HoldfastError, match="1 x 8 x 8"):
        anogan_score(gan, torch.zeros(1, 9, 9), how)


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ({"steps": 0}, "steps"),
        ({"restarts": 1.0}, "restarts"),
        ({"lr": -1}, "lr"),
        ({"optimizer": "lbfgs"}, "sgd, adam"),
        ({"drop": 0}, "drop"),
        ({"weight": -1}, "weight"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_settings_of_the_search_are_checked(setting: dict[str, Any], word: str) -> None:
    with pytest.raises(hf.HoldfastError, match=word):
        anogan_score(small_gan(), digits()[:1], AnoGAN(**setting))


def test_presets() -> None:
    paper = AnoGAN()
    fast = AnoGAN.fast()
    assert (paper.steps, paper.lr, paper.weight, paper.optimizer, paper.drop) == (
        4000,
        0.03,
        0.1,
        "sgd",
        0.8,
    )
    assert fast.optimizer == "adam"
    assert fast.steps <= 400
    assert AnoGAN().set_params(steps=7).steps == 7
