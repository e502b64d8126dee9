"""The choice among several plans of a person, by hand, by the binomial law, and by juries drawn
over and over."""

from math import comb
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from holdfast._core.binomial import lower_bound
from holdfast.auditing.audit import Audit
from holdfast.auditing.choice import chance_of_certificate, choose, most_refusals
from holdfast.errors import SettingError

JUDGED: dict[str, Any] = {"hold": 0.8, "confidence": 0.9}


def jury(
    refusals: list[int], costs: list[float], source: list[int], answered: list[bool], models: int
) -> Audit:
    """Plans of people, and how many of the models refuse each."""
    held = np.arange(models)[:, None] >= np.array(refusals)
    cfs = SimpleNamespace(
        source=np.array(source),
        answered=np.array(answered),
        cost=lambda norm: pd.Series(costs) if norm else None,
    )
    return cast(Audit, SimpleNamespace(held=held, cfs=cfs))


def test_the_cheapest_of_the_likely_plans_is_chosen() -> None:
    # person 0: 1 is likely and cheaper than 2. person 1: none is likely, 4 is refused least and
    # cheaper than 5. person 2: what is no answer is never taken, whatever it costs.
    refusals = [40, 3, 0, 30, 25, 25, 0, 60]
    costs = [1, 2, 3, 1, 2, 4, 0, 9]
    first = jury(refusals, costs, [0, 0, 0, 1, 1, 1, 2, 2], [True] * 6 + [False, True], models=100)
    assert choose(first, 100, **JUDGED).tolist() == [1, 4, 7]


def test_the_order_of_plans_and_people_does_not_matter() -> None:
    refusals = [40, 3, 0, 30, 25, 25]
    costs = [1.0, 2, 3, 1, 2, 4]
    source = [0, 0, 0, 1, 1, 1]
    order = np.array([5, 2, 0, 4, 1, 3])
    mixed = jury(
        *[np.array(v)[order].tolist() for v in (refusals, costs, source)],
        answered=[True] * 6,
        models=100,
    )  # pyright: ignore[reportCallIssue]
    assert order[choose(mixed, 100, **JUDGED)].tolist() == [1, 4]


@pytest.mark.parametrize(
    ("judges", "hold", "confidence"), [(59, 0.95, 0.95), (58, 0.95, 0.95), (100, 0.8, 0.9)]
)
def test_most_refusals_by_the_binomial_law(judges: int, hold: float, confidence: float) -> None:
    """Of a plan that holds on exactly `hold`, at most 1 - confidence of juries may see as few
    refusals."""

    def chance(most: int) -> float:
        return sum(
            comb(judges, k) * (1 - hold) ** k * hold ** (judges - k) for k in range(most + 1)
        )

    most = most_refusals(judges, hold=hold, confidence=confidence)
    assert chance(most) <= 1 - confidence < chance(most + 1)


def test_the_chance_is_that_of_juries_drawn_over_and_over() -> None:
    """Shares that the prior allows, seen by a first jury: of those with r refusals, how many a
    second certifies."""
    random = np.random.default_rng(3)
    models = 60
    judges = 80
    draws = 400_000
    refused = random.beta(0.5, 0.5, draws)
    first = random.binomial(models, refused)
    second = random.binomial(judges, refused)
    certified = lower_bound(judges - second, judges, JUDGED["confidence"]) >= JUDGED["hold"]
    for r in (0, 5, 9, 20):
        seen = certified[first == r]
        expected = float(chance_of_certificate([r], models, judges, **JUDGED)[0])
        assert seen.mean() == pytest.approx(expected, abs=5 * np.sqrt(0.25 / len(seen)))


def test_more_refusals_are_never_more_likely_certified() -> None:
    chance = chance_of_certificate(np.arange(301), 300, 600, hold=0.95, confidence=0.95)
    assert (np.diff(chance) <= 0).all()
    assert chance[0] > 0.99
    assert chance[-1] < 1e-6


def test_sure_is_a_share() -> None:
    first = jury([0], [1.0], [0], [True], models=100)
    with pytest.raises(SettingError, match=r"sure must lie between 0 and 1, got 1\.5"):
        choose(first, 100, **JUDGED, sure=1.5)


def test_of_the_likely_plans_one_with_a_reserve_is_chosen() -> None:
    # person 0: 0 is likely to be certified and the cheapest, 1 has a reserve, and so has 2, which
    # is dearer. person 1: none has a reserve; of 3 and 4, which are likely, the further jury
    # refuses 4 less, and 5, which is not likely, least of all. person 2: none is likely; 6 is
    # refused less by the first jury.
    refusals = [3, 0, 0, 3, 3, 40, 30, 31]
    refusals_further = [40, 2, 1, 50, 45, 44, 60, 50]
    costs = [1.0, 2, 3, 1, 2, 3, 2, 1]
    source = [0, 0, 0, 1, 1, 1, 2, 2]
    first = jury(refusals, costs, source, [True] * 8, models=100)
    further = jury(refusals_further, costs, source, [True] * 8, models=100)
    assert choose(first, 100, **JUDGED, further=further).tolist() == [1, 4, 6]


def test_a_further_jury_that_is_the_first_one_changes_nothing() -> None:
    random = np.random.default_rng(1)
    refusals = random.integers(0, 60, 40).tolist()
    costs = random.random(40).tolist()
    source = np.repeat(np.arange(8), 5).tolist()
    first = jury(refusals, costs, source, [True] * 40, models=100)
    alone = choose(first, 100, **JUDGED)
    assert choose(first, 100, **JUDGED, further=first).tolist() == alone.tolist()


def test_a_plan_of_no_answer_is_chosen_last_of_all() -> None:
    first = jury([0, 60], [0.0, 9], [0, 0], [False, True], models=100)
    assert choose(first, 100, **JUDGED, further=first).tolist() == [1]
