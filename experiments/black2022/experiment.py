"""Black, Wang, Fredrikson and Datta, "Consistent Counterfactuals for Deep Models", ICLR 2022: Tables 1 to 4.

One network per dataset, every method on every row of the test part, then 100 networks with one training row
left out and 100 with other initial weights. Invalidation: the share of answers that lose their class.
Rows are encoded first and every encoded column may change freely, as in the paper; the network, the radii and
the number of epochs are the paper's.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from experiments.black2022.reported import R2, REPORTED
from experiments.cells import Arrays, Cells
from holdfast import __version__
from holdfast import datasets as data
from holdfast.explainer import Explainer
from holdfast.methods.latent_search import LatentSearch
from holdfast.methods.min_cost import MinCost
from holdfast.methods.min_epsilon_pgd import MinEpsilonPGD
from holdfast.methods.prototype import Prototype
from holdfast.methods.stable_neighbor_search import StableNeighborSearch
from holdfast.models.base import Model
from holdfast.render.charts.audit import invalidation_bars
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.recipe import Recipe
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema

FAMILIES = {"LOO": "leave_one_out", "RS": "seed"}
MODELS_PER_CELL = 25
MODELS = POOL = 100  # rows that are left out in turn
QUICK, QUICK_MODELS = "german_credit", 20
STARTS = ("Min l1", "Min l2", "Min eps PGD")
# Where the authors' own start leaves rows without an answer, and how they ran it: rounds, steps, step size by norm.
CLIPPED, ROUNDS, STEPS, STEP = ("german_credit", "seizure"), 9, 100, {1: 0.05, 2: 0.01}
SEARCH_MODELS, SEARCH_SEED = 10, 10_000  # the bank that guides the search


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
    "warfarin": Setting("warfarin", "numbers", 1096, (100,), 100, 128, 0.5, low="low"),
    "heloc": Setting(
        "heloc_full", "minmax", 2615, (100, 32), 50, 128, 2.1, ("MaxDelq2PublicRecLast12M", "MaxDelqEver")
    ),
    "taiwan_credit": Setting("taiwan_credit", "standard", 7500, (32, 16), 100, 512, 5.0, ("EDUCATION", "MARRIAGE")),
}


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
    low, high = float(frames[0].to_numpy().min()), float(frames[0].to_numpy().max())
    schema = Schema(tuple(Feature(name, seen=(low, high)) for name in names))
    y = whole.y.iloc[order[:cut]].reset_index(drop=True)
    pool = list(range(cut - POOL, cut))  # the rows that the paper moves from test to training
    truth = whole.y.iloc[order[cut:]].to_numpy()[:rows]
    classes = tuple(sorted(y.unique()))
    return Task(schema, frames[0], y, frames[1][:rows], classes, pool, truth, setting.low)


def methods(setting: Setting, search_bank: Callable[[], ModelBank | None]) -> dict[str, Callable[[], Explainer]]:
    """The paper's eight, with its settings; then what goes beyond it: the same search guided by a small bank."""
    eps = setting.eps_max
    starts: dict[str, Callable[[], Explainer]] = {
        "Min l1": lambda: MinCost(norm=1),
        "Min l2": lambda: MinCost(norm=2),
        "Min eps PGD": lambda: MinEpsilonPGD(radius=eps),
    }
    out = dict(starts)
    for name, make in starts.items():
        out[f"{name} + SNS"] = lambda make=make: StableNeighborSearch(start=make(), radius=0.8 * eps)
    out["Looveren"] = lambda: Prototype()
    out["Pawelczyk"] = lambda: LatentSearch(radius=setting.latent_radius, seed=2021)
    for name, make in starts.items():
        out[f"{name} + SNS with a bank"] = lambda make=make: StableNeighborSearch(start=make(), bank=search_bank())
    return out


def clipped_methods(name: str) -> dict[str, Callable[[], Explainer]]:
    """The smallest changes as the authors searched for them, clipped to [0, 1] whatever the range of the data."""
    if name not in CLIPPED:
        return {}
    radius, out = 0.8 * SETTINGS[name].eps_max, dict[str, Callable[[], Explainer]]()
    for norm, lr in STEP.items():
        start = partial(MinCost, cast(Any, norm), bisections=ROUNDS, steps=STEPS, lr=lr, legacy=True)
        out[f"Min l{norm}, clipped"] = start
        out[f"Min l{norm}, clipped + SNS"] = lambda start=start: StableNeighborSearch(start=start(), radius=radius)
    return out


