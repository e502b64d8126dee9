"""Guo, Jia, Chen, Squicciarini and Yadav, "RoCourseNet: Robust Training of a Prediction Aware
Recourse Model", CIKM 2023: Tables 2, 3 and 6 to 10, and Figures 3 to 6 and 12a.

A data set comes in k subsets (years, schools, the original and the corrected table). One network
per subset; the answers of each are put before the networks of all others. Rows are encoded first
and every column may change, as in the paper. Methods with a predictor of their own (CounterNet,
RoCourseNet) are judged by these, all others by networks of the same layers that only predict.
"""

from experiments.cell import Cell
from experiments.guo2023.cells import cells, check
from experiments.guo2023.page import page, pictures
from experiments.guo2023.records import records
from experiments.paper import Paper

QUICK = ("printed", "counternet", "defaults", "vanilla", "roar-lime")


def quick() -> list[Cell]:
    """The first seed of the methods that a reader asks about first, on German Credit."""
    return [
        cell
        for cell in cells()
        if cell.dataset == "german_credit" and cell.group in QUICK and cell.seed == 0
    ]


PAPER = Paper(
    name="guo2023",
    title="RoCourseNet (Guo et al., CIKM 2023)",
    cells=cells,
    check=check().name,
    records=records,
    page=page,
    pictures=pictures,
    quick=quick,
)
