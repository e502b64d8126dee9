"""Rows as people would hand them in: every promise kept exactly."""

from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.schema.user_units import limits, settle
from holdfast.schema.verify import blocked, violations
from support.worlds import worlds


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(), st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 30.0]))
def test_every_row_that_is_handed_in_keeps_every_promise(world: Any, seed: int, size: float) -> None:
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
        # Someone forced to change may have no change left to mend a rule with: the explainer reports such rows.
        low, high = limits(schema, before)
        fine &= ((before >= low) & (before <= high)).all(1)
    for rows in (after, raw):
        assert dict(rows.dtypes) == dict(people.dtypes)
        found = violations(schema, before, schema.read(rows))
        assert (found[fine] == "").all(), (found, people, rows)
