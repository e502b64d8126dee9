"""Linear and ReLU layers by hand."""

import pytest
import torch
from torch import nn

from holdfast.nn.architecture import mlp
from holdfast.nn.relu_network import Engine
from support.tables import seeded
from support.torch_models import SCHEMA, X


@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize("hidden", [(), (9,), (16, 8, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_analytic_gradients_equal_autograd(
    outputs: int, hidden: tuple[int, ...], dtype: torch.dtype
) -> None:
    net = seeded(mlp(SCHEMA.width, hidden, outputs).to(dtype))
    x = X.to(dtype)
    engine = Engine.of(net)
    assert engine is not None
    v = torch.randn(len(x), outputs, generator=torch.Generator().manual_seed(1), dtype=dtype)
    scores, pull = engine.vjp(x)
    z = x.clone().requires_grad_()
    expected = net(z)
    (grad,) = torch.autograd.grad(expected, z, v)
    expected = expected.detach()
    scale = max(1.0, float(grad.abs().max()))
    assert torch.allclose(scores, expected, atol=1e-6 * max(1.0, float(expected.abs().max())))
    assert (pull(v) - grad).abs().max() <= 1e-6 * scale


def test_engine_is_only_for_linear_and_relu_in_turn() -> None:
    relu = nn.ReLU()
    linear = nn.Linear(3, 3)
    assert Engine.of(nn.Sequential(linear, relu, nn.Dropout(0.5), nn.Sequential(nn.Linear(3, 2))))
    for other in (
        nn.Sequential(linear, nn.Tanh(), nn.Linear(3, 2)),
        nn.Sequential(linear, relu),
        nn.Sequential(relu, linear),
        nn.Sequential(linear, linear),
        nn.Sequential(linear, nn.BatchNorm1d(3), relu, linear),
    ):
        assert Engine.of(other) is None
    hooked = nn.Sequential(nn.Linear(3, 2))
    hooked[0].register_forward_hook(lambda m, i, o: o * 2)
    assert Engine.of(hooked) is None
