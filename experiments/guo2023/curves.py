"""The curves of the paper: Figures 3 to 6 and 12.

attack      validity under Virtual Data Shift against its steps T, its size E, and T with an l2 ball
training    robust validity of RoCourseNet trained against attacks with T steps, of size E, with each schedule
trade-off   proximity against robust validity, varying l3, ROAR's lam, RBR's radii
data size   robust validity against the share of the training rows
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from experiments.cells import Arrays, Cells
from experiments.guo2023.reported import E_STEPS, T_STEPS
from experiments.guo2023.setup import (
    AUTHORS,
    KEPT,
    OURS,
    TITLES,
    Setting,
    Task,
    fewer,
    figures,
    of_stack,
    ours,
    prepare,
    searched,
    spread_of,
    stacked,
    trained,
)
from holdfast.evaluation.shift_attack import validity_under_shift
from holdfast.explainer import Explainer
from holdfast.methods.amortized._joint_loop import Joint, JointStack
from holdfast.methods.amortized.virtual_shift import Shift
from holdfast.methods.rbr import RBR
from holdfast.methods.roar import ROAR
from holdfast.render.charts.shift import data_size, pareto, strength

ATTACKED_ROWS = 1024  # of each test part
E_AT = 15  # steps of the attack while its size varies, as in the authors' stored results
TRAIN_T, TRAIN_E = (1, 3, 7, 15), (0.01, 0.05, 0.1, 0.2, 0.5)
L3 = (0.01, 0.03, 0.1, 0.3, 1.0)
LAM, RADII = (0.1, 0.5, 1.0, 2.0), (0.0, 0.5, 1.0)
SHARES = (0.02, 0.05, 0.1)  # and all of it, which the tables have
FEW = 50  # rows of each test part for the trade-off of methods that search

Nets = dict[str, tuple[Joint, Arrays]]
Line = dict[str, Any]


def all_curves(
    name: str,
    setting: Setting,
    cells: Cells,
    task: Task,
    nets: Nets,
    base: JointStack,
    base_how: Joint,
    repeats: int,
    seed: int,
) -> dict[str, list[Line]]:
    """Every curve as a list of points."""  # fmt: skip
    attacks = {"attack": _attacks(name, setting, cells, task, nets)}
    if not setting.curve_share:
        return attacks
    small = prepare(name, setting.curve_share)
    seeds = min(repeats, 3)

    def point(how: Joint, share: float | None = None) -> dict[str, Any]:
        used = small if share is None else prepare(name, share)
        about = [repr(how), setting.curve_share if share is None else share, seeds]
        return figures(cells.arrays(f"{name}/curve", lambda: trained(how, used, seeds, seed), about))

    return attacks | {
        "training": _trainings(setting, point),
        "trade-off": _trade_off(name, setting, cells, task, base, base_how, point),
        "data size": _sizes(setting, nets, point),
    }


# ---- validity under attack


def _attacks(name: str, setting: Setting, cells: Cells, task: Task, nets: Nets) -> list[Line]:
    shift = Shift(eta=setting.eta)
    plans = [("T", t, replace(shift, outer=t)) for t in T_STEPS]
    plans += [("E", e, replace(shift, outer=E_AT, epsilon=e)) for e in E_STEPS]
    plans += [("T, l2 ball", t, replace(shift, outer=t, norm="l2")) for t in T_STEPS]
    out = list[Line]()
    for label in ("CounterNet", KEPT, AUTHORS, OURS):
        how, cell = nets[label]

        def make(how: Joint = how, cell: Arrays = cell) -> Arrays:
            stack = stacked(how, task, cell)
            return {
                f"{kind} {categories} {value}": _under(stack, replace(plan, categories=categories), task)
                for categories in ("softmax", "none")
                for kind, value, plan in plans
            }

        about = [repr(how), [repr(plan) for plan in plans], ATTACKED_ROWS]
        held = cells.arrays(f"{name}/attack {label}", make, about)
        for categories in ("softmax", "none"):
            for kind, value, _ in plans:
                mean, sd = spread_of(held[f"{kind} {categories} {value}"])
                line = {"method": label, "kind": kind, "categories": categories, "strength": value}
                out.append(line | {"mean": mean, "sd": sd})
    return out


def _under(stack: JointStack, shift: Shift, task: Task) -> np.ndarray[Any, Any]:
    """(models,) validity of soft answers to the first test rows of each model's subset, under attack."""
    _, answers, logits = of_stack(stack)
    k = len(task)
    x = [task.x[task.test[i % k]][:ATTACKED_ROWS] for i in range(len(stack))]
    y = [task.y[task.test[i % k]][:ATTACKED_ROWS] for i in range(len(stack))]
    x_cf = [task.layout.softmax(answers(i, rows)) for i, rows in enumerate(x)]
    t = [(logits(i, rows) <= 0).long() for i, rows in enumerate(x)]
    return validity_under_shift(stack.net, stack.theta, x, y, x_cf, t, shift, task.layout).numpy()


# ---- training


def _line(method: str, point: dict[str, Any], **more: Any) -> Line:
    names = {"cost": "proximity", "validity": "validity", "robust validity": "robust validity"}
    return {"method": method, **{short: point[name] for short, name in names.items()}, **more}


