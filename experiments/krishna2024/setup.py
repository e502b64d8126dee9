"""Krishna et al. 2024: data, methods with their budgets, and the models to harden."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

import holdfast as hf
from experiments.data import Split, load_table
from holdfast.methods._autoencoder import TableAutoencoder
from holdfast.methods._autoencoder_training import autoencoder

BATCH = 256
LR = 1e-3
# of SCFE
LAM = 0.1
SCORE = 1.0
SCFE_STEPS = 50
# how many times as wide as the rows the hidden layer is
KINDS = {"logistic regression": 0, "network": 2}
EDUCATION = (
    "Preschool",
    "1st-4th",
    "5th-6th",
    "7th-8th",
    "9th",
    "10th",
    "11th",
    "12th",
    "HS-grad",
    "Some-college",
    "Assoc-voc",
    "Assoc-acdm",
    "Bachelors",
    "Masters",
    "Prof-school",
    "Doctorate",
)


@dataclass(frozen=True)
class Setting:
    """One dataset."""

    epochs: int  # of the curves
    title: str


SETTINGS = {
    "german_credit": Setting(100, "German Credit"),
    "adult": Setting(40, "Adult"),
    "bail": Setting(60, "bail (the paper's COMPAS)"),
    "compas": Setting(100, "ProPublica COMPAS"),
}


def prepare(name: str, seed: int = 0) -> Split:
    """Rows with all columns between 0 and 1 and free to change, as in the paper's theory; class 1
    is wanted.

    One-hot (one column for two levels) and min-max; a fifth of each class for the test, in random
    order.

    Paper: krishna2024 Datasets.
    """
    loaded = load_table(name)
    X = binarised(loaded.X) if name == "adult" else loaded.X
    schema = hf.Schema.infer(X, scaling="minmax")
    x = schema.encode(X, torch.float64)
    low = x.amin(0)
    high = x.amax(0)
    columns = [
        f.name if f.width == 1 else f"{f.name}: {f.levels[i]}"
        for f in schema.features
        for i in range(f.width)
    ]
    frame = pd.DataFrame(((x - low) / (high - low).clamp_min(1e-12)).numpy(), columns=columns)
    frame = frame.drop(
        columns=[f"{f.name}: {f.levels[0]}" for f in schema.features if f.width == 2]
    )
    y = pd.Series((loaded.y == loaded.favourable).astype(int).to_numpy())
    order = np.random.default_rng(seed).permutation(len(y))
    labels = torch.tensor(y.to_numpy()[order])
    # how many of its class up to each row
    seen = torch.where(labels == 1, labels.cumsum(0), (1 - labels).cumsum(0))
    held = (seen <= 0.2 * torch.bincount(labels)[labels]).numpy()
    learn = order[~held]
    test = order[held]
    free = hf.Schema(tuple(hf.Feature(str(c), seen=(0.0, 1.0)) for c in frame.columns))
    return Split(frame.iloc[learn], y.iloc[learn], frame.iloc[test], y.iloc[test], free)


def binarised(X: pd.DataFrame) -> pd.DataFrame:
    """Adult with two values for each category and education as a rank, as in recourse
    benchmarks."""
    strings = {name: X[name].astype(str).str.strip() for name in X.columns}
    out = X[["age", "capital-gain", "capital-loss", "hours-per-week"]].astype(float)
    yes = {
        "workclass": strings["workclass"] == "Private",
        "marital-status": strings["marital-status"].str.startswith("Married"),
        "occupation": strings["occupation"].isin(["Exec-managerial", "Prof-specialty"]),
        "relationship": strings["relationship"] == "Husband",
        "race": strings["race"] == "White",
        "sex": strings["sex"] == "Male",
        "native-country": strings["native-country"] == "United-States",
    }
    rank = strings["education"].map({name: float(i + 1) for i, name in enumerate(EDUCATION)})
    return out.assign(education=rank, **{name: flags.astype(float) for name, flags in yes.items()})


def methods(net: TableAutoencoder | None = None, budget: int = 1) -> dict[str, hf.Explainer]:
    """The paper's four, each with the same budget for every epsilon, or a multiple of
    it."""
    steps = SCFE_STEPS * budget
    return {
        "SCFE": hf.Descent.scfe(lam=LAM, score=SCORE, steps=steps),
        "C-CHVAE": hf.CCHVAE(step=0.1, rings=40 * budget, samples=100, autoencoder=net),
        "Growing Spheres": hf.GrowingSpheres.carla(width=0.1, rings=20 * budget, samples=200),
        "ROAR": hf.ROAR(samples=1000, steps=500 * budget),
        "SCFE, lambda 1": hf.Descent.scfe(lam=1.0, score=SCORE, steps=steps),
    }


def latent_space(task: Split, seed: int) -> TableAutoencoder:
    """The VAE of C-CHVAE: one for all models."""
    return autoencoder(
        task.X, task.schema, kind="vae", hidden=(64, 32), latent=8, beta=0.01, epochs=30, seed=seed
    )


def hardened(
    task: Split, hidden: tuple[int, ...], epochs: int, seeds: int, seed: int, **more: Any
) -> hf.AdversarialModels:
    recipe = hf.Recipe(hidden=hidden, epochs=epochs, batch_size=BATCH, lr=LR)
    return hf.train_adversarial(recipe, task.X, task.y, task.schema, seeds=seeds, seed=seed, **more)
