"""Linear models and multi-layer perceptrons as torch programs over encoded rows, in double
precision.

Every input of the model is affine in the encoded row: u = A z + c, exactly, for numbers (also
missing ones, if an imputer fills them in), booleans and one-hot categories; the table of an ordered
column is a straight line with bends at its ranks, and a scaler that clips keeps a number between
two ends,

    t(r) = t_0 + (t_1 - t_0) r + sum_k (t_{k+1} - 2 t_k + t_{k-1}) max(0, r - k)
    clip(v) = low + min(max(0, v - low), high - low).

So the first layer absorbs A and c, W (A z + c) + b, and the result is the model's own network over
z, which every gradient method can use.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast._core.types import Array
from holdfast.models.compiled.preprocessing import Column, Raw, RefusedError
from holdfast.nn.architecture import linear_layer

Layer = tuple[Array, Array]
Bend = tuple[int, float, float, float]  # encoded column, scale, shift, most
Activation = Callable[[], nn.Module] | None


class Bends(nn.Module):
    """z -> (z, min(max(0, scale * z + shift), most) of some of its columns, zeros up to a multiple
    of 4)."""

    scale: Tensor
    shift: Tensor
    most: Tensor

    def __init__(self, bends: Sequence[Bend], width: int) -> None:
        super().__init__()
        column, *lines = zip(*bends, strict=True)
        self.column = torch.tensor(column)
        self.rest = -(width + len(column)) % 4
        for name, values in zip(("scale", "shift", "most"), lines, strict=True):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    def forward(self, z: Tensor) -> Tensor:
        bent = torch.relu(z[:, self.column] * self.scale + self.shift).clamp_max(self.most)
        return torch.cat([z, bent, z.new_zeros(len(z), self.rest)], 1)


class Dense(nn.Module):
    """W h + b, with the matrix laid out for kernels whose bits do not depend on a row's
    place."""

    def __init__(self, w: Array, b: Array) -> None:
        super().__init__()
        self.t = nn.Parameter(torch.tensor(w).T.contiguous(), requires_grad=False)
        self.bias = nn.Parameter(torch.tensor(b), requires_grad=False)

    def forward(self, h: Tensor) -> Tensor:
        return torch.addmm(self.bias, h, self.t)


class First(nn.Module):
    """The first k columns; the rest only fills up a layer."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, z: Tensor) -> Tensor:
        return z[:, : self.k]


class LogSigmoids(nn.Module):
    """Scores of one-against-all models whose probabilities are sigmoids divided by their sum."""

    def forward(self, z: Tensor) -> Tensor:
        return nn.functional.logsigmoid(z)


class Inputs:
    """The model's inputs u = A (z, bends) + c, put together column by column."""

    def __init__(self, columns: Sequence[Column], raws: Sequence[Raw], width: int) -> None:
        self.width = width
        self.places: dict[Bend, int] = {}
        self.entries: list[tuple[int, int, float]] = []
        self.c = np.zeros(len(columns))
        for j, column in enumerate(columns):
            (self._number if column.table is None else self._levels)(j, column, raws[column.raw])
        self.bends = Bends(list(self.places), width) if self.places else None
        self.A = np.zeros(
            (len(columns), width + len(self.places) + (self.bends.rest if self.bends else 0))
        )
        for j, place, v in self.entries:
            self.A[j, place] += v

    def _bend(self, bend: Bend) -> int:
        return self.places.setdefault(bend, self.width + len(self.places))

    def _number(self, j: int, column: Column, raw: Raw) -> None:
        start = raw.at.start
        scale, center = raw.affine
        a, b = column.affine
        low, high = column.span
        if low > -np.inf:
            self.entries.append(
                (j, self._bend((start, a * scale, a * center + b - low, high - low)), 1.0)
            )
            self.c[j] = low
        else:
            self.entries.append((j, start, a * scale))
            self.c[j] = a * center + b
        if raw.indicator is None:
            return
        assert raw.feature is not None
        if np.isnan(column.of_missing):
            raise RefusedError(f"a missing number in column {raw.name!r} reaches the model")
        # While it is missing, the column holds its stand-in.
        self.entries.append(
            (
                j,
                raw.indicator,
                column.of_missing - min(max(a * raw.feature.stand_in + b, low), high),
            )
        )

    def _levels(self, j: int, column: Column, raw: Raw) -> None:
        start = raw.at.start
        scale, center = raw.affine
        t = column.values()
        if np.isnan(t).any():
            raise RefusedError(f"a missing value in column {raw.name!r} reaches the model")
        if raw.at.stop - start > 1 or (raw.feature is not None and raw.feature.is_category):
            self.entries += [(j, start + k, v) for k, v in enumerate(t.tolist())]
            return
        slope = float(t[1] - t[0]) if len(t) > 1 else 0.0
        self.entries.append((j, start, slope * scale))
        self.c[j] = t[0] + slope * center
        for k in (1 + np.flatnonzero(np.diff(t, 2))).tolist():
            place = self._bend((start, scale, center - k, np.inf))
            self.entries.append((j, place, float(t[k + 1] - 2 * t[k] + t[k - 1])))