def _trainings(setting: Setting, point: Callable[[Joint], dict[str, Any]]) -> list[Line]:
    out = list[Line]()
    ways: list[tuple[str, Joint, Shift]] = [(OURS, ours(setting, None), setting.attack)]
    ways.append((AUTHORS, fewer(setting), Shift(eta=setting.eta, categories="softmax")))
    for label, how, shift in ways:
        for t in TRAIN_T:
            out.append(_line(label, point(replace(how, shift=replace(shift, outer=t))), kind="T", strength=t))
        for e in TRAIN_E:
            out.append(_line(label, point(replace(how, shift=replace(shift, epsilon=e))), kind="E", strength=e))
        for schedule in ("linear", "log", "static"):
            made = point(replace(how, shift=shift, schedule=schedule))
            out.append(_line(label, made, kind="schedule", strength=schedule))
    return out


def _trade_off(
    name: str,
    setting: Setting,
    cells: Cells,
    task: Task,
    base: JointStack,
    base_how: Joint,
    point: Callable[[Joint], dict[str, Any]],
) -> list[Line]:
    out = list[Line]()
    for label, how in (("CounterNet", fewer(setting)), (OURS, ours(setting, setting.attack))):
        for l3 in L3:
            out.append(_line(label, point(replace(how, l3=l3)), setting=l3))
    some: list[tuple[str, float, Callable[[], Explainer]]] = []
    some += [("ROAR-LIME", lam, lambda lam=lam: ROAR.lime(lam=lam)) for lam in LAM]
    some += [("RBR", e, lambda e=e: RBR(e_op=e, e_pe=e)) for e in RADII]
    for label, value, make in some:
        cell = cells.arrays(
            f"{name}/trade-off {label}",
            lambda label=label, make=make: searched(label, make, base_how, base, task, 1, FEW),
            [repr(make()), FEW, repr(base_how)],
        )
        out.append(_line(label, figures(cell), setting=value))
    return out


def _sizes(setting: Setting, nets: Nets, point: Callable[..., dict[str, Any]]) -> list[Line]:
    out = list[Line]()
    for label, how in (("CounterNet", fewer(setting)), (OURS, ours(setting, setting.attack))):
        out += [_line(label, point(how, share), share=share) for share in SHARES]
        out.append(_line(label, figures(nets[label][1]), share=1.0))
    return out


# ---- pages


def curve_lines(result: dict[str, Any]) -> list[str]:
    """The points as tables."""
    curves = result["curves"]
    if not curves:
        return []
    name = result["dataset"]
    lines = [
        "",
        f"## Curves: {name}",
        "",
        "Validity under attack (softmax over shifted categories, as the authors):",
        "",
    ]
    told = result["reported"].get("attacked", {}).get("validity", {})
    for kind in ("T", "E", "T, l2 ball"):
        points = [p for p in curves["attack"] if p["kind"] == kind]
        at = list(dict.fromkeys(p["strength"] for p in points))
        lines += [f"| {kind} | {' | '.join(map(str, at))} |", "|---|" + "---|" * len(at)]
        for method in dict.fromkeys(p["method"] for p in points):
            for categories in ("softmax", "none"):
                row = [p for p in points if p["method"] == method and p["categories"] == categories]
                means = " | ".join(f"{p['mean']:.3f}" for p in row)
                lines.append(f"| {TITLES.get(method, method)}; {categories} | {means} |")
        for method, values in told.get(kind, {}).items():
            lines.append(f"| reported: {method} | {' | '.join(f'{v:.3f}' for v in values['mean'])} |")
        lines.append("")
    for key, at in (("training", "strength"), ("trade-off", "setting"), ("data size", "share")):
        if key not in curves:
            continue
        lines += [
            f"{key.capitalize()}:",
            "",
            f"| method | {at} | proximity | validity | robust validity |",
            "|---|---|---|---|---|",
        ]
        for p in curves[key]:
            what = f"{p['kind']} {p[at]}" if "kind" in p else f"{p[at]}"
            cells = [f"{p[k][0]:.3f} ± {p[k][1]:.3f}" for k in ("cost", "validity", "robust validity")]
            lines.append(f"| {TITLES.get(p['method'], p['method'])} | {what} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def curve_charts(result: dict[str, Any]) -> dict[str, Any]:
    """Pictures of the attack, of the trade-off and of the size of the data."""
    name, curves = result["dataset"], dict[str, list[Line]]()
    for key, line in result["curves"].items():
        curves[key] = [p | {"method": TITLES.get(p["method"], p["method"])} for p in line]
    if not curves:
        return {}
    out = dict[str, Any]()
    for kind, short, log in (("T", "steps", False), ("E", "size", True)):
        points = [p for p in curves["attack"] if p["kind"] == kind and p["categories"] == "softmax"]
        title = "Steps of the attack (T)" if kind == "T" else "Size of the shift (E)"
        out[f"{name}-attack-{short}"] = strength(pd.DataFrame(points), title=title, log=log)
    if "trade-off" not in curves:
        return out
    points = [p | {"cost": p["cost"][0], "validity": p["robust validity"][0]} for p in curves["trade-off"]]
    out[f"{name}-trade-off"] = pareto(pd.DataFrame(points))
    points = [p | {"mean": p["robust validity"][0], "sd": p["robust validity"][1]} for p in curves["data size"]]
    out[f"{name}-data-size"] = data_size(pd.DataFrame(points))
    return out
