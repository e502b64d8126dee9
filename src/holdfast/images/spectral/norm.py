"""Convolutions whose operator norm is bounded.

    W  ->  W / (max(1, s / c) + 1e-5),      s = max over |v| = 1 of |W * v|

s is the norm of the convolution as a linear map between images of the size it meets, not the norm
of its weights written as a matrix (Gouk et al. 2021). One step of power iteration per forward pass
in training keeps up with the weights:

    v <- W^T u / |W^T u|,    u <- W v / |W v|,    s = <u, W v>

Miyato et al. 2018; used with c = 3 to 6 by Mukhoti et al. 2021 (deep deterministic uncertainty).
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPSILON = 1e-5  # keeps the divisor away from the boundary, as in the released code of the paper


def operator_norm(
    weight: Tensor, size: tuple[int, int], stride: int = 1, padding: int = 1, steps: int = 50
) -> float:
    """The norm of a convolution as a linear map of images of `size`, by power iteration in double
    precision.

    >>> import holdfast as hf
    >>> import torch
    >>> hf.images.operator_norm(2 * torch.ones(1, 1, 1, 1), (8, 8), padding=0)
    2.0
    """
    weight = weight.detach().double()
    u = start(weight, size, stride, padding)
    for _ in range(steps + 1):
        u = F.conv2d(
            pulled_back(weight, u, size, stride, padding), weight, stride=stride, padding=padding
        )
    return float(length(u))


def start(weight: Tensor, size: tuple[int, int], stride: int, padding: int) -> Tensor:
    """A first u, which is not orthogonal to the one sought except by chance."""
    sides = [(n + 2 * padding - weight.shape[-1]) // stride + 1 for n in size]
    height, width = sides
    u = torch.linspace(1, 2, len(weight) * height * width, dtype=weight.dtype).view(
        1, len(weight), height, width
    )
    return u / length(u)


def pulled_back(
    weight: Tensor, u: Tensor, size: tuple[int, int], stride: int, padding: int
) -> Tensor:
    """v = W^T u / |W^T u|."""
    over = [(n + 2 * padding - weight.shape[-1]) % stride for n in size]
    v = F.conv_transpose2d(u, weight, stride=stride, padding=padding, output_padding=over)
    return v / length(v).clamp_min(torch.finfo(v.dtype).tiny)


def length(v: Tensor) -> Tensor:
    return v.square().sum().sqrt()


class SpectralConv2d(nn.Module):
    """A square convolution without bias whose operator norm is at most `coefficient` at the size of
    its inputs.

    Paper: hoeltgen2021 Section 2.2 spectral normalisation.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int,
        size: int | tuple[int, int],
        coefficient: float,
    ) -> None:
        super().__init__()
        self.size = (size, size) if isinstance(size, int) else size
        self.stride = stride
        self.padding = kernel // 2
        self.coefficient = coefficient
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel, kernel))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)  # as torch's own convolutions
        self.register_buffer("u", start(self.weight.detach(), self.size, stride, self.padding))
        self.register_buffer("norm", torch.zeros(()))

    def normalised(self, norm: Tensor | None = None) -> Tensor:
        """The weight in use, with the norm as given or as last estimated."""
        norm = cast(Tensor, self.norm) if norm is None else norm
        return self.weight / (torch.clamp(norm / self.coefficient, min=1.0) + EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        norm = self._estimate() if self.training else None
        return F.conv2d(x, self.normalised(norm), stride=self.stride, padding=self.padding)

    def _estimate(self) -> Tensor:
        """One step of power iteration; u and v count as constants, so the gradient is that of the
        largest value."""
        u = cast(Tensor, self.u)
        with torch.no_grad():
            v = pulled_back(self.weight, u, self.size, self.stride, self.padding)
        image = F.conv2d(v, self.weight, stride=self.stride, padding=self.padding)
        with torch.no_grad():
            now = image / length(image).clamp_min(torch.finfo(v.dtype).tiny)
            u.copy_(now)
        norm = (now * image).sum()
        cast(Tensor, self.norm).copy_(norm.detach())
        return norm
