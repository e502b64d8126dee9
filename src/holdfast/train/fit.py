"""The plain training loop: a ReLU network on encoded rows, cross-entropy, Adam."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from holdfast.errors import SettingError
from holdfast.geometry import chunks, limited_threads
from holdfast.model import Model
from holdfast.network import mlp
from holdfast.progress import Progress
from holdfast.schema import Schema


def network(
    X: pd.DataFrame,
    y: "pd.Series[Any]",
    schema: Schema,
    *,
    classes: Sequence[Any] | None = None,
    hidden: Sequence[int] = (64, 32),
    epochs: int = 50,
    batch_size: int = 64,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    seed: int = 0,
    progress: bool = False,
) -> Model:
    """Train a classifier and wrap it.

    Args:
        X, y: the rows and their classes.
        schema: how the rows become numbers.
        classes: the class names in the order of the scores; None sorts what is in `y`.
        seed: initial weights and the order of the rows come from it; the caller's generators stay as they are.
    """
    if len(X) != len(y) or not len(X):
        raise SettingError(f"need as many outcomes as rows and at least one, got {len(y)} for {len(X)} rows")
    names = list(classes) if classes is not None else sorted(y.unique())
    place = {name: i for i, name in enumerate(names)}
    strange = [v for v in y.unique() if v not in place]
    if strange or len(names) < 2:
        raise SettingError(f"outcomes {strange or names} do not make at least two known classes {names}")
    x, labels = schema.encode(X), torch.tensor([place[v] for v in y])
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):  # layers draw from the global generator when they are made; these must not
        shape = mlp(schema.width, hidden, len(names))
    net = initialised(shape.to_empty(device="cpu"), generator)
    optimizer: Any = torch.optim.Adam(net.parameters(), lr=lr, weight_decay=weight_decay)
    with Progress(progress, "training") as bar, torch.enable_grad(), limited_threads(1):
        bar.total(epochs)
        for _ in range(epochs):
            for rows in chunks(torch.randperm(len(x), generator=generator), batch_size):
                optimizer.zero_grad()
                loss: Any = nn.functional.cross_entropy(net(x[rows]), labels[rows])
                loss.backward()
                optimizer.step()
            bar.step(1)
    return Model.of(net.eval(), schema, classes=names)


def initialised(net: nn.Sequential, generator: torch.Generator) -> nn.Sequential:
    """Glorot-uniform weights and zero biases from our own generator."""
    weights: list[Tensor] = [m.weight for m in net if isinstance(m, nn.Linear)]
    for w in weights:
        nn.init.xavier_uniform_(w, generator=generator)
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.zeros_(m.bias)
    return net
