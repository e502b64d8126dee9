"""Autoencoders over encoded rows, for methods that search in a latent space.

    z = enc(x),  y = dec(z)

    autoencoder    minimise  |x - y|^2
    vae            minimise  |x - y|^2 over numbers  -  sum_g log softmax(y_g)[x_g] over categories g
                             +  beta KL
                   z = m + s e,  e ~ N(0, 1),  (m, log s^2) = enc(x)
                   KL( N(m, s^2) | N(0, 1) ) = 1/2 sum_i m_i^2 + s_i^2 - 1 - log s_i^2

Hinton & Salakhutdinov 2006; Kingma & Welling 2014; beta from Higgins et al. 2017. Losses are means
over rows, divided by the number of columns. Adam, with early stopping: what is returned are the
weights of the epoch with the least loss on rows held out. A VAE encodes a row as the mean m, so
nothing is random after training.

Columns that a person cannot change may be given rather than modelled (Pawelczyk et al. 2020,
C-CHVAE; Sohn et al. 2015): the encoder sees the whole row, the decoder (z, x_given), and what it
leaves out is copied from x.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import pandas as pd
import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast._core.rows import (
    CACHE_CELLS,
    COLUMN_BLOCK,
    ROW_BLOCK,
    chunks,
    limited_threads,
    pad_rows,
    rows_per_chunk,
)
from holdfast.errors import SettingError
from holdfast.models.formats import safetensors
from holdfast.nn.architecture import build, describe, mlp
from holdfast.nn.relu_network import Engine, Pullback, padded_layers
from holdfast.retraining.loop import initialised
from holdfast.schema.schema import Schema

Kind = Literal["autoencoder", "vae"]
HIDDEN = (1024, 128)  # as Black et al. 2022 have it


def _no_columns() -> Tensor:
    return torch.zeros(0, dtype=torch.int64)


@dataclass(eq=False, repr=False)
class TableAutoencoder:
    """A trained pair of networks between encoded rows (n, d) and latent points (n, latent)."""

    encoder: nn.Sequential  # d -> latent, or to the mean and log-variance of each latent number
    decoder: nn.Sequential  # latent and given columns -> all others
    # (categories, most levels) columns that the decoder gives as logits, padded with d
    groups: Tensor
    history: tuple[tuple[float, float], ...] = ()  # loss per epoch: training rows, rows held out
    # numbers of the columns that are copied from the row
    given: Tensor = field(default_factory=_no_columns)

    def __post_init__(self) -> None:
        check_given(self.given, self.groups, self.width)
        codes = _outputs(self.encoder)
        columns = _outputs(self.decoder)
        inside = bool(((self.groups >= 0) & (self.groups <= self.width)).all())
        fits = inside and columns + len(self.given) == self.width and self.latent >= 1
        there = f"{self.width} columns to {codes} latent numbers"
        back = f"{self.latent} back to {columns}"
        given = f" and {len(self.given)} given" if len(self.given) else ""
        fits = fits and codes in (self.latent, 2 * self.latent)
        if not fits:
            raise SettingError(f"the networks do not fit: {there}, and {back}{given}")

    @cached_property
    def _engines(self) -> tuple[Engine, Engine]:
        encode = Engine.of(self.encoder)
        decode = Engine.of(self.decoder)
        if encode is None or decode is None:
            raise SettingError("an autoencoder is made of Linear and ReLU layers in turn")
        return aligned(encode), aligned(decode)

    @property
    def width(self) -> int:
        """How many columns a row has."""
        return self._engines[0].inputs

    @property
    def latent(self) -> int:
        return self._engines[1].inputs - len(self.given)

    @cached_property
    def _parts(self) -> "Parts":
        return Parts.of(self.given, self.width)

    @property
    def kind(self) -> Kind:
        return "vae" if _outputs(self.encoder) == 2 * self.latent else "autoencoder"

    def encode(self, x: Tensor) -> Tensor:
        """Rows (n, d) -> latent points (n, latent); a row's point does not depend on the other
        rows."""
        engine = self._engines[0]
        return engine.scores(pad_rows(x.to(engine.weights[0][0].dtype)))[: len(x), : self.latent]

    def decode(self, z: Tensor, x: Tensor | None = None) -> Tensor:
        """Latent points z (n, latent) -> rows (n, d), with probabilities in the columns of
        `groups`; given columns, if there are any, are copied from rows x (n, d)."""
        rows = pad_rows(self._inputs(z, x))
        raw = torch.cat(
            [self._engines[1].scores(part) for part in chunks(rows, self._block) or [rows]]
        )
        return self._rows(raw[: len(z)], x)

    @cached_property
    def _block(self) -> int:
        """How many rows to decode at once."""
        widest = max(len(w) for w, _ in self._engines[1].weights)
        return rows_per_chunk(widest, CACHE_CELLS, block=ROW_BLOCK)

    def decode_columns(self, z: Tensor, x: Tensor, out: Tensor, *, soft: bool) -> None:
        """Decode m points z (n m, latent) for each of n people x (n, d), a person's in a row, into
        `out` (d, n m) (columns first); with probabilities in the columns of `groups` if `soft`, or
        just logits."""
        n = len(x)
        parts = self._parts
        decode = self._engines[1].scores
        each = len(z) // max(1, n)
        if soft:
            out.copy_(self.decode(z, x.repeat_interleave(each, 0)).T)
            return
        given = x[:, self.given].repeat_interleave(each, 0).to(z.dtype)
        rows = pad_rows(torch.cat([z, given], 1) if len(self.given) else z)
        for i, part in enumerate(chunks(rows, self._block)):
            block = out[:, i * self._block : (i + 1) * self._block]
            raw = decode(part)[: block.shape[1]].T
            for columns, source in parts.runs:
                block[columns] = raw[source]
        for j in parts.given:
            out.view(-1, n, each)[j] = x[:, j, None]

    def decode_vjp(self, z: Tensor, x: Tensor | None = None) -> tuple[Tensor, Pullback]:
        """The same, and the function from weights on the rows (n, d) to gradients by the points (n,
        latent)."""
        raw, by_hand = self._engines[1].vjp(pad_rows(self._inputs(z, x)))
        rows = self._rows(raw[: len(z)], x)
        more = raw.shape[1] - len(self._parts.modelled)

        def pull(v: Tensor) -> Tensor:
            v = group_softmax_pull(rows, v, self.groups)[:, self._parts.modelled].to(raw.dtype)
            return by_hand(pad_rows(nn.functional.pad(v, (0, more))))[: len(z), : self.latent]

        return rows, pull

    def _inputs(self, z: Tensor, x: Tensor | None) -> Tensor:
        """What the decoder sees."""
        if not len(self.given):
            return z
        if x is None:
            raise SettingError(
                f"this autoencoder is given {len(self.given)} columns of each row; pass decode(z, "
                "x)"
            )
        return torch.cat([z, x[:, self.given].to(z.dtype)], 1)

    def _rows(self, raw: Tensor, x: Tensor | None) -> Tensor:
        """What the decoder returns -> rows; given columns keep every digit of x, so its dtype is
        that of the rows."""
        raw = raw[:, : len(self._parts.modelled)]
        if len(self.given) and x is not None:
            raw = self._parts.join(raw.to(x.dtype), x)
        return group_softmax(raw, self.groups)

    def __repr__(self) -> str:
        given = f", {len(self.given)} given" if len(self.given) else ""
        return f"TableAutoencoder({self.kind}, {self.width} -> {self.latent}{given})"

    def save(self, path: str | Path) -> None:
        """Tensors, architecture and history in one safetensors file that runs no code."""
        parts = {"encoder": self.encoder, "decoder": self.decoder}
        tensors = {
            f"{p}.{k}": v.contiguous().clone()
            for p, net in parts.items()
            for k, v in net.state_dict().items()
        }
        tensors |= {"given": self.given.contiguous()} if len(self.given) else {}
        content = {p: describe(net) for p, net in parts.items()} | {"history": self.history}
        tensors |= {"groups": self.groups.contiguous()}
        safetensors.write(path, tensors, {_MARK: content})

    @staticmethod
    def load(path: str | Path) -> "TableAutoencoder":
        """Read what `save` wrote."""
        content, tensors = safetensors.read_marked(
            path, _MARK, "an autoencoder", "TableAutoencoder.save"
        )
        with safetensors.damage_reported(path):
            return _from_parts(content, tensors)


_MARK = "holdfast-autoencoder"


def aligned(engine: Engine, *, outputs: bool = True) -> Engine:
    """The same network with every layer, the last one only if `outputs`, filled up to whole blocks
    by zeros.

    Products that end in another number of columns are slow, and for some numbers (5, 6, 7, 9, 10,
    11) what a row gets depends, in the last bit, on its place in the batch.
    """
    more = [-len(w) % COLUMN_BLOCK for w, _ in engine.weights]
    return Engine(padded_layers(engine.weights, more if outputs else [*more[:-1], 0]))


def _outputs(net: nn.Sequential) -> int:
    return next(m.out_features for m in reversed(net) if isinstance(m, nn.Linear))


def _from_parts(content: Any, tensors: dict[str, Tensor]) -> TableAutoencoder:
    nets: dict[str, nn.Sequential] = {}
    for part in ("encoder", "decoder"):
        # no memory before the tensors are there: the sizes are only a claim of the file
        with torch.device("meta"):
            net = build(content[part])
        own = {
            k.removeprefix(f"{part}."): v for k, v in tensors.items() if k.startswith(f"{part}.")
        }
        net.load_state_dict(own, assign=True)
        nets[part] = net.eval().requires_grad_(False)
    history = tuple((float(a), float(b)) for a, b in content["history"])
    given = tensors.get("given", _no_columns()).long()
    return TableAutoencoder(
        nets["encoder"], nets["decoder"], tensors["groups"].long(), history, given
    )


# ---- given columns


@dataclass(frozen=True)
class Parts:
    """The columns of a row: those a decoder gives, and those given to it."""

    modelled: Tensor
    given: Tensor
    place: Tensor  # (d,) where each column is once the given ones are put behind the others

    @classmethod
    def of(cls, given: Tensor, width: int) -> "Parts":
        modelled = (
            torch.ones(width, dtype=torch.bool).index_fill_(0, given, False).nonzero().squeeze(1)
        )
        return cls(modelled, given, torch.cat([modelled, given]).argsort())

    @cached_property
    def runs(self) -> list[tuple[slice, slice]]:
        """Modelled columns that are neighbours in a row and in what the decoder gives: their places
        in both."""
        edges = (self.modelled.diff() != 1).nonzero().squeeze(1) + 1
        ends = [0, *(int(e) for e in edges), len(self.modelled)]
        first = [int(self.modelled[a]) for a, _ in pairwise(ends)]
        return [
            (slice(f, f + b - a), slice(a, b))
            for f, (a, b) in zip(first, pairwise(ends), strict=True)
        ]

    def join(self, raw: Tensor, x: Tensor) -> Tensor:
        """(n, d) rows with the modelled columns from `raw` and the given ones from `x` (n, d)."""
        return torch.cat([raw, x[:, self.given]], 1)[:, self.place] if len(self.given) else raw


def check_given(given: Tensor, groups: Tensor, width: int) -> None:
    """Raise a `SettingError` unless these are columns, each once, with no modelled category among
    them."""
    inside = given.ndim == 1 and bool(((given >= 0) & (given < width)).all())
    once = inside and not bool((torch.bincount(given, minlength=1) > 1).any())
    if not once:
        raise SettingError(
            f"given must be numbers of columns below {width}, each once, got {given}"
        )
    whole = not bool(torch.isin(groups[groups < width], given).any())
    if not whole:
        raise SettingError("given must hold all columns of a category or none of them")


# ---- losses


def group_softmax(raw: Tensor, groups: Tensor) -> Tensor:
    """`raw` (n, d) with a softmax over the columns of each group."""
    if not groups.numel():
        return raw
    levels = groups.flatten().expand(len(raw), -1)
    return _padded(raw, 0.0).scatter(1, levels, _levels(raw, groups).exp().flatten(1))[:, :-1]


def group_softmax_pull(soft: Tensor, g: Tensor, groups: Tensor) -> Tensor:
    """(n, d) the gradient by raw of what has the gradient `g` by soft = group_softmax(raw).

    s_j (g_j - sum_l s_l g_l) in the columns of a group, l over its columns; g_j in all others.
    """
    if not groups.numel():
        return g
    # (n, groups, levels)
    s = _padded(soft, 0.0)[:, groups]
    v = _padded(g, 0.0)[:, groups]
    v = s * (v - (s * v).sum(2, keepdim=True))
    return _padded(g, 0.0).scatter(1, groups.flatten().expand(len(g), -1), v.flatten(1))[:, :-1]


def reconstruction(raw: Tensor, x: Tensor, groups: Tensor) -> Tensor:
    """(n,) squared error over numbers, and cross-entropy of the levels x holds over groups."""
    if not groups.numel():
        return (raw - x).square().sum(1)
    numbers = torch.ones(x.shape[1] + 1, dtype=x.dtype).index_fill_(0, groups.flatten(), 0.0)[:-1]
    entropy = (
        _padded(x, 0.0)[:, groups] * _levels(raw, groups).masked_fill(groups == x.shape[1], 0.0)
    ).sum((1, 2))
    return ((raw - x).square() * numbers).sum(1) - entropy


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """(n,) KL( N(m, s^2) | N(0, 1) )."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)


