"""A stack of networks with first and second derivatives.

M networks of one architecture; the parameters of each are a row of (M, P). `Leaky` has Linear
layers with LeakyReLU between them and works by hand:

    h_0 = x,  a_i = h_{i-1} W_i + b_i,  h_i = s_i a_i,  s_i = 1 or `slope`,  z = a_L
    L = sum over rows of w L(z, y),   d_i = dL / da_i,   dL/dW_i = h_{i-1}' d_i,   dL/dx = d_1 W_1'

Second derivatives come from Pearlmutter's R-operator, the derivative of all of the above along a
direction p = (P_i, q_i) of the parameters; between the kinks of LeakyReLU only the loss is curved:

    R a_i = R h_{i-1} W_i + h_{i-1} P_i + q_i,         R h_i = s_i R a_i
    R d_L = L''(z) R z,                                R d_{i-1} = s_{i-1} (R d_i W_i' + d_i P_i')

so that R{dL/dtheta} is the Hessian times p, and R{dL/dx} = R d_1 W_1' + d_1 P_1' the mixed
derivative. Automatic differentiation through an unrolled training step, as in `AnyModule`, gives
the same at several times the cost.

One output, or two whose difference alone counts: L = (f - y)^2 with f the probability of class 1,
or cross-entropy on request. More outputs: cross-entropy.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from holdfast._core.types import Pullback

SLOPE = 0.01
# hidden layers are filled up to multiples of this: products of narrow matrices are several times
# slower
BLOCK = 16
Parts = list[tuple[Tensor, Tensor]]  # (W (M, a, b), b (M, 1, b)) of each layer
Curve = Callable[[Tensor], Tensor]  # R z -> R d_L
Loss = Literal["squared", "entropy"]  # of two classes
Columns = Tensor | slice  # some columns of the rows
Masks = Sequence[Tensor]  # of dropout, for each hidden layer


class Weights:
    """Parameters of M networks (M, P), and each layer's as views of them."""

    def __init__(self, flat: Tensor, sizes: Sequence[int] = ()) -> None:
        self.flat = flat
        self.sizes = tuple(sizes)
        self.prefixes = dict[int, Weights]()

    @cached_property
    def parts(self) -> Parts:
        out = Parts()
        start = 0
        m = len(self.flat)
        for a, b in itertools.pairwise(self.sizes):
            end = start + a * b
            out.append(
                (self.flat[:, start:end].view(m, a, b), self.flat[:, end : end + b].view(m, 1, b))
            )
            start = end + b
        return out

    def __len__(self) -> int:
        return len(self.flat)

    def first(self, m: int) -> "Weights":
        """The first m networks, as views."""
        if m == len(self.flat):
            return self
        if m not in self.prefixes:
            self.prefixes[m] = Weights(self.flat[:m], self.sizes)
        return self.prefixes[m]

    def empty(self) -> "Weights":
        return Weights(torch.empty_like(self.flat), self.sizes)


