"""Black, Wang, Fredrikson and Datta, "Consistent Counterfactuals for Deep Models", ICLR 2022:
Tables 1 to 4.

One network per dataset, every method on every row of the test part, then 100 networks with one
training row left out and 100 with other initial weights. Invalidation: the share of answers that
lose their class. Rows are encoded first and every encoded column may change freely, as in the
paper; the network, the radii and the number of epochs are the paper's.
"""

import time
from dataclasses import asdict, replace
from functools import cache
from typing import Any, cast

import numpy as np
import torch

import holdfast as hf
from experiments.black2022 import setup
from experiments.black2022.page import page, pictures
from experiments.black2022.reported import R2, REPORTED
from experiments.experiment import Experiment, Figures, Run
from experiments.parts import Arrays
from experiments.tables import mean_sd

MODELS_PER_CELL = 25
# the bank that guides the search
SEARCH_MODELS = 10
SEARCH_SEED = 10_000
Array = np.ndarray[Any, Any]
Survived = dict[str, dict[str, Array]]  # family -> method -> (models, answers): is the class kept?


def measure(run: Run[setup.Setting, setup.Task]) -> Figures:
    """One dataset: everything of Tables 1 to 4."""
    recipe = run.setting.recipe
    task = run.task.first(run.rows)
    setting = run.setting
    common = {
        "search_models": SEARCH_MODELS,
        "search_seed": SEARCH_SEED,
        "rows": run.rows,
        "pool": setup.POOL,
    }
    cells = replace(
        run.parts,
        settings={**vars(setting), **common, "recipe": recipe.to_dict(), **run.parts.settings},
    )

    def retrained(wanted: range, family: str, seed: int) -> hf.ModelBank:
        return hf.ModelBank.retrain(
            recipe,
            task.X,
            task.y,
            task.schema,
            families={family: wanted},
            classes=task.classes,
            seed=seed,
            pool=task.pool,
        )

    @cache
    def base() -> hf.Model:
        return recipe.fit(task.X, task.y, task.schema, classes=task.classes, seed=run.seed)

    @cache
    def search_bank() -> hf.ModelBank:  # none of its models is among those that judge
        return retrained(range(SEARCH_MODELS), "seed", run.seed + SEARCH_SEED)

    about = about_methods(setting)
    answers = {
        label: cells.arrays(label, lambda make=make: answer(make(), base(), task), about[label])
        for label, make in (
            setup.methods(setting, search_bank) | setup.clipped_methods(setting)
        ).items()
    }
    accuracy = float(
        cells.arrays("accuracy", lambda: {"test": np.array(hit_rate(base(), task))})["test"]
    )
    survived = Survived()
    for short, family in setup.FAMILIES.items():
        parts = list[Arrays]()
        for first in range(0, run.models, MODELS_PER_CELL):
            wanted = range(first, min(first + MODELS_PER_CELL, run.models))

            def make(family: str = family, wanted: range = wanted) -> Arrays:
                bank = retrained(wanted, family, run.seed)
                return {label: kept(bank, cell, task) for label, cell in answers.items()}

            parts.append(cells.arrays(f"{short}-{wanted.start}-{wanted.stop}", make, about))
        survived[short] = {
            label: np.concatenate([part[label] for part in parts]) for label in answers
        }
    # beside the tables, not in them
    clipped = {label: answers.pop(label) for label in setup.clipped_methods(setting)}
    result = summary(run.dataset, answers, survived)
    size = {"accuracy": accuracy, "models": dict.fromkeys(setup.FAMILIES, run.models)}
    if clipped:
        result["clipped"] = (
            beside(result["measured"], answers, clipped, survived)
            | size
            | {"rows": len(task.test_X)}
        )
    return (
        result
        | size
        | {
            "columns": task.width,
            "training_rows": len(task.X),
            "test_rows": len(task.test_X),
            "search_models": SEARCH_MODELS,
            "scaling": setting.scaling,
        }
    )


def about_methods(setting: setup.Setting) -> dict[str, Any]:
    """Every method with all its settings, but without its bank; the settings of all cells say how
    the bank is made."""
    makes = setup.methods(setting, lambda: None) | setup.clipped_methods(setting)
    made = {label: cast(Any, make()) for label, make in makes.items()}
    return {label: [repr(method), asdict(method)] for label, method in made.items()}


def hit_rate(model: hf.Model, task: setup.Task) -> float:
    return float((model.predict(task.test_X).to_numpy() == task.test_y.to_numpy()).mean())