def about_methods(name: str) -> dict[str, Any]:
    """Every method with all its settings, but without its bank: `all_settings` tell how that is made."""
    makes = methods(SETTINGS[name], lambda: None) | clipped_methods(name)
    plain = {label: make() for label, make in makes.items()}
    return {label: [repr(method), asdict(cast(Any, method))] for label, method in plain.items()}


def all_settings(setting: Setting, recipe: Recipe, rows: int | None, seed: int) -> dict[str, Any]:
    """What decides the contents of every cell of a dataset."""
    search = {"search_models": SEARCH_MODELS, "search_seed": SEARCH_SEED}
    run = {"rows": rows, "seed": seed, "pool": POOL, "version": __version__}
    return {**vars(setting), **search, **run, "recipe": recipe.to_dict()}


def run(name: str, cells: Cells, *, models: int = 100, rows: int | None = None, seed: int = 0) -> dict[str, Any]:
    """One dataset: everything of Tables 1 to 4, and how long it took."""
    setting = SETTINGS[name]
    recipe = Recipe(hidden=setting.hidden, epochs=setting.epochs, batch_size=setting.batch_size, adam_eps=1e-7)
    cells, about = replace(cells, settings=all_settings(setting, recipe, rows, seed)), about_methods(name)
    task = prepare(setting, rows, seed)

    def retrained(wanted: range, family: str, seed: int) -> ModelBank:
        return ModelBank.retrain(
            recipe, task.train, task.y, task.schema,
            families={family: wanted}, classes=task.classes, seed=seed, pool=task.pool,
        )  # fmt: skip

    @cache
    def base() -> Model:
        return recipe.fit(task.train, task.y, task.schema, classes=task.classes, seed=seed)

    @cache
    def search_bank() -> ModelBank:  # none of its models is among those that judge
        return retrained(range(SEARCH_MODELS), "seed", seed + SEARCH_SEED)

    answers = {
        label: cells.arrays(f"{name}/{label}", lambda make=make: answer(make(), base(), task), about[label])
        for label, make in (methods(setting, search_bank) | clipped_methods(name)).items()
    }
    accuracy = cells.arrays(f"{name}/accuracy", lambda: {"test": np.array(hit_rate(base(), task))})
    survived = dict[str, dict[str, np.ndarray[Any, Any]]]()
    retraining = 0.0
    for short, family in FAMILIES.items():
        parts = list[Arrays]()
        for at in range(0, models, MODELS_PER_CELL):
            wanted = range(at, min(at + MODELS_PER_CELL, models))

            def make(family: str = family, wanted: range = wanted) -> Arrays:
                bank = retrained(wanted, family, seed)
                return {label: kept(bank, a, task) for label, a in answers.items()}

            parts.append(cells.arrays(f"{name}/{short}-{wanted.start}-{wanted.stop}", make, about))
        retraining += sum(float(part["seconds"]) for part in parts)
        survived[short] = {label: np.concatenate([part[label] for part in parts]) for label in answers}
    finding = sum(float(a["seconds"]) for a in answers.values())
    theirs = {label: answers.pop(label) for label in clipped_methods(name)}  # beside the tables, not in them
    result = summary(name, answers, survived)
    if theirs:
        same = dict[str, Any]()
        for label, cell in theirs.items():
            own = label.replace(", clipped", "")
            same[own] = on_rows(answers[own], cell["found"], {short: kept[own] for short, kept in survived.items()})
        result["clipped"] = {
            "measured": summary(name, theirs, survived)["measured"],
            "ours, same rows": same,
            "ours, all rows": {own: {key: result["measured"][own][key] for key in row} for own, row in same.items()},
            "accuracy": float(accuracy["test"]),
            "rows": len(task.test),
            "models": dict.fromkeys(FAMILIES, models),
            "settings": {"rounds": ROUNDS, "steps": STEPS, "step": {f"l{norm}": lr for norm, lr in STEP.items()}},
        }
    return result | {
        "accuracy": float(accuracy["test"]),
        "columns": len(task.schema.features),
        "training_rows": len(task.train),
        "test_rows": len(task.test),
        "models": dict.fromkeys(FAMILIES, models),
        "search_models": SEARCH_MODELS,
        "scaling": setting.scaling,
        "seed": seed,
        "seconds": {"methods": round(finding, 1), "retraining and judging": round(retraining, 1)},
        "version": __version__,
    }


def hit_rate(model: Model, task: Task) -> float:
    return float((model.predict(task.test).to_numpy() == task.truth).mean())


