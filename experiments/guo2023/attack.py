"""Figures 4a, 4d and 12a: validity under Virtual Data Shift, against its steps, its size, and its
steps in an l2 ball."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

import holdfast as hf
from experiments.cell import Figures
from experiments.guo2023.networks import Predictors, Where
from experiments.guo2023.reported import E_STEPS, T_STEPS
from experiments.parts import Arrays, Parts
from experiments.tables import mean_sd
from holdfast.evaluation.shift_attack import validity_under_shift
from holdfast.methods.amortized._joint_loop import JointStack

ROWS = 1024  # of each test part
T_WHILE_E = 15  # steps of the attack while its size varies, as in the authors' stored results
ATTACKED = ("printed", "counternet", "adam", "softmax", "defaults")
KINDS = ("T", "E", "T, l2 ball")
# The paper's attack, and the one with the Adam and the softmax of the authors' code.
PRINTED = "printed"
AUTHORS = "authors"


def plans(dataset: str) -> dict[str, dict[float, hf.Shift]]:
    """The attacks of each kind and way, by T or E."""
    printed = hf.RoCourseNet.paper(dataset).shift
    assert printed is not None
    authors = replace(printed, optimizer="adam", categories="softmax")
    out = dict[str, dict[float, hf.Shift]]()
    for way, shift in {PRINTED: printed, AUTHORS: authors}.items():
        ball = replace(shift, norm="l2")
        out[f"T; {way}"] = {t: replace(shift, outer=t) for t in T_STEPS}
        out[f"E; {way}"] = {e: replace(shift, outer=T_WHILE_E, epsilon=e) for e in E_STEPS}
        out[f"T, l2 ball; {way}"] = {t: replace(ball, outer=t) for t in T_STEPS}
    return out


def settings(dataset: str) -> Any:
    """What decides the figures, besides the networks."""
    return {"rows": ROWS, "plans": plans(dataset)}


def validities(parts: Parts, stack: JointStack, where: Where) -> Figures:
    """kind -> T or E -> [mean, standard deviation] over the subsets."""
    out: Figures = {}
    for kind, by_strength in plans(where.dataset).items():

        def make(by_strength: dict[float, hf.Shift] = by_strength) -> Arrays:
            return {f"{s}": under(stack, shift, where) for s, shift in by_strength.items()}

        arrays = parts.arrays(kind, make)
        out[kind] = {f"{s}": mean_sd(arrays[f"{s}"]) for s in by_strength}
    return out


def under(stack: JointStack, shift: hf.Shift, where: Where) -> np.ndarray[Any, Any]:
    """(k,) validity of soft answers to the first test rows of each network's subset, under
    attack."""
    task = where.task
    predictors = Predictors(stack)
    k = len(task)
    x = [task.asked(i, ROWS) for i in range(k)]
    y = [task.y[task.test[i]][:ROWS] for i in range(k)]
    x_cf = [task.encoding.softmax(predictors.answers(i, rows)) for i, rows in enumerate(x)]
    t = [(predictors.logits(i, rows) <= 0).long() for i, rows in enumerate(x)]
    with torch.no_grad():
        found = validity_under_shift(stack.net, stack.theta, x, y, x_cf, t, shift, task.encoding)
    return found.numpy()
