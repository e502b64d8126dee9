"""What hardening does to a person's neighbourhood: how much of it is granted what is wanted.

    share(e) = Pr( the model of epsilon e grants x + r u )

with u uniform on the unit sphere and r uniform up to the radius.

The same points for every model. For the eye: rows of the data around one person, laid out in the
plane by t-SNE.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch

import holdfast as hf
from holdfast._core.checks import untyped
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import chunks
from holdfast.distances import l2
from holdfast.errors import SettingError

CELLS = 1 << 20  # numbers in drawn rows at once


def granted_nearby(
    hardened: hf.AdversarialModels,
    X: pd.DataFrame,
    *,
    target: Any = None,
    radius: float = 0.5,
    samples: int = 200,
    seed: int = 0,
) -> np.ndarray[Any, Any]:
    """(epsilons, seeds, n) the share of points within an l2 radius of each encoded row that each
    model grants.

    Args:
        target: the wanted class; None is, for each row, the one that the plain model does not give
            it.
        radius: in encoded units.
        samples: points for each row.
        seed: points are derived from it and the contents of each row.
    """
    if not (radius > 0 and samples >= 1):
        raise SettingError(
            f"need a positive radius and at least one sample, got {radius} and {samples}"
        )
    names = np.array(hardened.bank.classes, dtype=object)
    # (seeds, n)
    wanted = torch.tensor((hardened.wanted_classes(X, target)[..., None] == names).argmax(2))
    x = hardened.schema.encode(X)
    n, d = x.shape
    random = RowRandom.of(seed, x)
    parts = list[torch.Tensor]()
    for rows in chunks(torch.arange(n), max(1, CELLS // (samples * d * len(hardened.bank)))):
        u = l2.ascent(random[rows].normal(samples, d).flatten(0, 1))
        r = radius * random[rows].uniform(samples, draw=1).reshape(-1, 1)
        z = x[rows].repeat_interleave(samples, 0) + r * u
        given = hardened.bank.scores(z).argmax(2).view(-1, hardened.seeds, len(rows), samples)
        parts.append((given == wanted[:, rows, None]).double().mean(3))
    return torch.cat(parts, 2).numpy()


def nearby_rows(
    hardened: hf.AdversarialModels,
    X: pd.DataFrame,
    row: int,
    *,
    target: Any = None,
    neighbours: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """The rows of a table nearest to one of them, in the plane, and what the first model of each
    epsilon says of them.

    Returns:
        Columns `a`, `b`, `epsilon`, `granted`, `asked`, as `neighbourhood_chart` takes them.
    """
    x = hardened.schema.encode(X, torch.float64)
    if not 0 <= row < len(x):
        raise SettingError(f"the table has {len(x)} rows: there is no row {row}")
    wanted = hardened.bank.classes.index(hardened.wanted_classes(X.iloc[[row]], target)[0, 0])
    near = (x - x[row]).square().sum(1).argsort(stable=True)[: neighbours + 1]
    if len(near) < 4:
        raise SettingError(f"a picture needs at least 3 neighbours, got {len(near) - 1}")
    tsne = untyped("sklearn.manifold").TSNE(
        perplexity=min(30, (len(near) - 1) / 3), random_state=seed, init="pca"
    )
    plane: Any = tsne.fit_transform(x[near].numpy())
    # (epsilons, rows)
    granted = hardened.only(range(1)).scores(X.iloc[near.numpy()]).argmax(2).numpy() == wanted
    parts = [
        pd.DataFrame(
            {
                "a": plane[:, 0],
                "b": plane[:, 1],
                "epsilon": e,
                "granted": given,
                "asked": near.numpy() == row,
            }
        )
        for e, given in zip(hardened.epsilon, granted, strict=True)
    ]
    return pd.concat(parts, ignore_index=True)
