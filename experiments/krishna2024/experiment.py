"""Krishna, Agarwal and Lakkaraju, "On the Trade-offs between Adversarial Robustness and Actionable Explanations".

The paper prints no tables; what it says of its figures is eight claims. Each is checked on every dataset, for logistic
regression and for a network of one hidden layer twice as wide as the rows. Columns are between 0 and 1 and all of them
may change; for each row the outcome is wanted that the plain model does not give it.
"""

from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from experiments.cells import Arrays, Cells, Job
from experiments.krishna2024.claims import CLAIMS, numbers, tally, verdicts
from experiments.krishna2024.setup import (
    HARDER,
    KINDS,
    LINEAR,
    MILD,
    SETTINGS,
    VAE,
    WIDE,
    curves,
    linear_bounds,
    methods,
    neighbourhood,
    ntk_bounds,
    prepare,
    sweep,
    vae_bounds,
)
from holdfast import __version__
from holdfast.render.charts.shift import validity_heatmap
from holdfast.render.charts.tradeoff import bounds_chart, neighbourhood_chart, tradeoff_chart
from holdfast.training.adversarial import EPSILONS

__all__ = ["SETTINGS", "charts", "page", "run"]
MODELS = POOL = 5  # networks for each epsilon
QUICK, QUICK_MODELS = "german_credit", 2
WORKERS = 2  # processes
ROWS = 100  # test rows that are asked about
ATTACK = 0.1


