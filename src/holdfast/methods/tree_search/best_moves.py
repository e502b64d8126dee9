"""The best moves found so far for each person, and which of two would be better."""

import torch
from torch import Tensor

from holdfast.methods.tree_search.moves import PersonalMoves, repaired, rounded
from holdfast.methods.tree_search.single_changes import Tried
from holdfast.problem import SearchProblem


class BestMoves:
    """The best candidate that succeeds for each person, and the nearest miss where there is none:
    that with the fewest changed features, and among these the lowest price; or the lowest price
    alone."""

    def __init__(self, personal: PersonalMoves, *, fewest: bool) -> None:
        self.personal = personal
        self.fewest = fewest
        n = len(personal)
        self.taken = personal.own.clone()
        self.count = torch.full((n,), torch.iinfo(torch.int64).max)
        self.price = torch.full((n,), torch.inf, dtype=torch.float64)
        self.miss = torch.full((n,), -torch.inf, dtype=torch.float64)

    @property
    def found(self) -> Tensor:
        """(n,) people with a candidate that succeeds."""
        return self.price.isfinite()

    def beaten(self, rows: Tensor, count: Tensor, price: Tensor) -> Tensor:
        """(r, ...) would candidates of some rows with that many changes and that price be
        better?"""
        shape = [-1] + [1] * (count.ndim - 1)
        fewer = count - self.count[rows].view(shape)
        cheaper = price < self.price[rows].view(shape)
        return cheaper & (fewer <= 0) | (fewer < 0) if self.fewest else cheaper

    def offer(self, rows: Tensor, taken: Tensor, ok: Tensor) -> None:
        """Keep moves (r, features) of some rows where they are `ok` and better."""
        self.keep(rows, taken, ok, *self.personal.cost(rows, taken))

    def keep(self, rows: Tensor, taken: Tensor, ok: Tensor, count: Tensor, price: Tensor) -> None:
        """The same, with what they cost."""
        better = (ok & self.beaten(rows, count, price)).nonzero().squeeze(1)
        self.taken[rows[better]] = taken[better]
        self.count[rows[better]] = count[better]
        self.price[rows[better]] = price[better]

    def repaired(
        self, problem: SearchProblem, rows: Tensor, taken: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Moves (r, features) of some rows, with other columns moved where they break a rule: (r,)
        whether they succeed then, how many features change, and the price."""
        encoding = problem.feasible.encoding
        part = problem[rows]
        z = repaired(part.feasible, self.personal.rows(rows, taken))
        ok = part.feasible.contains(z) & part.met_exactly(z)
        changed = (encoding.per_feature((z != part.x).to(z.dtype)) > 0).sum(1)
        price = rounded(((z - part.x).abs() * encoding.weight).double().sum(1))
        return ok, changed, price

    def take(self, rows: Tensor, tried: Tried) -> Tensor:
        """Keep the best success among what was tried for each row, or, where there is none yet,
        what has the largest gap; the places of the rows that got better."""
        r = len(rows)
        moves = tried.hit.shape[1]
        gap = tried.gap.view(r, -1)
        hit = tried.hit.view(r, -1)
        count = tried.changed.view(r, -1)
        price = tried.price.view(r, -1)
        if self.fewest:
            least = torch.where(hit, count, count.max() + 1).amin(1, keepdim=True)
            hit = hit & (count == least)
        # Of each row one candidate: the cheapest success, or else the largest gap.
        top, farthest = gap.max(1)
        succeeds = hit.any(1)
        chosen = torch.where(succeeds, torch.where(hit, price, torch.inf).argmin(1), farthest)
        count = count.gather(1, chosen[:, None]).squeeze(1)
        price = price.gather(1, chosen[:, None]).squeeze(1)
        wins = succeeds & self.beaten(rows, count, price)
        nearer = ~succeeds & ~self.found[rows] & (top > self.miss[rows])
        # What was tried for a row is its candidates times the moves, in this order.
        better = (wins | nearer).nonzero().squeeze(1)
        state = better * (gap.shape[1] // moves) + chosen[better] // moves
        move = chosen[better] % moves
        feature = self.personal.moves.feature[move][:, None]
        self.taken[rows[better]] = tried.taken[state].scatter(1, feature, move[:, None])
        self.miss[rows] = torch.maximum(self.miss[rows], top)
        won = wins.nonzero().squeeze(1)
        self.count[rows[won]] = count[won]
        self.price[rows[won]] = price[won]
        return won
