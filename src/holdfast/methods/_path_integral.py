"""The probability of a class along the line from a baseline b to each row, and its gradient.

    J(z) = mean over models of  sum_j w_j p_y( b + t_j (z - b) ),    t_j = j / P,  j = 1 .. P

t_P = 1 is the row itself. Black, Wang, Fredrikson and Datta, "Consistent Counterfactuals for Deep
Models", ICLR 2022, Definition 5 with w_j = 1 / P and one model. For Linear/ReLU networks the first
layer is linear along the line, W(b + t(z - b)) = Wb + t W(z - b): it is computed once per row
instead of once per point, both ways.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast._core.rows import COLUMN_BLOCK
from holdfast.models.base import Model
from holdfast.models.scores import to_scores
from holdfast.nn.stack import ModelStack, Stack


class Value(NamedTuple):
    """What one pass tells about n rows."""

    total: Tensor  # (n,) the sum of J over the models
    least: Tensor  # (n,) the lowest probability that a model gives to the row itself
    slope: Tensor  # (n, d) gradient of `total`
    scores: Tensor  # (n, k) of the first model, at the row itself


PathValue = Callable[[Tensor], Value]


class Path(NamedTuple):
    """The points on the lines: where the lines start, and how much each point counts."""

    baseline: Tensor  # (d,)
    t: Tensor  # (P,)
    w: Tensor  # (P,)

    @classmethod
    def of(cls, baseline: Tensor, points: int, end: float = 0.0) -> "Path":
        """P equal steps; `end` is extra weight on the row itself, 1 gives the paper's Equation
        5."""
        t = torch.arange(1, points + 1, dtype=baseline.dtype) / points
        w = torch.full_like(t, 1 / points)
        w[-1] += end
        return cls(baseline, t, w)


def path_value(model: Model, y: Tensor, path: Path) -> PathValue:
    """J and its gradient for rows whose class is `y`, on one model."""
    engine = model.engine
    if engine is None or len(engine.weights) < 2:
        return _any_model(model, y, path)
    alone = Stack(
        [engine.inputs, *[len(w) for w, _ in engine.weights]], 1, engine.weights[0][0].dtype
    )
    alone.load(
        dict(zip(alone.state(), (v[None] for pair in engine.weights for v in pair), strict=True))
    )
    return LinearReluPath(alone, y, path)


def stack_value(models: ModelStack, y: Tensor, path: Path) -> PathValue:
    """The same, summed over many models."""
    if isinstance(models, Stack) and len(models.layers) > 1:
        return LinearReluPath(models, y, path)
    return _any_stack(models, y, path)


def own_and_slope(p: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """The probability, among (.., k), of the class marked by `own`, and its derivative by the
    scores (.., k).

    p_y (own - p), with 1 - p_y as the sum of the others: the difference is rounded to 0 long before
    it is small.
    """
    rest = p * (1 - own)
    prob = (p * own).sum(-1, keepdim=True)
    return prob.squeeze(-1), prob * (own * rest.sum(-1, keepdim=True) - rest)


def _any_model(model: Model, y: Tensor, path: Path) -> PathValue:
    b, t, w = path
    asked = torch.nn.functional.one_hot(y, len(model.classes)).to(b.dtype)
    weight = w.repeat_interleave(len(y))
    signs = (2.0 * y - 1).to(b.dtype).repeat(len(t))

    def value(z: Tensor) -> Value:
        line = torch.lerp(b, z, t[:, None, None])  # (P, n, d)
        scores, pull = model.vjp(line.flatten(0, 1))
        if scores.shape[1] == 2:  # a sigmoid costs a fraction of a softmax over two columns
            lead = (scores[:, 1] - scores[:, 0]) * signs
            prob = torch.sigmoid(lead)
            up = weight * prob * torch.sigmoid(-lead) * signs
            prob = prob.view(len(t), -1)
            by_score = torch.stack([-up, up], 1)
        else:
            prob, slope = own_and_slope(torch.softmax(scores, 1).reshape(len(t), len(z), -1), asked)
            by_score = (w[:, None, None] * slope).flatten(0, 1)
        g = pull(by_score).reshape(line.shape)
        return Value(_over_points(w, prob), prob[-1], _over_points(t, g), scores[-len(z) :])

    return value


def _any_stack(models: ModelStack, y: Tensor, path: Path) -> PathValue:
    b, t, w = path

    def value(z: Tensor) -> Value:
        line = torch.lerp(b, z, t[:, None, None]).detach().requires_grad_()  # (P, n, d)
        with torch.enable_grad():
            raw = models.scores(line.flatten(0, 1))
            scores = to_scores(raw.flatten(0, 1), "logits").reshape(
                models.count, len(t), len(z), -1
            )
        asked = torch.nn.functional.one_hot(y, scores.shape[3]).to(b.dtype)
        # (M, P, n), (M, P, n, k)
        prob, slope = own_and_slope(torch.softmax(scores.detach(), 3), asked)
        (g,) = torch.autograd.grad(scores, line, w[:, None, None] * slope)
        total = _over_points(w, prob.sum(0))
        return Value(total, prob[:, -1].amin(0), _over_points(t, g), scores[0, -1].detach())

    return value


def _over_points(weights: Tensor, values: Tensor) -> Tensor:
    """The weighted sum over the first axis, term by term: a product of matrices may add rows in
    another order."""
    out = weights[0] * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=True):
        out += weight * value
    return out


class LinearReluPath:
    """The same by hand for stacks of Linear and ReLU layers; memory is kept from step to
    step."""

    def __init__(self, models: Stack, y: Tensor, path: Path) -> None:
        self.baseline, self.points, self.weights = path
        self.models = models
        w1, b1 = models.layers[0]
        wl, bl = models.layers[-1]
        # (M, 1, 1, h) what the first layer makes of the baseline
        self.start = (b1 + (self.baseline @ w1)[:, None])[:, None]
        self.two = models.sizes[-1] <= 2
        if self.two and models.sizes[-1] == 2:  # only the difference of the two scores counts
            wl = wl[..., 1:] - wl[..., :1]
            bl = bl[..., 1:] - bl[..., :1]
        self.last = wl, bl
        self.back = wl.transpose(1, 2).contiguous()
        dtype = self.baseline.dtype
        self.sign = (2.0 * y - 1).to(dtype)
        self.own = torch.nn.functional.one_hot(y, max(2, models.sizes[-1])).to(dtype)
        m = models.count
        points = len(self.points)
        rows = points * len(y)
        self.room = torch.empty(m, points, len(y), models.sizes[1], dtype=dtype)
        self.hidden = [torch.empty(m, rows, width, dtype=dtype) for width in models.sizes[2:-1]]
        self.slopes = [torch.empty(m, rows, width, dtype=dtype) for width in models.sizes[1:-2]]
        # Sums over models and points as products of whole blocks of columns: a row then gets the
        # same bits in any place.
        self.every = self.weights.repeat(m)
        fill = -models.sizes[0] % COLUMN_BLOCK
        self.first = torch.nn.functional.pad(
            w1.transpose(1, 2).reshape(-1, models.sizes[0]), (0, fill)
        )

    def __call__(self, z: Tensor) -> Value:
        m, points, n = self.room.shape[:3]
        kept = self._forward(z)
        wl, bl = self.last
        raw = torch.baddbmm(bl, kept[-1], wl).view(m, points, n, -1)
        w = self.weights
        if self.two:
            lead = raw.squeeze(3) * self.sign
            prob = torch.sigmoid(lead)
            # p (1 - p) from both sides: 1 - p is rounded to 0 long before the true slope is.
            slope = prob * torch.sigmoid(-lead) * self.sign * w[:, None]
            g = slope.view(m, points * n, 1) * self.back
            scores = to_scores(raw[0, -1], "logits")
        else:
            prob, by_score = own_and_slope(torch.softmax(raw, 3), self.own)
            g = torch.bmm((w[:, None, None] * by_score).view(m, points * n, -1), self.back)
            scores = raw[0, -1]
        total = self.every @ prob.view(m * points, n)
        return Value(total, prob[:, -1].amin(0), self._pulled_back(g, kept), scores)

    def _forward(self, z: Tensor) -> list[Tensor]:
        """The hidden values (M, P n, h) of each layer."""
        w1, _ = self.models.layers[0]
        u = torch.matmul(z - self.baseline, w1)  # (M, n, h)
        steps = self.points[:, None, None]
        h = torch.addcmul(self.start, u[:, None], steps, out=self.room).relu_()
        kept = [h.view(h.shape[0], -1, h.shape[3])]
        middle = self.models.layers[1:-1]
        for (weight, bias), space in zip(middle, self.hidden, strict=True):
            kept.append(torch.baddbmm(bias, kept[-1], weight, out=space).relu_())
        return kept

    def _pulled_back(self, g: Tensor, kept: list[Tensor]) -> Tensor:
        """(n, d) the gradient by z, from that by the last hidden values."""
        m, points, n = self.room.shape[:3]
        mask = torch.ops.aten.threshold_backward.grad_input  # [h > 0] g, in place
        middle = self.models.layers[1:-1]
        for i in range(len(middle) - 1, -1, -1):
            mask(g, kept[i + 1], 0, grad_input=g)
            g = torch.bmm(g, middle[i][0].transpose(1, 2), out=self.slopes[i])
        g = mask(g, kept[0], 0, grad_input=g).view(m, points, -1)
        g = torch.matmul(self.points, g).view(m, n, -1)  # (M, n, h)
        return (g.transpose(0, 1).reshape(n, -1) @ self.first)[:, : self.models.sizes[0]]
