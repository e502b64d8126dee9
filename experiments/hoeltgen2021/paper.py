"""The paper as cells. One is cheap: a small network for scikit-learn's digits, and DeDUCE on a few
of them."""

import numpy as np

import holdfast as hf
from experiments.cell import Outcome, hash_of
from experiments.hoeltgen2021 import setup
from experiments.hoeltgen2021.experiment import EXPERIMENT
from experiments.tables import plain
from experiments.whole import as_paper, check_cell

DATASET = "digits"
WIDTH = 8
EPOCHS = 6
IMAGES = 6
SEED = 0


def check() -> Outcome:
    """Accuracy, and pixels and size of the changes."""
    task = setup.prepare(DATASET)
    network = hf.images.SpectralResNet(
        width=WIDTH, coefficient=4.0, epochs=EPOCHS, batch_size=64, seed=SEED
    )
    network.fit(task.train, task.y)
    method = hf.images.DeDUCE().fit(network, task.train, task.y)
    wanted = (task.test_y[:IMAGES] + 1) % task.classes
    found = method.explain(network, task.test[:IMAGES], wanted, threads=1)
    change = (found.x_cf - found.x).abs().flatten(1)
    figures = {
        "accuracy": network.score(task.test, task.test_y),
        "L0": plain((change > 0).sum(1).numpy()),
        "L1": plain(change.double().sum(1).numpy()),
        "found": plain(np.asarray(found.found)),
    }
    return Outcome(figures, {DATASET: hash_of(task.train, task.y, task.test, task.test_y)})


HOW = {"width": WIDTH, "epochs": EPOCHS, "images": IMAGES}
CELL = check_cell("hoeltgen2021", DATASET, check, HOW)
PAPER = as_paper(EXPERIMENT, CELL)
