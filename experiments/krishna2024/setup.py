"""The parts of `krishna2024`: data, budgets, and what is measured on each dataset."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from experiments.cells import Arrays
from experiments.krishna2024.neighbourhood import granted_nearby, nearby_rows
from holdfast import datasets as data
from holdfast._core.rows import row_norm
from holdfast.evaluation.bounds import (
    decoder_lipschitz,
    lemma1,
    lemma2,
    sampled_lipschitz,
    scfe_step,
    step_length,
    theorem1,
    theorem1_by_drift,
    theorem2,
    theorem3,
    theorem4,
    theorem5,
)
from holdfast.evaluation.tradeoff import FORMS, tradeoff
from holdfast.explainer import Explainer
from holdfast.methods._autoencoder import TableAutoencoder, autoencoder
from holdfast.methods.cchvae import CCHVAE, Trace, retrace
from holdfast.methods.descent import Descent
from holdfast.methods.growing_spheres import GrowingSpheres
from holdfast.methods.roar import ROAR
from holdfast.nn.ntk import NTK, kernel
from holdfast.nn.stack import Stack
from holdfast.retraining.recipe import Recipe
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema
from holdfast.training.adversarial import EPSILONS, AdversarialModels, train_adversarial
from holdfast.training.ntk import train_ntk

BATCH, LR = 256, 1e-3
LAM, SCORE = 0.1, 1.0  # of SCFE
LAMS = (0.01, 0.1, 1.0)  # of the bounds
GD_ETA, GD_STEPS = 0.1, 500  # plain gradient descent, for Lemma 1
NTK_ROWS, BETA = 2000, 0.1
HARDER = (0.1, 0.2, 0.3)  # epsilons of the bounds
MILD = (0.02, 0.05)  # and of those for C-CHVAE, which finds nothing on many harder models
KINDS = {"logistic regression": 0, "network": 2}  # how many times as wide as the rows the hidden layer is
DEPTHS, WIDTHS = (1, 2, 3, 4), (1, 2, 4, 8)
NOISE, DRAWS = 0.1, 1000  # standard deviation: a variance of 0.01
NEAR, NEIGHBOURS = 0.5, 150  # radius of a neighbourhood; rows in its picture
SCFE_STEPS = 50
SHOWN = 100  # rows in the picture of the bounds
EDUCATION = (
    "Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad", "Some-college",
    "Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate",
)  # fmt: skip


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


# ---- data


@dataclass(frozen=True)
class Task:
    """Rows with all columns between 0 and 1 and free to change, as the paper's theory has them."""

    X: pd.DataFrame
    y: "pd.Series[Any]"  # 1: what people want
    test_X: pd.DataFrame
    test_y: "pd.Series[Any]"
    schema: Schema

    @property
    def width(self) -> int:
        return self.X.shape[1]


def prepare(name: str, seed: int = 0) -> Task:
    """One-hot (one column for two levels) and min-max; a fifth of each class for the test, in random order."""
    loaded = cast(data.Dataset, data.load(name))
    X = binarised(loaded.X) if name == "adult" else loaded.X
    schema = Schema.infer(X, scaling="minmax")
    x = schema.encode(X, torch.float64)
    low, high = x.amin(0), x.amax(0)
    columns = [f.name if f.width == 1 else f"{f.name}: {f.levels[i]}" for f in schema.features for i in range(f.width)]
    frame = pd.DataFrame(((x - low) / (high - low).clamp_min(1e-12)).numpy(), columns=columns)
    frame = frame.drop(columns=[f"{f.name}: {f.levels[0]}" for f in schema.features if f.width == 2])
    y = pd.Series((loaded.y == loaded.favourable).astype(int).to_numpy())
    order = np.random.default_rng(seed).permutation(len(y))
    mine = torch.tensor(y.to_numpy()[order])
    seen = torch.where(mine == 1, mine.cumsum(0), (1 - mine).cumsum(0))  # how many of its class up to each row
    held = (seen <= 0.2 * torch.bincount(mine)[mine]).numpy()
    learn, test = order[~held], order[held]
    free = Schema(tuple(Feature(str(c), seen=(0.0, 1.0)) for c in frame.columns))
    return Task(frame.iloc[learn], y.iloc[learn], frame.iloc[test], y.iloc[test], free)


