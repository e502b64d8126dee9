"""The search of many people, one after the other: none looks at what is found for another."""

from typing import NamedTuple

import numpy as np

from holdfast._core.compiled import compiled
from holdfast._core.types import Array, Ints, Mask
from holdfast.methods.tree_search.boxes.descend import UNSURE, Rules, descend
from holdfast.methods.tree_search.boxes.ensemble import Ensemble
from holdfast.methods.tree_search.boxes.person import Goal, own_model


class Questions(NamedTuple):
    """What n people can do, and the best they know."""

    cost: Array  # (n, M) of each move, inf where it cannot be made
    moved: Mask  # (n, M) does it change the feature?
    own: Ints  # (n, F) the moves that change nothing
    closed: Mask  # (n, L) leaves that features without moves exclude
    rest: Array  # (n,) what these features cost
    term: Array  # (n, R, M) what each move adds to each rule
    room: Array  # (n, R) what these sums may be
    changed: Ints  # (n,) how many of the features without moves change
    limit: Array  # (n,) the cost of the best plan known, inf where there is none
    near: Array  # (n,) by which share of itself a plan must be cheaper to be worth finding


class Solved(NamedTuple):
    """What came of it."""

    found: Mask  # (n,) a plan that is cheaper than the limit
    cost: Array  # (n,)
    taken: Ints  # (n, F) its moves
    lower: Array  # (n,) no plan costs less
    looked: Ints  # (n,) boxes
    asked: Ints  # (n,) how many points may be plans: the model must be asked
    unsure: Ints  # (n, u, F) their moves
    price: Array  # (n, u) what they cost


@compiled
def solve(ens: Ensemble, goal: Goal, asked: Questions, changes: int, nodes: int) -> Solved:
    """Search for the cheapest plan of each person.

    Args:
        ens: the leaves.
        goal: what they must add up to.
        asked: the questions.
        changes: features that may change, at most; 0: any number.
        nodes: boxes looked at for each person, at most.
    """
    n, features = asked.own.shape
    out = Solved(
        np.zeros(n, np.bool_),
        asked.limit.copy(),
        asked.own.copy(),
        np.zeros(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros((n, UNSURE, features), np.int64),
        np.full((n, UNSURE), np.inf),
    )
    for i in range(n):
        limit = asked.limit[i]
        near = asked.near[i]
        rules = Rules(asked.term[i], asked.room[i], changes, asked.changed[i])
        is_open, own = own_model(
            ens,
            goal,
            asked.cost[i],
            asked.moved[i],
            asked.own[i],
            asked.closed[i],
            asked.rest[i],
            limit - near * limit if limit < np.inf else limit,
        )
        if not is_open:  # even the cheapest cells cost more
            out.lower[i] = limit
            continue
        found = descend(own, asked.moved[i], rules, limit, near, nodes)
        out.found[i] = found.found
        out.cost[i] = found.cost
        if found.found:
            out.taken[i] = found.taken
        out.lower[i] = found.lower
        out.looked[i] = found.looked
        out.asked[i] = len(found.unsure)
        out.unsure[i, : len(found.unsure)] = found.unsure
        out.price[i, : len(found.price)] = found.price
    return out
