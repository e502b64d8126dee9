"""Autoencoders over encoded rows, for methods that search in a latent space.

    z = enc(x),  y = dec(z)

    autoencoder    minimise  |x - y|^2
    vae            minimise  |x - y|^2 over numbers
                             -  sum_g log softmax(y_g)[x_g] over categories g  +  beta KL
                   z = m + s e,  e ~ N(0, 1),  (m, log s^2) = enc(x)
                   KL( N(m, s^2) | N(0, 1) ) = 1/2 sum_i m_i^2 + s_i^2 - 1 - log s_i^2

Hinton & Salakhutdinov 2006; Kingma & Welling 2014; beta from Higgins et al. 2017. A VAE encodes a
row as the mean m, so nothing is random after training, which is in `_autoencoder_training.py`.

Columns that a person cannot change may be given rather than modelled (Pawelczyk et al. 2020,
C-CHVAE; Sohn et al. 2015): the encoder sees the whole row, the decoder (z, x_given), and what it
leaves out is copied from x.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast._core.rows import (
    CACHE_CELLS,
    COLUMN_BLOCK,
    ROW_BLOCK,
    chunks,
    pad_rows,
    rows_per_chunk,
)
from holdfast._core.types import Pullback
from holdfast.errors import SettingError
from holdfast.models.formats import safetensors
from holdfast.nn.architecture import build, describe
from holdfast.nn.relu_network import Engine, padded_layers

Kind = Literal["autoencoder", "vae"]


def no_columns() -> Tensor:
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
    given: Tensor = field(default_factory=no_columns)

    def __post_init__(self) -> None:
        check_given(self.given, self.groups, self.width)
        codes = _outputs(self.encoder)
        columns = _outputs(self.decoder)
        fits = (
            bool(((self.groups >= 0) & (self.groups <= self.width)).all())
            and columns + len(self.given) == self.width
            and self.latent >= 1
            and codes in (self.latent, 2 * self.latent)
        )
        if not fits:
            given = f" and {len(self.given)} given" if len(self.given) else ""
            raise SettingError(
                f"the networks do not fit: {self.width} columns to {codes} latent numbers, and "
                f"{self.latent} back to {columns}{given}"
            )

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
        """Decode m points z (n m, latent) for each of n people x (n, d), one person after another,
        into `out` (d, n m) (columns first); with probabilities in the columns of `groups` if
        `soft`, or just logits."""
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
        """What the decoder returns -> rows; given columns keep every digit of x, so x sets the
        dtype of the rows."""
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
    """The same network with every layer (the last one only if `outputs`) filled up with zeros to
    whole blocks.

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
        # no memory before the tensors are there: the file only claims these sizes
        with torch.device("meta"):
            net = build(content[part])
        state = {
            name.removeprefix(f"{part}."): value
            for name, value in tensors.items()
            if name.startswith(f"{part}.")
        }
        net.load_state_dict(state, assign=True)
        nets[part] = net.eval().requires_grad_(False)
    history = tuple((float(a), float(b)) for a, b in content["history"])
    given = tensors.get("given", no_columns()).long()
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
        """The places, in a row and in what the decoder gives, of modelled columns that are
        neighbours in both."""
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
    if not inside or bool((torch.bincount(given, minlength=1) > 1).any()):
        raise SettingError(
            f"given must be numbers of columns below {width}, each once, got {given}"
        )
    if bool(torch.isin(groups[groups < width], given).any()):
        raise SettingError("given must hold all columns of a category or none of them")


# ---- softmax over the levels of categories


def group_softmax(raw: Tensor, groups: Tensor) -> Tensor:
    """`raw` (n, d) with a softmax over the columns of each group."""
    if not groups.numel():
        return raw
    levels = groups.flatten().expand(len(raw), -1)
    return padded(raw, 0.0).scatter(1, levels, log_levels(raw, groups).exp().flatten(1))[:, :-1]


def group_softmax_pull(soft: Tensor, g: Tensor, groups: Tensor) -> Tensor:
    """(n, d) the gradient by raw, from the gradient `g` by soft = group_softmax(raw).

    s_j (g_j - sum_l s_l g_l) in the columns of a group, l over its columns; g_j in all others.
    """
    if not groups.numel():
        return g
    # (n, groups, levels)
    s = padded(soft, 0.0)[:, groups]
    v = padded(g, 0.0)[:, groups]
    v = s * (v - (s * v).sum(2, keepdim=True))
    return padded(g, 0.0).scatter(1, groups.flatten().expand(len(g), -1), v.flatten(1))[:, :-1]


def log_levels(raw: Tensor, groups: Tensor) -> Tensor:
    """(n, categories, levels) log-probabilities; minus infinity where a category has fewer
    levels."""
    return torch.log_softmax(padded(raw, -math.inf)[:, groups], 2)


def padded(x: Tensor, value: float) -> Tensor:
    """With one more column, for categories with fewer levels to point to."""
    return torch.cat([x, x.new_full((len(x), 1), value)], 1)