def block(units: int) -> int:
    """The next multiple of 16; for wide layers one of 8 will do."""
    size = BLOCK if units < 8 * BLOCK else BLOCK // 2
    return -(-units // size) * size


class Buffers:
    """Memory by name, kept from step to step: making large tensors anew costs more than filling
    them."""

    def __init__(self) -> None:
        self.held = dict[tuple[Any, ...], Tensor]()

    def __call__(self, name: tuple[Any, ...], m: int, n: int, k: int, dtype: torch.dtype) -> Tensor:
        """(m, n, k) numbers, yet to be written; what this name held before is gone."""
        key = (*name, n, k, dtype)
        found = self.held.get(key)
        if found is None or len(found) < m:
            found = self.held[key] = torch.empty(m, n, k, dtype=dtype)
        return found[:m]


# ---- losses of the outputs z (M, n, k), rows weighted with w (M, n, 1)


def slope_and_curve(
    z: Tensor, y: Tensor, w: Tensor, loss: Loss = "squared"
) -> tuple[Tensor, Curve]:
    """dL/dz, and the function from R z to R dL/dz. `y` (M, n, 1) is 0 or 1, or the number of the
    class."""
    k = z.shape[2]
    if k > 2:
        p = torch.softmax(z, 2)
        d = (p - nn.functional.one_hot(y.squeeze(2).long(), k)).mul_(w)
        return d, lambda r: (r - (p * r).sum(2, keepdim=True)).mul_(p).mul_(w)
    f = torch.sigmoid(z if k == 1 else z[..., 1:] - z[..., :1])
    miss = f - y
    f1 = torch.addcmul(f, f, f, value=-1)
    if loss == "squared":
        half = miss * (2 * w)
        d = half * f1
        curve = torch.addcmul(2 * w * f1, half, 1 - 2 * f).mul_(f1)
    else:
        d = miss * w
        curve = f1 * w
    if k == 1:
        return d, lambda r: r * curve
    return torch.cat(
        [-d, d], 2
    ), lambda r: (r[..., 1:] - r[..., :1]).mul_(curve) * r.new_tensor([-1.0, 1.0])


def losses(z: Tensor, y: Tensor) -> Tensor:
    """L(z, y) of each row, (..., n, k) and (..., n) -> (..., n)."""
    if z.shape[-1] > 2:
        return -torch.log_softmax(z, -1).gather(-1, y.long()[..., None]).squeeze(-1)
    return (torch.sigmoid(z[..., 0] if z.shape[-1] == 1 else z[..., 1] - z[..., 0]) - y).square()


@dataclass(frozen=True)
class Pass:
    """What one forward and backward pass leaves for the second derivatives."""

    inputs: list[Tensor]  # h_0 .. h_{L-1}, (M, n, .)
    slopes: list[Tensor]  # d_1 .. d_L
    curve: Curve
    name: str  # of the memory that holds them


class Net(ABC):
    """An architecture: derivatives of the loss of M networks."""

    @abstractmethod
    def scores(self, theta: Weights, x: Tensor) -> Tensor:
        """z (M, n, k) of rows (M, n, d)."""

    @abstractmethod
    def vjp(self, theta: Weights, x: Tensor) -> tuple[Tensor, Pullback]:
        """z, and the function from dL/dz to dL/dx; it may be called once, before the next call of
        `vjp`."""

    @abstractmethod
    def gradient(
        self, theta: Weights, x: Tensor, y: Tensor, w: Tensor, out: Weights, name: str
    ) -> Any:
        """Write dL/dtheta into `out`; returns what `mixed` needs. Rows (M, n, d), y and w (M, n,
        1)."""

    @abstractmethod
    def mixed(
        self, theta: Weights, along: Weights, passed: Any, columns: Columns, hessian: Weights | None
    ) -> Tensor:
        """R{dL/dx} (M, n, c) in some columns of x; writes the Hessian times p into `hessian` if
        given."""


class Leaky(Net):
    """Linear layers with LeakyReLU between them (slope 0: ReLU), by hand.

    Hidden layers have room for a multiple of 16 units. The weights of units that are not there are
    0; their gradients are then 0 too, so they stay 0 in training.

    Args:
        sizes: inputs, hidden units, outputs.
        inputs: where the inputs are among more columns, for a network on top of
            another.
        columns: how many columns there are.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        slope: float = SLOPE,
        inputs: Tensor | None = None,
        columns: int | None = None,
    ) -> None:
        self.sizes = tuple(sizes)
        self.slope = slope
        self.inputs = torch.arange(self.sizes[0]) if inputs is None else inputs
        first = self.sizes[0] if columns is None else columns
        self.padded_sizes = (first, *(block(h) for h in self.sizes[1:-1]), self.sizes[-1])
        self.buffers = Buffers()

    def weights(self, count: int, dtype: torch.dtype = torch.float32) -> Weights:
        """Room for the parameters of `count` networks, all 0."""
        total = sum(a * b + b for a, b in itertools.pairwise(self.padded_sizes))
        return Weights(torch.zeros(count, total, dtype=dtype), self.padded_sizes)

    def load(self, theta: Weights, parts: Parts) -> Weights:
        """Write weights (M, a, b) and biases (M, 1, b) of the layers, as they are without
        filling."""
        for i, ((w, b), (weight, bias)) in enumerate(zip(parts, theta.parts, strict=True)):
            rows, width = self._places(i)
            weight[:, rows, :width] = w
            bias[..., :width] = b
        return theta

    def unpadded(self, theta: Weights) -> Parts:
        """What `load` takes."""
        places = [self._places(i) for i in range(len(theta.parts))]
        return [
            (w[:, rows, :n], b[..., :n])
            for (w, b), (rows, n) in zip(theta.parts, places, strict=True)
        ]

    def _places(self, i: int) -> tuple[Tensor, int]:
        """Where layer i has its inputs, and how many outputs, without filling."""
        return self.inputs if i == 0 else torch.arange(self.sizes[i]), self.sizes[i + 1]

    def forward(
        self, theta: Weights, x: Tensor, masks: Masks = (), name: str = ""
    ) -> tuple[list[Tensor], Tensor]:
        """h_0 .. h_{L-1} and z, in memory of this name; dropout multiplies h_i with a mask."""
        h = [x]
        for i, (w, b) in enumerate(theta.parts):
            a = torch.baddbmm(b, h[-1], w, out=self._buffer((name, "h", i), x, w.shape[2]))
            if i < len(theta.parts) - 1:
                nn.functional.leaky_relu_(a, self.slope)
                a = a.mul_(masks[i]) if masks else a
            h.append(a)
        return h[:-1], h[-1]

    def backward(
        self,
        theta: Weights,
        h: list[Tensor],
        d: Tensor,
        out: Weights | None,
        masks: Masks = (),
        name: str = "",
    ) -> list[Tensor]:
        """d_1 .. d_L from d_L; writes dL/dtheta into `out` if given."""
        parts = theta.parts
        slopes = [d]
        for i in range(len(parts) - 1, -1, -1):
            if out is not None:
                gw, gb = out.parts[i]
                torch.bmm(h[i].transpose(1, 2), d, out=gw)
                torch.sum(d, 1, keepdim=True, out=gb)
            if i:
                d = torch.bmm(
                    d,
                    parts[i][0].transpose(1, 2),
                    out=self._buffer((name, "d", i), d, self.padded_sizes[i]),
                )
                d = self._kinked(d.mul_(masks[i - 1]) if masks else d, h[i])
                slopes.insert(0, d)
        return slopes

    def _buffer(self, name: tuple[Any, ...], like: Tensor, width: int) -> Tensor:
        return self.buffers(name, like.shape[0], like.shape[1], width, like.dtype)

    def _kinked(self, g: Tensor, h: Tensor) -> Tensor:
        """s_i g, in place; the sign of h_i tells s_i."""
        if self.slope == 0:
            return torch.ops.aten.threshold_backward.grad_input(g, h, 0, grad_input=g)
        return torch.ops.aten.leaky_relu_backward.grad_input(g, h, self.slope, True, grad_input=g)

    def scores(self, theta: Weights, x: Tensor) -> Tensor:
        return self.forward(theta, x, name="scores")[1].clone()

    def vjp(self, theta: Weights, x: Tensor, masks: Masks = ()) -> tuple[Tensor, Pullback]:
        h, z = self.forward(theta, x, masks, "vjp")

        def pull(d: Tensor) -> Tensor:
            return torch.bmm(
                self.backward(theta, h, d, None, masks, "vjp")[0], theta.parts[0][0].transpose(1, 2)
            )

        return z, pull

    def gradient(
        self,
        theta: Weights,
        x: Tensor,
        y: Tensor,
        w: Tensor,
        out: Weights,
        name: str,
        masks: Masks = (),
        loss: Loss = "squared",
    ) -> Pass:
        h, z = self.forward(theta, x, masks, name)
        d, curve = slope_and_curve(z, y, w, loss)
        return Pass(h, self.backward(theta, h, d, out, masks, name), curve, name)

    def mixed(
        self,
        theta: Weights,
        along: Weights,
        passed: Pass,
        columns: Columns,
        hessian: Weights | None,
    ) -> Tensor:
        last = len(theta.parts) - 1
        p = along.parts
        parts = theta.parts
        # R h_1 .., and R h_0 = 0
        moved = list[Tensor]()
        r = torch.empty(0)
        for i, (dw, db) in enumerate(p):
            h = passed.inputs[i]
            r_a = torch.baddbmm(db, h, dw, out=self._buffer(("r", i), h, dw.shape[2]))
            if i:
                r_a.baddbmm_(r, parts[i][0])
            r = r_a if i == last else self._kinked(r_a, passed.inputs[i + 1])
            moved.append(r)
        r_d = passed.curve(r)
        for i in range(last, -1, -1):
            d = passed.slopes[i]
            h = passed.inputs[i]
            w, _ = parts[i]
            if hessian is not None:
                gw, gb = hessian.parts[i]
                torch.bmm(h.transpose(1, 2), r_d, out=gw)
                if i:
                    gw.baddbmm_(moved[i - 1].transpose(1, 2), d)
                torch.sum(r_d, 1, keepdim=True, out=gb)
            dw, w = (p[i][0], w) if i else (p[i][0][:, columns], w[:, columns])
            buffer = self._buffer((passed.name, "rd", i), d, dw.shape[1])
            r_d = torch.bmm(d, dw.transpose(1, 2), out=buffer).baddbmm_(r_d, w.transpose(1, 2))
            if i:
                r_d = self._kinked(r_d, passed.inputs[i])
        return r_d


class AnyModule(Net):
    """Any torch module without random layers, through `torch.func`."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.shapes = {name: p.shape for name, p in module.named_parameters()}
        self.buffers = dict(module.named_buffers())

    def weights(self, count: int) -> Weights:
        """`count` copies of the module's own parameters."""
        flat = torch.cat([p.detach().reshape(-1) for p in self.module.parameters()])
        return Weights(flat.expand(count, -1).clone())

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters (..., P) by name."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes.values()], -1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.reshape(*flat.shape[:-1], *shape) for (name, shape), part in named}

    def _scores(self, flat: Tensor, x: Tensor) -> Tensor:
        out = functional_call(self.module, (self.named(flat), self.buffers), (x,))
        return out[:, None] if out.ndim == 1 else out

    def _loss(self, flat: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return (losses(self._scores(flat, x), y.squeeze(-1)) * w.squeeze(-1)).sum()

    def scores(self, theta: Weights, x: Tensor) -> Tensor:
        return vmap(self._scores)(theta.flat, x)

    def vjp(self, theta: Weights, x: Tensor) -> tuple[Tensor, Pullback]:
        with torch.enable_grad():
            rows = x.detach().requires_grad_()
            z = self.scores(theta, rows)
        return z.detach(), lambda d: torch.autograd.grad(z, rows, d)[0]

    def gradient(
        self, theta: Weights, x: Tensor, y: Tensor, w: Tensor, out: Weights, name: str
    ) -> Any:
        out.flat.copy_(vmap(cast(Any, grad(self._loss)))(theta.flat, x, y, w))
        return x, y, w

    def mixed(
        self, theta: Weights, along: Weights, passed: Any, columns: Columns, hessian: Weights | None
    ) -> Tensor:
        def directed(flat: Tensor, rows: Tensor, p: Tensor, y: Tensor, w: Tensor) -> Tensor:
            # not jvp: at its first use torch warns of its own doings
            first: Any = grad(self._loss)
            return (first(flat, rows, y, w) * p).sum()

        x, y, w = passed
        slope = cast(Any, grad(directed, argnums=(0, 1)))
        by_theta, by_x = vmap(slope)(theta.flat, x, along.flat, y, w)
        if hessian is not None:
            hessian.flat.copy_(by_theta)
        return by_x[..., columns]
