"""Which of several plans a person gets: the cheapest that other judges are likely to certify.

Every person has several plans, of which the dearer ones are the surer ones. Of m models of a first
jury r refuse a plan. A second jury of M models, which had no part in the choice, may certify it if
at most R of them refuse. By Jeffreys' prior the refusals of the second jury are beta-binomial, so
that

    P(certified) = F(R; M, r + 1/2, m - r + 1/2)

is what the first jury knows of it. Of the plans of which this is at least `sure`, the cheapest is
not the best: it is where the table flatters the model most (the winner's curse), and by luck as
often as by merit. So the first jury is asked once more, led further away from the model in use than
the second one will be. A plan that is likely to pass there too has a reserve; the cheapest such
plan is taken. Where there is none, the plan that this further jury refuses least, of those likely
to be certified; and where there is none of these either, the one that is refused least.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast._core.binomial import check_share, lower_bound
from holdfast._core.checks import untyped
from holdfast.auditing.audit import Audit

SURE = 0.9  # how likely the second jury certifies what is chosen


def choose(
    first: Audit,
    judges: int,
    *,
    hold: float,
    confidence: float,
    further: Audit | None = None,
    sure: float = SURE,
) -> npt.NDArray[np.int64]:
    """(people,) the position of each person's plan among all of them.

    Args:
        first: several plans for each person, before the models of the first jury.
        judges: M, the models of the second jury.
        hold, confidence: of the certificate.
        further: the same plans before the first jury led further away from the model in use; None:
            no plan needs a reserve.
        sure: how likely it has to be.
    """
    check_share("sure", sure)
    cfs = first.cfs
    cost = np.where(cfs.answered, cfs.cost("weighted").to_numpy(), np.inf)

    def refusals_of(jury: Audit) -> npt.NDArray[np.int64]:
        """(plans,) how many models refuse each; all and one more where there is no answer."""
        return np.where(cfs.answered, (~jury.held).sum(0), len(jury.held) + 1)

    def is_likely(refusals: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """(plans,) is the second jury likely to certify what is refused so often?"""
        models = len(first.held)
        chance = chance_of_certificate(refusals, models, judges, hold=hold, confidence=confidence)
        return chance >= sure

    refusals = refusals_of(first)
    likely = is_likely(refusals)
    if further is None:
        refusals_further = refusals
        has_reserve = likely
    else:
        refusals_further = refusals_of(further)
        has_reserve = likely & is_likely(refusals_further)
    # three classes of plans, the best one first, and what comes before the cost in each of them
    rank = np.select([has_reserve, likely], [0, 1], default=2)
    before_cost = np.select([has_reserve, likely], [0, refusals_further], default=refusals)
    order = np.lexsort((cost, before_cost, rank, cfs.source))
    people = np.unique(cfs.source)
    return order[np.searchsorted(cfs.source[order], people)]


def chance_of_certificate(
    refusals: npt.ArrayLike, models: int, judges: int, *, hold: float, confidence: float
) -> npt.NDArray[np.float64]:
    """How likely a plan is certified by `judges` models, of which so many refusals are known among
    `models`.

    >>> chance_of_certificate([0, 2, 8, 20], 300, 300, hold=0.95, confidence=0.95).round(2).tolist()
    [1.0, 0.98, 0.55, 0.01]
    """
    refused = np.minimum(np.asarray(refusals), models)
    most = most_refusals(judges, hold=hold, confidence=confidence)
    law: Any = untyped("scipy.stats").betabinom
    chance = law.cdf(most, judges, refused + 0.5, models - refused + 0.5)
    return np.asarray(chance, dtype=np.float64)


def most_refusals(judges: int, *, hold: float, confidence: float) -> int:
    """R, how many of the judges may refuse a plan that is certified all the same; -1 if they are
    too few for any.

    >>> [most_refusals(judges, hold=0.95, confidence=0.95) for judges in (58, 59, 300, 1000)]
    [-1, 0, 8, 38]
    """
    refused = np.arange(judges + 1)
    certified = lower_bound(judges - refused, judges, confidence) >= hold
    return int(certified.sum()) - 1