def binarised(X: pd.DataFrame) -> pd.DataFrame:
    """Adult with two values for each category and education as a rank, as recourse benchmarks have it."""
    texts = {name: X[name].astype(str).str.strip() for name in X.columns}
    out = X[["age", "capital-gain", "capital-loss", "hours-per-week"]].astype(float)
    yes = {
        "workclass": texts["workclass"] == "Private",
        "marital-status": texts["marital-status"].str.startswith("Married"),
        "occupation": texts["occupation"].isin(["Exec-managerial", "Prof-specialty"]),
        "relationship": texts["relationship"] == "Husband",
        "race": texts["race"] == "White",
        "sex": texts["sex"] == "Male",
        "native-country": texts["native-country"] == "United-States",
    }
    rank = texts["education"].map({name: float(i + 1) for i, name in enumerate(EDUCATION)})
    return out.assign(education=rank, **{name: flags.astype(float) for name, flags in yes.items()})


# ---- curves


def methods(net: TableAutoencoder | None = None, budget: int = 1) -> dict[str, Explainer]:
    """The paper's four, each with a budget that is the same for every epsilon, or a multiple of it."""
    steps = SCFE_STEPS * budget
    return {
        "SCFE": Descent.scfe(lam=LAM, score=SCORE, steps=steps),
        "C-CHVAE": CCHVAE(step=0.1, rings=40 * budget, samples=100, autoencoder=net),
        "Growing Spheres": GrowingSpheres.carla(width=0.1, rings=20 * budget, samples=200),
        "ROAR": ROAR(samples=1000, steps=500 * budget),
        "SCFE, lambda 1": Descent.scfe(lam=1.0, score=SCORE, steps=steps),
    }


def latent_space(task: Task, seed: int) -> TableAutoencoder:
    """That of C-CHVAE: one for all models."""
    return autoencoder(task.X, task.schema, kind="vae", hidden=(64, 32), latent=8, beta=0.01, epochs=30, seed=seed)


def hardened(task: Task, hidden: tuple[int, ...], epochs: int, seeds: int, seed: int, **more: Any) -> AdversarialModels:
    recipe = Recipe(hidden=hidden, epochs=epochs, batch_size=BATCH, lr=LR)
    return train_adversarial(recipe, task.X, task.y, task.schema, seeds=seeds, seed=seed, **more)


def curves(task: Task, hidden: tuple[int, ...], epochs: int, seeds: int, rows: int, seed: int) -> Arrays:
    """Everything against epsilon: (methods, epsilons) and (epsilons,) values."""
    models = hardened(task, hidden, epochs, seeds, seed, epsilon=EPSILONS)
    asked = task.test_X.iloc[:rows]
    net = latent_space(task, seed)
    known = methods(net)
    study = tradeoff(models, asked, known, test=(task.test_X, task.test_y), seed=seed)
    table, bounds = study.table(), study.bounds()
    twice = tradeoff(models, asked, methods(net, 2), test=(task.test_X, task.test_y), seed=seed).table()
    by_seed = study.rows().groupby(["method", "epsilon", "seed"], sort=False)["found"].mean().groupby(level=[0, 1])
    out = {
        name: table[name].to_numpy(np.float64).reshape(len(known), len(EPSILONS))
        for name in ("asked", "validity", "cost", "cost of attempts", "dearer", "dearer sd", "pairs", "survives")
    }
    out |= {"accuracy": study.accuracy.mean(1), "attacked": study.attacked.mean(1)}
    out |= {"accuracy sd": study.accuracy.std(1), "attacked sd": study.attacked.std(1)}
    out["validity sd"] = np.array([[by_seed.std(ddof=0).get((m, e), np.nan) for e in EPSILONS] for m in known])
    out |= {"noise": np.stack([study.under_noise(name, sd=NOISE, draws=DRAWS) for name in known])}
    out["validity, twice the budget"] = twice["validity"].to_numpy(np.float64).reshape(len(known), -1)
    out["nearby"], out["nearby, all rows"] = nearby(models, asked)
    crossing = study.crossing("SCFE")
    at = [[AdversarialModels.name(e) for e in EPSILONS].index(name) for name in crossing.names]
    out["crossing"] = np.full((len(EPSILONS), len(EPSILONS)), np.nan)
    out["crossing"][np.ix_(at, at)] = crossing.matrix
    out["slope"] = slopes(models, asked)
    out["recommended"] = np.array(study.recommended())
    out["bounds"] = np.array([len(bounds), bounds["violated"].sum(), bounds["paper violated"].sum()])
    return out


