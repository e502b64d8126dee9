"""Linear/ReLU networks and their input gradients by hand, at about a third of the cost of automatic
differentiation:

h_0 = x,   a_i = h_{i-1} W_i^T + b_i,   h_i = max(a_i, 0),   scores = a_L
d scores . v / d h_{i-1} = (d scores . v / d h_i  *  [h_i > 0]) W_i
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast._core.rows import COLUMN_BLOCK
from holdfast._core.types import Pullback
from holdfast.nn.architecture import flat_layers


class Engine:
    """A Linear/ReLU network evaluated by hand; in batches of a multiple of 8 rows, a row gets the
    same bits in any of them."""

    def __init__(self, weights: list[tuple[Tensor, Tensor]]) -> None:
        self.weights = weights
        filled = _filled(weights)
        self.transposed = [w.T.contiguous() for w, _ in filled]
        self.hidden = [(b, t) for (_, b), t in zip(filled[:-1], self.transposed, strict=False)]
        self.outputs = len(weights[-1][0])
        self.inputs = weights[0][0].shape[1]
        self.single = self.outputs == 1
        w, self.bias = filled[-1]
        self.exact = len(w) == self.outputs
        self.last = w[: self.outputs]
        # a product whose bits depend on where a row is in memory
        self.dot = self.single and w.shape[1] % 4 > 0
        # Products that end in an odd number of columns are slow; a few more columns of zeros cost
        # less.
        width = (
            -self.inputs % COLUMN_BLOCK if len(weights) > 1 or self.outputs >= COLUMN_BLOCK else 0
        )
        first = nn.functional.pad(self.last if len(weights) == 1 else filled[0][0], (0, width))
        self.backward = [first, *[w for w, _ in filled[1:]]]

    @classmethod
    def of(cls, module: nn.Module) -> "Engine | None":
        """The engine for a module, or None if it is not Linear and ReLU layers in turn (dropout is
        idle)."""
        layers = [m for m in flat_layers(module) if not isinstance(m, nn.Dropout | nn.Identity)]
        plain = all(type(m) is (nn.ReLU if i % 2 else nn.Linear) for i, m in enumerate(layers))
        parts: list[Any] = list(module.modules())
        hooked = any(m._forward_hooks or m._forward_pre_hooks for m in parts)
        if not plain or len(layers) % 2 == 0 or hooked:
            return None
        linear = [m for m in layers if isinstance(m, nn.Linear)]
        biases = [
            m.weight.new_zeros(m.out_features) if m.bias is None else m.bias.detach()
            for m in linear
        ]
        return cls([(m.weight.detach(), b) for m, b in zip(linear, biases, strict=True)])

    def against(self, sign: float, level: float) -> "Engine":
        """For two classes (or one logit): the network whose one output is level - sign * (s_1 -
        s_0)."""
        w, b = self.weights[-1]
        w, b = (w[1:] - w[:1], b[1:] - b[:1]) if len(w) == 2 else (w, b)
        return Engine([*self.weights[:-1], (-sign * w, level - sign * b)])

    def scores(self, x: Tensor) -> Tensor:
        return self.vjp(x)[0]

    def vjp(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Scores (n, k), and the function from weights on them to gradients by the rows."""
        h = x
        hidden = list[Tensor]()
        for b, transposed in self.hidden:
            h = torch.addmm(b, h, transposed).relu_()
            hidden.append(h)
        w = self.last if hidden else self.backward[0]

        def pull(v: Tensor) -> Tensor:
            g = v * w if self.single else v @ w
            for i in range(len(hidden) - 1, -1, -1):
                g = g.mul_(hidden[i].sign_()) @ self.backward[i]  # [h > 0], as h is never negative
            return g[:, : self.inputs]

        if self.dot:
            return (h * self.last).sum(1, keepdim=True).add_(self.bias), pull
        scores = torch.addmm(self.bias, h, self.transposed[-1])
        return scores if self.exact else scores[:, : self.outputs], pull


def _filled(weights: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """The same network with layers filled up to a multiple of 4 by units that do nothing; widths of
    2, and one output, stay.

    Kernels that multiply matrices treat other numbers of columns (5, 6, 7, 9, 10, 11 in single, odd
    ones in double precision) in two ways, by a row's place in the batch, and the results differ in
    the last bit.
    """
    *inner, outputs = (len(w) for w, _ in weights)
    return padded_layers(
        weights, [0 if n == 2 else -n % 4 for n in inner] + [0 if outputs <= 2 else -outputs % 4]
    )


def padded_layers(
    weights: list[tuple[Tensor, Tensor]], more: Sequence[int]
) -> list[tuple[Tensor, Tensor]]:
    """The same network with this many more units in each layer, which do nothing: their weights
    are 0."""
    pad = nn.functional.pad
    inputs = 0, *more[:-1]
    layers = zip(weights, inputs, more, strict=True)
    return [
        (pad(w, (0, a, 0, b)), pad(bias, (0, b))) if a or b else (w, bias)
        for (w, bias), a, b in layers
    ]
