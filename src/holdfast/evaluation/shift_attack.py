"""Answers under attack: the retrained models to which the worst small shift of the data would lead.

    bank = hf.shift_attack(model, cfs, X, y, epsilon=0.1);    hf.audit(cfs, bank).survival()

Virtual Data Shift (`virtual_shift`; Guo et al., "RoCourseNet", CIKM 2023) on any torch model and
the answers of any method:

    delta* = argmax_{|delta_i| <= eps}  sum_j L( f(x_cf_j; theta'(delta)), t_j )
    theta'(delta) = training on (x + delta, y), from the model's own parameters

x and y are rows of the data and their outcomes, x_cf the answers, t the classes they should
get.
"""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from holdfast._core.checks import require_integer
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import limited_threads
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import ModelError, SchemaError, SettingError
from holdfast.methods.amortized._parallel import by_seed
from holdfast.methods.amortized.virtual_shift import Attack, Batch, Shift
from holdfast.models.base import Model
from holdfast.nn.stack_derivatives import Net, Weights
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.frozen import encoded, members_of, net_of, numbered, with_logits
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.recipe import Recipe
from holdfast.schema.encoding import Encoding

FAMILY = "shift"
DRAWN = 1 << 62  # the draw of the rows


def shift_attack(
    model: Model,
    cfs: Counterfactuals,
    X: pd.DataFrame | Tensor,
    y: ArrayLike,
    *,
    epsilon: float = 0.1,
    models: int = 4,
    rows: int = 1024,
    eta: float = 0.03,
    seed: int = 0,
    **settings: Any,
) -> ModelBank:
    """Retrained models chosen so that these answers fail.

    They are adversaries, not a sample: what survives them is a worst case over plausible shifts of
    the data. Shares and intervals of an audit over them do not describe the models to come; look at
    the least of them, and beside it at a bank of ordinary retrained models (`bank.join(other)`
    keeps the two apart by family).

    Args:
        model: the model the answers were made for; a torch module that returns logits. It stays as
            it is.
        cfs: answers of any method; only rows with an answer count.
        X, y: rows of the data the model is retrained on, and their outcomes.
        epsilon: the largest shift of a number column, in encoded units.
        models: how many attacks, each from its own random shift.
        rows: each attack draws this many rows of X, if there are more.
        eta: step size of retraining, larger than in `holdfast.Shift`, since a judge has to be
            strict.
        seed: where random numbers come from.
        settings: outer, inner, optimizer, norm, categories, ascend: see `holdfast.Shift`.

    Returns:
        A bank with the family "shift".

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=[8], epochs=20, lr=0.1)
    >>> cfs = hf.Descent().explain(model, data.X[model.predict(data.X) == "no"].head(5), "yes")
    >>> bank = hf.shift_attack(model, cfs, data.X, data.y, epsilon=0.3, models=2, outer=2, inner=2)
    >>> bank.families, bool(hf.audit(cfs, bank).survival().between(0, 1).all())
    ({'shift': 2}, True)
    """
    logits = with_logits(model, "shift_attack")
    _check_answers(cfs, model)
    require_integer("models", models)
    require_integer("rows", rows)
    shift = _shift(epsilon, eta, settings)
    x = encoded(model, X)
    labels = numbered(X, y, model.classes).to(model.dtype)
    found = torch.as_tensor(cfs.found)
    x_cf = cfs.x_cf[found].to(model.dtype)
    t = cfs.goal[found].wanted(cfs.scores[found]).to(model.dtype)
    with torch.inference_mode(False), torch.no_grad(), limited_threads(1):
        net, theta = net_of(logits.module, models)
        random = RowRandom.of(seed, torch.arange(models, dtype=torch.float64)[:, None])
        # In the order of the data: with few rows, each attack then sees the same batch and starts
        # elsewhere.
        chance = random.uniform(len(x), draw=DRAWN, dtype=torch.float64)
        drawn = chance.argsort(1)[:, :rows].sort(1).values  # (M, n)
        batch = Batch(
            x[drawn],
            labels[drawn][..., None],
            _shares(drawn.shape[1], models, model.dtype),
            x_cf.expand(models, -1, -1),
            t[:, None].expand(models, -1, -1),
            _shares(len(t), models, model.dtype),
        )
        attack = Attack(net, theta, shift, model.schema.encoding(model.dtype))
        shifted = attack(theta, batch, random, 0, epsilon)
        if not bool(shifted.flat.isfinite().all()):
            raise SettingError("the attack diverged: some weights are non-finite; lower eta")
        networks = members_of(logits.module, net, shifted)
    return ModelBank(
        (ModelGroup(FAMILY, networks),), model.schema, model.classes, Recipe.of(model), seed
    )


