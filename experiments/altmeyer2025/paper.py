"""The paper as cells. One is cheap: the linear networks of the theory, plain and taught."""

from experiments.altmeyer2025 import grid, setup
from experiments.altmeyer2025.experiment import EXPERIMENT
from experiments.cell import Outcome, hash_of
from experiments.whole import as_paper, check_cell

DATASET = "overlapping"
SEED = 0


def check() -> Outcome:
    """|theta_1| / |theta_2| of each seed."""
    task = setup.prepare(DATASET, SEED)
    plain, taught = grid.linear_theory(task, SEED)["ratio"].tolist()
    return Outcome({"plain": plain, "protected": taught}, {DATASET: hash_of(task)})


CELL = check_cell(
    "altmeyer2025", DATASET, check, {"seeds": grid.LINEAR_SEEDS, "epochs": grid.LINEAR_EPOCHS}
)
PAPER = as_paper(EXPERIMENT, CELL)
