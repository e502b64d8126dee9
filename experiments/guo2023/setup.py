"""Guo et al. 2023: datasets in subsets, networks and methods, and what is measured about them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import holdfast as hf
from experiments.data import load_table
from experiments.experiment import Figures
from experiments.parts import Arrays
from experiments.tables import mean_sd, plain
from holdfast._core.checks import untyped
from holdfast.datasets import Dataset
from holdfast.methods.amortized._generator_loop import GeneratorKind, GeneratorStack, fit_generators
from holdfast.methods.amortized._joint_classifier import as_model
from holdfast.methods.amortized._joint_loop import JointStack, fit_joint
from holdfast.methods.amortized._joint_settings import JointSettings
from holdfast.nn.stack_derivatives import Weights
from holdfast.schema.encoding import Encoding

# Ours: the generator is told the class to reach and trains on answers as they are handed out, and
# the attack retrains more gently. The other two are the paper's network, with the principled and
# the authors' way with categories.
OURS = "RoCourseNet"
KEPT = "RoCourseNet, categories kept"
AUTHORS = "RoCourseNet, authors' softmax"
UNATTACKED = "CounterNet, trained as ours"
# How pages name them, so that nobody takes our training for the paper's.
TITLES = {
    OURS: "RoCourseNet (ours)",
    UNATTACKED: "RoCourseNet (ours), without the attack",
    KEPT: "RoCourseNet (paper's algorithm)",
    AUTHORS: "RoCourseNet (authors' softmax)",
}
SIMULATED = ("covariate_shift", "label_shift")


@dataclass(frozen=True)
class Setting:
    """One dataset as the paper runs it (Tables 4 and 5), and our own settings."""

    how: JointSettings
    eta: float
    # where our own training differs, besides that the generator is told the class
    ours: dict[str, Any]
    attack: hf.Shift  # ours
    repeats: int  # seeds of each network
    rows: int  # test rows of a subset that methods which search are asked about
    rbr_rows: int
    vae_samples: int = 50
    vae_epochs: int | None = None
    generators: hf.Shift | None = None  # the attack on generators; None: ours
    # of the training rows, where networks are trained for curves; 0: none are
    curve_share: float = 1.0
    # epochs of some networks trained under attack, where the paper's take long
    fewer: int | None = None


def _sgd(eta: float) -> hf.Shift:
    return hf.Shift(eta=eta, optimizer="sgd")


# What our training does and the paper's does not.
OUR_WAYS = ("condition_on_target", "clip_to_data", "hard_categories")


def _net(encoder: int, predictor: int, generator: int, **settings: Any) -> JointSettings:
    """The paper's network and training."""
    return JointSettings(
        encoder=(encoder, 10),
        predictor=(predictor,),
        generator=(generator,),
        **dict.fromkeys(OUR_WAYS, False),
        **settings,
    )


SMOOTH: dict[str, Any] = {"loss": "entropy", "smooth_labels": True, "l2": 3.0, "l3": 0.01}
SHORT: dict[str, Any] = {"l2": 1.0, "l3": 0.01, "dropout": 0.1, "epochs": 20}
# Less of what takes long where there are many rows.
OF_MANY_ROWS: dict[str, Any] = {
    "vae_samples": 5,
    "vae_epochs": 10,
    "curve_share": 0.0,
    "fewer": 20,
}
SETTINGS = {
    "german_credit": Setting(
        _net(100, 20, 20, batch_size=256, l2=1.0),
        0.03,
        SMOOTH,
        _sgd(0.3),
        repeats=10,
        rows=250,
        rbr_rows=250,
        generators=_sgd(0.1),
    ),
    "student": Setting(
        _net(50, 10, 50, lr=0.01), 0.01, SMOOTH, _sgd(0.03), repeats=10, rows=106, rbr_rows=106
    ),
    "covariate_shift": Setting(
        _net(50, 10, 10, lr=0.01), 0.03, {}, hf.Shift(eta=0.01), 5, 250, 250
    ),
    "label_shift": Setting(_net(50, 10, 10, lr=0.01), 0.03, {}, hf.Shift(eta=0.01), 5, 250, 250),
    "sba_loan": Setting(
        _net(200, 10, 10),
        0.03,
        SHORT,
        _sgd(0.3),
        repeats=1,
        rows=500,
        rbr_rows=200,
        **OF_MANY_ROWS,
    ),
}


