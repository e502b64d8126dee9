"""How much a model leans on a column: integrated gradients, and their share for columns people
cannot change.

    IG_d(x) = (x_d - b_d)  mean_k  dM_y / dx_d (b + t_k (x - b)),    t_k = (k - 1/2) / K

for k = 1 .. K, where M_y is the score of class y and b a baseline; as K grows, the values of a row
add up to M_y(x) - M_y(b). Sundararajan, Taly and Yan 2017. "Counterfactual Training" (Altmeyer et
al. 2025) draws b from U(-1, 1) and averages over rows x with their true classes y,
g = mean_i IG(x_i); the sensitivity to column d is then

    |g_d| / (max g - min g)            with two columns
    (g_d - min g) / (max g - min g)    with more
"""

import torch
from torch import Tensor

from holdfast._core.rows import chunks, limited_threads, rows_per_chunk
from holdfast.errors import ModelError, SettingError
from holdfast.models.base import Model
from holdfast.nn.relu_network import Engine


def integrated_gradients(
    model: Model, x: Tensor, target: Tensor, baseline: Tensor, *, points: int = 50
) -> Tensor:
    """What each column adds to the score of a class, from the baseline to the row.

    Args:
        model: with gradients.
        x: (n, d) encoded rows.
        target: (n,) the number of the class for each.
        baseline: (d,) or (n, d) rows to come from.
        points: K.

    Returns:
        (n, d)

    Paper: altmeyer2025 Metric integrated gradients.
    """
    x, own = _checked(model, x, target, points)
    b = baseline.to(x.dtype)
    with model.eval_mode(), torch.no_grad(), limited_threads(1):
        engine = model.engine
        if engine is None:
            return _along(model, x, own, b.expand_as(x), points)
        w, c = engine.weights[0]
        slope = mean_slope(engine, b @ w.T + c, torch.addmm(c, x, w.T), own, points)
        return (slope @ w).mul_(x - b)


def _checked(model: Model, x: Tensor, target: Tensor, points: int) -> tuple[Tensor, Tensor]:
    """Rows (n, d) in the model's precision, and 1 for the class of each, 0 for the others (n,
    k)."""
    if not model.has_grad:
        raise ModelError("integrated gradients need a model with gradients, and this one has none")
    if not points >= 1:
        raise SettingError(f"points must be at least 1, got {points}")
    k = len(model.classes)
    x = x.to(model.dtype)
    if target.shape != x.shape[:1] or (
        len(target) and not 0 <= int(target.min()) <= int(target.max()) < k
    ):
        raise SettingError(
            f"target has the number of a class, 0 to {k - 1}, for each of {len(x)} rows, got "
            f"{target}"
        )
    return x, torch.nn.functional.one_hot(target, k).to(x.dtype)


def _along(model: Model, x: Tensor, own: Tensor, b: Tensor, points: int) -> Tensor:
    """Integrated gradients (n, d) of any model, by walking from b to x."""
    t = (torch.arange(points, dtype=x.dtype) + 0.5)[:, None, None] / points
    out = torch.empty_like(x)
    for rows in chunks(torch.arange(len(x)), rows_per_chunk(points * x.shape[1])):
        way = x[rows] - b[rows]
        _, pull = model.vjp((b[rows] + t * way).flatten(0, 1))  # (K n, d)
        slope = pull(own[rows].repeat(points, 1)).view(points, *way.shape)
        out[rows] = way * slope.mean(0)
    return out


def mean_slope(engine: Engine, at: Tensor, to: Tensor, own: Tensor, points: int) -> Tensor:
    """The mean gradient of scores, on the way from baselines to rows, by what the first layer makes
    of rows.

    That changes linearly on the way, from `at` (n, h) or (h,) to `to` (n, h), so the rows' columns,
    which may be many, need not be walked. `own` (n, k) are the weights on the scores.
    """
    v = own[:, 1:] if engine.single else own
    rest = engine.weights[1:]
    if not rest:
        return v
    if len(rest) == 1:
        return (v @ rest[0][0]).mul_(share_on(at, to, points))
    after = Engine(rest)
    t = (torch.arange(points, dtype=to.dtype) + 0.5)[:, None, None] / points
    at = at.expand_as(to)
    out = torch.empty_like(to)
    for rows in chunks(torch.arange(len(to)), rows_per_chunk(points * to.shape[1])):
        h = torch.addcmul(at[rows], t, to[rows] - at[rows]).relu_()  # (K, n, h)
        slope = after.vjp(h.flatten(0, 1))[1](v[rows].repeat(points, 1)).view(h.shape)
        out[rows] = slope.mul(h > 0).mean(0)
    return out


def share_on(at: Tensor, to: Tensor, points: int) -> Tensor:
    """(n, h) at how many of the points t_k, in parts of 1, at + t_k (to - at) is above 0.

    That holds before or after one place t = r; the points there are counted.
    """
    r = points * at / (at - to) + 0.5  # t_k = r for this k, not an integer as a rule
    before = torch.where(
        to > at, points - r.floor().clamp(0, points), r.ceil().sub(1).clamp(0, points)
    )
    return torch.where(to == at, points * (at > 0), before).div_(points)


def sensitivity(
    model: Model,
    x: Tensor,
    labels: Tensor,
    columns: Tensor,
    *,
    repeats: int = 100,
    samples: int = 2500,
    points: int = 50,
    seed: int = 0,
) -> Tensor:
    """How much the model leans on some columns, once for every repeat of random rows and a random
    baseline.

    Args:
        x, labels: (n, d) encoded rows and the numbers (n,) of their true classes.
        columns: numbers of the columns to average over.
        repeats, samples: how often, and how many rows drawn with replacement each time.
        points: see `integrated_gradients`.
        seed: of rows and baselines: the same for all models.

    Returns:
        (repeats,); the paper reports the median and the interval that holds 95 % of them.

    Paper: altmeyer2025 Metric integrated gradients.
    """
    n, d = x.shape
    if repeats < 1 or samples < 1 or not n:
        raise SettingError(
            f"need at least one repeat, sample and row, got {repeats}, {samples} and {n}"
        )
    if d < 2 or not len(columns):
        raise SettingError(
            f"sensitivity is a share: it needs some of at least two columns, got {len(columns)} "
            f"of {d}"
        )
    x, own = _checked(model, x, labels, points)
    generator = torch.Generator().manual_seed(seed)
    out = list[Tensor]()
    with model.eval_mode(), torch.no_grad(), limited_threads(1):
        engine = model.engine
        first = (
            None if engine is None else torch.addmm(engine.weights[0][1], x, engine.weights[0][0].T)
        )
        for _ in range(repeats):
            rows = torch.randint(n, (samples,), generator=generator)
            b = (2 * torch.rand(d, generator=generator) - 1).to(x.dtype)
            if engine is None or first is None:
                g = _along(model, x[rows], own[rows], b.expand(samples, d), points).double().mean(0)
            else:
                # The mean over rows of (x - b) * (slope @ w), column by column, without a table of
                # it.
                w, c = engine.weights[0]
                slope = mean_slope(engine, w @ b + c, first[rows], own[rows], points)
                g = ((x[rows].T @ slope - b[:, None] * slope.sum(0)) * w.T).double().sum(
                    1
                ) / samples
            low, high = g.aminmax()
            out.append(((g.abs() if d == 2 else g - low) / (high - low))[columns].mean())
    return torch.stack(out)
