"""Answers keep every promise, and each that is broken is counted."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from experiments.hoeltgen2021.checks import again, kept, promises
from experiments.hoeltgen2021.setup import prepare
from holdfast.errors import HoldfastError
from holdfast.images.classifier import SpectralResNet
from holdfast.images.deduce import DeDUCE
from holdfast.images.greedy import GreedyPixels
from holdfast.images.jsma import JSMA
from holdfast.images.model import ImageModel
from holdfast.target import Status


@dataclass(frozen=True)
class Searched:
    """Methods that were asked about some digits, and what they answered."""

    model: ImageModel
    methods: tuple[GreedyPixels, ...]
    x: torch.Tensor
    cells: tuple[dict[str, Any], ...]

    def cell(self, i: int = 0) -> dict[str, Any]:
        """Answers of a method, to be spoilt."""
        return {key: value.copy() for key, value in self.cells[i].items()}


@pytest.fixture(scope="module")
def searched() -> Searched:
    task = prepare("digits")
    model = (
        SpectralResNet(width=4, epochs=4, batch_size=64).fit(task.train[:600], task.y[:600]).model_
    )
    methods = DeDUCE(max_iter=60).fit(model, task.train[:600], task.y[:600]), JSMA(max_iter=60)
    answers = [
        method.explain(model, task.test[:2], "all", labels=task.test_y[:2]) for method in methods
    ]
    cells = tuple(
        {
            "x_cf": a.x_cf.numpy(),
            "target": a.goal.label.numpy(),
            "codes": a.status_codes,
            "iterations": a.iterations,
            "touched": np.array(False),
        }
        for a in answers
    )
    return Searched(model, methods, answers[0].x, cells)


def test_answers_keep_all_promises(searched: Searched) -> None:
    for method, cell in zip(searched.methods, searched.cells, strict=True):
        assert (cell["codes"] == Status.FOUND).sum() >= 5
        counts = promises(method, searched.model, searched.x, cell)
        assert set(counts.values()) == {0}, counts
        elsewhere, took = again(method, searched.model, searched.x, cell, np.array([0, 5, 17]))
        assert set(elsewhere.values()) == {0}, elsewhere
        assert took.shape == (3,)
        kept({"a": counts, "b": elsewhere})


def spoilt(promise: str, cell: dict[str, Any], x: torch.Tensor, at: int) -> GreedyPixels:
    """Break a promise to a pair that was answered; returns the settings it is held to."""
    before = x[at].flatten().numpy()
    after = cell["x_cf"][at].reshape(-1)
    first = int(np.flatnonzero(after != before)[0])
    if promise == "limit per pixel":
        after[first] = 0.6 if before[first] < 0.5 else 0.4
        return DeDUCE(limit=1, delta=0.05)
    if promise == "bounds":
        after[first] = np.nan
    elif promise == "multiples of delta":
        after[first] += 0.05 if after[first] < 0.5 else -0.05
    elif promise == "L0 at most iterations":
        cell["iterations"][at] = 0
    elif promise == "steps at most iterations":
        cell["iterations"][at] = (after != before).sum()
        return DeDUCE(delta=0.01, limit=100)
    elif promise == "met where found":
        cell["x_cf"][at] = x[at].numpy()
    elif promise == "not met where not found":
        cell["codes"][at] = Status.NOT_FOUND
    elif promise == "nothing to do, nothing done":
        cell["codes"][at] = Status.ALREADY_MET
    else:
        cell["touched"] = np.array(True)
    return DeDUCE()


@pytest.mark.parametrize(
    "promise",
    [
        "limit per pixel",
        "bounds",
        "multiples of delta",
        "L0 at most iterations",
        "steps at most iterations",
        "met where found",
        "not met where not found",
        "nothing to do, nothing done",
        "caller's images untouched",
    ],
)
def test_each_broken_promise_is_counted(promise: str, searched: Searched) -> None:
    cell = searched.cell()
    at = int(np.flatnonzero(cell["codes"] == Status.FOUND)[0])
    method = spoilt(promise, cell, searched.x, at)
    counts = promises(method, searched.model, searched.x, cell)
    assert counts[promise] >= 1
    assert promises(DeDUCE(), searched.model, searched.x, searched.cell())[promise] == 0
    with pytest.raises(HoldfastError, match=f"DeDUCE 0: {promise}"):
        kept({"DeDUCE 0": {promise: counts[promise]}, "JSMA 0": {promise: 0}})


def test_another_answer_in_other_company_is_counted(searched: Searched) -> None:
    cell = searched.cell()
    at = np.flatnonzero((cell["codes"] == Status.FOUND) & (cell["iterations"] > 3))[:2]
    cell["iterations"][at[0]] += 1
    cell["x_cf"][at[1]] += np.float32(1e-6)
    counts, _ = again(searched.methods[0], searched.model, searched.x, cell, at)
    others = ("alone", "another chunk", "without compaction", "without the shortcut")
    assert counts == {**dict.fromkeys(others, 2), "not met one iteration earlier": 1}
