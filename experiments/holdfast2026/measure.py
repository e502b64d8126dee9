"""One base seed of one kind of model on one dataset: survival search, its rivals, and the oracle."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

import holdfast as hf
from experiments.cells import Arrays
from experiments.holdfast2026.setup import (
    ASKED,
    CONFIDENCE,
    FAMILIES,
    HOLD,
    KINDS,
    SHARE,
    Kind,
    Oracle,
    Setting,
    Task,
    split,
)  # fmt: skip
from holdfast._core.binomial import lower_bound
from holdfast.datasets import Dataset
from holdfast.evaluation.calibration import replace_c

Mask = npt.NDArray[np.bool_]
MARGINS = tuple(i / 4 for i in range(1, 33))
SNS_MODELS = 10


@dataclass(frozen=True)
class Asked:
    """The wanted outcome, or that with a probability."""

    setting: Setting
    place: int  # of the wanted class

    def target(self, margin: float = 0.0) -> hf.Target:
        """What a method is asked for: more than that by a margin in logits."""
        p = self.setting.probability
        if p is None:
            return hf.Target(self.setting.wanted, margin=margin)
        return hf.Target(self.setting.wanted, probability=1 / (1 + (1 - p) / p * np.exp(-margin)))

    def met(self, scores: Tensor) -> Mask:
        """(.., 2) scores -> (..) do they show what is asked for?"""
        p = self.setting.probability
        lead = scores[..., self.place] - scores[..., 1 - self.place]
        return (lead > (0.0 if p is None else np.log(p / (1 - p)))).numpy()


@dataclass(frozen=True)
class World:
    """All that the methods of one base seed share."""

    model: hf.Model
    bank: hf.BankSplit
    kind: Kind
    asked: Asked
    people: pd.DataFrame  # to ask about
    known: pd.DataFrame  # to calibrate by

    @staticmethod
    def of(task: Task, setting: Setting, kind: Kind, seed: int, rows: int | None, cache: Path | None) -> "World":
        recipe = kind.recipe(setting)
        classes = [c for c in task.y.unique() if c != setting.wanted] + [setting.wanted]
        model = recipe.fit(task.X, task.y, task.schema, classes=classes, seed=seed)
        judges, tune = dict.fromkeys(FAMILIES, kind.judges), dict.fromkeys(kind.certify, kind.calibration)
        guide = {"retrain": kind.guide}
        families = {f: sum(part.get(f, 0) for part in (guide, tune, judges)) for f in FAMILIES}
        bank = hf.ModelBank.retrain(
            recipe, task.X, task.y, task.schema, families=families, classes=classes, seed=seed, workers=1, cache=cache
        )
        parts = bank.split(guide=guide, calibration=tune, audit=judges)
        asked = Asked(setting, classes.index(setting.wanted))
        refused = [t[~asked.met(model.score_frame(t))] for t in (task.test, task.X)]
        people, known = refused[0].head(rows or ASKED), refused[1].head(kind.known)
        return World(model, parts, kind, asked, people, known)

    @property
    def smallest(self) -> hf.Explainer:
        return hf.MinCost(norm=_norm(self.kind)) if self.model.has_grad else hf.TreeSearch(norm=1)

    def explain(self, method: hf.Explainer, people: pd.DataFrame, margin: float = 0.0) -> hf.Counterfactuals:
        return method.explain(self.model, people, self.asked.target(margin))

    def accepted(self, cfs: hf.Counterfactuals, bank: hf.ModelBank) -> Mask:
        """(M, n) which models accept answers, whatever margin they were found with: it is a means and no aim."""
        return self.asked.met(bank.scores(cfs.to_frame())) & cfs.answered


def _norm(kind: Kind) -> Any:
    return kind.norm


def cell(data: Dataset, setting: Setting, kind: str, seed: int, rows: int | None, cache: Path | None = None) -> Arrays:
    """What every method gives each person: cost, and acceptances by family."""
    world = World.of(split(data, setting, seed), setting, KINDS[kind], seed, rows, cache)
    guide, norm = world.bank.guide, _norm(world.kind)
    survival = hf.SurvivalSearch(guide, norm=norm)
    tuned = hf.calibrate(
        survival, world.model, world.known, world.asked.target(), world.bank.calibration, at_least=HOLD,
        confidence=CONFIDENCE, share=SHARE, seed=seed,
    )  # fmt: skip
    margin = calibrated_margin(world)
    methods: dict[str, Callable[[], hf.Counterfactuals]] = {
        "smallest": lambda: world.explain(world.smallest, world.people),
        "survival": lambda: world.explain(replace_c(survival, tuned.c), world.people),
        "margin": lambda: world.explain(world.smallest, world.people, margin),
    }
    if world.model.has_grad:
        near = hf.StableNeighborSearch(start=hf.MinCost(norm=norm), bank=guide[:SNS_MODELS])
        methods["sns"] = lambda: world.explain(near.fit(world.model, world.known), world.people)
    out: Arrays = {"c": np.array(tuned.c), "margin_value": np.array(margin), "people": np.array(len(world.people))}
    for name, make in methods.items():
        start = time.process_time()
        cfs = make()
        seconds = time.process_time() - start
        out |= {f"{name} {key}": value for key, value in judged(world, cfs, seconds).items()}
    out |= {f"oracle {key}": value for key, value in oracle(world).items()}
    return out


def judged(world: World, cfs: hf.Counterfactuals, seconds: float) -> Arrays:
    """Cost and acceptances of each person's answer."""
    held = [world.accepted(cfs, world.bank.audit[f]) for f in FAMILIES]
    return {
        "cost": _cost(world, cfs), "found": cfs.found, "answered": cfs.answered,
        "accepted": np.stack([h.sum(0) for h in held]), "models": np.array([len(h) for h in held]),
        "seconds": np.array(seconds / max(len(cfs), 1)),
    }  # fmt: skip


