"""What is measured: answers of each subset's network, before the networks of all subsets.

    V[i, j]          share of the answers made for network i that network j gives the other class
    validity         mean of V[i, i]
    robust validity  mean of V[i, j], i != j
    proximity        mean l1 distance between a row and its answer; another category counts 2

Raw answers have numbers as they were proposed, as in the paper; those in range are kept inside the
range of the data, as a person could hand them in. The two are never mixed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.cell import Figures
from experiments.guo2023.task import Task
from experiments.parts import Arrays
from experiments.tables import plain
from holdfast._core.checks import untyped

RAW = "raw"
IN_RANGE = "in range"
CONVENTIONS = (RAW, IN_RANGE)
KEPT = 50  # rows of each subset of which single figures are kept
DIGITS = 6

# models (m,), rows (n, d) -> does each predict class 1? (m, n)
Scores = Callable[[Tensor, Tensor], Tensor]
Answers = Callable[[str, int], Tensor]  # convention, subset -> answers (n, d), one level each


def harden(raw: Tensor, task: Task, convention: str) -> Tensor:
    """N at test: the largest level of each category; numbers inside the range of the data, or as
    they are."""
    hard = task.encoding.hard(raw)
    if convention == RAW:
        return hard
    return hard.clamp(task.encoding.seen_low, task.encoding.seen_high)


def crossed(
    task: Task, scores: Scores, answers: Answers, rows: int | None = None
) -> tuple[Figures, Arrays]:
    """Figures of one network for each subset, in both conventions; and of the first rows of each
    subset which networks accept the answer, and how far it is."""
    k = len(task)
    asked = sum(len(task.asked(i, rows)) for i in range(k))
    figures: Figures = {"subsets": list(task.names), "asked": asked}
    kept: Arrays = {}
    for convention in CONVENTIONS:
        matrix = np.zeros((k, k))
        cost = np.zeros(k)
        for i in range(k):
            x = task.asked(i, rows)
            cf = answers(convention, i)
            now = scores(torch.tensor([i]), x)[0]
            accepted = scores(torch.arange(k), cf) != now
            far = (cf - x).abs().sum(1)
            matrix[i] = accepted.double().mean(1).numpy()
            cost[i] = float(far.mean())
            kept[f"accepted {convention} {i}"] = accepted[:, :KEPT].numpy()
            kept[f"far {convention} {i}"] = far[:KEPT].float().numpy()
        figures[convention] = summed_up(matrix, cost)
    return figures, kept


def summed_up(matrix: np.ndarray[Any, Any], cost: np.ndarray[Any, Any]) -> Figures:
    """The figures of Table 2, as means over subsets, and what they are made of."""
    k = len(matrix)
    off = ~np.eye(k, dtype=bool)
    return {
        "proximity": float(cost.mean()),
        "validity": float(matrix[~off].mean()),
        "robust validity": float(matrix[off].mean()),
        "next subset": float(np.mean([matrix[i, i + 1] for i in range(k - 1)])),
        "matrix": plain(matrix, DIGITS),
        "cost": plain(cost, DIGITS),
    }


def prediction(task: Task, logits: Callable[[int, Tensor], Tensor]) -> Figures:
    """Accuracy and area under the curve, as means over the test parts."""
    right = list[float]()
    area = list[float]()
    for i, rows in enumerate(task.test):
        z = logits(i, task.x[rows])
        y = task.y[rows]
        right.append(float(((z > 0) == (y > 0)).double().mean()))
        area.append(untyped("sklearn.metrics").roc_auc_score(y.numpy(), z.numpy()))
    return {"accuracy": float(np.mean(right)), "auc": float(np.mean(area))}