def neighbourhood(task: Task, epochs: int, seed: int) -> Arrays:
    """The neighbours of one row in the plane, and whom of them the network of each epsilon grants the other outcome.

    The row is the first that the most epsilons refuse it.
    """
    models = hardened(task, (2 * task.width,), epochs, 1, seed, epsilon=EPSILONS)
    row = int(refused(models, task.test_X).sum((0, 1)).argmax())
    found = nearby_rows(models, task.test_X, row, neighbours=NEIGHBOURS)
    per_epsilon = found[["a", "b", "granted"]].to_numpy(np.float64).reshape(len(EPSILONS), -1, 3)
    return {"place": per_epsilon[0, :, :2].T, "granted": per_epsilon[:, :, 2]}  # (2, rows) and (epsilons, rows)


def refused(models: AdversarialModels, X: pd.DataFrame) -> np.ndarray[Any, Any]:
    """(epsilons, seeds, n) does the model not give the row what is wanted?"""
    names = np.array(models.bank.classes, dtype=object)
    said = names[models.bank.scores(X).argmax(2).numpy()].reshape(len(models.epsilon), models.seeds, len(X))
    return said != models.wanted_classes(X)


def nearby(models: AdversarialModels, X: pd.DataFrame) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Twice (epsilons,): share of the points around a row that get what is wanted, over the rows that the model
    refuses, and over all."""
    share = granted_nearby(models, X, radius=NEAR)
    of_refused = [s[r].mean() if r.any() else np.nan for s, r in zip(share, refused(models, X), strict=True)]
    return np.array(of_refused), share.mean((1, 2))


def slopes(models: AdversarialModels, X: pd.DataFrame) -> np.ndarray[Any, Any]:
    """(epsilons,) mean length of the score's gradient."""
    out, x = list[float](), models.schema.encode(X)
    for group in models.bank.groups:
        assert group.networks is not None
        m = len(group)
        g = group.networks.ascent(x.expand(m, -1, -1), torch.zeros(m, len(x), dtype=torch.int64))
        out.append(float(g.double().square().sum(2).sqrt().mean()))
    return np.array(out)


# ---- bounds


