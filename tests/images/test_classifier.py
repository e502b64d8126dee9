"""Residual networks as estimators: digits of 8 x 8 pixels, tiny networks."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch.nn import functional as F

import holdfast as hf
from holdfast._core.progress import Progress
from holdfast.images.classifier import PlainResNet, ResNetClassifier, SpectralResNet
from holdfast.images.loop import batched, fit_images
from holdfast.images.model import ImageModel, as_images
from holdfast.images.resnet import ResidualBlock, ResNet, Shape, folded, trainable
from holdfast.images.spectral.norm import operator_norm

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
SMALL: dict[str, Any] = {"width": 4, "stages": 2, "depth": 1, "epochs": 1, "batch_size": 32}
BOTH = [SpectralResNet, PlainResNet]


@cache
def digits() -> tuple[torch.Tensor, np.ndarray]:
    data: Any = load_digits()
    return as_images(data.images / 16), data.target


def tensors(net: ResNetClassifier) -> dict[str, torch.Tensor]:
    return net.model_.module.state_dict()


def same(a: ResNetClassifier, b: ResNetClassifier) -> bool:
    return all(torch.equal(v, tensors(b)[k]) for k, v in tensors(a).items())


@pytest.mark.parametrize("kind", BOTH)
def test_a_seed_is_a_network_and_the_callers_world_stays(kind: type[ResNetClassifier]) -> None:
    x, y = digits()
    x = x[:70]
    y = y[:70]
    before = torch.get_rng_state()
    threads = torch.get_num_threads()
    numbers = np.random.get_state()[1]
    copy = x.clone()
    labels = y.copy()
    one = kind(**SMALL).fit(x, y, threads=1)
    two = kind(**SMALL).fit(x, y, threads=1)
    other = kind(**SMALL, seed=1).fit(x, y, threads=1)
    assert same(one, two)
    assert not same(one, other)
    assert torch.equal(before, torch.get_rng_state())
    assert (numbers == np.random.get_state()[1]).all()
    assert torch.get_num_threads() == threads
    assert torch.equal(x, copy)
    assert (y == labels).all()
    with torch.inference_mode():
        assert same(one, kind(**SMALL).fit(x, y, threads=1))
    with torch.no_grad():
        assert same(one, kind(**SMALL).fit(x, y, threads=1))


def test_it_learns_and_tells() -> None:
    x, y = digits()
    net = SpectralResNet(width=6, stages=2, depth=1, epochs=4, batch_size=32)
    assert (
        net.fit(x[:600], y[:600], held_out=(x[800:1100], y[800:1100]), progress=True, threads=1)
        is net
    )
    assert net.score(x[800:1100], y[800:1100]) > 0.85
    assert [e.epoch for e in net.history_] == [1, 2, 3, 4]
    assert net.history_[-1].loss < net.history_[0].loss
    # The network that is kept is the one measured at the end, with normalisation written into its
    # weights.
    assert net.history_[-1].held_out == pytest.approx(
        net.score(x[800:1100], y[800:1100]), abs=1 / 300
    )
    assert net.classes_ == tuple(range(10))
    assert net.model_.coefficient == 4.0


@pytest.mark.parametrize("size", [(8, 8), (7, 6), (5, 8)])
@pytest.mark.parametrize("coefficient", [None, 0.5])
def test_folded_equals_the_trained_network(
    size: tuple[int, int], coefficient: float | None
) -> None:
    x, y = digits()
    x = x[:96, :, : size[0], : size[1]].contiguous()
    with torch.random.fork_rng():
        net = trainable(Shape(1, size, 10, 4, coefficient, stages=3, depth=2))
    with Progress(False, "") as bar:
        schedule = PlainResNet(epochs=2, batch_size=32).schedule()
        fit_images(net, x, torch.tensor(y[:96]), schedule, bar=bar, threads=1)
    plain = folded(net)
    with torch.no_grad():
        torch.testing.assert_close(plain(x), net.eval()(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(plain.features(x), net.features(x), rtol=1e-4, atol=1e-4)
    assert not any(p.requires_grad for p in plain.parameters())
    assert {type(m).__name__ for m in plain.modules()} <= {
        "ResNet",
        "ModuleList",
        "ResidualBlock",
        "Conv2d",
        "Linear",
    }


def test_shortcuts_of_uneven_images() -> None:
    """Sides that are even are averaged in pairs; of odd ones every second pixel stays."""
    net = ResNet(Shape(1, (4, 3), 2, width=1, stages=2, depth=1))
    block = net.blocks[1]
    assert isinstance(block, ResidualBlock)
    x = torch.arange(12.0).view(1, 1, 4, 3)
    out = block.shortcut(x)
    assert out.shape == (1, 2, 2, 2)
    assert out[0, 0].tolist() == [[1.5, 3.5], [7.5, 9.5]]
    assert (out[0, 1] == 0).all()
    assert net(torch.zeros(2, 1, 4, 3)).shape == (2, 2)


def test_operator_norm_of_uneven_images() -> None:
    """The largest singular value of the convolution written as a matrix."""
    weight = torch.randn(
        3, 2, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    for stride in (1, 2):
        basis = torch.eye(2 * 5 * 4, dtype=torch.float64).view(-1, 2, 5, 4)
        matrix = F.conv2d(basis, weight, stride=stride, padding=1).flatten(1)
        largest = float(torch.linalg.matrix_norm(matrix, 2))
        assert operator_norm(weight, (5, 4), stride, steps=300) == pytest.approx(largest, rel=1e-6)


def test_classes_have_names_and_images_any_form(tmp_path: Path) -> None:
    x, y = digits()
    x = x[:100]
    y = y[:100]
    net = PlainResNet(**SMALL).fit(x, NAMES[y], threads=1)
    assert net.classes_ == tuple(sorted(NAMES.tolist()))
    assert net.predict(x[:5]).dtype.kind == "U"
    assert net.score(x, NAMES[y]) == (net.predict(x) == NAMES[y]).mean()
    # Whatever they are called, the classes are the same ones in another order; so is the first
    # loss.
    order = np.argsort(np.argsort(NAMES))
    again = PlainResNet(**SMALL).fit(x.numpy(), order[y].tolist(), threads=1)
    assert same(net, again)
    # Bytes and numbers from 0 to 1; one channel or none.
    bytes_ = (x * 255).round().to(torch.uint8)
    a = PlainResNet(**SMALL).fit(bytes_[:, 0].numpy(), torch.tensor(order[y]), threads=1)
    b = PlainResNet(**SMALL).fit(bytes_.float() / 255, order[y], threads=1)
    assert same(a, b)
    net.save(tmp_path / "net.safetensors")
    back = ImageModel.load(tmp_path / "net.safetensors")
    assert back.classes == net.classes_
    assert torch.equal(back.scores(x), net.model_.scores(x))


def test_images_need_not_be_square(tmp_path: Path) -> None:
    x, y = digits()
    x = x[:64, :, :, :5]
    y = y[:64]
    net = SpectralResNet(**SMALL).fit(x, y, threads=1)
    assert net.model_.size == (1, 8, 5)
    net.save(tmp_path / "net.safetensors")
    back = ImageModel.load(tmp_path / "net.safetensors")
    assert back.size == (1, 8, 5)
    assert torch.equal(back.scores(x), net.model_.scores(x))


def test_settings_in_the_manner_of_scikit_learn() -> None:
    net: SpectralResNet = clone(SpectralResNet(width=8, coefficient=3.0))
    assert repr(net) == "SpectralResNet(width=8, coefficient=3.0)"
    assert net.set_params(lr=0.5).lr == 0.5
    paper = SpectralResNet.paper()
    assert (paper.width, paper.epochs, paper.drops, paper.coefficient) == (64, 50, (0.5, 0.8), 4.0)
    assert isinstance(PlainResNet.paper(), PlainResNet)
    assert "coefficient" not in PlainResNet().get_params()
    with pytest.raises(hf.HoldfastError, match="did you mean 'width'"):
        net.set_params(widht=3)


def test_no_batch_of_one_image() -> None:
    """A single image has no spread to normalise by: a batch that would be left with one takes it
    along."""
    assert [len(b) for b in batched(torch.arange(9), 4)] == [4, 5]
    assert [len(b) for b in batched(torch.arange(10), 4)] == [4, 4, 2]
    assert [len(b) for b in batched(torch.arange(5), 4)] == [5]
    assert [len(b) for b in batched(torch.arange(4), 4)] == [4]
    assert torch.cat(batched(torch.arange(9), 4)).tolist() == list(range(9))
    x, y = digits()
    # The last stage sees single pixels, on which torch refuses to normalise one image.
    net = PlainResNet(width=2, epochs=1, batch_size=32).fit(x[:65], y[:65], threads=1)
    assert net.model_.scores(x[:3]).isfinite().all()


@pytest.mark.parametrize(
    ("settings", "change", "said"),
    [
        ({}, {"labels": lambda y: y[:-1]}, "one label per image"),
        ({}, {"labels": lambda y: np.eye(10)[y]}, "one label per image"),
        ({}, {"labels": lambda y: y * 0}, "at least 2 classes, but every label is 0"),
        (
            {},
            {"labels": lambda y: [None, *y[1:].tolist()]},
            "1 labels are missing, the first at place 0",
        ),
        ({}, {"labels": lambda y: ["a", *y[1:].tolist()[:-1], None]}, "labels are missing"),
        ({}, {"labels": lambda y: np.array(["a", *y[1:].tolist()], dtype=object)}, "of one kind"),
        ({}, {"images": lambda x: x * 3}, "between 0 and 1"),
        ({}, {"images": lambda x: x.flatten(1)}, "expected images of shape"),
        ({}, {"images": lambda x: x[:1], "labels": lambda y: y[:1]}, "at least 2 images, got 1"),
        ({}, {"images": lambda x: x[:0], "labels": lambda y: y[:0]}, "at least 2 images, got 0"),
        (
            {},
            {"held_out": lambda x, y: (x[:, :, :4], y)},
            "expected images of 1 x 8 x 8, got 1 x 4 x 8",
        ),
        ({}, {"held_out": lambda x, y: (x, y + 7)}, "no image to learn from has the label 1"),
        ({"width": 0}, {}, "width"),
        ({"coefficient": -1.0}, {}, "coefficient must be a positive number"),
        ({"batch_size": 1}, {}, "batch_size must be at least 2"),
        ({"epochs": 0}, {}, "epochs"),
        ({"drops": (0.5, 2.0)}, {}, "drops"),
        ({"seed": 0.5}, {}, "seed must be an integer"),
        ({"lr": 1e38}, {}, "diverged"),
    ],
)
def test_what_cannot_work_is_said(
    settings: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    x, y = digits()
    x = x[:40]
    y = y[:40]
    held = change["held_out"](x, y) if "held_out" in change else None
    x = change.get("images", lambda v: v)(x)
    y = change.get("labels", lambda v: v)(y)
    with pytest.raises(hf.HoldfastError, match=said):
        SpectralResNet(**(SMALL | settings)).fit(x, y, held_out=held, threads=1)


def test_nothing_learnt_yet_is_said() -> None:
    x, y = digits()
    net = SpectralResNet()
    for call in (
        lambda: net.predict(x),
        lambda: net.score(x, y),
        lambda: net.save("x"),
        lambda: net.classes_,
    ):
        with pytest.raises(hf.HoldfastError, match=r"call .fit\(images, labels\) first"):
            call()
    with pytest.raises(hf.HoldfastError, match="size must be a number, or height and width"):
        Shape(1, (8, 8, 8), 2)  # pyright: ignore[reportArgumentType]


def test_every_public_name_of_images_exists() -> None:
    for name in hf.images.__all__:
        assert getattr(hf.images, name) is not None, name
    assert set(dir(hf.images)) >= set(hf.images.__all__)
    with pytest.raises(AttributeError, match="no attribute 'DeDuce'"):
        _ = hf.images.DeDuce