def answer(method: hf.Explainer, model: hf.Model, task: setup.Task) -> Arrays:
    """Any other class is asked for; with three classes, the other side of `low`."""
    X = task.test_X
    start = time.perf_counter()
    method.fit(model, task.X)
    low = (model.predict(X) == task.low).to_numpy()
    x_cf = np.zeros(X.shape)
    found = np.zeros(len(X), bool)
    parts = [(slice(None), None)] if task.low is None else [(low, None), (~low, task.low)]
    for rows, target in parts:
        cfs = method.explain(model, X[rows], target)
        x_cf[rows] = cfs.x_cf.double().numpy()
        found[rows] = cfs.found
    took = np.array(time.perf_counter() - start)
    with model.eval_mode():
        side = task.side(model(torch.as_tensor(x_cf, dtype=model.dtype)))
    return {
        "x_cf": x_cf[found],
        "x": X.to_numpy()[found],
        "found": found,
        "side": side.numpy()[found],
        "took": took,
    }


def kept(bank: hf.ModelBank, answers: Arrays, task: setup.Task) -> Array:
    """(M, n) does each answer that was found keep its class, or its side of `low`?"""
    scores = bank.scores(torch.as_tensor(answers["x_cf"], dtype=torch.float32))
    return (task.side(scores) == torch.as_tensor(answers["side"])).numpy()


def summary(dataset: str, answers: dict[str, Arrays], survived: Survived) -> Figures:
    """Reported beside measured.

    Paper: black2022 Table 1, Table 3, Table 4.
    """
    costs = {label: cost(cell) for label, cell in answers.items()}
    rates = {
        label: 1 - np.concatenate([kept[label] for kept in survived.values()]).mean(0)
        for label in answers
    }  # (n,)
    return {
        "measured": figures(answers, survived),
        "reported": REPORTED[dataset],
        "r2": {
            "measured, all methods": r_squared(costs, rates, list(answers)),
            "measured, without SNS": r_squared(
                costs, rates, [label for label in answers if "SNS" not in label]
            ),
            "reported": R2[dataset],
        },
    }


def figures(answers: dict[str, Arrays], survived: Survived) -> dict[str, Figures]:
    """Of each method: mean and standard deviation over models (invalidation) or over answers
    (cost).

    Paper: black2022 Metric success rate.
    """
    return {
        label: {
            "success": float(cell["found"].mean()),
            **{f"IV {short}": mean_sd(lost(kept[label])) for short, kept in survived.items()},
            "l1": mean_sd(np.abs(cell["x_cf"] - cell["x"]).sum(1)),
            "l2": mean_sd(cost(cell)),
            "seconds": round(float(cell["took"]), 2),
        }
        for label, cell in answers.items()
    }


def beside(
    measured: dict[str, Figures],
    answers: dict[str, Arrays],
    clipped: dict[str, Arrays],
    survived: Survived,
) -> Figures:
    """The authors' own start, and beside it our own on the rows that it answers, and on all."""
    same = dict[str, Figures]()
    for label, cell in clipped.items():
        own = label.replace(", clipped", "")
        same[own] = on_rows(
            answers[own], cell["found"], {short: kept[own] for short, kept in survived.items()}
        )
    return {
        "measured": figures(clipped, survived),
        "ours, same rows": same,
        "ours, all rows": {
            own: {key: measured[own][key] for key in row} for own, row in same.items()
        },
        "settings": {
            "rounds": setup.ROUNDS,
            "steps": setup.STEPS,
            "step": {f"l{n}": lr for n, lr in setup.STEP.items()},
        },
    }


def on_rows(answers: Arrays, rows: Array, survived: dict[str, Array]) -> Figures:
    """Invalidation and cost of a method's answers to some rows (n,) only."""
    these = rows[answers["found"]]
    out = {f"IV {short}": mean_sd(lost(kept[:, these])) for short, kept in survived.items()}
    return out | {"l2": mean_sd(cost(answers)[these])}


def cost(answers: Arrays) -> Array:
    """(n,) l2 distances.

    Paper: black2022 Metric cost.
    """
    return np.linalg.norm(answers["x_cf"] - answers["x"], axis=1)


def lost(kept: Array) -> Array:
    """(M, n) kept -> the share that each model invalidates; nothing if there is no answer.

    Paper: black2022 Definition 2.
    """
    return 1 - kept.mean(1) if kept.shape[1] else np.zeros(0)


def r_squared(costs: dict[str, Array], rates: dict[str, Array], labels: list[str]) -> float:
    """Of a line through (cost, invalidation) of every answer of these methods; 0 if there is no
    such line.

    Paper: black2022 Metric R2.
    """
    x = np.concatenate([costs[label] for label in labels])
    y = np.concatenate([rates[label] for label in labels])
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return round(float(np.corrcoef(x, y)[0, 1] ** 2), 4)


EXPERIMENT = Experiment(
    name="black2022",
    title="Consistent Counterfactuals for Deep Models (Black et al., ICLR 2022)",
    settings=setup.SETTINGS,
    models=setup.POOL,
    quick="german_credit",
    quick_models=20,
    prepare=setup.prepare,
    measure=measure,
    page=page,
    pictures=pictures,
)
