"""What remains of a model's accuracy when somebody moves the rows: FGSM and PGD on models and
banks.

    attacked accuracy    share of rows x with  argmax f(z) = y,  z the attacked row of the ball
                         around x

An attack may be confined to what somebody can really change: on request, fixed columns and
categories stay.
"""

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast._core.checks import require_number
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import chunks, limited_threads, rows_per_chunk
from holdfast.distances import BallNorm, Distance
from holdfast.errors import ModelError, SettingError
from holdfast.evaluation._outcomes import known_outcomes
from holdfast.models.base import Model
from holdfast.retraining.attacks import Adversary
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.outcomes import class_numbers

Immutable = Literal["fixed", "categories"]


def pgd_attack(
    model: Model | ModelBank,
    X: pd.DataFrame,
    y: ArrayLike,
    *,
    epsilon: float,
    steps: int = 40,
    norm: BallNorm | Distance = "linf",
    step_size: float | None = None,
    start: bool = True,
    immutable: Collection[Immutable] = (),
    box: bool = True,
    seed: int = 0,
) -> Tensor:
    """Encoded rows near X that the model gets wrong, if there are any: (n, d), or (M, n, d) for a
    bank.

    Args:
        model: a differentiable model, or a bank of networks.
        X, y: rows and their true classes.
        epsilon: radius of the ball, in encoded units.
        steps, norm, step_size, start: how the attack moves, see
            `holdfast.retraining.attacks.Adversary`. The default is PGD-40: 40 steps of epsilon /
            10. FGSM: steps=1, step_size=1, start=False.
        immutable: "fixed": columns that the schema fixes stay; "categories": categories stay.
        box: keep to the range of the data that the schema knows.
        seed: random starts are derived from it and the contents of each row.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=[], epochs=20, lr=0.1)
    >>> z = hf.pgd_attack(model, data.X, data.y, epsilon=0.2)
    >>> bool((z - data.schema.encode(data.X)).abs().max() <= 0.2 + 1e-6)
    True
    """
    require_number("epsilon", epsilon)
    wrong = [word for word in immutable if word not in ("fixed", "categories")]
    if wrong or isinstance(immutable, str):
        raise SettingError(f"immutable is a list of 'fixed' and 'categories', got {immutable!r}")
    how = Adversary(
        steps, norm, (0.1 if steps == 40 else None) if step_size is None else step_size, start
    )
    dtype = model.dtype if isinstance(model, Model) else model.groups[0].dtype
    x = model.schema.encode(X, dtype)
    labels = _labels(model, X, y)
    encoding = model.schema.encoding(dtype)
    free = ~(encoding.fixed & ("fixed" in immutable)) & ~(
        encoding.one_hot & ("categories" in immutable)
    )
    limits = (encoding.seen_low, encoding.seen_high) if box else None
    noise = (
        RowRandom.of(seed, x).uniform(x.shape[1], dtype=dtype).mul_(2).sub_(1) if start else None
    )
    attack = partial(how.attack, epsilon=epsilon, box=limits, free=free)
    with limited_threads(1):
        if isinstance(model, Model):
            return _on_model(model, x, labels, attack, noise)
        return torch.cat([_on_group(group, x, labels, attack, noise) for group in model.groups])


def attacked_accuracy(
    model: Model | ModelBank, X: pd.DataFrame, y: ArrayLike, *, epsilon: float, **settings: Any
) -> np.ndarray[Any, Any]:
    """Share of the rows still classified correctly under `pgd_attack`: one number, or (M,) for a
    bank.

    Args:
        model, X, y, epsilon, settings: as for `pgd_attack`.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=[], epochs=20, lr=0.1)
    >>> safe = hf.attacked_accuracy(model, data.X, data.y, epsilon=0.0)
    >>> attacked = hf.attacked_accuracy(model, data.X, data.y, epsilon=0.3)
    >>> bool(attacked < safe)
    True

    Paper: altmeyer2025 Metric attacked accuracy.
    """
    labels = _labels(model, X, y)
    z = pgd_attack(model, X, y, epsilon=epsilon, **settings)
    if isinstance(model, Model):
        with model.eval_mode():
            predicted = torch.cat([model(part).argmax(1) for part in chunks(z, 1 << 16)])[None]
        return (predicted == labels).double().mean(1).numpy()[0]
    start = 0
    parts = list[Tensor]()
    for group in model.groups:
        assert group.networks is not None
        with torch.no_grad(), limited_threads(1):
            raw = group.networks.scores(z[start : start + len(group)])
        parts.append(raw.argmax(2) if raw.shape[2] > 1 else (raw[..., 0] > 0).long())
        start += len(group)
    return (torch.cat(parts) == labels).double().mean(1).numpy()


def _labels(model: Model | ModelBank, X: pd.DataFrame, y: ArrayLike) -> Tensor:
    """(n,) the numbers of the true classes."""
    return class_numbers(known_outcomes(X, y, model.classes), model.classes)


Attack = Callable[..., Tensor]  # `Adversary.attack` with radius, box and columns


def _on_model(
    model: Model, x: Tensor, labels: Tensor, attack: Attack, noise: Tensor | None
) -> Tensor:
    if not model.has_grad:
        raise ModelError("attacks follow gradients, and this model has none")
    k = len(model.classes)
    own = torch.nn.functional.one_hot(labels, k).to(x.dtype)

    def rise(rows: Tensor, z: Tensor) -> Tensor:
        scores, pull = model.vjp(z)
        # With two classes the score difference, which does not vanish where the model is sure.
        return pull(1 - 2 * own[rows] if k == 2 else torch.softmax(scores, 1) - own[rows])

    with model.eval_mode():
        return _in_parts(x, rise, attack, noise)


def _on_group(
    group: ModelGroup, x: Tensor, labels: Tensor, attack: Attack, noise: Tensor | None
) -> Tensor:
    nets = group.networks
    m = len(group)
    if nets is None:
        raise ModelError(
            f"attacks follow gradients, and the estimators of family {group.family!r} have none"
        )
    with torch.no_grad():
        each = x.expand(m, -1, -1)
        return _in_parts(
            each, lambda rows, z: nets.ascent(z, labels[rows].expand(m, -1)), attack, noise
        )


def _in_parts(
    x: Tensor, rise: Callable[[Tensor, Tensor], Tensor], attack: Attack, noise: Tensor | None
) -> Tensor:
    """The attack on rows (.., n, d) in parts; `rise` takes the numbers of some rows, and where they
    are now."""
    *models, n, d = x.shape
    out = list[Tensor]()
    for rows in chunks(torch.arange(n), rows_per_chunk(d * math.prod(models), at_least=8)):
        out.append(
            attack(
                partial(rise, rows), x[..., rows, :], noise=None if noise is None else noise[rows]
            )
        )
    return torch.cat(out, -2) if out else x.clone()
