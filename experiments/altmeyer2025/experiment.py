"""Altmeyer et al., "Counterfactual Training: Teaching Models Plausible and Actionable Explanations", 2025.

By how many percent counterfactuals of networks that were taught with their own counterfactuals are closer to data, and
cheaper where a feature is protected, than those of the same networks trained plainly.
"""

from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np

from experiments.altmeyer2025.findings import checked
from experiments.altmeyer2025.grid import GENERATORS, ITERATIONS, MOVED, TUNED, WEIGHTS, linear_theory, placements
from experiments.altmeyer2025.grid import jobs as grid_jobs
from experiments.altmeyer2025.pictures import charts, names, stored
from experiments.altmeyer2025.reported import ACCURACY, EARLIER, LATER
from experiments.altmeyer2025.setup import (
    ATTACKED,
    CURVE,
    EPOCHS,
    GUARDED,
    PLANES,
    SETTINGS,
    TOLD,
    UNHARMED,
    VARIANTS,
    main_table,
    prepare,
)
from experiments.cells import Arrays, Cells, Job
from holdfast import __version__
from holdfast.evaluation.compare import ATTACKS, ENERGIES, FREE, HELD, reduction

__all__ = ["SETTINGS", "charts", "page", "run"]
MODELS = POOL = 5  # seeds
QUICK, QUICK_MODELS = "moons", 1
ROUNDS = 20  # for each seed
WORKERS = 2  # processes
STACKED = 3  # seeds that train together
LABELS = [*VARIANTS, GUARDED]
COLUMNS = {
    "implausibility": (FREE, "implausibility", "full"),
    "MMD": (FREE, "mmd", "full"),
    "cost, protected": (HELD, "cost", GUARDED),
    "cost": (FREE, "cost", "full"),
}
Array = np.ndarray[Any, Any]


def run(name: str, cells: Cells, *, models: int = MODELS, rows: int | None = None, seed: int = 0) -> dict[str, Any]:
    """One dataset: reductions of the taught networks, and of those with a part of the objective; in the plane also what
    settings of the training do."""
    setting = SETTINGS[name]
    setting = replace(setting, asked=min(rows or setting.asked, setting.asked))
    cells, task = replace(cells, settings={"seed": seed, "version": __version__}), prepare(name, seed)
    jobs, mains = list[Job](), list[str]()
    for first in range(0, models, STACKED):
        many = min(STACKED, models - first)
        make = partial(main_table, task, setting, EPOCHS, many, ROUNDS, seed + first)
        mains.append(f"{name}/main {first}")
        jobs.append((mains[-1], make, [repr(setting), many, ROUNDS, EPOCHS]))
    if name in PLANES:
        jobs += grid_jobs(name, task, setting, models, seed)
    if name == "linearly_separable":
        jobs.append((f"{name}/placements", partial(placements, task, setting, models, seed), [models, EPOCHS]))
    if name == "overlapping":
        jobs.append((f"{name}/theory", partial(linear_theory, task, seed), None))
    found = dict(zip([job[0].split("/", 1)[1] for job in jobs], cells.together(jobs, WORKERS), strict=True))
    cell = joined([found[main.split("/", 1)[1]] for main in mains])
    result = {
        "paper": "altmeyer2025",
        "dataset": name,
        "title": setting.title,
        "reported": {"later": LATER[name], "earlier": EARLIER[name], "accuracy": ACCURACY[name]},
        "measured": {column: measured(cell, *where) for column, where in COLUMNS.items()},
        "ablation": {
            label: {column: measured(cell, case, metric, label) for column, (case, metric, _) in COLUMNS.items()}
            for label in LABELS[1:]
        },
        "validity": {case: _named(cell[f"{case}: validity"].mean((1, 2))) for case in (FREE, HELD)},
        "accuracy": _named(cell["curves"][:, :, CURVE.index(UNHARMED)].mean(0)),
        "attacked": attacked(cell["curves"].mean(0)),
        "attacks": _plain(ATTACKS),
        "by energy": {"energy": list(ENERGIES)} | _named(cell["by energy"].mean(0)),
        "sensitivity": _named(cell["sensitivity"].mean(0)),
        "history": {label: dict(zip(TOLD, _plain(values.T), strict=True)) for label, values in
                    zip(LABELS, cell["history"], strict=True)},
        "pictured": stored(cell["pictured"]),
        "l_reg": setting.reg,
        "rows": {"train": len(task.X), "test": len(task.test_X), "asked": setting.asked},
        "rounds": ROUNDS * models,
        "models": models,
        "epochs": EPOCHS,
        "seed": seed,
        "seconds": {label: round(float(part["seconds"]), 1) for label, part in found.items()},
        "version": __version__,
    }  # fmt: skip
    if name in PLANES:
        result["grid"] = grid(found)
    if name == "linearly_separable":
        moved = found["placements"]
        result["placements"] = [
            {"middle": list(move), **_less(part, 1)} for move, part in zip(MOVED, _each(moved), strict=True)
        ]
    if name == "overlapping":
        result["theory"] = dict(zip(("plain", "protected"), _plain(found["theory"]["ratio"]), strict=True))
    return result | {"statements": checked(result)}


