"""Changes grown one feature at a time, and exchanged one for another."""

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.methods.tree_search.best_moves import BestMoves
from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves
from holdfast.methods.tree_search.single_changes import SingleChanges, Tried

PASSES = 20  # exchanges at most
LAST = 1 << 40  # rank of what is not a candidate


def grow(changes: SingleChanges, best: BestMoves, beam: int, depth: int, further: int = 0) -> None:
    """One changed feature after the other; `further` than the depth those people who have no answer
    yet, and with half as many candidates."""
    personal = changes.personal
    front = Front.start(personal)
    gap_before = torch.empty(0)
    for step in changes.problem.steps(depth + further):
        if step == depth:
            beam = -(-beam // 2)
            front = front.of((~best.found[front.rows]).nonzero().squeeze(1), beam)
        if not len(front.rows):
            return
        tried, is_open, stays = _tried(changes, best, front, first=step == 0)
        if step == 0:
            gap_before = tried.gap.gather(1, personal.own).amax(1)
        _take(changes, best, front.rows, tried)
        # One more change is one more feature, unless one has to change anyway: it may change
        # otherwise.
        goes_on = torch.ones(len(front.rows), dtype=torch.bool)
        if best.fewest:
            goes_on = ~best.found[front.rows] | personal.must_move[front.rows]
        again = goes_on.nonzero().squeeze(1)
        shape = (*front.taken.shape[:2], len(personal.moves))
        misses = torch.where(is_open & ~tried.hit & ~stays, tried.gap, -torch.inf)
        gap = misses.view(shape)[again]
        price = tried.price.view(shape)[again].clamp_min(1e-9)
        gain = (gap - gap_before[front.rows[again]][:, None, None]) / price
        front = front.widened(again, personal.moves, gap, gain, beam)


@dataclass(frozen=True)
class Front:
    """The candidates from which people go on: at most `beam` for each."""

    rows: Tensor  # (r,) the people
    taken: Tensor  # (r, b, features) the moves of their candidates
    alive: Tensor  # (r, b) which candidates there are
    # how many candidates a row could have; how many it has is up to its neighbours
    wide: int = 1

    @classmethod
    def start(cls, personal: PersonalMoves) -> "Front":
        """Everybody, as they are."""
        taken = personal.own[:, None]
        alive = torch.ones(taken.shape[:2], dtype=torch.bool)
        return cls(torch.arange(len(personal)), taken, alive)

    def of(self, places: Tensor, beam: int) -> "Front":
        """Some of the people, with at most so many candidates."""
        return Front(
            self.rows[places], self.taken[places, :beam], self.alive[places, :beam], self.wide
        )

    def widened(
        self, places: Tensor, moves: CellMoves, gap: Tensor, gain: Tensor, beam: int
    ) -> "Front":
        """Some of the people, with the next candidates; gap and gain (r, b, moves) are theirs."""
        each = -(-2 * beam // (self.wide * self.taken.shape[2]))
        taken, alive = _widest(moves, self.taken[places], gap, gain, beam, each)
        wide = min(beam, self.wide * len(moves))
        left = alive.any(1).nonzero().squeeze(1)
        return Front(self.rows[places][left], taken[left], alive[left], wide)


def _tried(
    changes: SingleChanges, best: BestMoves, front: Front, *, first: bool
) -> tuple[Tried, Tensor, Tensor]:
    """All single changes of the candidates; which were asked about, and which change nothing, both
    (r b, moves)."""
    personal = changes.personal
    moves = personal.moves
    person = front.rows.repeat_interleave(front.taken.shape[1])
    flat = front.taken.flatten(0, 1)
    count, price, is_open = personal.singles(person, flat)
    stays = personal.own[person][:, moves.feature] == torch.arange(len(moves))
    is_open &= front.alive.reshape(-1, 1) & best.beaten(person, count, price)
    if not first:  # at first the gap before any change is asked for too
        is_open &= ~stays
    gap = changes.gaps(person, flat, is_open)
    hit = is_open & (gap > changes.problem.level)
    return Tried(person, flat, gap, hit, count, price), is_open, stays


def exchange(changes: SingleChanges, best: BestMoves, chosen: Tensor) -> None:
    """Give one feature back and change at most one instead, as long as that is better."""
    problem = changes.problem
    personal = changes.personal
    rows = chosen.nonzero().squeeze(1)
    m = len(personal.moves)
    for _ in range(PASSES):
        taken = best.taken[rows]
        unchanged = personal.own[rows]
        changed = taken != unchanged
        b = int(changed.sum(1).max()) if len(rows) else 0
        if not b or problem.budget.over():
            return
        is_changed, feature = (v[:, :b] for v in changed.sort(dim=1, descending=True, stable=True))
        back = (
            taken[:, None]
            .repeat(1, b, 1)
            .scatter(2, feature[..., None], unchanged.gather(1, feature)[..., None])
        )
        person = rows.repeat_interleave(b)
        flat = back.flatten(0, 1)
        count, price, is_open = personal.singles(person, flat)
        is_open &= is_changed.reshape(-1, 1)
        is_open &= best.beaten(rows, count.view(-1, b * m), price.view(-1, b * m)).view(-1, m)
        gap = changes.gaps(person, flat, is_open)
        hit = is_open & (gap > problem.level)
        rows = rows[_take(changes, best, rows, Tried(person, flat, gap, hit, count, price))]


def _take(changes: SingleChanges, best: BestMoves, rows: Tensor, tried: Tried) -> Tensor:
    """`BestMoves.take` of what keeps the rules; the best of what does not is tried with other
    columns moved for it."""
    problem = changes.problem
    personal = changes.personal
    if not len(problem.feasible.encoding.rules):
        return best.take(rows, changes.confirmed(rows, tried, fewest=best.fewest))
    kept = personal.keep_rules(tried.person, tried.taken)
    won = best.take(
        rows, changes.confirmed(rows, tried._replace(hit=tried.hit & kept), fewest=best.fewest)
    )
    other = BestMoves(personal, fewest=best.fewest)
    other.take(rows, tried._replace(hit=tried.hit & ~kept))
    repairable = rows[other.found[rows]]
    if not len(repairable):
        return won
    taken = other.taken[repairable]
    best.keep(repairable, taken, *best.repaired(problem, repairable, taken))
    return won


def _widest(
    moves: CellMoves, taken: Tensor, gap: Tensor, gain: Tensor, beam: int, each: int
) -> tuple[Tensor, Tensor]:
    """The next candidates (r, beam, features) of each row, and which of them there are: in turn
    those with the largest gap and with the largest gain per cost, so many of each candidate and
    feature, none twice."""
    rank, state, move = _ranked(moves, gap, gain, beam, each)
    r = len(gap)
    people = torch.arange(r)[:, None]
    feature = moves.feature[move]
    replaced = taken[people, state, feature]
    # Two ways to the same candidate have the same sum of codes: the later one does not count.
    code = _code(taken).sum(-1).gather(1, state) + _code(move) - _code(replaced)
    in_order, place = code.sort(dim=1, stable=True)
    again = torch.zeros_like(rank, dtype=torch.bool)
    again.scatter_(1, place[:, 1:], in_order[:, 1:] == in_order[:, :-1])
    rank, order = torch.where(again, LAST, rank).sort(dim=1, stable=True)
    order = order[:, : int((rank[:, :beam] < LAST).sum(1).max()) if r else 0]
    state = state.gather(1, order)
    move = move.gather(1, order)
    feature = feature.gather(1, order)
    widest = taken[people, state].scatter(2, feature[..., None], move[..., None])
    return widest, rank[:, : order.shape[1]] < LAST


def _ranked(
    moves: CellMoves, gap: Tensor, gain: Tensor, beam: int, each: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(r, c) rank, candidate and move of what comes next, the two orders in turn; some of them
    twice."""
    b, m = gap.shape[1:]
    picks = list[Tensor]()
    ranks = list[Tensor]()
    for turn, value in enumerate((gap, gain)):
        value = torch.where(gap > -torch.inf, value, -torch.inf)
        parts = [_top(value[:, :, first:last], each, first) for first, last in moves.spans]
        values = torch.cat([part for part, _ in parts], 2).flatten(1)
        move = torch.cat([part for _, part in parts], 2)
        move = (move + torch.arange(b)[:, None] * m).flatten(1)  # (r, b c)
        values, order = values.sort(dim=1, descending=True, stable=True)
        picks.append(move.gather(1, order)[:, : 2 * beam])
        rank = 2 * torch.arange(values.shape[1]) + turn
        ranks.append(torch.where(values > -torch.inf, rank, LAST)[:, : 2 * beam])
    rank, order = torch.cat(ranks, 1).sort(dim=1, stable=True)
    pick = torch.cat(picks, 1).gather(1, order)
    return rank, pick // m, pick % m


def _top(value: Tensor, count: int, first: int) -> tuple[Tensor, Tensor]:
    """The largest of (r, b, c), and their places counted from `first`."""
    if count == 1:
        top, place = value.max(2, keepdim=True)
    else:
        top, place = (v[:, :, :count] for v in value.sort(dim=2, descending=True, stable=True))
    return top, place + first


def _code(move: Tensor) -> Tensor:
    """A number for each move; candidates are told apart by the sum of those of their moves."""
    z = (move + 1) * -7046029254386353131
    return (z ^ (z >> 29)) * -4658895280553007687
