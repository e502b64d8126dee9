"""How plausible and how faithful answers are: distances to data, and what the model itself finds
likely.

    implausibility       IP(x')  = mean_i |x' - z_i|_1    z_i: data rows of the wanted class
    discrepancy          MMD^2   = mean_{i != j} k(a_i, a_j) + mean_{i != j} k(b_i, b_j)
                                   - 2 mean_{i,j} k(a_i, b_j)
                                   k(u, v) = exp(-|u - v|_2^2 / (2 l^2))
    energy               E(x, y) = -M(x)_y                M(x)_y: the score of class y
    energy differential            mean_i E(z_i, y) - E(x', y)
    unfaithfulness                 mean_i |x' - s_i|_1    s_i: draws from p(x|y) ~ exp(-E(x, y))
    redundancy                     share of the columns with |x'_d - x_d| < 1e-5
    sensitivity                    share of integrated gradients, see
                                   `holdfast.evaluation.attribution`

Draws come from Langevin dynamics, x <- x - (e_t / 2 grad E(x, y) + e_t u), with normal u, e_t = a
(b + t)^-0.9, and a uniform start as wide as the data. The noise has the standard deviation e_t,
where proper dynamics have its square root, as in the code of the papers whose metrics these are
(Altmeyer et al. 2024, ECCCo; 2025, Counterfactual Training).

Rows are encoded, results are in double precision: one value per row, or one per set for the
discrepancy. Random draws have their own generators, so a row's value does not depend on the rows
beside it.

    >>> import holdfast as hf, torch
    >>> data = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    >>> hf.plausibility.implausibility(torch.tensor([[1.0, 1.0]]), data).tolist()
    [2.0]
    >>> hf.plausibility.redundancy(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.0]])).tolist()
    [0.5]
    >>> bool(hf.plausibility.mmd(data, data + 3) > hf.plausibility.mmd(data, data + 1))
    True
"""

from typing import Any

import torch
from torch import Tensor

from holdfast._core.checks import require_positive
from holdfast._core.rows import chunks, limited_threads, rows_per_chunk
from holdfast.errors import ModelError, SettingError
from holdfast.evaluation.attribution import integrated_gradients, sensitivity
from holdfast.models.base import Model

__all__ = [
    "energy",
    "energy_differential",
    "implausibility",
    "integrated_gradients",
    "langevin",
    "mmd",
    "redundancy",
    "sensitivity",
    "unfaithfulness",
]


def __dir__() -> list[str]:
    return __all__


MOST_ROWS = 1000  # data rows that distances are taken to
MOST_IN_SET = 100  # rows of a set used for the discrepancy
LENGTH = 5.0  # l; the paper prints 0.5, but its figures come from 5


def implausibility(x_cf: Tensor, data: Tensor, *, most: int = MOST_ROWS, seed: int = 0) -> Tensor:
    """Mean l1 distance from each answer to data rows of the wanted class. Lower is better.

    Args:
        x_cf: (n, d) answers.
        data: (m, d) rows of the class they were to reach.
        most: of more data rows than this, this many are drawn.
        seed: which ones.

    Returns:
        (n,)

    Paper: altmeyer2025 Definition 3.1, Metric implausibility.
    """
    _check_sets(x_cf, data, least=1)
    # Mean distances add up column by column, and |v - z_1| + .. + |v - z_m| is known from how many
    # z are below v and what they sum to: sorting once takes the place of n * m distances.
    z = drawn(data, most, seed).double().T.contiguous().sort(1).values  # (d, m)
    total = torch.cat([z.new_zeros(len(z), 1), z.cumsum(1)], 1)  # (d, m + 1)
    m = z.shape[1]
    out = list[Tensor]()
    for part in chunks(x_cf.double(), rows_per_chunk(x_cf.shape[1])):
        v = part.T.contiguous()  # (d, n)
        below = torch.searchsorted(z, v)
        out.append(((2 * below - m) * v + total[:, -1:] - 2 * total.gather(1, below)).sum(0) / m)
    return torch.cat(out) if out else x_cf.new_zeros(0, dtype=torch.float64)


