"""What every single change of a candidate does to S_c, the bound over a bank.

All leaves of tree models are known, so all of these are asked about every change, in one program.
With other models a few, the screen, are asked about every change, and all of them about the
candidate itself. The screen is taken to be as far off one change further as it is there,

    S_c(change)  ~  S_c(candidate) + screen(change) - screen(candidate),

and the cheapest successes by that are confirmed by all.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from holdfast._core.rows import chunks, rows_per_chunk
from holdfast.methods.survival_search.guide import margins_of
from holdfast.methods.survival_search.leaf_stack import LeafStack, PersonalLeaves
from holdfast.methods.survival_search.problem import SurvivalProblem
from holdfast.methods.tree_search.moves import PersonalMoves, around, rounded
from holdfast.methods.tree_search.single_changes import SingleChanges, Tried
from holdfast.models.base import Model
from holdfast.models.compiled.tree_leaves import Cells

SCREEN = 4  # models asked about every change
CONFIRMED = 3  # of a row's successes by the screen, how many all models are asked about
ROUNDING = 1e-5  # how far mean and standard deviation may be off in single precision
LEAVES = 1 << 22  # of all candidates and models at once: their tables stay in the cache
MOST_CUTS = 64  # of a feature; if there are more, quantiles of them
ROWS = 1 << 15  # rows a model is asked about at once


def union_cells(models: Sequence[Model]) -> tuple[list[Cells], bool]:
    """The cells of every feature that some model tests, between the thresholds of all models, or
    between quantiles of them if they are too many. Of cells between the same two values of a grid
    one will do. Also: are these all cells?"""
    model = models[0]
    exact = True
    by_feature: dict[int, list[Cells]] = {}
    for one in models:
        assert one.thresholds is not None
        for cells in one.thresholds.cells:
            by_feature.setdefault(cells.feature, []).append(cells)
    out = list[Cells]()
    for feature, parts in sorted(by_feature.items()):
        known = [c.cuts for c in parts if c.cuts is not None]
        cuts = np.sort(np.concatenate(known)) if known else None
        if cuts is not None:
            f = model.schema.features[feature]
            first = np.unique(
                around(cuts, f, model.dtype)[0] if f.grid else cuts, return_index=True
            )[1]
            if len(first) > MOST_CUTS:  # more of them where the models have more
                places = (np.arange(MOST_CUTS) + 0.5) / MOST_CUTS * len(cuts)
                first = np.unique(first[np.searchsorted(first, places, side="right") - 1])
                exact = False
            cuts = cuts[first]
        out.append(Cells(feature, parts[0].at, cuts, parts[0].has_gap))
    return out, exact


class BankLeafChanges(SingleChanges):
    """Of tree models; the model itself is the first of the stack."""

    def __init__(
        self, problem: SurvivalProblem, personal: PersonalMoves, stack: LeafStack, *, exact: bool
    ) -> None:
        super().__init__(problem, personal)
        self.bank = problem
        self.exact = exact
        self.leaves = PersonalLeaves(stack, personal)

    def gaps(self, person: Tensor, taken: Tensor, tried: Tensor) -> Tensor:
        out = torch.full(tried.shape, -torch.inf, dtype=torch.float64)
        stack = self.leaves.stack
        bank = self.bank
        off = 0.0 if stack.dtype == torch.float64 else ROUNDING
        active = tried.any(1).nonzero().squeeze(1)
        for some in chunks(active, rows_per_chunk(len(stack) * stack.width, LEAVES, at_least=8)):
            move, state = tried[some].T.nonzero(as_tuple=True)
            # (G, p, k)
            raw = self.leaves.raw(person[some], taken[some], state, move)
            who = person[some[state]]
            margins = margins_of(raw, bank.goal[who], stack.outputs)
            own = bank.guide.squashed(margins[0])
            gap = torch.minimum(own, bank.bound_of(margins[1:], margins[0], who) - off).double()
            out[some[state], move] = rounded(gap + bank.goal.margin)
        return out


class BankChanges(SingleChanges):
    """Of any models."""

    exact = False

    def __init__(
        self, problem: SurvivalProblem, personal: PersonalMoves, screen: Sequence[Model]
    ) -> None:
        super().__init__(problem, personal)
        self.bank = problem
        self.models = problem.model, *screen

    def gaps(self, person: Tensor, taken: Tensor, tried: Tensor) -> Tensor:
        asked = tried.scatter(1, taken[:, :1], True)  # the candidate as it is, too
        margins = torch.full((len(self.models), *tried.shape), -torch.inf, dtype=torch.float64)
        state, move = asked.nonzero(as_tuple=True)
        z = self.personal.rows(person, taken)
        bank = self.bank
        for some in chunks(torch.arange(len(state)), ROWS):
            who = person[state[some]]
            to = move[some]
            rows = self.personal.after(z[state[some]], who, to)
            goal = bank.goal[who]
            for i, model in enumerate(self.models):
                gap = goal.gap(model(rows.to(model.dtype))) - goal.margin
                margins[i, state[some], to] = gap.double()
        part = bank[person]
        screen = part.bound_of(margins[1:], margins[0])
        bound = screen + (part.bound(z)[:, None] - screen.gather(1, taken[:, :1]))
        gap = torch.minimum(bank.guide.squashed(margins[0]), bound) + bank.goal.margin
        return torch.where(tried, rounded(gap), -torch.inf)

    def confirmed(self, rows: Tensor, tried: Tried, *, fewest: bool) -> Tried:
        """What was tried; of each row's cheapest successes, only those that all models confirm
        remain."""
        r = len(rows)
        m = tried.hit.shape[1]
        hit = tried.hit.view(r, -1)
        price = tried.price.view(r, -1)
        if fewest:
            count = tried.changed.view(r, -1)
            hit = hit & (count == torch.where(hit, count, count.max() + 1).amin(1, keepdim=True))
        cheapest = torch.where(hit, price, torch.inf).sort(dim=1, stable=True)
        chosen = cheapest.values[:, :CONFIRMED].isfinite()
        which = cheapest.indices[:, :CONFIRMED]
        row, place = chosen.nonzero(as_tuple=True)
        at = which[row, place]
        state = row * (hit.shape[1] // m) + at // m
        move = at % m
        taken = tried.taken[state].scatter(
            1, self.personal.moves.feature[move][:, None], move[:, None]
        )
        who = tried.person[state]
        hit = torch.zeros_like(hit)
        if len(who):
            ok = self.bank[who].gap(self.personal.rows(who, taken)) > 0
            hit[row[ok], at[ok]] = True
        return tried._replace(hit=hit.view(tried.hit.shape))