def _check_answers(cfs: Any, model: Model) -> None:
    """Raise an error unless these are answers for this model, with something to attack."""
    if not isinstance(cfs, Counterfactuals):
        raise SettingError(
            f"shift_attack takes answers (Counterfactuals), got {type(cfs).__name__}"
        )
    if cfs.classes != model.classes:
        raise ModelError(
            f"the answers are for the classes {list(cfs.classes)}, the model has "
            f"{list(model.classes)}"
        )
    if cfs.schema.encoding_key != model.schema.encoding_key:
        raise SchemaError(
            "the answers were made with another schema than the model's; attack the model they "
            "are for"
        )
    if not cfs.found.any():
        raise SettingError("no row has an answer, so there is nothing to attack")


def _shift(epsilon: float, eta: float, settings: dict[str, Any]) -> Shift:
    try:
        return Shift(epsilon=epsilon, eta=eta, **settings)
    except TypeError:
        apart = ("epsilon", "eta")
        known = ", ".join(name for name in Shift.__dataclass_fields__ if name not in apart)
        raise SettingError(
            f"shift_attack has no setting among {sorted(settings)}; there are {known}"
        ) from None


def _shares(n: int, models: int, dtype: torch.dtype) -> Tensor:
    return torch.full((1, 1, 1), 1 / n, dtype=dtype).expand(models, n, 1)


def validity_under_shift(
    net: Net,
    theta: Weights,
    x: Sequence[Tensor] | Tensor,
    y: Sequence[Tensor] | Tensor,
    x_cf: Sequence[Tensor] | Tensor,
    t: Sequence[Tensor] | Tensor,
    shift: Shift,
    encoding: Encoding,
    *,
    batch_size: int = 128,
    seeds: Sequence[int] | None = None,
) -> Tensor:
    """(M,) the share of answers that keep their class on theta', model by model.

    Each batch of a model's rows is attacked on its own, with the answers for these rows; the share
    is the mean over batches. Models are attacked side by side; their tables may differ in length.

    Args:
        net, theta: M models, see `holdfast.retraining.frozen.net_of`.
        x, y, x_cf, t: for each model its rows (n, d), the numbers of their classes (n,), the
            answers for them (n, d) and the numbers of the classes these should get (n,).
        shift, encoding: the attack, and the schema as tensors.
        seeds: one for each model; by default 0 for all.
    """
    sizes = [len(rows) for rows in x]
    count = len(theta)
    if (
        len(sizes) != count
        or any([len(v) for v in part] != sizes for part in (y, x_cf, t))
        or 0 in sizes
    ):
        raise SettingError(
            f"need rows, classes and answers of equal length for each of {count} models, got "
            f"{sizes}"
        )
    # those that run out of rows leave at the end
    order = sorted(range(count), key=lambda i: -sizes[i])
    seeds = (0,) * count if seeds is None else seeds
    total = torch.zeros(count, dtype=torch.float64)
    with torch.inference_mode(False), torch.no_grad(), limited_threads(1):
        ordered = Weights(theta.flat[order], theta.sizes)
        random = by_seed([seeds[i] for i in order])
        attack = Attack(net, ordered, shift, encoding)
        for number, start in enumerate(range(0, max(sizes), batch_size)):
            left = [i for i in order if sizes[i] > start]
            here = slice(start, start + batch_size)
            rows = _padded([x[i][here] for i in left])
            answers = _padded([x_cf[i][here] for i in left])
            classes = _padded([y[i][here].to(rows.dtype)[:, None] for i in left])
            goals = _padded([t[i][here].to(rows.dtype)[:, None] for i in left])
            w = _padded([rows.new_full((min(batch_size, sizes[i] - start), 1), 1.0) for i in left])
            w /= w.sum(1, keepdim=True)
            batch = Batch(rows, classes, w, answers, goals, w)
            shifted = attack(ordered.first(len(left)), batch, random, number, shift.epsilon)
            z = net.scores(shifted, answers)
            predicted = z.argmax(2, keepdim=True) if z.shape[2] > 1 else (z > 0).long()
            total[left] += ((predicted == goals) * w).sum((1, 2)).double()
    return total / torch.tensor([math.ceil(n / batch_size) for n in sizes])


def _padded(parts: list[Tensor]) -> Tensor:
    return nn.utils.rnn.pad_sequence(parts, batch_first=True)
