"""Data, models, sizes of banks, and the oracle."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import holdfast as hf
from experiments.data import load_table
from holdfast.datasets import Dataset
from holdfast.methods.survival_search.problem import SurvivalProblem

HOLD, CONFIDENCE, SHARE = 0.95, 0.95, 0.9
FIRST_SEED = 10  # base seeds 0 to 9 were there to try settings on
ASKED = 70  # people in the test rows of each base seed


@dataclass(frozen=True)
class Setting:
    """One dataset: the wanted outcome, and the training loop of its networks. Where models refuse next to nobody by the
    larger probability, a probability is asked for: the share of the wanted outcome."""

    title: str
    wanted: str
    probability: float | None = None
    train: int = 10_000  # rows to learn from at most
    epochs: int = 15


@dataclass(frozen=True)
class Kind:
    """One kind of model: how it is made, what it is asked with, and how many models there are."""

    recipe: Callable[[Setting], hf.Recipe]
    norm: int
    guide: int
    judges: int  # of each family
    certify: tuple[str, ...]  # the families that calibrate, that the oracle knows, and whose certificates count
    calibration: int  # models of each of these
    known: int  # people of the training rows by whom c and the margin are calibrated
    oracle: tuple[float, ...]  # values of c that the oracle tries


FAMILIES: tuple[str, ...] = ("retrain", "seed", "bootstrap")  # that judge


@dataclass(frozen=True)
class Task:
    """Rows of one base seed: to learn from, to calibrate by, and to ask about."""

    X: pd.DataFrame
    y: "pd.Series[Any]"
    test: pd.DataFrame
    schema: hf.Schema


SETTINGS = {
    "heloc": Setting("HELOC", "Good"),
    "german_credit": Setting("German Credit", "approved", epochs=30),
    "taiwan_credit": Setting("Taiwan", "paid"),
    "adult": Setting("Adult", ">50K"),
    "lending_club": Setting("Lending Club", "good", probability=0.95),
}


def _network(setting: Setting) -> hf.Recipe:
    return hf.Recipe(hidden=(32, 16), epochs=setting.epochs, weight_decay=1e-3)


def _xgboost(_: Setting) -> hf.Recipe:
    from xgboost import XGBClassifier

    estimator = XGBClassifier(n_estimators=100, max_depth=4, learning_rate=0.1, subsample=0.9, n_jobs=1)
    return hf.Recipe(estimator=estimator, inputs="encoded")


def _lightgbm(_: Setting) -> hf.Recipe:
    from lightgbm import LGBMClassifier

    bagging: dict[str, Any] = {"subsample": 0.9, "subsample_freq": 1}
    estimator = LGBMClassifier(n_estimators=100, num_leaves=15, learning_rate=0.1, n_jobs=1, verbose=-1, **bagging)
    return hf.Recipe(estimator=estimator, inputs="encoded")


def _forest(_: Setting) -> hf.Recipe:
    from sklearn.ensemble import RandomForestClassifier  # pyright: ignore[reportMissingTypeStubs]

    return hf.Recipe(estimator=RandomForestClassifier(100, max_depth=6, n_jobs=1), inputs="encoded")


def _network_kind(norm: int) -> Kind:
    return Kind(_network, norm, 160, 100, ("retrain",), 100, 100, tuple(i / 4 for i in range(17)))


def _tree_kind(recipe: Callable[[Setting], hf.Recipe]) -> Kind:
    return Kind(recipe, 1, 80, 60, FAMILIES, 60, 100, (1.0, 1.5, 2.0, 2.5, 3.0))


KINDS = {
    "network l1": _network_kind(1),
    "network l2": _network_kind(2),
    "xgboost": _tree_kind(_xgboost),
    "lightgbm": _tree_kind(_lightgbm),
    "forest": _tree_kind(_forest),
}


def prepare(dataset: str, seed: int) -> Dataset:
    """The whole table; every base seed splits it anew."""
    return load_table(dataset)


def split(data: Dataset, setting: Setting, seed: int) -> Task:
    """Half of the rows to learn from, up to a number; the others to ask about."""
    order = np.random.default_rng(seed).permutation(len(data.X))
    train, test = order[: len(order) // 2][: setting.train], order[len(order) // 2 :]
    return Task(data.X.iloc[train], data.y.iloc[train], data.X.iloc[test], data.schema)


class OracleProblem(SurvivalProblem):
    """Accepted by all models of the guide but a few: c is how many may refuse."""

    def _place(self, margins: Tensor, who: Tensor | None) -> Tensor:
        """(1, n, ..) where among the margins, from the lowest, the one is that decides."""
        c = self.c if who is None else self.c[who]
        few = c.long().clamp_max(len(margins) - 1)
        return few.view(1, -1, *[1] * (margins.ndim - 2)).expand(1, *margins.shape[1:])

    def bound_of(self, margins: Tensor, who: Tensor | None = None) -> Tensor:
        return margins.sort(0).values.gather(0, self._place(margins, who)).squeeze(0)

    def weights_of(self, margins: Tensor) -> Tensor:
        which = margins.sort(0).indices.gather(0, self._place(margins, None))
        return torch.zeros_like(margins).scatter_(0, which, 1.0)


class Oracle(hf.SurvivalSearch):
    """The cheapest change that all but c of the models accept that judge it: what nobody can know beforehand."""

    problem_type = OracleProblem
