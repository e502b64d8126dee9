"""How much a model leans on a column: integrated gradients, and their share for columns that people cannot change.

    IG_d(x) = (x_d - b_d)  mean_k  dM_y / dx_d (b + t_k (x - b))        t_k = (k - 1/2) / K, k = 1 .. K

M_y is the score of class y and b a baseline; as K grows, the values of a row add up to M_y(x) - M_y(b). Sundararajan,
Taly and Yan 2017. "Counterfactual Training" (Altmeyer et al. 2025) draws b from U(-1, 1) and averages over rows x with
their true classes y, g = mean_i IG(x_i); the sensitivity to column d is then

    |g_d| / (max g - min g)            with two columns
    (g_d - min g) / (max g - min g)    with more
"""

import torch
from torch import Tensor

from holdfast.errors import ModelError, SettingError
from holdfast.geometry import chunks, limited_threads
from holdfast.model import Model

CELLS = 1 << 20  # numbers in the rows scored at once


def integrated_gradients(model: Model, x: Tensor, target: Tensor, baseline: Tensor, *, points: int = 50) -> Tensor:
    """What each column adds to the score of a class, from the baseline to the row.

    Args:
        model: with gradients.
        x: (n, d) encoded rows.
        target: (n,) the number of the class for each.
        baseline: (d,) or (n, d) rows to come from.
        points: K.

    Returns:
        (n, d)
    """
    if not model.has_grad:
        raise ModelError("integrated gradients need a model with gradients, and this one has none")
    if points < 1:
        raise SettingError(f"points must be at least 1, got {points}")
    k, x = len(model.classes), x.to(model.dtype)
    if target.shape != x.shape[:1] or (len(target) and not 0 <= int(target.min()) <= int(target.max()) < k):
        raise SettingError(f"target has the number of a class, 0 to {k - 1}, for each of {len(x)} rows, got {target}")
    own = torch.nn.functional.one_hot(target, k).to(x.dtype)
    b = baseline.to(x.dtype).expand_as(x)
    t = (torch.arange(points, dtype=x.dtype) + 0.5)[:, None, None] / points
    out = torch.empty_like(x)
    with model.borrowed(), torch.no_grad(), limited_threads(1):
        engine = model.engine
        if engine and len(engine.weights) == 2 and not engine.single:
            return _one_hidden_layer(engine.weights, x, own, b, points)
        for rows in chunks(torch.arange(len(x)), max(1, CELLS // (points * x.shape[1]))):
            way = x[rows] - b[rows]
            _, pull = model.vjp((b[rows] + t * way).flatten(0, 1))  # (K n, d)
            slope = pull(own[rows].repeat(points, 1)).view(points, *way.shape)
            out[rows] = way * slope.mean(0)
    return out


def _one_hidden_layer(weights: list[tuple[Tensor, Tensor]], x: Tensor, own: Tensor, b: Tensor, points: int) -> Tensor:
    """The same for a network with one hidden layer of ReLUs, without walking from b to x.

    What a unit is given changes linearly on the way, so it is on before or after one place t = r: which of the points
    t_k lie there is a matter of counting.
    """
    (w, c), (v, _) = weights
    at, to = torch.addmm(c, b, w.T), torch.addmm(c, x, w.T)  # (n, hidden) at the baseline and at the row
    r = points * at / (at - to) + 0.5  # t_k = r for this k, not a whole number as a rule
    before = torch.where(to > at, points - r.floor().clamp(0, points), r.ceil().sub(1).clamp(0, points))
    on = torch.where(to == at, points * (at > 0), before) / points
    return (x - b) * ((own @ v * on) @ w)


def sensitivity(
    model: Model,
    x: Tensor,
    labels: Tensor,
    columns: Tensor,
    *,
    rounds: int = 100,
    samples: int = 2500,
    points: int = 50,
    seed: int = 0,
) -> Tensor:
    """How much the model leans on some columns, once for every round of random rows and a random baseline.

    Args:
        x, labels: (n, d) encoded rows and the numbers (n,) of their true classes.
        columns: numbers of the columns to average over.
        rounds, samples: how often, and how many rows drawn with replacement each time.
        points: see `integrated_gradients`.
        seed: of rows and baselines: the same for all models.

    Returns:
        (rounds,); the paper reports the median and the interval that holds 95 % of them.
    """
    n, d = x.shape
    if rounds < 1 or samples < 1 or not n:
        raise SettingError(f"need at least one round, sample and row, got {rounds}, {samples} and {n}")
    if d < 2 or not len(columns):
        raise SettingError(f"sensitivity is a share: it needs some of at least two columns, got {len(columns)} of {d}")
    generator = torch.Generator().manual_seed(seed)
    out = list[Tensor]()
    for _ in range(rounds):
        rows = torch.randint(n, (samples,), generator=generator)
        baseline = 2 * torch.rand(d, generator=generator) - 1
        g = integrated_gradients(model, x[rows], labels[rows], baseline, points=points).double().mean(0)
        low, high = g.aminmax()
        out.append(((g.abs() if d == 2 else g - low) / (high - low))[columns].mean())
    return torch.stack(out)
