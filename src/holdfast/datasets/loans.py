"""Who pays back: HELOC, Taiwanese credit cards, Give Me Some Credit, Lending Club, SBA loans."""

import numpy as np
import pandas as pd

from holdfast.datasets.catalogue import About, dataset, from_zero
from holdfast.datasets.dataset import Dataset

_PAST = [
    "ExternalRiskEstimate",
    "MSinceOldestTradeOpen",
    "AverageMInFile",
    "PercentTradesNeverDelq",
    "MaxDelqEver",
]
_SBA_DOLLARS = ["DisbursementGross", "GrAppv", "SBA_Appv"]


@dataset
def heloc(about: About) -> Dataset:
    """FICO's home equity lines of credit; rows without any bureau record (-9 throughout) are left
    out.

    The codes -8 (no usable trades or inquiries) and -7 (condition not met) stay as numbers.
    """
    table = about.table()
    y = table.pop("RiskPerformance")
    known = ~(table == -9).all(axis=1)
    return about.dataset(table[known], y[known], fixed=_PAST, scaling="minmax")


@dataset
def heloc_full(about: About) -> Dataset:
    """All rows of HELOC, also the 588 without any bureau record; the codes -9, -8 and -7 stay as
    numbers."""
    table = about.table()
    return about.dataset(table, table.pop("RiskPerformance"), fixed=_PAST, scaling="minmax")


@dataset
def taiwan_credit(about: About) -> Dataset:
    """Taiwanese credit-card holders and whether they paid in the next month.

    Who somebody is and what happened before the latest month is fixed. Sex, education and marriage
    keep their codes, also those the source does not explain. The counterfactual training paper
    takes `balanced()` first.
    """
    table = about.table().drop(columns="ID")
    y = table.pop("default payment next month").map({0: "paid", 1: "default"})
    who = ["SEX", "EDUCATION", "MARRIAGE"]
    past = [f"{kind}{month}" for kind in ("PAY_", "BILL_AMT") for month in range(2, 7)]
    bounds = from_zero(table.drop(columns=who))
    return about.dataset(
        table, y, fixed=[*who, "AGE", *past], categories=who, bounds=bounds, scaling="minmax"
    )


@dataset
def give_me_some_credit(about: About) -> Dataset:
    """Borrowers and whether they fell 90 days behind within two years.

    The 29,731 rows without an income, among them all without a number of dependents, are left out.
    The counterfactual training paper takes `balanced()` first (16,714 rows).
    """
    table = about.table(index_col=0).dropna().reset_index(drop=True)
    y = table.pop("SeriousDlqin2yrs").map({0: "paid", 1: "delinquent"})
    late = [name for name in table.columns if "Late" in name or "PastDue" in name]
    table = table.astype({"MonthlyIncome": "int64", "NumberOfDependents": "int64"})
    return about.dataset(
        table, y, fixed=["age", "NumberOfDependents", *late], bounds=from_zero(table)
    )


@dataset
def lending_club(about: About) -> Dataset:
    """Loans of Lending Club, good or bad. An answer never makes the length of employment
    unknown."""
    table = about.table(keep_default_na=False)
    y = table.pop("Class")
    past = [
        "addr_state",
        "delinq_2yrs",
        "acc_now_delinq",
        "delinq_amnt",
        "inq_last_6mths",
        "inq_last_12m",
        "inq_fi",
    ]
    grades = {"sub_grade": [f"{letter}{number}" for letter in "ABCDEFG" for number in range(1, 6)]}
    allowed = {"emp_length": sorted(set(table["emp_length"]) - {"emp_unk"})}
    bounds = from_zero(table) | {"revol_util": (0, 200), "all_util": (0, 200)}
    return about.dataset(table, y, fixed=past, ordered=grades, allowed=allowed, bounds=bounds)


@dataset
def sba_loan(about: About, *, rocoursenet: bool = False) -> Dataset:
    """Loans guaranteed by the US Small Business Administration; the parts are the years 1994 to
    2009.

    With `rocoursenet`, the columns are as RoCourseNet reads them: dollars as logarithms, the term a
    category, NewExist a number, everything scaled to [0, 1] over all years.
    """
    table = about.table(keep_default_na=False)
    year = table.pop("ApprovalFY")
    paid = table.pop("Approve")
    if rocoursenet:
        table[_SBA_DOLLARS] = np.log(table[_SBA_DOLLARS])
    codes = ["UrbanRural", "Sector_Points", "Term" if rocoursenet else "NewExist"]
    y = paid.map({0: "charged off", 1: "paid"})
    fixed = ["State", "UrbanRural", "Sector_Points", "NewExist"]
    bounds = from_zero(table.drop(columns=codes))
    scaling = "minmax" if rocoursenet else "standard"
    return about.dataset(
        table, y, parts=year, fixed=fixed, categories=codes, bounds=bounds, scaling=scaling
    )


@dataset
def sba_california(about: About) -> Dataset:
    """The teaching sample of the same loans: real estate in California; the parts are the article's
    train and test.

    Kept are the columns known when the loan is asked for; the sector is the first two digits of
    NAICS. The six rows with an empty cell in them are left out.
    """
    table = about.table()
    known = [
        "Term",
        "NoEmp",
        "NewExist",
        "CreateJob",
        "RetainedJob",
        "UrbanRural",
        "RevLineCr",
        "LowDoc",
    ]
    table = table[table[known].notna().all(axis=1)].reset_index(drop=True)
    X = table[[*known, *_SBA_DOLLARS]].astype({"NewExist": "int64"})
    X["Franchise"] = table["FranchiseCode"] > 1
    X["Sector"] = table["NAICS"] // 10000
    y = table["Default"].map({0: "paid", 1: "charged off"})
    parts = pd.Series(np.where(table["Selected"] == 1, "train", "test"), index=X.index)
    codes = ["NewExist", "UrbanRural", "Sector"]
    bounds = from_zero(X.drop(columns=codes))
    return about.dataset(
        X, y, parts=parts, fixed=[*codes, "Franchise"], categories=codes, bounds=bounds
    )
