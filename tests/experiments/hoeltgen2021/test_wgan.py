"""The GAN: training, files, and what is refused."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import holdfast as hf
from experiments.hoeltgen2021.wgan import WGAN, RunningMean
from experiments.hoeltgen2021.wgan_networks import Generator
from holdfast.images._stored import MARK
from support.gans import digits, noise, small_gan


def test_generated_digits_are_nearer_to_digits_than_noise_is() -> None:
    gan = small_gan()
    made = gan.sample(100)
    noisy = torch.rand(100, 1, 8, 8, generator=torch.Generator().manual_seed(1))

    def to_nearest(x: Tensor) -> Tensor:
        return torch.cdist(x.flatten(1), digits()[:500].flatten(1)).amin(1).mean()

    # 2.4 and 3.6; a GAN that is small and trained in seconds gets no nearer.
    assert to_nearest(made) < 0.8 * to_nearest(noisy)
    assert float(made.flatten(1).std(0).mean()) > 0.05  # not always the same one


def test_same_seed_same_network_and_the_world_as_it_was() -> None:
    images = digits()[:40].clone()
    before = images.clone()
    state = torch.get_rng_state()
    mode = torch.is_grad_enabled()
    make = partial(WGAN, latent=4, updates=3, batch_size=8, width=4)
    with torch.no_grad():
        a = make().fit(images)
    b = make().fit(images)
    other = make(seed=1).fit(images)
    z = noise(3, 4)
    assert torch.equal(a.generate(z), b.generate(z))
    assert not torch.equal(a.generate(z), other.generate(z))
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled() == mode
    with torch.inference_mode():
        c = make().fit(images)
    assert torch.equal(a.generate(z), c.generate(z))


def test_watch_sees_the_gan_as_it_stands() -> None:
    seen = list[Tensor]()
    gan = WGAN(latent=4, updates=101, critic_steps=1, batch_size=4, width=2)
    gan.fit(digits()[:20], watch=lambda g: seen.append(g.sample(2)))
    assert len(seen) == 2  # after 100 updates and at the end
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[1], gan.sample(2))
    assert [line.update for line in gan.history_] == [100, 101]


def test_running_mean() -> None:
    net = Generator((1, 4, 4), 2, 2, normalised=True)
    mean = RunningMean(net, 0.5)
    with torch.no_grad():
        for w, at in ((1.0, 0), (3.0, 1), (5.0, 2)):
            net.layers[0].weight.fill_(w)
            mean.follow(net)
            if not at:
                start = mean.net.layers[0].weight.clone()
    # Shares 1/11 (in the first update), then 2/12 and 3/13: m = 3/13 (2/12 m + 10/12 3) + 10/13 5
    expected = 3 / 13 * (start / 6 + 2.5) + 10 / 13 * 5
    torch.testing.assert_close(mean.net.layers[0].weight, expected)


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ({"latent": 0}, "latent"),
        ({"updates": 1.5}, "updates"),
        ({"batch_size": 1}, "batch_size"),
        ({"lr": 0}, "lr"),
        ({"average": 1.0}, "average"),
        ({"critic_steps": True}, "critic_steps"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_settings_are_checked(setting: dict[str, Any], word: str) -> None:
    with pytest.raises(hf.HoldfastError, match=word):
        WGAN(**setting).fit(digits()[:10])


def test_misuse_is_named() -> None:
    with pytest.raises(hf.HoldfastError, match=r"call .fit"):
        WGAN().generate(noise(1, 64))
    with pytest.raises(hf.HoldfastError, match="at least 2 images"):
        WGAN().fit(digits()[:1])
    with pytest.raises(hf.HoldfastError, match=r"latent points \(n, 8\)"):
        small_gan().generate(noise(2, 7))
    with pytest.raises(hf.HoldfastError, match="1 x 8 x 8"):
        small_gan().critic_features(torch.zeros(2, 1, 9, 8))


def test_diverged_training_is_told() -> None:
    with pytest.raises(hf.HoldfastError, match="lower lr"):
        WGAN(latent=4, updates=3, batch_size=4, width=2, lr=1e30).fit(digits()[:20])


# ---- files


def test_save_and_load(tmp_path: Path) -> None:
    gan = small_gan()
    gan.save(tmp_path / "gan.safetensors")
    again = WGAN.load(tmp_path / "gan.safetensors")
    z = noise(3, 8)
    x = digits()[:3]
    assert torch.equal(again.generate(z), gan.generate(z))
    assert torch.equal(again.critic_features(x), gan.critic_features(x))
    assert again.get_params() == gan.get_params()
    assert again.history_ == gan.history_
    assert again.size_ == (1, 8, 8)


def test_files_that_are_none(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    gan = small_gan()
    path = tmp_path / "gan.safetensors"
    gan.save(path)
    tensors = load_file(path)
    good = {"kind": "WGAN", "settings": gan.get_params(), "size": [1, 8, 8], "history": []}

    def written(tensors: dict[str, Tensor], **more: Any) -> Path:
        save_file(tensors, tmp_path / "bad", metadata={MARK: json.dumps(good | more)})
        return tmp_path / "bad"

    assert torch.equal(WGAN.load(written(tensors)).sample(1), gan.sample(1))
    with pytest.raises(hf.HoldfastError, match="holds ConvVAE"):
        WGAN.load(written(tensors, kind="ConvVAE"))
    for more in (
        {"size": [1, 9, 8]},
        {"size": [1, 10**9, 8]},
        {"settings": {"latent": 7}},
        {"settings": {"x": 1}},
    ):
        with pytest.raises(hf.HoldfastError):
            WGAN.load(written(tensors, **more))
    some = next(iter(tensors))
    with pytest.raises(hf.HoldfastError, match="damaged"):
        WGAN.load(written({k: v for k, v in tensors.items() if k != some}))
    with pytest.raises(hf.HoldfastError, match="finite"):
        WGAN.load(written(tensors | {some: torch.full_like(tensors[some], float("nan"))}))
    with pytest.raises(hf.HoldfastError, match="no model file"):
        WGAN.load(tmp_path / "nothing")
    with pytest.raises(hf.HoldfastError, match="cannot write"):
        gan.save(tmp_path / "no" / "such" / "folder")
