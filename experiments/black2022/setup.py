"""Black et al. 2022: datasets, networks and methods, with the paper's settings."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import holdfast as hf
from experiments.data import Split, load_table

FAMILIES = {"LOO": "leave_one_out", "RS": "seed"}
POOL = 100  # rows left out in turn, and networks of each family
STARTS = ("Min l1", "Min l2", "Min eps PGD")
# how the authors ran their own start; step size by norm
ROUNDS = 9
STEPS = 100
STEP = {1: 0.05, 2: 0.01}
Methods = dict[str, Callable[[], hf.Explainer]]


@dataclass(frozen=True)
class Setting:
    """One dataset as the paper runs it.

    Paper: black2022 Networks.
    """

    dataset: str
    # "standard": zero mean and unit variance; "minmax": 0 to 1; "numbers": only numeric columns
    # standard
    scaling: str
    test: int  # rows
    hidden: tuple[int, ...]
    epochs: int
    batch_size: int
    eps_max: float  # the largest PGD radius; SNS has 0.8 of it
    categories: tuple[str, ...] = ()  # numeric codes that are categories
    latent_radius: float = 1.0
    low: Any = None  # with three classes: the class against the other two
    # also run the authors' own start, which leaves rows without an answer here?
    clipped: bool = False

    @property
    def recipe(self) -> hf.Recipe:
        return hf.Recipe(
            hidden=self.hidden, epochs=self.epochs, batch_size=self.batch_size, adam_eps=1e-7
        )


DELINQUENCIES = ("MaxDelq2PublicRecLast12M", "MaxDelqEver")
SETTINGS = {
    "german_credit": Setting(
        "german_statlog",
        "standard",
        200,
        (128, 64, 16),
        100,
        32,
        3.0,
        latent_radius=0.3,
        clipped=True,
    ),
    "seizure": Setting("seizure", "standard", 3450, (128, 64, 16), 100, 128, 3.0, clipped=True),
    "ctg": Setting("ctg", "minmax", 425, (100, 32, 16), 100, 16, 0.2),
    "warfarin": Setting("warfarin", "numbers", 1096, (100,), 100, 128, 0.5, low="low"),
    "heloc": Setting("heloc_full", "minmax", 2615, (100, 32), 50, 128, 2.1, DELINQUENCIES),
    "taiwan_credit": Setting(
        "taiwan_credit", "standard", 7500, (32, 16), 100, 512, 5.0, ("EDUCATION", "MARRIAGE")
    ),
}


@dataclass(frozen=True)
class Task(Split):
    """Encoded rows, all columns free."""

    low: Any

    @property
    def classes(self) -> tuple[Any, ...]:
        return tuple(sorted(self.y.unique()))

    @property
    def pool(self) -> list[int]:
        """The training rows left out in turn: those that the paper moves from test to
        training."""
        return list(range(len(self.X) - POOL, len(self.X)))

    def side(self, scores: Tensor) -> Tensor:
        """(..., k) scores -> the class; with `low`, whether it is that class."""
        best = scores.argmax(-1)
        return best if self.low is None else best == self.classes.index(self.low)

    def first(self, rows: int | None) -> "Task":
        """The same with the first test rows only."""
        return replace(self, test_X=self.test_X[:rows], test_y=self.test_y[:rows])


def prepare(name: str, seed: int) -> Task:
    """The paper's encoding: one-hot columns, scaled by the training part, one box around all of
    it.

    Paper: black2022 Datasets.
    """
    setting = SETTINGS[name]
    loaded = load_table(setting.dataset)
    raw = loaded.X.astype(dict.fromkeys(setting.categories, "str"))
    encoded = hf.Schema.infer(raw, scaling="none").encode(raw, torch.float64)
    order = np.random.default_rng(seed).permutation(len(raw))
    learn, test = np.split(order, [len(raw) - setting.test])
    center, scale = _center_and_scale(encoded, encoded[learn], setting.scaling)
    names = [f"x{i}" for i in range(encoded.shape[1])]
    X = pd.DataFrame(((encoded[learn] - center) / scale).numpy(), columns=names)
    test_X = pd.DataFrame(((encoded[test] - center) / scale).numpy(), columns=names)
    y = loaded.y.iloc[learn].reset_index(drop=True)
    test_y = loaded.y.iloc[test].reset_index(drop=True)
    box = float(X.to_numpy().min()), float(X.to_numpy().max())
    schema = hf.Schema(tuple(hf.Feature(name, seen=box) for name in names))
    return Task(X, y, test_X, test_y, schema, setting.low)


def _center_and_scale(encoded: Tensor, train: Tensor, scaling: str) -> tuple[Tensor, Tensor]:
    if scaling == "minmax":
        center = train.amin(0)
        scale = train.amax(0) - center
    else:
        flags = ((encoded == 0) | (encoded == 1)).all(0) & (scaling == "numbers")
        center = train.mean(0)
        scale = train.std(0, correction=0)
        center[flags] = 0.0
        scale[flags] = 1.0
    scale[scale == 0] = 1.0
    return center, scale


def methods(setting: Setting, search_bank: Callable[[], hf.ModelBank | None]) -> Methods:
    """The paper's eight, with its settings; then what goes beyond it: the same search guided by a
    small bank.

    Paper: black2022 Table 2.
    """
    radius = setting.eps_max
    starts: Methods = {
        "Min l1": lambda: hf.MinCost(norm=1),
        "Min l2": lambda: hf.MinCost(norm=2),
        "Min eps PGD": lambda: hf.MinEpsilonPGD(radius=radius),
    }
    out = dict(starts)
    for name, make in starts.items():
        out[f"{name} + SNS"] = lambda make=make: hf.StableNeighborSearch(
            start=make(), radius=0.8 * radius
        )
    out["Looveren"] = lambda: hf.Prototype()
    out["Pawelczyk"] = lambda: hf.LatentSearch(radius=setting.latent_radius, seed=2021)
    for name, make in starts.items():
        out[f"{name} + SNS with a bank"] = lambda make=make: hf.StableNeighborSearch(
            start=make(), bank=search_bank()
        )
    return out


def clipped_methods(setting: Setting) -> Methods:
    """The smallest changes as the authors searched for them, clipped to [0, 1] whatever the data's
    range."""
    radius = 0.8 * setting.eps_max
    out = Methods()
    for norm, lr in STEP.items() if setting.clipped else ():
        start = partial(
            hf.MinCost, cast(Any, norm), bisections=ROUNDS, steps=STEPS, lr=lr, legacy=True
        )
        out[f"Min l{norm}, clipped"] = start
        out[f"Min l{norm}, clipped + SNS"] = lambda start=start: hf.StableNeighborSearch(
            start=start(), radius=radius
        )
    return out
