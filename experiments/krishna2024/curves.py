"""Krishna et al. 2024, its figures: everything against the epsilon of training, and for other
architectures."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import torch

import holdfast as hf
from experiments.data import Split
from experiments.krishna2024.neighbourhood import granted_nearby, nearby_rows
from experiments.krishna2024.setup import hardened, latent_space, methods
from experiments.parts import Arrays
from holdfast.evaluation.hardened_answers import invalidated
from holdfast.training.adversarial import EPSILONS

# standard deviation: a variance of 0.01
NOISE = 0.1
DRAWS = 1000
SLACK = 1e-6  # of a bound, for single precision
# radius of a neighbourhood; rows in its picture
NEAR = 0.5
NEIGHBOURS = 150
DEPTHS = 1, 2, 3, 4
WIDTHS = 1, 2, 4, 8
SWEPT = ("SCFE", "Growing Spheres", "SCFE, lambda 1")
FIGURES = ("validity", "extra cost", "cost")
Array = np.ndarray[Any, Any]


def curves(
    task: Split, hidden: tuple[int, ...], epochs: int, seeds: int, rows: int, seed: int
) -> Arrays:
    """Everything against epsilon: (methods, epsilons) and (epsilons,) values.

    Paper: krishna2024 Figure 1, Figure 2, Figure 3, Figure 4, Figure 9, Figure 10, Figure 11,
    Figure 12, Figure 16.
    """
    models = hardened(task, hidden, epochs, seeds, seed, epsilon=EPSILONS)
    X = task.test_X.iloc[:rows]
    net = latent_space(task, seed)
    known = methods(net)
    study = hf.tradeoff(models, X, known, test=(task.test_X, task.test_y), seed=seed)
    table = study.table()
    twice = hf.tradeoff(
        models, X, methods(net, 2), test=(task.test_X, task.test_y), seed=seed
    ).table()
    found_by_seed = (
        study.rows()
        .groupby(["method", "epsilon", "seed"], sort=False)["found"]
        .mean()
        .groupby(level=[0, 1])
    )
    of_methods = [
        "asked",
        "validity",
        "cost",
        "cost of attempts",
        "extra cost",
        "extra cost sd",
        "pairs",
        "survives",
    ]
    out = {
        name: table[name].to_numpy(np.float64).reshape(len(known), len(EPSILONS))
        for name in of_methods
    }
    out |= {"accuracy": study.accuracy.mean(1), "attacked": study.attacked.mean(1)}
    out |= {"accuracy sd": study.accuracy.std(1), "attacked sd": study.attacked.std(1)}
    out["validity sd"] = np.array(
        [[found_by_seed.std(ddof=0).get((m, e), np.nan) for e in EPSILONS] for m in known]
    )
    out |= {"noise": np.stack([study.under_noise(name, sd=NOISE, draws=DRAWS) for name in known])}
    out["validity, twice the budget"] = (
        twice["validity"].to_numpy(np.float64).reshape(len(known), -1)
    )
    out["nearby"], out["nearby, all rows"] = nearby(models, X)
    crossing = study.cross_validity("SCFE")
    solved = [
        [hf.AdversarialModels.name(e) for e in EPSILONS].index(name) for name in crossing.names
    ]
    out["crossing"] = np.full((len(EPSILONS), len(EPSILONS)), np.nan)
    out["crossing"][np.ix_(solved, solved)] = crossing.matrix
    out["slope"] = slopes(models, X)
    out["recommended"] = np.array(study.recommended())
    return out | by_seed(study)


def by_seed(study: hf.Tradeoff) -> Arrays:
    """What claims are decided by, of each seed: (epsilons, seeds), of methods (methods, epsilons,
    seeds), and of the bounds of SCFE (epsilons, seeds, figures)."""
    keys = ["method", "epsilon", "seed"]
    costs = {key: one.set_index("row")["cost"] for key, one in study.rows().groupby(keys)}
    steps = {key: one.set_index("row") for key, one in study.bounds().groupby(keys)}
    shape = len(study.epsilon), study.seeds
    rise = np.full((len(study.methods), *shape), np.nan)
    spread = rise.copy()
    noise = np.full(shape, np.nan)
    judged = np.zeros((*shape, 3))
    for i, s in itertools.product(*map(range, shape)):
        e = study.epsilon[i]
        for m, name in enumerate(study.methods):
            more = _more_expensive(costs, (name, e, s), (name, study.epsilon[0], s))
            if len(more):
                rise[m, i, s] = more.mean()
                spread[m, i, s] = more.std(ddof=0)
            if i and name == "SCFE" and (name, e, s) in steps:
                judged[i, s] = broken_bounds(more, steps[name, e, s])
        answers = study.answers["SCFE"][i][s]
        if answers.found.any():
            model = study.hardened.model(e, s)
            noise[i, s] = invalidated(model, answers, NOISE, DRAWS, s).mean()
    return {
        "attacked by seed": study.attacked,
        "extra cost by seed": rise,
        "extra cost sd by seed": spread,
        "noise by seed": noise,
        "judged": judged,
    }


def _more_expensive(costs: dict[Any, Any], hard: Any, plain: Any) -> "pd.Series[float]":
    """By how much the answer of each row is farther on a hardened model, where both answer."""
    if hard not in costs or plain not in costs:  # a model that refuses nobody
        return pd.Series(dtype=float)
    return (costs[hard] - costs[plain]).dropna()


def broken_bounds(more: "pd.Series[float]", steps: pd.DataFrame) -> tuple[int, int, int]:
    """How many answers have a bound, and how many differ by more than it, corrected and as
    printed.

    Args:
        more: by how much the answer of each row is farther.
        steps: columns `bound` and `paper`, by row.
    """
    bounds = steps.reindex(more.index).dropna(subset=["bound", "paper"])
    apart = more[bounds.index].abs()
    corrected = (apart > bounds["bound"] * (1 + SLACK)).sum()
    printed = (apart > bounds["paper"] * (1 + SLACK)).sum()
    return len(bounds), int(corrected), int(printed)


def neighbourhood(task: Split, epochs: int, seed: int) -> Arrays:
    """The neighbours of one row in the plane, and to which of them the network of each epsilon
    grants the other outcome.

    The row is the first that the most epsilons refuse it.

    Paper: krishna2024 Figure 8.
    """
    models = hardened(task, (2 * task.width,), epochs, 1, seed, epsilon=EPSILONS)
    row = int(refused(models, task.test_X).sum((0, 1)).argmax())
    found = nearby_rows(models, task.test_X, row, neighbours=NEIGHBOURS)
    per_epsilon = found[["a", "b", "granted"]].to_numpy(np.float64).reshape(len(EPSILONS), -1, 3)
    # (2, rows) and (epsilons, rows)
    return {"place": per_epsilon[0, :, :2].T, "granted": per_epsilon[:, :, 2]}


def refused(models: hf.AdversarialModels, X: pd.DataFrame) -> Array:
    """(epsilons, seeds, n) does the model refuse the row what is wanted?"""
    names = np.array(models.bank.classes, dtype=object)
    given = names[models.bank.scores(X).argmax(2).numpy()].reshape(
        len(models.epsilon), models.seeds, len(X)
    )
    return given != models.wanted_classes(X)


def nearby(models: hf.AdversarialModels, X: pd.DataFrame) -> tuple[Array, Array]:
    """Twice (epsilons,): share of the points around a row that get what is wanted, over the rows
    that the model refuses, and over all."""
    share = granted_nearby(models, X, radius=NEAR)
    of_refused = [
        s[r].mean() if r.any() else np.nan for s, r in zip(share, refused(models, X), strict=True)
    ]
    return np.array(of_refused), share.mean((1, 2))


def slopes(models: hf.AdversarialModels, X: pd.DataFrame) -> Array:
    """(epsilons,) mean length of the score's gradient."""
    out = list[float]()
    x = models.schema.encode(X)
    for group in models.bank.groups:
        assert group.networks is not None
        m = len(group)
        g = group.networks.ascent(x.expand(m, -1, -1), torch.zeros(m, len(x), dtype=torch.int64))
        out.append(float(g.double().square().sum(2).sqrt().mean()))
    return np.array(out)


def sweep(task: Split, epochs: int, rows: int, seed: int) -> Arrays:
    """Validity and the difference of costs at the largest epsilon for deeper and for wider
    networks: (shapes, methods, epsilons, figures)."""
    d = task.width
    shapes = {"depth": [(2 * d,) * k for k in DEPTHS], "width": [(d * k, d * k) for k in WIDTHS]}
    known = {name: method for name, method in methods().items() if name in SWEPT}
    done = dict[tuple[int, ...], Array]()
    for hidden in {hidden for each in shapes.values() for hidden in each}:
        models = hardened(task, hidden, epochs, 2, seed, epsilon=(0.0, max(EPSILONS)))
        table = hf.tradeoff(models, task.test_X.iloc[:rows], known, seed=seed).table()
        done[hidden] = table[[*FIGURES]].to_numpy(np.float64).reshape(len(known), 2, len(FIGURES))
    return {kind: np.stack([done[hidden] for hidden in each]) for kind, each in shapes.items()}
