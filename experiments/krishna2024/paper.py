"""The paper as cells. One is cheap: the bounds for linear models on German Credit."""

from experiments.cell import Outcome, hash_of
from experiments.krishna2024.bounds import LINEAR, linear_bounds
from experiments.krishna2024.experiment import EXPERIMENT
from experiments.krishna2024.setup import prepare
from experiments.tables import plain
from experiments.whole import as_paper, check_cell

DATASET = "german_credit"
SEED = 0


def check() -> Outcome:
    """Each column of the table of bounds."""
    task = prepare(DATASET, SEED)
    rows = linear_bounds(task, SEED)["rows"]
    figures = {name: plain(rows[:, i], 6) for i, name in enumerate(LINEAR)}
    return Outcome(figures, {DATASET: hash_of(task)})


CELL = check_cell("krishna2024", DATASET, check, {"columns": list(LINEAR)})
PAPER = as_paper(EXPERIMENT, CELL)
