"""Rows as people would hand them in: every promise kept exactly."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.schema.schema import Schema
from holdfast.schema.user_units import COMBINED, limits, roundings, settle
from holdfast.schema.verify import blocked, violations
from support.worlds import worlds


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(), st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 30.0]))
def test_every_row_that_is_handed_in_keeps_every_promise(
    world: Any, seed: int, size: float
) -> None:
    """Exactly, in the user's units, for everyone whose own row keeps the rules."""
    schema, people = world
    before = schema.read(people)
    x = schema.encode(people)
    z = x + size * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    after, raw = (  # also straight from a point that nobody projected
        schema.write(numbers, people, changed)
        for numbers, changed in (settle(schema, end, before) for end in (schema.project(z, x), z))
    )
    broken_rules = np.zeros(len(people), dtype=bool)
    for rule in schema.rules:
        total = sum(w * before[:, schema.names.index(n)] for n, w in rule.weights.items())
        broken_rules |= np.asarray(total > rule.bound)
    fine = (blocked(schema, before) == "") & ~broken_rules
    if schema.rules and schema.max_changes:
        # Someone forced to change may have no change left to mend a rule with: the explainer
        # reports such rows.
        low, high = limits(schema, before)
        fine &= ((before >= low) & (before <= high)).all(1)
    for rows in (after, raw):
        assert dict(rows.dtypes) == dict(people.dtypes)
        found = violations(schema, before, schema.read(rows))
        assert (found[fine] == "").all(), (found, people, rows)


def test_roundings_are_all_combinations_of_the_numbers_on_either_side() -> None:
    rng = np.random.default_rng(0)
    coarse = list("abcdefg")
    table = pd.DataFrame(rng.normal(1e5, 3, (50, 8)), columns=[*coarse, "h"]).astype(
        dict.fromkeys(coarse, "float32")
    )
    schema = Schema.infer(table)
    before = schema.read(table)[:2]
    x = schema.encode(table, torch.float64)[:2]
    z = x + torch.tensor([1.0, -1.0, *[0.3] * 5, 1.0]).double() * torch.tensor([[1.0], [0.0]])
    rows = roundings(schema, z, before)
    assert rows.shape == (2, 2**COMBINED, 8)
    assert (rows[1] == x[1]).all()  # nothing changes
    assert len({tuple(row) for row in rows[0].tolist()}) == 2**COMBINED
    numbers = schema.decode_numbers(rows[0])
    meant = schema.decode_numbers(z[:1])
    # the last digit of a float32 from 65536 on
    assert (np.abs(numbers - meant)[:, :7] <= 2.0**-7 + 1e-9).all()
    assert (np.abs(numbers - meant)[:, 7] <= 1e-10).all()
    moved = (numbers[0] != numbers[-1])[:7]
    assert moved.sum() == COMBINED
    written, _ = settle(schema, rows[0], np.repeat(before[:1], len(rows[0]), 0))
    assert np.allclose(written[:, :7][:, moved], numbers[:, :7][:, moved], atol=1e-9, rtol=0)
