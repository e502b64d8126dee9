"""The paper as cells. One is cheap: the smallest changes on German Credit, and what five other
networks make of them."""

import holdfast as hf
from experiments.black2022 import setup
from experiments.black2022.experiment import EXPERIMENT, answer, cost, kept, lost
from experiments.cell import Outcome, hash_of
from experiments.whole import as_paper, check_cell

DATASET = "german_credit"
ROWS = 100
MODELS = 5
SEED = 0


def check() -> Outcome:
    """Success, cost and invalidation of one method."""
    setting = setup.SETTINGS[DATASET]
    task = setup.prepare(DATASET, SEED).first(ROWS)
    model = setting.recipe.fit(task.X, task.y, task.schema, classes=task.classes, seed=SEED)
    method = setup.methods(setting, lambda: None)["Min l2"]()
    cell = answer(method, model, task)
    bank = hf.ModelBank.retrain(
        setting.recipe,
        task.X,
        task.y,
        task.schema,
        families={"seed": range(MODELS)},
        classes=task.classes,
        seed=SEED,
    )
    figures = {
        "success": float(cell["found"].mean()),
        "l2": float(cost(cell).mean()),
        "invalidation": lost(kept(bank, cell, task)).tolist(),
    }
    return Outcome(figures, {DATASET: hash_of(task)})


CELL = check_cell("black2022", DATASET, check, {"rows": ROWS, "models": MODELS})
PAPER = as_paper(EXPERIMENT, CELL)
