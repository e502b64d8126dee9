"""Which of several plans a person gets: the cheapest that other judges are likely to certify.

Every person has several plans, of which the dearer ones are the surer ones. Of m models of a first
jury r refuse a plan. A second jury of M models, which had no part in the choice, may certify it if
at most R of them refuse. By Jeffreys' prior the refusals of the second jury are beta-binomial, so
that

    P(certified) = F(R; M, r + 1/2, m - r + 1/2)

is what the first jury knows of it. The cheapest plan is taken of which this is at least `sure`;
where there is none, the one that is refused least.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast._core.binomial import check_share, lower_bound
from holdfast._core.checks import untyped
from holdfast.auditing.audit import Audit

SURE = 0.9  # how likely the second jury certifies what is chosen


def choose(
    first: Audit, judges: int, *, hold: float, confidence: float, sure: float = SURE
) -> npt.NDArray[np.int64]:
    """(people,) the position of each person's plan among all of them.

    Args:
        first: several plans for each person, before the models of the first jury.
        judges: M, the models of the second jury.
        hold, confidence: of the certificate.
        sure: how likely it has to be.
    """
    check_share("sure", sure)
    cfs = first.cfs
    refusals = np.where(cfs.answered, (~first.held).sum(0), len(first.held) + 1)
    cost = np.where(cfs.answered, cfs.cost("weighted").to_numpy(), np.inf)
    likely = (
        chance_of_certificate(refusals, len(first.held), judges, hold=hold, confidence=confidence)
        >= sure
    )
    # Plans that are likely enough come first, the cheapest of them ahead; then the others by who
    # refuses them.
    order = np.lexsort((cost, np.where(likely, 0, refusals), ~likely, cfs.source))
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
