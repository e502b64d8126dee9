"""Autoencoders over encoded rows, for methods that search in a latent space.

    z = enc(x),  y = dec(z)

    autoencoder    minimise  |x - y|^2
    vae            minimise  |x - y|^2 over numbers  -  sum_g log softmax(y_g)[x_g] over categories g  +  beta KL
                   z = m + s e,  e ~ N(0, 1),  (m, log s^2) = enc(x)
                   KL( N(m, s^2) | N(0, 1) ) = 1/2 sum_i m_i^2 + s_i^2 - 1 - log s_i^2

Hinton & Salakhutdinov 2006; Kingma & Welling 2014; beta from Higgins et al. 2017. Losses are means over rows,
divided by the number of columns. Adam, with early stopping: what is returned are the weights of the epoch
with the least loss on rows held out. A VAE encodes a row as the mean m, so nothing is random after training.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import pandas as pd
import torch
from torch import Tensor, nn

from holdfast.errors import FileError, HoldfastError, SettingError, untyped
from holdfast.geometry import ROW_BLOCK, chunks, limited_threads, pad_rows
from holdfast.network import Engine, build, describe, mlp
from holdfast.progress import Progress
from holdfast.schema import Schema
from holdfast.train.fit import initialised

Kind = Literal["autoencoder", "vae"]
HIDDEN = (1024, 128)  # as Black et al. 2022 have it
BLOCK_CELLS = 1 << 19  # numbers in the widest layer while decoding: 2 MB, which stay in the cache


@dataclass(eq=False, repr=False)
class Autoencoder:
    """A trained pair of networks between encoded rows (n, d) and latent points (n, latent)."""

    encoder: nn.Sequential  # d -> latent, or to the mean and log-variance of each latent number
    decoder: nn.Sequential  # latent -> d
    groups: Tensor  # (categories, most levels) columns that the decoder gives as logits, padded with d
    history: tuple[tuple[float, float], ...] = ()  # loss per epoch: training rows, rows held out

    def __post_init__(self) -> None:
        codes, columns = len(self._engines[0].weights[-1][0]), _outputs(self.decoder)
        inside = bool(((self.groups >= 0) & (self.groups <= self.width)).all())
        if columns != self.width or codes not in (self.latent, 2 * self.latent) or not inside:
            raise SettingError(
                f"the networks do not fit: {self.width} columns to {codes} latent numbers, "
                f"and {self.latent} back to {columns}"
            )

    @cached_property
    def _engines(self) -> tuple[Engine, Engine]:
        encode, decode = Engine.of(self.encoder), Engine.of(self.decoder)
        if encode is None or decode is None:
            raise SettingError("an autoencoder is made of Linear and ReLU layers in turn")
        # The products that end in an odd number of columns are slow; `decode` cuts off the zero columns.
        *hidden, (w, b) = decode.weights
        more = -len(w) % 8
        return encode, Engine([*hidden, (nn.functional.pad(w, (0, 0, 0, more)), nn.functional.pad(b, (0, more)))])

    @property
    def width(self) -> int:
        """How many columns a row has."""
        return self._engines[0].inputs

    @property
    def latent(self) -> int:
        return self._engines[1].inputs

    @property
    def kind(self) -> Kind:
        return "vae" if len(self._engines[0].weights[-1][0]) == 2 * self.latent else "autoencoder"

    def encode(self, x: Tensor) -> Tensor:
        """Rows (n, d) -> latent points (n, latent); a row's point does not depend on the other rows."""
        engine = self._engines[0]
        return engine.scores(pad_rows(x.to(engine.weights[0][0].dtype)))[: len(x), : self.latent]

    def decode(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) -> rows (n, d), with probabilities in the columns of `groups`."""
        engine, rows = self._engines[1], pad_rows(z)
        widest = max(len(w) for w, _ in engine.weights)
        block = max(1, BLOCK_CELLS // (widest * ROW_BLOCK)) * ROW_BLOCK
        raw = torch.cat([engine.scores(part) for part in chunks(rows, block) or [rows]])
        return group_softmax(raw[: len(z), : self.width], self.groups)

    def __repr__(self) -> str:
        return f"Autoencoder({self.kind}, {self.width} -> {self.latent})"

    def save(self, path: str | Path) -> None:
        """Tensors, architecture and history in one safetensors file that runs no code."""
        parts = {"encoder": self.encoder, "decoder": self.decoder}
        tensors = {f"{p}.{k}": v.contiguous().clone() for p, net in parts.items() for k, v in net.state_dict().items()}
        content = {p: describe(net) for p, net in parts.items()} | {"history": self.history}
        try:
            untyped("safetensors.torch").save_file(
                tensors | {"groups": self.groups.contiguous()}, path, metadata={_MARK: json.dumps(content)}
            )
        except Exception as error:  # safetensors has an error of its own, which is no OSError
            raise FileError(f"cannot write {str(path)!r}: {error}") from None

    @staticmethod
    def load(path: str | Path) -> "Autoencoder":
        """Read what `save` wrote."""
        try:
            with untyped("safetensors").safe_open(path, framework="pt") as file:
                metadata = cast(dict[str, str], file.metadata() or {})
                tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in list(file.keys())}
        except Exception as error:
            raise FileError(f"cannot read an autoencoder from {str(path)!r}: {error}") from None
        if _MARK not in metadata:
            raise FileError(f"{str(path)!r} holds no autoencoder; write one with `Autoencoder.save`")
        try:
            return _from_parts(json.loads(metadata[_MARK]), tensors)
        except HoldfastError:
            raise
        except Exception as error:  # the text in the file may say anything
            raise FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})") from error


_MARK = "holdfast-autoencoder"


def _outputs(net: nn.Sequential) -> int:
    return next(m.out_features for m in reversed(net) if isinstance(m, nn.Linear))


def _from_parts(content: Any, tensors: dict[str, Tensor]) -> Autoencoder:
    nets: dict[str, nn.Sequential] = {}
    for part in ("encoder", "decoder"):
        with torch.device("meta"):  # no memory before the tensors are there: the sizes are only a claim of the file
            net = build(content[part])
        own = {k.removeprefix(f"{part}."): v for k, v in tensors.items() if k.startswith(f"{part}.")}
        net.load_state_dict(own, assign=True)
        nets[part] = net.eval().requires_grad_(False)
    history = tuple((float(a), float(b)) for a, b in content["history"])
    return Autoencoder(nets["encoder"], nets["decoder"], tensors["groups"].long(), history)


# ---- losses


def group_softmax(raw: Tensor, groups: Tensor) -> Tensor:
    """`raw` (n, d) with a softmax over the columns of each group."""
    if not groups.numel():
        return raw
    levels = groups.flatten().expand(len(raw), -1)
    return _padded(raw, 0.0).scatter(1, levels, _levels(raw, groups).exp().flatten(1))[:, :-1]


def reconstruction(raw: Tensor, x: Tensor, groups: Tensor) -> Tensor:
    """(n,) squared error over numbers, and cross-entropy of the levels x holds over groups."""
    if not groups.numel():
        return (raw - x).square().sum(1)
    numbers = torch.ones(x.shape[1] + 1, dtype=x.dtype).index_fill_(0, groups.flatten(), 0.0)[:-1]
    entropy = (_padded(x, 0.0)[:, groups] * _levels(raw, groups).masked_fill(groups == x.shape[1], 0.0)).sum((1, 2))
    return ((raw - x).square() * numbers).sum(1) - entropy


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """(n,) KL( N(m, s^2) | N(0, 1) )."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)


