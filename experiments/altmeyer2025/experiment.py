"""Altmeyer et al., "Counterfactual Training: Teaching Models Plausible and Actionable
Explanations", 2025.

By how many percent counterfactuals of networks taught with their own counterfactuals are closer to
data, and cheaper if a feature is protected, than those of the same networks trained
plainly.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from experiments.altmeyer2025 import grid, setup
from experiments.altmeyer2025.compare import ATTACKS, ENERGIES
from experiments.altmeyer2025.comparison import FREE, HELD, reduction
from experiments.altmeyer2025.findings import checked
from experiments.altmeyer2025.page import COLUMNS, page
from experiments.altmeyer2025.pictures import pictures, stored
from experiments.altmeyer2025.reported import ACCURACY, EARLIER, LATER
from experiments.experiment import Experiment, Figures, Run
from experiments.parts import Arrays, Job
from experiments.tables import known, plain

ROUNDS = 20  # for each seed
STACKED = 3  # seeds that train together
Array = np.ndarray[Any, Any]


def measure(run: Run[setup.Setting, setup.Task]) -> Figures:
    """One dataset: reductions of the taught networks, and of those with a part of the objective; in
    the plane also what settings of the training do.

    Paper: altmeyer2025 Later: ablation.
    """
    name = run.dataset
    task = run.task
    models = run.models
    seed = run.seed
    setting = replace(run.setting, rows=min(run.rows or run.setting.rows, run.setting.rows))
    jobs = list[Job]()
    for first in range(0, models, STACKED):
        many = min(STACKED, models - first)
        make = partial(setup.main_table, task, setting, setup.EPOCHS, many, ROUNDS, seed + first)
        jobs.append((f"main {first}", make, [repr(setting), many, ROUNDS, setup.EPOCHS]))
    mains = [job[0] for job in jobs]
    if name in setup.PLANES:
        jobs += grid.jobs(task, setting, models, seed)
    if name == "linearly_separable":
        jobs.append(
            (
                "placements",
                partial(grid.placements, task, setting, models, seed),
                [models, setup.EPOCHS],
            )
        )
    if name == "overlapping":
        jobs.append(("theory", partial(grid.linear_theory, task, seed), None))
    found = run.parts.together(jobs)
    cell = joined([found[main] for main in mains])
    histories = zip(setup.LABELS, cell["history"], strict=True)
    result = {
        "title": setting.title,
        "reported": {"later": LATER[name], "earlier": EARLIER[name], "accuracy": ACCURACY[name]},
        "measured": {column: measured(cell, *where) for column, where in COLUMNS.items()},
        "ablation": {
            label: {
                column: measured(cell, case, metric, label)
                for column, (case, metric, _) in COLUMNS.items()
            }
            for label in setup.LABELS[1:]
        },
        "validity": {case: _named(cell[f"{case}: validity"].mean((1, 2))) for case in (FREE, HELD)},
        "accuracy": _named(cell["curves"][:, :, setup.CURVE.index(setup.UNHARMED)].mean(0)),
        "attacked": attacked(cell["curves"].mean(0)),
        "attacks": plain(ATTACKS),
        "by energy": {"energy": list(ENERGIES)} | _named(cell["by energy"].mean(0)),
        "sensitivity": _named(cell["sensitivity"].mean(0)),
        "history": {
            label: dict(zip(setup.HISTORY, plain(values.T), strict=True))
            for label, values in histories
        },
        "pictured": stored(cell["pictured"]),
        "l_reg": setting.reg,
        "rows": {"train": len(task.X), "test": len(task.test_X), "asked": setting.rows},
        "rounds": ROUNDS * models,
        "models": models,
        "epochs": setup.EPOCHS,
    }
    if name in setup.PLANES:
        result["grid"] = reductions(found)
    if "placements" in found:
        result["placements"] = [
            {
                "middle": list(move),
                **_less({key: found["placements"][key][i] for key in grid.GRADED}, 1),
            }
            for i, move in enumerate(grid.MOVED)
        ]
    if "theory" in found:
        result["theory"] = dict(
            zip(("plain", "protected"), plain(found["theory"]["ratio"]), strict=True)
        )
    return result | {"statements": checked({"dataset": name, **result})}


def joined(parts: list[Arrays]) -> Arrays:
    """The cells of some seeds each as one."""
    figures = [key for key in parts[0] if key.startswith((FREE, HELD))]  # (models, seeds, rounds)
    out = {key: np.concatenate([part[key] for part in parts], 1) for key in figures}
    out |= {
        key: np.concatenate([part[key] for part in parts])
        for key in ("curves", "sensitivity", "by energy")
    }
    many = [len(part["curves"]) for part in parts]
    out["history"] = np.average([part["history"] for part in parts], axis=0, weights=many)
    return out | {"pictured": parts[0]["pictured"]}


def measured(cell: Arrays, case: str, metric: str, label: str) -> Figures:
    """Percent less than the plain networks of the same seeds, over all rounds."""
    values = cell[f"{case}: {metric}"]  # (models, seeds, rounds)
    taught = values[setup.LABELS.index(label)]
    untaught = values[setup.LABELS.index("plain")]
    found = reduction(taught.ravel(), untaught.ravel())
    return {key: known(value) for key, value in found.items()} | {
        "significant": bool(found["significant"]),
        "taught": known(np.nanmean(taught)),
        "plain": known(np.nanmean(untaught)),
        "by seed": plain(
            [reduction(a, b)["of means"] for a, b in zip(taught, untaught, strict=True)]
        ),
    }


def reductions(found: dict[str, Arrays]) -> Figures:
    """What settings of the training do to implausibility: percent less than the plain networks of
    the same seeds."""
    lines = list[Figures]()
    for kind in grid.GENERATORS:
        for steps in grid.ITERATIONS:
            cell = found[f"{kind} {steps}"]
            for i in range(1, len(cell["implausibility"])):
                energy = grid.WEIGHTS[i - 1] if kind == "ECCCo" else 0.0
                lines.append(
                    {"generator": kind, "steps": steps, "energy": energy, **_less(cell, i)}
                )
    tuned = [(key, value) for key, values in grid.TUNED.items() for value in values]
    settings = [
        {"setting": key, "value": value, **_less(found["settings"], i)}
        for i, (key, value) in enumerate(tuned, 1)
    ]
    return {"generators": lines, "settings": settings} | {
        key: _less(found[key], 1) for key in ("burn-in", "few")
    }


def _less(cell: Arrays, i: int) -> Figures:
    """Of the i-th networks, beside the plain ones, which are the first."""
    taught = cell["implausibility"][i]
    untaught = cell["implausibility"][0]
    out = {"reduction": known(100 * (1 - np.nanmean(taught) / np.nanmean(untaught)))}
    return out | {
        key: known(cell[key][i].mean()) for key in ("validity", "accuracy", "size") if key in cell
    }


def attacked(curves: Array) -> dict[str, dict[str, list[float]]]:
    """Model -> attack -> one accuracy for each of `ATTACKS`, of the accuracies (models, entries of
    `CURVE`)."""
    places = {
        attack: [setup.CURVE.index((attack, float(e))) for e in ATTACKS]
        for attack in setup.ATTACKED
    }
    return {
        label: {attack: plain(row[entries]) for attack, entries in places.items()}
        for label, row in zip(setup.LABELS, curves, strict=True)
    }


def _named(values: Array) -> Figures:
    return dict(zip(setup.LABELS, plain(values), strict=True))


EXPERIMENT = Experiment(
    name="altmeyer2025",
    title="Counterfactual Training (Altmeyer et al. 2025)",
    settings=setup.SETTINGS,
    models=5,  # seeds
    quick="moons",
    quick_models=1,
    prepare=setup.prepare,
    measure=measure,
    page=page,
    pictures=pictures,
    workers=2,
)
