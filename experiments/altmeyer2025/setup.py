"""Altmeyer et al. 2025: nine datasets, cut and scaled as in the paper, and how networks are
trained."""

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import holdfast as hf
from experiments.altmeyer2025.compare import ATTACKS, compare
from experiments.altmeyer2025.comparison import FREE, HELD
from experiments.data import Split, load_table
from experiments.parts import Arrays
from holdfast import datasets
from holdfast.training.counterfactual.settings import Variants

Array = np.ndarray[Any, Any]
Rows = np.ndarray[Any, np.dtype[np.int64]]

# the domain of a column reaches this many standard deviations from its mean, or its range if wider
SPREAD = 2.0
HIDDEN = (32,)
LR = 1e-3
EPOCHS = 100
STEPS = 30
# pixels of an image, rows of them at top and bottom that are protected
SIDE = 28
EDGE = 5


@dataclass(frozen=True)
class Setting:
    """One dataset, with what the paper chose for it."""

    title: str
    train: int
    test: int
    batch: int
    tau: float
    count: int  # counterfactuals in an epoch
    reg: float
    # the feature that nobody can change; "" for the first column, "edges" for rows of pixels
    protected: str
    rows: int  # of a round of the evaluation
    samples: int = 2500  # rows of the sensitivity in a round


PLANE: dict[str, Any] = {
    "train": 3000,
    "test": 600,
    "batch": 30,
    "count": 1000,
    "protected": "x1",
    "rows": 250,
}
TABLE: dict[str, Any] = {"batch": 1000, "count": 5000, "rows": 100}
SETTINGS = {
    "linearly_separable": Setting("linearly separable", tau=0.5, reg=0.01, **PLANE),
    "circles": Setting("circles", tau=0.5, reg=0.5, **PLANE),
    "moons": Setting("moons", tau=0.9, reg=0.25, **PLANE),
    "overlapping": Setting("overlapping", tau=0.5, reg=0.25, **PLANE),
    "adult": Setting("Adult", 25049, 5010, tau=0.75, reg=0.25, protected="age", **TABLE),
    "california_housing": Setting(
        "California housing",
        15504,
        3101,
        tau=0.5,
        reg=0.25,
        protected="housing_median_age",
        **TABLE,
    ),
    "taiwan_credit": Setting(
        "Credit default", 9617, 1923, tau=0.5, reg=0.25, protected="AGE", **TABLE
    ),
    "give_me_some_credit": Setting(
        "Give Me Some Credit", 12371, 2474, tau=0.5, reg=0.5, protected="age", **TABLE
    ),
    "mnist": Setting(
        "MNIST", 10000, 2000, tau=0.5, reg=0.01, protected="edges", **(TABLE | {"rows": 25})
    ),
}
PLANES = ("linearly_separable", "circles", "moons", "overlapping")


@dataclass(frozen=True)
class Task(Split):
    """All columns are free, and some may be protected."""

    protected: tuple[str, ...]

    @property
    def guarded(self) -> hf.Schema:
        """The schema with the protected columns fixed."""
        fixed: dict[str, Any] = {name: {"change": "fixed"} for name in self.protected}
        return self.schema.change(**fixed)


def prepare(name: str, seed: int = 0) -> Task:
    """Training rows and test rows of a dataset.

    Tables keep the order of their files, as in the paper: the first four fifths to learn from
    (without those for validation), the rest to test on. Balanced tables and planes are in an order
    drawn from the seed.

    Paper: altmeyer2025 Later: datasets.
    """
    setting = SETTINGS[name]
    X, y, learn, test = _images(setting, seed) if name == "mnist" else _table(name, setting, seed)
    if name == "mnist":
        edge = EDGE * SIDE
        protected = tuple(X.columns[:edge]) + tuple(X.columns[-edge:])
        schema = hf.Schema.box(list(X.columns), -1.0, 1.0)
    else:
        protected = (setting.protected,)
        schema = domain(X.iloc[learn], "none" if name in PLANES else "standard")
    return Task(X.iloc[learn], y.iloc[learn], X.iloc[test], y.iloc[test], schema, protected)


def _images(setting: Setting, seed: int) -> tuple[pd.DataFrame, "pd.Series[Any]", Rows, Rows]:
    loaded = datasets.load("mnist")
    parts = np.asarray(loaded.parts)
    rng = np.random.default_rng(seed)
    learn = rng.permutation(np.flatnonzero(parts == "train"))[: setting.train]
    test = rng.permutation(np.flatnonzero(parts == "test"))[: setting.test]
    some = np.concatenate([learn, test])
    pixels = loaded.X[some].reshape(len(some), -1).astype(np.float32) / 127.5 - 1
    X = pd.DataFrame(pixels, columns=[f"p{i}" for i in range(SIDE * SIDE)])
    y = loaded.y.iloc[some].reset_index(drop=True)
    return X, y, np.arange(len(learn)), np.arange(len(learn), len(some))