def _levels(raw: Tensor, groups: Tensor) -> Tensor:
    """(n, categories, levels) log-probabilities; minus infinity where a category has fewer levels."""
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
    beta: float = 0.3,
    epochs: int = 200,
    batch_size: int = 128,
    lr: float = 1e-3,
    held_out: float = 0.1,
    patience: int = 10,
    seed: int = 0,
    progress: bool = False,
) -> Autoencoder:
    """Train an autoencoder on a table, or on its encoding (n, d).

    Args:
        kind: "autoencoder" (deterministic), or "vae".
        hidden, latent: layers between rows and latent points; the decoder has them in reverse.
        beta: weight of the VAE's divergence.
        epochs: at most so many passes over the data.
        held_out, patience: training stops once the loss on this share of the rows has not fallen for so many epochs.
        seed: weights, order and noise come from it; the caller's generators stay as they are.
    """
    if kind not in ("autoencoder", "vae"):
        raise SettingError(f"kind must be 'autoencoder' or 'vae', got {kind!r}")
    if latent < 1 or epochs < 1 or batch_size < 1 or patience < 1 or any(h < 1 for h in hidden):
        raise SettingError("hidden, latent, epochs, batch_size and patience must be at least 1")
    if not (lr > 0 and beta >= 0 and 0 < held_out < 1):
        raise SettingError(f"need lr > 0, beta >= 0, 0 < held_out < 1, got {lr}, {beta}, {held_out}")
    generator = torch.Generator().manual_seed(seed)
    with (
        Progress(progress, "autoencoder") as bar,
        torch.inference_mode(False),
        torch.enable_grad(),
        limited_threads(1),
    ):
        x = (X if isinstance(X, Tensor) else schema.encode(X)).detach().float().clone()
        if x.ndim != 2 or x.shape[1] != schema.width or len(x) < 2:
            raise SettingError(f"need at least 2 rows of {schema.width} columns, got {tuple(x.shape)}")
        twice = 2 if kind == "vae" else 1
        with torch.device("meta"):  # layers draw from the global generator when they are made; these must not
            shapes = mlp(schema.width, hidden, twice * latent), mlp(latent, [*hidden][::-1], schema.width)
        nets = [initialised(net.to_empty(device="cpu"), generator) for net in shapes]
        groups = schema.layout().groups if kind == "vae" else torch.zeros(0, 0, dtype=torch.int64)
        order = torch.randperm(len(x), generator=generator)
        held = min(len(x) - 1, max(1, round(held_out * len(x))))
        history = _train(
            nets, x[order[held:]], x[order[:held]], _objective(nets, groups, beta, generator), bar, generator,
            epochs=epochs, batch_size=batch_size, lr=lr, patience=patience,
        )  # fmt: skip
    return Autoencoder(nets[0], nets[1], groups, history)


