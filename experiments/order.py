"""In what order cells are made: the most important of what is missing first.

The order is of names, `paper/dataset/group/seed`, in the patterns of `fnmatch`; a cell has the
place of the first pattern that fits it, and among equals the shorter goes first. The cheap cells
that `make reproduce-check` makes again come first, then the first seed of every table, the curves,
what takes many hours, and finally further seeds.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from experiments.cell import Cell
from holdfast.errors import SettingError

ORDER = (
    "*/check/*",
    # Tables, first seed; small tables before the loans.
    "guo2023/covariate_shift/*/0",
    "guo2023/label_shift/*/0",
    "guo2023/german_credit/*/0",
    "guo2023/student/*/0",
    "black2022/*/0",
    "krishna2024/*/0",
    "guo2023/sba_loan/printed/0",
    "guo2023/sba_loan/counternet/0",
    "altmeyer2025/*/0",
    "guo2023/sba_loan/*/0",
    # Seeds that a claim rests on.
    "guo2023/german_credit/*",
    "guo2023/student/*",
    "guo2023/covariate_shift/*",
    "guo2023/label_shift/*",
    "hoeltgen2021/*",
    # Everything else.
    "*",
)


def place(cell: Cell) -> int:
    """The number of the first pattern that fits."""
    for number, pattern in enumerate(ORDER):
        if fnmatchcase(cell.name, pattern):
            return number
    raise SettingError(f"{cell.name} has no place in experiments/order.py")


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """The most important first."""
    return sorted(cells, key=lambda cell: (place(cell), cell.seed, cell.minutes, cell.name))
