"""Scores of realism: the GAN, the descent behind AnoGAN, the table of scores and the area under the
curve."""

import json
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import holdfast as hf
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import limited_threads
from holdfast.counterfactuals import Run
from holdfast.images._stored import MARK
from holdfast.images.anogan.anogan import AnoGAN, anogan_score, descend, loss
from holdfast.images.anogan.networks import Critic, Generator, folded, kept_features, plan, steps_up
from holdfast.images.anogan.transposed import Transposed
from holdfast.images.anogan.wgan import WGAN, RunningMean
from holdfast.images.realism import auroc, realism
from holdfast.images.result import ImageCounterfactuals
from holdfast.target import BoundTarget, Status

QUIET = Progress(False, "")


@cache
def digits() -> Tensor:
    return torch.as_tensor(load_digits().images / 16).float()[:, None]


@cache
def small_gan() -> WGAN:
    """Two hundred updates on 8 x 8 digits."""
    gan = WGAN(latent=8, updates=200, critic_steps=1, batch_size=32, width=8, lr=5e-3, average=0.9)
    return gan.fit(digits()[:500], threads=1)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# ---- transposed convolutions


@pytest.mark.parametrize(
    ("size", "inputs", "outputs", "kernel", "stride"),
    [
        ((1, 1), 5, 4, (3, 3), (2, 2)),
        ((3, 3), 4, 3, (4, 4), (1, 1)),
        ((4, 2), 2, 1, (4, 3), (2, 1)),
        ((2, 5), 3, 2, (1, 3), (1, 2)),
    ],
)
def test_transposed_is_that_of_torch(
    size: tuple[int, int],
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
) -> None:
    ours = Transposed(inputs, outputs, kernel, stride, bias=True).double()
    torch.nn.init.normal_(ours.bias, generator=torch.Generator().manual_seed(1))
    x = noise(2, inputs, *size).double().requires_grad_()
    weight = ours.weight.detach().permute(0, 3, 1, 2).clone().requires_grad_()
    theirs = nn.functional.conv_transpose2d(x, weight, ours.bias, stride)
    out = ours(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    torch.testing.assert_close(out, theirs)
    v = noise(*theirs.shape, seed=2).double()
    by_x, by_weight = torch.autograd.grad(theirs, [x, weight], v)
    mine = torch.autograd.grad(out, [x, ours.weight], v)
    torch.testing.assert_close(mine[0], by_x)
    torch.testing.assert_close(mine[1].permute(0, 3, 1, 2), by_weight)


# ---- networks


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


# ---- training


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


# ---- AnoGAN


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


# ---- AUROC


@pytest.mark.parametrize(
    ("inside", "outside", "area"),
    [
        ([1, 2], [3, 4], 1.0),
        ([3, 4], [1, 2], 0.0),
        ([1, 1], [1], 0.5),
        ([1, 3], [2, 4], 0.75),  # 2 > 1, 4 > 1, 4 > 3 of four pairs
        ([1, 2, 2], [2, 3], 5 / 6),  # 2 > 1, twice half for 2 = 2, and 3 > 1, 2, 2: 5 of 6
        ([-np.inf, 0], [0, np.inf], 7 / 8),
    ],
)
def test_auroc_by_hand(inside: list[float], outside: list[float], area: float) -> None:
    assert auroc(inside, outside) == pytest.approx(area)
    assert auroc(inside, outside, higher_means_outside=False) == pytest.approx(1 - area)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
)
@settings(deadline=None, max_examples=40)
def test_auroc_is_that_of_sklearn(inside: list[int], outside: list[int]) -> None:
    theirs = roc_auc_score([0] * len(inside) + [1] * len(outside), inside + outside)
    assert auroc(torch.tensor(inside), np.array(outside)) == pytest.approx(theirs)


def test_auroc_needs_scores() -> None:
    with pytest.raises(hf.HoldfastError, match="outside has none"):
        auroc([1.0], [])
    with pytest.raises(hf.HoldfastError, match="1 scores of inside are missing"):
        auroc([1.0, np.nan], [1.0])


# ---- the table


def answers() -> ImageCounterfactuals:
    """Four pairs, of which the third has no answer."""
    x = digits()[:4]
    x_cf = (x + 0.25).clamp(max=1)
    codes = np.array(
        [Status.FOUND, Status.ALREADY_MET, Status.NOT_FOUND, Status.FOUND], dtype=np.int64
    )
    zeros = np.zeros(4, dtype=np.int64)
    run = Run("made up", "", "", 0, 0.0, "", "", "", "")
    goal = BoundTarget(torch.ones(4, dtype=torch.int64), 1.0, 0.0, False, 2)
    return ImageCounterfactuals(
        x, x_cf, torch.zeros(4, 2), goal, codes, [""] * 4, zeros, zeros, zeros, 0, (0, 1), run
    )


def grey() -> Any:
    """An autoencoder that makes everything grey."""
    return SimpleNamespace(reconstruct=lambda x: torch.full_like(x, 0.5))


def test_table_of_images() -> None:
    x = digits()[:3]
    how = AnoGAN(steps=3, restarts=2)
    table = realism(x, gan=small_gan(), vae=grey(), anogan=how)
    assert list(table) == ["anogan", "anogan_spread", "reconstruction"]
    found = anogan_score(small_gan(), x, how)
    np.testing.assert_array_equal(table["anogan"], found.score.numpy())
    np.testing.assert_array_equal(table["anogan_spread"], found.spread.numpy())
    np.testing.assert_allclose(
        table["reconstruction"], (x - 0.5).abs().sum((1, 2, 3)).numpy(), rtol=1e-6
    )
    assert list(realism(x.numpy(), vae=grey())) == ["reconstruction"]
    with pytest.raises(hf.HoldfastError, match="at least one of"):
        realism(x)


def test_table_of_answers_leaves_out_pairs_without_one() -> None:
    cfs = answers()
    how = AnoGAN(steps=3, restarts=2)
    table = realism(cfs, gan=small_gan(), vae=grey(), anogan=how)
    assert list(table.index) == [0, 1, 2, 3]
    assert table.loc[2].isna().all()
    whole = realism(cfs.x_cf, gan=small_gan(), vae=grey(), anogan=how)
    assert table.drop(index=2).equals(whole.drop(index=2))


def test_table_with_a_density() -> None:
    x = digits()[:400]
    y = load_digits().target[:400]
    model = hf.images.ImageModel.of(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), (1, 8, 8), features="0"
    )
    density = hf.FeatureDensity(model).fit(x, y)
    table = realism(x[:5], density=density)
    np.testing.assert_array_equal(table["log_density"], density.log_density(x[:5]))
    noisy = torch.rand(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    inside = realism(x[:50], density=density)["log_density"]
    outside = realism(noisy, density=density)["log_density"]
    assert auroc(inside, outside, higher_means_outside=False) == 1.0
