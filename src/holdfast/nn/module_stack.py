"""Many modules of one architecture, whatever they are made of, through `torch.func`."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap

from holdfast.errors import ModelError
from holdfast.nn.stack import (
    ModelStack,
    Named,
    Stack,
    StackPullback,
    lent_generator,
    padded,
    row_block,
)


@dataclass(frozen=True, eq=False)
class AutogradPullback:
    """The way back through any module."""

    back: Callable[[Tensor], tuple[Tensor, ...]]

    def slope(self, v: Tensor) -> Tensor:
        return self.back(v.mT)[0].flatten(2).mT

    def onto(self, slope: Tensor, out: Tensor) -> Tensor:
        return out.add_(slope)


class ModuleStack(ModelStack):
    """Any torch module, through `torch.func`; one that draws random numbers or keeps statistics
    trains alone."""

    def __init__(self, module: nn.Module, count: int) -> None:
        self.template = copy.deepcopy(module)
        self.count = count
        for p in self.template.parameters():
            p.requires_grad_(False)
        self.alone = count == 1
        shapes = {name: p.shape for name, p in self.template.named_parameters()}
        if not shapes:
            raise ModelError(f"a {type(module).__name__} has no parameters to train")
        self.part_sizes = [shape.numel() for shape in shapes.values()]
        self.theta = torch.zeros(
            count * sum(self.part_sizes), dtype=next(self.template.parameters()).dtype
        )
        self.block = row_block(min(self.part_sizes))
        parts = torch.split(self.theta, [count * n for n in self.part_sizes])
        self.parts = {
            name: v.view(count, *shape)
            for (name, shape), v in zip(shapes.items(), parts, strict=True)
        }
        self.statistics = {
            name: v.expand(count, *v.shape).clone() for name, v in self.template.named_buffers()
        }

    def empty(self, count: int) -> "ModuleStack":
        return ModuleStack(self.module(0), count)

    def trains_alone(self, rows: Tensor) -> bool:
        """A module that draws from the global generator or updates buffers cannot be batched over
        models."""
        if self.statistics:
            return True
        with lent_generator(0):
            before = torch.get_rng_state()
            self.template.train()(rows)
            return not torch.equal(before, torch.get_rng_state())

    def scores(self, x: Tensor) -> Tensor:
        rows = x if x.ndim == 3 else padded(x, self.block)
        each = vmap(self._raw, in_dims=(0, 0, 0 if x.ndim == 3 else None))
        return each(self.parts, self.statistics, rows)[:, : x.shape[-2]]

    def gradient(self, x: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        net = self.template.train()
        m = self.count
        weights = (
            torch.ones(1, 1, dtype=x.dtype).expand(labels.shape) if weights is None else weights
        )

        def loss(parts: Named, statistics: Named, rows: Tensor, y: Tensor, w: Tensor) -> Tensor:
            return (w * cross_entropy(functional_call(net, (parts, statistics), (rows,)), y)).mean()

        batch = (x.expand(m, *x.shape[1:]), labels.expand(m, -1), weights.expand(m, -1))
        slope: Any = grad(loss)
        if self.alone:
            own = [{k: v[0] for k, v in part.items()} for part in (self.parts, self.statistics)]
            slopes: Named = slope(*own, *[v[0] for v in batch])
        else:
            slopes = vmap(slope)(self.parts, self.statistics, *batch)
        return torch.cat([slopes[name].reshape(-1) for name in self.parts])

    def ascent(self, x: Tensor, labels: Tensor) -> Tensor:
        m = self.count

        def loss(rows: Tensor, parts: Named, statistics: Named, y: Tensor) -> Tensor:
            raw = self._raw(parts, statistics, rows)
            if raw.shape[1] > 2:
                return cross_entropy(raw, y).sum()
            lead = raw[:, -1] - raw[:, 0] if raw.shape[1] == 2 else raw[:, 0]
            return ((1 - 2 * y) * lead).sum()

        slope: Any = grad(loss)
        return vmap(slope)(
            x.expand(m, *x.shape[1:]), self.parts, self.statistics, labels.expand(m, -1)
        )

    def vjp(self, x: Tensor, shape: Sequence[int] = ()) -> tuple[Tensor, StackPullback]:
        def score(rows: Tensor) -> Tensor:
            return self._each(self._raw, self.parts, self.statistics, rows)

        rows = x.mT.contiguous()
        differentiate = cast(Any, vjp)
        raw, back = differentiate(score, rows.view(*rows.shape[:2], *shape) if len(shape) else rows)
        return raw.mT, AutogradPullback(back)

    def backprop(
        self, x: Tensor, more: Sequence[Tensor], slope: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        def one(parts: Named, statistics: Named, rows: Tensor, used: Tensor) -> Tensor:
            first = self._raw(parts, statistics, rows, training=True)
            return torch.cat([first, self._raw(parts, statistics, used)]) if len(used) else first

        def total(parts: Named, statistics: Named, *rows: Tensor) -> tuple[Tensor, Tensor]:
            raw = self._each(one, parts, statistics, *rows)
            return (raw * slope(raw.detach())).sum(), raw

        by_parts: Any = grad(total, has_aux=True)
        slopes, raw = by_parts(
            self.parts, self.statistics, x.expand(self.count, *x.shape[1:]), torch.cat([*more], 1)
        )
        return torch.cat([slopes[name].reshape(-1) for name in self.parts]), raw

    def _raw(
        self, parts: Named, statistics: Named, rows: Tensor, *, training: bool = False
    ) -> Tensor:
        """(n, k) outputs of one model."""
        out = functional_call(self.template.train(training), (parts, statistics), (rows,))
        return out[:, None] if out.ndim == 1 else out

    def _each(
        self, one: Callable[..., Tensor], parts: Named, statistics: Named, *rows: Tensor
    ) -> Tensor:
        """What a function of one model's tensors and rows gives for every model."""
        if not self.alone:
            return vmap(one)(parts, statistics, *rows)
        own = [{k: v[0] for k, v in part.items()} for part in (parts, statistics)]
        return one(*own, *[v[0] for v in rows])[None]

    def module(self, i: int) -> nn.Module:
        net = copy.deepcopy(self.template)
        # A tensor with two names in the module, or none in its files, is in place already.
        net.load_state_dict(
            {name: value[i].clone() for name, value in self.state().items()}, strict=False
        )
        return net.requires_grad_(True).eval()

    def state(self) -> Named:
        return {**self.parts, **self.statistics}


def cross_entropy(raw: Tensor, y: Tensor) -> Tensor:
    """(n,) the loss of raw outputs: one logit, or one per class."""
    if raw.ndim == 1 or raw.shape[1] == 1:
        return nn.functional.binary_cross_entropy_with_logits(
            raw.reshape(-1), y.to(raw.dtype), reduction="none"
        )
    return nn.functional.cross_entropy(raw, y, reduction="none")


def stack_of(module: nn.Module, count: int) -> ModelStack:
    """Room for `count` models like this one, by hand where possible."""
    return Stack.like(module, count) or ModuleStack(module, count)
