"""Who wins a tie: where two classes have the same score, the `predict` of a model decides, mostly
for the same one.

Trees have ties: of ten trees that are sure, five may say yes. To ask the model about each of them
would take too long, so it is asked about some, once for each class that is wanted and the first
class that it is level with. Where it always gives the same answer, that is the rule. Where not, as
sums in which ties are a matter of the last digit, or where there are too few to tell, each tie is
asked about.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from holdfast.models.compiled.build import probes
from holdfast.problem import SLACK, SearchProblem

# rows among which ties are looked for, asked about of each kind, and needed
PROBES = 4096
SAMPLE = 64
FEWEST = 8


@dataclass
class Ties:
    """What was found out about the ties of a model."""

    known: dict[tuple[int, int], bool | None] = field(
        default_factory=dict[tuple[int, int], bool | None]
    )

    def of(self, problem: SearchProblem, label: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Ties with scores (c, k) of people with these labels (c,): which win, and which must be
        asked about."""
        kinds = label * scores.shape[1] + first_of_best(scores)
        wins = torch.zeros(len(kinds), dtype=torch.bool)
        open_ = torch.zeros(len(kinds), dtype=torch.bool)
        for kind in map(int, torch.bincount(kinds).nonzero()):
            key = divmod(kind, scores.shape[1])
            if key not in self.known:
                self.known[key] = _rule(problem, *key)
            rule = self.known[key]
            (open_ if rule is None else wins)[kinds == kind] = rule is None or rule
        return wins, open_


def first_of_best(scores: Tensor) -> Tensor:
    """(n, k) -> (n,) the first of the classes that are level in front."""
    return (scores >= scores.amax(1, keepdim=True) - SLACK).to(torch.int8).argmax(1)


def _rule(problem: SearchProblem, label: int, first: int) -> bool | None:
    """Do ties of this kind always win, or never? None: neither, or they are too few to tell."""
    rows = probes(problem.model.schema, [], PROBES)
    rows = problem.model.schema.feasible(rows).project(rows)
    goal = replace(problem.goal, label=torch.full((len(rows),), label))
    scores = problem.model(rows)
    level = ((goal.gap(scores) - goal.margin).abs() <= SLACK) & (first_of_best(scores) == first)
    tied = level.nonzero().squeeze(1)[:SAMPLE]
    if len(tied) < FEWEST:
        return None
    won = goal[tied].met(
        problem.model.score_frame(problem.model.schema.decode(rows[tied]), rows[tied])
    )
    return bool(won[0]) if bool((won == won[0]).all()) else None
