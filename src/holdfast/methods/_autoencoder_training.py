"""Training of autoencoders over encoded rows.

Losses are means over rows, divided by the number of columns. Adam, with early stopping: the weights
returned are those of the epoch with the least loss on rows held out.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast._core.rows import chunks, limited_threads
from holdfast.errors import SettingError
from holdfast.methods._autoencoder import (
    Kind,
    Parts,
    TableAutoencoder,
    check_given,
    log_levels,
    no_columns,
    padded,
)
from holdfast.nn.architecture import mlp
from holdfast.retraining.loop import initialised
from holdfast.schema.schema import Schema

HIDDEN = (1024, 128)  # as Black et al. 2022 have it
Objective = Callable[[Tensor, bool, float], Tensor]


@dataclass(frozen=True)
class Schedule:
    """How fast an autoencoder learns, and when it stops; see `autoencoder`."""

    epochs: int
    batch_size: int
    lr: float
    patience: int
    warm_up: int
    weight_decay: float


def autoencoder(
    X: pd.DataFrame | Tensor,
    schema: Schema,
    *,
    kind: Kind = "autoencoder",
    hidden: Sequence[int] = HIDDEN,
    latent: int = 32,
    given: Tensor | None = None,
    beta: float = 0.3,
    warm_up: int = 0,
    epochs: int = 200,
    batch_size: int = 128,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    held_out: float = 0.1,
    patience: int = 10,
    seed: int = 0,
    progress: bool = False,
) -> TableAutoencoder:
    """Train an autoencoder on a table, or on its encoding (n, d).

    The VAE of C-CHVAE in the CARLA benchmark, except for its likelihood of numbers, is kind="vae",
    hidden=(512, 256), latent=8, beta=0.3, warm_up=5, epochs=5, batch_size=32, weight_decay=1e-6.

    Args:
        kind: "autoencoder" (deterministic), or "vae".
        hidden, latent: layers between rows and latent points; the decoder has them in reverse.
        given: numbers of the encoded columns that the decoder is given and does not model, such as
            those nobody can change.
        beta: weight of the VAE's divergence.
        warm_up: the weight rises to beta over this many epochs, beta e / warm_up in epoch e = 0, 1,
            ...; none of them but the last is a candidate for the best, as the loss on rows held out
            is the one with the whole beta.
        epochs: at most this many passes over the data.
        weight_decay: adds weight_decay * w to the gradient of each weight w.
        held_out, patience: training stops once the loss on this share of the rows has not fallen
            for this many epochs.
        seed: weights, order and noise come from it; the caller's generators stay as they are.
    """
    if kind not in ("autoencoder", "vae"):
        raise SettingError(f"kind must be 'autoencoder' or 'vae', got {kind!r}")
    if min(latent, epochs, batch_size, patience, *hidden) < 1:
        raise SettingError("hidden, latent, epochs, batch_size and patience must be at least 1")
    _check_rates(lr, beta, held_out, weight_decay)
    if not 0 <= warm_up <= epochs:
        raise SettingError(f"need 0 <= warm_up <= epochs, got {warm_up} and {epochs}")
    given = no_columns() if given is None else given.long().sort().values
    groups = _modelled_groups(schema, given)
    generator = torch.Generator().manual_seed(seed)
    # Weights made in the caller's inference mode could never be used again.
    with (
        Progress(progress, "autoencoder") as bar,
        torch.inference_mode(False),
        torch.enable_grad(),
        limited_threads(1),
    ):
        x = _rows_of(X, schema)
        codes = 2 * latent if kind == "vae" else latent
        modelled = schema.width - len(given)
        sizes = (schema.width, hidden, codes), (latent + len(given), [*hidden][::-1], modelled)
        nets = _initial_networks(sizes, generator)
        groups = groups.clone() if kind == "vae" else torch.zeros(0, 0, dtype=torch.int64)
        parts = Parts.of(given.clone(), schema.width)
        history = _train(
            nets,
            *_learnt_and_held_out(x, held_out, generator),
            _objective(nets, groups, parts, beta, generator),
            bar,
            generator,
            Schedule(epochs, batch_size, lr, patience, warm_up, weight_decay),
        )
    return TableAutoencoder(nets[0], nets[1], groups, history, given)


def _check_rates(lr: float, beta: float, held_out: float, weight_decay: float) -> None:
    """Raise an error unless training can follow these."""
    if not (lr > 0 and beta >= 0 and 0 < held_out < 1):
        raise SettingError(
            f"need lr > 0, beta >= 0, 0 < held_out < 1, got {lr}, {beta}, {held_out}"
        )
    if not weight_decay >= 0:
        raise SettingError(f"need weight_decay >= 0, got {weight_decay}")


def _modelled_groups(schema: Schema, given: Tensor) -> Tensor:
    """The categories that are not given as a whole, as `TableAutoencoder.groups`."""
    if len(given) >= schema.width:
        raise SettingError(
            "all columns are given, so none is left to model; give fewer, or leave some free to "
            "change"
        )
    groups = schema.encoding().groups
    if len(given):
        given_or_none = torch.cat([given, torch.tensor([schema.width])])
        groups = groups[~torch.isin(groups, given_or_none).all(1)]
    check_given(given, groups, schema.width)
    return groups


def _rows_of(X: pd.DataFrame | Tensor, schema: Schema) -> Tensor:
    """The rows (n, d) to learn from, encoded."""
    x = (X if isinstance(X, Tensor) else schema.encode(X)).detach().float().clone()
    if x.ndim != 2 or x.shape[1] != schema.width or len(x) < 2:
        raise SettingError(f"need at least 2 rows of {schema.width} columns, got {tuple(x.shape)}")
    return x


def _learnt_and_held_out(
    x: Tensor, share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Rows to learn from, and a share of all rows, at least one, to judge every epoch by."""
    order = torch.randperm(len(x), generator=generator)
    tested = min(len(x) - 1, max(1, round(share * len(x))))
    return x[order[tested:]], x[order[:tested]]