def joined(parts: list[Arrays]) -> Arrays:
    """The cells of some seeds each as one."""
    figures = [key for key in parts[0] if key.startswith((FREE, HELD))]  # (models, seeds, rounds)
    out = {key: np.concatenate([part[key] for part in parts], 1) for key in figures}
    out |= {key: np.concatenate([part[key] for part in parts]) for key in ("curves", "sensitivity", "by energy")}
    many = [len(part["curves"]) for part in parts]
    out["history"] = np.average([part["history"] for part in parts], axis=0, weights=many)
    return out | {"pictured": parts[0]["pictured"]}


def measured(cell: Arrays, case: str, metric: str, label: str) -> dict[str, Any]:
    """Percent less than the plain networks of the same seeds, over all rounds."""
    values = cell[f"{case}: {metric}"]  # (models, seeds, rounds)
    ours, plain = (values[LABELS.index(name)].ravel() for name in (label, "plain"))
    found = reduction(ours, plain)
    by_seed = [reduction(a, b)["of means"] for a, b in zip(values[LABELS.index(label)], values[0], strict=True)]
    return {key: _known(value) for key, value in found.items()} | {
        "significant": bool(found["significant"]),
        "taught": _known(np.nanmean(ours)),
        "plain": _known(np.nanmean(plain)),
        "by seed": _plain(by_seed),
    }


def grid(found: dict[str, Arrays]) -> dict[str, Any]:
    """What settings of the training do to implausibility: percent less than the plain networks of the same seeds."""
    lines = list[dict[str, Any]]()
    for kind in GENERATORS:
        for steps in ITERATIONS:
            cell = found[f"{kind} {steps}"]
            for i in range(1, len(cell["implausibility"])):
                energy = WEIGHTS[i - 1] if kind == "ECCCo" else 0.0
                lines.append({"generator": kind, "steps": steps, "energy": energy, **_less(cell, i)})
    tuned = [(key, value) for key, values in TUNED.items() for value in values]
    settings = [
        {"setting": key, "value": value, **_less(found["settings"], i)} for i, (key, value) in enumerate(tuned, 1)
    ]
    return {"generators": lines, "settings": settings} | {key: _less(found[key], 1) for key in ("burn-in", "few")}


def _less(cell: Arrays, i: int) -> dict[str, Any]:
    ours, plain = cell["implausibility"][i], cell["implausibility"][0]
    out = {"reduction": _known(100 * (1 - np.nanmean(ours) / np.nanmean(plain)))}
    out |= {key: _known(cell[key][i].mean()) for key in ("validity", "accuracy", "size") if key in cell}
    return out


def _each(cell: Arrays) -> list[Arrays]:
    return [{key: cell[key][i] for key in ("implausibility", "validity", "accuracy")} for i in range(len(MOVED))]


def attacked(curves: Array) -> dict[str, dict[str, list[float]]]:
    """Model -> attack -> one accuracy for each of `ATTACKS`, of the accuracies (models, entries of `CURVE`)."""
    places = {attack: [CURVE.index((attack, float(e))) for e in ATTACKS] for attack in ATTACKED}
    return {
        label: {attack: _plain(row[at]) for attack, at in places.items()}
        for label, row in zip(LABELS, curves, strict=True)
    }