def run(name: str, cells: Cells, *, models: int = MODELS, rows: int | None = None, seed: int = 0) -> dict[str, Any]:
    """One dataset: curves, bounds, architectures, and the verdict on every claim."""
    setting, task = SETTINGS[name], prepare(name, seed)
    asked = min(rows or ROWS, ROWS)
    cells = replace(cells, settings={"seed": seed, "version": __version__})
    about = [setting.epochs, models, asked, [repr(m) for m in methods().values()]]
    half = -(-asked // 2)
    jobs: list[Job] = [(f"{name}/sweep", partial(sweep, task, setting.epochs, half, seed), asked)]
    for kind, times in KINDS.items():
        hidden = (times * task.width,) * bool(times)
        jobs.append(
            (f"{name}/curves {kind}", partial(curves, task, hidden, setting.epochs, models, asked, seed), about)
        )
    jobs += [
        (f"{name}/ntk bounds", partial(ntk_bounds, task, seed), None),
        (f"{name}/vae bounds", partial(vae_bounds, task, setting.epochs, asked, seed), [asked, *MILD]),
        (f"{name}/neighbourhood", partial(neighbourhood, task, setting.epochs, seed), setting.epochs),
        (f"{name}/linear bounds", partial(linear_bounds, task, seed), None),
    ]
    shapes, *curve, wide, latent, around, linear = cells.together(jobs, WORKERS)
    found = dict(zip(KINDS, curve, strict=True))
    result = {
        "paper": "krishna2024",
        "dataset": name,
        "title": setting.title,
        "epsilon": list(EPSILONS),
        "methods": list(methods()),
        "curves": {kind: {key: _plain(value) for key, value in cell.items()} for kind, cell in found.items()},
        "place": _plain(around["place"]),
        "granted": ["".join("01"[int(v)] for v in line) for line in around["granted"]],
        "shown": {f"{label} {e:g}": _plain(cell[f"shown {e:g}"]) for label, cell in
                  (("linear", linear), ("NTK", wide)) for e in HARDER},
        "linear bounds": _lines(linear, LINEAR),
        "ntk bounds": _lines(wide, WIDE),
        "vae bounds": _lines(latent, VAE),
        "sweep": {key: _plain(value) for key, value in shapes.items()},
        "rows": {"train": len(task.X), "test": len(task.test_X), "asked": asked},
        "columns": task.width,
        "epochs": setting.epochs,
        "models": models,
        "seed": seed,
        "seconds": {
            label: round(float(cell["seconds"]), 1)
            for label, cell in {**found, "linear bounds": linear, "ntk bounds": wide, "vae bounds": latent,
                                "sweep": shapes, "neighbourhood": around}.items()
        },
        "version": __version__,
    }  # fmt: skip
    return result | {"claims": verdicts(result)}


def _plain(values: Any) -> Any:
    """Lists with None where there is no number."""
    if np.ndim(values):
        return [_plain(part) for part in values]
    return round(float(values), 5) if np.isfinite(values) else None


def _lines(cell: Arrays, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [dict(zip(names, line, strict=True)) for line in _plain(cell["rows"])]


# ---- pages


def page(results: list[dict[str, Any]]) -> str:
    """Verdicts first, then the figures."""
    lines = ["# Trade-offs between adversarial robustness and actionable explanations (Krishna et al.)", ""]
    lines += ["The paper has figures and no tables: trends can be compared, sizes cannot.", "", "## Claims", ""]
    lines += ["| claim | holds in |", "|---|---|", *(f"| {text} | {share} |" for text, share in tally(results).items())]
    lines += ["", "| claim | dataset | model | holds | measured |", "|---|---|---|---|---|"]
    for number, text in CLAIMS.items():
        for r in results:
            for line in r["claims"]:
                if line["claim"] == number:
                    word = {True: "yes", False: "**no**", None: "open"}[line["holds"]]
                    what = f"{number}. {text}"
                    lines.append(f"| {what} | {r['title']} | {line['model']} | {word} | {line['statistic']} |")
    for r in results:
        for kind, curve in r["curves"].items():
            lines += ["", f"## {r['title']}: {kind}", ""]
            lines += [f"| | {' | '.join(f'{e:g}' for e in r['epsilon'])} |", "|---|" + "---|" * len(r["epsilon"])]
            for key in ("accuracy", "accuracy sd", "attacked", "attacked sd", "slope", "nearby", "nearby, all rows"):
                lines.append(f"| {ROW_NAMES[key]} | {_cells(curve[key])} |")
            for key in (
                "validity",
                "validity sd",
                "validity, twice the budget",
                "cost",
                "cost of attempts",
                "dearer",
                "survives",
                "noise",
            ):
                for name, values in zip(r["methods"], curve[key], strict=True):
                    lines.append(f"| {ROW_NAMES[key]}: {name} | {_cells(values)} |")
            lines += ["", f"Recommended epsilon: {curve['recommended']:g}."]
        for what in ("linear bounds", "ntk bounds", "vae bounds"):
            names = list(r[what][0])
            lines += ["", f"### {r['title']}: {what}", "", f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
            lines += [f"| {_cells(line.values())} |" for line in r[what]]
    lines += ["", (files("experiments.krishna2024") / "notes.md").read_text(encoding="utf-8").rstrip()]
    names = [f"{r['dataset']}-{part}" for r in results for part in PICTURES]
    lines += ["", "## Pictures", "", *[f"![{name}]({name}.svg)" for name in names]]
    return "\n".join([*lines, ""])


PICTURES = ("logistic", "network", "bounds", "crossing", "around")


ROW_NAMES = {
    "accuracy": "accuracy",
    "accuracy sd": "its sd over the networks",
    "attacked": f"accuracy under PGD of {ATTACK:g}",
    "attacked sd": "its sd over the networks",
    "slope": "length of the gradient",
    "nearby": "neighbours with the other outcome",
    "nearby, all rows": "the same, with rows that have it already",
    "validity": "validity",
    "validity sd": "sd of validity over the networks",
    "validity, twice the budget": "validity, twice the budget",
    "cost": "cost (l2)",
    "cost of attempts": "cost with attempts that fail",
    "dearer": "dearer",
    "survives": "survives retraining",
    "noise": "invalidated by noise",
}


def _cells(values: Any) -> str:
    return " | ".join("-" if v is None else f"{v:.3g}" for v in values)


def charts(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each dataset the curves of both kinds of models, differences of costs beside their bounds, and for networks
    answers on models of other epsilons, and what is granted around one row."""
    out = dict[str, Any]()
    for r in results:
        for kind, curve in r["curves"].items():
            parts = list[pd.DataFrame]()
            for i, name in enumerate(r["methods"]):
                columns = {key: numbers(curve[key])[i] for key in ("validity", "cost", "dearer", "survives")}
                columns |= {"accuracy": numbers(curve["accuracy"]), "attacked accuracy": numbers(curve["attacked"])}
                parts.append(pd.DataFrame({"method": name, "epsilon": r["epsilon"], **columns}))
            name = f"{r['dataset']}-{kind.split()[0]}"
            out[name] = tradeoff_chart(pd.concat(parts, ignore_index=True), curve["recommended"], ATTACK)
        curve = r["curves"]["network"]
        boxes = [pd.DataFrame(rows, columns=["difference", "bound"]).assign(case=c) for c, rows in r["shown"].items()]
        names = [f"{e:g}" for e in r["epsilon"]]
        a, b = numbers(r["place"])
        around = [
            pd.DataFrame(
                {"a": a, "b": b, "epsilon": e, "granted": np.array([*marks]) == "1", "asked": np.arange(len(a)) == 0}
            )
            for e, marks in zip(r["epsilon"], r["granted"], strict=True)
        ]
        out[f"{r['dataset']}-bounds"] = bounds_chart(pd.concat(boxes, ignore_index=True))
        out[f"{r['dataset']}-crossing"] = validity_heatmap(numbers(curve["crossing"]), names)
        out[f"{r['dataset']}-around"] = neighbourhood_chart(pd.concat(around, ignore_index=True))
    return out
