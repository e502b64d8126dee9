"""The generator and the critic: layers for images of any size, and what is kept after training."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from experiments.hoeltgen2021.wgan import WGAN
from experiments.hoeltgen2021.wgan_networks import (
    Critic,
    Generator,
    folded,
    kept_features,
    plan,
    steps_up,
)
from support.gans import digits, noise


def test_layers_at_the_size_of_the_paper() -> None:
    assert plan((1, 28, 28), 64, 64) == [
        (64, 256, (3, 3), (2, 2)),
        (256, 128, (4, 4), (1, 1)),
        (128, 64, (3, 3), (2, 2)),
        (64, 1, (4, 4), (2, 2)),
    ]


@given(st.integers(1, 300))
@settings(deadline=None)
def test_layers_lead_to_any_size(size: int) -> None:
    at = 1
    for kernel, stride in steps_up(size):
        at = (at - 1) * stride + kernel
        assert kernel >= stride  # or some pixels would never be reached
    assert at == size


@pytest.mark.parametrize("size", [(1, 28, 28), (1, 8, 8), (3, 32, 32), (2, 9, 20), (1, 1, 1)])
def test_shapes(size: tuple[int, int, int]) -> None:
    gan = WGAN(latent=5, updates=2, critic_steps=1, batch_size=4, width=4).fit(torch.rand(6, *size))
    images = gan.generate(noise(3, 5))
    assert images.shape == (3, *size)
    assert ((images > 0) & (images < 1)).all()
    assert gan.critic_features(images).shape == (3, 32, -(-size[1] // 4), -(-size[2] // 4))
    assert gan.sample(7).shape == (7, *size)
    assert [line.update for line in gan.history_] == [2]


@pytest.mark.parametrize("size", [(1, 8, 8), (3, 12, 9)])
def test_folded_generator_is_the_evaluated_one(size: tuple[int, int, int]) -> None:
    net = Generator(size, 6, 4, normalised=True)
    with torch.no_grad():
        for i, norm in enumerate(net.norms):  # as if it had been trained
            for j, value in enumerate(
                (norm.weight, norm.bias, norm.running_mean, norm.running_var)
            ):
                value.copy_(noise(len(value), seed=4 * i + j).abs() + 0.1)
    net.eval()
    z = noise(5, 6)
    plain = folded(net)
    torch.testing.assert_close(plain(z), net(z), atol=1e-5, rtol=1e-5)
    assert not any(isinstance(m, nn.BatchNorm1d) for m in plain.modules())
    assert not any(p.requires_grad for p in plain.parameters())


def test_features_are_those_of_the_critic() -> None:
    critic = Critic((1, 8, 8))
    x = digits()[:4]
    for _ in range(3):
        critic(x)  # moves the estimates of the norms
    kept = kept_features(critic)
    assert critic.training
    before = {k: v.clone() for k, v in critic.state_dict().items()}
    kept_features(critic)
    assert all(torch.equal(v, before[k]) for k, v in critic.state_dict().items())
    critic.eval()
    torch.testing.assert_close(kept(x), critic.features(x))
    weight = kept.state_dict()["second.weight"]
    # 1 once the estimate has settled
    assert float(torch.linalg.matrix_norm(weight.flatten(1), 2)) < 1.3