def _initial_networks(
    sizes: Sequence[tuple[int, Sequence[int], int]], generator: torch.Generator
) -> list[nn.Sequential]:
    """Networks of inputs, hidden layers and outputs."""
    # layers draw from the global generator when they are made; these must not
    with torch.device("meta"):
        shapes = [mlp(*layers) for layers in sizes]
    return [initialised(net.to_empty(device="cpu"), generator) for net in shapes]


def _objective(
    nets: Sequence[nn.Sequential],
    groups: Tensor,
    parts: Parts,
    beta: float,
    generator: torch.Generator,
) -> Objective:
    """The loss of rows (n, d) with a share of beta; with noise while training, and at the mean when
    rows held out are judged."""
    encoder, decoder = nets
    latent: int = cast(nn.Linear, decoder[0]).in_features - len(parts.given)

    def missed(z: Tensor, x: Tensor) -> Tensor:
        seen = torch.cat([z, x[:, parts.given]], 1) if len(parts.given) else z
        # columns that are copied cost nothing
        return reconstruction(parts.join(decoder(seen), x), x, groups)

    def loss(x: Tensor, noisy: bool, share: float) -> Tensor:
        code = encoder(x)
        if code.shape[1] == latent:
            return missed(code, x).mean() / x.shape[1]
        m = code[:, :latent]
        v = code[:, latent:]
        z = m + (v / 2).exp() * torch.randn(m.shape, generator=generator) if noisy else m
        return (missed(z, x) + share * beta * divergence(m, v)).mean() / x.shape[1]

    return loss


def _train(
    nets: Sequence[nn.Sequential],
    train: Tensor,
    test: Tensor,
    loss: Objective,
    bar: Progress,
    generator: torch.Generator,
    how: Schedule,
) -> tuple[tuple[float, float], ...]:
    """Adam until the loss on `test` has not fallen for long enough; the best weights stay in
    `nets`."""
    parameters = [p for net in nets for p in net.parameters()]
    optimizer: Any = torch.optim.Adam(parameters, lr=how.lr, weight_decay=how.weight_decay)
    history: list[tuple[float, float]] = []
    best = math.inf
    epochs_since = 0
    best_states: list[dict[str, Tensor]] = []
    bar.total(how.epochs)
    for epoch in range(how.epochs):
        total = 0.0
        share = min(1.0, epoch / how.warm_up) if how.warm_up else 1.0
        for rows in chunks(torch.randperm(len(train), generator=generator), how.batch_size):
            optimizer.zero_grad()
            value: Any = loss(train[rows], True, share)
            value.backward()
            optimizer.step()
            total += float(value.detach()) * len(rows)
        with torch.no_grad():
            now = float(loss(test, False, 1.0))
        history.append((total / len(train), now))
        bar.step(1)
        # Until the whole beta counts, the loss minimised is not the loss measured.
        if epoch < how.warm_up - 1:
            continue
        epochs_since += 1
        if now < best:
            best = now
            epochs_since = 0
            best_states = [{k: v.clone() for k, v in net.state_dict().items()} for net in nets]
        if epochs_since >= how.patience:
            break
    if not best_states:
        raise SettingError(f"training the autoencoder diverged; lower lr ({how.lr:g})")
    for net, state in zip(nets, best_states, strict=True):
        net.load_state_dict(state)
        net.eval().requires_grad_(False)
    return tuple(history)


# ---- losses


def reconstruction(raw: Tensor, x: Tensor, groups: Tensor) -> Tensor:
    """(n,) squared error over numbers, and cross-entropy of the levels x holds over groups."""
    if not groups.numel():
        return (raw - x).square().sum(1)
    numbers = torch.ones(x.shape[1] + 1, dtype=x.dtype).index_fill_(0, groups.flatten(), 0.0)[:-1]
    entropy = (
        padded(x, 0.0)[:, groups] * log_levels(raw, groups).masked_fill(groups == x.shape[1], 0.0)
    ).sum((1, 2))
    return ((raw - x).square() * numbers).sum(1) - entropy


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """(n,) KL( N(m, s^2) | N(0, 1) )."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)