def mmd(
    a: Tensor,
    b: Tensor,
    *,
    length: float = LENGTH,
    most: int = MOST_IN_SET,
    clamp: bool = False,
    kept: Tensor | None = None,
    seed: int = 0,
) -> Tensor:
    """Unbiased squared maximum mean discrepancy of two sets of rows. Lower is better.

    Args:
        a, b: (.., m, d) and (.., n, d): two sets, or as many pairs of sets as the leading axes
            hold.
        length: l of the kernel.
        most: of a larger set this many rows are drawn, the same places in all sets.
        clamp: take 0 for a value below 0, to which an unbiased estimate of nearly nothing may fall.
        kept: (.., m) which rows of a count, for sets of different sizes; a set of fewer than two
            has no value.
        seed: which rows are drawn.

    Returns:
        (..), one value for each pair of sets.

    Paper: altmeyer2025 Metric MMD.
    """
    _check_sets(a, b, least=2)
    require_positive("length", length)
    if kept is None:
        a = drawn(a, most, seed)
        kept = torch.ones(a.shape[:-1])
    elif kept.shape != a.shape[:-1] or a.shape[-2] > most:
        raise SettingError(
            f"kept must be {tuple(a.shape[:-1])}, for at most {most} rows, got {tuple(kept.shape)}"
        )
    a = a.double()
    b = drawn(b, most, seed).double()
    kept = kept.double()
    with limited_threads(1):
        value = _within(a, kept, length) + _within(b, torch.ones(b.shape[:-1]).double(), length)
        value = value - 2 * (_summed(a, b, kept, length) / kept.sum(-1, keepdim=True)).mean(-1)
    value = torch.where(kept.sum(-1) >= 2, value, torch.nan)
    return value.clamp_min(0) if clamp else value


def _within(a: Tensor, w: Tensor, length: float) -> Tensor:
    """(..) the mean kernel of two different rows of the set."""
    m = w.sum(-1)
    # less the kernel of each row with itself
    return ((_summed(a, a, w, length) * w).sum(-1) - m) / (m * (m - 1))


def _summed(a: Tensor, b: Tensor, w: Tensor, length: float) -> Tensor:
    """(.., n) sum_i w_i k(a_i, b_j)"""
    kernel = torch.exp(torch.cdist(a, b).square_() / (-2 * length**2))
    return (w[..., None, :] @ kernel).squeeze(-2)


def redundancy(x: Tensor, x_cf: Tensor, *, tolerance: float = 1e-5) -> Tensor:
    """Share of the columns that stay as they are, for rows (n, d) and their answers: (n,). Higher
    is better."""
    if x.shape != x_cf.shape:
        raise SettingError(
            f"need an answer for each row, got shapes {tuple(x.shape)} and {tuple(x_cf.shape)}"
        )
    return ((x_cf.double() - x.double()).abs() < tolerance).double().mean(1)


# ---- what the model finds likely


def energy(model: Model, x: Tensor, target: int | Tensor) -> Tensor:
    """-M(x)_y for rows (n, d) and one class y, or one per row: (n,). Low where the model finds x
    likely for y."""
    label = _labels(model, target, len(x))[:, None]
    with model.eval_mode(), torch.no_grad(), limited_threads(1):
        x = x.to(model.dtype)
        parts = zip(chunks(x, 1 << 16), chunks(label, 1 << 16), strict=True)
        out = [-model(rows).gather(1, own).squeeze(1).double() for rows, own in parts]
    return torch.cat(out) if out else x.new_zeros(0, dtype=torch.float64)


def energy_differential(model: Model, x_cf: Tensor, data: Tensor, target: int) -> Tensor:
    """Mean energy of data rows (m, d) of class `target` less that of each answer (n, d): (n,). If
    low, answers have more energy than data; if high, the model finds them likelier than data."""
    _check_sets(x_cf, data, least=1)
    return energy(model, data, target).mean() - energy(model, x_cf, target)


