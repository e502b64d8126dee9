"""Who pays back: HELOC, Taiwanese credit cards, Give Me Some Credit, Lending Club, SBA loans."""

from typing import Any

import numpy as np
import pandas as pd

from holdfast.datasets.catalogue import About, dataset, from_zero, stored_table
from holdfast.datasets.dataset import Dataset
from holdfast.schema.schema import Schema

_HELOC: dict[str, Any] = {
    "licence": "FICO challenge terms",
    "citation": "FICO, Explainable Machine Learning Challenge, 2018",
    "source": "FICO community, heloc_dataset_v1.csv",
    "files": ("heloc/heloc.csv.gz",),
    "favourable": "Good",
}
_HELOC_PAST = [
    "ExternalRiskEstimate",
    "MSinceOldestTradeOpen",
    "AverageMInFile",
    "PercentTradesNeverDelq",
    "MaxDelqEver",
]


@dataset(9871, 23, 2, **_HELOC)
def heloc(about: About) -> Dataset:
    """FICO's home equity lines of credit; rows without any bureau record (-9 throughout) are left out.

    The codes -8 (no usable trades or inquiries) and -7 (condition not met) stay as numbers.
    """
    table = stored_table(about.files[0])
    y = table.pop("RiskPerformance")
    known = ~(table == -9).all(axis=1)
    schema = Schema.infer(table[known], fixed=_HELOC_PAST, scaling="minmax")
    return about.dataset(table[known], y[known], schema)


@dataset(10459, 23, 2, **_HELOC, papers={"black2022": 2615})
def heloc_full(about: About) -> Dataset:
    """All rows of HELOC, also the 588 without any bureau record; the codes -9, -8 and -7 stay as numbers."""
    table = stored_table(about.files[0])
    y = table.pop("RiskPerformance")
    return about.dataset(table, y, Schema.infer(table, fixed=_HELOC_PAST, scaling="minmax"))


@dataset(
    30000,
    23,
    2,
    licence="CC BY 4.0",
    citation="I.-C. Yeh, Default of Credit Card Clients, UCI, 2016",
    source="UCI 350, default of credit card clients.xls",
    files=("taiwan_credit/taiwan_credit.csv.gz",),
    favourable="paid",
    papers={"black2022": 7500, "counterfactual-training": 0.2},
)
def taiwan_credit(about: About) -> Dataset:
    """Taiwanese credit-card holders and whether they paid in the next month.

    Who somebody is and what happened before the latest month is fixed. Sex, education and marriage keep their codes,
    also those the source does not explain. The counterfactual training paper takes `balanced()` first.
    """
    table = stored_table(about.files[0]).drop(columns="ID")
    y = table.pop("default payment next month").map({0: "paid", 1: "default"})
    who = ["SEX", "EDUCATION", "MARRIAGE"]
    past = [f"{kind}{month}" for kind in ("PAY_", "BILL_AMT") for month in range(2, 7)]
    bounds = {name: zero for name, zero in from_zero(table).items() if name not in who}
    schema = Schema.infer(table, fixed=[*who, "AGE", *past], categories=who, scaling="minmax", bounds=bounds)
    return about.dataset(table, y, schema)


@dataset(
    120269,
    10,
    2,
    licence="Kaggle competition rules",
    citation="Credit Fusion and W. Cukierski, Give Me Some Credit, Kaggle, 2011",
    source="Kaggle GiveMeSomeCredit, cs-training.csv",
    files=("give_me_some_credit/cs-training.csv.gz",),
    favourable="paid",
    papers={"counterfactual-training": 0.2},
)
def give_me_some_credit(about: About) -> Dataset:
    """Borrowers and whether they fell 90 days behind within two years.

    The 29,731 rows without an income, among them all without a number of dependents, are left out. The
    counterfactual training paper takes `balanced()` first (16,714 rows).
    """
    table = stored_table(about.files[0], index_col=0).dropna().reset_index(drop=True)
    y = table.pop("SeriousDlqin2yrs").map({0: "paid", 1: "delinquent"})
    late = [name for name in table.columns if "Late" in name or "PastDue" in name]
    whole = {"MonthlyIncome": "int64", "NumberOfDependents": "int64"}
    table = table.astype(whole)
    return about.dataset(
        table, y, Schema.infer(table, fixed=["age", "NumberOfDependents", *late], bounds=from_zero(table))
    )