def linear_bounds(task: Task, seed: int) -> Arrays:
    """Lemma 1, Theorems 1 and 4 on linear models trained by plain gradient descent from one start.

    Two scores are trained, of which only the difference counts: its step is twice that of each.
    """
    recipe = Recipe(
        hidden=(), epochs=GD_STEPS, batch_size=len(task.X), lr=GD_ETA / 2, optimizer="sgd", attack_box=False
    )
    models = train_adversarial(recipe, task.X, task.y, task.schema, epsilon=(0.0, *HARDER), seed=seed)
    weights = [cast(Stack, group.networks).layers[0] for group in models.bank.groups]
    w = torch.stack([(w[0, :, 1] - w[0, :, 0]).double() for w, _ in weights])  # (epsilons, d)
    b = torch.stack([(b[0, 0, 1] - b[0, 0, 0]).double() for _, b in weights])
    x = task.schema.encode(task.test_X, torch.float64)
    ones = torch.ones(len(task.X), 1, dtype=torch.float64)
    learnt = torch.cat([task.schema.encode(task.X, torch.float64), ones], 1)
    score = x @ w.T + b  # (n, epsilons)
    side = torch.where(score[:, :1] > 0, -1.0, 1.0).double()  # (n, 1) towards the class that the plain model denies
    f, length = side * score, (x.square().sum(1) + 1).sqrt()
    out, shown = list[list[float]](), list[Tensor]()
    for i, e in enumerate(HARDER, 1):
        drift = lemma1(learnt, eta=GD_ETA, steps=GD_STEPS, epsilon=e).value
        moved = torch.cat([w[i] - w[0], (b[i] - b[0])[None]])
        both = (f[:, 0] <= 0) & (f[:, i] <= 0)
        a, a_r = (row_norm(w[j][None], 2)[0] for j in (0, i))
        for lam in LAMS:
            m, m_r = SCORE - f[both, 0], SCORE - f[both, i]
            apart = step_length(a_r, m_r, lam) - step_length(a, m, lam)
            known = theorem1(a.expand_as(m), a_r.expand_as(m), m, m_r, lam)
            unknown, printed = (theorem1_by_drift(a, m, length[both], drift, lam, form=form) for form in FORMS)
            s = side[both, 0]
            z, z_r = (x[both] + scfe_step(s[:, None] * w[j], r, lam) for j, r in ((0, m), (i, m_r)))
            got, crossed, got_r = (s * (rows @ w[j] + b[j]) for rows, j in ((z, 0), (z_r, 0), (z_r, i)))
            claim = theorem4(got, crossed, got_r, row_norm(z_r, 2), drift)
            if lam == LAM:
                shown.append(torch.stack([apart[:SHOWN], known.value[:SHOWN]], 1))
            out.append(
                [
                    e,
                    lam,
                    len(m),
                    float(moved.square().sum().sqrt()),
                    float(drift),
                    float(a),
                    _mean(known.violations(apart)),
                    _mean(unknown.violations(apart)),
                    _mean(printed.vacuous),
                    _mean(_naive(a, drift, lam) < apart.abs()),
                    _mean(claim.condition),
                    _mean(claim.conclusion[claim.condition]),
                    _mean(apart),
                    _mean(known.value),
                    _mean(known.tightness(apart)),
                    _mean(got > 0),
                    _mean(got_r > 0),
                ]
            )
    return {"rows": np.array(out)} | _shown(shown)


LINEAR = (
    "epsilon", "lam", "rows", "drift", "Lemma 1", "|w_NR|", "B1 violated", "B1' violated", "printed vacuous",
    "printed violated", "Theorem 4 condition", "Theorem 4 conclusion", "difference", "B1", "tightness",
    "validity, plain", "validity, hardened",
)  # fmt: skip


def _shown(parts: list[Tensor]) -> Arrays:
    """For the picture of each hardened model, (rows, 2): differences and bounds."""
    return {f"shown {e:g}": part.double().numpy() for e, part in zip(HARDER, parts, strict=True)}


def _naive(a: Tensor, drift: Tensor, lam: float) -> Tensor:
    """The printed Theorem 1 with its outer absolute value, whatever the drift."""
    return (lam * (2 * a + drift) / (a * (a - drift))).abs()


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if values.numel() else float("nan")


def ntk_bounds(task: Task, seed: int) -> Arrays:
    """Lemma 2, Theorems 2 and 5 on infinitely wide networks."""
    nets = list[NTK]()
    for e in (0.0, *HARDER):
        model = train_ntk(task.X, task.y, task.schema, beta=BETA, epsilon=e, rows=NTK_ROWS, append_one=False, seed=seed)
        nets.append(cast(Any, model).module)
    x = task.schema.encode(task.test_X, torch.float64)
    score, slope = zip(*[(net(x)[:, 0], net.gradient(x)) for net in nets], strict=True)
    side = torch.where(score[0] > 0, -1.0, 1.0).double()
    f = [side * s for s in score]
    grams = [kernel(net.X, net.X) for net in nets]
    y = (grams[0] @ nets[0].w + BETA * nets[0].w).sign()  # the labels that w was solved for
    out, shown = list[list[float]](), list[Tensor]()
    for i, e in enumerate(HARDER, 1):
        both = (f[0] <= 0) & (f[i] <= 0)
        a, a_r = (row_norm(slope[j][both], 2) for j in (0, i))
        drift = lemma2(grams[0], grams[i], BETA, y).value
        moved = (nets[0].w - nets[i].w).square().sum().sqrt()
        for lam in LAMS:
            m, m_r = SCORE - f[0][both], SCORE - f[i][both]
            apart = step_length(a_r, m_r, lam) - step_length(a, m, lam)
            true, printed = (theorem2(a, a_r, m, m_r, lam, form=form) for form in FORMS)
            s = side[both, None]
            z, z_r = (x[both] + scfe_step(s * slope[j][both], r, lam) for j, r in ((0, m), (i, m_r)))
            k, k_r = (s * kernel(rows, net.X) for rows, net in ((z, nets[0]), (z_r, nets[i])))
            claim = theorem5(k, k_r, nets[0].w, nets[i].w, drift)
            if lam == LAM:
                shown.append(torch.stack([apart[:SHOWN], true.value[:SHOWN]], 1))
            out.append(
                [
                    e, lam, len(m), float(moved), float(drift), _mean(true.violations(apart)),
                    _mean(printed.violations(apart)), _mean(claim.condition),
                    _mean(claim.conclusion[claim.condition]), _mean(apart),
                    _mean(true.value),
                    _mean(true.tightness(apart)),
                ]
            )  # fmt: skip
    return {"rows": np.array(out)} | _shown(shown)