def _table(
    name: str, setting: Setting, seed: int
) -> tuple[pd.DataFrame, "pd.Series[Any]", Rows, Rows]:
    loaded = load_table(name, **({"seed": seed} if name in PLANES else {}))
    if name == "adult":
        loaded = loaded.part("train")
    elif name == "california_housing":
        loaded = replace(loaded, X=housing(loaded.X))
    elif name in ("taiwan_credit", "give_me_some_credit"):
        loaded = loaded.balanced(seed=seed)
    n = len(loaded.y)
    cut = n - setting.test if name in PLANES else round(0.8 * n)
    learn = np.arange(cut)[: setting.train]
    test = np.arange(cut, n)[: setting.test]
    return loaded.X.reset_index(drop=True), loaded.y.reset_index(drop=True), learn, test


def housing(X: pd.DataFrame) -> pd.DataFrame:
    """California housing with eight numbers, the median age the second of them, as the paper counts
    its columns: means per household rather than totals of a block, and no word for how near the
    ocean is."""
    rooms = X["total_rooms"] / X["households"]
    bedrooms = X["total_bedrooms"] / X["households"]
    people = X["population"] / X["households"]
    out = X[["median_income", "housing_median_age", "population", "latitude", "longitude"]]
    out = out.assign(rooms=rooms, bedrooms=bedrooms, people=people)
    return out[
        [*out.columns[:2], "rooms", "bedrooms", "population", "people", "latitude", "longitude"]
    ]


def domain(X: pd.DataFrame, scaling: Literal["none", "standard"]) -> hf.Schema:
    """Numbers, standardised except in the planes, and one-hot categories. Numbers reach a few
    standard deviations out."""
    codes = [c for c in ("SEX", "EDUCATION", "MARRIAGE") if c in X.columns]
    schema = hf.Schema.infer(X, categories=codes, scaling=scaling)

    def wide(feature: hf.Feature) -> hf.Feature:
        if feature.levels:
            return replace(feature, kind="category")
        values = X[feature.name].astype(float)
        low = values.mean() + (-1) * SPREAD * values.std()
        high = values.mean() + 1 * SPREAD * values.std()
        limits = float(min(low, values.min())), float(max(high, values.max()))
        return replace(feature, kind="real", step=0.0, seen=limits, dtype="")

    return hf.Schema(tuple(wide(f) for f in schema.features))


# ---- the main table


VARIANTS = {name: {"objective": name} for name in ("plain", "full", "energy", "adversarial")}
GUARDED = "full, protected"
LABELS = [*VARIANTS, GUARDED]  # the networks, plain ones first
PICTURED = ("plain", "full", GUARDED)
HISTORY = ("accuracy", "divergence", "ridge", "adversarial", "matured", "seconds")
ENERGY = 5.0
LAM = 0.001
LR_SEARCH = 0.1
TEST_STEPS = 50
TEST_TAU = 0.95
LEANS = {"repeats": 100, "points": 50}  # of the sensitivity
FIGURES = ("validity", "implausibility", "mmd", "cost")
# An entry of a curve is an attack and an epsilon. Readers look entries up here; none counts
# places.
ATTACKED = ("FGSM", "PGD")
UNHARMED = ("none", 0.0)
CURVE = [*((attack, float(epsilon)) for attack in ATTACKED for epsilon in ATTACKS), UNHARMED]


def recipe(setting: Setting, epochs: int) -> hf.Recipe:
    return hf.Recipe(hidden=HIDDEN, epochs=epochs, batch_size=setting.batch, lr=LR)


def taught(
    task: Task,
    setting: Setting,
    epochs: int,
    seeds: int,
    seed: int,
    *,
    guarded: bool = False,
    variants: Variants | None = None,
    burn_in: float = 0.0,
    **search: Any,
) -> hf.CounterfactualTraining:
    """Networks of all variants and seeds; `guarded` holds the protected columns while training."""
    settings: dict[str, Any] = {
        "generator": hf.ECCCo(lam=LAM, energy=ENERGY, tau=setting.tau, lr=LR_SEARCH, steps=STEPS),
        "n_counterfactuals": setting.count,
    }
    return hf.train_counterfactual(
        recipe(setting, epochs),
        task.X,
        task.y,
        task.guarded if guarded else task.schema,
        seeds=seeds,
        seed=seed,
        objective=hf.CounterfactualObjective(l_reg=setting.reg, burn_in=burn_in),
        search=hf.CounterfactualSearch(**(settings | search)),
        variants=variants or ({GUARDED: {}} if guarded else VARIANTS),
    )