def answer(method: Explainer, model: Model, task: Task) -> Arrays:
    """Any other class is asked for; with three classes, the other side of `low`."""
    X, start = task.test, time.perf_counter()
    method.fit(model, task.train)
    low = (model.predict(X) == task.low).to_numpy()
    x_cf, found = np.zeros(X.shape), np.zeros(len(X), bool)
    parts = [(slice(None), None)] if task.low is None else [(low, None), (~low, task.low)]
    for rows, target in parts:
        cfs = method.explain(model, X[rows], target)
        x_cf[rows], found[rows] = cfs.x_cf.double().numpy(), cfs.found
    took = np.array(time.perf_counter() - start)
    with model.eval_mode():
        side = task.side(model(torch.as_tensor(x_cf, dtype=model.dtype)))
    return {"x_cf": x_cf[found], "x": X.to_numpy()[found], "found": found, "side": side.numpy()[found], "took": took}


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
        by_family = {short: lost(kept[label]) for short, kept in survived.items()}  # (M,) each
        rates[label] = 1 - np.concatenate([kept[label] for kept in survived.values()]).mean(0)  # (n,)
        measured[label] = {
            "success": float(a["found"].mean()),
            **{f"IV {short}": spread(iv) for short, iv in by_family.items()},
            "l1": spread(np.abs(delta).sum(1)),
            "l2": spread(costs[label]),
            "seconds": round(float(a["took"]), 2),
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


def on_rows(
    answers: Arrays, rows: np.ndarray[Any, Any], survived: dict[str, np.ndarray[Any, Any]]
) -> dict[str, list[float]]:
    """Invalidation and cost of a method's answers to some rows (n,) only."""
    these = rows[answers["found"]]
    out = {f"IV {short}": spread(lost(kept[:, these])) for short, kept in survived.items()}
    return out | {"l2": spread(np.linalg.norm(answers["x_cf"] - answers["x"], axis=1)[these])}


def lost(kept: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(M, n) kept -> the share that each model invalidates; nothing if there is no answer."""
    return 1 - kept.mean(1) if kept.shape[1] else np.zeros(0)


def spread(values: np.ndarray[Any, Any]) -> list[float]:
    """[mean, standard deviation]"""
    return [round(float(values.mean()), 4), round(float(values.std()), 4)] if len(values) else []


def r_squared(costs: dict[str, Any], rates: dict[str, Any], labels: list[str]) -> float:
    """Of a line through (cost, invalidation) of every answer of these methods; 0 if there is no such line."""
    x, y = (np.concatenate([part[label] for label in labels]) for part in (costs, rates))
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return round(float(np.corrcoef(x, y)[0, 1] ** 2), 4)


# ---- pages

FIGURES = {
    "IV LOO": "Invalidation when one training row is left out",
    "IV RS": "Invalidation when the initial weights change",
    "l2": "Cost, l2",
    "l1": "Cost, l1",
    "success": "Share of rows with an answer",
}


def page(results: list[dict[str, Any]]) -> str:
    """Tables 1 to 4 as markdown: measured, and the paper's figure in brackets."""
    names = [r["dataset"] for r in results]
    lines = ["# Consistent Counterfactuals for Deep Models (Black et al., ICLR 2022)", ""]
    lines += ["Measured, and in brackets what the paper reports; mean ± standard deviation.", ""]
    for figure, title in FIGURES.items():
        lines += [f"## {title}", "", f"| method | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
        for label in results[0]["measured"]:
            cells = [_cell(r["measured"][label].get(figure), r["reported"].get(label, {}).get(figure)) for r in results]
            lines.append(f"| {label} | {' | '.join(cells)} |")
        lines.append("")
    lines += ["## Does a dearer answer hold better?", "", "R² of invalidation against l2 cost over all answers.", ""]
    lines += [f"| | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for key in results[0]["r2"]:
        values = [f"{r['r2'][key]:.2f}" for r in results]
        lines.append(f"| {key} | {' | '.join(values)} |")
    lines += ["", "## Means over datasets", "", "Rise: l2 cost above that of the start. Paper: its own rows.", ""]
    lines += ["| | LOO | RS | rise | times the start's cost |", "|---|---|---|---|---|"]
    for label, row in means(results).items():
        lines.append(f"| {label} | {row['LOO']:.4f} | {row['RS']:.4f} | {row['rise']:.3f} | {row['times']:.2f} |")
    lines += ["", "## What was run", ""]
    lines += [
        "| dataset | columns | training rows | test rows | models | test accuracy | seconds |",
        "|---|" + "---|" * 6,
    ]
    for r in results:
        models = " + ".join(str(m) for m in r["models"].values())
        facts = r["columns"], r["training_rows"], r["test_rows"], models, f"{r['accuracy']:.3f}"
        lines.append(f"| {r['dataset']} | {' | '.join(map(str, facts))} | {total(r):.0f} |")
    lines += _clipped([r for r in results if "clipped" in r])
    lines += ["", (files("experiments.black2022") / "notes.md").read_text(encoding="utf-8").rstrip()]
    lines += ["", "## Pictures", "", *[f"![{name}]({name}.svg)" for name in names]]
    return "\n".join([*lines, ""])


def _clipped(results: list[dict[str, Any]]) -> list[str]:
    """The authors' own start: which rows it answers, and what is lost of these answers and of ours to the same rows."""
    if not results:
        return []
    how = results[0]["clipped"]["settings"]
    steps = " and ".join(f"{step} ({norm})" for norm, step in how["step"].items())
    lines = [
        "",
        "## The authors' own start",
        "",
        f"`MinCost(legacy=True)`, which clips to [0, 1] as the authors' does: {how['rounds']} rounds of {how['steps']} "
        f"steps of {steps}. Share of rows with an answer; invalidation when the initial weights change and l2 cost, of "
        "its answers, of our own to the same rows, and of our own to all rows; in brackets what the paper reports.",
        "",
        "| dataset | method | success | invalidation | ours, same rows | ours, all rows | l2 | ours, same rows |",
        "|---|" + "---|" * 7,
    ]
    for r in results:
        found = r["clipped"]
        for label, same in found["ours, same rows"].items():
            start, plus, moved = label.partition(" + ")
            row, told = found["measured"][f"{start}, clipped{plus}{moved}"], r["reported"].get(label, {})
            cells = [_cell(row["success"], told.get("success")), _cell(row["IV RS"], told.get("IV RS"))]
            cells += [_cell(same["IV RS"], None), _cell(found["ours, all rows"][label]["IV RS"], None)]
            cells += [_cell(row["l2"], told.get("l2")), _cell(same["l2"], None)]
            lines.append(f"| {r['dataset']} | {label} | {' | '.join(cells)} |")
    run = [
        f"{r['dataset']} {r['clipped']['rows']} rows, {' + '.join(map(str, r['clipped']['models'].values()))} models, "
        f"test accuracy of the network {r['clipped']['accuracy']:.4f} (of the one in the tables {r['accuracy']:.4f})"
        for r in results
    ]
    alike = "All columns are of the same networks, which may have been trained anew after those of the tables above"
    return [*lines, "", f"What was run: {'; '.join(run)}. {alike}."]


def charts(results: list[dict[str, Any]]) -> dict[str, Any]:
    """One picture per dataset: what a retraining breaks, per method and family."""
    out = dict[str, Any]()
    for r in results:
        lines = list[dict[str, Any]]()
        for label, figures in r["measured"].items():
            for short in FAMILIES:
                if figures[f"IV {short}"]:
                    mean, sd = figures[f"IV {short}"]
                    low, high = max(0.0, mean - sd), min(1.0, mean + sd)
                    lines.append({"method": label, "family": short, "mean": mean, "low": low, "high": high})
        out[r["dataset"]] = invalidation_bars(pd.DataFrame(lines))
    return out


def total(result: dict[str, Any]) -> float:
    """Seconds that all cells of a dataset took, whenever they were made."""
    return sum(value for key, value in result["seconds"].items() if key != "this call")


def means(results: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Over datasets and starts: invalidation, and what the move costs, measured and as reported."""
    out = dict[str, dict[str, float]]()
    for title, source, suffix in (
        ("measured, + SNS", "measured", " + SNS"),
        ("measured, + SNS with a bank", "measured", " + SNS with a bank"),
        ("reported, + SNS", "reported", " + SNS"),
    ):
        rows = list[list[float]]()
        for r in results:
            for start in STARTS:
                moved, base = r[source].get(start + suffix), r[source].get(start)
                if moved and base and moved.get("l2") and base.get("l2"):
                    now, was = moved["l2"][0], base["l2"][0]
                    rows.append([moved["IV LOO"][0], moved["IV RS"][0], now - was, now / was])
        if rows:
            out[title] = dict(zip(("LOO", "RS", "rise", "times"), np.mean(rows, 0).tolist(), strict=True))
    return out


def _cell(measured: Any, reported: Any) -> str:
    def text(value: Any) -> str:
        if value is None or value == []:
            return "-"
        return f"{value[0]:.2f} ± {value[1]:.2f}" if isinstance(value, list) else f"{value:.2f}"

    return text(measured) if reported is None else f"{text(measured)} ({text(reported)})"