def _cost(world: World, cfs: hf.Counterfactuals) -> np.ndarray[Any, Any]:
    return cfs.cost(f"l{world.kind.norm}").to_numpy()


def calibrated_margin(world: World) -> float:
    """The honest rival: the smallest margin of smallest answers by the same rule on the same people and models."""
    certified = dict[float, np.ndarray[Any, Any]]()

    def look(margins: Sequence[float]) -> None:
        for m in margins:
            if m not in certified:
                held = world.accepted(world.explain(world.smallest, world.known, m), world.bank.calibration)
                certified[m] = lower_bound(held.sum(0), len(held), CONFIDENCE) >= HOLD

    def enough() -> list[float]:
        robust = np.logical_or.reduce(list(certified.values()))
        asked = min(1.0, SHARE + np.sqrt(SHARE * (1 - SHARE) / max(robust.sum(), 1)))
        return sorted(m for m, c in certified.items() if robust.any() and c[robust].mean() >= asked)

    look(MARGINS[3::4])  # 1, 2, 3 ..
    top = min(enough(), default=MARGINS[-1])
    look([m for m in MARGINS if top - 1 < m < top])
    good = enough()
    return good[0] if good else max(certified, key=lambda m: (certified[m].mean(), -m))


def oracle(world: World) -> Arrays:
    """For each person the cheapest row that is found which the models of the audit themselves certify; and how many
    models that it does not know, those of the calibration, accept it."""
    judges, norm = certifying(world), _norm(world.kind)
    models = len(judges)
    allowed = max(k for k in range(models) if lower_bound(np.array([models - k]), models, CONFIDENCE)[0] >= HOLD)
    best, fresh = np.full(len(world.people), np.inf), np.zeros(len(world.people), dtype=np.int64)
    searches = (
        Oracle(judges, c=tuple(range(allowed + 1)), norm=norm),
        hf.SurvivalSearch(judges, c=world.kind.oracle, norm=norm),
    )
    for search in searches:
        cfs = world.explain(search, world.people)
        refused = (~world.accepted(cfs, judges)).sum(0)
        cost = np.where(refused <= allowed, _cost(world, cfs), np.inf).reshape(len(world.people), -1)
        others = world.accepted(cfs, world.bank.calibration).sum(0).reshape(cost.shape)
        least = cost.argmin(1)
        fresh = np.where(cost.min(1) < best, np.take_along_axis(others, least[:, None], 1).squeeze(1), fresh)
        best = np.minimum(best, cost.min(1))
    others = {"fresh accepted": fresh, "fresh models": np.array(len(world.bank.calibration))}
    return {"cost": best, "allowed": np.array(allowed), **others}


def certifying(world: World) -> hf.ModelBank:
    """The models of the audit whose certificates count."""
    first, *others = (world.bank.audit[f] for f in world.kind.certify)
    return first.join(*others) if others else first
