"""The probability of a class along the line from a baseline b to each row, and its gradient.

    J(z) = sum_j w_j p_y( b + t_j (z - b) ),    t_j = j / P,  j = 1 .. P;     t_P = 1 is the row itself

Black, Wang, Fredrikson and Datta, "Consistent Counterfactuals for Deep Models", ICLR 2022, Definition 5 with
w_j = 1 / P. For Linear/ReLU networks the first layer is linear along the line, W(b + t(z - b)) = Wb + t W(z - b):
it is computed once per row instead of once per point, forwards and backwards.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from holdfast.model import Model
from holdfast.network import Engine

# (J, scores at the row itself, gradient of J): (n,), (n, k), (n, d)
Value = tuple[Tensor, Tensor, Tensor]
PathValue = Callable[[Tensor], Value]


def path_value(model: Model, y: Tensor, baseline: Tensor, points: int, end: float = 0.0) -> PathValue:
    """J and its gradient for rows whose class is `y`.

    Args:
        points: P.
        end: extra weight on the row itself; 1 gives the paper's Equation 5, 0 its Definition 5.
    """
    t = torch.arange(1, points + 1, dtype=baseline.dtype) / points
    w = torch.full_like(t, 1 / points)
    w[-1] += end
    engine = model.engine
    if engine is None or len(engine.weights) < 2:
        return _any_model(model, y, baseline, t, w)
    return _linear_relu(engine, y, baseline, t, w)


def _any_model(model: Model, y: Tensor, b: Tensor, t: Tensor, w: Tensor) -> PathValue:
    own = torch.nn.functional.one_hot(y, len(model.classes)).to(b.dtype)

    def value(z: Tensor) -> Value:
        line = torch.lerp(b, z, t[:, None, None])  # (P, n, d)
        scores, pull = model.vjp(line.flatten(0, 1))
        p = torch.softmax(scores, 1).unflatten(0, line.shape[:2])  # (P, n, k)
        mine = (p * own).sum(2, keepdim=True)
        slope = w[:, None, None] * mine * (own - p)
        g = pull(slope.flatten(0, 1)).unflatten(0, line.shape[:2])
        return torch.tensordot(w, mine.squeeze(2), 1), scores[-len(z) :], torch.tensordot(t, g, 1)

    return value


def _linear_relu(engine: Engine, y: Tensor, b: Tensor, t: Tensor, w: Tensor) -> PathValue:
    (w1, b1), middle, (wl, bl) = engine.weights[0], engine.weights[1:-1], engine.weights[-1]
    start = b1 + b @ w1.T  # what the first layer makes of the baseline
    two = len(wl) <= 2
    if two:  # only the difference of the two scores counts
        wl, bl = (wl[1:] - wl[:1], bl[1:] - bl[:1]) if len(wl) == 2 else (wl, bl)
        sign = (2.0 * y - 1).to(b.dtype)
    own = torch.nn.functional.one_hot(y, max(2, len(wl))).to(b.dtype)
    n, points = len(y), len(t)
    t3, room = t[:, None, None], torch.empty(points, n, len(w1), dtype=b.dtype)

    def value(z: Tensor) -> Value:
        u = (z - b) @ w1.T
        h = torch.mul(u, t3, out=room).add_(start).relu_().view(points * n, -1)
        kept = [h]
        for weight, bias in middle:
            h = torch.addmm(bias, h, weight.T).relu_()
            kept.append(h)
        raw = torch.addmm(bl, h, wl.T)  # (P n, 1 or k)
        if two:
            lead = raw.view(points, n) * sign
            p = torch.sigmoid(lead)
            mine = p
            # p (1 - p) from both sides: 1 - p is rounded to 0 long before the true slope is.
            g = (w[:, None] * p * torch.sigmoid(-lead) * sign).view(-1, 1) * wl
            scores = torch.stack([torch.zeros_like(raw[-n:, 0]), raw[-n:, 0]], 1)
        else:
            p = torch.softmax(raw, 1).view(points, n, -1)
            mine = (p * own).sum(2)
            g = (w[:, None, None] * mine[..., None] * (own - p)).flatten(0, 1) @ wl
            scores = raw[-n:]
        for (weight, _), h in zip(reversed(middle), reversed(kept[1:]), strict=True):
            g = torch.ops.aten.threshold_backward(g, h, 0) @ weight
        g = torch.ops.aten.threshold_backward(g, kept[0], 0).view(points, -1)
        return w @ mine, scores, (t @ g).view(n, -1) @ w1

    return value
