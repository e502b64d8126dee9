"""Krishna, Agarwal and Lakkaraju, "On the Trade-offs between Adversarial Robustness and Actionable
Explanations".

The paper prints no tables; it makes eight claims about its figures. Each is checked on every
dataset, for logistic regression and for a network with one hidden layer twice as wide as the rows.
Columns are between 0 and 1 and all of them may change; the wanted outcome of a row is the one that
the plain model does not give it.
"""

from functools import partial
from typing import Any

from experiments.data import Split
from experiments.experiment import Experiment, Figures, Run
from experiments.krishna2024.bounds import (
    HARDER,
    LINEAR,
    MILD,
    VAE,
    WIDE,
    linear_bounds,
    ntk_bounds,
    vae_bounds,
)
from experiments.krishna2024.curves import curves, neighbourhood, sweep
from experiments.krishna2024.page import page, pictures
from experiments.krishna2024.setup import KINDS, SETTINGS, Setting, methods, prepare
from experiments.parts import Arrays, Job
from experiments.tables import plain
from holdfast.training.adversarial import EPSILONS

ROWS = 100  # test rows asked about
DIGITS = 5


def measure(run: Run[Setting, Split]) -> Figures:
    """One dataset: curves, bounds, architectures, and the verdict on every claim."""
    task = run.task
    epochs = run.setting.epochs
    models = run.models
    seed = run.seed
    rows = min(run.rows or ROWS, ROWS)
    half = -(-rows // 2)
    about = [epochs, models, rows, [repr(method) for method in methods().values()]]
    jobs: list[Job] = [("sweep", partial(sweep, task, epochs, half, seed), rows)]
    for kind, times in KINDS.items():
        hidden = (times * task.width,) * bool(times)
        jobs.append(
            (f"curves {kind}", partial(curves, task, hidden, epochs, models, rows, seed), about)
        )
    jobs += [
        ("ntk bounds", partial(ntk_bounds, task, seed), None),
        ("vae bounds", partial(vae_bounds, task, epochs, rows, seed), [rows, *MILD]),
        ("neighbourhood", partial(neighbourhood, task, epochs, seed), epochs),
        ("linear bounds", partial(linear_bounds, task, seed), None),
    ]
    found = run.parts.together(jobs)
    shown = {"linear": found["linear bounds"], "NTK": found["ntk bounds"]}
    return {
        "title": run.setting.title,
        "epsilon": list(EPSILONS),
        "methods": list(methods()),
        "curves": {kind: _plain(found[f"curves {kind}"]) for kind in KINDS},
        "place": plain(found["neighbourhood"]["place"], DIGITS),
        "granted": [
            "".join("01"[int(v)] for v in line) for line in found["neighbourhood"]["granted"]
        ],
        "shown": {
            f"{k} {e:g}": plain(cell[f"shown {e:g}"], DIGITS)
            for k, cell in shown.items()
            for e in HARDER
        },
        "linear bounds": _lines(found["linear bounds"], LINEAR),
        "ntk bounds": _lines(found["ntk bounds"], WIDE),
        "vae bounds": _lines(found["vae bounds"], VAE),
        "sweep": _plain(found["sweep"]),
        "rows": {"train": len(task.X), "test": len(task.test_X), "asked": rows},
        "columns": task.width,
        "epochs": epochs,
        "models": models,
    }


def _plain(cell: Arrays) -> dict[str, Any]:
    return {key: plain(values, DIGITS) for key, values in cell.items() if key != "seconds"}


def _lines(cell: Arrays, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [dict(zip(names, line, strict=True)) for line in plain(cell["rows"], DIGITS)]


EXPERIMENT = Experiment(
    name="krishna2024",
    title="Trade-offs between adversarial robustness and actionable explanations (Krishna et al.)",
    settings=SETTINGS,
    models=5,  # networks for each epsilon
    quick="german_credit",
    quick_models=2,
    prepare=prepare,
    measure=measure,
    page=page,
    pictures=pictures,
)
