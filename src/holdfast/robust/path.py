"""The probability of a class along the line from a baseline b to each row, and its gradient.

    J(z) = mean over models of  sum_j w_j p_y( b + t_j (z - b) ),    t_j = j / P,  j = 1 .. P

t_P = 1 is the row itself. Black, Wang, Fredrikson and Datta, "Consistent Counterfactuals for Deep Models", ICLR
2022, Definition 5 with w_j = 1 / P and one model. For Linear/ReLU networks the first layer is linear along the
line, W(b + t(z - b)) = Wb + t W(z - b): it is computed once per row instead of once per point, both ways.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from holdfast.errors import untyped
from holdfast.model import Model, to_scores
from holdfast.stack import Members, Stack

_tensordot: Any = untyped("torch").tensordot


class Value(NamedTuple):
    """What is known about n rows after one pass."""

    total: Tensor  # (n,) the sum of J over the models
    least: Tensor  # (n,) the lowest probability that a model gives to the row itself
    slope: Tensor  # (n, d) gradient of `total`
    scores: Tensor  # (n, k) of the first model, at the row itself


PathValue = Callable[[Tensor], Value]


class Path(NamedTuple):
    """The points on the lines: where they start, and how much each of them counts."""

    baseline: Tensor  # (d,)
    t: Tensor  # (P,)
    w: Tensor  # (P,)

    @classmethod
    def of(cls, baseline: Tensor, points: int, end: float = 0.0) -> "Path":
        """P equal steps; `end` is extra weight on the row itself, 1 gives the paper's Equation 5."""
        t = torch.arange(1, points + 1, dtype=baseline.dtype) / points
        w = torch.full_like(t, 1 / points)
        w[-1] += end
        return cls(baseline, t, w)


def path_value(model: Model, y: Tensor, path: Path) -> PathValue:
    """J and its gradient for rows whose class is `y`, on one model."""
    engine = model.engine
    if engine is None or len(engine.weights) < 2:
        return _any_model(model, y, path)
    alone = Stack([engine.inputs, *[len(w) for w, _ in engine.weights]], 1, engine.weights[0][0].dtype)
    alone.load(dict(zip(alone.state(), (v[None] for pair in engine.weights for v in pair), strict=True)))
    return _linear_relu(alone, y, path)


def stack_value(models: Members, y: Tensor, path: Path) -> PathValue:
    """The same, summed over many models."""
    return _linear_relu(models, y, path) if isinstance(models, Stack) else _any_stack(models, y, path)


def _any_model(model: Model, y: Tensor, path: Path) -> PathValue:
    b, t, w = path
    own = torch.nn.functional.one_hot(y, len(model.classes)).to(b.dtype)

    def value(z: Tensor) -> Value:
        line = torch.lerp(b, z, t[:, None, None])  # (P, n, d)
        scores, pull = model.vjp(line.flatten(0, 1))
        p = torch.softmax(scores, 1).reshape(len(t), len(z), -1)  # (P, n, k)
        mine = (p * own).sum(2, keepdim=True)
        slope = w[:, None, None] * mine * (own - p)
        g = pull(slope.flatten(0, 1)).reshape(line.shape)
        mine = mine.squeeze(2)
        return Value(w @ mine, mine[-1], _tensordot(t, g, 1), scores[-len(z) :])

    return value


def _any_stack(models: Members, y: Tensor, path: Path) -> PathValue:
    b, t, w = path

    def value(z: Tensor) -> Value:
        line = torch.lerp(b, z, t[:, None, None]).detach().requires_grad_()  # (P, n, d)
        with torch.enable_grad():
            raw = models.scores(line.flatten(0, 1))
            scores = to_scores(raw.flatten(0, 1), "logits").reshape(models.count, len(t), len(z), -1)
            mine = y.expand(models.count, len(t), -1)[..., None]
            p = torch.softmax(scores, 3).gather(3, mine).squeeze(3)  # (M, P, n)
            total: Tensor = w @ p.sum(0)
            (g,) = torch.autograd.grad(total.sum(), line)
        p = p.detach()
        return Value(total.detach(), p[:, -1].amin(0), _tensordot(t, g, 1), scores[0, -1].detach())

    return value


def _linear_relu(models: Stack, y: Tensor, path: Path) -> PathValue:
    b, t, w = path
    (w1, b1), middle, (wl, bl) = models.layers[0], models.layers[1:-1], models.layers[-1]
    start = (b1 + (b @ w1)[:, None])[:, None]  # (M, 1, 1, h) what the first layer makes of the baseline
    two = models.sizes[-1] <= 2
    if two and models.sizes[-1] == 2:  # only the difference of the two scores counts
        wl, bl = wl[..., 1:] - wl[..., :1], bl[..., 1:] - bl[..., :1]
    sign = (2.0 * y - 1).to(b.dtype)
    own = torch.nn.functional.one_hot(y, max(2, models.sizes[-1])).to(b.dtype)
    m, points, n = models.count, len(t), len(y)
    steps, room = t[:, None, None], torch.empty(m, points, n, models.sizes[1], dtype=b.dtype)
    back = wl.transpose(1, 2).contiguous()
    ops = torch.ops.aten

    def value(z: Tensor) -> Value:
        u = torch.matmul(z - b, w1)  # (M, n, h)
        h = torch.mul(u[:, None], steps, out=room).add_(start).relu_().view(m, points * n, -1)
        kept = [h]
        for weight, bias in middle:
            h = torch.baddbmm(bias, h, weight).relu_()
            kept.append(h)
        raw = torch.baddbmm(bl, h, wl).view(m, points, n, -1)
        if two:
            lead = raw.squeeze(3) * sign
            mine = torch.sigmoid(lead)
            # p (1 - p) from both sides: 1 - p is rounded to 0 long before the true slope is.
            g = (mine * torch.sigmoid(-lead) * sign * w[:, None]).view(m, points * n, 1) * back
            scores = to_scores(raw[0, -1], "logits")
        else:
            p = torch.softmax(raw, 3)
            mine = (p * own).sum(3)
            g = torch.bmm((w[:, None, None] * mine[..., None] * (own - p)).view(m, points * n, -1), back)
            scores = raw[0, -1]
        for (weight, _), h in zip(reversed(middle), reversed(kept[1:]), strict=True):
            g = torch.bmm(ops.threshold_backward(g, h, 0), weight.transpose(1, 2))
        g = ops.threshold_backward(g, kept[0], 0).view(m, points, -1)
        g = torch.matmul(t, g).view(m, n, -1)  # (M, n, h)
        slope = torch.bmm(g, w1.transpose(1, 2)).sum(0) if m > 1 else g[0] @ w1[0].T
        total = torch.matmul(w, mine).sum(0)
        return Value(total, mine[:, -1].amin(0), slope, scores)

    return value