def _named(values: Array) -> dict[str, Any]:
    return dict(zip(LABELS, _plain(values), strict=True))


def _known(value: Any, digits: int = 4) -> float | None:
    return round(float(value), digits) if np.isfinite(value) else None


def _plain(values: Any, digits: int = 4) -> Any:
    """Lists with None where there is no number."""
    return [_plain(part, digits) for part in values] if np.ndim(values) else _known(values, digits)


# ---- pages

OF_MEANS = "Percent less implausibility, of means; rounds one by one are not kept for this table."


def page(results: list[dict[str, Any]]) -> str:
    """Measured beside reported."""
    lines = ["# Counterfactual Training (Altmeyer et al. 2025)", ""]
    lines += [
        "Percent less than the plain network. *of means*: of the means over all rounds that a network solves; *by "
        "rounds*: mean of the percentages over the rounds that both networks solve, with their standard deviation, and "
        "how many rounds these are; * the difference is sure at 99 %. Reported: later version (the same star) / "
        "earlier version.",
        "",
    ]
    for column in list(COLUMNS)[:3]:
        lines += [f"## {column.capitalize()}", ""]
        lines.append("| data | of means | by rounds | rounds both solve | reported | taught | plain |")
        lines.append("|---|---|---|---|---|---|---|")
        i = list(COLUMNS).index(column)
        for r in results:
            found, later, earlier = r["measured"][column], r["reported"]["later"][i], r["reported"]["earlier"][i]
            told = f"{later[0]:.2f}{_star(later[2])} / {earlier[0]:.2f}"
            cells = [f"{_number(found['of means'])}{_star(found['significant'])}"]
            cells += [f"{_number(found['reduction'])} +- {_number(found['se'])}", _solved(found, r), told]
            cells += [f"{found[key]:.4g}" if found[key] is not None else "-" for key in ("taught", "plain")]
            lines.append(f"| {r['title']} | {' | '.join(cells)} |")
        lines.append("")
    lines += ["## Statements", "", "| statement | data | holds | measured |", "|---|---|---|---|"]
    told = [(line, r) for r in results for line in r["statements"]]
    for statement in dict.fromkeys(line["statement"] for line, _ in told):
        for line, r in told:
            if line["statement"] == statement:
                word = "yes" if line["holds"] else "**no**"
                lines.append(f"| {statement} | {r['title']} | {word} | {line['statistic']} |")
    lines += ["", *_about_networks(results), "", *_ablation(results), "", *_energies(results)]
    for r in results:
        if "grid" in r:
            lines += ["", *_grid(r)]
        if "placements" in r:
            lines += [
                "",
                "## Linearly separable blobs elsewhere",
                "",
                OF_MEANS,
                "",
                "| middle | reduction |",
                "|---|---|",
            ]
            lines += [f"| {tuple(p['middle'])} | {_number(p['reduction'])} |" for p in r["placements"]]
    lines += ["", (files("experiments.altmeyer2025") / "notes.md").read_text(encoding="utf-8").rstrip()]
    lines += ["", "## Pictures", "", *[f"![{name}]({name}.svg)" for name in names(results)]]
    return "\n".join([*lines, ""])


def brief(r: dict[str, Any]) -> list[str]:
    """A row of the shortest table: percent less implausibility, discrepancy, and cost with a protected feature, of
    means and by rounds, each beside what the later version of the paper reports; accuracy, plain and taught."""
    cells = [r["title"]]
    for i, column in enumerate(list(COLUMNS)[:3]):
        found, later = r["measured"][column], r["reported"]["later"][i]
        cells.append(f"{_both(found, 1)} ({later[0]:.1f}{_star(later[2])})")
    return [*cells, f"{r['accuracy']['plain']:.3f}", f"{r['accuracy']['full']:.3f}"]


