"""Höltgen, Schut, Brauner and Gal, "DeDUCE: Generating Counterfactual Explanations At Scale", 2021.

Each of 5 x 100 test digits is turned to each of the 9 other classes: how many pixels change, by how
much, how real the answers look, what fails, and how long it takes. The paper runs its rivals on
another network than its own; here all are also measured on the same one.
"""

import json
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from experiments.experiment import Experiment, Figures, Run
from experiments.hoeltgen2021 import setup
from experiments.hoeltgen2021.checks import kept
from experiments.hoeltgen2021.outcomes import findings
from experiments.hoeltgen2021.page import page
from experiments.hoeltgen2021.pictures import pictures
from experiments.hoeltgen2021.study import Study
from experiments.parts import Job
from experiments.tables import known


def measure(run: Run[setup.Setting, setup.Task]) -> Figures:
    """All tables of one set of images; repeats are test sets, and rows are images of
    one."""
    name = run.dataset
    sets = run.models
    seed = run.seed
    made = run.parts.together
    images = min(run.rows or run.setting.images, run.setting.images)
    setting = replace(run.setting, common=tuple(i for i in run.setting.common if i < images))

    how: dict[str, list[Any]] = {
        kind: [getattr(setting, kind), setting.train] for kind in setup.NETWORKS
    }
    nets = made(
        [
            (kind, partial(setup.network, name, kind, how[kind][0], seed), how[kind])
            for kind in setup.NETWORKS
        ]
    )
    files = {kind: cell["network"] for kind, cell in nets.items()}
    judged = made(
        [
            (f"about {kind}", partial(setup.about, name, files, kind), how[kind])
            for kind in setup.CLASSIFIERS
        ]
    )
    kit = setup.Kit(name, setting, files, judged["about spectral"])

    questions = setup.questions(setting, sets, images)
    decides = {
        key: [
            asdict(question),
            [how[kind] for kind in (question.kind, *setup.NEEDS.get(question.label, ()))],
        ]
        for key, question in questions.items()
    }
    found = made(
        [
            (key, partial(setup.search, kit, question), decides[key])
            for key, question in questions.items()
        ]
    )
    study = Study(kit, questions, found, sets)

    jobs: list[Job] = [
        (
            "sanity",
            partial(setup.sanity, kit, seed),
            [setting.judged, setting.compared, setting.anogan, how],
        )
    ]
    for label, kind in setup.RUNS:
        key = f"{label} {kind} 0"
        many = setting.again if label in setup.GREEDY else setting.alone
        make = partial(setup.in_other_company, kit, questions[key], found[key], many)
        jobs.append((f"again {label} {kind}", make, [many, decides[key]]))
    for key, pixels in study.to_score.items():
        behind = [decides[k] for k in questions if k.startswith(key)] or [how["vae"], sets]
        decided = [setting.anogan, how["gan"], setting.common, behind]
        jobs.append((f"AnoGAN {key}", partial(setup.scored, kit, pixels, seed), decided))
    more = made(jobs)
    broken = study.violations(more)
    kept(broken)

    everywhere = [k * setting.images + i for k in range(sets) for i in setting.common]
    result = {
        "title": setting.title,
        **study.measured(more),
        "accuracy": {
            k: {p: known(judged[f"about {k}"][p]) for p in ("validation", "test")}
            for k in setup.CLASSIFIERS
        },
        "jitter": float(kit.density["jitter"]),
        "promises": broken,
        "settings": json.loads(json.dumps(asdict(setting))),
        "pairs": {
            "all": sets * study.each,
            "common": len(study.common) * sets,
            "sets": sets,
            "images": images,
            "common images": everywhere,
        },
        "models": sets,
    }
    return result | {"findings": findings(result)}


EXPERIMENT = Experiment(
    name="hoeltgen2021",
    title="DeDUCE: counterfactual explanations at scale (Höltgen et al. 2021)",
    settings=setup.SETTINGS,
    models=setup.SETS,
    quick="digits",
    quick_models=setup.SETS,
    prepare=lambda name, _: setup.prepare(name),  # in the order of the files: nothing is drawn
    measure=measure,
    page=page,
    pictures=pictures,
    full=("mnist",),
    workers=2,
)
