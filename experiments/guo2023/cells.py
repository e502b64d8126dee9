"""The cells: one data set, one method, one seed; and what each of them measures."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import holdfast as hf
from experiments.cell import Cell, Outcome, hash_of
from experiments.guo2023 import attack, methods
from experiments.guo2023.measure import crossed, prediction
from experiments.guo2023.networks import (
    Predictors,
    Search,
    Where,
    generators,
    joint,
    of_generators,
    of_networks,
)
from experiments.guo2023.task import DATASETS, REAL, Task
from experiments.parts import Parts
from holdfast.methods.amortized._joint_settings import JointSettings

PAPER = "guo2023"
LOAN = "sba_loan"
# How many seeds: of the algorithm as printed, of other networks, of searches and generators.
SEEDS = {
    "german_credit": (20, 10, 3),
    "student": (20, 10, 3),
    LOAN: (3, 3, 3),
    "covariate_shift": (5, 5, 0),
    "label_shift": (5, 5, 0),
}
# On the loans, test rows of each year that searches are asked about.
ROWS = {"rbr": 200}
OTHER_ROWS = 500
# Minutes, about: of a training that is attacked, of another one, and of a search.
MINUTES = {LOAN: (70.0, 10.0, 8.0)}
USUAL = (0.1, 0.02, 0.3)
LONGEST = 4.0  # minutes of a stretch of training
# Figures 3 to 6: with a quarter of the rows on the loans.
CURVE_SHARE = {LOAN: 0.25}
STEPS = (1, 3, 15)  # T; the tables have 7
SIZES = (0.01, 0.05, 0.2, 0.5)  # E; the tables have 0.1
SCHEDULES = ("log", "static")  # the tables have "linear"
L3 = (0.01, 0.03, 0.3, 1.0)  # the tables have 0.1
LAM = (0.1, 1.0, 2.0)  # of ROAR-LIME; the tables have 0.5
RADII = (0.0, 1.0)  # e_op = e_pe of RBR; the tables have 0.5
FEW = 50  # rows of each subset that Figure 3 asks searches about
SHARES = (0.02, 0.05, 0.1)  # of the training rows; the tables have all


@dataclass(frozen=True)
class Curve:
    """A point of Figures 3 to 6: networks as in the tables, but for one setting.

    Args:
        figure: of the paper.
        varied, value: the setting, as the page calls it.
        method: the row of the tables that it differs from.
        how: its settings.
        share: of the training rows.
    """

    figure: str
    varied: str
    value: float | str
    method: str
    how: JointSettings
    share: float

    @property
    def group(self) -> str:
        return f"{self.varied}-{self.value}-{self.method}"


def curves(dataset: str) -> list[Curve]:
    """All points of a data set, besides those that the tables have; on the loans the share of the
    rows that curves have is a point of Figure 5."""
    known = methods.networks(dataset)
    printed = known[methods.PRINTED]
    shift = printed.shift
    assert shift is not None
    share = CURVE_SHARE.get(dataset, 1.0)
    point = partial(Curve, method=methods.PRINTED, share=share)
    out = [
        point("Figure 4b, e", "T", steps, how=replace(printed, shift=replace(shift, outer=steps)))
        for steps in STEPS
    ]
    out += [
        point("Figure 4c, f", "E", size, how=replace(printed, shift=replace(shift, epsilon=size)))
        for size in SIZES
    ]
    out += [
        point("Figure 6", "schedule", schedule, how=replace(printed, schedule=schedule))
        for schedule in SCHEDULES
    ]
    for method in (methods.PRINTED, "counternet"):
        how = known[method]
        out += [Curve("Figure 3", "l3", l3, method, replace(how, l3=l3), share) for l3 in L3]
        shares = sorted({*SHARES, share} - {1.0})
        out += [Curve("Figure 5", "share", part, method, how, part) for part in shares]
    return out


def search_curves() -> list[Search]:
    """The points of Figure 3 that are searches."""
    roar = [Search(f"lam-{lam}-roar-lime", partial(hf.ROAR.lime, lam=lam), FEW) for lam in LAM]
    rbr = [Search(f"e-{e}-rbr", partial(hf.RBR, e_op=e, e_pe=e, relaxed=True), FEW) for e in RADII]
    return [*roar, *rbr]


# ---- what a cell measures


def _data(task: Task) -> str:
    return hash_of(task.x, task.y, task.train, task.test)


def of_network(group: str, how: JointSettings, where: Where, parts: Parts) -> Outcome:
    """A row of Tables 2 and 6 to 9, or a point of a curve."""
    task = where.task
    stack, seconds = joint(parts, group, how, where)
    predictors = Predictors(stack)
    figures = prediction(task, predictors.logits) | {"seconds of training": round(seconds, 2)}
    kept = dict[str, Any]()
    if how.l2:
        found, kept = crossed(task, predictors.scores, of_networks(task, stack))
        figures |= found
    return Outcome(figures, {where.dataset: _data(task)}, kept)


def of_generator(group: str, where: Where, parts: Parts) -> Outcome:
    """A row of Table 3."""
    task = where.task
    base, _ = joint(parts, methods.BASE, methods.base(where.dataset), where)
    kind = methods.generators(where.dataset)[group]
    made, seconds = generators(parts, group, kind, base, where)
    answers = of_generators(task, base, made, where.seed)
    figures, kept = crossed(task, Predictors(base).scores, answers)
    figures |= {"seconds of training": round(seconds, 2)}
    return Outcome(figures, {where.dataset: _data(task)}, kept)


def of_search(search: Search, where: Where, parts: Parts) -> Outcome:
    """A row of Table 2 or 8."""
    task = where.task
    how = methods.base(where.dataset)
    base, _ = joint(parts, methods.BASE, how, where)
    answers = search.answers(parts, where, base, how)
    figures, kept = crossed(task, Predictors(base).scores, answers, search.rows)
    return Outcome(figures, {where.dataset: _data(task)}, kept)


def under_attack(group: str, how: JointSettings, where: Where, parts: Parts) -> Outcome:
    """Lines of Figures 4a, 4d and 12a."""
    task = where.task
    stack, _ = joint(parts, group, how, where)
    return Outcome(attack.validities(parts, stack, where), {where.dataset: _data(task)})


# ---- all of them


def cells() -> list[Cell]:
    """Every cell of the paper, the cheap one first."""
    out = [check()]
    for dataset in DATASETS:
        out += [*_networks(dataset)]
        if dataset in REAL:
            out += [*_searches(dataset), *_generators(dataset), *_curves(dataset)]
    return out


def _cell(
    dataset: str,
    group: str,
    seed: int,
    make: Callable[[Parts], Outcome],
    settings: Any,
    minutes: float,
) -> Cell:
    longest = LONGEST if dataset == LOAN else None
    return Cell(PAPER, dataset, group, seed, make, settings, minutes, longest)


def _networks(dataset: str) -> list[Cell]:
    """The tables' networks, and those that only predict."""
    of_printed, of_others, _ = SEEDS[dataset]
    attacked, plain, _ = MINUTES.get(dataset, USUAL)
    out = list[Cell]()
    for group, how in {methods.BASE: methods.base(dataset), **methods.networks(dataset)}.items():
        minutes = plain if how.checked().shift is None else attacked
        for seed in range(of_printed if group == methods.PRINTED else of_others):
            make = partial(of_network, group, how, Where(dataset, seed))
            out.append(_cell(dataset, group, seed, make, how.checked(), minutes))
    return out