@dataset(
    9857,
    22,
    2,
    licence="LendingClub data; R package modeldata MIT",
    citation="M. Kuhn, modeldata: Data Sets Useful for Modeling Examples, CRAN",
    source="R modeldata, lending_club",
    files=("lending_club/lending_club.csv.gz",),
    favourable="good",
)
def lending_club(about: About) -> Dataset:
    """Loans of Lending Club, good or bad. An answer never makes the length of employment unknown."""
    table = stored_table(about.files[0], keep_default_na=False)
    y = table.pop("Class")
    grades = [f"{letter}{number}" for letter in "ABCDEFG" for number in range(1, 6)]
    past = ["addr_state", "delinq_2yrs", "acc_now_delinq", "delinq_amnt", "inq_last_6mths", "inq_last_12m", "inq_fi"]
    known = sorted(set(table["emp_length"]) - {"emp_unk"})
    schema = Schema.infer(
        table,
        fixed=past,
        ordered={"sub_grade": grades},
        allowed={"emp_length": known},
        bounds=from_zero(table) | {"revol_util": (0, 200), "all_util": (0, 200)},
    )
    return about.dataset(table, y, schema)


_SBA: dict[str, Any] = {
    "licence": "US government records; Kaggle copy CC BY-SA 4.0",
    "citation": "M. Li, A. Mickel and S. Taylor, Should This Loan be Approved or Denied?, J. Stat. Education, 2018",
    "favourable": "paid",
}


@dataset(
    449152,
    12,
    2,
    **_SBA,
    source="GitHub BirkhoffG/RoCourseNet, assets/data/loan, dollars for logarithms",
    files=("sba_loan/sba_loan_1994_2009.csv.gz",),
    papers={"rocoursenet": 0.25},
)
def sba_loan(about: About, *, rocoursenet: bool = False) -> Dataset:
    """Loans guaranteed by the US Small Business Administration; the parts are the years 1994 to 2009.

    With `rocoursenet`, the columns are as RoCourseNet reads them: dollars as logarithms, the term a category,
    NewExist a number, everything scaled to [0, 1] over all years.
    """
    codes = ["UrbanRural", "Sector_Points", "Term" if rocoursenet else "NewExist"]
    table = stored_table(about.files[0], keep_default_na=False)
    year, paid = table.pop("ApprovalFY"), table.pop("Approve")
    y = paid.map({0: "charged off", 1: "paid"})
    dollars = ["DisbursementGross", "GrAppv", "SBA_Appv"]
    if rocoursenet:
        table[dollars] = np.log(table[dollars])
    fixed = ["State", "UrbanRural", "Sector_Points", "NewExist"]
    bounds = from_zero(table.drop(columns=codes))
    scaling = "minmax" if rocoursenet else "standard"
    schema = Schema.infer(table, fixed=fixed, categories=codes, bounds=bounds, scaling=scaling)
    return about.dataset(table, y, schema, parts=year)


@dataset(
    2096,
    13,
    2,
    **_SBA,
    source="Li, Mickel and Taylor 2018, SBAcase.11.13.17.csv",
    files=("sba_loan/sba_case_california.csv.gz",),
)
def sba_california(about: About) -> Dataset:
    """The teaching sample of the same loans: real estate in California; the parts are the article's train and test.

    Kept are the columns known when the loan is asked for; the sector is the first two digits of NAICS. The six rows
    with an empty cell in them are left out.
    """
    table = stored_table(about.files[0])
    asked = ["Term", "NoEmp", "NewExist", "CreateJob", "RetainedJob", "UrbanRural", "RevLineCr", "LowDoc"]
    dollars = ["DisbursementGross", "GrAppv", "SBA_Appv"]
    whole = table[table[asked].notna().all(axis=1)].reset_index(drop=True)
    X = whole[[*asked, *dollars]].astype({"NewExist": "int64"})
    X["Franchise"] = whole["FranchiseCode"] > 1
    X["Sector"] = whole["NAICS"] // 10000
    y = whole["Default"].map({0: "paid", 1: "charged off"})
    codes = ["NewExist", "UrbanRural", "Sector"]
    bounds = from_zero(X.drop(columns=codes))
    schema = Schema.infer(X, fixed=[*codes, "Franchise"], categories=codes, bounds=bounds)
    parts = pd.Series(np.where(whole["Selected"] == 1, "train", "test"), index=X.index)
    return about.dataset(X, y, schema, parts=parts)
