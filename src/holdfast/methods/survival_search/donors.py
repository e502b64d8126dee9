"""People take over all they can from the data rows that retrained models are surest of.

Where nearly all models must agree, adding one change after the other may stop short of the few
places that are sure enough: the rows between them and the person are not better. Instead the data
rows whose mean margin leads by the most deviations are tried, as near to them as the person can
come.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from holdfast.methods._data import DataMethod
from holdfast.methods.survival_search.problem import TINY, SurvivalProblem
from holdfast.methods.tree_search.best_moves import BestMoves
from holdfast.methods.tree_search.moves import PersonalMoves

LIKELY = 256  # data rows, the surest by the model in use, that the guide is asked about
DONORS = 32  # of these, the surest by the guide


def offer_donors(
    problem: SurvivalProblem, personal: PersonalMoves, best: BestMoves, data: DataMethod
) -> None:
    """Offer people who have no answer yet what each donor makes of them."""
    lost = (~best.found).nonzero().squeeze(1)
    if not len(lost):
        return
    for people, donors in donors_of(problem[lost], data):
        person = lost[people].repeat_interleave(len(donors))
        many = problem[person]
        taken = personal.moves.within(many.feasible.project(donors.repeat(len(people), 1)))
        z = personal.rows(person, taken)
        ok = (many.feasible.contains(z) & many.met(z)).view(-1, len(donors))
        taken = taken.view(*ok.shape, -1)
        for k in range(len(donors)):
            best.offer(lost[people], taken[:, k], ok[:, k])


def donors_of(problem: SurvivalProblem, data: DataMethod) -> Iterator[tuple[Tensor, Tensor]]:
    """For each label the people (r,) who have it, and the data rows (k, d) surest to get what they
    ask for."""
    for people, rows in data.data_by_label(problem):
        asked = problem[people[:1].expand(len(rows))]
        rows = rows[_largest(asked.own_margin(rows), LIKELY)]
        asked = asked[torch.arange(len(rows))]
        margins = asked.guide.judged(asked.guide.margins(rows, asked.goal), asked.own_margin(rows))
        sd, mean = torch.std_mean(margins, 0)
        yield people, rows[_largest(mean / sd.clamp_min(TINY), DONORS)]


def _largest(values: Tensor, count: int) -> Tensor:
    """The places of the largest values; of equal ones, the first comes first."""
    return values.sort(descending=True, stable=True).indices[:count]