def judge() -> hf.ECCCo:
    """How counterfactuals of finished networks are searched for."""
    return hf.ECCCo(lam=LAM, tau=TEST_TAU, lr=LR_SEARCH, steps=TEST_STEPS)


def main_table(
    task: Task, setting: Setting, epochs: int, seeds: int, rounds: int, seed: int
) -> Arrays:
    """Figures of every round: (models, seeds, rounds) for each case and metric; accuracies,
    sensitivities, histories.

    A network is compared with the plain one of its own seed.
    """
    free = taught(task, setting, epochs, seeds, seed)
    held = taught(task, setting, epochs, seeds, seed, guarded=True)
    found = dict[str, list[Array]]()
    curves = list[Array]()
    leans = list[Array]()
    by_energy = list[Array]()
    models = dict[str, hf.Model]()
    for s in range(seeds):
        models = {name: free.member(name, s) for name in VARIANTS}
        models[GUARDED] = _as_free(held.member(GUARDED, s), task)
        study = compare(
            models,
            task.test_X,
            y=task.test_y,
            method=judge(),
            repeats=rounds,
            rows=setting.rows,
            protected=task.protected,
            seed=seed + s,
        )
        values = study.values.groupby(["case", "model", "round"], sort=False)[[*FIGURES]].mean()
        for case in (FREE, HELD):
            for metric in FIGURES:
                table = values.loc[case][metric].unstack("round").reindex(list(models))
                found.setdefault(f"{case}: {metric}", []).append(table.to_numpy(np.float64))
        curves.append(curve(study.curves, list(models)))
        lean = study.sensitivity(samples=setting.samples, **LEANS).set_index("model")
        leans.append(lean.loc[list(models), ["median", "low", "high"]].to_numpy())
        by_energy.append(_by_energy(study.values, list(models)))
    history = (
        pd.concat([free.history, held.history])
        .groupby(["variant", "epoch"], sort=False)[[*HISTORY]]
        .mean()
    )
    out = {key: np.stack(parts, 1) for key, parts in found.items()}  # (models, seeds, rounds)
    return out | {
        "curves": np.stack(curves),
        "sensitivity": np.stack(leans),
        "by energy": np.stack(by_energy),
        "history": history.to_numpy(np.float64).reshape(len(VARIANTS) + 1, epochs, len(HISTORY)),
        "pictured": pictured({name: models[name] for name in PICTURED}, task),
    }


def curve(curves: pd.DataFrame, models: list[str]) -> Array:
    """(models, entries of `CURVE`) accuracies of the curves of a comparison."""
    by = curves.set_index(["model", "attack", "epsilon"])["accuracy"].to_dict()
    return np.array([[by[name, *entry] for entry in CURVE] for name in models], dtype=np.float64)


def _by_energy(values: pd.DataFrame, models: list[str]) -> Array:
    """(models, energies) implausibility where all may change."""
    free = values[values["case"] == FREE]
    return (
        free.groupby(["model", "energy"])["implausibility"]
        .mean()
        .unstack("energy")
        .loc[models]
        .to_numpy(np.float64)
    )


def pictured(models: dict[str, hf.Model], task: Task) -> Array:
    """What pictures of a plane or of digits are drawn from: weights of networks (models, p), or
    rows and their counterfactuals (1 + models, digits, pixels), or nothing."""
    if task.width == 2:
        layers = [layer for model in models.values() for layer in weights(model)]
        flat = [torch.cat([w.flatten(), b]) for w, b in layers]
        return torch.cat(flat).double().numpy().reshape(len(models), -1)
    if task.width != SIDE * SIDE:
        return np.zeros(0)
    labels = task.test_y.to_numpy()
    right = np.all(
        [model.predict(task.test_X).to_numpy() == labels for model in models.values()], axis=0
    )
    digits = sorted(set(task.test_y))
    first = [int(np.flatnonzero(right & (task.test_y == digit).to_numpy())[0]) for digit in digits]
    wanted = [*digits[1:], digits[0]]  # each becomes the next
    X = task.test_X.iloc[first]
    found = [judge().explain(model, X, wanted, seed=0).x_cf for model in models.values()]
    return torch.stack([task.schema.encode(X), *found]).double().numpy()


def _as_free(model: hf.Model, task: Task) -> hf.Model:
    """The same network for rows whose columns may all change."""
    return hf.Model.of(cast(Any, model).module, task.schema, classes=model.classes)


def weights(model: hf.Model) -> list[tuple[Tensor, Tensor]]:
    """(out, in) and (out,) of each layer."""
    with model.eval_mode():
        assert model.engine is not None  # all are Linear and ReLU
        return [(w.detach().clone(), b.detach().clone()) for w, b in model.engine.weights]
