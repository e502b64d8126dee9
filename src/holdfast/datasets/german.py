"""German Credit in its four versions."""

from importlib.resources import files

import pandas as pd

from holdfast.datasets.catalogue import About, dataset, from_zero, stored_table
from holdfast.datasets.dataset import Dataset

OUTCOME = {"bad": "denied", "good": "approved"}


@dataset
def german_credit(about: About) -> Dataset:
    """1,000 German loan applicants (shipped with the library): good risks are approved, bad ones
    denied."""
    with (files("holdfast.datasets") / "bundled" / "german_credit.csv.gz").open("rb") as file:
        table = pd.read_csv(file, compression="gzip", keep_default_na=False)
    y = table.pop("class").map(OUTCOME)
    return about.dataset(
        table,
        y,
        fixed=[
            "credit_history",
            "purpose",
            "personal_status",
            "age",
            "num_dependents",
            "foreign_worker",
            "job",
        ],
        up=["employment", "residence_since"],
        down=["credit_amount"],
        ordered={"employment": ["unemployed", "<1", "1<=X<4", "4<=X<7", ">=7"]},
        bounds={"credit_amount": (250, 20000), "duration": (4, 72)},
        words={
            "duration": {"label": "the loan", "unit": "months", "verbs": ("lengthen", "shorten")},
            "credit_amount": {"label": "the amount", "unit": "DM"},
            "installment_commitment": {"label": "instalments", "unit": "% of income"},
        },
    )


PAST = [
    "age",
    "personal_status_sex",
    "foreign_worker",
    "people_liable",
    "credit_history",
    "purpose",
    "job",
]


@dataset
def german_statlog(about: About) -> Dataset:
    """The same applicants with the labels and the column names of the corrected table, in the order
    of UCI's file."""
    years = [
        "unemployed",
        "... < 1 year",
        "1 <= ... < 4 years",
        "4 <= ... < 7 years",
        "... >= 7 years",
    ]
    return _decoded(about, {"employment_duration": years})


@dataset
def south_german(about: About) -> Dataset:
    """German Credit corrected: the same applicants in another order, with the codes read as the
    bank meant them."""
    years = ["< 1 yr", "1 <= ... < 4 yrs", "4 <= ... < 7 yrs", ">= 7 yrs"]
    ordered = {
        "employment_duration": ["unemployed", *years],
        "present_residence": years,
        "installment_rate": ["< 20", "20 <= ... < 25", "25 <= ... < 35", ">= 35"],
        "number_credits": ["1", "2-3", "4-5", ">= 6"],
    }
    return _decoded(about, ordered)


def _decoded(about: About, ordered: dict[str, list[str]]) -> Dataset:
    table = about.table(keep_default_na=False)
    y = table.pop("credit_risk").map(OUTCOME)
    bounds = from_zero(table) | {"amount": (250, 20000), "duration": (4, 72)}
    bounds |= {
        name: (1, 4) for name in ("installment_rate", "present_residence") if name not in ordered
    }
    up = ["employment_duration", "present_residence"]
    return about.dataset(
        table, y, fixed=PAST, up=up, down=["amount"], ordered=ordered, bounds=bounds
    )


@dataset
def german_rocoursenet_original(about: About) -> Dataset:
    """Nine columns of German Credit before the correction, as RoCourseNet uses them."""
    return _rocoursenet(about)


@dataset
def german_rocoursenet_corrected(about: About) -> Dataset:
    """Nine columns of German Credit after the correction, as RoCourseNet uses them."""
    return _rocoursenet(about)


def _rocoursenet(about: About) -> Dataset:
    """Scaled and coded over both tables, so that a model of one can read the other."""
    pair = [
        stored_table(f"german_credit/rocoursenet_{which}.csv.gz")
        for which in ("original", "corrected")
    ]
    own = pair[about.name == "german_rocoursenet_corrected"].astype("int64")
    y = own.pop("GoodCustomer (label)").map({0: "denied", 1: "approved"})
    both = pd.concat(pair).astype("int64").drop(columns="GoodCustomer (label)")
    codes = ["Present residence", "Status", "History"]
    low = both.min()
    high = both.max()
    bounds = {
        name: (float(low[name]), float(high[name])) for name in both.columns if name not in codes
    }
    fixed = ["Age", "Number people", "History"]
    return about.dataset(
        own, y, inferred_from=both, fixed=fixed, categories=codes, bounds=bounds, scaling="minmax"
    )
