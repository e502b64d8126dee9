"""A stack of small networks with first and second derivatives by hand.

M networks of one architecture, Linear layers with LeakyReLU between them and one logit z at the end, f = sigmoid(z):

    h_0 = x,  a_i = h_{i-1} W_i + b_i,  h_i = s_i a_i,  s_i = 1 or `slope`,  z = a_L
    L = mean over rows of (f - y)^2,   d_i = dL / da_i,   dL/dW_i = h_{i-1}' d_i,   dL/dx = d_1 W_1'

Second derivatives come from Pearlmutter's R-operator, the derivative of all of the above along a direction
p = (P_i, q_i) of the parameters; between the kinks of LeakyReLU only the loss is curved:

    R a_i = R h_{i-1} W_i + h_{i-1} P_i + q_i,         R h_i = s_i R a_i
    R d_L = L''(z) R z,                                R d_{i-1} = s_{i-1} (R d_i W_i' + d_i P_i')

so that R{dL/dtheta} is the Hessian times p, and R{dL/dx} = R d_1 W_1' + d_1 P_1' the mixed derivative. Automatic
differentiation through an unrolled training step gives the same, at more than twice the cost.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

Parts = list[Tensor]  # W_1 (M, a, b), b_1 (M, 1, b), W_2, ..

SLOPE = 0.01


@dataclass(frozen=True)
class Parameters:
    """All parameters in one vector, so that an optimiser's step is a few operations on it, and their shapes."""

    flat: Tensor
    shapes: tuple[torch.Size, ...]

    @classmethod
    def of(cls, parts: Parts) -> "Parameters":
        return cls(torch.cat([part.reshape(-1) for part in parts]), tuple(part.shape for part in parts))

    def like(self, flat: Tensor) -> "Parameters":
        return Parameters(flat, self.shapes)

    def zeros(self) -> "Parameters":
        return self.like(torch.zeros_like(self.flat))

    @cached_property
    def parts(self) -> Parts:
        """Each weight and bias, as a view of the vector."""
        ends = list(itertools.accumulate(shape.numel() for shape in self.shapes))
        return [self.flat[end - shape.numel() : end].view(shape) for end, shape in zip(ends, self.shapes, strict=True)]


@dataclass(frozen=True)
class Pass:
    """What one forward and backward pass leaves for the second derivatives."""

    inputs: list[Tensor]  # h_0 .. h_{L-1}, (M, n, .)
    kinks: list[Tensor]  # s_1 .. s_{L-1}
    slopes: list[Tensor]  # d_1 .. d_L
    curve: Tensor  # L''(z), (M, n, 1)


def logits(theta: Parts, x: Tensor, slope: float = SLOPE) -> Tensor:
    """(M, n) z of rows (M, n, d), or (n, d) shared by all."""
    h = x.expand(len(theta[0]), *x.shape[-2:])
    for i in range(0, len(theta) - 2, 2):
        h = torch.nn.functional.leaky_relu(torch.baddbmm(theta[i + 1], h, theta[i]), slope)
    return torch.baddbmm(theta[-1], h, theta[-2]).squeeze(2)


def gradient(weights: Parameters, x: Tensor, y: Tensor, slope: float = SLOPE) -> tuple[Parameters, Pass]:
    """dL/dtheta of the mean squared error of sigmoid(z) against y (M, n), and what `mixed` needs."""
    theta, n = weights.parts, x.shape[-2]
    found = weights.like(torch.empty_like(weights.flat))
    inputs, kinks = [x.expand(len(theta[0]), *x.shape[-2:])], list[Tensor]()
    for i in range(0, len(theta) - 2, 2):
        a = torch.baddbmm(theta[i + 1], inputs[-1], theta[i])
        s = torch.where(a > 0, a.new_ones(()), slope)
        kinks.append(s)
        inputs.append(a.mul_(s))
    f = torch.sigmoid(torch.baddbmm(theta[-1], inputs[-1], theta[-2]))
    miss, f1 = f - y[..., None], f * (1 - f)
    d = miss * f1 * (2 / n)
    curve = (f1 * f1 + miss * f1 * (1 - 2 * f)) * (2 / n)
    slopes, out = [d], found.parts
    for i in range(len(theta) - 2, -1, -2):
        torch.bmm(inputs[i // 2].transpose(1, 2), d, out=out[i])
        torch.sum(d, 1, keepdim=True, out=out[i + 1])
        if i:
            d = torch.bmm(d, theta[i].transpose(1, 2)).mul_(kinks[i // 2 - 1])
            slopes.insert(0, d)
    return found, Pass(inputs, kinks, slopes, curve)


def mixed(weights: Parameters, along: Parameters, at: Pass, *, hessian: bool) -> tuple[Tensor, Parameters | None]:
    """Along p: the mixed derivative R{dL/dx} (M, n, d), and if asked for the Hessian times p."""
    theta, p = weights.parts, along.parts
    found = weights.like(torch.empty_like(weights.flat)) if hessian else None
    r, moved = None, list[Tensor | None]([None])  # R h_0 = 0
    for i in range(0, len(theta), 2):
        r_a = torch.baddbmm(p[i + 1], at.inputs[i // 2], p[i])
        if r is not None:
            r_a = torch.baddbmm(r_a, r, theta[i])
        if i + 2 < len(theta):
            r = r_a.mul_(at.kinks[i // 2])
            moved.append(r)
        else:
            r = r_a
    assert r is not None
    r_d = at.curve * r
    for i in range(len(theta) - 2, -1, -2):
        d, h, r_h = at.slopes[i // 2], at.inputs[i // 2], moved[i // 2]
        if found is not None:
            g = torch.bmm(h.transpose(1, 2), r_d, out=found.parts[i])
            if r_h is not None:
                g.baddbmm_(r_h.transpose(1, 2), d)
            torch.sum(r_d, 1, keepdim=True, out=found.parts[i + 1])
        r_d = torch.baddbmm(torch.bmm(d, p[i].transpose(1, 2)), r_d, theta[i].transpose(1, 2))
        if i:
            r_d.mul_(at.kinks[i // 2 - 1])
    return r_d, found
