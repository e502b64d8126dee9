"""Transposed convolutions as one matrix product and a sum of shifted parts, with channels last.

    out[i s + a, j s + b] += x[i, j] W[a, b]        a, b: place in the kernel, s: stride

The product is the main cost, and runs at the full speed of matrix products; torch's own transposed
convolutions of few, small maps take about twice as long on a CPU. The derivative of the sum of
parts is a copy of the same parts.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast._core.rows import COLUMN_BLOCK

Pair = tuple[int, int]  # along height and width


class Fold(torch.autograd.Function):
    """Parts (n, h, w, kernel, kernel, c) added up where they overlap: (n, H, W, c), H = (h - 1)
    stride + kernel."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, stride: Pair) -> Tensor:
        n, h, w, *kernel, c = parts.shape
        ctx.kernel = kernel
        ctx.stride = stride
        out = parts.new_zeros(
            n, enlarged(h, kernel[0], stride[0]), enlarged(w, kernel[1], stride[1]), c
        )
        for a in range(kernel[0]):
            for b in range(kernel[1]):
                rows = slice(a, a + stride[0] * (h - 1) + 1, stride[0])
                columns = slice(b, b + stride[1] * (w - 1) + 1, stride[1])
                out[:, rows, columns] += parts[:, :, :, a, b]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        k0, k1 = ctx.kernel
        s0, s1 = ctx.stride
        return grads[0].unfold(1, k0, s0).unfold(2, k1, s1).permute(
            0, 1, 2, 4, 5, 3
        ).contiguous(), None


def enlarged(size: int, kernel: int, stride: int) -> int:
    """The size that a transposed convolution makes of a size."""
    return (size - 1) * stride + kernel


class Transposed(nn.Module):
    """(n, h, w, inputs) -> (n, H, W, outputs), as torch's `ConvTranspose2d` without padding."""

    def __init__(
        self, inputs: int, outputs: int, kernel: Pair, stride: Pair, *, bias: bool
    ) -> None:
        super().__init__()
        self.stride = stride
        self.weight = nn.Parameter(torch.empty(inputs, *kernel, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        bound = 1 / math.sqrt(outputs * math.prod(kernel))  # as torch's own
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        inputs, *kernel, outputs = self.weight.shape
        weight = self.weight.flatten(1)
        columns = weight.shape[1]
        if columns % COLUMN_BLOCK:
            weight = F.pad(weight, (0, -columns % COLUMN_BLOCK))
        parts = (x.reshape(-1, inputs) @ weight)[:, :columns].view(*x.shape[:3], *kernel, outputs)
        out: Tensor = cast(Any, Fold).apply(parts, self.stride)
        return out if self.bias is None else out + self.bias
