"""The paper as cells. One is cheap: a CounterNet before and after a simulated shift."""

from experiments.cell import Outcome, hash_of
from experiments.guo2023 import setup
from experiments.guo2023.experiment import EXPERIMENT
from experiments.whole import as_paper, check_cell

DATASET = "covariate_shift"
SEED = 0
HOW = setup.SETTINGS[DATASET].how


def check() -> Outcome:
    """Which share of the answers of each network each network accepts, and what they cost."""
    task = setup.prepare(DATASET)
    cell = setup.trained(HOW, task, 1, SEED)
    figures = {key: cell[key][0].tolist() for key in ("V", "V free", "cost", "cost free")}
    return Outcome(figures, {DATASET: hash_of(task.x, task.y, task.train, task.test)})


CELL = check_cell("guo2023", DATASET, check, HOW)
PAPER = as_paper(EXPERIMENT, CELL)
