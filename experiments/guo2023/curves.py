"""The curves of the paper: Figures 3 to 6 and 12.

attack      validity under Virtual Data Shift against its steps T, its size E, and T with an l2 ball
training    robust validity of RoCourseNet trained against attacks with T steps, of size E, with
            each schedule
trade-off   proximity against robust validity, varying l3, ROAR's lam, RBR's radii
data size   robust validity against the share of the training rows
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import holdfast as hf
from experiments.experiment import Figures, Run
from experiments.guo2023 import setup
from experiments.guo2023.reported import E_STEPS, T_STEPS
from experiments.parts import Arrays
from experiments.tables import mean_sd
from holdfast.evaluation.shift_attack import validity_under_shift
from holdfast.methods.amortized._joint_loop import JointStack
from holdfast.methods.amortized._joint_settings import JointSettings

ATTACKED_ROWS = 1024  # of each test part
E_AT = 15  # steps of the attack while its size varies, as in the authors' stored results
TRAIN_T = 1, 3, 7, 15
TRAIN_E = 0.01, 0.05, 0.1, 0.2, 0.5
L3 = (0.01, 0.03, 0.1, 0.3, 1.0)
LAM = 0.1, 0.5, 1.0, 2.0
RADII = 0.0, 0.5, 1.0
SHARES = (0.02, 0.05, 0.1)  # and all of it, which the tables have
FEW = 50  # rows of each test part for the trade-off of methods that search

Line = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """The networks of one dataset, which its tables are about."""

    run: Run[setup.Setting, setup.Task]
    repeats: int
    base_how: JointSettings
    base: JointStack
    hows: dict[str, JointSettings]
    nets: dict[str, Arrays]

    def point(self, how: JointSettings, share: float | None = None) -> Figures:
        """Networks trained on a share of the rows; None takes as many as the curves of the dataset
        have."""
        seeds = min(self.repeats, 3)
        used = self.run.setting.curve_share if share is None else share

        def make() -> Arrays:
            return setup.trained(how, setup.prepare(self.run.dataset, used), seeds, self.run.seed)

        return setup.figures(self.run.parts.arrays("curve", make, [how.get_params(), used, seeds]))

    @property
    def trained_alike(self) -> list[tuple[str, JointSettings]]:
        """CounterNet and ours, for curves over settings of both."""
        setting = self.run.setting
        return [
            ("CounterNet", setup.fewer(setting)),
            (setup.OURS, setup.ours(setting, setting.attack)),
        ]


def all_curves(study: Study) -> dict[str, list[Line]]:
    """Every curve as a list of points."""
    attacks = {"attack": _attacks(study)}
    if not study.run.setting.curve_share:
        return attacks
    return attacks | {
        "training": _trainings(study),
        "trade-off": _trade_off(study),
        "data size": _sizes(study),
    }


# ---- validity under attack


def _attacks(study: Study) -> list[Line]:
    shift = hf.Shift(eta=study.run.setting.eta)
    task = study.run.task
    plans = [("T", t, replace(shift, outer=t)) for t in T_STEPS]
    plans += [("E", e, replace(shift, outer=E_AT, epsilon=e)) for e in E_STEPS]
    plans += [("T, l2 ball", t, replace(shift, outer=t, norm="l2")) for t in T_STEPS]
    out = list[Line]()
    for label in ("CounterNet", setup.KEPT, setup.AUTHORS, setup.OURS):
        how = study.hows[label]
        cell = study.nets[label]

        def make(how: JointSettings = how, cell: Arrays = cell) -> Arrays:
            stack = setup.stacked(how, task, cell)
            return {
                f"{kind} {categories} {value}": _under(
                    stack, replace(plan, categories=categories), task
                )
                for categories in ("softmax", "none")
                for kind, value, plan in plans
            }

        about = [how.get_params(), [repr(plan) for plan in plans], ATTACKED_ROWS]
        held = study.run.parts.arrays(f"attack {label}", make, about)
        for categories in ("softmax", "none"):
            for kind, value, _ in plans:
                mean, sd = mean_sd(held[f"{kind} {categories} {value}"])
                line = {"method": label, "kind": kind, "categories": categories, "strength": value}
                out.append(line | {"mean": mean, "sd": sd})
    return out


def _under(stack: JointStack, shift: hf.Shift, task: setup.Task) -> np.ndarray[Any, Any]:
    """(models,) validity of soft answers to the first test rows of each model's subset, under
    attack."""
    _, answers, logits = setup.of_stack(stack)
    k = len(task)
    x = [task.x[task.test[i % k]][:ATTACKED_ROWS] for i in range(len(stack))]
    y = [task.y[task.test[i % k]][:ATTACKED_ROWS] for i in range(len(stack))]
    x_cf = [task.encoding.softmax(answers(i, rows)) for i, rows in enumerate(x)]
    t = [(logits(i, rows) <= 0).long() for i, rows in enumerate(x)]
    return validity_under_shift(stack.net, stack.theta, x, y, x_cf, t, shift, task.encoding).numpy()


# ---- training


def _line(method: str, point: Figures, **more: Any) -> Line:
    names = {"cost": "proximity", "validity": "validity", "robust validity": "robust validity"}
    return {"method": method, **{short: point[name] for short, name in names.items()}, **more}


def _trainings(study: Study) -> list[Line]:
    out = list[Line]()
    setting = study.run.setting
    point = study.point
    ways: list[tuple[str, JointSettings, hf.Shift]] = [
        (setup.OURS, setup.ours(setting, None), setting.attack)
    ]
    ways.append(
        (setup.AUTHORS, setup.fewer(setting), hf.Shift(eta=setting.eta, categories="softmax"))
    )
    for label, how, shift in ways:
        for t in TRAIN_T:
            out.append(
                _line(
                    label, point(replace(how, shift=replace(shift, outer=t))), kind="T", strength=t
                )
            )
        for e in TRAIN_E:
            out.append(
                _line(
                    label,
                    point(replace(how, shift=replace(shift, epsilon=e))),
                    kind="E",
                    strength=e,
                )
            )
        for schedule in ("linear", "log", "static"):
            made = point(replace(how, shift=shift, schedule=schedule))
            out.append(_line(label, made, kind="schedule", strength=schedule))
    return out


def _trade_off(study: Study) -> list[Line]:
    out = [
        _line(label, study.point(replace(how, l3=l3)), setting=l3)
        for label, how in study.trained_alike
        for l3 in L3
    ]
    some: list[tuple[str, float, Callable[[], hf.Explainer]]] = []
    some += [("ROAR-LIME", lam, lambda lam=lam: hf.ROAR.lime(lam=lam)) for lam in LAM]
    some += [("RBR", e, lambda e=e: hf.RBR(e_op=e, e_pe=e)) for e in RADII]
    for label, value, make in some:
        cell = study.run.parts.arrays(
            f"trade-off {label}",
            lambda label=label, make=make: setup.searched(
                label, make, study.base_how, study.base, study.run.task, 1, FEW
            ),
            [repr(make()), FEW, study.base_how.get_params()],
        )
        out.append(_line(label, setup.figures(cell), setting=value))
    return out


def _sizes(study: Study) -> list[Line]:
    out = list[Line]()
    for label, how in study.trained_alike:
        out += [_line(label, study.point(how, share), share=share) for share in SHARES]
        out.append(_line(label, setup.figures(study.nets[label]), share=1.0))
    return out