# ---- data


@dataclass(frozen=True)
class Task:
    """Encoded rows of k subsets, all columns free."""

    names: tuple[str, ...]
    x: Tensor  # (n, d)
    y: Tensor  # (n,)
    train: list[Tensor]  # k lists of rows
    test: list[Tensor]
    schema: hf.Schema
    encoding: Encoding

    def __len__(self) -> int:
        return len(self.names)


def subsets(name: str) -> dict[str, Dataset]:
    """The tables; they share a schema."""
    if name == "german_credit":
        return {
            kind: load_table(f"german_rocoursenet_{kind}") for kind in ("original", "corrected")
        }
    if name in SIMULATED:
        return {part: load_table(name).part(part) for part in ("before", "after")}
    loaded = load_table(name, rocoursenet=True)
    assert loaded.parts is not None
    return {str(part): loaded.part(part) for part in sorted(loaded.parts.unique())}


def prepare(name: str, share: float = 1.0) -> Task:
    """A test part of the last quarter of each subset, in the order of the file; of the rest, the
    first `share`."""
    tables = subsets(name)
    schema = next(iter(tables.values())).schema
    xs = [schema.encode(part.X) for part in tables.values()]
    classes = sorted(next(iter(tables.values())).y.unique())
    ys = [torch.tensor((part.y == classes[1]).to_numpy()).long() for part in tables.values()]
    train = list[Tensor]()
    test = list[Tensor]()
    starts = [0, *accumulate(len(x) for x in xs)]
    for x, start in zip(xs, starts, strict=False):
        cut = round(0.75 * len(x))
        train.append(start + torch.arange(max(1, round(share * cut))))
        test.append(start + torch.arange(cut, len(x)))
    x = torch.cat(xs)
    # all columns from 0 to 1, over all subsets
    x = (x - x.amin(0)) / (x.amax(0) - x.amin(0)).clamp_min(1e-12)
    free = _free(schema)
    return Task(tuple(tables), x, torch.cat(ys), train, test, free, free.encoding())


def _free(schema: hf.Schema) -> hf.Schema:
    """Encoded numbers as they are, categories with their levels; nothing fixed, no bounds but the
    data's range."""
    out = list[hf.Feature]()
    for f in schema.features:
        if f.is_category:
            out.append(
                hf.Feature(f.name, kind="category", levels=tuple(str(i) for i in range(f.width)))
            )
        else:
            out.append(hf.Feature(f.name, seen=(0.0, 1.0)))
    return hf.Schema(tuple(out))


# ---- what is measured


def farthest(task: Task) -> int:
    """How far two rows inside the range of the data can be apart: a number by 1, another category
    by 2."""
    return sum(2 if feature.is_category else 1 for feature in task.schema.features)


def harden(raw: Tensor, task: Task, *, clamp: bool = True) -> Tensor:
    """N at test: the largest level of each category; numbers clamped to the data's range, or as
    they are."""
    hard = task.encoding.hard(raw)
    return hard.clamp(task.encoding.seen_low, task.encoding.seen_high) if clamp else hard


# models (m,), rows (n, d) -> does each predict class 1? (m, n)
Scores = Callable[[Tensor, Tensor], Tensor]
Answers = Callable[[int, Tensor], Tensor]  # model, rows (n, d) -> raw answers (n, d)


def crossed(
    task: Task, repeats: int, scores: Scores, answers: Answers, rows: int | None = None
) -> Arrays:
    """(repeats, k, k) V with numbers clamped and as they are, and (repeats, k) costs and seconds
    per answer."""
    k = len(task)
    out = {name: np.zeros((repeats, k, k)) for name in ("V", "V free")}
    out |= {name: np.zeros((repeats, k)) for name in ("cost", "cost free", "per answer")}
    for r in range(repeats):
        group = torch.arange(r * k, (r + 1) * k)
        for i in range(k):
            x = task.x[task.test[i]][:rows]
            start = time.perf_counter()
            raw = answers(r * k + i, x)
            out["per answer"][r, i] = (time.perf_counter() - start) / len(x)
            now = scores(group[i : i + 1], x)[0]
            for name, clamp in (("", True), (" free", False)):
                cf = harden(raw, task, clamp=clamp)
                out[f"V{name}"][r, i] = (scores(group, cf) != now).double().mean(1).numpy()
                out[f"cost{name}"][r, i] = float((cf - x).abs().sum(1).mean())
    return out


