"""A lender's files, as the commands that train read them."""

from typing import Protocol

import pandas as pd

from holdfast.datasets import write_table


class Loans(Protocol):
    """A random table with a column `approved`, which says yes or no."""

    def __call__(self, rows: int, seed: int = 0) -> pd.DataFrame: ...


def write_loans(loans: Loans, rows: int, prefix: str = "") -> None:
    """`loans.csv` to learn from and `people.csv`, twelve who were denied, in the present
    directory."""
    write_table(loans(rows), f"{prefix}loans.csv")
    people = loans(60, seed=1)
    denied = people[people["approved"] == "no"].drop(columns="approved")
    write_table(denied.head(12), f"{prefix}people.csv")
