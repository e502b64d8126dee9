"""Many networks of one architecture in one tensor: scored together, trained together.

`Stack` computes gradients by hand, layer by layer, with one batched product where a loop over
models would make M small ones. It and `ModuleStack`, in `nn.module_stack`, keep all parameters in
one flat vector, so that one call of Adam, which works element by element, updates every model
exactly as if it were trained alone.

`vjp` has rows in the last axis, (M, d, n): on small tables sums over a few columns or classes, and
the products, then run along memory, which is two to three times as fast.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from holdfast.nn.architecture import flat_layers, mlp
from holdfast.nn.relu_network import Engine

Named = dict[str, Tensor]
WIDE = 64  # rows with this many columns are better not copied
# with fewer products than this, torch multiplies stacked matrices in another way
SMALL = 400
ROWS = 64


class StackPullback(Protocol):
    """The way back from outputs to rows."""

    def slope(self, v: Tensor) -> Tensor:
        """(M, h, n) the gradient of sum(v * raw), for weights v (M, k, n), by what the first layer
        makes of rows."""
        ...

    def onto(self, slope: Tensor, out: Tensor) -> Tensor:
        """Add the same gradient by the rows to `out` (M, d, n)."""
        ...


class ModelStack(ABC):
    """M models of one architecture."""

    theta: Tensor  # all parameters of all models, part by part
    part_sizes: list[int]  # how many of each part are one model's
    count: int

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """Raw outputs (M, n, k) for rows (n, d), or (M, n, d) when each model has rows of its
        own."""

    @abstractmethod
    def gradient(self, x: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        """The gradient of every model's mean (weighted) cross-entropy, laid out like `theta`, for
        rows (M, n, d), labels and weights (M, n). A leading 1 means: the same for all."""

    @abstractmethod
    def ascent(self, x: Tensor, labels: Tensor) -> Tensor:
        """(M, n, d) by rows (M, n, d): for each row, a positive multiple of the gradient of the
        cross-entropy; of two classes that of the score difference, which does not vanish where a
        model is sure."""

    @abstractmethod
    def vjp(self, x: Tensor, shape: Sequence[int] = ()) -> tuple[Tensor, StackPullback]:
        """Raw outputs (M, k, n) of rows (M, d, n) by models in use, and the way back; `shape` is
        that of a row that is not flat."""

    def input_gain(self) -> float:
        """No column of a row's gradient is larger than this times the length of the slope `vjp` led
        back."""
        return math.inf

    @abstractmethod
    def backprop(
        self, x: Tensor, more: Sequence[Tensor], slope: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The gradient of sum(v * raw), v = slope(raw) held constant, laid out like `theta`; and
        raw outputs (M, b + c_1 + c_2 + .., k). In rows x (M, b, ...), or (1, b, ...) for all,
        models are in training; in `more` (M, c_1, ...), (M, c_2, ...), .. they are in use: no
        dropout, statistics as they are."""

    def owner(self) -> Tensor:
        """Which model each number in `theta` belongs to."""
        return torch.cat([torch.arange(self.count).repeat_interleave(n) for n in self.part_sizes])

    @abstractmethod
    def module(self, i: int) -> nn.Module:
        """Model i alone."""

    @abstractmethod
    def state(self) -> Named:
        """Named tensors (M, ...), as a module's `state_dict` would hold them with M = 1."""

    def load(self, state: Named) -> None:
        """Take over named tensors (M, ...)."""
        for name, value in self.state().items():
            value.copy_(state[name])

    def keep(self, models: Tensor, state: Named) -> None:
        """Write the present parameters of some models into `state`."""
        for name, value in self.state().items():
            state[name][models] = value[models]

    def named(self, tensors: Named) -> Named:
        """A module's own tensors under the names used here."""
        return tensors

    @abstractmethod
    def empty(self, count: int) -> "ModelStack":
        """Room for this many models of the same architecture."""

    def select(self, models: Tensor) -> "ModelStack":
        """Some of the models, as a stack of their own."""
        out = self.empty(len(models))
        for value, source in zip(out.state().values(), self.state().values(), strict=True):
            value.copy_(source[models])
        return out