def prediction(task: Task, repeats: int, logits: Callable[[int, Tensor], Tensor]) -> Arrays:
    """(repeats, k) accuracy and area under the curve on each test part."""
    k = len(task)
    out = {name: np.zeros((repeats, k)) for name in ("accuracy", "auc")}
    for m in range(repeats * k):
        rows = task.test[m % k]
        z = logits(m, task.x[rows])
        y = task.y[rows]
        out["accuracy"][m // k, m % k] = float(((z > 0) == (y > 0)).double().mean())
        out["auc"][m // k, m % k] = untyped("sklearn.metrics").roc_auc_score(y.numpy(), z.numpy())
    return out


# ---- networks with a predictor of their own


def of_stack(stack: JointStack) -> tuple[Scores, Answers, Callable[[int, Tensor], Tensor]]:
    """How a stack predicts and answers."""

    @cache
    def pick(i: int) -> JointStack:
        return stack.pick(torch.tensor([i]))

    def scores(models: Tensor, x: Tensor) -> Tensor:
        return stack.pick(models).scores(x).squeeze(2) > 0

    def answers(i: int, x: Tensor) -> Tensor:
        return pick(i).answers(x[None])[0]

    return scores, answers, lambda i, x: pick(i).scores(x[None])[0, :, 0]


def stacked(how: JointSettings, task: Task, weights: Arrays) -> JointStack:
    """The networks that a cell holds."""
    stack = JointStack.of(how, task.x.shape[1], 2, len(weights["theta"]))
    stack.theta.flat[:] = torch.tensor(weights["theta"])
    stack.theta_g.flat[:] = torch.tensor(weights["theta_g"])
    return stack


def trained(how: JointSettings, task: Task, repeats: int, seed: int) -> Arrays:
    """Weights, processor seconds of training, and everything that is measured about the
    networks."""
    seeds = [seed + r for r in range(repeats) for _ in task.names]
    start = time.process_time()
    stack = fit_joint(how, task.x, task.y, task.encoding, tables=task.train * repeats, seeds=seeds)
    took = time.process_time() - start
    scores, answers, logits = of_stack(stack)
    out = {
        "theta": stack.theta.flat.numpy(),
        "theta_g": stack.theta_g.flat.numpy(),
        "training": np.array(took),
    }
    out |= prediction(task, repeats, logits)
    return out | (crossed(task, repeats, scores, answers) if how.l2 else {})


def joint_methods(setting: Setting) -> dict[str, JointSettings]:
    """CounterNet, RoCourseNet in both ways of treating categories, its ablation, and ours with and
    without attack."""
    shift = hf.Shift(eta=setting.eta)
    return {
        "CounterNet": setting.how,
        KEPT: replace(fewer(setting), shift=shift),
        AUTHORS: replace(setting.how, shift=replace(shift, categories="softmax")),
        "RoCourseNet-Random": replace(fewer(setting), shift=replace(shift, ascend=False)),
        UNATTACKED: ours(setting, None),
        OURS: ours(setting, setting.attack),
    }


def fewer(setting: Setting) -> JointSettings:
    """The paper's network, with fewer epochs where said so."""
    return replace(setting.how, epochs=setting.fewer or setting.how.epochs)


def ours(setting: Setting, shift: hf.Shift | None) -> JointSettings:
    """The paper's layers and epochs, our training."""
    differs: dict[str, Any] = dict.fromkeys(OUR_WAYS, True)
    return replace(setting.how, shift=shift, **differs | setting.ours)


# ---- methods for base networks


def generators(setting: Setting) -> dict[str, GeneratorKind]:
    """Table 3: each plain and made robust."""
    how = fewer(setting)
    shift = setting.generators or setting.attack
    hidden = (*how.encoder, *how.generator)
    loop = {"epochs": how.epochs, "batch_size": how.batch_size, "lr": how.lr}
    direct = hf.CFModel(hidden=hidden, dropout=how.dropout, l2=how.l2, l3=how.l3, **cast(Any, loop))
    loop["epochs"] = setting.vae_epochs or how.epochs
    variational = hf.VAECF(samples=setting.vae_samples, **cast(Any, loop))
    return {
        "CF Model": direct,
        "Robust CF Model": replace(direct, shift=shift),
        "VAE-CF": variational,
        "Robust VAE-CF": replace(variational, shift=shift),
    }


def generated(
    kind: GeneratorKind,
    base: JointStack,
    task: Task,
    repeats: int,
    seed: int,
) -> Arrays:
    """Train generators for the base networks and cross their answers."""
    seeds = [seed + r for r in range(repeats) for _ in task.names]
    start = time.process_time()
    made = fit_generators(
        kind,
        base.net,
        base.theta,
        task.x,
        task.y,
        task.encoding,
        tables=task.train * repeats,
        seeds=seeds,
    )
    took = time.process_time() - start
    scores, _, logits = of_stack(base)

    def answers(i: int, x: Tensor) -> Tensor:
        t = (logits(i, x) <= 0).to(x.dtype)[None, :, None]
        thetas = [Weights(theta.flat[i : i + 1], theta.sizes) for theta in made.thetas]
        noise = None
        if isinstance(kind, hf.VAECF):
            drawn = torch.Generator().manual_seed(seed * 1000 + i)
            noise = torch.randn(1, len(x), kind.latent, generator=drawn)
        return GeneratorStack(made.kind, made.classes, made.nets, thetas).answers(
            x[None], t, task.encoding, noise
        )[0]

    return {"training": np.array(took)} | crossed(task, repeats, scores, answers)


def searches() -> dict[str, Callable[[], hf.Explainer]]:
    """Methods that search anew for every row."""
    return {
        "VanillaCF": lambda: hf.Descent.vanilla(),
        "ROAR-LIME": lambda: hf.ROAR.lime(),
        "RBR": lambda: hf.RBR(),
        "VanillaCF-Random": lambda: hf.Descent.vanilla(),
    }


def searched(
    label: str,
    make: Callable[[], hf.Explainer],
    how: JointSettings,
    base: JointStack,
    task: Task,
    repeats: int,
    rows: int,
) -> Arrays:
    """Ask a method about the first test rows of each subset."""
    scores, _, _ = of_stack(base)
    noisy = label.endswith("Random")
    k = len(task)

    def answers(i: int, x: Tensor) -> Tensor:
        model, _ = as_model(base, i, how.dropout, task.schema, [0, 1])
        if noisy:  # from a row that was moved at random; categories stay
            drawn = torch.rand(x.shape, generator=torch.Generator().manual_seed(i)) * 0.2 - 0.1
            moved = torch.where(
                task.encoding.one_hot,
                x,
                (x + drawn).clamp(task.encoding.seen_low, task.encoding.seen_high),
            )
        else:
            moved = x
        wanted = 1 - scores(torch.tensor([i]), x)[0].long()
        method = make().fit(model, task.schema.decode(task.x[task.train[i % k]]))
        return method.explain(model, task.schema.decode(moved), wanted).x_cf.float()

    return crossed(task, repeats, scores, answers, rows)


def figures(cell: Arrays) -> Figures:
    """What Table 2 shows, over all repeats; and the matrix of the first."""
    v = cell["V"]
    k = cell["V"].shape[1]
    off = ~np.eye(k, dtype=bool)

    def table(suffix: str) -> Figures:
        valid = cell[f"V{suffix}"]
        return {
            "proximity": mean_sd(cell[f"cost{suffix}"], sample=True),
            "validity": mean_sd(valid[:, ~off]),
            "robust validity": mean_sd(valid[:, off]),
        }

    return table("") | {
        "next subset": mean_sd([m[i, i + 1] for m in v for i in range(k - 1)]),
        "numbers not clamped": table(" free"),
        "robust validity by repeat": [round(float(m[off].mean()), 4) for m in v],
        "matrix": plain(v[0]),
    }
