"""A linear rule between columns, read from text such as 'open_accounts <= total_accounts'.

A rule is written in the user's units; `rule_projection` keeps it on encoded rows.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.errors import SchemaError

# a number or a column
FACTOR = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))|`([^`]+)`|([^\W\d]\w*)")
TERM = re.compile(rf"\s*([-+]?)\s*((?:{FACTOR.pattern})(?:\s*\*\s*(?:{FACTOR.pattern}))*)\s*")
COMPARE = re.compile(r"(<=|>=)(?=(?:[^`]*`[^`]*`)*[^`]*$)")  # outside backticks
EXAMPLE = "write it like 'open_accounts <= total_accounts' or '2 * a - `b c` >= -3'"
CONSTANTS = ""  # the name under which numbers without a column are added up


@dataclass(frozen=True)
class Rule:
    """A linear rule between columns, sum of weight x value <= bound, in the user's units.

    Args:
        text: the rule as it was written.
        weights: of the columns.
        bound: what the weighted sum may not exceed.

    >>> import holdfast as hf
    >>> rule = hf.Rule.parse("2 * open_accounts <= total_accounts + 3")
    >>> dict(rule.weights), rule.bound
    ({'open_accounts': 2.0, 'total_accounts': -1.0}, 3.0)
    """

    text: str
    weights: Mapping[str, float] = field(compare=False)
    bound: float = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Read a rule such as 'open_accounts <= total_accounts' or '2 * a - `b c` >= -3'."""
        text = text.strip()
        try:
            weights = _weights(text)
        except ValueError as why:
            raise SchemaError(f"rule {text!r}: {why}; {EXAMPLE}") from None
        bound = 0.0 - weights.pop(CONSTANTS)
        weights = {name: weight for name, weight in weights.items() if weight}
        if not weights:
            raise SchemaError(f"rule {text!r}: it needs at least one column; {EXAMPLE}")
        if not all(map(math.isfinite, (bound, *weights.values()))):
            raise SchemaError(f"rule {text!r}: its numbers are too large; {EXAMPLE}")
        return cls(text, weights, bound)


def _weights(text: str) -> dict[str, float]:
    """The weight of each column, and the sum of the constants, with everything on the left of <=.

    Raises:
        ValueError: says why the text is not a rule.
    """
    sides = COMPARE.split(text)  # left, comparison, right
    if len(sides) != 3:
        raise ValueError("it needs one comparison, <= or >=")
    left, comparison, right = sides
    sign = 1.0 if comparison == "<=" else -1.0
    weights = {CONSTANTS: 0.0}
    for side_sign, side in ((sign, left), (-sign, right)):
        for column, weight in _terms(side):
            weights[column] = weights.get(column, 0.0) + side_sign * weight
    return weights


def _terms(side: str) -> Iterator[tuple[str, float]]:
    """The terms of one side of a rule: columns with their weights."""
    rest = side
    is_first = True
    while is_first or rest:
        term = TERM.match(rest)
        # only the first term may go without a sign
        if term is None or not (is_first or term[1]):
            raise ValueError(
                f"cannot read {rest.strip()!r}" if rest.strip() else "one side is empty"
            )
        weight = -1.0 if term[1] == "-" else 1.0
        columns = list[str]()
        for number, quoted, name in FACTOR.findall(term[2]):
            weight *= float(number or 1)
            if quoted or name:
                columns.append(quoted or name)
        if len(columns) > 1:
            raise ValueError("it multiplies two columns")
        yield (columns[0] if columns else CONSTANTS), weight
        is_first = False
        rest = rest[term.end() :]
