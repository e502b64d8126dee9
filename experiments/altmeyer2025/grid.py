"""Altmeyer et al. 2025, side studies in the plane: settings of the training, where blobs lie,
linear networks."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

import holdfast as hf
from experiments.altmeyer2025 import setup
from experiments.altmeyer2025.compare import compare
from experiments.parts import Arrays, Job

SEEDS = 3
ROUNDS = 10
ASKED = 100
GENERATORS = ("ECCCo", "Generic", "REVISE")
ITERATIONS = (5, 25, 50)
TUNED: dict[str, tuple[float, ...]] = {
    "l_reg": (0.0, 0.01, 0.1, 0.25, 0.5),
    "l_div": (0.01, 0.1, 1.0),
    "l_adv": (0.1, 0.25, 1.0),
    "tau": (0.5, 0.75, 0.9, 0.95),
}
WEIGHTS = (0.1, 0.5, 5.0, 10.0, 20.0)  # of the energy
# where the middle of the blobs is
MOVED = ((0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (3.0, -3.0))
GRADED = ("implausibility", "validity", "accuracy")
LINEAR_SEEDS = 10
LINEAR_EPOCHS = 30
Variants = Mapping[str, Mapping[str, Any]]
PLAIN: dict[str, Any] = {"plain": {"objective": "plain"}}


def generator(name: str, steps: int) -> hf.Explainer:
    if name == "Generic":
        return hf.Descent.generic(lam=setup.LAM, lr=setup.LR_SEARCH, steps=steps)
    if name == "REVISE":
        return hf.REVISE(
            lam=setup.LAM,
            lr=setup.LR_SEARCH,
            steps=steps,
            norm=1,
            kind="vae",
            hidden=(16,),
            latent=2,
            epochs=100,
            beta=1.0,
        )
    return hf.ECCCo(lam=setup.LAM, energy=5.0, lr=setup.LR_SEARCH, steps=steps)


def jobs(task: setup.Task, setting: setup.Setting, seeds: int, seed: int) -> list[Job]:
    """The cells of one plane; each has its own plain networks."""
    seeds = min(seeds, SEEDS)
    run = partial(study, task, setting, seeds, seed)
    energies = {f"{w:g}": {"energy": w} for w in WEIGHTS}
    tuned = {f"{key} {value:g}": {key: value} for key, values in TUNED.items() for value in values}
    out = dict[str, Any]()
    for steps in ITERATIONS:
        out[f"ECCCo {steps}"] = partial(run, energies, generator("ECCCo", steps))
        out |= {
            f"{kind} {steps}": partial(run, {"full": {}}, generator(kind, steps))
            for kind in GENERATORS[1:]
        }
    out["settings"] = partial(run, tuned, generator("ECCCo", setup.STEPS))
    out["burn-in"] = partial(run, {"full": {}}, generator("ECCCo", setup.STEPS), burn_in=0.5)
    out["few"] = partial(run, {"full": {}}, generator("ECCCo", setup.STEPS), n_counterfactuals=100)
    return [(label, make, [seeds, setup.EPOCHS, ROUNDS, ASKED]) for label, make in out.items()]


def study(
    task: setup.Task,
    setting: setup.Setting,
    seeds: int,
    seed: int,
    variants: Variants,
    how: hf.Explainer,
    **more: Any,
) -> Arrays:
    """Train variants beside plain networks; (1 + variants, seeds) means over rounds, the plain ones
    first."""
    found = setup.taught(
        task,
        setting,
        setup.EPOCHS,
        seeds,
        seed,
        generator=how,
        tau=setting.tau,
        variants=PLAIN | dict(variants),
        **more,
    )
    return graded(found, task, seeds, seed)


def graded(found: hf.CounterfactualTraining, task: setup.Task, seeds: int, seed: int) -> Arrays:
    parts = list[Any]()
    for s in range(seeds):
        models = {name: found.member(name, s) for name in found.variants}
        values = compare(
            models,
            task.test_X,
            y=task.test_y,
            method=setup.judge(),
            repeats=ROUNDS,
            rows=ASKED,
            attacks=[0.0],
            seed=seed + s,
        )
        table = values.table().set_index("model").loc[list(models)]
        parts.append(table[[*GRADED]].to_numpy(np.float64))
    last = found.history.groupby(["variant", "seed"], sort=False).tail(1)
    size = (last["ridge"].to_numpy(np.float64) / 2) ** 0.5  # of an energy, root of the mean square
    figures = np.stack(parts, 1)  # (variants, seeds, figures)
    return {name: figures[:, :, i] for i, name in enumerate(GRADED)} | {
        "size": size.reshape(-1, seeds)
    }


# ---- where blobs lie


def placements(task: setup.Task, setting: setup.Setting, seeds: int, seed: int) -> Arrays:
    """(places, 2, seeds) implausibility of plain and taught networks, for the same blobs moved in
    the plane."""
    out = list[Any]()
    for move in MOVED:
        X = pd.DataFrame(task.X + np.array(move))
        test_X = pd.DataFrame(task.test_X + np.array(move))
        there = replace(task, X=X, test_X=test_X, schema=setup.domain(X, "none"))
        out.append(
            study(
                there,
                setting,
                min(seeds, SEEDS),
                seed,
                {"full": {}},
                generator("ECCCo", setup.STEPS),
            )
        )
    return {key: np.stack([cell[key] for cell in out]) for key in GRADED}


# ---- linear networks


def linear_theory(task: setup.Task, seed: int) -> Arrays:
    """(2, seeds) |theta_1| / |theta_2| of linear classifiers, plain and taught with the first
    feature protected.

    Proposition: with Gaussian classes of one diagonal covariance, protection lowers it. The classes
    must overlap, or plain training never settles.

    Paper: altmeyer2025 Later: proposition on protection.
    """
    recipe = hf.Recipe(hidden=(), epochs=LINEAR_EPOCHS, batch_size=30, lr=1e-2)
    kinds: Variants = {**PLAIN, setup.GUARDED: {}}
    found = hf.train_counterfactual(
        recipe,
        task.X,
        task.y,
        task.guarded,
        variants=kinds,
        seeds=LINEAR_SEEDS,
        seed=seed,
        search=hf.CounterfactualSearch(generator("ECCCo", setup.STEPS), tau=0.5),
    )
    out = list[Any]()
    for name in kinds:
        w = torch.stack([setup.weights(found.member(name, s))[0][0] for s in range(LINEAR_SEEDS)])
        theta = (w[:, 1] - w[:, 0]).abs().double()  # (seeds, 2)
        out.append((theta[:, 0] / theta[:, 1]).numpy())
    return {"ratio": np.stack(out)}
