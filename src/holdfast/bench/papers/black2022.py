"""Black, Wang, Fredrikson and Datta, "Consistent Counterfactuals for Deep Models", ICLR 2022: Tables 1 to 4.

One network per dataset, every method on every row of the test part, then 100 networks with one training row
left out and 100 with other initial weights. Invalidation: the share of answers that lose their class.
Rows are encoded first and every encoded column may change freely, as in the paper; the network, the radii and
the number of epochs are the paper's.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast import data
from holdfast.bank import ModelBank
from holdfast.bench.cells import Arrays, Cells
from holdfast.bench.papers.black2022_reported import R2, REPORTED
from holdfast.explainer import Explainer
from holdfast.feature import Feature
from holdfast.model import Model
from holdfast.robust.stable import StableNeighborSearch
from holdfast.schema import Schema
from holdfast.search.latent import LatentSearch
from holdfast.search.minimal import MinCost
from holdfast.search.pgd import MinEpsilonPGD
from holdfast.search.prototype import Prototype
from holdfast.train.recipe import Recipe
from holdfast.version import __version__

FAMILIES = {"LOO": "leave_one_out", "RS": "seed"}
MODELS_PER_CELL = 25


@dataclass(frozen=True)
class Setting:
    """One dataset as the paper runs it."""

    dataset: str
    scaling: str  # "standard": zero mean and unit variance; "minmax": 0 to 1; "numbers": only numeric columns standard
    test: int  # rows
    hidden: tuple[int, ...]
    epochs: int
    batch_size: int
    eps_max: float  # the largest PGD radius; SNS has 0.8 of it
    categories: tuple[str, ...] = ()  # numeric codes that are categories
    latent_radius: float = 1.0
    low: Any = None  # with three classes: the class against the other two


SETTINGS = {
    "german_credit": Setting("german_statlog", "standard", 200, (128, 64, 16), 100, 32, 3.0, latent_radius=0.3),
    "seizure": Setting("seizure", "standard", 3450, (128, 64, 16), 100, 128, 3.0),
    "ctg": Setting("ctg", "minmax", 425, (100, 32, 16), 100, 16, 0.2),
    "warfarin": Setting("warfarin", "numbers", 1200, (100,), 100, 128, 0.5, low="low"),
    "heloc": Setting(
        "heloc_full", "minmax", 2615, (100, 32), 50, 128, 2.1, ("MaxDelq2PublicRecLast12M", "MaxDelqEver")
    ),
    "taiwan_credit": Setting("taiwan_credit", "standard", 7500, (32, 16), 100, 512, 5.0, ("EDUCATION", "MARRIAGE")),
}
POOL = 100  # rows that are left out in turn


@dataclass(frozen=True)
class Task:
    """Encoded rows, all columns free."""

    schema: Schema
    train: pd.DataFrame
    y: "pd.Series[Any]"
    test: pd.DataFrame
    classes: tuple[Any, ...]
    pool: list[int]
    truth: np.ndarray[Any, Any]
    low: Any

    def side(self, scores: Tensor) -> Tensor:
        """(..., k) scores -> the class; with `low`, whether it is that class."""
        best = scores.argmax(-1)
        return best if self.low is None else best == self.classes.index(self.low)


def prepare(setting: Setting, rows: int | None, seed: int) -> Task:
    """The paper's encoding: one-hot columns, scaled by the training part, one box around all of it."""
    whole = cast(data.Dataset, data.load(setting.dataset))
    X = whole.X.astype(dict.fromkeys(setting.categories, "str"))
    encoded = Schema.infer(X, scaling="none").encode(X, torch.float64)
    order = np.random.default_rng(seed).permutation(len(X))
    cut = len(X) - setting.test
    train, test = encoded[order[:cut]], encoded[order[cut:]]
    flags = ((encoded == 0) | (encoded == 1)).all(0)
    center, scale = torch.zeros(encoded.shape[1]).double(), torch.ones(encoded.shape[1]).double()
    if setting.scaling == "minmax":
        center = train.amin(0)
        scale = train.amax(0) - center
    else:
        moved = ~flags if setting.scaling == "numbers" else torch.ones_like(flags)
        center[moved], scale[moved] = train.mean(0)[moved], train.std(0, correction=0)[moved]
    scale[scale == 0] = 1.0
    names = [f"x{i}" for i in range(encoded.shape[1])]
    frames = [pd.DataFrame(((part - center) / scale).numpy(), columns=names) for part in (train, test)]
    low, high = float(frames[0].min(axis=None)), float(frames[0].max(axis=None))
    schema = Schema(tuple(Feature(name, seen=(low, high)) for name in names))
    y = whole.y.iloc[order[:cut]].reset_index(drop=True)
    pool = list(range(cut - POOL, cut))  # the rows that the paper moves from test to training
    truth = whole.y.iloc[order[cut:]].to_numpy()[:rows]
    classes = tuple(sorted(y.unique()))
    return Task(schema, frames[0], y, cast(pd.DataFrame, frames[1][:rows]), classes, pool, truth, setting.low)


def methods(setting: Setting) -> dict[str, Callable[[], Explainer]]:
    """The paper's eight, with its settings."""
    eps = setting.eps_max
    starts: dict[str, Callable[[], Explainer]] = {
        "Min l1": lambda: MinCost(norm=1),
        "Min l2": lambda: MinCost(norm=2),
        "Min eps PGD": lambda: MinEpsilonPGD(radius=eps),
    }
    moved: dict[str, Callable[[], Explainer]] = {
        f"{name} + SNS": (lambda make=make: StableNeighborSearch(start=make(), radius=0.8 * eps))
        for name, make in starts.items()
    }
    return {
        **starts,
        **moved,
        "Looveren": lambda: Prototype(),
        "Pawelczyk": lambda: LatentSearch(radius=setting.latent_radius, seed=2021),
    }