def langevin(
    model: Model,
    target: int | Tensor,
    n: int,
    data: Tensor,
    *,
    steps: int = 1000,
    scale: float | None = None,
    delay: float = 10.0,
    power: float = 0.9,
    seed: int = 0,
) -> Tensor:
    """Rows that the model finds typical of a class, by Langevin dynamics on the energy.

    Args:
        model: with gradients.
        target: the number of a class, or several (c,).
        n: how many rows of each.
        data: (m, d) rows that say how wide to start: uniform between the least mean - 2 sd and the
            greatest mean + 2 sd of a column, the same for all columns.
        steps: of each chain, at sizes a (b + t)^-power, t = 1, 2, ..
        scale: a; None: twice the width of the start.
        delay: b.
        seed: of start and noise, which chains of different classes share.

    Returns:
        (n, d), for several classes (c, n, d).
    """
    if not model.has_grad:
        raise ModelError("Langevin dynamics follow gradients, and this model has none")
    if not (n >= 1 and steps >= 1):
        raise SettingError(f"n and steps must be at least 1, got {n} and {steps}")
    if data.ndim != 2 or len(data) < 2:
        raise SettingError(
            f"the start is as wide as the data: need at least 2 rows, got shape {tuple(data.shape)}"
        )
    wanted = torch.as_tensor(target)
    classes = wanted.reshape(-1)
    label = _labels(model, classes.repeat_interleave(n), len(classes) * n)
    own = torch.nn.functional.one_hot(label, len(model.classes)).to(model.dtype)
    mean = data.double().mean(0)
    sd = data.double().std(0)
    d = data.shape[1]
    low = float((mean - 2 * sd).min())
    high = float((mean + 2 * sd).max())
    a = 2 * (high - low) if scale is None else scale
    generator = torch.Generator().manual_seed(seed)
    x = low + (high - low) * torch.rand(n, d, generator=generator, dtype=model.dtype)
    x = x.repeat(len(classes), 1)
    with model.eval_mode(), torch.no_grad(), limited_threads(1):
        for t in range(1, steps + 1):
            e = a * (delay + t) ** -power
            _, pull = model.vjp(x)
            noise = torch.randn(n, d, generator=generator, dtype=model.dtype).repeat(
                len(classes), 1
            )
            # own: the score's slope, which is minus the energy's
            x = x + e / 2 * pull(own) - e * noise
    return x if wanted.ndim == 0 else x.view(len(classes), n, d)


def unfaithfulness(
    model: Model,
    x_cf: Tensor,
    target: int | Tensor,
    data: Tensor,
    *,
    n: int = 1000,
    seed: int = 0,
    **chains: Any,
) -> Tensor:
    """Mean l1 distance from each answer to rows that the model itself finds typical of the class.
    Lower is better.

    Args:
        x_cf: (n, d) answers.
        target: the class they were to reach, or one per row.
        data: rows that say where the chains start, see `langevin`.
        n: rows drawn for each class.
        chains: further settings of `langevin`.

    Returns:
        (n,)

    Paper: altmeyer2025 Definition 3.1.
    """
    label = _labels(model, target, len(x_cf))
    wanted = [c for c in range(len(model.classes)) if bool((label == c).any())]
    out = x_cf.new_zeros(len(x_cf), dtype=torch.float64)
    if wanted:
        for c, samples in zip(
            wanted, langevin(model, torch.tensor(wanted), n, data, seed=seed, **chains), strict=True
        ):
            out[label == c] = implausibility(x_cf[label == c], samples, most=n)
    return out


# ---- what they share


def drawn(rows: Tensor, most: int, seed: int) -> Tensor:
    """At most this many of the rows (.., n, d), drawn without replacement."""
    if not most >= 1:
        raise SettingError(f"most must be at least 1, got {most}")
    n = rows.shape[-2]
    if n <= most:
        return rows
    return rows[..., torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most], :]


def _labels(model: Model, target: int | Tensor, n: int) -> Tensor:
    """(n,) the class of each row."""
    label = torch.as_tensor(target, dtype=torch.int64)
    label = label.expand(n) if label.ndim == 0 else label
    if label.shape != (n,):
        raise SettingError(f"need one class, or one for each of {n} rows, got {tuple(label.shape)}")
    k = len(model.classes)
    wrong = label[(label < 0) | (label >= k)]
    if len(wrong):
        raise SettingError(f"target is the number of a class, 0 to {k - 1}, got {int(wrong[0])}")
    return label


def _check_sets(a: Tensor, b: Tensor, *, least: int) -> None:
    same = a.shape[-1] == b.shape[-1]
    shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
    if not (a.ndim >= 2 and b.ndim >= 2 and same):
        raise SettingError(f"need rows of the same columns on both sides, got shapes {shapes}")
    fewest = b.shape[-2] if least == 1 else min(a.shape[-2], b.shape[-2])
    if not fewest >= least:
        raise SettingError(
            f"need at least {least} rows to compare with, got {fewest}; pass more of the wanted "
            "class"
        )