WIDE = (
    "epsilon", "lam", "rows", "drift", "Lemma 2", "B2 violated", "printed violated", "Theorem 5 condition",
    "Theorem 5 conclusion", "difference", "B2", "tightness",
)  # fmt: skip


def vae_bounds(task: Task, epochs: int, rows: int, seed: int) -> Arrays:
    """Theorem 3 on the answers of C-CHVAE, decoded and not yet brought into the range of the data."""
    net = latent_space(task, seed)
    product, method = decoder_lipschitz(net.decoder), cast(CCHVAE, methods(net)["C-CHVAE"])
    out = list[list[float]]()
    for kind, hidden in enumerate(((), (2 * task.width,))):
        models = hardened(task, hidden, epochs, 1, seed, epsilon=(0.0, *MILD, *HARDER))
        found = tradeoff(models, task.test_X.iloc[:rows], {"C-CHVAE": method}, seed=seed).answers["C-CHVAE"]
        traces = list[Trace]()
        for e, (cfs,) in zip(models.epsilon, found, strict=True):
            model = models.model(e)
            traces.append(retrace(method.fit(model, task.X), model, cfs))
        plain = traces[0]
        sampled = sampled_lipschitz(net.decoder, plain.start)
        for e, trace in zip(models.epsilon[1:], traces[1:], strict=True):
            both = trace.radius.isfinite() & plain.radius.isfinite()
            apart = row_norm(net.decode(trace.z[both]) - net.decode(plain.z[both]), 2).double()
            radii = plain.radius[both].double(), trace.radius[both].double()
            true, low = theorem3(product, *radii), theorem3(sampled, *radii)
            figures = [_mean(v) for v in (apart, true.value, true.tightness(apart))]
            counts = [_mean(bound.violations(apart)) for bound in (true, low)]
            out.append([float(kind), e, float(both.sum()), product, sampled, *counts, *figures])
    return {"rows": np.array(out)}


VAE = (
    "kind", "epsilon", "rows", "L, product of norms", "L, sampled from below", "violated", "violated with sampled L",
    "distance", "bound", "tightness",
)  # fmt: skip


# ---- architectures

SWEPT = ("SCFE", "Growing Spheres", "SCFE, lambda 1")
FIGURES = ("validity", "dearer", "cost")


def sweep(task: Task, epochs: int, rows: int, seed: int) -> Arrays:
    """Validity and the difference of costs at the largest epsilon for deeper and for wider networks: (shapes, methods,
    epsilons, figures)."""
    d = task.width
    shapes = {"depth": [(2 * d,) * k for k in DEPTHS], "width": [(d * k, d * k) for k in WIDTHS]}
    known = {name: method for name, method in methods().items() if name in SWEPT}
    done = dict[tuple[int, ...], np.ndarray[Any, Any]]()
    for hidden in {hidden for each in shapes.values() for hidden in each}:
        models = hardened(task, hidden, epochs, 2, seed, epsilon=(0.0, max(EPSILONS)))
        table = tradeoff(models, task.test_X.iloc[:rows], known, seed=seed).table()
        done[hidden] = table[[*FIGURES]].to_numpy(np.float64).reshape(len(known), 2, len(FIGURES))
    return {kind: np.stack([done[hidden] for hidden in each]) for kind, each in shapes.items()}