Objective = Callable[[Tensor, bool], Tensor]


def _objective(nets: Sequence[nn.Sequential], groups: Tensor, beta: float, generator: torch.Generator) -> Objective:
    """The loss of rows (n, d); with noise while training, and at the mean when rows held out are judged."""
    encoder, decoder = nets
    latent: int = cast(nn.Linear, decoder[0]).in_features

    def loss(x: Tensor, noisy: bool) -> Tensor:
        code = encoder(x)
        if code.shape[1] == latent:
            return reconstruction(decoder(code), x, groups).mean() / x.shape[1]
        m, v = code[:, :latent], code[:, latent:]
        z = m + (v / 2).exp() * torch.randn(m.shape, generator=generator) if noisy else m
        return (reconstruction(decoder(z), x, groups) + beta * divergence(m, v)).mean() / x.shape[1]

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
) -> tuple[tuple[float, float], ...]:
    """Adam until the loss on `test` has not fallen for `patience` epochs; the best weights stay in `nets`."""
    optimizer: Any = torch.optim.Adam([p for net in nets for p in net.parameters()], lr=lr)
    history: list[tuple[float, float]] = []
    best, since = math.inf, 0
    kept: list[dict[str, Tensor]] = []
    bar.total(epochs)
    for _ in range(epochs):
        total = 0.0
        for rows in chunks(torch.randperm(len(train), generator=generator), batch_size):
            optimizer.zero_grad()
            value: Any = loss(train[rows], True)
            value.backward()
            optimizer.step()
            total += float(value.detach()) * len(rows)
        with torch.no_grad():
            now = float(loss(test, False))
        history.append((total / len(train), now))
        bar.step(1)
        since += 1
        if now < best:
            best, since = now, 0
            kept = [{k: v.clone() for k, v in net.state_dict().items()} for net in nets]
        if since >= patience:
            break
    if not kept:
        raise SettingError(f"training the autoencoder diverged; lower lr ({lr:g})")
    for net, state in zip(nets, kept, strict=True):
        net.load_state_dict(state)
        net.eval().requires_grad_(False)
    return tuple(history)
