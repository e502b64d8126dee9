"""Guo, Jia, Chen, Yadav and Xiao, "RoCourseNet", CIKM 2023: Tables 2, 3, 6 to 11 and the curves of
Figures 3 to 6, 12.

A dataset comes in k subsets (years, schools, the original and the corrected table). One network per
subset; the answers of each are put before the networks of all others. Rows are encoded first and
every column may change, as in the paper. Networks of a method train side by side, whatever their
number.

Methods that come with their own predictor (CounterNet, RoCourseNet) are judged by these, all others
by base networks of the same layers. On the small datasets everything is repeated with other seeds,
because k = 2 says little.
"""

from dataclasses import replace

import numpy as np

from experiments.experiment import Experiment, Figures, Run
from experiments.guo2023 import setup
from experiments.guo2023.curves import Study, all_curves
from experiments.guo2023.page import page, pictures
from experiments.guo2023.reported import reported
from experiments.parts import Arrays
from experiments.tables import mean_sd
from holdfast.methods.amortized._joint_settings import JointSettings


def measure(run: Run[setup.Setting, setup.Task]) -> Figures:
    """One dataset: everything the paper reports about it."""
    setting = run.setting
    task = run.task
    seed = run.seed
    repeats = min(run.models, setting.repeats)
    cells = replace(run.parts, settings=run.parts.settings | {"repeats": repeats})
    base_how = replace(setting.how, l2=0.0, l3=0.0, loss="entropy", smooth_labels=True)

    def joint(label: str, how: JointSettings) -> Arrays:
        return cells.arrays(
            label, lambda: setup.trained(how, task, repeats, seed), how.get_params()
        )

    base_cell = joint("base", base_how)
    base = setup.stacked(base_how, task, base_cell)
    found = dict[str, Arrays]()
    if run.dataset not in setup.SIMULATED:
        few = min(repeats, 3)  # searching takes long, and varies less with the seed
        for label, make in setup.searches().items():
            some = min(
                setting.rbr_rows if label == "RBR" else setting.rows, run.rows or setting.rows
            )
            found[label] = cells.arrays(
                label,
                lambda label=label, make=make, some=some: setup.searched(
                    label, make, base_how, base, task, few, some
                ),
                [repr(make()), some, few, base_how.get_params()],
            )
        for label, kind in setup.generators(setting).items():
            found[label] = cells.arrays(
                label,
                lambda kind=kind: setup.generated(kind, base, task, repeats, seed),
                [kind.get_params(), base_how.get_params()],
            )
    hows = setup.joint_methods(setting)
    nets = {label: joint(label, how) for label, how in hows.items()}
    found |= nets
    curves: Figures = {}
    if run.rows is None and run.dataset not in setup.SIMULATED:
        curves = all_curves(Study(replace(run, cells=cells), repeats, base_how, base, hows, nets))
    return {
        "subsets": list(task.names),
        "measured": {label: setup.figures(cell) for label, cell in found.items()},
        "prediction": {
            label: {key: mean_sd(cell[key]) for key in ("accuracy", "auc")}
            for label, cell in {"base": base_cell, **nets}.items()
        },
        "training": {
            label: round(float(c["training"]), 1) for label, c in found.items() if "training" in c
        },
        "per answer": {
            label: float(np.median(c["per answer"]) * 1000) for label, c in found.items()
        },
        "reported": reported(run.dataset),
        "curves": curves,
        "columns": task.x.shape[1],
        "farthest": setup.farthest(task),
        "training_rows": sum(len(rows) for rows in task.train),
        "test_rows": sum(len(rows) for rows in task.test),
        "searched_rows": {
            "most": min(setting.rows, run.rows or setting.rows),
            "RBR": setting.rbr_rows,
        },
        "repeats": repeats,
        "vae_samples": setting.vae_samples,
    }


EXPERIMENT = Experiment(
    name="guo2023",
    title="RoCourseNet (Guo et al., CIKM 2023)",
    settings=setup.SETTINGS,
    models=10,
    quick="german_credit",
    quick_models=1,
    prepare=lambda name, _: setup.prepare(name),  # in the order of the files: nothing is drawn
    measure=measure,
    page=page,
    pictures=pictures,
)
