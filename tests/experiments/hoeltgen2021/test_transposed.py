"""Transposed convolutions are those of torch."""

import pytest
import torch
from torch import nn

from experiments.hoeltgen2021.transposed import Transposed
from support.gans import noise


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
