"""From the candidates of a search to boxes and back: answers made cheaper, and lower bounds."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast._core.compiled import IS_COMPILED, say_that_it_is_slow
from holdfast._core.types import Array
from holdfast.methods.tree_search.best_moves import BestMoves
from holdfast.methods.tree_search.boxes.ensemble import ensemble_of, values_of
from holdfast.methods.tree_search.boxes.people import Questions, Solved, solve
from holdfast.methods.tree_search.boxes.person import Goal
from holdfast.methods.tree_search.branch_and_bound import LinearGoal, succeeds
from holdfast.methods.tree_search.moves import PersonalMoves
from holdfast.methods.tree_search.single_changes import LeafChanges
from holdfast.problem import SLACK

NEAR = 1e-7  # a plan that is cheaper by a smaller share is not worth finding
PLAIN = 16  # boxes of a row without a compiler, at most
BOXES = 256  # of a row with one: nine in ten answers of a hundred trees are proved by then


@dataclass(frozen=True)
class Prices:
    """What moves cost, as one number each: with `fewest` every changed feature counts more than
    all prices together."""

    cost: Array  # (n, M)
    rest: Array  # (n,)
    unit: Array  # (n,) of a price
    fewest: bool

    @staticmethod
    def of(personal: PersonalMoves, rows: Tensor, *, fewest: bool) -> "Prices":
        price = personal.price[rows].numpy()
        rest = personal.rest_price[rows].numpy()
        if not fewest:
            return Prices(price, rest, np.ones(len(rows)), fewest)
        reachable = np.where(np.isfinite(price), price, 0.0)
        most = rest + sum(reachable[:, a:b].max(1) for a, b in personal.moves.spans)
        # a power of two: nothing is rounded
        unit = 2.0 ** -np.ceil(np.log2(1.0 + most))
        cost = personal.moved[rows].numpy() + unit[:, None] * price
        return Prices(cost, personal.rest_count[rows].numpy() + unit * rest, unit, fewest)

    def joined(self, count: Tensor, price: Tensor) -> Array:
        """(n,) what plans cost that change so many features at such a price."""
        if not self.fewest:
            return price.numpy()
        return np.where(price.isfinite().numpy(), count.numpy() + self.unit * price.numpy(), np.inf)

    def parted(self, cost: Array) -> tuple[Tensor, Tensor]:
        """The way back: (n,) how many features, and the price."""
        if not self.fewest:
            return torch.zeros(len(cost), dtype=torch.int64), torch.tensor(cost)
        count = np.floor(np.where(np.isfinite(cost), cost, 0.0))
        return torch.tensor(count.astype(np.int64)), torch.tensor((cost - count) / self.unit)


def usual_boxes() -> int:
    """How many boxes a row is worth where nobody has said it."""
    return BOXES if IS_COMPILED else 0


def improve(
    changes: LeafChanges, best: BestMoves, rows: Tensor, nodes: int
) -> tuple[Tensor, Tensor]:
    """Look for cheaper plans of some rows (r,).

    Args:
        changes: the model and the people.
        best: the best plans so far; made better.
        rows: whose.
        nodes: boxes looked at for each row, at most.

    Returns:
        What no plan can beat: (r,) the fewest changed features, if they count, and the least price
        of plans that change no more; NaN where nothing is known.
    """
    table = changes.table
    least_count = torch.zeros(len(rows), dtype=torch.int64)
    least_price = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    if table.k == 1 and table.outputs == "probabilities":
        return least_count, least_price
    if not IS_COMPILED and nodes > PLAIN:
        say_that_it_is_slow("the search for the cheapest change of trees")
        nodes = PLAIN
    labels = changes.problem.goal.label[rows]
    for label in range(changes.problem.goal.k):
        goal = LinearGoal.of(changes.problem, label, table.k, table.outputs)
        same = (labels == label).nonzero().squeeze(1)
        if not len(same):
            continue
        parts = [goal] if goal.every else goal.one_by_one()
        found = [_improve(changes, best, rows[same], nodes, part, label) for part in parts]
        # Where any of several functions is enough, the lowest of their bounds counts.
        count, price = (torch.stack(v) for v in zip(*found, strict=True))
        least_count[same] = count.amin(0)
        lowest = torch.where(count == count.amin(0), price, torch.inf)
        least_price[same] = lowest.amin(0)
    return least_count, least_price


def _improve(
    changes: LeafChanges, best: BestMoves, rows: Tensor, nodes: int, linear: LinearGoal, label: int
) -> tuple[Tensor, Tensor]:
    """The same for rows that want one class, by functions all of which must be above zero; returns
    the bounds."""
    personal = changes.personal
    ens = ensemble_of(changes.table, personal.moves)
    prices = Prices.of(personal, rows, fewest=best.fewest)
    asked = questions(changes, rows, prices)
    limit = prices.joined(best.count[rows], best.price[rows])
    most = changes.problem.feasible.encoding.max_changes
    solved = solve(ens, _goal(changes, linear, label), asked._replace(limit=limit), most, nodes)
    _offer(changes, best, rows, solved)
    return prices.parted(np.minimum(solved.lower, _accepted(changes, best, rows, solved)))


def questions(changes: LeafChanges, rows: Tensor, prices: Prices) -> Questions:
    """What people can do, in numbers; the best that they know is left open."""
    personal = changes.personal
    term, room = _rules(changes, rows)
    return Questions(
        prices.cost,
        personal.moved[rows].numpy(),
        personal.own[rows].numpy(),
        changes.outside_fixed[rows].numpy() > 0,
        prices.rest,
        term,
        room,
        personal.rest_count[rows].numpy(),
        np.zeros(0),
        NEAR * prices.unit,
    )


def _rules(changes: LeafChanges, rows: Tensor) -> tuple[Array, Array]:
    """(n, R, M) what each move adds to each rule, and (n, R) how much room there is; a rule about a
    number that stays missing cannot be broken."""
    personal = changes.personal
    moves = personal.moves
    encoding = personal.feasible.encoding
    if not len(encoding.rules):
        return np.zeros((len(rows), 0, len(moves))), np.zeros((len(rows), 0))
    weights = encoding.rules.double()
    value = personal.value[rows].double()
    term = torch.where(
        weights[:, moves.column] == 0, 0.0, value[:, None] * weights[:, moves.column]
    )
    gone = moves.to_missing & (weights[:, moves.column] != 0)
    term = torch.where(gone, -torch.inf, term)
    owners = torch.zeros(encoding.features, dtype=torch.bool)
    owners[encoding.owner[moves.column]] = True
    rest = ~owners[encoding.owner]
    start = personal.start[rows].double()
    number, missing = encoding.gaps
    fixed = (start * rest) @ weights.T
    unknown = ((start[:, missing] > 0.5) & rest[number])[:, None] & (weights[:, number] != 0)
    room = encoding.bounds.double() - fixed
    slack = 8 * torch.finfo(personal.start.dtype).eps * (1 + encoding.bounds.double().abs())
    room = torch.where(unknown.any(2), torch.inf, room + slack)
    return np.ascontiguousarray(term.numpy()), room.numpy()


def _goal(changes: LeafChanges, linear: LinearGoal, label: int) -> Goal:
    """What the leaves must add up to. Levels apart by the last digits are for the model to judge,
    unless it is known to say yes to all."""
    leaves = changes.table.leaves
    level = -(leaves.start @ linear.weights.T / leaves.share + linear.constants).numpy()
    unsure = np.full(len(level), SLACK)
    if changes.table.outputs == "probabilities":
        unsure *= linear.weights.abs().amax(1).numpy()
    enough = level - unsure if changes.tie_wins(label) else level + unsure
    if linear.relaxed:
        enough = np.full(len(level), np.inf)
    return Goal(values_of(changes.table, linear.weights.numpy()), level - unsure, enough)


def _offer(changes: LeafChanges, best: BestMoves, rows: Tensor, solved: Solved) -> None:
    """Keep what was found, where the model agrees."""
    found = np.flatnonzero(solved.found)
    if len(found):
        whose = rows[torch.tensor(found)]
        taken = torch.tensor(solved.taken[found])
        best.offer(whose, taken, succeeds(changes, whose, taken))


def _accepted(changes: LeafChanges, best: BestMoves, rows: Tensor, solved: Solved) -> Array:
    """(n,) what the cheapest point costs that the model accepts, of those it must be asked about;
    they are kept too."""
    who, which = np.nonzero(np.isfinite(solved.price))
    cheapest = np.full(len(rows), np.inf)
    if not len(who):
        return cheapest
    whose = rows[torch.tensor(who)]
    taken = torch.tensor(solved.unsure[who, which])
    ok, count, price = best.repaired(changes.problem, whose, taken)
    np.minimum.at(cheapest, who[ok.numpy()], solved.price[who, which][ok.numpy()])
    # of each row the best of them
    order = np.lexsort((price.numpy(), count.numpy() * best.fewest, ~ok.numpy(), who))
    first = torch.tensor(order[np.unique(who[order], return_index=True)[1]])
    best.keep(whose[first], taken[first], ok[first], count[first], price[first])
    return cheapest