class Stack(ModelStack):
    """Linear and ReLU layers in turn."""

    def __init__(
        self, sizes: Sequence[int], count: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self.sizes = tuple(sizes)
        self.count = count
        pairs = list(itertools.pairwise(self.sizes))
        self.part_sizes = [n for a, b in pairs for n in (a * b, b)]
        self.theta = torch.zeros(count * sum(self.part_sizes), dtype=dtype)
        self.grad = torch.zeros_like(self.theta)
        self.block = row_block(min(a * b for a, b in pairs))
        self.buffers = dict[int, list[tuple[Tensor, Tensor]]]()
        self.layers = self._views(self.theta, pairs)
        self.slopes = self._views(self.grad, pairs)
        self.transposed = [(w.mT, b.mT) for w, b in self.layers]  # for rows in the last axis

    def _views(self, flat: Tensor, pairs: list[tuple[int, int]]) -> list[tuple[Tensor, Tensor]]:
        """The flat vector as weights (M, a, b) and biases (M, 1, b) of each layer."""
        m = self.count
        parts = iter(torch.split(flat, [m * n for n in self.part_sizes]))
        return [(next(parts).view(m, a, b), next(parts).view(m, 1, b)) for a, b in pairs]

    @classmethod
    def like(cls, module: nn.Module, count: int) -> "Stack | None":
        """Room for `count` networks of a module's architecture; None if it is not Linear and ReLU
        in turn."""
        engine = Engine.of(module)
        layers = flat_layers(module)
        # idle when scoring, not when training
        if engine is None or any(isinstance(m, nn.Dropout) for m in layers):
            return None
        linear = [m for m in layers if isinstance(m, nn.Linear)]
        # no bias; one layer used twice
        if any(m.bias is None for m in linear) or len(set(linear)) < len(linear):
            return None
        sizes = [engine.inputs, *[len(w) for w, _ in engine.weights]]
        return cls(sizes, count, engine.weights[0][0].dtype)

    def empty(self, count: int) -> "Stack":
        return Stack(self.sizes, count, self.theta.dtype)

    def scores(self, x: Tensor) -> Tensor:
        w, b = self.layers[-1]
        rows = x if x.ndim == 3 else padded(x, self.block)
        return torch.baddbmm(b, self.hidden(rows), w)[:, : x.shape[-2]]

    def gradient(self, x: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        x = x.expand(self.count, -1, -1)
        h = self._forward([x])
        return self._back(
            [x], h, self._output_slope(h[-1] if h else x, labels, weights, x.shape[1])
        )

    def backprop(
        self, x: Tensor, more: Sequence[Tensor], slope: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        w, b = self.layers[-1]
        gw, gb = self.slopes[-1]
        rows = [x.expand(self.count, -1, -1), *more]
        # a copy costs less than products in parts
        if self.sizes[0] < WIDE or len(self.layers) == 1:
            rows = [torch.cat(rows, 1)]
        h = self._forward(rows)
        last = h[-1] if h else rows[0]
        raw = torch.baddbmm(b, last, w)
        g = slope(raw)
        torch.bmm(last.transpose(1, 2), g, out=gw)
        torch.sum(g, 1, keepdim=True, out=gb)
        return self._back(rows, h, torch.bmm(g, w.transpose(1, 2))), raw

    def _forward(self, rows: list[Tensor]) -> list[Tensor]:
        """What each layer but the first sees, for rows (M, n_1, d), (M, n_2, d), .. one after the
        other."""
        buffers = self._buffers(sum(part.shape[1] for part in rows))
        for i, ((w, b), (h, _)) in enumerate(zip(self.layers, buffers, strict=False)):
            if i:
                torch.baddbmm(b, buffers[i - 1][0], w, out=h)
            else:
                for part, out in zip(
                    rows, torch.split(h, [len(r[0]) for r in rows], 1), strict=True
                ):
                    torch.baddbmm(b, part, w, out=out)
            h.relu_()
        return [h for h, _ in buffers]

    def _back(self, rows: list[Tensor], h: list[Tensor], g: Tensor) -> Tensor:
        """Write the gradients of all layers but the last, from the loss's gradient by what the last
        sees (M, n, h)."""
        buffers = self._buffers(g.shape[1])
        for i in range(len(self.layers) - 2, -1, -1):
            gw, gb = self.slopes[i]
            g = torch.ops.aten.threshold_backward.grad_input(g, h[i], 0, grad_input=g)
            torch.sum(g, 1, keepdim=True, out=gb)
            if i:
                torch.bmm(h[i - 1].transpose(1, 2), g, out=gw)
                g = torch.bmm(g, self.layers[i][0].transpose(1, 2), out=buffers[i - 1][1])
        if h:
            gw, _ = self.slopes[0]
            for j, (part, each) in enumerate(
                zip(rows, torch.split(g, [len(r[0]) for r in rows], 1), strict=True)
            ):
                if j:
                    torch.baddbmm(gw, part.transpose(1, 2), each, out=gw)
                else:
                    torch.bmm(part.transpose(1, 2), each, out=gw)
        return self.grad

    def ascent(self, x: Tensor, labels: Tensor) -> Tensor:
        x = x.expand(self.count, -1, -1)
        k = self.sizes[-1]
        w, b = self.layers[-1]
        h = self._forward([x])
        if k > 2:
            p = torch.softmax(torch.baddbmm(b, h[-1] if h else x, w), 2)
            g = torch.bmm(p - nn.functional.one_hot(labels, k), w.transpose(1, 2))
        else:
            line = (w[..., 1:] - w[..., :1] if k == 2 else w).transpose(1, 2)
            g = (1 - 2 * labels[..., None]).to(w.dtype) * line  # (M, n, h)
        for i in range(len(self.layers) - 2, -1, -1):
            g = torch.ops.aten.threshold_backward.grad_input(g, h[i], 0, grad_input=g)
            g = torch.bmm(g, self.layers[i][0].transpose(1, 2))
        return g

    def vjp(self, x: Tensor, shape: Sequence[int] = ()) -> tuple[Tensor, StackPullback]:
        w, b = self.transposed[-1]
        hidden = list[Tensor]()
        by_row = x.stride(1) == 1 < x.shape[1]  # each row is in one piece of memory
        h = x.mT if by_row else x
        for weight, bias in (self.layers if by_row else self.transposed)[:-1]:
            h = torch.baddbmm(bias, *((h, weight) if by_row else (weight, h))).relu_()
            hidden.append(h)
        return torch.baddbmm(b, w, h.mT if by_row else h), LayerPullback(self, hidden, by_row)

    def input_gain(self) -> float:
        return math.sqrt(float(self.layers[0][0].square().sum(2).max()))

    def _buffers(self, n: int) -> list[tuple[Tensor, Tensor]]:
        """Memory for the hidden values of n rows and their slopes, kept from step to step."""
        if n not in self.buffers:
            shapes = [(self.count, n, h) for h in self.sizes[1:-1]]
            self.buffers[n] = [(self.theta.new_empty(s), self.theta.new_empty(s)) for s in shapes]
        return self.buffers[n]

    def _output_slope(self, h: Tensor, labels: Tensor, weights: Tensor | None, n: int) -> Tensor:
        """Write the last layer's gradient; return the loss's derivative by its input (M, n, h)."""
        w, b = self.layers[-1]
        gw, gb = self.slopes[-1]
        k = self.sizes[-1]
        # One logit, or two whose difference alone counts: a sigmoid and half the products.
        line = w[..., 1:] - w[..., :1] if k == 2 else w
        bias = b[..., 1:] - b[..., :1] if k == 2 else b
        g = torch.baddbmm(bias, h, line)
        if k > 2:
            g = torch.softmax(g, 2).sub_(nn.functional.one_hot(labels, k))
        else:
            g.sigmoid_().sub_(labels[..., None])
        g *= 1 / n if weights is None else weights[..., None] / n
        if k == 2:
            one = torch.bmm(h.transpose(1, 2), g, out=torch.empty_like(line))
            total = g.sum(1, keepdim=True)
            gw[..., 1:] = one
            gw[..., :1] = -one
            gb[..., 1:] = total
            gb[..., :1] = -total
            return g * line.transpose(1, 2)
        torch.bmm(h.transpose(1, 2), g, out=gw)
        torch.sum(g, 1, keepdim=True, out=gb)
        return torch.bmm(g, w.transpose(1, 2))

    def hidden(self, x: Tensor) -> Tensor:
        """(M, n, h) what the last layer sees."""
        h = x.expand(self.count, -1, -1)
        for w, b in self.layers[:-1]:
            h = torch.baddbmm(b, h, w).relu_()
        return h

    def module(self, i: int) -> nn.Sequential:
        with torch.device("meta"):
            net = mlp(self.sizes[0], self.sizes[1:-1], self.sizes[-1])
        net.load_state_dict(
            {name: value[i].clone() for name, value in self.state().items()}, assign=True
        )
        return net.eval()

    def state(self) -> Named:
        each = enumerate(self.layers)
        return {
            k: v
            for i, (w, b) in each
            for k, v in ((f"{2 * i}.weight", w.mT), (f"{2 * i}.bias", b.squeeze(1)))
        }

    def named(self, tensors: Named) -> Named:
        """A nested Sequential names its layers differently, but in the same order."""
        return dict(zip(self.state(), tensors.values(), strict=True))


@dataclass(frozen=True, eq=False)
class LayerPullback:
    """The way back through Linear and ReLU layers."""

    models: Stack
    hidden: list[Tensor]  # (M, h, n) what each layer but the first sees; `by_row`: (M, n, h)
    by_row: bool

    def slope(self, v: Tensor) -> Tensor:
        layers = (self.models.transposed if self.by_row else self.models.layers)[:0:-1]
        v = v.mT if self.by_row else v
        for (w, _), h in zip(layers, reversed(self.hidden), strict=True):
            v = torch.bmm(v, w) if self.by_row else torch.bmm(w, v)
            v = torch.ops.aten.threshold_backward.grad_input(v, h, 0, grad_input=v)
        return v.mT if self.by_row else v

    def onto(self, slope: Tensor, out: Tensor) -> Tensor:
        if not self.by_row:
            return torch.baddbmm(out, self.models.layers[0][0], slope, out=out)
        return torch.baddbmm(out.mT, slope.mT, self.models.transposed[0][0], out=out.mT).mT


def row_block(products: int) -> int:
    """How many rows make a score independent of n, if a row takes this many products in the
    smallest layer."""
    return ROWS * -(-SMALL // (ROWS * products))


def padded(x: Tensor, block: int) -> Tensor:
    """`x` with zero rows appended up to a multiple of `block`."""
    return nn.functional.pad(x, (0, 0, 0, -len(x) % block))


@contextmanager
def lent_generator(seed: int) -> Generator[None]:
    """The global CPU generator, seeded; it is given back as it was."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