def run(name: str, cells: Cells, *, models: int = 100, rows: int | None = None, seed: int = 0) -> dict[str, Any]:
    """One dataset: everything of Tables 1 to 4, and how long it took."""
    setting = SETTINGS[name]
    cells = replace(cells, settings={"dataset": name, "rows": rows, "seed": seed, **vars(setting)})
    task = prepare(setting, rows, seed)
    recipe = Recipe(hidden=setting.hidden, epochs=setting.epochs, batch_size=setting.batch_size, adam_eps=1e-7)
    model = recipe.fit(task.train, task.y, task.schema, classes=task.classes, seed=seed)
    answers = {
        label: cells.arrays(f"{name}/{label.replace(' ', '')}", lambda make=make: answer(make(), model, task))
        for label, make in methods(setting).items()
    }
    survived = dict[str, dict[str, np.ndarray[Any, Any]]]()
    retraining = 0.0
    for short, family in FAMILIES.items():
        parts = list[Arrays]()
        for at in range(0, models, MODELS_PER_CELL):
            wanted = range(at, min(at + MODELS_PER_CELL, models))

            def make(family: str = family, wanted: range = wanted) -> Arrays:
                bank = ModelBank.retrain(
                    recipe, task.train, task.y, task.schema,
                    families={family: wanted}, classes=task.classes, seed=seed, pool=task.pool,
                )  # fmt: skip
                return {label: kept(bank, a, task) for label, a in answers.items()}

            parts.append(cells.arrays(f"{name}/{short}-{wanted.start}-{wanted.stop}", make))
        retraining += sum(float(part["seconds"]) for part in parts)
        survived[short] = {label: np.concatenate([part[label] for part in parts]) for label in answers}
    accuracy = float((model.predict(task.test).to_numpy() == task.truth).mean())
    return summary(name, answers, survived) | {
        "accuracy": accuracy,
        "columns": len(task.schema.features),
        "training_rows": len(task.train),
        "test_rows": len(task.test),
        "models": {short: models for short in FAMILIES},
        "seed": seed,
        "seconds": {
            "methods": round(sum(float(a["seconds"]) for a in answers.values()), 1),
            "retraining": round(retraining, 1),
        },
        "version": __version__,
    }


def answer(method: Explainer, model: Model, task: Task) -> Arrays:
    """Any other class is asked for; with three classes, the other side of `low`."""
    X = task.test
    method.fit(task.train, model)
    low = (model.predict(X) == task.low).to_numpy()
    x_cf, found = np.zeros(X.shape), np.zeros(len(X), bool)
    parts = [(slice(None), None)] if task.low is None else [(low, None), (~low, task.low)]
    for rows, target in parts:
        cfs = method.explain(model, cast(pd.DataFrame, X[rows]), target)
        x_cf[rows], found[rows] = cfs.x_cf.double().numpy(), cfs.found
    with model.borrowed():
        side = task.side(model(torch.as_tensor(x_cf, dtype=model.dtype)))
    return {"x_cf": x_cf[found], "x": X.to_numpy()[found], "found": found, "side": side.numpy()[found]}


def kept(bank: ModelBank, answers: Arrays, task: Task) -> np.ndarray[Any, Any]:
    """(M, n) does each answer that was found keep its class, or its side of `low`?"""
    scores = bank.scores(torch.as_tensor(answers["x_cf"], dtype=torch.float32))
    return (task.side(scores) == torch.as_tensor(answers["side"])).numpy()


def summary(
    name: str, answers: dict[str, Arrays], survived: dict[str, dict[str, np.ndarray[Any, Any]]]
) -> dict[str, Any]:
    """Reported beside measured: mean and standard deviation over models (invalidation) or over answers (cost)."""
    measured, costs, rates = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for label, a in answers.items():
        delta = a["x_cf"] - a["x"]
        costs[label] = np.linalg.norm(delta, axis=1)
        by_family = {short: 1 - kept[label].mean(1) for short, kept in survived.items()}  # (M,) each
        rates[label] = 1 - np.concatenate([kept[label] for kept in survived.values()]).mean(0)  # (n,)
        measured[label] = {
            "success": float(a["found"].mean()),
            **{f"IV {short}": spread(iv) for short, iv in by_family.items()},
            "l1": spread(np.abs(delta).sum(1)),
            "l2": spread(costs[label]),
            "seconds": round(float(a["seconds"]), 2),
        }
    base = [label for label in answers if "SNS" not in label]
    return {
        "paper": "black2022",
        "dataset": name,
        "measured": measured,
        "reported": REPORTED[name],
        "r2": {
            "measured, all methods": r_squared(costs, rates, list(answers)),
            "measured, without SNS": r_squared(costs, rates, base),
            "reported": R2[name],
        },
    }


def spread(values: np.ndarray[Any, Any]) -> list[float]:
    """[mean, standard deviation]"""
    return [round(float(values.mean()), 4), round(float(values.std()), 4)] if len(values) else []


def r_squared(costs: dict[str, Any], rates: dict[str, Any], labels: list[str]) -> float:
    """Of a line through (cost, invalidation) of every answer of these methods."""
    x, y = (np.concatenate([part[label] for label in labels]) for part in (costs, rates))
    return round(float(np.corrcoef(x, y)[0, 1] ** 2), 4)