def _about_networks(results: list[dict[str, Any]]) -> list[str]:
    at = _nearest(results[0], 0.03)
    head = ["data", "accuracy, plain", "taught", "reported", f"FGSM {ATTACKS[at]:.3f}, plain", "taught",
            "reported (0.03)", "validity, plain", "taught", "leans on the protected, plain",
            "taught and protected"]  # fmt: skip
    lines, less = ["## Networks", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)], list[str]()
    for r in results:
        told, hit = r["reported"]["accuracy"], r["attacked"]
        if hit["full"]["FGSM"][at] < hit["plain"]["FGSM"][at]:
            less.append(r["title"])
        cells = [r["title"], f"{r['accuracy']['plain']:.3f}", f"{r['accuracy']['full']:.3f}", f"{told[1]} / {told[0]}"]
        cells += [f"{hit['plain']['FGSM'][at]:.3f}", f"{hit['full']['FGSM'][at]:.3f}", f"{told[3]} / {told[2]}"]
        cells += [f"{r['validity'][FREE][key]:.3f}" for key in ("plain", "full")]
        cells += ["{:.3g} [{:.3g}, {:.3g}]".format(*r["sensitivity"][key]) for key in ("plain", GUARDED)]
        lines.append(f"| {' | '.join(cells)} |")
    words = f"keeps less under this attack than the plain one on {len(less)} of {len(results)} datasets"
    return [*lines, "", f"The taught network {words}{': ' if less else ''}{', '.join(less)}."]


def _nearest(r: dict[str, Any], epsilon: float) -> int:
    """The place of the attack whose radius is nearest to this."""
    return min(range(len(r["attacks"])), key=lambda i: abs(r["attacks"][i] - epsilon))


def _solved(found: dict[str, Any], r: dict[str, Any]) -> str:
    return f"{found['rounds']:.0f} of {r['rounds']}"


def _both(found: dict[str, Any], digits: int = 2) -> str:
    """A reduction of means, and by the rounds that both networks solve."""
    of_means = f"{_number(found['of means'], digits)}{_star(found['significant'])}"
    return f"{of_means} / {_number(found['reduction'], digits)}"


def _ablation(results: list[dict[str, Any]]) -> list[str]:
    lines = ["## Parts of the objective", "", "Percent less implausibility, of means / by rounds.", ""]
    lines += [f"| data | {' | '.join(LABELS[1:])} |", "|---|" + "---|" * len(LABELS[1:])]
    for r in results:
        cells = [_both(r["ablation"][label]["implausibility"]) for label in LABELS[1:]]
        lines.append(f"| {r['title']} | {' | '.join(cells)} |")
    return lines


def _energies(results: list[dict[str, Any]]) -> list[str]:
    lines = ["## By the weight of the energy in the evaluation", "", OF_MEANS, ""]
    lines += [f"| data | {' | '.join(f'{e:g}' for e in ENERGIES)} |", "|---|" + "---|" * len(ENERGIES)]
    for r in results:
        pairs = zip(r["by energy"]["full"], r["by energy"]["plain"], strict=True)
        cells = [_number(None if a is None or b is None else 100 * (1 - a / b)) for a, b in pairs]
        lines.append(f"| {r['title']} | {' | '.join(cells)} |")
    return lines


def _grid(r: dict[str, Any]) -> list[str]:
    lines = [f"## Grid search: {r['title']}", "", OF_MEANS, ""]
    lines += [f"| generator | energy | {' | '.join(f'{s} steps' for s in ITERATIONS)} |", "|---|---|---|---|---|"]
    cells = {(c["generator"], c["energy"], c["steps"]): c for c in r["grid"]["generators"]}
    for kind, energy in dict.fromkeys(key[:2] for key in cells):
        values = " | ".join(_number(cells[kind, energy, steps]["reduction"]) for steps in ITERATIONS)
        lines.append(f"| {kind} | {energy:g} | {values} |")
    lines += ["", "| setting | reduction | validity | accuracy | size of energies |", "|---|---|---|---|---|"]
    rows = [(f"{c['setting']} {c['value']:g}", c) for c in r["grid"]["settings"]]
    rows += [("burn-in 0.5", r["grid"]["burn-in"]), ("100 counterfactuals", r["grid"]["few"])]
    for label, c in rows:
        cells_ = " | ".join(_number(c[key], 3) for key in ("validity", "accuracy", "size"))
        lines.append(f"| {label} | {_number(c['reduction'])} | {cells_} |")
    return lines


def _star(sure: bool | None) -> str:
    return "*" if sure else ""


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