def program(
    layers: Sequence[Layer],
    columns: Sequence[Column],
    raws: Sequence[Raw],
    width: int,
    activation: Activation = None,
    end: nn.Module | None = None,
) -> nn.Module:
    """The network u -> W_l ... act(W_1 u + b_1) ... + b_l over encoded rows; without activation,
    one layer."""
    inputs = Inputs(columns, raws, width)
    bends = inputs.bends
    (w, b), *rest = layers
    made = [(w @ inputs.A, w @ inputs.c + b), *rest]
    if activation is None:
        while len(made) > 1:
            (w1, b1), (w2, b2), *rest = made
            made = [(w2 @ w1, w2 @ b1 + b2), *rest]
    outputs = len(made[-1][0])
    plain = bends is None and end is None and activation in (None, nn.ReLU)
    modules: list[nn.Module] = [bends] if bends else []
    before = 0
    for i, (w, b) in enumerate(made):
        last = i == len(made) - 1
        # Filled up with units that do nothing, so a row's bits do not depend on its place (see
        # `nn.relu_network`).
        more = 0 if plain or (last and outputs == 2) else -len(w) % 4
        w = np.pad(w, ((0, more), (0, before)))
        b = np.pad(b, (0, more))
        modules.append(linear_layer(torch.tensor(w), torch.tensor(b)) if plain else Dense(w, b))
        before = more
        if activation and not last:
            modules.append(activation())
    if before:
        modules.append(First(outputs))
    return nn.Sequential(*modules, *([end] if end else []))


def linear_layers(model: Any) -> list[Layer]:
    coef: Any = model.coef_
    coef = np.atleast_2d(
        np.asarray(coef.toarray() if hasattr(coef, "toarray") else coef, dtype=np.float64)
    )
    return [(coef, np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), len(coef)))]


def per_output(offset: Sequence[float], outputs: int) -> Array:
    """Offsets of two classes as offsets of a model's outputs: for a single one, the difference."""
    return np.diff(offset) if outputs == 1 else np.array(offset)


def shifted(layers: list[Layer], offset: Sequence[float]) -> list[Layer]:
    """The same layers with an offset of two classes in the last bias."""
    *first, (w, b) = layers
    return [*first, (w, b + per_output(offset, len(w)))] if any(offset) else layers


ACTIVATIONS: dict[str, Activation] = {
    "identity": None,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "logistic": nn.Sigmoid,
}


def mlp_layers(model: Any) -> list[Layer]:
    pairs = zip(model.coefs_, model.intercepts_, strict=True)
    return [(np.asarray(w, dtype=np.float64).T, np.asarray(b, dtype=np.float64)) for w, b in pairs]
