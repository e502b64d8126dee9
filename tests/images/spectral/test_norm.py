"""Operator norms of convolutions against the singular values of their dense matrices; shapes of the
networks."""

import math
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import ModelError
from holdfast.images.resnet import ResidualBlock, ResNet, Shape, folded, trainable
from holdfast.images.spectral.norm import EPSILON, SpectralConv2d, operator_norm
from holdfast.nn.stack import lent_generator


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def dense(weight: Tensor, size: tuple[int, int], stride: int, padding: int) -> Tensor:
    """The matrix of a convolution: one column per value of an image."""
    values = weight.shape[1] * size[0] * size[1]
    basis = torch.eye(values, dtype=weight.dtype).view(values, weight.shape[1], *size)
    return F.conv2d(basis, weight, stride=stride, padding=padding).flatten(1).T


def largest(weight: Tensor, size: tuple[int, int], stride: int, padding: int) -> float:
    return float(
        torch.linalg.matrix_norm(dense(weight.detach().double(), size, stride, padding), 2)
    )


@pytest.mark.parametrize("size", [(5, 5), (6, 6), (5, 8)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3, 7])
def test_operator_norm_is_the_largest_singular_value(
    size: tuple[int, int], stride: int, kernel: int
) -> None:
    """Paper: hoeltgen2021 Section 2.2 spectral normalisation."""
    weight = draw(3, 2, kernel, kernel, seed=kernel)
    exact = largest(weight, size, stride, kernel // 2)
    found = operator_norm(weight, size, stride, kernel // 2, steps=150)
    assert found == pytest.approx(exact, rel=1e-3)
    # from below
    assert operator_norm(weight, size, stride, kernel // 2, steps=2) <= exact * (1 + 1e-12)


def test_operator_norm_is_not_that_of_the_reshaped_weights() -> None:
    # An average of 9 pixels: at most 1 for every image, 1 / 3 as a matrix of weights.
    weight = torch.full((1, 1, 3, 3), 1 / 9)
    assert operator_norm(weight, (40, 40)) == pytest.approx(1, abs=0.02)
    assert float(torch.linalg.matrix_norm(weight.flatten(1), 2)) == pytest.approx(1 / 3)


def test_a_convolution_of_zeros_has_norm_zero() -> None:
    assert operator_norm(torch.zeros(2, 2, 3, 3), (4, 4)) == 0
    layer = SpectralConv2d(2, 2, 3, stride=1, size=4, coefficient=1.0)
    with torch.no_grad():
        layer.weight.zero_()
    out = layer(torch.ones(2, 2, 4, 4))
    assert torch.equal(out, torch.zeros_like(out))
    assert bool(layer.get_buffer("u").isfinite().all())


def layer_of(
    kernel: int, stride: int, size: tuple[int, int], coefficient: float, scale: float
) -> SpectralConv2d:
    layer = SpectralConv2d(2, 3, kernel, stride=stride, size=size, coefficient=coefficient).double()
    with torch.no_grad():
        layer.weight.copy_(draw(3, 2, kernel, kernel) * scale)
    return layer


def converge(layer: SpectralConv2d, steps: int = 200) -> None:
    x = draw(1, 2, *layer.size)
    layer.train()
    with torch.no_grad():
        for _ in range(steps):
            layer(x)


@pytest.mark.parametrize(
    ("kernel", "stride", "size"), [(3, 1, (6, 6)), (3, 2, (7, 7)), (3, 2, (6, 5)), (1, 2, (5, 5))]
)
@pytest.mark.parametrize("coefficient", [0.5, 4.0])
def test_a_converged_layer_keeps_its_bound(
    kernel: int, stride: int, size: tuple[int, int], coefficient: float
) -> None:
    """Paper: hoeltgen2021 Section 2.2 spectral normalisation."""
    layer = layer_of(kernel, stride, size, coefficient, scale=5.0)
    before = largest(layer.weight, size, stride, kernel // 2)
    assert before > coefficient
    converge(layer)
    after = largest(layer.normalised(), size, stride, kernel // 2)
    assert coefficient * (1 - 1e-3) < after <= coefficient * (1 + 1e-3)


def test_a_layer_below_its_bound_is_hardly_touched() -> None:
    layer = layer_of(3, 1, (6, 6), coefficient=100.0, scale=0.1)
    converge(layer, 5)
    assert 0 < float(layer.get_buffer("norm")) < 100
    assert torch.equal(layer.normalised(), layer.weight / (1 + EPSILON))


def test_training_makes_one_step_of_power_iteration_and_use_none() -> None:
    size = 6, 6
    stride = 2
    padding = 1
    layer = layer_of(3, stride, size, coefficient=0.7, scale=1.0)
    matrix = dense(layer.weight.detach(), size, stride, padding)
    u = layer.get_buffer("u").flatten().clone()
    x = draw(4, 2, *size, seed=3)
    layer.train()
    layer(x)
    v = matrix.T @ u / (matrix.T @ u).norm()
    assert torch.allclose(
        layer.get_buffer("u").flatten(), matrix @ v / (matrix @ v).norm(), atol=1e-12
    )
    assert float(layer.get_buffer("norm")) == pytest.approx(float((matrix @ v).norm()), rel=1e-12)
    layer.eval()
    before = {k: t.clone() for k, t in layer.state_dict().items()}
    out = layer(x)
    assert all(torch.equal(t, before[k]) for k, t in layer.state_dict().items())
    divisor = float(before["norm"]) / 0.7 + EPSILON
    assert torch.allclose(
        out, F.conv2d(x, layer.weight / divisor, stride=stride, padding=padding), atol=1e-12
    )


@pytest.mark.parametrize("stride", [1, 2])
def test_the_gradient_of_the_normalised_weight(stride: int) -> None:
    """d/dW of W / (s(W) / c + 1e-5), where s counts: by differences of the exact singular value."""
    size = 4, 5
    c = 0.8
    layer = layer_of(3, stride, size, c, scale=1.0)
    u, _, _ = torch.linalg.svd(dense(layer.weight.detach(), size, stride, 1))
    layer.get_buffer("u").copy_(u[:, 0].view_as(layer.get_buffer("u")))
    to = draw(3, 2, 3, 3, seed=9)

    def value(weight: Tensor) -> float:
        return float((weight / (largest(weight, size, stride, 1) / c + EPSILON) * to).sum())

    layer.train()
    (got,) = torch.autograd.grad((layer.normalised(layer._estimate()) * to).sum(), layer.weight)
    h = 1e-5
    weight = layer.weight.detach()
    for at in [(0, 0, 1, 1), (2, 1, 0, 2), (1, 0, 2, 0)]:
        step = torch.zeros_like(weight)
        step[at] = h
        slope = (value(weight + step) - value(weight - step)) / (2 * h)
        assert float(got[at]) == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_below_the_bound_the_gradient_ignores_the_norm() -> None:
    layer = layer_of(3, 1, (4, 4), 100.0, scale=0.1).train()
    to = draw(3, 2, 3, 3, seed=9)
    (got,) = torch.autograd.grad((layer.normalised(layer._estimate()) * to).sum(), layer.weight)
    assert torch.allclose(got, to / (1 + EPSILON), atol=1e-12)


# ---- networks


def sizes_of(net: ResNet, x: Tensor) -> list[tuple[int, ...]]:
    """Heights of what every block returns."""
    seen = list[tuple[int, ...]]()
    hooks = [
        b.register_forward_hook(lambda _, __, out: seen.append(tuple(out.shape[1:])))
        for b in net.blocks
    ]
    net(x)
    for hook in hooks:
        hook.remove()
    return seen


def untrained(shape: Shape) -> ResNet:
    with lent_generator(0):
        return ResNet(shape).requires_grad_(False)


def test_the_network_of_the_paper() -> None:
    """Paper: hoeltgen2021 Networks."""
    net = untrained(Shape(1, 28, 10))
    x = torch.zeros(2, 1, 28, 28)
    widths = [64, 64, 128, 128, 256, 256, 512, 512]
    heights = [28, 28, 14, 14, 7, 7, 4, 4]
    assert sizes_of(net, x) == [(w, h, h) for w, h in zip(widths, heights, strict=True)]
    assert net.features(x).shape == (2, 512)
    assert Shape(1, 28, 10).features == 512
    assert net(x).shape == (2, 10)
    convolutions = [1 * 64, 4 * 64 * 64] + [w * w // 2 + 3 * w * w for w in (128, 256, 512)]
    weights = sum(
        p.numel() for n, p in net.named_parameters() if n.endswith("weight") and p.ndim == 4
    )
    assert weights == 9 * sum(convolutions)  # no 1 x 1 convolutions


def test_the_plain_network() -> None:
    """Paper: hoeltgen2021 Networks."""
    net = untrained(Shape(1, 28, 10, coefficient=None))
    x = torch.zeros(2, 1, 28, 28)
    assert [h for _, h, _ in sizes_of(net, x)] == [7, 7, 4, 4, 2, 2, 1, 1]
    assert net.features(x).shape == (2, 512)
    kernels = sorted({m.kernel_size[0] for m in net.modules() if isinstance(m, nn.Conv2d)})
    assert kernels == [1, 3, 7]
    assert sum(p.numel() for p in net.parameters()) == RESNET18


# 7x7 stem, 3x3 and 1x1 convolutions with one bias per channel in the place of batch normalisation,
# last layer.
RESNET18 = (
    (49 * 64 + 64)
    + 4 * (9 * 64 * 64 + 64)
    + sum(9 * w * w // 2 + 3 * 9 * w * w + w * w // 2 + 5 * w for w in (128, 256, 512))
    + 512 * 10
    + 10
)

EVERY_SIZE = [
    (1, 28, 4.0),
    (1, (9, 7), 0.5),
    (1, (6, 11), None),
    (3, 64, 1.0),
    (3, 64, None),
    (2, 1, 1.0),
]


@pytest.mark.parametrize(("channels", "size", "coefficient"), EVERY_SIZE)
def test_folded_equals_the_trained_network(
    channels: int, size: Any, coefficient: float | None
) -> None:
    shape = Shape(channels, size, 5, width=4, coefficient=coefficient)
    with lent_generator(0):
        net = trainable(shape)
    x = torch.rand(6, channels, *shape.sides, generator=torch.Generator().manual_seed(1))
    net.train()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.copy_(1 + 0.3 * draw(len(module.weight), dtype=torch.float32))
                module.bias.copy_(0.3 * draw(len(module.bias), seed=1, dtype=torch.float32))
        for _ in range(5):
            net(x)
        before = {k: t.clone() for k, t in net.state_dict().items()}
        net.eval()
        plain = folded(net)
        assert net.features(x).shape == (6, 32)
        assert torch.allclose(plain.features(x), net.features(x), atol=1e-5, rtol=1e-5)
        assert torch.allclose(plain(x), net(x), atol=1e-5, rtol=1e-5)
    assert all(torch.equal(t, before[k]) for k, t in net.state_dict().items())
    assert not any(isinstance(m, nn.BatchNorm2d | SpectralConv2d) for m in plain.modules())
    assert not any(p.requires_grad for p in plain.parameters())
    # The copy is a copy: training goes on, it does not change.
    scores = plain(x)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(1.0)
    assert torch.equal(plain(x), scores)


def test_spectral_layers_know_the_size_they_meet() -> None:
    with lent_generator(0):
        net = trainable(Shape(1, (11, 6), 3, width=2, coefficient=1.0, depth=1))
    met = dict[str, tuple[int, ...]]()
    for name, module in net.named_modules():
        if isinstance(module, SpectralConv2d):
            module.register_forward_hook(
                lambda _, args, __, name=name: met.__setitem__(name, tuple(args[0].shape[2:]))
            )
    net(torch.zeros(2, 1, 11, 6))
    assert met == {n: m.size for n, m in net.named_modules() if isinstance(m, SpectralConv2d)}
    assert len(met) == 9


def test_shortcuts_by_hand() -> None:
    block = ResidualBlock(lambda *_: nn.Identity(), (1, 2, 2, (4, 4)), spectral=True)
    x = torch.arange(16.0).view(1, 1, 4, 4)
    assert block.shortcut(x).tolist() == [[[[2.5, 4.5], [10.5, 12.5]], [[0, 0], [0, 0]]]]
    x = torch.arange(9.0).view(1, 1, 3, 3)  # odd: every second pixel
    assert block.shortcut(x).tolist() == [[[[0, 2], [6, 8]], [[0, 0], [0, 0]]]]
    x = torch.arange(6.0).view(1, 1, 2, 3)  # even and odd
    assert block.shortcut(x).tolist() == [[[[1.5, 3.5]], [[0, 0]]]]


def test_what_is_no_network() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"channels": 0}, "channels"),
        ({"size": (8, 0)}, "width of images"),
        ({"size": (8, 8, 8)}, "size must be a number"),
        ({"classes": 2.0}, "classes"),
        ({"width": True}, "width"),
        ({"stages": 9}, "9 stages"),
        ({"coefficient": 0.0}, "coefficient"),
        ({"coefficient": math.nan}, "coefficient"),
        ({"coefficient": math.inf}, "coefficient"),
    ]
    for change, text in wrong:
        with pytest.raises(ModelError, match=text):
            Shape(**cast(Any, {"channels": 1, "size": 8, "classes": 2} | change))


def test_an_empty_network_draws_nothing() -> None:
    before = torch.get_rng_state()
    with torch.device("meta"):
        ResNet(Shape(1, 8, 2, width=2))
    assert torch.equal(before, torch.get_rng_state())