def _searches(dataset: str) -> list[Cell]:
    out = list[Cell]()
    for group, make in methods.searches().items():
        rows = ROWS.get(group, OTHER_ROWS) if dataset == LOAN else None
        search = Search(group, make, rows)
        out += [_search_cell(dataset, search, seed) for seed in range(SEEDS[dataset][2])]
    return out


def _search_cell(dataset: str, search: Search, seed: int) -> Cell:
    settings = {
        "method": repr(search.make()),
        "rows": search.rows,
        "base": methods.base(dataset),
    }
    make = partial(of_search, search, Where(dataset, seed))
    minutes = MINUTES.get(dataset, USUAL)[2]
    return _cell(dataset, search.group, seed, make, settings, minutes)


def _generators(dataset: str) -> list[Cell]:
    attacked, plain, _ = MINUTES.get(dataset, USUAL)
    out = list[Cell]()
    for group, kind in methods.generators(dataset).items():
        settings = {"generator": kind, "base": methods.base(dataset)}
        for seed in range(1 if dataset == LOAN else SEEDS[dataset][2]):
            make = partial(of_generator, group, Where(dataset, seed))
            minutes = plain if kind.shift is None else attacked
            out.append(_cell(dataset, group, seed, make, settings, minutes))
    return out


def _curves(dataset: str) -> list[Cell]:
    """Of the first seed."""
    attacked, plain, searched = MINUTES.get(dataset, USUAL)
    out = list[Cell]()
    for group in attack.ATTACKED:
        how = methods.networks(dataset)[group]
        make = partial(under_attack, group, how, Where(dataset, 0))
        settings = {"network": how.checked(), "attack": attack.settings(dataset)}
        out.append(_cell(dataset, f"attack-{group}", 0, make, settings, searched))
    for curve in curves(dataset):
        make = partial(of_network, curve.group, curve.how, Where(dataset, 0, curve.share))
        minutes = curve.share * (plain if curve.how.shift is None else attacked)
        settings = {"network": curve.how, "share": curve.share}
        out.append(_cell(dataset, curve.group, 0, make, settings, minutes))
    return out + [_search_cell(dataset, search, 0) for search in search_curves()]


def check() -> Cell:
    """The cheap one: a CounterNet before and after a simulated shift."""
    dataset = "covariate_shift"
    how = methods.networks(dataset)["counternet"]

    def make(parts: Parts) -> Outcome:
        outcome = of_network("counternet", how, Where(dataset, 0), parts)
        figures = {
            name: figure for name, figure in outcome.figures.items() if "seconds" not in name
        }
        return replace(outcome, figures=figures, arrays={})

    return Cell(PAPER, dataset, "check", 0, make, how, 0.1)