def _levels(raw: Tensor, groups: Tensor) -> Tensor:
    """(n, categories, levels) log-probabilities; minus infinity where a category has fewer
    levels."""
    return torch.log_softmax(_padded(raw, -math.inf)[:, groups], 2)


def _padded(x: Tensor, value: float) -> Tensor:
    return torch.cat([x, x.new_full((len(x), 1), value)], 1)


# ---- training


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

    The VAE of C-CHVAE in the CARLA benchmark, but for its likelihood of numbers, is kind="vae",
    hidden=(512, 256), latent=8, beta=0.3, warm_up=5, epochs=5, batch_size=32, weight_decay=1e-6.

    Args:
        kind: "autoencoder" (deterministic), or "vae".
        hidden, latent: layers between rows and latent points; the decoder has them in reverse.
        given: numbers of encoded columns that the decoder is given and does not model, such as
            those nobody can change.
        beta: weight of the VAE's divergence.
        warm_up: the weight rises to beta over so many epochs, beta e / warm_up in epoch e = 0, 1,
            ...; none of them but the last is a candidate for the best, as the loss on rows held out
            is that with the whole beta.
        epochs: at most so many passes over the data.
        weight_decay: adds weight_decay * w to the gradient of each weight w.
        held_out, patience: training stops once the loss on this share of the rows has not fallen
            for so many epochs.
        seed: weights, order and noise come from it; the caller's generators stay as they are.
    """
    if kind not in ("autoencoder", "vae"):
        raise SettingError(f"kind must be 'autoencoder' or 'vae', got {kind!r}")
    counts = min(latent, epochs, batch_size, patience, *hidden)
    if not counts >= 1:
        raise SettingError("hidden, latent, epochs, batch_size and patience must be at least 1")
    rates = lr > 0 and beta >= 0 and 0 < held_out < 1
    if not rates:
        raise SettingError(
            f"need lr > 0, beta >= 0, 0 < held_out < 1, got {lr}, {beta}, {held_out}"
        )
    fits = 0 <= warm_up <= epochs and weight_decay >= 0
    got = f"{warm_up}, {epochs}, {weight_decay}"
    if not fits:
        raise SettingError(f"need 0 <= warm_up <= epochs and weight_decay >= 0, got {got}")
    given = _no_columns() if given is None else given.long().sort().values
    none_left = "so none is left to model"
    if len(given) >= schema.width:
        raise SettingError(
            f"all columns are given, {none_left}; give fewer, or leave some free to change"
        )
    groups = schema.encoding().groups
    if len(given):  # those that are not given as a whole
        groups = groups[
            ~torch.isin(groups, torch.cat([given, torch.tensor([schema.width])])).all(1)
        ]
    check_given(given, groups, schema.width)
    generator = torch.Generator().manual_seed(seed)
    with (
        Progress(progress, "autoencoder") as bar,
        torch.inference_mode(False),
        torch.enable_grad(),
        limited_threads(1),
    ):
        x = (X if isinstance(X, Tensor) else schema.encode(X)).detach().float().clone()
        good = x.ndim == 2 and x.shape[1] == schema.width and len(x) >= 2
        if not good:
            raise SettingError(
                f"need at least 2 rows of {schema.width} columns, got {tuple(x.shape)}"
            )
        twice = 2 if kind == "vae" else 1
        seen = latent + len(given)
        # layers draw from the global generator when they are made; these must not
        with torch.device("meta"):
            decoder = mlp(seen, [*hidden][::-1], schema.width - len(given))
            shapes = mlp(schema.width, hidden, twice * latent), decoder
        nets = [initialised(net.to_empty(device="cpu"), generator) for net in shapes]
        # no inference tensor
        groups = groups.clone() if kind == "vae" else torch.zeros(0, 0, dtype=torch.int64)
        order = torch.randperm(len(x), generator=generator)
        held = min(len(x) - 1, max(1, round(held_out * len(x))))
        history = _train(
            nets,
            x[order[held:]],
            x[order[:held]],
            _objective(nets, groups, Parts.of(given.clone(), schema.width), beta, generator),
            bar,
            generator,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            patience=patience,
            warm_up=warm_up,
            weight_decay=weight_decay,
        )
    return TableAutoencoder(nets[0], nets[1], groups, history, given)


Objective = Callable[[Tensor, bool, float], Tensor]


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
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    patience: int,
    warm_up: int,
    weight_decay: float,
) -> tuple[tuple[float, float], ...]:
    """Adam until the loss on `test` has not fallen for `patience` epochs; the best weights stay in
    `nets`."""
    parameters = [p for net in nets for p in net.parameters()]
    optimizer: Any = torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay)
    history: list[tuple[float, float]] = []
    best = math.inf
    since = 0
    kept: list[dict[str, Tensor]] = []
    bar.total(epochs)
    for epoch in range(epochs):
        total = 0.0
        share = min(1.0, epoch / warm_up) if warm_up else 1.0
        for rows in chunks(torch.randperm(len(train), generator=generator), batch_size):
            optimizer.zero_grad()
            value: Any = loss(train[rows], True, share)
            value.backward()
            optimizer.step()
            total += float(value.detach()) * len(rows)
        with torch.no_grad():
            now = float(loss(test, False, 1.0))
        history.append((total / len(train), now))
        bar.step(1)
        if epoch < warm_up - 1:
            continue
        since += 1
        if now < best:
            best = now
            since = 0
            kept = [{k: v.clone() for k, v in net.state_dict().items()} for net in nets]
        if since >= patience:
            break
    if not bool(kept):
        raise SettingError(f"training the autoencoder diverged; lower lr ({lr:g})")
    for net, state in zip(nets, kept, strict=True):
        net.load_state_dict(state)
        net.eval().requires_grad_(False)
    return tuple(history)
